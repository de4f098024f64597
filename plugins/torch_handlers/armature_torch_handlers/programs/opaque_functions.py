"""Functions passed to `armature.trace_through` or `torch.compiler.allow_in_graph`: each call is one node, whose
arguments and results may be trees.

Tracing does not look into the function. It flattens the arguments into tensors and constants, runs the function once on
fake tensors to learn its result, and adds a node that takes and returns flat tuples.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, TypeGuard

import attrs
import torch

from armature.plugin_api import (
    Call,
    DictValue,
    ListValue,
    ObjectValue,
    SequenceValue,
    Tracing,
    TupleValue,
    Value,
    class_member,
    handles,
    is_unbacked,
    opaque_function,
    registered_class,
)

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


@attrs.frozen(eq=False)
class Branch:
    """A container to rebuild from its parts; a part that is None is a leaf."""

    make: Callable[[list[object]], object]
    parts: tuple[Branch | None, ...]


@attrs.define(eq=False)
class FakeRun:
    """Observations of the run on fakes: the result, the containers that were passed, and whether one was changed."""

    result: object
    containers: list[object]
    changed: bool


@attrs.define(eq=False)
class OpaqueCall:
    """One call: the function, the structure of its arguments, and, while it is traced, the observations of the run on
    fakes."""

    fn: Callable[..., object]
    args: tuple[Branch | None, ...]
    kwargs: dict[str, Branch | None]
    tracing: bool = True
    fake_run: FakeRun | None = None

    def run(self, leaves: tuple[object, ...]) -> tuple[torch.Tensor, ...]:
        """Call the function with its arguments rebuilt; returns the tensors of its result."""
        items = iter(leaves)
        containers: list[object] = []
        args = [assemble(branch, items, containers) for branch in self.args]
        kwargs = {name: assemble(branch, items, containers) for name, branch in self.kwargs.items()}
        before = [content(container) for container in containers] if self.tracing else []
        result = self.fn(*args, **kwargs)
        if self.tracing:
            changed = [content(container) for container in containers] != before
            self.fake_run = FakeRun(result, containers, changed)
        return tuple(tensors(result))


@handles(opaque_function)
def call_opaque_function(call: Call, /, *args: Value, **kwargs: Value) -> Value:
    """One node for the call, and a value for its result."""
    tracer = call.tracing
    leaves: list[Value] = []
    positional = tuple(flatten_argument(tracer, value, leaves) for value in args)
    named = {name: flatten_argument(tracer, value, leaves) for name, value in kwargs.items()}
    opaque = OpaqueCall(call.fn, positional, named)
    given = tracer.graph.call(flat(opaque), leaves, {})
    fake_run, opaque.fake_run, opaque.tracing = opaque.fake_run, None, False
    if fake_run is None or fake_run.changed:
        tracer.graph_break("trace-through-changes", function=call.new_value(call.fn).describe())
    return Results.of(tracer, fake_run, tracer.unpack(given)).value_of(fake_run.result)


def flat(opaque: OpaqueCall) -> Callable[..., object]:
    """The node's function, with the name of the user's."""

    def call(*leaves: object) -> tuple[torch.Tensor, ...]:
        return opaque.run(leaves)

    fn = opaque.fn
    call.__name__ = getattr(fn, "__name__", "call")
    call.__qualname__ = getattr(fn, "__qualname__", call.__name__)
    call.__module__ = getattr(fn, "__module__", None) or __name__
    vars(call)["__wrapped__"] = fn
    return call


def flatten_argument(tracer: Tracing, value: Value, leaves: list[Value]) -> Branch | None:
    """The structure of an argument; its leaves are appended to `leaves`."""
    if isinstance(value, SequenceValue):
        return Branch(value.make, tuple(flatten_argument(tracer, item, leaves) for item in value.items))
    if isinstance(value, DictValue) and value.kind in (dict, OrderedDict):
        entries = value.realise(tracer).values()
        keys, kind = [key.as_constant() for key, _ in entries], value.kind
        parts = tuple(flatten_argument(tracer, item, leaves) for _, item in entries)
        return Branch(lambda items: kind(zip(keys, items, strict=True)), parts)
    node = registered_class(value.cls) if isinstance(value, ObjectValue) else None
    if node is None:
        leaves.append(value)
        return None
    children, context = tracer.unpack(tracer.calls.inline_python(node.flatten, (value,), {}))
    parts = tuple(flatten_argument(tracer, child, leaves) for child in tracer.unpack(children))
    known = context.as_constant()
    return Branch(lambda items: node.unflatten(items, known), parts)


def assemble(branch: Branch | None, leaves: Iterator[object], containers: list[object]) -> object:
    """Rebuild a flattened argument with the next leaves. Containers are added to `containers`."""
    if branch is None:
        return next(leaves)
    container = branch.make([assemble(part, leaves, containers) for part in branch.parts])
    containers.append(container)
    return container


def content(container: object) -> object:
    """Detects changes of a container: the identities of its members."""
    if isinstance(container, dict):
        return [(key, id(item)) for key, item in container.items()]
    if isinstance(container, (list, tuple)):
        return [id(item) for item in container]
    node = registered_class(type(container))
    return None if node is None else [id(item) for item in node.flatten(container)[0]]


def is_sequence(obj: object) -> TypeGuard[Sequence[object]]:
    """Whether a result is a list or tuple whose items are results."""
    return type(obj) is list or isinstance(obj, tuple)


def children_of(obj: object) -> list[object] | None:
    """The members of a result, None for a leaf."""
    if isinstance(obj, dict) and type(obj) in (dict, OrderedDict):
        return list(obj.values())
    if is_sequence(obj):
        return list(obj)
    node = registered_class(type(obj))
    return None if node is None else list(node.flatten(obj)[0])


def tensors(obj: object) -> Iterator[torch.Tensor]:
    """The tensors of a result, in order."""
    if isinstance(obj, torch.Tensor):
        yield obj
        return
    for child in children_of(obj) or ():
        yield from tensors(child)


@attrs.define(eq=False)
class Results:
    """Builds the value of a result. `values`: maps each tensor, container and object in it to its value."""

    tracer: Tracing
    containers: list[object]
    values: dict[int, Value] = attrs.field(factory=dict)

    @classmethod
    def of(cls, tracer: Tracing, fake_run: FakeRun, found: list[Value]) -> Results:
        """With the node's tensors, which are those of the result in order."""
        return cls(
            tracer,
            fake_run.containers,
            {id(t): value for t, value in zip(tensors(fake_run.result), found, strict=True)},
        )

    def value_of(self, obj: object) -> Value:
        """The value of the result or a part of it. One object has one value; constants and sizes are known."""
        if self.tracer.types.is_atom(obj) or (isinstance(obj, SYMBOLIC) and not is_unbacked(obj)):
            return self.tracer.as_value(obj)
        if id(obj) not in self.values:
            self.values[id(obj)] = self._container(obj)
        return self.values[id(obj)]

    def _container(self, obj: object) -> Value:
        if any(obj is container for container in self.containers):
            self._unsupported(obj, "its argument, a ")
        if isinstance(obj, dict) and type(obj) in (dict, OrderedDict):
            made = self.tracer.as_value(type(obj)).call(self.tracer, (), {})
            for key, item in obj.items():
                made.set_item(self.tracer, self.tracer.as_value(key), self.value_of(item))
            return made
        if is_sequence(obj):
            items = [self.value_of(item) for item in obj]
            return ListValue(items) if type(obj) is list else TupleValue(items, type(obj))
        return self._object(obj)

    def _object(self, obj: object) -> Value:
        """An object of a class registered with pytree, rebuilt from its attributes."""
        cls = type(obj)
        plain = all(
            class_member(cls, name) is vars(object)[name] for name in ("__new__", "__setattr__", "__getattribute__")
        )
        if registered_class(cls) is None or not plain or not cls.__dictoffset__:
            self._unsupported(obj, "")
        made = ObjectValue(cls)
        for name, held in vars(obj).items():
            made.store(self.tracer, name, self.value_of(held))
        return made

    def _unsupported(self, obj: object, lead: str) -> NoReturn:
        kind = f"{type(obj).__module__}.{type(obj).__qualname__}"
        self.tracer.graph_break("trace-through-result", type=f"{lead}{kind}")
