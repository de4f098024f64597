"""The base class of guards, and the builder of torch's C++ guard tree. Neither knows the kinds of guards."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar, Self

import attrs

from armature.frame.data import FrameRequest
from armature.frame.guards.text import shown_now
from armature.frame.source import Reach, Resolver, Source
from armature.introspection import is_immortal
from armature.torch_abi import eval_frame, guard_tree, overrides
from armature.torch_abi.eval_frame import GuardHolder
from armature.torch_abi.guard_tree import Manager

Condition = Callable[[dict[str, Any]], bool]


@attrs.frozen
class Quantity:
    """A number that a symbol represents: the int at `source`, or a size or stride along `axis` of the tensor there."""

    source: Source
    axis: int = -1
    stride: bool = False

    def read(self, base: str) -> str:
        """Python code that reads it; `base` is the code of the source."""
        if self.axis < 0:
            return base
        return f"{base}.{'stride' if self.stride else 'size'}({self.axis})"

    @property
    def expr(self) -> str:
        """The expression shown to users."""
        return self.read(self.source.expr)

    def value(self, frame: Resolver) -> object:
        """The number itself."""
        found: Any = frame.value(self.source)
        if self.axis < 0:
            return found
        return found.stride(self.axis) if self.stride else found.size(self.axis)


class Guard:
    """Base class of all kinds of guards: facts that tracing relied on. They are attrs classes with `user` as the last
    field.

    What the rest of the compiler asks of a guard is a property or method here, which the kinds that it concerns
    override: no other module asks for a guard's kind.

    `holds_type`: it implies the type of the object at `source`, so that no separate type guard is needed; `only_type`:
    it is such a guard. `only_for_graphs`: frames without a graph don't need it. `identical`: the guarded `objects` are
    one object; else each is another.
    """

    __slots__ = ()
    holds_type: ClassVar[bool] = False
    only_type: ClassVar[bool] = False
    only_for_graphs: ClassVar[bool] = False
    identical: ClassVar[bool] = False

    @property
    def source(self) -> Source | None:
        """Where the guarded object is; None if the guard concerns several, or none."""
        return None

    @property
    def numbers(self) -> tuple[Quantity, ...]:
        """The numbers that a condition compares."""
        return ()

    @property
    def objects(self) -> tuple[Source, ...]:
        """The objects whose identity it compares."""
        return ()

    @property
    def sizes(self) -> tuple[int | None, ...] | None:
        """The sizes of the tensor at `source`, None for those that it doesn't check; None if it checks no tensor."""
        return None

    @property
    def fixes_layout(self) -> bool:
        """Whether it checks all sizes and strides of a tensor."""
        return False

    @property
    def overlapping(self) -> tuple[tuple[int, int, int], ...]:
        """Tensors that share memory with one that changes: their positions, and their distance in bytes."""
        return ()

    @property
    def of_subclass(self) -> bool:
        """Whether it checks a tensor of a subclass, whose overrides must not run."""
        return False

    @property
    def key(self) -> Hashable:
        """Equal for guards that make each other redundant: of one kind, at one source."""
        return self.identity if self.source is None else (type(self), self.source)

    def join(self, other: Self) -> None:
        """Check also what `other`, of the same key, checks. Most kinds check it already."""

    def of_type(self) -> Guard | None:
        """The guard on the types of what it checks; None if it is about no single object.

        Only `type` is applied to values: `isinstance`, and so a class pattern, reads `__class__` of the program's
        objects, which may run its code.
        """
        return None

    @property
    def user(self) -> str:
        """The line of the user's code that needs it, "model.py:41"; "" if it is not known."""
        raise NotImplementedError

    def set_user(self, user: str) -> None:
        """Set `user`. Called only once the guard is known to be needed, because finding the line takes time."""
        object.__setattr__(self, "user", user)

    @property
    def words(self) -> str:
        """The condition, in one line."""
        raise NotImplementedError

    @property
    def text(self) -> str:
        """One line for people, ending with the user's line if it is known."""
        return f"{self.words}    ({self.user})" if self.user else self.words

    def add(self, tree: TreeBuilder, parts: list[str]) -> None:
        """Add the guard to the tree. parts: its text, reported on failure. Errors: those of reading a source."""
        raise NotImplementedError

    @classmethod
    def add_deferred(cls, tree: TreeBuilder, guards: Sequence[Self]) -> None:
        """Called at the end: add one test for all guards of the kind that were deferred (`TreeBuilder.defer`)."""
        raise NotImplementedError

    @classmethod
    def is_told_by(cls, message: str, expr: str) -> bool:
        """Whether a message that torch words itself is about a guard of this kind. expr: that of its source, or ""."""
        return False

    @classmethod
    def now(cls, found: Any) -> str:
        """The text of the current value at the source of a failed guard."""
        return shown_now(found)

    @property
    def identity(self) -> object:
        """Equal for guards that check the same."""
        kind: Any = type(self)
        facts = [getattr(self, name) for name in checked_fields(kind)]
        return (kind, *(f if issubclass(type(f), Source) else id(f) for f in facts))


