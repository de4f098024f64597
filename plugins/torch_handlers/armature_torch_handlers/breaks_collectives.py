"""Graph breaks of collectives of torch.distributed."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, supportable, user_error, with_examples

_CALL_UNCOMPILED = fundamental("Call it outside the compiled function.")
_COLLECTIVE = supportable(
    "Use torch.distributed._functional_collectives, which return new tensors and stay in the graph."
)
_IN_PLACE = "In a graph, a collective is replaced by one that returns a new tensor."

ROWS = with_examples(
    (
        BreakType(
            "collective",
            "Collective that writes in place",
            "This collective can't be replaced by one that returns a new tensor: {why}.",
            (_COLLECTIVE, _CALL_UNCOMPILED),
            code="AB0183",
            also=("GB1750", "GB3343", "GB9860"),
            cause=_IN_PLACE,
        ),
        BreakType(
            "collective-async",
            "Collective with async_op=True",
            "A collective is called with async_op=True, which returns an object to wait for.",
            (
                _COLLECTIVE,
                fundamental("Leave async_op out: collectives in a graph overlap with computation where possible."),
            ),
            code="GB0172",
            torch_name="async_op=True for distributed collectives",
            cause="That object may outlive the call of the function.",
        ),
        BreakType(
            "collective-group",
            "Collective in an unknown group",
            "A collective is called with a group that this process does not belong to, or with something "
            "that is not a group.",
            (
                user_error("Pass a group from torch.distributed.new_group that the process is a member of."),
                _CALL_UNCOMPILED,
            ),
            code="AB0184",
            cause=_IN_PLACE,
        ),
        BreakType(
            "collective-argument",
            "Collective on something other than tensors",
            "A collective is given {type}.",
            (fundamental("Pass plain tensors, and lists of them."), _CALL_UNCOMPILED),
            code="AB0185",
            cause=_IN_PLACE,
        ),
        BreakType(
            "collective-layout",
            "Collective on a tensor that is not contiguous",
            "A collective is given a tensor that is complex, sparse or not contiguous.",
            (fundamental("Call contiguous() first, or view_as_real() for complex numbers."), _CALL_UNCOMPILED),
            code="AB0186",
            cause=_IN_PLACE,
        ),
        BreakType(
            "collective-gradient",
            "Collective on a tensor that requires gradients",
            "A collective is given a tensor that requires gradients.",
            (
                fundamental("Call it within torch.no_grad(), or on x.detach()."),
                supportable("torch.distributed.nn.functional has collectives with gradients."),
            ),
            code="AB0187",
            cause="Autograd has no gradients for collectives that write in place.",
        ),
        BreakType(
            "collective-reduction",
            "Collective with an unsupported reduction",
            "A collective reduces with {op}.",
            (fundamental("Reduce with sum, mean, max, min, product or a bitwise operator."), _CALL_UNCOMPILED),
            code="AB0188",
            cause=_IN_PLACE,
        ),
    ),
    "armature_torch_handlers.examples.collectives",
)
