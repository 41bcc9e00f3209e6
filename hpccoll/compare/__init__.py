"""What changed between two runs: cases matched, shifts with intervals, verdicts, and what else differs."""
