"""Values and calls for plugins to use as they are, beside those that tracing itself needs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from types import FunctionType, MappingProxyType
from typing import Any

import attrs
import torch
from torch import fx

from armature.torch_abi.eval_frame import skip_code
from armature.torch_abi.fake import PLAIN_TENSORS, alias, count_write, in_transform
from armature.torch_abi.overrides import OWN_CLASSES
from armature.torch_abi.pytree import tree_leaves
from armature.torch_abi.wrappers import is_wrapper
from armature.trace.base import Args, Rebuilding, Tracing, Value, raise_lacking
from armature.trace.data import UNCOMPILED, is_uncompiled, uncompiled
from armature.trace.locations import Location, locations_of
from armature.trace.recording import graph_nodes
from armature.trace.values.context import ContextValue
from armature.trace.values.floats import FloatValue
from armature.trace.values.precomputed import PrecomputedNumber
from armature.trace.values.sequence import TupleValue, index_of
from armature.trace.values.tensor import TensorValue


class EnteredAgain:
    """The context manager in which a graph has ended, for the next one to enter: a generator can be entered only
    once. If the function that leaves it returns a tuple, these are the arguments to enter it with the next time."""

    def __init__(self, enter_by: Callable[..., Any], arguments: tuple[object, ...], leave_by: Callable[[Any], Any]):
        self.enter_by, self.arguments, self.leave_by = enter_by, arguments, leave_by
        self.opened: list[Any] = []
        for function in (enter_by, leave_by):
            if isinstance(function, FunctionType):
                skip_code(function.__code__, below=True)

    def __enter__(self) -> None:
        self.opened.append(self.enter_by(*self.arguments))

    def __exit__(self, *error: object) -> None:
        left = self.leave_by(self.opened.pop())
        if isinstance(left, tuple):
            self.arguments = left


@attrs.define(eq=False)
class PairedContextValue(ContextValue):
    """A context entered by one function, whose result is passed to the one that leaves it (autocast)."""

    enter_by: Callable[..., Any]
    arguments: tuple[object, ...]
    leave_by: Callable[[Any], Any]
    made_by: Callable[..., Any] | None = None  # makes the context manager itself from the arguments
    open: list[tuple[Any, Any]] = attrs.field(factory=list)
    made_at: tuple[Location, ...] = ()  # where it was last entered: a graph may have to end there
    # Settings of torch that such contexts make, as they are outside of all of them; keys as `made_inside` is given.
    settings_before: Mapping[Hashable, object] = attrs.field(factory=dict)

    def enter(self, tracer: Tracing) -> Value:
        try:
            real = self.enter_by(*self.arguments)
        except (TypeError, ValueError, RuntimeError) as error:  # torch refuses the arguments
            tracer.raise_real(error)
        node = tracer.graph.change_state(self.enter_by, self.arguments, self.leave_by)
        self.open.append((node, real))
        self.made_at = locations_of(tracer.stack.frames)
        tracer.ending.undo.append((self.leave_by, real))
        tracer.effects.entered[self] = None
        return self

    def leave(self, tracer: Tracing) -> None:
        if not self.open:  # it was entered before the frame began
            tracer.graph_break("exit-without-enter", type=self.describe())
        node, real = self.open.pop()
        if not self.open:
            tracer.effects.entered.pop(self)
        tracer.ending.undo.remove((self.leave_by, real))
        self.leave_by(real)
        tracer.graph.change_state(self.leave_by, (node,))

    def clone(self) -> Value:
        return PairedContextValue(self.kind, self.enter_by, self.arguments, self.leave_by, self.made_by)

    def rebuild(self, out: Rebuilding) -> None:
        if self.made_by is None and not self.inside:
            out.cannot(self)
        entered = (self.enter_by, self.arguments, self.leave_by)
        arguments = entered if self.made_by is None else self.arguments
        out.null_function(self.made_by or EnteredAgain)
        for argument in arguments:
            out.constant(argument)
        out.call(len(arguments))


def made_inside(tracing: Tracing, setting: Hashable, now: object) -> bool:
    """Whether a context that is open has made a setting of torch: a guard would not find it before the frame."""
    for context in tracing.effects.entered:
        if isinstance(context, PairedContextValue) and setting in context.settings_before:
            return bool(context.settings_before[setting] != now)
    return False


def tensor_of_class(tracer: Tracing, tensor: TensorValue, kind: type) -> TensorValue:
    """`tensor.as_subclass(kind)`: a new tensor object over the same data."""
    if is_wrapper(kind) or is_wrapper(type(tensor.fake)):
        tracer.graph_break("as-subclass", type=kind.__qualname__)
    if kind not in OWN_CLASSES:
        tracer.overrides.accept(kind)
    seen = tensor
    if tensor.fake.requires_grad and not torch.is_grad_enabled():
        # A view requires gradients only if its base does, whatever was set on the first view.
        view = tracer.graph.call("view_as", (tensor, tensor), {})
        seen = view if isinstance(view, TensorValue) else tensor
    fake = alias(seen.fake)
    node: Any = seen.as_argument(tracer)
    made = TensorValue(fake, node, kind=kind, recorded=torch.is_grad_enabled())
    tracer.objects.by_fake[id(fake)] = made
    return made


def call_uncompiled(
    tracer: Tracing, function: Callable[..., None], name: str, args: Args, read_only: frozenset[int] = frozenset()
) -> Value:
    """Add a node that calls `function(*args)` when the graph runs, and returns None. The function receives the
    program's own tensors, and may write to their memory without autograd's knowledge, except to arguments at the
    positions `read_only`."""
    given = tuple([_argument(tracer, value) for value in args])
    writes = frozenset(range(len(args))) - read_only
    fakes = [leaf for n, value in enumerate(args) if n in writes for leaf in tree_leaves(value.as_fake(tracer))]
    for fake in fakes:
        if isinstance(fake, torch.Tensor):
            count_write(fake)
            tracer.recorder.mutates = True
    node = graph_nodes.record(tracer, "call_function", uncompiled(function, name, writes), given, {})
    node.meta["example_value"] = None
    return tracer.constant(None)


def _argument(tracer: Tracing, value: Value) -> object:
    if isinstance(value, TupleValue):
        return tuple([_argument(tracer, item) for item in value.items])
    if isinstance(value, FloatValue):
        return value.as_constant()  # guarded
    foreign = isinstance(value, TensorValue) and value.python_type() not in PLAIN_TENSORS
    if foreign or isinstance(value, PrecomputedNumber) or in_transform():
        tracer.graph_break("argument-of-outside-call", type=value.describe())
    return value.as_argument(tracer)


def change_before_graph(
    tracer: Tracing, value: Value, read: Callable[[Any], Any], write: Callable[[Any, Any], Any]
) -> None:
    """Record a call before the graph that changes an object of the program; `read` returns the object's state, `write`
    restores it.

    Breaks the graph if user code in the graph might need to see the object as it was.
    """
    if not all(graph_nodes.is_torchs(node.target) for node in tracer.recorder.calls()):
        tracer.graph_break("random-after-own-code", type=value.describe())
    tracer.precalls.changed.setdefault(value, (read, write))


def as_index(tracer: Tracing, position: Value) -> Any:
    """The int that an argument represents. TypeError of the program if it is not one."""
    if not hasattr(position.python_type(), "__index__"):
        raise_lacking(tracer, position, "__index__")
    return index_of(tracer, position)


def running_graphs(function: Callable[..., Any], graphs: Iterable[fx.GraphModule], writes: bool) -> Callable[..., Any]:
    """Wrap a function that runs graphs as the target of a node. It isn't passed to a back end if they have uncompiled
    calls. writes: whether it may write to its arguments."""
    if any(is_uncompiled(node) for module in graphs for node in module.graph.nodes):
        setattr(function, UNCOMPILED, None if writes else frozenset())
    return function


def reachable_values(roots: Iterable[object], inside: Callable[[Value], Iterable[object]]) -> Iterator[Value]:
    """All values in nests of builtin containers (of mappings, the keys too), and in what `inside` returns for each.
    Objects of the program are not looked into."""
    seen: dict[int, object] = {}  # keeps what `inside` makes alive, so that its id stays its own
    todo: list[Any] = list(roots)
    while todo:
        held = todo.pop()
        if id(held) in seen:
            continue
        seen[id(held)] = held
        kind = type(held)
        if issubclass(kind, Value):
            yield held
            todo += inside(held)
        elif kind in (dict, MappingProxyType):
            todo += (*held.keys(), *held.values())
        elif kind in (list, tuple, set, frozenset):
            todo += held
