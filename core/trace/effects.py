"""Mutations of objects that outlive the frame: held back while tracing, replayed by the generated code.

An object made in the frame is simply built in its last state. For the others the last state is prepared first, all of
them, then written: preparing reads the program's objects as they were before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import attrs
import torch

from armature.torch_abi.altering import memory_of
from armature.torch_abi.grad_modes import set_default_dtype, set_grad_enabled
from armature.trace.values.base import Value, Write
from armature.trace.values.function import CellValue

if TYPE_CHECKING:
    from armature.trace.values.base import Rebuilding
    from armature.trace.values.tensor import TensorValue


@attrs.frozen
class DefaultDtype:
    """torch's default dtype when the frame began, and now."""

    first: torch.dtype
    now: torch.dtype


@attrs.define(eq=False)
class Effects:
    """What the frame has changed, in the order of the first change of each object."""

    changed: dict[Value, None] = attrs.field(factory=dict)
    count: int = 0  # of changes to what outlives the frame
    altered: dict[Value, torch.UntypedStorage] = attrs.field(factory=dict)  # tensors that become others; their memory
    memory: dict[int, torch.UntypedStorage] = attrs.field(factory=dict)  # of fakes, what the graph writes to
    uncounted: dict[int, torch.UntypedStorage] = attrs.field(factory=dict)  # the same, where no version tells
    watched: dict[Value, None] | None = None  # where someone watches: all that was changed, made in the frame or not
    class_attributes: dict[tuple[type, str], Value] = attrs.field(factory=dict)
    owners: dict[int, Value] = attrs.field(factory=dict)  # objects that were looked at, by ids of their dicts
    globals_: dict[tuple[int, str], tuple[dict[str, object], Value | None]] = attrs.field(factory=dict)
    default_dtype: DefaultDtype | None = None
    grad: bool = attrs.field(factory=torch.is_grad_enabled)  # whether gradients are recorded where the frame begins
    grad_after: bool | None = None  # and where it ends, once that is known
    entered: dict[Value, None] = attrs.field(factory=dict)  # context managers of torch that are open now
    calls: list[Write] = attrs.field(factory=list)  # to be made when all else has been changed

    def call(self, write: Write) -> None:
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

    def record(self, value: Value) -> None:
        """The object of a value is changed. One made in the frame needs no replay."""
        if self.watched is not None:
            self.watched[value] = None
        if value.source is not None or (isinstance(value, CellValue) and value.real is not None):
            self.changed[value] = None
            self.count += 1

    def write_memory(self, tensor: torch.Tensor, counted: bool) -> None:
        """The graph writes to the memory of a tensor. counted: its version tells."""
        if tensor.layout is torch.strided:
            storage = memory_of(tensor)
            (self.memory if counted else self.uncounted)[storage._cdata] = storage

    def writes_to(self, value: TensorValue) -> bool:
        """Whether the graph writes to the memory that the tensor had when the frame began, and counts that."""
        return self.altered.get(value, memory_of(value.fake))._cdata in self.memory

    def inputs_written(self, tensors: Iterable[TensorValue]) -> int:
        """How many of some tensors are the program's, and written to by the graph."""
        return sum(self.writes_to(value) for value in tensors if value.source is not None) if self.memory else 0

    def writes_uncounted(self, value: TensorValue) -> bool:
        """Whether it writes there and no version tells: running statistics, tensors of inference mode."""
        return self.altered.get(value, memory_of(value.fake))._cdata in self.uncounted

    def alter(self, value: TensorValue) -> None:
        """The graph changes what a tensor is."""
        if self.watched is not None:
            self.watched[value] = None
        if value.source is not None:
            self.altered.setdefault(value, memory_of(value.fake))
            self.count += 1

    def store_global(self, namespace: dict[str, object], name: str, value: Value | None) -> None:
        """A global variable is set; None: deleted."""
        self.count += 1
        if value is None and name not in namespace:  # made and deleted by the frame
            self.globals_.pop((id(namespace), name), None)
        else:
            self.globals_[(id(namespace), name)] = (namespace, value)

    def global_of(self, namespace: dict[str, object], name: str) -> tuple[dict[str, object], Value | None] | None:
        """What the frame has stored in a global, None when it has not."""
        return self.globals_.get((id(namespace), name))

    def store_class_attribute(self, cls: type, name: str, value: Value) -> None:
        """Set an attribute of a class at the end of the frame."""
        self.count += 1
        self.class_attributes[(cls, name)] = value

    def class_attribute(self, cls: type, name: str) -> Value | None:
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

    def writes(self, out: Rebuilding) -> list[Write]:
        """The calls that bring all objects to their last state."""
        found: list[Write] = []
        for changed in list(self.changed):
            found += changed.writes(out)
        for (cls, attribute), held in self.class_attributes.items():
            found.append(Write(type.__setattr__, (out.value(cls), out.value(attribute), held)))
        for (_, name), (namespace, value) in self.globals_.items():
            where = out.value(namespace)
            if value is None:
                found.append(Write(dict.__delitem__, (where, out.value(name))))
            else:
                found.append(Write(dict.__setitem__, (where, out.value(name), value)))
        if self.chosen_dtype is not None:
            found.append(Write(set_default_dtype, (out.value(self.chosen_dtype),)))
        found += [*out.tracer.overrides.writes(out), *self.calls]
        if self.grad_changed:
            found.append(Write(set_grad_enabled, (out.value(self.grad_after),)))
        return found
