"""Benchmarks, `python -m benchmarks.run`, and of the front ends alone, `python -m benchmarks.frontend`.

Compilers are compared in one run, interleaved, as ratios.
"""
