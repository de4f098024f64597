"""Graph breaks that this plugin's handlers raise."""

from __future__ import annotations

from armature.plugin_api import BreakType

ROWS = (
    BreakType(
        "global-state",
        "Change of torch's global state",
        "{operation} changes or reads state of the whole process, which must happen at its time and each time.",
        ("Call it outside the compiled function.",),
    ),
    BreakType(
        "inference-mode",
        "Inference mode by a private function",
        "{operation} is called, after which nothing leaves inference mode where an error goes past.",
        ("Write `with torch.inference_mode():`, which stays in the graph.",),
    ),
    BreakType(
        "array-differs",
        "numpy function that torch does differently",
        "What numpy's {operation} gives here has another dtype, size or memory than what torch has in its place; or "
        "numpy is to raise errors of divisions by zero (`errstate`, a filter of warnings), which torch does not.",
        ("Use the torch function on tensors.", "Call it outside the compiled function."),
    ),
    BreakType(
        "control-flow-operator",
        "Operator that takes programs as branches",
        "{operation} calls functions that would have to be graphs of their own.",
        (
            "Have the functions compute with tensors only, give tensors that are their own, and change nothing.",
            "torch.where(condition, a, b) computes both sides and stays in the graph.",
        ),
    ),
    BreakType(
        "autograd-function",
        "Autograd function that can't be traced",
        "{function}.apply goes in the graph with all that its forward and backward do, or not at all: {met}",
        (
            "Have forward and backward compute with tensors only, and keep what backward needs on the context.",
            "Call it where no gradient is wanted: then only forward is traced.",
        ),
    ),
    BreakType(
        "reentrant-checkpoint",
        "Activation checkpoint that treats gradients in its own way",
        "With use_reentrant=True, all results of the function want gradients if one of its inputs does, and none in a "
        "list or dict; traced, this one gives others.",
        ("Call torch.utils.checkpoint.checkpoint with use_reentrant=False.",),
    ),
    BreakType(
        "transform-level",
        "Level of function transforms",
        "{operation} enters or leaves a level of torch.func's transforms, outside of a transform that is traced.",
        ("Call torch.func.grad, vmap or the like in place of what they are made of.",),
    ),
    BreakType(
        "creates-leaf",
        "New leaf of autograd inside the function",
        "{operation} makes a tensor that is more than its numbers; made here, it would be an intermediate result.",
        ("Make the parameter or buffer before the compiled function is called, in __init__ for a module.",),
    ),
    BreakType(
        "foreign-memory",
        "Tensor over memory of another library",
        "{operation} makes a tensor over memory that torch does not own.",
        ("Make the tensor before the compiled function is called, and pass it.",),
    ),
    BreakType(
        "collective",
        "Collective that writes in place",
        "A collective of torch.distributed stands in a graph as one that gives a new tensor, but here {why}.",
        ("Call torch.distributed._functional_collectives, or communicate outside the compiled function.",),
    ),
)
