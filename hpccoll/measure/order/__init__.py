"""What ranks run to reveal the order of a reduction."""
