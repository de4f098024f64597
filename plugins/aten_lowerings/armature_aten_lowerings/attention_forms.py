"""Reads attention that a program writes out: the steps from the product of queries and keys to the softmax, in any
order and number, and those from there to the product with the values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TypeAlias

import attrs
import torch
from torch import Tensor, fx
from torch.nn import functional

from armature.plugin_api import Functions, KnownValues, fake_of, function_of, spelled
from armature_aten_lowerings.attention_kernels import may_pay
from armature_aten_lowerings.blind_queries import CASTS
from armature_aten_lowerings.masks import value_if_known

STEPS = 8
"""Most steps between product and softmax; more are not looked for."""
VIEWS = frozenset((Tensor.view, torch.reshape, torch.unflatten, torch.flatten))
PRODUCTS: frozenset[Hashable] = frozenset((torch.matmul, torch.bmm))
WRITES: Mapping[Hashable, object] = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
    "add_": "add",
    "sub_": "sub",
    "mul_": "mul",
    "div_": "div",
    "masked_fill_": "masked_fill",
}
"""What computes the same as a write to the first argument."""
FRESH = frozenset((
    torch.matmul, torch.bmm, torch.baddbmm, operator.matmul, "matmul", "bmm", "baddbmm",
    torch.add, torch.sub, torch.mul, torch.div, *WRITES.values(),
))  # fmt: skip
"""Functions that make a new tensor."""


@attrs.frozen(eq=False)
class Step:
    """What is done to the scores. `kind`: "scaled", by the number `value`; "added", the tensor `mask` times `value`;
    "shown" and "filled", where the tensor `mask` is false or true, the number `value` stands instead. scores: the
    node of the result."""

    kind: str
    value: float
    mask: fx.Node | None = None
    scores: fx.Node | None = None

    @property
    def result(self) -> Tensor:
        """The fake of the scores after it."""
        fake: Tensor = fake_of(self.scores)
        return fake


@attrs.frozen(eq=False)
class Written:
    """Attention written out, whose result `root` is. `keys` is already transposed: [..., D, S]. nodes: of the whole.
    dropped: the chance of a weight to be dropped. cleared: masks under which weights are set to zero."""

    query: fx.Node
    keys: fx.Node
    value: fx.Node
    steps: tuple[Step, ...]
    root: fx.Node
    product: fx.Node
    softmax: fx.Node
    nodes: frozenset[fx.Node]
    dropped: float
    cleared: tuple[object, ...] = ()


Trail: TypeAlias = "tuple[fx.Node, tuple[Step, ...], tuple[fx.Node, ...]]"
"""A node, and the steps and nodes on the way from there to the softmax, the steps in the program's order."""


@attrs.frozen(eq=False)
class Call:
    """What a node calls, and its arguments by the names of the function's parameters."""

    function: Hashable | None = None
    arguments: Mapping[str, object] = {}

    @classmethod
    def of(cls, value: object, functions: Functions) -> Call:
        """The call of a node; an empty one for other objects."""
        if not isinstance(value, fx.Node):
            return cls()
        found = spelled(value, functions)
        if found is None:  # the parameters of `type` are not known by name
            function = function_of(value, functions)
            return cls(function, {"self": value.args[0]}) if function in CASTS else cls()
        return cls(found.function, found.arguments)

    def __getitem__(self, name: str) -> object:
        return self.arguments.get(name)

    def operands(self) -> tuple[object, object]:
        """The first two arguments."""
        first, second, *_ = (*self.arguments.values(), None, None)
        return first, second


def number_of(value: object) -> float | None:
    """A number, or a one-element tensor that depends on constants only; None for others."""
    if isinstance(value, fx.Node):
        known = value_if_known(value, KnownValues())
        return None if known is None or known.numel() != 1 or known.dtype.is_complex else float(known)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def read(root: fx.Node, functions: Functions) -> Written | None:
    """Attention whose result a node is, if it is."""
    last = Call.of(root, functions)
    weights, value = last.operands()
    if last.function not in PRODUCTS or not isinstance(value, fx.Node):
        return None
    passed, dropped, cleared = [root], 0.0, list[object]()
    while isinstance(weights, fx.Node):
        call = Call.of(weights, functions)
        if call.function in (functional.dropout, torch.dropout):
            dropped = max(dropped, _chance(call))
        elif call.function is torch.masked_fill and number_of(call["value"]) == 0:
            cleared.append(call["mask"])
        elif not keeps_values(weights, call):
            break
        passed.append(weights)
        weights = call["input"] if "input" in call.arguments else call["self"]
    if not isinstance(weights, fx.Node):
        return None
    for scores, nodes in _softmaxes(weights, functions):
        for product, steps, between in _trails(scores, functions, STEPS):
            found = _product(product, functions)
            if found is not None:
                query, keys, first = found
                inner = frozenset((*passed, *nodes, *between, product))
                return Written(
                    query, keys, value, (*first, *steps), root, product, weights, inner, dropped, tuple(cleared)
                )
    return None


