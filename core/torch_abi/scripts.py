"""Functions in TorchScript: what they write to, and those that are a plain sequence of operators."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch._subclasses.fake_tensor import fake_tensor_tls


class Typed(Protocol):
    """The interface used of a value."""

    def python_type(self) -> type:
        """The class of the object."""


V = TypeVar("V", bound=Typed)
CONSTANT, LIST, TUPLE = "prim::Constant", "prim::ListConstruct", "prim::TupleConstruct"
CODES = ("Layout", "MemoryFormat")  # TorchScript has numbers for these, as for dtypes
DTYPES = dict(
    enumerate(
        (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64,
         torch.complex32, torch.complex64, torch.complex128, torch.bool)
    )
)  # fmt: skip
DTYPES[15] = torch.bfloat16
TENSOR = ("aten::tensor.int", "aten::tensor.float", "aten::tensor.bool")
NUMBERS: dict[str, Callable[..., Any]] = {
    "aten::size.int": torch.Tensor.size,
    "aten::dim": torch.Tensor.dim,
    "aten::add.int": operator.add,
    "aten::sub.int": operator.sub,
    "aten::mul.int": operator.mul,
    "aten::floordiv.int": operator.floordiv,
    "aten::div.int": operator.truediv,
    "aten::neg.int": operator.neg,
}
KINDS: dict[str, type] = {"Tensor": torch.Tensor, "int": int, "float": float, "bool": bool}


def nodes_of(block: Any) -> Iterator[Any]:
    """All nodes of a graph or block, with those of the blocks inside them."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from nodes_of(inner)


def written_by(fn: Any) -> frozenset[int] | None:
    """The positions of the arguments that a TorchScript function writes to: empty if it writes to none; None if it may
    write to any."""
    # The schema of a call of a Python function does not state what it writes to.
    writes = any("!" in node.schema() or "Python" in node.kind() for node in nodes_of(fn.inlined_graph))
    return None if writes else frozenset()


def name_of(node: Any) -> str:
    """The name of a node's operator, with its overload."""
    return str(node.schema().partition("(")[0])


def operator_of(node: Any) -> Any:
    """The ATen operator of a node with one tensor as result; None if it is anything else."""
    if not node.kind().startswith("aten::") or [str(one.type()) for one in node.outputs()] != ["Tensor"]:
        return None
    name, _, overload = name_of(node).removeprefix("aten::").partition(".")
    found = getattr(getattr(torch.ops.aten, name, None), overload or "default", None)
    return None if found is None or found._schema.is_mutable else found


@functools.lru_cache(maxsize=512)
def sequence_of(fn: Any) -> tuple[Any, ...] | None:
    """The nodes of a TorchScript function that only calls operators, one after the other; None for any other."""
    nodes = tuple(fn.inlined_graph.nodes())
    for node in nodes:
        if node.kind() not in (CONSTANT, LIST, TUPLE) and not _can_be_called(node):
            return None
    tuples = {node.output().debugName() for node in nodes if node.kind() == TUPLE}
    results = [one.debugName() for one in fn.inlined_graph.outputs()]
    return nodes if len(results) == 1 and tuples <= set(results) else None


def _can_be_called(node: Any) -> bool:
    name = name_of(node)
    if name in NUMBERS:
        return True
    if name in TENSOR:
        _, dtype, device, leaf = node.inputs()
        return _is_dtype(dtype) and all(one.node().kind() == CONSTANT and not one.toIValue() for one in (device, leaf))
    found = operator_of(node)
    if found is None:
        return False
    for argument, given in zip(found._schema.arguments, node.inputs(), strict=True):
        known = given.node().kind() == CONSTANT and given.toIValue() is None
        if any(code in str(argument.real_type) for code in CODES) and not known:
            return False
        if _takes_dtype(argument) and not _is_dtype(given):
            return False
    return True


def _takes_dtype(argument: Any) -> bool:
    return "ScalarType" in str(argument.real_type)


