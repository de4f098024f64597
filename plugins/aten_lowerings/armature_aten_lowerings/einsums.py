"""Products of matrices written by `torch.einsum`, in any order of their axes, as `torch.matmul` of permuted tensors.

Attention is found in these (`attention.py`); einsum itself makes the same call of the same matrices.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs
import torch
from torch import Tensor, fx
from torch.fx.node import Argument

from armature.plugin_api import drop_unread, fake_of
from armature_aten_lowerings.attention_kernels import may_pay

EQUATION = re.compile(r"([a-zA-Z]+),([a-zA-Z]+)->([a-zA-Z]+)")


@attrs.frozen
class Axes:
    """How to permute both operands of an einsum for a product of matrices, and then its result. swapped: the second
    operand is the left one, whose rows come first in the result. shared: the right operand gets an axis of size 1
    before its matrices, since it is the same along one of the left one's (keys of one head, queries of several)."""

    left: tuple[int, ...]
    right: tuple[int, ...]
    result: tuple[int, ...]
    swapped: bool = False
    shared: bool = False


def axes_of(equation: str) -> Axes | None:
    """The axes of an equation that is a product of batches of matrices; None for others."""
    terms = EQUATION.fullmatch(equation.replace(" ", ""))
    if terms is None:
        return None
    left, right, result = terms.groups()
    order = [letter in left for letter in result if (letter in left) != (letter in right)]
    if swapped := order == [False, True]:
        left, right = right, left
    batch = [letter for letter in result if letter in left and letter in right]
    rows = [letter for letter in result if letter in left and letter not in right]
    columns = [letter for letter in result if letter in right and letter not in left]
    summed = [letter for letter in left if letter in right and letter not in result]
    heads, rows = (rows[:1], rows[1:]) if len(rows) == 2 and len(result) in (4, 5) else ([], rows)
    given = [batch + heads + rows + summed, batch + summed + columns, batch + heads + rows + columns]
    whole = all(sorted(term) == sorted(parts) for term, parts in zip((left, right, result), given, strict=True))
    if not whole or not len(rows) == len(columns) == len(summed) == 1 or not batch:
        return None
    left_order, right_order = tuple(map(left.index, given[0])), tuple(map(right.index, given[1]))
    return Axes(left_order, right_order, tuple(map(given[2].index, result)), swapped, bool(heads))


@attrs.frozen(eq=False)
class Einsum:
    """An einsum that has been replaced by a product, which copies an operand that is shared by heads."""

    product: fx.Node
    result: fx.Node
    args: tuple[Argument, ...]

    def restore(self, graph: fx.Graph) -> None:
        """Write the einsum again, if its product is still there."""
        if self.product._erased:
            return
        with graph.inserting_before(self.result):
            node = graph.call_function(torch.einsum, self.args)
        node.meta.update(self.result.meta)
        self.result.replace_all_uses_with(node)
        drop_unread(graph, self.result)


def as_products(module: fx.GraphModule) -> list[Einsum]:
    """Write einsums with many elements as products of matrices. Returns those that are no slower only as part of
    something else."""
    found: list[Einsum] = []
    for node in module.graph.find_nodes(op="call_function", target=torch.einsum):
        equation, *operands = node.args
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = list(operands[0])
        axes = axes_of(equation) if isinstance(equation, str) and len(operands) == 2 else None
        left, right = operands if axes is not None else (None, None)
        if axes is None or not isinstance(left, fx.Node) or not isinstance(right, fx.Node):
            continue
        fakes = [fake_of(one) for one in (left, right, node)]
        if all(map(has_known_size, fakes)) and any(map(may_pay, fakes)) and have_same_sizes(equation, fakes):
            made = replace(module.graph, node, *((right, left) if axes.swapped else (left, right)), axes)
            found += [made] if made is not None and (axes.shared or fakes[0].device.type != "cpu") else []
    return found


def has_known_size(fake: object) -> bool:
    """Whether it is a tensor of floats, without sizes that vary."""
    if not isinstance(fake, Tensor) or not fake.dtype.is_floating_point:
        return False
    return all(type(size) is int for size in fake.shape)


def have_same_sizes(equation: str, fakes: Sequence[Tensor]) -> bool:
    """Whether no axis of one place stands for one of more. fakes: of the operands and the result."""
    terms = re.split(",|->", equation.replace(" ", ""))
    sizes = {pair for term, fake in zip(terms, fakes, strict=True) for pair in zip(term, fake.shape, strict=True)}
    return len(sizes) == len({letter for letter, _ in sizes})


def has_same_layout(one: Tensor, other: Tensor) -> bool:
    """Whether strides are the same; a step along an axis of one place means nothing."""
    steps = zip(one.shape, one.stride(), other.stride(), strict=True)
    return all(size == 1 or mine == yours for size, mine, yours in steps)


def replace(graph: fx.Graph, node: fx.Node, left: fx.Node, right: fx.Node, axes: Axes) -> Einsum | None:
    """Replace an einsum, unless its result would have other strides."""
    fake = fake_of(node)
    made: list[fx.Node] = []

    def call(name: str, value: fx.Node, *args: fx.Node | int) -> fx.Node:
        with fake.fake_mode, torch.set_grad_enabled(fake.requires_grad):
            result = getattr(fake_of(value), name)(*map(fake_of, args))
        made.append(graph.call_method(name, (value, *args)))
        made[-1].meta.update({key: said for key, said in node.meta.items() if key != "example_value"})
        made[-1].meta["example_value"] = result
        return made[-1]

    def permuted(value: fx.Node, order: tuple[int, ...]) -> fx.Node:
        return value if order == tuple(range(len(order))) else call("permute", value, *order)

    with graph.inserting_before(node):
        matrices = permuted(right, axes.right)
        matrices = call("unsqueeze", matrices, -3) if axes.shared else matrices
        product = call("matmul", permuted(left, axes.left), matrices)
        result = permuted(product, axes.result)
    fits = has_same_layout(fake_of(result), fake) and fake_of(result).dtype == fake.dtype
    if fits:
        node.replace_all_uses_with(result)
    args, made = node.args, [node] if fits else made
    for unread in reversed(made):
        graph.erase_node(unread)
    return Einsum(product, result, args) if fits else None
