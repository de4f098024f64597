"""Facts about the functions that captured graphs call, from plugins' rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import attrs
import torch
from torch import fx

from armature.torch_abi.pytree import tree_leaves
from armature.torch_abi.symbols import is_unbacked

Asks = Callable[[fx.Node], bool]
NONE: Mapping[Any, Any] = MappingProxyType({})


@attrs.frozen(eq=False)
class Function:
    """Facts about a function that the program or a captured graph calls.

    target: the function, or a pattern for the beginning of the names of functions and tensor methods. same_as: a
    function that gives the same result, if arguments are named by its parameters. unused: its parameters that results
    do not depend on. raises: `raises(node)`, whether a call may raise an error that depends on the values of tensors,
    which fake tensors don't have. as_captured: `as_captured(node)`, whether operators would do something different, so
    that the graph runs as it was captured. sparse_gradients: `sparse_gradients(node)`, whether a call that is
    differentiated makes a sparse gradient. any_number: results have the same dtype and sizes whatever the value of a
    number among the arguments is. needs_numbers: sizes of results, or derivatives, depend on such a number. as_tensor:
    the positions of a number that may be a 0-d tensor instead, with the same result to the last bit. differentiable: a
    function that gives the same, with derivatives that never ask for the value of such a number; it also serves the
    form in place, whose name ends with `_`. changes_state: a method in place changes other state of the tensor than its
    elements. chooses_class: for an object of a derived class, C code decides which class the result has. A
    pattern has neither `same_as`, `unused` nor `chooses_class`.
    """

    target: Callable[..., Any] | re.Pattern[str]
    same_as: Callable[..., Any] | None = None
    unused: frozenset[str] = frozenset()
    raises: Asks | None = None
    as_captured: Asks | None = None
    sparse_gradients: Asks | None = None
    any_number: bool = False
    needs_numbers: bool = False
    as_tensor: frozenset[int] = frozenset()
    differentiable: Callable[..., Any] | None = None
    changes_state: bool = False
    chooses_class: bool = False


@attrs.frozen(eq=False)
class Functions:
    """The rows, indexed by what is asked. rows: by function. patterns: rows for names, in the order of the rows."""

    same: Mapping[Hashable, Callable[..., Any]] = NONE
    unused: Mapping[Hashable, frozenset[str]] = NONE
    rows: Mapping[Hashable, Function] = NONE
    patterns: tuple[tuple[re.Pattern[str], Function], ...] = ()
    _by_name: dict[tuple[str, str], Any] = attrs.field(factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, rows: Iterable[Function]) -> Functions:
        """The index of rows."""
        patterns, single = [], list[Function]()
        for row in rows:
            if isinstance(row.target, re.Pattern):
                patterns.append((row.target, row))
            else:
                single.append(row)
        return cls(
            {row.target: row.same_as for row in single if row.same_as is not None},
            {row.target: row.unused for row in single if row.unused},
            {row.target: row for row in single},
            tuple(patterns),
        )

    def may_raise(self, node: fx.Node) -> bool:
        """Whether a node's function may raise because of its arguments' values."""
        if node.op == "call_module" or any(is_unbacked(value) for value in values_of(node)):
            return True
        raises: Asks | None = self._fact("raises", node.target)
        return raises is not None and raises(node)

    def runs_as_captured(self, node: fx.Node) -> bool:
        """Whether operators would do something different from the node's function."""
        asks: Asks | None = self._fact("as_captured", node.target)
        return asks is not None and asks(node)

    def has_sparse_gradient(self, node: fx.Node) -> bool:
        """Whether a node's function, if it is differentiated, makes a sparse gradient."""
        asks: Asks | None = self._fact("sparse_gradients", node.target)
        return asks is not None and asks(node)

    def takes_any_number(self, fn: Callable[..., Any] | str) -> bool:
        """Whether the dtype and sizes of a function's results depend on no number among its arguments."""
        return bool(self._fact("any_number", fn))

    def needs_numbers(self, fn: Callable[..., Any] | str) -> bool:
        """Whether sizes of a function's results, or its derivatives, depend on a number among its arguments."""
        return bool(self._fact("needs_numbers", fn))

    def tensor_positions(self, fn: Callable[..., Any] | str) -> frozenset[int]:
        """The positions at which a 0-d tensor gives the same result as the number in it."""
        return self._fact("as_tensor", fn) or frozenset()

    def differentiable(self, fn: Callable[..., Any] | str) -> Callable[..., Any] | None:
        """A function that gives the same, with derivatives that never ask for a number that varies."""
        found: Callable[..., Any] | None = self._fact("differentiable", fn)
        return found

    def changes_state(self, fn: Callable[..., Any] | str) -> bool:
        """Whether a method in place changes other state of the tensor than its elements."""
        return bool(self._fact("changes_state", fn))

    def chooses_class(self, kind: type, method: str) -> bool:
        """Whether C code decides which class the result of a type's method has, for an object of a derived class."""
        row = self.rows.get(getattr(kind, method, None))
        return row is not None and row.chooses_class

    def _fact(self, field: str, target: Any) -> Any:
        """The field in the row of a function, or else in the first row that sets it of those that match its name."""
        row = self.rows.get(target)
        found = None if row is None else getattr(row, field)
        if found:
            return found
        key = field, target if isinstance(target, str) else getattr(target, "__name__", "")
        if key not in self._by_name:
            named = (getattr(row, field) for pattern, row in self.patterns if pattern.match(key[1]))
            self._by_name[key] = next(filter(None, named), None)
        return self._by_name[key]


NO_FUNCTIONS = Functions()


def values_of(node: fx.Node) -> list[Any]:
    """The values that a captured node returns, flattened."""
    return tree_leaves(node.meta.get("example_value"))


def tensors_of(node: fx.Node) -> list[torch.Tensor]:
    """The tensors among the values that a captured node returns."""
    return [value for value in values_of(node) if isinstance(value, torch.Tensor)]
