"""Runs random programs, compiled and not: each within a time limit, and what fails is made smaller first."""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import gc
import signal
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator

import attrs

import armature
from armature.pipeline.session import Outcome, session
from armature.testing.differential import Mismatch, difference, leaves
from tests.support.programs import Program

SCHEDULES = (
    (0, 0, 1, 2),
    (0, 0, 3, 4),
    (3, 1, 2, 0),
    (4, 0, 0, 3),
)  # variants of the arguments, one call after the other
TOLERANCE = 1e-6
SECONDS_IN_EAGER = 5.0  # most that a call takes in eager mode, if it comes to its end


class TooLong(BaseException):
    """A program did not end in its time. Not an Exception: no program handles it."""


class Endless(BaseException):
    """A program does not end in eager mode: it is none to compare."""


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raises TooLong where the body takes longer, or what is around it. No limit outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(*_: object) -> None:
        raise TooLong(f"not done in {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    began, (around, _) = time.monotonic(), signal.setitimer(signal.ITIMER_REAL, seconds)
    if around:
        signal.setitimer(signal.ITIMER_REAL, min(seconds, around))
    try:
        yield
    finally:
        left = max(around - (time.monotonic() - began), 0.001) if around else 0.0
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left)


@contextlib.contextmanager
def collecting_young() -> Iterator[None]:
    """Garbage is collected at the end and where asked, of what is new: all of it would take half of the time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect(0)
        if before:
            gc.enable()


def like_eager(source: str) -> bool:
    """Compare four calls; whether anything was compiled. Errors: Mismatch, Endless, and those of the compiler."""
    armature.reset()
    with collecting_young(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = Program(source)
        compiled = Program(source, functools.partial(armature.compile, backend="eager"))
        for variant in SCHEDULES[zlib.crc32(source.encode()) % len(SCHEDULES)]:
            agree(in_eager_mode(plain, variant), compiled.outcome(variant), variant)
    outcomes = {record.outcome for record in session().compilations}
    if Outcome.FALLBACK in outcomes:
        raise Mismatch(path="program", what="outcome", eager="no fault", compiled="a fault inside the compiler")
    return Outcome.COMPILED in outcomes


def in_eager_mode(program: Program, variant: int) -> object:
    """The outcome of a call. Raises Endless."""
    try:
        with within(SECONDS_IN_EAGER):
            return program.outcome(variant)
    except TooLong:
        raise Endless from None


def agree(eager: object, compiled: object, variant: int) -> None:
    """Raises Mismatch at the first difference."""
    path = f"variant {variant}"
    for (place, theirs), (other, ours) in zip(leaves(eager, path), leaves(compiled, path)):
        if place != other:
            raise Mismatch(path=place, what="structure", eager=theirs, compiled=f"{ours!r} at {other}")
        if difference(theirs, ours, place) > TOLERANCE:
            raise Mismatch(path=place, what="values", eager=theirs, compiled=ours)
    difference(eager, compiled, path)


@attrs.frozen
class Failure:
    """A program that differs from eager mode, fails, or does not end."""

    source: str
    error: BaseException

    def __str__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}\nprogram:\n{self.source}"


def failure_of(source: str, seconds: float, run: Callable[[str], object] = like_eager) -> Failure | None:
    """What is wrong with a program, None where nothing is; nor is a text that is none, or one without end."""
    try:
        compile(source, "<generated>", "exec")
    except SyntaxError:
        return None
    try:
        with within(seconds):
            run(source)
    except (KeyboardInterrupt, SystemExit):
        raise
    except Endless:
        return None
    except BaseException as error:
        return Failure(source, error)
    return None


def smaller(failure: Failure, seconds: float, run: Callable[[str], object] = like_eager) -> Failure:
    """The same failure of a program with fewer statements, as small as can be found in the time."""
    until = time.monotonic() + seconds
    found = True
    while found:
        found = False
        for source in shortened(failure.source):
            left = until - time.monotonic()
            if left <= 0:
                return failure
            other = failure_of(source, left, run)
            if other is not None and type(other.error) is type(failure.error):
                failure, found = other, True
                break
    return failure


def shortened(source: str) -> Iterator[str]:
    """The program without some of its statements, many at first; and with the body of a statement in its place."""
    tree = ast.parse(source)
    for number, (owner, field) in enumerate(bodies(tree)):
        statements = getattr(owner, field)
        size = len(statements)
        while size:
            for start in range(0, len(statements), size):
                yield replaced(tree, number, start, start + size, "")
            size //= 2
        for place, statement in enumerate(statements):
            if isinstance(getattr(statement, "body", None), list) and not isinstance(statement, ast.FunctionDef):
                yield replaced(tree, number, place, place + 1, "body")


def bodies(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """The lists of statements in a program: their owner and field."""
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            if isinstance(held := getattr(node, field, None), list) and held and isinstance(held[0], ast.stmt):
                yield node, field


def replaced(tree: ast.AST, number: int, start: int, stop: int, field: str) -> str:
    """The source with some statements of one of its lists left out, or with that field of the first in their place."""
    made = copy.deepcopy(tree)
    owner, name = list(bodies(made))[number]
    statements = getattr(owner, name)
    statements[start:stop] = getattr(statements[start], field) if field else []
    if not statements and name == "body":
        statements.append(ast.Pass())
    return ast.unparse(ast.fix_missing_locations(made))
