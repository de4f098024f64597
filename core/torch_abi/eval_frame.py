"""The frame-evaluation hook: torch's C extension calls back for each Python frame and manages the code cache.

The hook is per thread. A callback takes `(frame, cache_entry, frame_state)` and returns a `FrameOutcome`; torch calls
it only if the guards of no cached code of the same backend key hold. The hook is off while the callback runs.
`set_eval_frame` is torch's own function, because it is on the path of every call of a compiled function.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from types import CellType, CodeType
from typing import Any, Protocol, TypeVar, cast

import attrs
import torch

from armature.torch_abi.versions import HASATTR_MAKES_ERRORS

_C: Any = torch._C._dynamo.eval_frame

set_eval_frame: Callable[[Any], Any] = _C.set_eval_frame
"""Install a callback in this thread (None: off); returns the one that was there."""


class InterpreterFrame(Protocol):
    """A frame that is about to run. Valid only during the callback."""

    f_code: CodeType
    f_locals: dict[str, object]
    f_globals: dict[str, object]
    f_builtins: dict[str, object]
    f_lasti: int
    closure: tuple[CellType, ...]


_ACTION = _C._FrameAction
_STRATEGY = _C._FrameExecStrategy

COMPILE: object = _STRATEGY(_ACTION.DEFAULT, _ACTION.DEFAULT)
"""Look in the cache, ask the callback on a miss; the same for frames below."""
COMPILE_ALONE: object = _STRATEGY(_ACTION.DEFAULT, _ACTION.SKIP)
"""The same for this frame; frames below it run with the hook off, also where nothing in the cache fits."""
SKIP: object = _STRATEGY(_ACTION.SKIP, _ACTION.DEFAULT)
"""Run this frame as it is; the callback still sees frames below it."""
SKIP_BELOW: object = _STRATEGY(_ACTION.SKIP, _ACTION.SKIP)
"""Run this frame and all below it with the hook off."""


class Key:
    """A key that a callback files cached code under, its `_torchdynamo_orig_backend`."""

    __slots__ = ()


if HASATTR_MAKES_ERRORS:
    # In every call torch looks for an attribute of the key, which must not be there. The AttributeError with its text
    # takes a seventh of a small call; the KeyError of a dict is cheap.
    _class: Any = Key
    _class.__getattribute__ = {"__class__": Key}.__getitem__


class Life:
    """Dies first when torch drops the code cached for a code object: it is the oldest value of torch's dict for it."""

    __slots__ = ("__weakref__",)


_LIFE = "armature.life"


class GuardHolder:
    """The guards in torch's cache: torch reads `root` and sets the next three attributes.

    When torch.compile compiles a function that armature also compiled, it visits all entries of the code object,
    including ours. The members below `keep_alive` are for that: the class shows that the entry is not torch.compile's,
    and the others give it nothing to do.
    """

    def __init__(self, root: Any) -> None:
        self.root = root
        self.cache_entry: Any = None
        self.extra_state: Any = None
        self.diff_guard_root: Any = None
        self.life: weakref.ref[Life] | None = None  # of the code object's cache; set when the code is cached
        self.keep_alive: list[object] = []  # weak references with their callbacks, objects guarded by id
        self.id_matched_objs: dict[str, object] = {}
        self.invalidation_reason = "compiled by armature"

    def collect_diff_guard_sources(self) -> set[object]:
        """Return nothing: torch.compile has nothing to check first."""
        return set()

    def populate_diff_guard_manager(self) -> None:
        """Do nothing: there is nothing to prepare."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        theirs = sys.modules.get("torch._dynamo.guards")
        found: type = getattr(theirs, "DeletedGuardManagerWrapper", GuardHolder)
        return found


@attrs.define(eq=False)
class GuardedCode:
    """Code and the guards under which it may run."""

    code: CodeType
    guard_manager: GuardHolder
    compile_id: object = None
    trace_annotation: str = "armature"


@attrs.define(eq=False)
class FrameOutcome:
    """The callback's answer: how to run the frame, whether that applies to the code object, and code to cache."""

    frame_exec_strategy: object
    apply_to_code: bool
    guarded_code: GuardedCode | None = None
    skip_reason: str | None = None


def set_code_strategy(code: CodeType, strategy: object) -> None:
    """Set how frames of this code are treated from now on."""
    _C.set_code_exec_strategy(code, strategy)


def skip_code(code: CodeType, *, below: bool = False) -> None:
    """Never intercept frames of this code, nor, with `below`, frames that they call."""
    set_code_strategy(code, SKIP_BELOW if below else SKIP)


def dispatch_modes() -> int:
    """How many torch dispatch modes are active in this thread."""
    return int(torch._C._len_torch_dispatch_stack())


def reset_code(code: CodeType) -> bool:
    """Forget all cached code, strategies and frame state of a code object. False if a callback is looking at it now."""
    if any(code is busy for busy in _in_callback):
        return False  # torch's C code still uses that state when the callback returns
    _C.reset_code(code)
    return True


_in_callback: list[CodeType] = []
"""Code objects whose frames a callback is looking at now, in any thread."""
C = TypeVar("C", bound=Callable[..., Any])


def callback(method: C) -> C:
    """Mark a method as a frame callback: while it runs, `reset_code` leaves the code of its frame alone."""

    @functools.wraps(method)
    def call(self: object, frame: InterpreterFrame, cache_entry: object, frame_state: dict[Any, Any]) -> Any:
        code = frame.f_code
        life = frame_state.setdefault(_LIFE, Life())  # before the method stores anything there
        _in_callback.append(code)
        try:
            outcome = method(self, frame, cache_entry, frame_state)
            if outcome.guarded_code is not None:
                outcome.guarded_code.guard_manager.life = weakref.ref(life)
            return outcome
        finally:
            del _in_callback[next(at for at, busy in enumerate(_in_callback) if busy is code)]

    return cast(C, call)


def framelocals_index(code: CodeType) -> dict[str, int]:
    """The index of each local, cell and free variable for `RootGuardManager.framelocals_manager`."""
    # A name may occur twice (an argument that is also a cell): the later one is the one that is set.
    return {name: index for index, name in enumerate(_C.code_framelocals_names(code))}


def invalidate(holder: GuardHolder, never: Any) -> None:
    """Make cached code unreachable by replacing its guards with `never`. No effect if torch dropped it."""
    # While torch deletes the entries of a code object, one of them may take along an object that another watches.
    # Invalidating that one now would move it within the list being deleted, so that torch skips those after it: their
    # holders would go on pointing to freed memory.
    deleting = holder.life is not None and holder.life() is None
    if holder.extra_state is not None and holder.cache_entry is not None and not deleting:
        entry, state = holder.cache_entry, holder.extra_state
        holder.cache_entry = holder.extra_state = None
        state.invalidate(entry, GuardHolder(never))
    holder.keep_alive.clear()
