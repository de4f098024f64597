"""Breaks at objects of kinds that the interpreter does not follow."""

from __future__ import annotations

from armature.plugin_api import BreakType

ROWS = (
    BreakType(
        "unsupported-attribute",
        "Attribute that tracing cannot read",
        "Reading `{name}` of {type} runs code that is not Python, or gives what tracing cannot follow.",
        (
            "Read it before the compiled function is called, and pass the value.",
            "A plugin can teach the type to the tracer: hook armature_value_types.",
        ),
    ),
    BreakType(
        "unsupported-operation",
        "Operation that tracing cannot follow",
        "{operation} on {type} is not traced.",
        (
            "Do it outside the compiled function.",
            "A plugin can teach the type to the tracer: hook armature_value_types.",
        ),
    ),
    BreakType(
        "unsupported-key",
        "Key whose equality tracing cannot decide",
        "{type} is used as the key of a dict or the member of a set.",
        ("Use strings, numbers, or the objects' names as keys.",),
    ),
    BreakType(
        "unsupported-argument",
        "Argument that cannot stand in a graph",
        "{type} is passed to a function that becomes a node of the graph, or that needs a constant here.",
        (
            "Pass tensors, numbers, strings, dtypes, devices, or lists, tuples and dicts of these.",
            "Wrap the function in a Python function that takes the object apart.",
        ),
    ),
    BreakType(
        "unsupported-result",
        "Operator that gives neither tensors nor constants",
        "A function in the graph gives {type}, which tracing does not follow.",
        (
            "Call it outside the compiled function.",
            "A plugin can say how the function is traced: hook armature_handlers.",
        ),
    ),
    BreakType(
        "tensor-subclass",
        "Tensor of a kind that is not traced",
        "{type} is no tensor whose numbers stand in memory in the plain way, or takes over the look-up of attributes.",
        ("Convert it to a plain tensor before the compiled function is called.",),
    ),
    BreakType(
        "opaque-subclass",
        "Tensor subclass that takes over operators and can't be taken apart",
        "{type} has a `__torch_dispatch__`, and {reason}: the compiler can't tell what its operators come to.",
        (
            "Give the class `__tensor_flatten__` and `__tensor_unflatten__`, which name the plain tensors that it "
            "holds and all else that its operators depend on.",
            "Convert it to a plain tensor before the compiled function is called.",
        ),
    ),
    BreakType(
        "overridden-call",
        "Call that somebody may override",
        "A function mode or tensor subclass is active, and what {function} calls inside is for it to see.",
        ("Call it outside the mode, or with plain tensors.",),
    ),
)
