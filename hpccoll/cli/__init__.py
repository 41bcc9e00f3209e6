"""The command line: one short function per command; the other packages do the work."""
