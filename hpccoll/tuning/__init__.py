"""Tune tables: the choice of algorithm by setting and size; how tables are made, judged and used."""
