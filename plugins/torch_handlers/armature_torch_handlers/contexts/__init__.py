"""Contexts that change how torch works inside them.

What they set is recorded in the graph, and set while tracing too, so that fake tensors show what eager mode gives.
"""
