"""What Python asks of an object when it iterates: `__iter__` once, its length before a list or tuple is made, no item more
than it needs. By builtin function, method or statement; of classes of the program, alone or derived from a builtin type."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import armature

CLASSES = """
import collections, copy, functools, heapq, itertools, math, torch
LOG = []

class Sized{base}:
    def __len__(self):
        LOG.append("len")
        return 2
    def __iter__(self):
        LOG.append("iter")
        return iter([1, 2])

class Hinted{base}:
    def __length_hint__(self):
        LOG.append("hint")
        return 2
    def __iter__(self):
        LOG.append("iter")
        return iter([1, 2])

class BadHint{base}:
    def __length_hint__(self):
        LOG.append("hint")
        return -1
    def __iter__(self):
        LOG.append("iter")
        return iter([1, 2])

class Indexed{base}:
    def __len__(self):
        LOG.append("len")
        return 2
    def __getitem__(self, position):
        LOG.append(position)
        if position >= 2:
            raise IndexError
        return position

class NoSize{base}:
    def __len__(self):
        LOG.append("len")
        raise ValueError("no size")
    def __iter__(self):
        LOG.append("iter")
        return iter([1, 2])

class Steps{base}:
    def __init__(self):
        self.given = 0
    def __len__(self):
        LOG.append("len")
        raise TypeError("no size")
    def __iter__(self):
        LOG.append("iter")
        return self
    def __next__(self):
        LOG.append("next")
        self.given += 1
        if self.given >= 4:
            raise StopIteration
        return self.given

def given(*args, **kwargs):
    return args, kwargs

def unpacked(a):
    p, q = a
    return p, q

def headed(a):
    p, *q = a
    return p, q

def tailed(a):
    *p, q = a
    return p, q

def delegated(a):
    yield from a

def program(x, made):
    a, held = made(), [0, 1, 2]
    try:
        result = {operation}
        if hasattr(type(result), "__next__"):
            result = list(result)
    except Exception as error:
        result = type(error).__name__, str(error)
    return x + 1, str(result), LOG
"""
KINDS = ("Sized", "Hinted", "BadHint", "Indexed", "NoSize", "Steps")
BASES = ("", "(list)", "(dict)", "(tuple)", "(str)", "(set)")
OPERATIONS = (
    "list(a)", "[].__init__(a)", "tuple(a)", "[*a]", "(*a,)", "{*a}", "given(*a)", "given(1, *a)", "given(*a, *a)",
    "sorted(a)", "sorted(a, key=lambda item: LOG.append(item) or -item)", "set(a)", "frozenset(a)", "held.extend(a)",
    "held.__iadd__(a)", "held.__setitem__(slice(0, 1), a)", "held.__setitem__(slice(0, 4, 2), a)", "bytes(a)",
    "bytearray(a)", "collections.deque(a)", "dict.fromkeys(a)", "dict(zip(a, a))", "dict([a])", "held.__eq__(a)",
    "{}.update([a])", "min(a)", "max(a, key=LOG.append or str)", "max(a, key=lambda item: LOG.append(item) or item)",
    "sum(a)", "sum(a, [])", "any(a)", "all(a)", "enumerate(a)", "map(str, a)", "filter(None, a)", "zip(a, held)",
    "zip(a, held, strict=True)", "iter(a)", "reversed(a)", "next(iter(a))", "''.join(a)", "b''.join(a)", "1 in a",
    "math.prod(a)", "math.fsum(a)", "math.dist(a, (1, 2))", "math.hypot(*a)", "range(*a)", "max(*a)",
    "heapq.nlargest(1, a)", "functools.reduce(max, a)", "functools.reduce(max, a, 0)", "collections.Counter(a)",
    "collections.OrderedDict.fromkeys(a)", "set().union(a)", "{1, 2}.issuperset(a)", "{1}.issubset(a)",
    "{1}.isdisjoint(a)", "{1}.intersection(a)", "{1, 2}.intersection(a, held)", "{1}.difference(a)",
    "{1}.symmetric_difference(a)", "{1}.intersection_update(a)", "collections.deque([1]).extend(a)",
    "int.from_bytes(a, 'big')", "itertools.product(a)", "itertools.combinations(a, 1)", "itertools.permutations(a)",
    "itertools.chain(a, a)", "itertools.chain.from_iterable([a])", "itertools.islice(a, 1)", "itertools.islice(a, 5)",
    "itertools.islice(itertools.cycle(a), 5)", "itertools.accumulate(a)", "itertools.starmap(max, [a])",
    "itertools.zip_longest(a, held)", "itertools.tee(a)[0]", "itertools.compress(a, a)", "itertools.compress(held, a)",
    "itertools.pairwise(a)", "itertools.dropwhile(bool, a)", "itertools.takewhile(bool, a)",
    "itertools.filterfalse(bool, a)", "itertools.groupby(a).__next__()[0]", "[item for item in a]",
    "{item: 1 for item in a}", "(item for item in a)", "delegated(a)", "unpacked(a)", "headed(a)", "tailed(a)",
    "[0, *iter(a)]", "list(reversed(held))", "bool(a)", "len(a)", "torch.zeros(2)[a]", "torch.tensor(a)",
)  # fmt: skip


def answer(base: str, kind: str, operation: str, compiled: bool) -> Any:
    """What the program gives, with what was asked of the object."""
    namespace: dict[str, Any] = {"__name__": "program"}
    exec(CLASSES.replace("{base}", base).replace("{operation}", operation), namespace)
    run = namespace["program"]
    if compiled:
        run = armature.compile(run, backend="eager")
    return str(run(torch.ones(2), namespace[kind]))


@pytest.mark.parametrize("base", [BASES[0], BASES[1], *(pytest.param(b, marks=pytest.mark.slow) for b in BASES[2:])])
@pytest.mark.parametrize("kind", KINDS)
def test_like_eager(base: str, kind: str) -> None:
    answers = {op: (answer(base, kind, op, True), answer(base, kind, op, False)) for op in OPERATIONS}
    assert {op: pair for op, pair in answers.items() if pair[0] != pair[1]} == {}


def test_a_list_of_a_sized_object_is_made_in_one_graph() -> None:
    namespace: dict[str, Any] = {"__name__": "program"}
    exec(CLASSES.replace("{base}", "").replace("{operation}", "list(a)"), namespace)
    run = armature.compile(namespace["program"], backend="eager", fullgraph=True)
    assert run(torch.ones(2), namespace["Sized"])[1:] == ("[1, 2]", ["iter", "len"])
