"""Contexts that change how torch works inside them.

Their settings are recorded in the graph, and also made while tracing, so that fake tensors behave as in eager mode.
"""
