"""What the benchmark scripts share. Python's standard library only."""
