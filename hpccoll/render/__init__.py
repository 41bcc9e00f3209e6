"""How results are written: pages, charts, tables, pictures of schedules, text for terminals."""
