"""The state of one code object: the code compiled for it so far, and why its guards fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import CodeType
from typing import Any, cast
from weakref import ref

import attrs
import torch
from torch import nn

from armature.frame.data import FrameRequest, ResumeTable
from armature.frame.guards.explain import Mismatch, failed
from armature.frame.guards.tree import GuardTree
from armature.frame.history import History
from armature.frame.idle import Idle
from armature.frame.source import Resolver
from armature.torch_abi.overrides import without_overrides

STATE_KEY = "armature"  # in torch's dict for each code object


@attrs.define(eq=False)
class Entry:
    """Compiled code under a backend key."""

    key: object
    tree: GuardTree
    eager: bool = False  # the frame's own code, unchanged, because it can't be compiled for such arguments
    idle: Idle | None = None  # the frame's own code, because there is nothing to compile for such arguments
    owner: object = None  # the hook that asked for it
    module: ref[nn.Module] | None = None  # whose method the code is
    computes: bool = True  # whether it may compute something with tensors

    @property
    def alive(self) -> bool:
        """False once an object that it relied on is gone."""
        return self.tree.holder.cache_entry is not None


@attrs.define(eq=False)
class CodeState:
    """Stored by torch with the code object; dropped when the code object goes or is reset."""

    entries: list[Entry] = attrs.field(factory=list)
    idle: Counter[object] = attrs.field(factory=Counter)  # calls with nothing to compile, by backend key
    inspections: Counter[object] = attrs.field(factory=Counter)  # frames inspected instead of traced
    # backend keys and hooks for which frames without cached code run eagerly
    eager_keys: set[object] = attrs.field(factory=set)
    limit_reported: bool = False
    _histories: dict[object, History] = attrs.field(factory=dict)
    _of_modules: dict[int, tuple[ref[nn.Module], History]] = attrs.field(factory=dict)
    visits_callees: bool = False  # whether the hook must see the frames that this code's frames call
    resumes: ResumeTable = attrs.field(factory=ResumeTable)

    def entries_of(self, key: object) -> list[Entry]:
        """The live entries of a backend key, oldest first."""
        self.entries = [entry for entry in self.entries if entry.alive]
        return [entry for entry in self.entries if entry.key is key]

    @property
    def compiled(self) -> bool:
        """Whether there is code other than the frame's own, whatever the backend."""
        return any(not entry.eager and entry.idle is None for entry in self.entries)

    def history(self, key: object, module: nn.Module | None) -> History:
        """The remembered inputs under a backend key; for a method of modules, of each module separately."""
        if module is None:
            return self._histories.setdefault(key, History())
        known = self._of_modules.get(id(module))
        if known is None or known[0]() is not module:
            known = self._of_modules[id(module)] = (ref(module), History())
        return known[1]


def state_of(frame_state: dict[Any, Any]) -> CodeState:
    """The state in torch's dict, created if missing."""
    found = frame_state.get(STATE_KEY)
    if not isinstance(found, CodeState):
        found = frame_state[STATE_KEY] = CodeState()
    return found


def failures(entries: list[Entry], f_locals: Mapping[str, object]) -> tuple[Mismatch, ...]:
    """Per entry, the guards that fail now; entries whose guards all hold are left out."""
    found = (Mismatch(entry.tree, failed(entry.tree, dict(f_locals))) for entry in entries)
    return tuple(mismatch for mismatch in found if mismatch.texts)


def module_of(code: CodeType, variables: Mapping[str, object]) -> nn.Module | None:
    """The module whose method a frame runs; None for frames of functions."""
    first = variables.get(code.co_varnames[0]) if code.co_varnames else None
    return cast(nn.Module, first) if issubclass(type(first), nn.Module) else None


def modules_of(entries: list[Entry]) -> int:
    """How many modules that still exist the entries were compiled for."""
    found = [entry.module() for entry in entries if entry.module is not None]
    return len({id(module) for module in found if module is not None})


def for_the_same_module(entries: list[Entry], request: FrameRequest) -> list[Entry]:
    """The entries without those that were compiled for other modules than the frame's: they say nothing about how its
    inputs change."""
    module = module_of(request.code, request.locals)
    return [entry for entry in entries if entry.module is None or (made := entry.module()) is None or made is module]


@without_overrides
def changing_sizes(entries: list[Entry], request: FrameRequest) -> tuple[str, ...]:
    """The `mark_dynamic` calls for sizes that compiled code treats as constants and that have changed since."""
    resolver = Resolver(request)
    found: dict[str, None] = {}
    for source, sizes in (pair for entry in entries for pair in entry.tree.sizes):
        try:
            value = resolver.value(source)
        except Exception:  # whatever the program's own code raises: the object is not there now
            continue
        if isinstance(value, torch.Tensor) and value.dim() == len(sizes):
            changed = (axis for axis, size in enumerate(sizes) if size not in (None, value.shape[axis]))
            found |= {f"armature.mark_dynamic({source.expr}, {axis})": None for axis in changed}
    return tuple(found)
