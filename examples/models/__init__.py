"""Models that the demo, the tests and the benchmarks run: plain PyTorch, not adapted to the compiler.

Each file holds one model and a function `example(batch)` that returns an `Example`: model, inputs, and a loss to train
it.
"""
