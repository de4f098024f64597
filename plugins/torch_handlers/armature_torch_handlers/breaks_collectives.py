"""Graph breaks of collectives of torch.distributed."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, supportable, user_error, with_examples

_OUTSIDE = fundamental("Call it outside the compiled function.")
_COLLECTIVE = supportable("torch.distributed._functional_collectives gives new tensors, and stays in the graph.")
_IN_PLACE = "A collective stands in a graph as one that gives a new tensor."

ROWS = with_examples(
    (
        BreakType(
            "collective",
            "Collective that writes in place",
            "A collective of torch.distributed can't be one that gives a new tensor: {why}.",
            (_COLLECTIVE, _OUTSIDE),
            code="AB0183",
            also=("GB1750", "GB2696", "GB3343", "GB9300", "GB9860"),
            cause=_IN_PLACE,
        ),
        BreakType(
            "collective-async",
            "async_op=True for distributed collectives",
            "A collective is called with async_op=True, which gives an object to wait for.",
            (_COLLECTIVE, fundamental("Leave async_op away: collectives in a graph run beside it as far as they can.")),
            code="GB0172",
            cause="The object lives between calls of the function.",
        ),
        BreakType(
            "collective-group",
            "Collective of a group that is not known",
            "A collective is called in a group that this process is not in, or that is no group.",
            (user_error("Give a group of torch.distributed.new_group, of which the process is a member."), _OUTSIDE),
            code="AB0184",
            cause=_IN_PLACE,
        ),
        BreakType(
            "collective-argument",
            "Collective of something else than tensors",
            "A collective is given {type}.",
            (fundamental("Give plain tensors, and lists of them."), _OUTSIDE),
            code="AB0185",
            cause=_IN_PLACE,
        ),
        BreakType(
            "collective-layout",
            "Collective of a tensor that lies in memory with gaps",
            "A collective is given a tensor that is complex, sparse or not contiguous.",
            (fundamental("Call contiguous() first; view_as_real() for complex numbers."), _OUTSIDE),
            code="AB0186",
            cause=_IN_PLACE,
        ),
        BreakType(
            "collective-gradient",
            "Collective of a tensor that wants a gradient",
            "A collective is given a tensor that wants a gradient.",
            (
                fundamental("Call it within torch.no_grad(), or of x.detach()."),
                supportable("torch.distributed.nn.functional has collectives with gradients."),
            ),
            code="AB0187",
            cause="Autograd gives collectives that write in place no gradient.",
        ),
        BreakType(
            "collective-reduction",
            "Reduction that has no form with a new tensor",
            "A collective reduces by {op}.",
            (fundamental("Reduce by sum, mean, max, min, product or the bitwise operators."), _OUTSIDE),
            code="AB0188",
            cause=_IN_PLACE,
        ),
    ),
    "armature_torch_handlers.examples.collectives",
)
