"""The commands of training steps."""
