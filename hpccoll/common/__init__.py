"""What every room uses: errors, files, limits, units, YAML, and text that is safe for terminals."""
