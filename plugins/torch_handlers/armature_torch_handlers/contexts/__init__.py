"""Contexts that change how torch works inside them: the primitives that their `__enter__` and `__exit__` call.

The context managers themselves are Python and are traced; what they set is recorded in the graph, and set while tracing
too, so that the fake tensors show what eager mode would give.
"""
