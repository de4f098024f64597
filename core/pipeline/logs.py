"""Reports compilations through Python's logging: the loggers `armature.frame`, `.guards`, `.recompiles`, `.graph` and
`.kernels`, each at level INFO.

A program enables them like any logger. `ARMATURE_LOG=frame,kernels` does so without code, on standard error unless the
program has set up logging.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from types import CodeType

from armature import config
from armature.breaks import events
from armature.codegen.origins import place
from armature.frame.guards.explain import FailedGuard, merged
from armature.pipeline.session import Compilation, Outcome
from armature.run.data import CompiledGraph

ROOT = "armature"
FORMAT = "%(name)s: %(message)s"


def log(topic: str, text: Callable[[], str]) -> None:
    """Log a text, which is only built if the logger is enabled."""
    logger = logging.getLogger(f"{ROOT}.{topic}")
    asked = topic in config.current().log
    if not (asked or logger.isEnabledFor(logging.INFO)):
        return
    if asked and not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(FORMAT))
        logging.getLogger(ROOT).addHandler(handler)
    # Bypass the logger's level, which is for the program to set.
    logger.handle(logger.makeRecord(logger.name, logging.INFO, __file__, 0, text(), (), None))


def frame(record: Compilation) -> None:
    """The outcome of a compilation, with the lines of its graph breaks."""
    log("frame", lambda: _frame(record))


def _frame(record: Compilation) -> str:
    because = f": {record.reason}" if record.reason else ""
    operators = f"{record.operators} operator{'' if record.operators == 1 else 's'}"
    ended = "compiled up to a graph break" if _is_cut(record) else record.outcome.value
    lines = [f"{record.where} {record.function}: {ended}{because}, {operators}, {record.seconds:.2f} s"]
    lines += [events.describe(event) for event in record.breaks]
    return "\n".join(lines)


def _is_cut(record: Compilation) -> bool:
    return record.outcome is Outcome.COMPILED and bool(record.breaks)


def skipped(code: CodeType, reason: str) -> None:
    """A frame that was not compiled."""
    log("frame", lambda: f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}: left alone: {reason}")


def guards(record: Compilation) -> None:
    """The guards of a frame's code, each with the user's line."""
    log("guards", lambda: "\n  ".join([f"{record.where} {record.function}:", *record.guards]))


def recompiling(code: CodeType, failed: Iterable[FailedGuard]) -> None:
    """The failed guards, with the old and new values."""
    lead = f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname} is compiled again:"
    log("recompiles", lambda: "\n  ".join([lead, *map(_failure, merged(failed))]))


def _failure(guard: FailedGuard) -> str:
    return f"{guard.words}    ({guard.user})" if guard.user else guard.words


def graph(record: Compilation) -> None:
    """The captured graph as a program, with the user's lines."""
    if record.module is not None:
        log("graph", lambda: f"{record.where} {record.function}:\n{record.captured}")


def kernels(record: Compilation, compiled: CompiledGraph) -> None:
    """The kernels of a graph: the operators fused in each, and the user's lines."""
    log("kernels", lambda: "\n  ".join([f"{record.where} {compiled.name}:", *map(str, _kernels(compiled))]))


def _kernels(compiled: CompiledGraph) -> Iterable[str]:
    if not compiled.plan.kernels:
        yield "none of our own: the operators in it are calls of torch's"
    for kernel in compiled.plan.kernels:
        operators = ", ".join(dict.fromkeys(origin.op for origin in kernel.origins))
        lines = "; ".join(dict.fromkeys(place(origin) for origin in kernel.origins if origin.file))
        yield f"{kernel.name}: {operators}    {lines}"
