"""Benchmarks: `python -m benchmarks.run`. Compilers are compared in one run, interleaved, as ratios."""
