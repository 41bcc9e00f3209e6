"""The store: raw files and journals, and the rows that everything after the measurement reads."""