@functools.cache
def checked_fields(kind: Any) -> tuple[str, ...]:
    """The fields of a kind of guard that say what it checks."""
    return tuple(one.name for one in attrs.fields(kind) if one.name != "user")


class TreeBuilder:
    """The guard tree of one frame while it is built; the frame is in the state in which it was traced."""

    def __init__(self, request: FrameRequest, overridden: bool) -> None:
        self.request = request
        self.overridden = overridden
        self.root = guard_tree.new_root()
        self.holder = GuardHolder(self.root)
        self.reach = Reach(self.root, request)
        self.conditions: list[tuple[str, Condition]] = []  # texts and tests of conditions that the tree checks as one
        self._watched: set[int] = set()
        self._deferred: dict[type[Guard], list[Any]] = {}

    def manager(self, source: Source) -> Manager:
        """The tree's node for the object at a source."""
        return self.reach.manager(source)

    def value(self, source: Source) -> Any:
        """The object at a source. Errors: whatever reading it raises."""
        return self.reach.resolver.value(source)

    def is_permanent(self, source: Source) -> bool:
        """Whether a source yields the same object each time it is read, not a new one. Errors: whatever reading it
        raises."""
        return self.value(source) is Resolver(self.request).value(source)

    def add_last(self, test: Callable[[dict[str, Any]], bool], parts: list[str]) -> None:
        """Add a test over the dict of the frame's locals, run after all nodes' guards."""
        self.root.add_epilogue_lambda_guard(test, parts, None)

    def defer(self, guard: Guard) -> None:
        """Defer a guard to `add_deferred` of its kind."""
        self._deferred.setdefault(type(guard), []).append(guard)

    def finish(self) -> None:
        """Add the deferred guards, one test per kind."""
        for kind, guards in self._deferred.items():
            kind.add_deferred(self, guards)

    def without_overrides(self, test: Callable[[Any], bool]) -> Callable[[Any], bool]:
        """A test of tensors that does not trigger `__torch_function__`."""
        return overrides.without_overrides(test) if self.overridden else test

    def watch(self, obj: object) -> None:
        """Drop the cached code when the object dies, before another object can reuse its address."""
        if id(obj) in self._watched:
            return
        self._watched.add(id(obj))
        if is_immortal(obj):
            self.holder.keep_alive.append(obj)
            return
        holder = weakref.ref(self.holder)

        def died(_: object, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
            held = holder()  # globals are gone when the process exits
            if held is not None and not is_finalizing():
                eval_frame.invalidate(held, guard_tree.never())

        try:
            self.holder.keep_alive.append(weakref.ref(obj, died))
        except TypeError:
            self.holder.keep_alive.append(obj)
