"""Finds buffers that share memory because an operator returned a part of its argument."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from armature.lower.data import Argument, ExternCall, View


def views_of(arguments: Iterable[Argument]) -> Iterator[View]:
    """All views among arguments, including those in nested tuples."""
    for argument in arguments:
        if isinstance(argument, View):
            yield argument
        elif isinstance(argument, tuple):
            yield from views_of(argument)


def makes_memory(call: ExternCall) -> bool:
    """True if the call's results are new memory, never its arguments or a part of them."""
    return not call.may_return_view and all(r.alias_info is None for r in call.target._schema.returns)


def shared_memory(nodes: Iterable[object]) -> Mapping[str, str]:
    """Maps each buffer that shares memory with another one to a name for that memory.

    Buffers with memory of their own are left out. `nodes`: of a loop graph, or units of scheduling.
    """
    names: dict[str, str] = {}

    def find(name: str) -> str:
        while names.setdefault(name, name) != name:
            name = names[name]
        return name

    for call in nodes:
        if not isinstance(call, ExternCall) or makes_memory(call):
            continue
        results = [name for name in call.outputs if name is not None]
        lent = list(dict.fromkeys(view.buffer for view in views_of(_lent(call)))) if results else []
        for name in lent[1:] + results if lent else []:
            names[find(name)] = find(lent[0])
    return {name: find(name) for name in names}


def _lent(call: ExternCall) -> Iterator[Argument]:
    """The arguments that results may alias."""
    for position, formal in enumerate(call.target._schema.arguments):
        if call.may_return_view or formal.alias_info is not None:
            yield call.args[position] if position < len(call.args) else call.kwargs.get(formal.name)
