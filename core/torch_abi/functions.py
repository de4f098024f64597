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

Raises = Callable[[fx.Node], bool]
NONE: Mapping[Any, Any] = MappingProxyType({})


@attrs.frozen(eq=False)
class Function:
    """Facts about a function that captured graphs call.

    target: the function, or a pattern for the beginning of the names of functions and tensor methods. same_as: a
    function that gives the same result, if arguments are named by its parameters. unused: its parameters that results
    do not depend on. raises: `raises(node)`, whether a call may raise an error that depends on the values of tensors,
    which fake tensors don't have. A pattern can only have `raises`.
    """

    target: Callable[..., Any] | re.Pattern[str]
    same_as: Callable[..., Any] | None = None
    unused: frozenset[str] = frozenset()
    raises: Raises | None = None


@attrs.frozen(eq=False)
class Functions:
    """The rows, indexed by what is asked. patterns: those of rows for names, in the order of the rows."""

    same: Mapping[Hashable, Callable[..., Any]] = NONE
    unused: Mapping[Hashable, frozenset[str]] = NONE
    raising: Mapping[Hashable, Raises] = NONE
    patterns: tuple[tuple[re.Pattern[str], Raises], ...] = ()
    _by_name: dict[str, Raises | None] = attrs.field(factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, rows: Iterable[Function]) -> Functions:
        """The index of rows."""
        patterns, single = [], list[Function]()
        for row in rows:
            if not isinstance(row.target, re.Pattern):
                single.append(row)
            elif row.raises is not None:
                patterns.append((row.target, row.raises))
        return cls(
            {row.target: row.same_as for row in single if row.same_as is not None},
            {row.target: row.unused for row in single if row.unused},
            {row.target: row.raises for row in single if row.raises is not None},
            tuple(patterns),
        )

    def may_raise(self, node: fx.Node) -> bool:
        """Whether a node's function may raise because of its arguments' values."""
        if node.op == "call_module" or any(is_unbacked(value) for value in values_of(node)):
            return True
        raises = self.raising.get(node.target)
        if raises is None:
            name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
            raises = self._named(name)
        return raises is not None and raises(node)

    def _named(self, name: str) -> Raises | None:
        """What the first pattern says that matches a name."""
        if name not in self._by_name:
            found = (raises for pattern, raises in self.patterns if pattern.match(name))
            self._by_name[name] = next(found, None)
        return self._by_name[name]


NO_FUNCTIONS = Functions()


def values_of(node: fx.Node) -> list[Any]:
    """The values that a captured node returns, flattened."""
    return tree_leaves(node.meta.get("example_value"))


def tensors_of(node: fx.Node) -> list[torch.Tensor]:
    """The tensors among the values that a captured node returns."""
    return [value for value in values_of(node) if isinstance(value, torch.Tensor)]
