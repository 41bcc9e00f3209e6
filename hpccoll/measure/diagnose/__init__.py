"""``hpccoll diagnose`` on ranks: one leads, and the others transfer with the partners that it names."""
