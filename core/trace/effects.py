"""Mutations of objects that outlive the frame: deferred while tracing, replayed by the generated code.

An object made in the frame is simply built in its final state. For the others, the generated code first prepares all
final states and then writes them, because preparing reads the program's objects as they were before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

import attrs
import torch

from armature.frame.sources import PrecallSource, Source
from armature.torch_abi.altering import memory_of
from armature.torch_abi.grad_modes import set_default_dtype
from armature.trace.signals import TraceSignal


class Changing(Protocol):
    """The part of a value's interface that recording a mutation needs."""

    source: Source | None

    @property
    def outlives_frame(self) -> bool:
        """Whether its object belongs to the program, rather than being made in the frame."""


V = TypeVar("V", bound=Changing)
W = TypeVar("W")
E = TypeVar("E")


@attrs.frozen
class DefaultDtype:
    """torch's default dtype when the frame began, and now."""

    first: torch.dtype
    now: torch.dtype


@attrs.define(eq=False)
class Effects(Generic[V, W]):
    """The frame's changes, ordered by each object's first change. V: the type of values, W: of writes."""

    changed: dict[V, None] = attrs.field(factory=dict)
    count: int = 0  # number of changes to objects that outlive the frame
    # tensors whose state the graph changes, with their old memory
    altered: dict[Any, torch.UntypedStorage] = attrs.field(factory=dict)
    # memory that the graph writes to, by id of the fake
    memory: dict[int, torch.UntypedStorage] = attrs.field(factory=dict)
    # the part of `memory` whose writes no version counter shows
    uncounted: dict[int, torch.UntypedStorage] = attrs.field(factory=dict)
    watched: dict[V, None] | None = None  # if set, receives every changed value, including those made in the frame
    class_attributes: dict[tuple[type, str], V] = attrs.field(factory=dict)
    owners: dict[int, V] = attrs.field(factory=dict)  # inspected objects, by the ids of their `__dict__`s
    globals_: dict[tuple[int, str], tuple[dict[str, object], V | None]] = attrs.field(factory=dict)
    default_dtype: DefaultDtype | None = None
    grad: bool = attrs.field(factory=torch.is_grad_enabled)  # grad mode at the start of the frame
    grad_after: bool | None = None  # grad mode at its end, once known
    entered: dict[V, None] = attrs.field(factory=dict)  # torch context managers that are open now
    calls: list[W] = attrs.field(factory=list)  # calls to make after all other changes

    def call(self, write: W) -> None:
        """Add a call to make when the frame ends."""
        self.count += 1
        self.calls.append(write)

    def switch_default_dtype(self, dtype: torch.dtype) -> None:
        """Change torch's default dtype from here on. Until tracing ends this also changes it in torch itself."""
        before = torch.get_default_dtype()
        set_default_dtype(dtype)
        if dtype is not before:
            self.count += 1
            self.default_dtype = DefaultDtype(before if self.default_dtype is None else self.default_dtype.first, dtype)

    @property
    def chosen_dtype(self) -> torch.dtype | None:
        """The default dtype that the frame has set; None if it is unchanged."""
        held = self.default_dtype
        return None if held is None or held.now is held.first else held.now

    def record(self, value: V) -> None:
        """Record that a value's object is changed. An object made in the frame needs no replay."""
        if self.watched is not None:
            self.watched[value] = None
        if value.outlives_frame:
            self.changed[value] = None
            self.count += 1

    def write_memory(self, tensor: torch.Tensor, counted: bool) -> None:
        """Record that the graph writes to a tensor's memory. counted: whether its version counter shows the write."""
        if tensor.layout is torch.strided:
            storage = memory_of(tensor)
            (self.memory if counted else self.uncounted)[storage._cdata] = storage

    def writes_to(self, value: Any) -> bool:
        """Whether the graph writes to the memory that the tensor had when the frame began, counted by its version."""
        return self.altered.get(value, memory_of(value.fake))._cdata in self.memory

    def inputs_written(self, tensors: Iterable[Any]) -> int:
        """How many of the tensors belong to the program and are written to by the graph."""
        return sum(self.writes_to(value) for value in tensors if value.source is not None) if self.memory else 0

    def writes_uncounted(self, value: Any) -> bool:
        """Whether the graph writes to it without counting a version: running statistics, tensors of inference mode."""
        return self.altered.get(value, memory_of(value.fake))._cdata in self.uncounted

    def alter(self, value: Any) -> None:
        """Record that the graph changes a tensor's memory, or its place in autograd's history."""
        if self.watched is not None:
            self.watched[value] = None
        if value.source is not None:
            self.altered.setdefault(value, memory_of(value.fake))
            self.count += 1

    def store_global(self, namespace: dict[str, object], name: str, value: V | None) -> None:
        """Record that a global variable is set, or deleted if the value is None."""
        self.count += 1
        if value is None and name not in namespace:  # created and deleted by the frame
            self.globals_.pop((id(namespace), name), None)
        else:
            self.globals_[(id(namespace), name)] = (namespace, value)

    def global_of(self, namespace: dict[str, object], name: str) -> tuple[dict[str, object], V | None] | None:
        """The value that the frame has stored in a global, None if it has stored none."""
        return self.globals_.get((id(namespace), name))

    def store_class_attribute(self, cls: type, name: str, value: V) -> None:
        """Record that an attribute of a class is set at the end of the frame."""
        self.count += 1
        self.class_attributes[(cls, name)] = value

    def class_attribute(self, cls: type, name: str) -> V | None:
        """The value that the frame has stored in a class attribute; None if there is none or another class hides it."""
        if not self.class_attributes:
            return None
        for holder in cls.__mro__:
            stored = self.class_attributes.get((holder, name))
            if stored is not None or name in holder.__dict__:
                return stored
        return None

    @property
    def grad_changed(self) -> bool:
        """Whether the frame ends in a different grad mode from the one it began in."""
        return self.grad_after is not None and self.grad_after is not self.grad

    @property
    def empty(self) -> bool:
        """Whether nothing that outlives the frame was changed."""
        objects = self.changed or self.globals_ or self.class_attributes or self.calls
        return not objects and self.chosen_dtype is None and not self.grad_changed


@attrs.frozen(eq=False)
class Precall(Generic[V]):
    """A call `function(*operands)` whose operands can be loaded before the graph is called."""

    function: Callable[..., Any]
    operands: tuple[V, ...]


@attrs.define(eq=False)
class Precalls(Generic[V]):
    """Calls that the generated code makes before it calls the graph.

    changed: the objects that they change, each with functions that read its state and set it. reads_numbers: whether
    the graph takes a number out of a tensor again.
    """

    calls: list[Precall[V]] = attrs.field(factory=list)
    changed: dict[V, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = attrs.field(factory=dict)
    reads_numbers: bool = False

    def add(self, function: Callable[..., Any], operands: tuple[V, ...]) -> PrecallSource:
        """Add a call, and return the source of its result."""
        self.calls.append(Precall(function, operands))
        return PrecallSource(len(self.calls) - 1)


@attrs.define(eq=False)
class Ending(Generic[E]):
    """What to undo and to check when tracing ends.

    undo: functions and arguments that undo tracing's changes to torch's state if it ends here. checks E: called where
    the graph ends, with the frame and its result (None at a break, the frame too until it is cut there): whether the
    code may be used. breaks: where to end the graph if the frame can't be rerun.
    """

    undo: list[tuple[Callable[[Any], Any], Any]] = attrs.field(factory=list)
    checks: dict[E, None] = attrs.field(factory=dict)
    breaks: list[TraceSignal] = attrs.field(factory=list)
