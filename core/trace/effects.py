"""Mutations of objects that outlive the frame: held back while tracing, replayed by the generated code.

An object made in the frame is simply built in its last state. For the others the last state is prepared first, all of
them, then written: preparing reads the program's objects as they were before.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from types import CellType, MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs

from armature.trace.values.base import Value
from armature.trace.values.function import CellValue
from armature.trace.values.mapping import DictValue
from armature.trace.values.sequence import ListValue
from armature.trace.values.sets import SetValue
from armature.trace.values.tensor import TensorValue
from armature.trace.values.user_dict import HeldItemsValue
from armature.trace.values.user_object import UserObjectValue

if TYPE_CHECKING:
    from armature.trace.rebuild import Rebuilder

WRITE_CELL: Callable[..., object] = CellType.__dict__["cell_contents"].__set__


@attrs.frozen(eq=False)
class Write:
    """A call of a function written in C on values: `function(*operands)`, made after the graph has run."""

    function: Callable[..., object]
    operands: tuple[Value, ...]


@attrs.define(eq=False)
class Effects:
    """What the frame has changed, in the order of the first change of each object."""

    changed: dict[Value, None] = attrs.field(factory=dict)
    globals_: dict[tuple[int, str], tuple[dict[str, object], Value | None]] = attrs.field(factory=dict)

    def record(self, value: Value) -> None:
        """The object of a value is changed. One made in the frame needs no replay."""
        if value.source is not None or (isinstance(value, CellValue) and value.real is not None):
            self.changed[value] = None

    def store_global(self, namespace: dict[str, object], name: str, value: Value | None) -> None:
        """A global variable is set; None: deleted."""
        self.globals_[(id(namespace), name)] = (namespace, value)

    def global_of(self, namespace: dict[str, object], name: str) -> tuple[dict[str, object], Value | None] | None:
        """What the frame has stored in a global, None when it has not."""
        return self.globals_.get((id(namespace), name))

    @property
    def empty(self) -> bool:
        """Whether nothing that outlives the frame was changed."""
        return not self.changed and not self.globals_

    def writes(self, out: Rebuilder) -> list[Write]:
        """The calls that bring all objects to their last state."""
        found: list[Write] = []
        for changed in list(self.changed):
            found += WRITERS[next(kind for kind in WRITERS if isinstance(changed, kind))](changed, out)
        for (_, name), (namespace, value) in self.globals_.items():
            where = out.namespace_value(namespace)
            if value is None:
                found.append(Write(dict.__delitem__, (where, out.value(name))))
            else:
                found.append(Write(dict.__setitem__, (where, out.value(name), value)))
        return found


def _write_list(value: ListValue, out: Rebuilder) -> list[Write]:
    return [Write(list.__setitem__, (value, out.value(slice(None)), ListValue(list(value.items))))]


def _write_dict(value: DictValue, out: Rebuilder) -> list[Write]:
    plain = DictValue(dict(value.entries))
    if value.kind is MappingProxyType:
        out.cannot(value)
    kind = collections.OrderedDict if value.kind is collections.OrderedDict else dict
    return [Write(kind.clear, (value,)), Write(kind.update, (value, plain))]


def _write_held_items(value: HeldItemsValue, out: Rebuilder) -> list[Write]:
    """By dict's own methods: those of the subclass have run while tracing."""
    base: Any = value.kind
    stores = [Write(base.__setitem__, (value.owner, key, held)) for key, held in value.entries.values()]
    return [Write(base.clear, (value.owner,)), *stores]


def _write_set(value: SetValue, out: Rebuilder) -> list[Write]:
    return [Write(set.clear, (value,)), Write(set.update, (value, SetValue(dict(value.entries))))]


def _write_cell(value: CellValue, out: Rebuilder) -> list[Write]:
    if value.content is None:
        out.cannot(value)
    return [Write(WRITE_CELL, (value, value.content))]


def _write_object(value: UserObjectValue, out: Rebuilder) -> list[Write]:
    found = []
    for name in value.written:
        held = value.attributes[name]
        if held is None:
            found.append(Write(object.__delattr__, (value, out.value(name))))
        else:
            found.append(Write(object.__setattr__, (value, out.value(name), held)))
    return found


def _write_tensor(value: TensorValue, out: Rebuilder) -> list[Write]:
    return [Write(setattr, (value, out.value(name), held)) for name, held in value.written.items()]


WRITERS: dict[type, Callable[..., list[Write]]] = {
    ListValue: _write_list,
    HeldItemsValue: _write_held_items,
    DictValue: _write_dict,
    SetValue: _write_set,
    CellValue: _write_cell,
    UserObjectValue: _write_object,
    TensorValue: _write_tensor,
}