def _chance(dropout: Call) -> float:
    """The chance of a weight to be dropped, at most."""
    if dropout["train" if "train" in dropout.arguments else "training"] is False:
        return 0.0
    chance = number_of(dropout["p"])
    return 1.0 if chance is None else chance


def keeps_values(node: fx.Node, call: Call) -> bool:
    """Whether a node changes at most the dtype, or is a view with other axes of batches: [B * H, L, S] and
    [B, H, L, S]."""
    after, before = fake_of(node), fake_of(call.operands()[0])
    if not isinstance(before, Tensor) or not isinstance(after, Tensor):
        return False
    if call.function in CASTS:
        return before.shape == after.shape
    regrouped = call.function in VIEWS and {after.dim(), before.dim()} <= {3, 4}
    return regrouped and after.shape[-2:] == before.shape[-2:]


def _last(node: fx.Node, dim: object) -> bool:
    return isinstance(dim, int) and dim in (-1, fake_of(node).dim() - 1)


def _softmaxes(weights: fx.Node, functions: Functions) -> Iterator[tuple[fx.Node, tuple[fx.Node, ...]]]:
    """The scores of a softmax over the last axis, and its nodes."""
    call = Call.of(weights, functions)
    first, second = call.operands()
    if call.function is torch.softmax and isinstance(first, fx.Node) and _last(weights, call["dim"]):
        yield first, (weights,)
    elif call.function is torch.div and call["rounding_mode"] is None:
        yield from _by_hand(weights, first, second, functions)


def _by_hand(
    weights: fx.Node, powers: object, total: object, functions: Functions
) -> Iterator[tuple[fx.Node, tuple[fx.Node, ...]]]:
    """The scores of `powers / powers.sum(-1, keepdim=True)` with the powers of scores less their maximum."""
    difference = Call.of(powers, functions).operands()[0]
    exponential, summed, less = (Call.of(one, functions) for one in (powers, total, difference))
    scores, row = less.operands()
    whole = exponential.function is torch.exp and summed.function is torch.sum and less.function is torch.sub
    if not whole or summed.operands()[0] is not powers or less.arguments.get("alpha", 1) != 1:
        return
    found = _maximum(row, scores, functions)
    nodes = [node for node in (weights, powers, total, difference, *found) if isinstance(node, fx.Node)]
    if found and isinstance(scores, fx.Node) and _is_row(total, powers, total):
        yield scores, tuple(nodes)


def _maximum(row: object, scores: object, functions: Functions) -> tuple[fx.Node, ...]:
    """The nodes of the largest score in each row, if it is; the values of `max` come with indices."""
    nodes: list[fx.Node] = []
    while isinstance(row, fx.Node):
        nodes.append(row)
        call = Call.of(row, functions)
        if call.function in (torch.max, torch.amax):
            unread = [user for user in row.users if not user.users]
            return (*nodes, *unread) if call.operands()[0] is scores and _is_row(nodes[0], scores, row) else ()
        if call.function is not torch.detach and (row.target is not operator.getitem or row.args[1] != 0):
            return ()
        row = row.args[0]
    return ()


def _is_row(reduced: object, whole: object, by: object) -> bool:
    """Whether the last axis of a tensor is reduced by a node, and stays as one of size 1."""
    after, before = fake_of(reduced), fake_of(whole)
    tensors = isinstance(after, Tensor) and isinstance(before, Tensor) and before.dim() > 1
    if not tensors or not isinstance(by, fx.Node) or not isinstance(whole, fx.Node):
        return False
    dim = by.kwargs.get("dim", by.args[1] if len(by.args) > 1 else None)
    dim = dim[0] if isinstance(dim, (list, tuple)) and len(dim) == 1 else dim
    return after.shape == (*before.shape[:-1], 1) and _last(whole, dim)


def _trails(scores: object, functions: Functions, left: int) -> Iterator[Trail]:
    """All ways from scores back to what may be the product that they are made of."""
    if not isinstance(scores, fx.Node) or not isinstance(fake_of(scores), Tensor):
        return
    yield scores, (), ()
    for before, steps in _before(scores, Call.of(scores, functions)) if left else ():
        for first, earlier, nodes in _trails(before, functions, left - 1):
            yield first, (*earlier, *steps), (*nodes, scores)