def _is_dtype(given: Any) -> bool:
    """Whether a value is a constant that is the number of a dtype, or None."""
    return given.node().kind() == CONSTANT and (given.toIValue() is None or given.toIValue() in DTYPES)


def as_operators(
    fn: Any,
    args: Sequence[V],
    kwargs: Mapping[str, V],
    constant: Callable[[Any], V],
    makers: Mapping[str, Callable[[list[V]], V]],
    call: Callable[[Any, Sequence[V], Mapping[str, V]], V],
    python: Callable[[Any, Sequence[V], Mapping[str, V]], V],
) -> V | None:
    """Compute the result of a TorchScript function by calling its operators one by one; None if the function itself
    must be called.

    constant: makes the value of a constant. makers: make the value of a list or a tuple. call: calls an operator;
    python: a function of Python or torch.
    """
    nodes, given = sequence_of(fn), _bound(fn.schema.arguments, args, kwargs, constant)
    if nodes is None or given is None:
        return None
    known = {one.debugName(): value for one, value in zip(fn.inlined_graph.inputs(), given, strict=True)}
    for node in nodes:
        values = [known[one.debugName()] for one in node.inputs()]
        if node.kind() == CONSTANT:
            made = constant(node.output().toIValue())
        elif node.kind() in makers:
            made = makers[node.kind()](values)
        elif (name := name_of(node)) in NUMBERS:
            made = python(NUMBERS[name], values, {})
        elif name in TENSOR:
            made = python(torch.tensor, values[:1], {"dtype": constant(_dtype(tuple(node.inputs())[1]))})
        else:
            made = _called(node, values, constant, call)
        known[node.output().debugName()] = made
    return known[next(iter(fn.inlined_graph.outputs())).debugName()]


def _called(
    node: Any,
    values: Sequence[V],
    constant: Callable[[Any], V],
    call: Callable[[Any, Sequence[V], Mapping[str, V]], V],
) -> V:
    """The result of a node's operator."""
    found = operator_of(node)
    declared, inputs = found._schema.arguments, node.inputs()
    given = [
        constant(_dtype(one)) if _takes_dtype(argument) else value
        for argument, one, value in zip(declared, inputs, values, strict=True)
    ]
    named = [one.name for one in declared if one.kwarg_only]
    count = len(given) - len(named)
    return call(found, given[:count], dict(zip(named, given[count:], strict=True)))


def _dtype(given: Any) -> torch.dtype | None:
    code = given.toIValue()
    return None if code is None else DTYPES[code]


def _bound(
    declared: Sequence[Any], args: Sequence[V], kwargs: Mapping[str, V], constant: Callable[[Any], V]
) -> list[V] | None:
    """The argument for each parameter; None unless all have the declared types: TorchScript would convert others."""
    given = {**dict(zip((one.name for one in declared), args)), **kwargs}
    for one in declared:
        if one.name not in given and one.has_default_value():
            given[one.name] = constant(one.default_value)
    if len(args) > len(declared) or given.keys() != {one.name for one in declared}:
        return None
    values = [given[one.name] for one in declared]
    fits = (_fits(value.python_type(), KINDS.get(str(one.type))) for value, one in zip(values, declared))
    return values if all(fits) else None


def _fits(kind: type, wanted: type | None) -> bool:
    return kind is wanted or (wanted is torch.Tensor and issubclass(kind, wanted))


def scripted(fn: Callable[..., Any], **marks: object) -> Callable[..., Any]:
    """Wrap the call of a TorchScript function, because FX would print the name of its class. marks: attributes."""

    def call_scripted(*args: Any, **kwargs: Any) -> Any:
        return call_with_constants(fn, *args, **kwargs)

    vars(call_scripted).update(marks)
    return call_scripted


def call_with_constants(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a TorchScript function, which may hold tensors of its own, with fakes."""
    before = fake_tensor_tls.allow_non_fake_inputs_override
    fake_tensor_tls.allow_non_fake_inputs_override = True
    try:
        return fn(*args, **kwargs)
    finally:
        fake_tensor_tls.allow_non_fake_inputs_override = before
