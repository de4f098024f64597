"""When a compiled graph raises, the frame runs again in eager mode. The program then sees the error as if nothing had
been compiled: at its line, with the changes made before it, in its own handlers.

This is sound because deferred changes are made after the graph has run. The graph's own changes are undone first.
Torch's state is always restored. Memory of inputs and random number states are copied if they are small: before the
first call, which shows whether every operator has a kernel, and before each call if an operator may raise because of
values; within a `try`, of any size. Otherwise, or if the graph calls code of the program, its error goes straight to
the caller.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any

import attrs
import torch
from torch import fx

from armature.errors import ArmatureWarning
from armature.frame.data import resume_point
from armature.torch_abi.altering import History, Snapshot, history_of, memory_of, restore, snapshot
from armature.torch_abi.eval_frame import skip_code
from armature.torch_abi.fake import set_versions, version_of
from armature.torch_abi.grad_modes import Switch, set_grad_enabled
from armature.torch_abi.symbols import is_unbacked

Leave = Callable[[Any], Any]  # leaves a context, which it is given
MOST_BYTES = 1 << 20  # limit for memory that is copied before each call
MOST_BYTES_ONCE = 1 << 26  # limit before the first call


@attrs.frozen(eq=False)
class SavedState:
    """The state before a graph runs. memory: storages that it writes to, with copies; None: not saved."""

    states: tuple[Any, ...]
    memory: tuple[tuple[torch.UntypedStorage, torch.UntypedStorage], ...] | None = None
    tensors: tuple[torch.Tensor, ...] = ()
    versions: tuple[int, ...] = ()
    layouts: tuple[Any, ...] = ()
    generator: torch.Tensor | None = None
    altered: tuple[Snapshot, ...] = ()
    histories: tuple[History | None, ...] = ()


@attrs.define(eq=False)
class Undo:
    """What to save before each call of a graph, and to restore if it raises.

    states: torch state that the graph itself changes. entered: names of nodes that enter a context, with the
    functions that leave it. written: positions of the inputs whose memory changes. recorded: those whose change
    autograd may record. lasting: whether one of these changes can't be undone; then the graph can only rerun if it
    raises before that change. altered: positions of inputs that become other tensors. draws: whether the graph draws
    random numbers.

    saves: whether all of this is saved before each call until one call has not raised (`proven`). always: it is saved
    before later calls too. handled: it is saved however large it is, because a `try` of the program may handle the
    error. repeats: no memory is saved, because eager mode sets the same items again (`sets_unread_items`).
    """

    states: tuple[Switch, ...] = ()
    entered: tuple[tuple[str, Leave], ...] = ()
    written: tuple[int, ...] = ()
    recorded: tuple[int, ...] = ()
    lasting: bool = False
    altered: tuple[int, ...] = ()
    draws: bool = False
    saves: bool = False
    always: bool = False
    handled: bool = False
    repeats: bool = False
    proven: bool = False
    _unrestored: set[int] = attrs.field(factory=set)  # ids of errors after which memory could not be restored

    @property
    def has_effects(self) -> bool:
        """Whether the graph has effects that the program can see before it ends."""
        return self.draws or bool(self.written) or bool(self.altered)

    @property
    def saves_next(self) -> bool:
        """Whether the effects of the next call are saved before it."""
        return self.saves and (self.always or not self.proven)

    def wrap(self, run: Callable[..., Any], code: CodeType | None) -> Callable[..., Any]:
        """Wrap a graph's callable to undo its effects when it raises. code: the captured graph's, if that is what
        runs."""
        states = self.states if code is not None else ()
        if not states and not self.saves and (code is None or not self.entered):
            return run

        once = not (self.always or states or (code is not None and self.entered))

        def undoing(*args: Any) -> Any:
            if once and self.proven:
                return run(*args)
            before = self.save(states, args)
            try:
                result = run(*args)
            except BaseException as error:
                if code is not None:
                    leave_contexts(error, code, self.entered)
                self.restore(states, before, error)
                raise
            self.proven = True
            return result

        return undoing

    def save(self, states: tuple[Switch, ...], args: tuple[Any, ...]) -> SavedState:
        """Save what the graph may change."""
        known = tuple(switch.read() for switch in states)
        if not self.saves_next:
            return SavedState(known)
        tensors = tuple(args[position] for position in self.written)
        copied = () if self.repeats else tensors
        storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in copied}
        limit = MOST_BYTES if self.proven else MOST_BYTES_ONCE
        if not self.handled and sum(storage.nbytes() for storage in storages.values()) > limit:
            return SavedState(known)
        return SavedState(
            known,
            tuple((storage, storage.clone()) for storage in storages.values()),
            tensors,
            tuple(map(version_of, tensors)),
            tuple(map(_layout, tensors)),
            torch.get_rng_state() if self.draws else None,
            snapshot(args[position] for position in self.altered),
            tuple(history_of(args[position]) for position in self.recorded),
        )

    def restore(self, states: tuple[Switch, ...], before: SavedState, error: BaseException) -> None:
        """Restore what was saved."""
        for switch, known in reversed([*zip(states, before.states)]):  # the last change is undone first
            switch.restore(known)
        if not self.saves:
            return
        restore(before.altered)
        if before.memory is None or tuple(map(_layout, before.tensors)) != before.layouts or self._is_lasting(before):
            self._unrestored.add(id(error))
            return
        for storage, copy in before.memory:
            storage.copy_(copy)
        for history in before.histories:
            if history is not None:
                history.restore()
        set_versions(before.tensors, before.versions)
        if before.generator is not None:
            torch.set_rng_state(before.generator)

    def _is_lasting(self, before: SavedState) -> bool:
        """Whether autograd recorded a change, made by the graph by then, that can't be undone."""
        held = dict(zip(self.recorded, before.histories))
        then = zip(self.written, before.tensors, before.versions)
        return any(
            version_of(tensor) != version for n, tensor, version in then if n in held and (self.lasting or not held[n])
        )

    def is_undone(self, error: BaseException) -> bool:
        """Called once, after an error of the graph: whether everything was restored."""
        if not self.has_effects:
            return True
        if not self.saves_next or id(error) in self._unrestored:
            self._unrestored.discard(id(error))
            return False
        return True


