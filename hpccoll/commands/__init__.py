"""The commands: one short function for each, in families. What they do is in the rooms below."""
