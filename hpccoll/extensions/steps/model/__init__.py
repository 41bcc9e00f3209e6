"""What a training step takes on a cluster: predicted from its program, or by closed formulas."""
