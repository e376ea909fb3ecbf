"""Benchmarks. Each part compares Millpond with something else in the same run, and writes to
`benchmarks/results/`."""
