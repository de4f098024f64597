"""Random numbers, as eager mode draws them: by its own calls, or in kernels that compute the same numbers (dropout on
devices whose back end can).

Functional graphs have `x.normal_()` as an operator that returns a new tensor. The order of the numbers depends on the
layout of `x`, and torch's functional kernels fill a copy that may have another layout, so the program's own operator is
called.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

import torch
from torch import Tensor, fx

from armature.backend_api import Builder, CallInstead, Node, Position, TensorValue
from armature.plugin_api import Lowering, Services
from armature_aten_lowerings.common import add_call

aten = torch.ops.aten
SINGLE = frozenset((torch.float32, torch.float16, torch.bfloat16))  # computed in float32
Overload = torch._ops.OpOverload

IN_PLACE: Mapping[Overload, Callable[..., Tensor]] = {
    aten.bernoulli.p: Tensor.bernoulli_,
    aten.bernoulli.Tensor: Tensor.bernoulli_,
    aten.cauchy.default: Tensor.cauchy_,
    aten.exponential.default: Tensor.exponential_,
    aten.geometric.default: Tensor.geometric_,
    aten.log_normal.default: Tensor.log_normal_,
    aten.normal_functional.default: Tensor.normal_,
    aten.random.default: Tensor.random_,
    aten.random.to: Tensor.random_,
    aten.uniform.default: Tensor.uniform_,
}


def random_above(x: Tensor, low: int) -> Tensor:
    """`x.random_(low, None)` in a tensor like `x`."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).random_(low, None)


@cache
def above() -> Overload:
    """The operator for it. `torch.randint` can't express the bound (in int64, it would be 2**63), and torch's own name
    for it, `random.from`, is no name in Python, so it can't be part of a graph."""
    name = "armature::random_above"
    torch.library.define(name, "(Tensor x, SymInt low) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
    torch.library.impl(name, "CompositeExplicitAutograd", random_above)  # as each device draws
    return torch.ops.armature.random_above.default


def drawn_mask(size: Sequence[int], stride: Sequence[int], chance: float, *, device: torch.device) -> Tensor:
    """True with this chance for each element, as dropout draws it on a CPU."""
    return torch.empty_strided(size, stride, dtype=torch.bool, device=device).bernoulli_(chance)


@cache
def mask_drawing() -> Overload:
    """The operator for it: torch's own ones need a tensor of the mask's layout, with memory."""
    name = "armature::drawn_mask"
    schema = "(SymInt[] size, SymInt[] stride, float chance, *, Device device) -> Tensor"
    torch.library.define(name, schema, tags=(torch.Tag.nondeterministic_seeded,))
    torch.library.impl(name, "CompositeExplicitAutograd", drawn_mask)
    return torch.ops.armature.drawn_mask.default


def draw_masks_alone(module: object, ctx: Services) -> object:
    """The pass: on a CPU, dropout draws its mask in a call, and loops apply it, unless they draw it themselves. The
    library's kernel copies the mask to the dtype of the argument first, and runs over its result again to scale it."""
    if not isinstance(module, fx.GraphModule) or ctx.draws("cpu"):
        return module
    for node in module.graph.find_nodes(op="call_function", target=aten.native_dropout.default):
        given, chance, training = node.args
        value, (result, mask) = given.meta["val"], node.meta["val"]
        numbers = (*value.shape, *value.stride(), *mask.stride(), *result.stride())
        if training is False or not 0 < chance < 1 or value.device.type != "cpu" or 0 in value.shape:
            continue
        if value.dtype not in (torch.float32, torch.float64) or not all(type(n) is int for n in numbers):
            continue
        with module.graph.inserting_before(node):
            sizes = [*mask.shape], [*mask.stride()]
            drawn = module.graph.call_function(mask_drawing(), (*sizes, 1.0 - chance), {"device": mask.device})
            drawn.meta.update(node.meta | {"val": mask})
            kept = add_call(node, aten.mul.Tensor, given, drawn)
            scaled = add_call(node, aten.mul.Tensor, kept, 1.0 / (1.0 - chance))
        if scaled.meta["val"].stride() != result.stride() or any(u.target is not operator.getitem for u in node.users):
            for made in (scaled, kept, drawn):
                module.graph.erase_node(made)
            continue
        for user in list(node.users):
            user.replace_all_uses_with((scaled, drawn)[user.args[1]])
            module.graph.erase_node(user)
        module.graph.erase_node(node)
    return module


def lowerings() -> Iterable[Lowering]:
    """A row for each operator that fills a tensor."""
    filled = [Lowering(op, filled_by(draw)) for op, draw in IN_PLACE.items()]
    filled.append(Lowering(above(), lambda b, x, low: CallInstead(random_above)))
    return [*filled, Lowering(aten.native_dropout.default, native_dropout)]


def filled_by(draw: Callable[..., Tensor]) -> Callable[..., CallInstead]:
    """The lowering of the functional form of `draw`, which writes into its first argument."""

    def run(x: Tensor, *args: object, **kwargs: object) -> Tensor:
        made = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
        return draw(made, *args, **kwargs)

    def lowering(b: Builder, x: TensorValue, *args: object, **kwargs: object) -> CallInstead:
        return CallInstead(run)

    return lowering


def native_dropout(
    b: Builder, input: TensorValue, p: float, train: bool | None
) -> tuple[TensorValue, TensorValue] | None:
    """The elements whose number is below `1 - p`, scaled, and which these are; with eager's rounding."""
    if train is False or not 0 < p < 1 or input.dtype not in SINGLE:
        return None
    number, keep = b.uniform(input), torch.tensor(1.0 - p, dtype=torch.float32)
    limit, scale = b.const(float(keep), torch.float32), b.const(float((1.0 / keep.double()).float()), torch.float32)
    mask = b.loop(lambda position: b.op("lt", number(position), limit), b.spec(1))

    def scaled(position: Position) -> Node:
        factor = b.op("where", b.load(mask, position), scale, b.const(0.0, torch.float32))
        return b.op("mul", b.read(input, position, torch.float32), factor)

    return b.loop(scaled), mask
