"""When a compiled graph raises, the frame runs again in eager mode: the program then sees the error as if nothing had
been compiled, at its line, with the changes made before it, in its own handlers.

That is sound since changes are made after the graph has run. What a graph changes itself, its inputs and the state of
random number generators, is set back first (`undo.py`). Where that can't be, or the graph calls code of the program,
what it raises goes straight to the caller.
"""

from __future__ import annotations

import warnings
from types import CodeType
from typing import TYPE_CHECKING

import attrs
import torch

from armature.errors import ArmatureWarning
from armature.frame.data import resume_point
from armature.torch_abi.eval_frame import skip_code
from armature.torch_abi.grad_modes import set_grad_enabled
from armature.trace.emit.rollback import Undo
from armature.trace.recording import graph_calls

if TYPE_CHECKING:
    from armature.trace.frame_state import Trace


@attrs.define(eq=False)
class Again:
    """The frame of `code` in eager mode, after its graph has raised.

    certain: the frame has no handlers, so that eager mode must raise as well; where it does not, the graph's own error
    comes out if `strict` (or if the user's back end made what runs), else there is one warning.
    """

    code: CodeType
    grad: bool
    certain: bool
    strict: bool
    undo: Undo
    said: bool = False

    def own_code(self) -> CodeType:
        """The code that runs: a copy of the frame's code, or what goes on in its place."""
        point = resume_point(self.code)
        return self.code if point is None else point.whole()

    def failed(self, error: BaseException) -> Exception | str | None:
        """Told what the graph has raised. Returns what `finished` is told, or None: the frame does not run again.

        The compiled code holds it, not this object: an error holds frames, and these what is the program's.
        """
        if not isinstance(error, Exception) or not self.undo.is_undone(error):  # KeyboardInterrupt is none
            return None
        set_grad_enabled(self.grad)
        if not self.certain or self.said:
            return ""
        return error if self.strict else f"{type(error).__name__}: {error}"

    def finished(self, result: object, problem: Exception | str) -> object:
        """The frame's result, when eager mode has come to its end. problem: what should have been raised."""
        if isinstance(problem, Exception):
            raise problem
        if not problem:
            return result
        self.said = True
        text = (
            f"the compiled graph of {self.code.co_qualname} raised {problem}\n  Eager mode does not, and has run the "
            "call instead. Please report it with the output of `armature doctor`."
        )
        warnings.warn_explicit(text, ArmatureWarning, self.code.co_filename, self.code.co_firstlineno)
        return result


skip_code(Again.own_code.__code__, below=True)
skip_code(Again.failed.__code__, below=True)
skip_code(Again.finished.__code__, below=True)


def can_run_again(tracer: Trace, undo: Undo) -> bool:
    """Whether a frame may run again when its graph raises: nothing has happened by then that could be seen."""
    return (undo.kept or not undo.happens) and graph_calls.only_computes(tracer)


def run_again(tracer: Trace, code: CodeType, undo: Undo) -> Again:
    """What runs a frame again."""
    copy = code.replace()  # with no compiled code of its own
    skip_code(copy)
    certain = not tracer.has_handlers and not tracer.precalls.calls
    strict = tracer.strict or tracer.ctx.users_backend
    return Again(copy, torch.is_grad_enabled(), certain, strict, undo)
