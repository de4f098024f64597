"""Runs a frame that was cut in pieces: the first piece calls the later ones in turn, so no piece calls another.

So a loop that breaks the graph in its body uses no stack, however many iterations it has.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from armature.torch_abi.eval_frame import skip_code


class Continue(tuple[object, ...]):
    """Returned by a piece that has not reached the frame's end: the next piece and its arguments."""

    __slots__ = ()


_read: Callable[[BaseException], TracebackType | None] = BaseException.__dict__["__traceback__"].__get__
_write: Callable[[BaseException, TracebackType | None], None] = BaseException.__dict__["__traceback__"].__set__


def forget_caller(error: BaseException) -> BaseException:
    """Remove the outermost entry, the frame that runs the pieces, from the traceback."""
    traceback = _read(error)
    if traceback is not None:
        _write(error, traceback.tb_next)
    return error


skip_code(forget_caller.__code__)
