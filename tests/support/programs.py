"""Random programs: Python functions that hypothesis writes as source text, and what a call of one gives.

A program mixes control flow, containers, closures, classes, generators, exceptions, mutation and tensor operators, and,
where asked, statements that end a graph. What they are made of stands in `program_parts`.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import torch
from hypothesis import strategies as st

from tests.support import program_parts as parts
from tests.support.pictures import Camera
from tests.support.tracing import chain

Lines = list[str]
PLACEHOLDER = re.compile(r"<(num|ten|test|text|seq|map|set|fn|nv|tv|error)>")
SLOT = re.compile(r"^( *)<(body|raiser|inner|alone)>$")
WORD = re.compile(r"\w+")
SUSPENDS = re.compile(r"\b(yield|talker|outer)\b")
DEEPEST_PART = 3
DEEPEST_BLOCK = 2
MOST_STATEMENTS = 14
LEAF, BLOCK = 3, 2  # of as many choices, the last is an expression with others in it, or a statement with others in it


@attrs.define
class Writer:
    """Writes one program. `choose(n)` gives a number below n; 0 stands for what is plainest."""

    choose: Callable[[int], int]
    breaks: bool
    left: int = MOST_STATEMENTS
    names: int = 0

    def of(self, options: tuple[str, ...]) -> str:
        return options[self.choose(len(options))]

    def part(self, kind: str, depth: int = 0) -> str:
        """An expression of a kind, in brackets where it is more than a name or number."""
        if kind in parts.COMPOUND and depth < DEEPEST_PART and self.choose(LEAF) == LEAF - 1:
            return f"({self.filled(self.of(parts.COMPOUND[kind]), depth + 1)})"
        return self.of(parts.ATOMS[kind])

    def filled(self, template: str, depth: int = 0) -> str:
        """A template with an expression in each of its places."""
        if "<var>" in template:
            self.names += 1
            template = template.replace("<var>", f"made{self.names}")
        return PLACEHOLDER.sub(lambda found: self.part(found[1], depth), template)

    def statement(self, depth: int) -> Lines:
        """A statement, perhaps with others in it."""
        self.left -= 1
        harder = self.breaks and self.choose(3) == 2
        if depth < DEEPEST_BLOCK and self.left > 0 and self.choose(BLOCK) == BLOCK - 1:
            return self.block(self.of(parts.BREAKING_BLOCKS if harder else parts.BLOCKS), depth + 1)
        return self.filled(self.of(parts.BREAKING if harder else parts.SIMPLE)).split("\n")

    def block(self, template: str, depth: int) -> Lines:
        """The lines of a compound statement."""
        found: Lines = []
        for line in self.filled(template).split("\n"):
            slot = SLOT.match(line)
            found += [slot[1] + inner for inner in self.slot(slot[2], depth)] if slot else [line]
        return found

    def slot(self, kind: str, depth: int) -> Lines:
        """The statements in a place of a compound statement."""
        if kind == "body":
            return [line for _ in range(self.choose(2) + 1) for line in self.statement(depth)]
        options = {"raiser": parts.RAISERS, "inner": parts.INNER, "alone": parts.ALONE}[kind]
        return [self.filled(self.of(options))]

    def program(self) -> str:
        """A source text."""
        body = self.statement(0)
        while self.left > 0 and self.choose(5):
            body += self.statement(0)
        return text_of(body)


def text_of(body: Lines) -> str:
    """The source of a program with these statements, and at its head what they use."""
    met: set[str] = set()
    new = set(WORD.findall("\n".join(body)))
    while new:
        met |= new
        used = "\n".join(parts.FUNCTIONS.get(name, parts.VARIABLES.get(name, "")) for name in new)
        new = set(WORD.findall(used)) - met
    variables = [name for name in parts.VARIABLES if name in met]
    head = [parts.VARIABLES[name] for name in variables]
    head += [line for name, text in parts.FUNCTIONS.items() if name in met for line in text.split("\n")]
    back = f"return {', '.join([parts.RETURNED, *variables])}, {{'n': n, 'box': box}}"
    return "\n".join([*parts.START, *("    " + line for line in (*head, *body, back))])


@functools.cache
def below(count: int) -> st.SearchStrategy[int]:
    return st.integers(0, count - 1)


@st.composite
def sources(draw: st.DrawFn, *, breaks: bool = False) -> str:
    """Source texts of functions `program(x, y, n, m, items, table, box)`. breaks: with statements that end a graph."""
    return Writer(lambda count: draw(below(count)), breaks).program()


FILE = "<generated>"
VARIANTS = 5


class Program:
    """A program of a source text, in a module of its own."""

    def __init__(self, source: str, wrap: Callable[[Any], Any] = lambda fn: fn) -> None:
        self.source = source
        module = types.ModuleType("generated")
        sys.modules[module.__name__] = module  # dataclasses look there
        self.space: dict[str, Any] = vars(module)
        exec(prelude(), self.space)
        exec(compile(source, FILE, "exec"), self.space)
        self.fn = self.space["program"]
        self.run = wrap(self.fn)
        self.leaf = torch.empty(0)

    def arguments(self, variant: int = 0) -> tuple[Any, ...]:
        """Fresh arguments. Variants: 1 other numbers, 2 aliases and empty lists, 3 gradients wanted, 4 another size."""
        rows = 5 if variant == 4 else 3
        x = torch.linspace(-2.0, 2.0, 4 * rows).reshape(rows, 4)
        self.leaf = x.requires_grad_(variant == 3)
        if variant == 3:
            x = x * 1
        box = self.space["Box"](4 + variant)
        if variant == 2:
            return x, x, 0, 3, [], {"k": 1}, box
        return x, x.flip(0).contiguous(), 2, 3 - variant % 3, [1, 2], {"k": 1}, box

    def fresh(self, variant: int = 0) -> tuple[Any, ...]:
        """Fresh arguments, with the globals of the program as they were at first."""
        self.space.update(TOTAL=0, LOG=[], CLOSED=[], OTHER=0, NET=self.space["Net"]())
        self.space["STATE"].clear()
        self.space["STATE"].update(total=0)
        self.space["Box"].made = 0
        self.space["memo"].cache_clear()
        torch.manual_seed(0)
        return self.arguments(variant)

    def outcome(self, variant: int = 0, run: Callable[..., Any] | None = None) -> Any:
        """What a call gives (an exception, its causes and lines, where it raises), prints, and leaves behind."""
        args = self.fresh(variant)
        printed = io.StringIO()
        result: Any = None
        with contextlib.redirect_stdout(printed):
            try:
                result = (self.run if run is None else run)(*args)
            except Exception as error:
                result = (*chain(error), *lines_of(error))
            if SUSPENDS.search(self.source):
                # Generators that the call has left are closed: in the first one when the tracer is gone.
                gc.collect() if gc.isenabled() else gc.collect(0)
            grad = torch.is_grad_enabled()
            left = {name: self.space[name] for name in ("TOTAL", "STATE", "LOG", "OTHER", "NET")}
            random = torch.rand(1)
            camera = Camera()
            # What generators do at their end, which may be later than in eager mode: not when, but how often.
            closed = sorted(self.space["CLOSED"])
            picture = camera.take((result, args, left, self.space["Box"].made, closed))
        return {
            "picture": picture,
            "printed": printed.getvalue(),
            "grad": grad,
            "random": random,
            "gradient": gradient(self.leaf, camera.tensors()) if self.leaf.requires_grad else None,
        }


@functools.cache
def prelude() -> Any:
    return compile(parts.PRELUDE, "<prelude>", "exec")


def gradient(leaf: torch.Tensor, results: list[torch.Tensor]) -> torch.Tensor | str | None:
    """The gradient of the sum of all that was computed, or how it fails."""
    sums = [result.sum() for result in results if result.requires_grad and result.is_floating_point()]
    if not sums:
        return None
    try:
        return torch.autograd.grad(torch.stack(sums).sum(), leaf, allow_unused=True)[0]
    except RuntimeError as error:
        return str(error)


def lines_of(error: BaseException) -> Iterator[str]:
    """The lines of an exception's traceback in the program."""
    for line in traceback.extract_tb(error.__traceback__):
        if line.filename == FILE:
            yield f"{line.name}:{line.lineno}"
