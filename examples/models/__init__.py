"""Models that the demo, the tests and the benchmarks run: plain PyTorch, nothing bent to suit the compiler.

Each file holds one model and a function `example(batch)` giving an `Example`: model, inputs, and a loss to train it.
"""
