"""Mutations of objects that outlive the frame: held back while tracing, replayed by the generated code.

An object made in the frame is simply built in its last state. For the others the last state is prepared first, all of
them, then written: preparing reads the program's objects as they were before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

import attrs
import torch

from armature.frame.sources import PrecallSource, Source
from armature.torch_abi.altering import memory_of
from armature.torch_abi.grad_modes import set_default_dtype


class Changing(Protocol):
    """What is asked of a value whose object is changed."""

    source: Source | None

    @property
    def outlives_frame(self) -> bool:
        """Whether its object is the program's, and not made in the frame."""


V = TypeVar("V", bound=Changing)
W = TypeVar("W")


@attrs.frozen
class DefaultDtype:
    """torch's default dtype when the frame began, and now."""

    first: torch.dtype
    now: torch.dtype


@attrs.define(eq=False)
class Effects(Generic[V, W]):
    """What the frame has changed, in the order of the first change of each object: of values V, by writes W."""

    changed: dict[V, None] = attrs.field(factory=dict)
    count: int = 0  # of changes to what outlives the frame
    altered: dict[Any, torch.UntypedStorage] = attrs.field(factory=dict)  # tensors that become others; their memory
    memory: dict[int, torch.UntypedStorage] = attrs.field(factory=dict)  # of fakes, what the graph writes to
    uncounted: dict[int, torch.UntypedStorage] = attrs.field(factory=dict)  # the same, where no version tells
    watched: dict[V, None] | None = None  # where someone watches: all that was changed, made in the frame or not
    class_attributes: dict[tuple[type, str], V] = attrs.field(factory=dict)
    owners: dict[int, V] = attrs.field(factory=dict)  # objects that were looked at, by ids of their dicts
    globals_: dict[tuple[int, str], tuple[dict[str, object], V | None]] = attrs.field(factory=dict)
    default_dtype: DefaultDtype | None = None
    grad: bool = attrs.field(factory=torch.is_grad_enabled)  # whether gradients are recorded where the frame begins
    grad_after: bool | None = None  # and where it ends, once that is known
    entered: dict[V, None] = attrs.field(factory=dict)  # context managers of torch that are open now
    calls: list[W] = attrs.field(factory=list)  # to be made when all else has been changed

    def call(self, write: W) -> None:
        """Something to be done when the frame ends."""
        self.count += 1
        self.calls.append(write)

    def switch_default_dtype(self, dtype: torch.dtype) -> None:
        """torch's default dtype is another one from now on; until tracing ends, for torch itself too."""
        before = torch.get_default_dtype()
        set_default_dtype(dtype)
        if dtype is not before:
            self.count += 1
            self.default_dtype = DefaultDtype(before if self.default_dtype is None else self.default_dtype.first, dtype)

    @property
    def chosen_dtype(self) -> torch.dtype | None:
        """The default dtype that the frame has chosen; None: it is the one with which it began."""
        held = self.default_dtype
        return None if held is None or held.now is held.first else held.now

    def record(self, value: V) -> None:
        """The object of a value is changed. One made in the frame needs no replay."""
        if self.watched is not None:
            self.watched[value] = None
        if value.outlives_frame:
            self.changed[value] = None
            self.count += 1

    def write_memory(self, tensor: torch.Tensor, counted: bool) -> None:
        """The graph writes to the memory of a tensor. counted: its version tells."""
        if tensor.layout is torch.strided:
            storage = memory_of(tensor)
            (self.memory if counted else self.uncounted)[storage._cdata] = storage

    def writes_to(self, value: Any) -> bool:
        """Whether the graph writes to the memory that the tensor had when the frame began, and counts that."""
        return self.altered.get(value, memory_of(value.fake))._cdata in self.memory

    def inputs_written(self, tensors: Iterable[Any]) -> int:
        """How many of some tensors are the program's, and written to by the graph."""
        return sum(self.writes_to(value) for value in tensors if value.source is not None) if self.memory else 0

    def writes_uncounted(self, value: Any) -> bool:
        """Whether it writes there and no version tells: running statistics, tensors of inference mode."""
        return self.altered.get(value, memory_of(value.fake))._cdata in self.uncounted

    def alter(self, value: Any) -> None:
        """The graph changes what a tensor is."""
        if self.watched is not None:
            self.watched[value] = None
        if value.source is not None:
            self.altered.setdefault(value, memory_of(value.fake))
            self.count += 1

    def store_global(self, namespace: dict[str, object], name: str, value: V | None) -> None:
        """A global variable is set; None: deleted."""
        self.count += 1
        if value is None and name not in namespace:  # made and deleted by the frame
            self.globals_.pop((id(namespace), name), None)
        else:
            self.globals_[(id(namespace), name)] = (namespace, value)

    def global_of(self, namespace: dict[str, object], name: str) -> tuple[dict[str, object], V | None] | None:
        """What the frame has stored in a global, None when it has not."""
        return self.globals_.get((id(namespace), name))

    def store_class_attribute(self, cls: type, name: str, value: V) -> None:
        """Set an attribute of a class at the end of the frame."""
        self.count += 1
        self.class_attributes[(cls, name)] = value

    def class_attribute(self, cls: type, name: str) -> V | None:
        """What the frame has stored in an attribute of a class, None where that is hidden or nothing was stored."""
        if not self.class_attributes:
            return None
        for holder in cls.__mro__:
            stored = self.class_attributes.get((holder, name))
            if stored is not None or name in holder.__dict__:
                return stored
        return None

    @property
    def grad_changed(self) -> bool:
        """Whether the frame ends in another grad mode than it began in."""
        return self.grad_after is not None and self.grad_after is not self.grad

    @property
    def empty(self) -> bool:
        """Whether nothing that outlives the frame was changed."""
        objects = self.changed or self.globals_ or self.class_attributes or self.calls
        return not objects and self.chosen_dtype is None and not self.grad_changed


@attrs.frozen(eq=False)
class Precall(Generic[V]):
    """`function(*operands)`; the operands can be loaded before the graph is called."""

    function: Callable[..., Any]
    operands: tuple[V, ...]


@attrs.define(eq=False)
class Precalls(Generic[V]):
    """Calls that the generated code makes before it calls the graph.

    changed: the objects that they change, each with functions that read its state and set it. taken: a number is taken
    out of a tensor again in the graph.
    """

    calls: list[Precall[V]] = attrs.field(factory=list)
    changed: dict[V, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = attrs.field(factory=dict)
    taken: bool = False

    def add(self, function: Callable[..., Any], operands: tuple[V, ...]) -> PrecallSource:
        """One more call; where to find what it gives."""
        self.calls.append(Precall(function, operands))
        return PrecallSource(len(self.calls) - 1)
