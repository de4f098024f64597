"""How a frame that was cut in pieces runs: the first piece calls the next ones in turn, none of them calls another.

A loop that breaks the graph in its body thus takes no stack, however often it goes round.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from armature.torch_abi.eval_frame import skip_code


class Continue(tuple[object, ...]):
    """What a piece returns that has not come to the frame's end: the next piece and its arguments."""

    __slots__ = ()


_read: Callable[[BaseException], TracebackType | None] = BaseException.__dict__["__traceback__"].__get__
_write: Callable[[BaseException, TracebackType | None], None] = BaseException.__dict__["__traceback__"].__set__


def forget_caller(error: BaseException) -> BaseException:
    """Take the outermost entry, the frame that runs the pieces, off the traceback."""
    traceback = _read(error)
    if traceback is not None:
        _write(error, traceback.tb_next)
    return error


skip_code(forget_caller.__code__)
