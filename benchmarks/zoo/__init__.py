"""`python -m benchmarks.zoo`: models of libraries, small and with random weights, under armature and torch.compile.

`libraries` knows how to build models, `measure` runs one of them in a process of its own, `pool` starts those
processes, `report` prints what they found.
"""
