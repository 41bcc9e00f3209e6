"""The command line: one short function for each command, in families. What they do is in the rooms below."""
