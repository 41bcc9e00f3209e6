"""Tuning tables of other libraries: one file a format, with its reader, its writer and the traps of its library."""
