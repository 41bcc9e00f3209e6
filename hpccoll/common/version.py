"""The version of the package, below everything that writes it into files."""

__version__ = "0.2.0.dev0"
