"""Python's semantics for values, handed to the value modules, which come before the modules that implement it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import torch

from armature.trace import signatures
from armature.trace.base import Value, refuse_result
from armature.trace.errors import UserRaised
from armature.trace.semantics import iteration, operators
from armature.trace.values.classes import class_attribute, overrides
from armature.trace.values.derived import derives
from armature.trace.values.user_object import UserObjectValue

if TYPE_CHECKING:
    from armature.plugins.tables import Tables
    from armature.trace.base import Tracing
    from armature.trace.names import Names


class PythonRules:
    """Implements `protocols.PythonVerbs`, which documents each verb."""

    def __init__(self, tracing: Tracing, names: Names, tables: Tables) -> None:
        self.tracing, self.tables = tracing, tables
        self.iterator = partial(iteration.iterator, tracing)
        self.reversed_iterator = partial(iteration.reverse, tracing)
        self.collect_items = partial(iteration.collect_items, tracing)
        self.in_sequence = partial(iteration.in_sequence, tracing)
        self.operate = partial(operators.operate, tracing)
        self.by_methods = partial(operators.by_methods, tracing)
        self.operate_unary = partial(operators.operate_unary, tracing)
        self.operate_in_place = partial(operators.operate_in_place, tracing)
        self.compare = partial(operators.compare, tracing)
        self.same_or_equal = partial(operators.same_or_equal, tracing)
        self.identical = partial(operators.identical, tracing)
        self.class_attribute = partial(class_attribute, tracing)
        self.store_global = names.store

    def takes(self, fn: object, positional: int, names: Iterable[str]) -> bool:
        return signatures.takes(fn, positional, names, self.tables.signature(fn), self.tables.checked_modules)

    def index(self, value: Value) -> Value:
        if value.is_tensor:
            return self.tracing.calls.handled(torch.Tensor.__index__, (value,), {}) or value
        if not isinstance(value, UserObjectValue) or issubclass(value.cls, int):
            return value
        method = value.method(self.tracing, "__index__")
        made = value if method is None else method.call(self.tracing, (), {})
        if method is not None and not issubclass(made.python_type(), int):
            refuse_result(self.tracing, "__index__", made)
        return made

    def builtin(self, fn: Callable[..., object], *args: Value) -> Value:
        made = self.tracing.calls.handled(fn, args, {})
        return self.tracing.graph_break("function-arguments", function=fn.__name__) if made is None else made

    def attribute_or_none(self, value: Value, name: str) -> Value | None:
        try:
            return value.get_attribute(self.tracing, name)
        except UserRaised as raised:
            if issubclass(raised.value.python_type(), AttributeError):
                return None
            raise

    def has_attribute(self, value: Value, name: str) -> bool:
        if isinstance(value, UserObjectValue):
            return self.attribute_or_none(value, name) is not None
        return hasattr(value.python_type(), name)

    def method_or_none(self, owner: Value, name: str) -> Value | None:
        return owner.method(self.tracing, name) if isinstance(owner, UserObjectValue) else None

    def iterates_plainly(self, value: Value) -> bool:
        return derives(value) and not overrides(value.python_type(), "__iter__")
