"""Benchmarks: `python -m benchmarks.run`. `python -m benchmarks.frontend`: the front ends alone. Compilers are compared in one run, interleaved, as ratios."""
