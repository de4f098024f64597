"""Random programs: Python functions over a tensor, numbers, lists and dicts, written by hypothesis as source text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st

NUMBERS = ("n", "m", "i")
EXPRESSIONS = st.sampled_from(
    (
        "n + 1", "n * m", "n - m", "m % 3", "-n", "n // 2", "len(items)", "sum(items)", "max(n, m)", "items[-1]",
        "x.shape[0] + n",
        "table['k']", "table.get('z', n)", "abs(m)", "int(n > m)", "helper(n)", "counter()", "x.size(1)",
        "min(items)", "items.count(1)",
    )
)  # fmt: skip
TENSORS = st.sampled_from(
    (
        "x + n", "x * 2", "x - y", "x.relu()", "torch.sin(x)", "x.t().t()", "x[:, :2].repeat(1, 2)", "x.clone()",
        "torch.where(x > 0, x, y)",
        "x.sum(0, keepdim=True) + y", "helper(x)", "torch.cat([x, y], 0)[: x.shape[0]]", "sum([x, y])",
        "x.clamp(-n - 5, 5)", "x / 3",
    )
)  # fmt: skip
TESTS = st.sampled_from(
    (
        "n > m",
        "m % 2 == 0",
        "items",
        "n in items",
        "'z' in table",
        "x.shape[0] > n",
        "len(items) > 3 and n",
        "not n",
        "n < m < 5",
    )
)
SIMPLE = st.sampled_from(
    (
        "items.append(n)", "items.extend([m, 1])", "items.insert(0, m)", "table['z'] = n", "table['k'] += 1",
        "items[0] = n", "items.reverse()",
        "items.sort()", "n, m = m, n", "x += 1", "x[0] = n", "x.mul_(0.5)", "y = x",
        "items = [v + 1 for v in items]", "box.value = n",
        "box.value += m", "n = box.value", "table = {**table, 'w': m}", "text = f'{n}-{m}'; n = len(text)",
        "n = (lambda a, b=m: a - b)(n)",
        "assert n == n, f'{x}'", "first, *rest = items; items = rest + [first]", "m = next(iter(items), 0)",
        "n = sum(v for v in items if v > 1)",
    )
)  # fmt: skip


# Statements that break the graph.
BREAKING = st.sampled_from(
    (
        "print(n, m, len(items))", "print(f'{x.sum():.2f}', n)", "n = int(x[0, 0] > 0) + n", "x = loud(x)",
        "n = loud(n)",
        "items = [loud(v) for v in items]", "assert x.sum() < 1e9", "n += int(x.sum().item()) % 3", "loud(box)",
        "x = x if x.sum() > n else y", "y = (loud(x) + y, print(m))[0]",
        "print(sorted(k for k in locals() if k in 'nmxy'))",
        "m = sum(map(loud, [m, n]))", "box.value = loud(box.value) + 1; loud(box.value)", "n = noisy_counter() + n",
        "text = f'{x}'; x += 1; print(len(text))", "print(*[calls, n], sep='-')",
        "n = max(items, key=loud) if items else n",
        "x = (x * 2 if loud(n) else x) + loud(y)", "it = iter(items); print(next(it, 0)); n = sum(it)",
    )
)  # fmt: skip
BREAKING_HEAD = [
    "    def loud(v):",
    "        w = [v]",
    "        print(type(v).__name__)",
    "        return w[0]",
    "    def noisy_counter():",
    "        nonlocal calls",
    "        calls += 1",
    "        print(calls)",
    "        calls += 1",
    "        return calls",
]


def indent(lines: list[str]) -> list[str]:
    """One level deeper."""
    return ["    " + line for line in lines]


def assignments() -> st.SearchStrategy[list[str]]:
    """`n = ...`, `x = ...`, or a statement of its own."""
    number = st.tuples(st.sampled_from(("n", "m")), EXPRESSIONS).map(lambda p: [f"{p[0]} = {p[1]}"])
    tensor = st.tuples(st.sampled_from(("x", "y")), TENSORS).map(lambda p: [f"{p[0]} = {p[1]}"])
    return st.one_of(number, tensor, SIMPLE.map(lambda text: [text]))


def loop_lines(parts: tuple[int, list[str], str]) -> list[str]:
    """A `for` with `break` and `else`."""
    count, body, test = parts
    return [f"for i in range({count}):", *indent(body), f"    if {test}:", "        break", "else:", "    m += 1"]


def try_lines(parts: tuple[list[str], str]) -> list[str]:
    """A `try` with two handlers and `finally`; the last statement of its body may raise."""
    body, raiser = parts
    handlers = ["except (LookupError, ValueError) as error:", "    n += len(error.args)"]
    return [
        "try:", *indent(body), f"    {raiser}", *handlers,
        "except ZeroDivisionError:", "    m = 7",
        "finally:", "    n += 1",
    ]  # fmt: skip


def blocks(inner: st.SearchStrategy[list[str]]) -> st.SearchStrategy[list[str]]:
    """Compound statements around statements."""
    body = st.lists(inner, min_size=1, max_size=3).map(lambda parts: [line for part in parts for line in part])
    branch = st.tuples(TESTS, body, body).map(lambda p: [f"if {p[0]}:", *indent(p[1]), "else:", *indent(p[2])])
    loop = st.tuples(st.integers(1, 3), body, TESTS).map(loop_lines)
    counted = body.map(lambda p: ["j = 0", "while j < 2:", "    j += 1", *indent(p)])
    raisers = st.sampled_from(("items[99]", "table['none']", "1 // 0", "n + 0", "raise ValueError(n)"))
    caught = st.tuples(body, raisers).map(try_lines)
    managed = body.map(lambda p: ["with torch.no_grad():", *indent(p)])
    return st.one_of(branch, loop, counted, caught, managed)


def breaking_blocks(inner: st.SearchStrategy[list[str]]) -> st.SearchStrategy[list[str]]:
    """Compound statements, some of which break the graph themselves."""
    body = st.lists(inner, min_size=1, max_size=3).map(lambda parts: [line for part in parts for line in part])
    branch = st.tuples(body, body).map(lambda p: ["if x.sum() > n:", *indent(p[0]), "else:", *indent(p[1])])
    rows = body.map(lambda p: ["for row in x:", "    print(row.shape)", *indent(p)])
    waits = body.map(lambda p: ["j = 0", "while x.sum() < 50 and j < 2:", "    j += 1", *indent(p)])
    raises = body.map(lambda p: ["try:", *indent(p), "    int(str(n) + 'x')", "except ValueError:", *indent(p)])
    managed = body.map(lambda p: ["with Managed(items):", *indent(p)])
    return st.one_of(blocks(inner), branch, rows, waits, raises, managed)


HEAD = [
    "def program(x, y, n, m, items, table, box):",
    "    calls = 0",
    "    def helper(v, by=2):",
    "        return v * by",
    "    def counter():",
    "        nonlocal calls",
    "        calls += 1",
    "        return calls",
]
TAIL = "    return x, y, n, m, items, table, calls, [x, y], {'n': n}"


class Box:
    """An object to write to."""

    def __init__(self, value: int) -> None:
        self.value = value


class Managed:
    """A context manager that swallows ZeroDivisionError."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __enter__(self) -> Managed:
        self.items.append(1)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> bool:
        self.items.append(2 if kind is None else 3)
        return kind is ZeroDivisionError


def breaking_sources() -> st.SearchStrategy[str]:
    """Source texts of functions `program(x, y, n, m, items, table, box)` with statements that break the graph."""
    leaf = st.one_of(assignments(), BREAKING.map(lambda text: [text]))
    body = st.lists(st.recursive(leaf, breaking_blocks, max_leaves=6), min_size=1, max_size=6)
    head = [*HEAD, *BREAKING_HEAD]
    return body.map(lambda parts: "\n".join([*head, *indent([line for part in parts for line in part]), TAIL]))


def compiled(source: str) -> Callable[..., Any]:
    """The function of a source text."""
    namespace: dict[str, Any] = {"torch": torch, "Managed": Managed, "__name__": "generated"}
    exec(compile(source, "<generated>", "exec"), namespace)
    program: Callable[..., Any] = namespace["program"]
    return program


def arguments() -> tuple[Any, ...]:
    """Fresh arguments of a program."""
    x = torch.linspace(-2.0, 2.0, 12).reshape(3, 4)
    return x, x.flip(0).contiguous(), 2, 3, [1, 2], {"k": 1}, Box(4)
