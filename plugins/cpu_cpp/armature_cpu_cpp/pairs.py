"""Finds stores to every other element and to those in between, as real and imaginary parts have: the two vectors are
stored together, in whole registers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from armature.backend_api import Guarded, Let, Load, Statement, Store, Var, Write, stride_of, sub


@attrs.frozen(eq=False)
class WritePair:
    """Two stores: each lane of `first` goes to an element, and the lane of `second` to the next element."""

    first: Write
    second: Write


def paired(statements: Sequence[Statement], vector: Var | None) -> Iterator[Statement | WritePair]:
    """The statements, with the earlier store of each pair moved to the later one."""
    partners = _partners(statements, vector)
    later = {id(second): first for first, second in partners.items()}
    for statement in statements:
        if statement in partners:
            continue
        earlier = later.get(id(statement))
        if not isinstance(statement, Write) or earlier is None:
            yield statement
        elif sub(statement.store.index[0], earlier.store.index[0]) == 1:
            yield WritePair(earlier, statement)
        else:
            yield WritePair(statement, earlier)


def _partners(statements: Sequence[Statement], vector: Var | None) -> Mapping[Write, Write]:
    """For the earlier store of each pair the later one. Nothing between them reads the buffer."""
    found: dict[Write, Write] = {}
    waiting: dict[str, Write] = {}
    for statement in statements:
        if not isinstance(statement, Write):
            for name in _read(statement):
                waiting.pop(name, None)
            continue
        name = statement.store.buffer
        earlier = waiting.pop(name, None)
        if vector is None or not _alternates(statement, vector):
            continue
        if earlier is not None and _are_neighbours(earlier.store, statement.store):
            found[earlier] = statement
        else:
            waiting[name] = statement
    return found


def has_partner(store: Store, others: Iterable[Store]) -> bool:
    """Whether another store goes to a neighbouring element."""
    plain = not store.atomic and not store.indirect
    return plain and any(_are_neighbours(store, other) for other in others if other.buffer == store.buffer)


def _are_neighbours(first: Store, second: Store) -> bool:
    return sub(second.index[0], first.index[0]) in (1, -1)


def _alternates(statement: Write, vector: Var) -> bool:
    store = statement.store
    return not store.atomic and not store.indirect and stride_of(store.index[0], vector) == 2


def _read(statement: Statement) -> Iterator[str]:
    """Buffers that a statement reads."""
    if isinstance(statement, Guarded):
        for inner in statement.body:
            yield from _read(inner)
    elif isinstance(statement, Let) and isinstance(statement.node, Load):
        yield statement.node.buffer
