"""What follows from the rows of measured training steps."""
