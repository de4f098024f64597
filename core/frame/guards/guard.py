"""What a guard is, and the builder that puts guards in torch's C++ tree. Neither knows the kinds of guards."""

from __future__ import annotations

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


class Guard:
    """Base of all kinds: what tracing relied on. They are attrs classes with `user` as the last field.

    `holds_type`: it holds the type of the object at `source`, so that a guard of the type alone is not needed.
    """

    __slots__ = ()
    holds_type: ClassVar[bool] = False

    @property
    def key(self) -> Hashable:
        """Equal for guards of which one is enough: of a kind, at a source."""
        kind: Any = self
        return type(self), kind.source

    @property
    def user(self) -> str:
        """The line of the user's code that made it necessary, "model.py:41"; "" where it is not known."""
        raise NotImplementedError

    def say_where(self, user: str) -> None:
        """Set `user`, once it is known that the guard is needed: finding the line takes time."""
        object.__setattr__(self, "user", user)

    @property
    def words(self) -> str:
        """What must hold, in one line."""
        raise NotImplementedError

    @property
    def text(self) -> str:
        """One line for people, with the user's line at its end where it is known."""
        return f"{self.words}    ({self.user})" if self.user else self.words

    def add(self, tree: TreeBuilder, parts: list[str]) -> None:
        """Put it in the tree. parts: its text, which a failure shows. Errors: those of reading a source."""
        raise NotImplementedError

    @classmethod
    def add_together(cls, tree: TreeBuilder, guards: Sequence[Self]) -> None:
        """At the end: one test for all guards of the kind that were put off (`TreeBuilder.put_off`)."""
        raise NotImplementedError

    @classmethod
    def now(cls, found: Any) -> str:
        """What is at the source of a failed guard now, in the words of its kind."""
        return shown_now(found)

    @property
    def identity(self) -> object:
        """Equal for guards that check the same."""
        kind: Any = type(self)
        facts = [getattr(self, f.name) for f in attrs.fields(kind) if f.name != "user"]
        return (type(self), *(f if issubclass(type(f), Source) else id(f) for f in facts))


class TreeBuilder:
    """The tree of one frame's guards as it grows; the frame is as it was when it was traced."""

    def __init__(self, request: FrameRequest, overridden: bool) -> None:
        self.request = request
        self.overridden = overridden
        self.root = guard_tree.new_root()
        self.holder = GuardHolder(self.root)
        self.reach = Reach(self.root, request)
        self.conditions: list[tuple[str, Condition]] = []  # texts and tests of those that are one test in the tree
        self._watched: set[int] = set()
        self._put_off: dict[type[Guard], list[Any]] = {}

    def manager(self, source: Source) -> Manager:
        """The node of the object at a source."""
        return self.reach.manager(source)

    def value(self, source: Source) -> Any:
        """The object at a source. Errors: whatever reading it raises."""
        return self.reach.resolver.value(source)

    def lasts(self, source: Source) -> bool:
        """Whether a source gives one object however often it is read. Errors: whatever reading it raises."""
        return self.value(source) is Resolver(self.request).value(source)

    def add_last(self, test: Callable[[dict[str, Any]], bool], parts: list[str]) -> None:
        """A test over the dict of the frame's locals, run after those of the nodes."""
        self.root.add_epilogue_lambda_guard(test, parts, None)

    def put_off(self, guard: Guard) -> None:
        """Leave a guard to `add_together` of its kind."""
        self._put_off.setdefault(type(guard), []).append(guard)

    def finish(self) -> None:
        """Add what was put off, one test a kind."""
        for kind, guards in self._put_off.items():
            kind.add_together(self, guards)

    def quiet(self, test: Callable[[Any], bool]) -> Callable[[Any], bool]:
        """A test of tensors that no `__torch_function__` is to hear of."""
        return overrides.quietly(test) if self.overridden else test

    def watch(self, obj: object) -> None:
        """Drop the cached code when the object dies, before another one can take its address."""
        if id(obj) in self._watched:
            return
        self._watched.add(id(obj))
        if is_immortal(obj):
            self.holder.keep_alive.append(obj)
            return
        holder = weakref.ref(self.holder)

        def died(_: object, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
            held = holder()  # at the very end of the process, globals are gone
            if held is not None and not is_finalizing():
                eval_frame.invalidate(held, guard_tree.never())

        try:
            self.holder.keep_alive.append(weakref.ref(obj, died))
        except TypeError:
            self.holder.keep_alive.append(obj)
