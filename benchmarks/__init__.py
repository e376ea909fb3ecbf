"""Measurements. Each part compares us with something else in the same run, and writes `benchmarks/results/`."""
