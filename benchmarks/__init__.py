"""Benchmarks: each states its goal, runs a peer in the same run and prints a ratio."""
