"""Finds rules: by the object that a name leads to, by the name itself, by the module.

Names are resolved among loaded modules without importing anything; modules loaded later are found later. A name applies
to the object that it leads to, under all other names of that object, and to an object that later replaces it.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any

import attrs

from armature.introspection import (
    MISSING,
    Subject,
    class_member,
    describe,
    find_loaded,
    is_class,
    is_module,
    is_plain_c_function,
    member,
    namespace,
    owner_of_names,
    same_function,
    wrapped_by_decorator,
)

if TYPE_CHECKING:
    from armature.rules.data import Rule, RuleOrigin, RuleTable

    Entry = tuple[
        Rule | RuleTable, RuleOrigin, int
    ]  # a verdict's content, the row's (or its table's) location, the index in the table
    RowsById = dict[int, tuple[Any, list[Entry]]]


@attrs.define(eq=False)
class RuleIndex:
    """The rules by what they name.

    by_id, by_code: with the object itself, so that its id stays unique. wrapped: rows for functions in a decorator's
    wrapper, where the name leads to the wrapper; they apply if no row is about the function itself. members: all names,
    by the parts before and after their last dot; unresolved: those not resolved yet.
    """

    by_id: RowsById = attrs.field(factory=dict)
    by_code: RowsById = attrs.field(factory=dict)
    wrapped: RowsById = attrs.field(factory=dict)
    by_name: dict[str, list[Entry]] = attrs.field(factory=dict)
    members: dict[str, dict[str, list[Entry]]] = attrs.field(factory=dict)
    unresolved: dict[str, dict[str, list[Entry]]] = attrs.field(factory=dict)
    modules_loaded: int = 0
    lock: threading.Lock = attrs.field(factory=threading.Lock)

    def add(self, rule: Rule, origin: RuleOrigin) -> None:
        """File a rule under its name or its object."""
        target = rule.target
        if rule.name:
            self._name(rule.name, (rule, origin, 0))
        elif is_module(target):
            self.by_name.setdefault(describe(target).module, []).append((rule, origin, 0))
        else:
            self._file(target, [(rule, origin, 0)])

    def add_table(self, table: RuleTable, origin: RuleOrigin) -> None:
        """File the rules of a table."""
        by_name, before = self.by_name, None
        for at, name in enumerate(table.names):
            if name in by_name or "#" in name:
                self._name(name, (table, origin, at))
                continue
            owner, _, last = name.rpartition(".")
            if owner != before:  # a table's names are mostly grouped by owner
                before, names = owner, self.members.setdefault(owner, {})
                unresolved = self.unresolved.setdefault(owner, {})
            by_name[name] = names[last] = unresolved[last] = [(table, origin, at)]

    def refresh(self) -> bool:
        """Resolve names that were missing, if modules were loaded since. Returns whether any answer may have
        changed."""
        loaded = len(sys.modules)
        if loaded == self.modules_loaded:
            return False
        with self.lock:
            readers = {owner: look for owner in list(self.unresolved) if (look := _reader(owner)) is not None}
            found = [self._resolve(owner, look) for owner, look in readers.items()]
            self.modules_loaded = loaded
            return any(found)

    def for_object(self, obj: object) -> list[Entry]:
        """Rows that name this very object, larger priority first."""
        kinds = (self.by_code, self.wrapped) if type(obj) is CodeType else (self.by_id, self.wrapped)
        for kind in kinds:
            held = kind.get(id(obj))
            if held is not None and held[0] is obj:
                return by_priority(held[1])
        return []

    def for_name(self, subject: Subject) -> list[Entry]:
        """Rows that name the object now: it replaced the one that they were filed for, or its module is gone."""
        rows = self.by_name.get(subject.name)
        if rows is not None:
            found = find_loaded(subject.name)
            if found is MISSING or _leads_to(found, subject.obj):
                return by_priority(rows)
        names = self.members.get(subject.module)
        look = _reader(subject.module) if names else None
        if names is None or look is None:
            return []
        found_rows = [row for last, rows in names.items() if _leads_to(look(last), subject.obj) for row in rows]
        return by_priority(found_rows)

    def for_module(self, module: str) -> Iterator[tuple[int, Entry]]:
        """Rows that name the module or a package above it, with their nearness: larger is nearer."""
        yield from ((0, row) for row in self.by_name.get(f"{module}.__init__", ()))
        while module:
            yield from ((len(module), row) for row in self.by_name.get(module, ()))
            module = module.rpartition(".")[0]

    def unresolved_names(self) -> Iterator[tuple[str, list[Entry]]]:
        """Names that were never resolved."""
        for owner, names in self.unresolved.items():
            yield from ((f"{owner}.{last}" if owner else last, rows) for last, rows in names.items())

    def entries(self) -> Iterator[Entry]:
        """All rows, each once."""
        for rows in self.by_name.values():
            yield from rows
        named = {id(row[0]) for rows in self.by_name.values() for row in rows}
        seen: set[int] = set()
        for _, rows in self.by_id.values():
            for row in rows:
                if id(row[0]) not in named and id(row[0]) not in seen:
                    seen.add(id(row[0]))
                    yield row

    def of_same_object(self) -> Iterator[list[Entry]]:
        """Groups of rows about one object, larger priority first."""
        seen: set[tuple[tuple[int, int], ...]] = set()
        for _, rows in self.by_id.values():
            key = tuple((id(row[0]), row[2]) for row in rows)
            if len(rows) > 1 and key not in seen:
                seen.add(key)
                yield by_priority(rows)

    def _name(self, target: str, row: Entry) -> None:
        name = target.replace("#", ".")
        rows = self.by_name.get(name)
        if rows is not None:
            rows.append(row)
            return
        self.by_name[name] = rows = [row]
        owner, _, last = name.rpartition(".")
        self.members.setdefault(owner, {})[last] = rows
        self.unresolved.setdefault(owner, {})[last] = rows

    def _resolve(self, owner: str, look: Callable[[str], Any]) -> bool:
        """File the names that exist now; returns whether there were any."""
        before = f"{owner}." if owner else ""
        absent, unresolved = {}, self.unresolved[owner]
        for last, rows in unresolved.items():
            found = look(last)
            if found is MISSING:
                if before + last not in sys.modules:
                    absent[last] = rows
            elif is_plain_c_function(found) and id(found) not in self.by_id:  # a fast path for the most common case
                self.by_id[id(found)] = (found, rows)
            elif not is_module(found):
                self._file(found, rows)
        if absent:
            self.unresolved[owner] = absent
        else:
            del self.unresolved[owner]
        return len(absent) < len(unresolved)

    def _file(self, target: object, rows: list[Entry]) -> None:
        for layer in same_function(target):
            _put(self.by_id, layer, rows)
            if type(layer) is types.FunctionType:
                _put(self.by_code, layer.__code__, rows)
                for inner in wrapped_by_decorator(layer):
                    _put(self.wrapped, inner, rows)
                    _put(self.wrapped, inner.__code__, rows)


def _put(held: RowsById, obj: Any, rows: list[Entry]) -> None:
    there = held.get(id(obj))
    held[id(obj)] = (obj, rows if there is None else [*there[1], *rows])


def _leads_to(found: Any, obj: object) -> bool:
    """Whether an object is the one asked about, or a function that runs the code asked about."""
    if type(obj) is not CodeType:
        return found is obj
    return any(type(layer) is types.FunctionType and layer.__code__ is obj for layer in same_function(found))


def _from(names: dict[str, Any], name: str) -> Any:
    return names.get(name, MISSING)


def _reader(owner: str) -> Callable[[str], Any] | None:
    """A function that returns a member of a loaded module or class, or MISSING; None if the owner is not loaded."""
    if not owner:
        return find_loaded
    found = owner_of_names(owner)
    if found is MISSING:
        return None
    if is_module(found):
        return functools.partial(_from, namespace(found))
    return lambda name: _of_class(found, name)


def _of_class(owner: Any, name: str) -> Any:
    """A member of a class. Members inherited from `object` don't count: a rule for one would apply to all classes."""
    cls = owner if is_class(owner) else type(owner)
    inherited = cls is not object and class_member(cls, name) is class_member(object, name)
    return MISSING if inherited else member(owner, name)


def by_priority(rows: Iterable[Entry]) -> list[Entry]:
    """The rows, larger priority first; rules of equal priority keep their order."""
    return sorted(rows, key=lambda row: -row[0].priority)
