"""`python -m benchmarks.zoo`: models of libraries, small and with random weights, under armature and torch.compile.

`libraries` builds models, `measure` runs one of them in a process of its own, `pool` starts those processes, `report`
prints the results.
"""
