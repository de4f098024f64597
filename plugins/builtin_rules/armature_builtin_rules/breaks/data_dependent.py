"""Breaks because Python needs the numbers of a tensor, which do not exist while tracing."""

from __future__ import annotations

from armature.plugin_api import BreakType

ROWS = (
    BreakType(
        "data-dependent-branch",
        "Branch on the value of a tensor",
        "`{test}` is known only after the tensor is computed, and the rest of the function depends on it.",
        (
            "torch.where(condition, a, b) computes both sides and keeps the choice in the graph.",
            "If the condition does not change between calls, pass it as a Python bool.",
            "Put the code around the branch in functions of its own: each is compiled.",
        ),
    ),
    BreakType(
        "data-dependent-value",
        "Python needs the numbers of a tensor",
        "{operation} gives a Python value that depends on what the tensor holds.",
        (
            "Keep the computation on tensors: a 0-d tensor works in most places where a number does.",
            "Move the call out of the compiled function, for example to where the result is printed.",
            "ARMATURE_CAPTURE_SCALAR_OUTPUTS=1 keeps .item() in the graph, "
            "ARMATURE_CAPTURE_DYNAMIC_OUTPUT_SHAPE_OPS=1 operators such as nonzero.",
        ),
    ),
    BreakType(
        "unknown-answer",
        "Call whose answer may change",
        "{function} was called without a tensor, and no rule says what its result depends on, if it has no effect.",
        (
            "Ask outside the compiled function and pass the answer as an argument.",
            "If it depends on its arguments alone, a plugin can say so: a Rule with answer=Answer.OF_ARGUMENTS.",
        ),
    ),
    BreakType(
        "unknown-stride",
        "Stride along a dimension of size one",
        "{operation} is asked of a tensor that the graph computes. Along a dimension of size one any stride is right, "
        "and which one an operator chooses is not known before it runs.",
        (
            "Ask for the stride of a dimension that is larger than one, or for is_contiguous().",
            "Ask outside the compiled function.",
        ),
    ),
)
