"""Seam to dispatch modes: runs a captured graph once on fake tensors and records the ATen operators that it dispatches.

This suffices if nothing is differentiated or written: AOTAutograd, which runs the graph several times and takes seconds
to import, would find the same graph.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree

from armature.torch_abi import symbols
from armature.torch_abi.dispatch_mode import DispatchMode
from armature.torch_abi.fake import NUMBER
from armature.torch_abi.wrappers import is_wrapper

Overload = torch._ops.OpOverload
ORIGIN = "origin"
SIZE, STRIDE = torch.ops.aten.sym_size.int, torch.ops.aten.sym_stride.int


class NotPlain(Exception):
    """The graph writes, differentiates or returns something that this recorder does not support; the text says what."""


class _Recorder(DispatchMode):
    """Records each dispatched operator in a graph. Tensors are known by identity; all are kept alive until the end."""

    def __init__(self, decompositions: Mapping[Overload, Callable[..., Any]], fake_mode: FakeTensorMode) -> None:
        super().__init__()
        self.decompositions = decompositions
        self.fake_mode = fake_mode
        self.graph = fx.Graph()
        self.attributes: dict[str, Tensor] = {}
        self.nodes: dict[int, tuple[fx.Node, Tensor]] = {}
        self.readings: dict[object, tuple[fx.Node, Overload | None, int]] = {}  # where symbolic numbers are read
        self.sizes: dict[Any, fx.Node] = {}
        self.origin: object = None

    def placeholder(self, name: str, fake: object) -> object:
        node = self.graph.placeholder(name)
        node.meta["val"] = fake
        if isinstance(fake, Tensor):
            if is_wrapper(type(fake)):
                raise NotPlain("a wrapper subclass")
            self.know(fake, node)
            strides = fake.stride() if fake.layout is torch.strided else ()
            for read, numbers in ((SIZE, fake.shape), (STRIDE, strides)):
                for axis, number in enumerate(numbers):
                    if (symbol := symbols.single_symbol(number)) is not None:
                        self.readings.setdefault(symbol, (node, read, axis))
        elif (symbol := symbols.single_symbol(fake)) is not None:
            self.readings[symbol] = (node, None, -1)
        return fake

    def know(self, value: Tensor, node: fx.Node) -> None:
        self.nodes.setdefault(id(value), (node, value))

    def __torch_dispatch__(
        self, func: Overload, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record an operator, or those that it is decomposed into."""
        kwargs = kwargs or {}
        if func.namespace == "prim":
            return func(*args, **kwargs)  # a query about the tensor, such as its device
        if func in self.decompositions:
            with self:
                result = self.decompositions[func](*args, **kwargs)
            if result is not NotImplemented:
                return result
        if func._schema.is_mutable:
            raise NotPlain(f"{func} writes")
        if func._can_decompose():
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        results = result if isinstance(result, (tuple, list)) else (result,)
        if any(item is None or isinstance(item, Tensor) for item in results):  # None: a check
            self.record(func, args, kwargs, result)
        elif func is NUMBER and isinstance(result, torch.SymFloat):
            self.sizes[symbols.expression(result)] = self.record(func, args, kwargs, result)
        return result

    def record(self, func: Overload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> fx.Node:
        """Add a call to the graph; returns its node."""
        node = self.graph.create_node(
            "call_function", func, self.replaced(args), self.replaced(kwargs), name=func.overloadpacket.__name__
        )
        node.meta["val"] = result
        node.meta[ORIGIN] = self.origin
        if isinstance(result, Tensor):
            self.know(result, node)
        elif isinstance(result, (tuple, list)):
            for k, item in enumerate(result):
                if isinstance(item, Tensor):
                    part = self.graph.call_function(operator.getitem, (node, k))
                    part.meta["val"] = item
                    self.know(item, part)
        return node

    def replaced(self, value: Any) -> Any:
        """The arguments with tensors replaced by nodes; lists and dicts as in the call."""
        if isinstance(value, Tensor):
            return self.node_of(value)
        if isinstance(value, (list, tuple)):
            items = [self.replaced(item) for item in value]
            return items if isinstance(value, list) else tuple(items)
        if isinstance(value, dict):
            return {key: self.replaced(item) for key, item in value.items()}
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self.number(value)
        return value

    def number(self, value: Any) -> Any:
        """A node for a symbolic size; the number where it is known."""
        last = next(iter(reversed(self.graph.nodes)), None)
        found = symbols.as_node(value, self.graph, self.size, self.sizes)
        symbols.fill(self.graph, last, "val")
        return found

    def size(self, symbol: object) -> fx.Node:
        """The node of a symbol: a number read from a tensor, an input, or a size or stride of one."""
        if symbol in self.sizes:
            return self.sizes[symbol]
        if symbol not in self.readings:
            raise NotPlain("a size that no input has")
        node, read, axis = self.readings[symbol]
        if read is None:
            return node
        self.sizes[symbol] = self.graph.call_function(read, (node, axis))
        return self.sizes[symbol]

    def node_of(self, value: Tensor) -> fx.Node:
        held = self.nodes.get(id(value))
        if held is not None:
            return held[0]
        if is_wrapper(type(value)):
            raise NotPlain("a wrapper subclass")
        if isinstance(value, FakeTensor):
            if value.constant is None:
                raise NotPlain("a tensor from outside the graph")
            value = value.constant
        return self.constant(value)

    def constant(self, value: Tensor) -> fx.Node:
        """A tensor stored in the graph."""
        name = f"constant_{len(self.attributes)}"
        self.attributes[name] = value
        node = self.graph.create_node("get_attr", name)
        node.meta["val"] = self.fake_mode.from_tensor(value)
        self.know(value, node)
        return node


def record(
    captured: fx.GraphModule,
    fakes: Sequence[object],
    decompositions: Mapping[Overload, Callable[..., Any]],
) -> fx.GraphModule:
    """The ATen graph of a captured graph of torch functions, with flat inputs and outputs; `meta["origin"]` is the
    captured node's.

    Errors: NotPlain, and whatever the operators raise on fake tensors.
    """
    fake_mode = next((f.fake_mode for f in fakes if isinstance(f, FakeTensor)), None) or FakeTensorMode()
    recorder = _Recorder(decompositions, fake_mode)
    given = iter(fakes)
    values: dict[fx.Node, Any] = {}
    with _restored_grad_mode(), fake_mode, enable_python_dispatcher(), recorder:
        for node in captured.graph.nodes:
            if node.op == "placeholder":
                values[node] = recorder.placeholder(node.name, next(given))
            elif node.op == "output":
                _finish(recorder, fx.map_arg(node.args[0], lambda n: values[n]))
            else:
                recorder.origin = node.meta.get(ORIGIN)
                values[node] = _run(captured, node, values)
    return fx.GraphModule(recorder.attributes, recorder.graph)


@contextmanager
def _restored_grad_mode() -> Iterator[None]:
    """A context that checks the grad mode. Errors: NotPlain if the graph leaves it changed."""
    before = torch.is_grad_enabled()
    try:
        yield
        if torch.is_grad_enabled() != before:
            raise NotPlain("the graph leaves the grad mode changed")
    finally:
        torch.set_grad_enabled(before)


def _run(captured: fx.GraphModule, node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
    args = fx.map_arg(node.args, lambda n: values[n])
    kwargs = fx.map_arg(node.kwargs, lambda n: values[n])
    if node.op == "call_function":
        called: Any = node.target
        return called(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    found: Any = captured
    for part in str(node.target).split("."):
        found = getattr(found, part)
    return found(*args, **kwargs) if node.op == "call_module" else found


def _finish(recorder: _Recorder, outputs: Any) -> None:
    if not isinstance(outputs, (tuple, list)):
        raise NotPlain("an output that is not a tuple")
    for leaf in pytree.tree_leaves(outputs):
        if isinstance(leaf, Tensor) and leaf.requires_grad and torch.is_grad_enabled():
            raise NotPlain("an output that requires gradients")
    recorder.graph.output(tuple(recorder.replaced(value) for value in outputs))
