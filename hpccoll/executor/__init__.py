"""The compiled executor: C sources, their build and the loaded library."""
