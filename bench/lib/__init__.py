"""Code shared by the benchmark scripts. Python's standard library only."""