def _before(node: fx.Node, call: Call) -> Iterator[tuple[object, tuple[Step, ...]]]:
    """What the scores may have been one step before, and that step."""
    if keeps_values(node, call):
        yield call.operands()[0], ()
        return
    reader = READERS.get(call.function)
    for before, step in reader(call) if reader is not None else ():
        if isinstance(before, fx.Node) and getattr(fake_of(before), "shape", None) == fake_of(node).shape:
            yield before, (attrs.evolve(step, scores=node),)


Read: TypeAlias = "Iterator[tuple[object, Step]]"


def _of_mul(call: Call) -> Read:
    first, second = call.operands()
    for scores, other in ((first, second), (second, first)):
        number = number_of(other)
        if number is not None:
            yield scores, Step("scaled", number)


def _of_div(call: Call) -> Read:
    scores, other = call.operands()
    number = number_of(other)
    if number and call["rounding_mode"] is None:
        yield scores, Step("scaled", 1 / number)


def _of_add(call: Call) -> Read:
    first, second = call.operands()
    for scores, other in ((first, second), (second, first)):
        if isinstance(other, fx.Node) and call.arguments.get("alpha", 1) == 1:
            yield scores, Step("added", 1.0, other)


def _of_sub(call: Call) -> Read:
    scores, other = call.operands()
    if isinstance(other, fx.Node) and call.arguments.get("alpha", 1) == 1:
        yield scores, Step("added", -1.0, other)


def _of_fill(call: Call) -> Read:
    mask, fill = call["mask"], number_of(call["value"])
    if fill is not None and isinstance(mask, fx.Node):
        yield call["input"], Step("filled", fill, mask)


def _of_where(call: Call) -> Read:
    mask, first, second, *_ = (*call.arguments.values(), None, None, None)
    for kind, scores, other in (("shown", first, second), ("filled", second, first)):
        fill = number_of(other)
        if fill is not None and isinstance(mask, fx.Node):
            yield scores, Step(kind, fill, mask)


READERS: Mapping[Hashable, Callable[[Call], Read]] = {
    torch.mul: _of_mul,
    torch.div: _of_div,
    torch.add: _of_add,
    torch.sub: _of_sub,
    torch.masked_fill: _of_fill,
    torch.where: _of_where,
}


def _product(node: fx.Node, functions: Functions) -> tuple[fx.Node, fx.Node, tuple[Step, ...]] | None:
    """The operands of a product of queries and keys, and the steps that are part of it."""
    call = Call.of(node, functions)
    query, keys = call.operands()
    steps: list[Step] = []
    if call.function is torch.baddbmm:
        query, keys, bias = call["batch1"], call["batch2"], call["input"]
        beta, alpha = number_of(call["beta"]), number_of(call["alpha"])
        if beta is None or alpha is None or not isinstance(bias, fx.Node):
            return None
        # With a factor of zero, the tensor is not read: it may be uninitialised memory.
        steps += [Step("scaled", alpha), *([Step("added", beta, bias, node)] if beta else [])]
    elif call.function not in PRODUCTS:
        return None
    return (query, keys, tuple(steps)) if isinstance(query, fx.Node) and isinstance(keys, fx.Node) else None


def compute_instead_of_writing(module: fx.GraphModule) -> None:
    """Where a program writes to scores that it has just computed (`scores += mask`), compute new ones.

    Only writes to what a product, a sum or the like has made, and that nothing has read before.
    """
    if any("changes_state" in node.meta for node in module.graph.nodes):  # a write is not differentiated in `no_grad`
        return
    places: dict[fx.Node, int] = {node: place for place, node in enumerate(module.graph.nodes)}
    for node in list(module.graph.nodes):
        same = WRITES.get(node.target) if node.op in ("call_function", "call_method") else None
        base = node.args[0] if same is not None and node.args else None
        if not isinstance(base, fx.Node) or base.target not in FRESH:
            continue
        earlier = [user for user in base.users if places[user] < places[node]]
        if earlier or not may_pay(fake_of(base)) or not _keeps_dtype(node):
            continue
        node.op = "call_method" if isinstance(same, str) else "call_function"
        node.target = same
        for user in list(base.users):
            if user is not node:
                user.replace_input_with(base, node)


def _keeps_dtype(node: fx.Node) -> bool:
    """Whether the same without a write has the dtype and shape of what is written to."""
    fakes = [fake_of(one) for one in node.all_input_nodes]
    base = fake_of(node.args[0])
    return all(
        isinstance(one, Tensor) and one.dtype in (base.dtype, torch.bool) and one.dim() <= base.dim() for one in fakes
    )