def leave_contexts(error: BaseException, code: CodeType, entered: Iterable[tuple[str, Leave]]) -> None:
    """Leave the contexts that a graph has entered, which raised; the failed graph's frame holds them."""
    for frame in reversed(list(_frames(error.__traceback__))):
        if frame.f_code.co_code == code.co_code and frame.f_code.co_varnames == code.co_varnames:
            for name, leave in reversed([*entered]):
                opened = frame.f_locals.get(name)
                if opened is not None:
                    leave(opened)


def is_small(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether the memory of fakes is copied before each call; what this asks of symbolic sizes becomes a guard."""
    sizes = {(memory := memory_of(one))._cdata: memory.nbytes() for one in tensors if one.layout is torch.strided}
    return not any(map(is_unbacked, sizes.values())) and bool(sum(sizes.values()) <= MOST_BYTES)


def sets_unread_items(
    node: fx.Node, target: fx.Node | None, memory: torch.Tensor, others: Iterable[torch.Tensor]
) -> bool:
    """Whether a node sets items of an input that nothing before it reads. If it raises, items that it has set by then
    are those that eager mode sets when it runs the node again. memory, others: the fakes of this and of all inputs."""
    if target is None or node.target is not operator.setitem or node.args[0] is not target or node.args[2] is target:
        return False
    if memory.layout is not torch.strided or [*target.users] != [node]:
        return False
    mine = memory_of(memory)._cdata
    return [one.layout is torch.strided and memory_of(one)._cdata == mine for one in others].count(True) == 1


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.untyped_storage()._cdata, tensor.shape, tensor.stride(), tensor.storage_offset()


def _frames(trace: TracebackType | None) -> Iterator[FrameType]:
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


@attrs.define(eq=False)
class Rerun:
    """Runs the frame of `code` in eager mode after its graph has raised.

    certain: the frame has no exception handlers, so eager mode must raise too. If it does not, `strict` (or a graph
    made by the user's back end) raises the graph's own error; otherwise one warning is given.
    """

    code: CodeType
    grad: bool
    certain: bool
    strict: bool
    undo: Undo
    warned: bool = False

    @classmethod
    def of(cls, code: CodeType, undo: Undo, certain: bool, strict: bool) -> Rerun:
        """The object that reruns frames of a code object."""
        copy = code.replace()  # a copy has no compiled code attached
        skip_code(copy)
        return cls(copy, torch.is_grad_enabled(), certain, strict, undo)

    def own_code(self) -> CodeType:
        """The code to run: a copy of the frame's code, or the rest of it for a resumed frame."""
        point = resume_point(self.code)
        return self.code if point is None else point.eager_code()

    def failed(self, error: BaseException) -> Exception | str | None:
        """Handle the graph's error. Returns the argument for `finished`, or None if the frame does not run again.

        The compiled code holds that argument, not this object, because an error refers to frames, and these to the
        program's objects.
        """
        if not isinstance(error, Exception) or not self.undo.is_undone(error):  # KeyboardInterrupt is no Exception
            return None
        set_grad_enabled(self.grad)
        if not self.certain or self.warned:
            return ""
        return error if self.strict else f"{type(error).__name__}: {error}"

    def finished(self, result: object, problem: Exception | str) -> object:
        """Return the frame's result when eager mode has finished without an error. problem: the error that it should
        have raised."""
        if isinstance(problem, Exception):
            try:
                raise problem
            finally:
                del problem  # its traceback would otherwise refer to itself
        if not problem:
            return result
        self.warned = True
        text = (
            f"the compiled graph of {self.code.co_qualname} raised {problem}\n  Eager mode does not, and has run the "
            "call instead. Please report it with the output of `armature doctor`."
        )
        warnings.warn_explicit(text, ArmatureWarning, self.code.co_filename, self.code.co_firstlineno)
        return result


skip_code(Rerun.own_code.__code__, below=True)
skip_code(Rerun.failed.__code__, below=True)
skip_code(Rerun.finished.__code__, below=True)
