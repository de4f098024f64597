"""Resolves names and constants of code: globals, builtins, the constants of code objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import attrs

from armature.frame.sources import GlobalSource, ItemSource, ObjectSource
from armature.trace.base import Effects, FrameView, Objects, Value
from armature.trace.trust import trusted_module
from armature.trace.values.mapping import DictValue

if TYPE_CHECKING:
    from armature.trace.guards import GuardRecorder


@attrs.define(eq=False)
class Names:
    """The globals and constants read so far. of_constant, raise_error, graph_break: verbs of `Tracing`."""

    objects: Objects
    guards: GuardRecorder
    effects: Effects
    of_constant: Callable[[object], Value]
    raise_error: Callable[[type[BaseException], str], NoReturn]
    graph_break: Callable[[str], NoReturn]
    _globals: dict[tuple[int, str], Value] = attrs.field(factory=dict)
    _constants: dict[int, tuple[object, Value]] = attrs.field(factory=dict)

    def load_global(self, frame: FrameView, name: str) -> Value:
        """The value of a global or builtin that a frame names."""
        key = (id(frame.namespace), name)
        if self.effects.globals_:
            stored = self.effects.global_of(frame.namespace, name)
            if stored is not None:
                return stored[1] or self._builtin(frame, name)
        if key not in self._globals:
            self._globals[key] = self._wrap_global(frame, name)
        return self._globals[key]

    def constant(self, obj: object) -> Value:
        """The value of a constant of a code object; one object always has one value."""
        held = self._constants.get(id(obj))
        if held is None:
            held = self._constants[id(obj)] = (obj, self.of_constant(obj))
        return held[1]

    def store(self, namespace: dict[str, object], name: str, value: Value | None) -> None:
        """Set a variable of a module, or delete it if the value is None."""
        held = self.objects.by_id.get(id(namespace))
        if held is not None and isinstance(held[1], DictValue):  # the frame also has them as a dict
            if value is None or name not in namespace:
                self.graph_break("changes-globals")
            held[1].entries[name] = (self.of_constant(name), value)
        self.effects.store_global(namespace, name, value)

    def _wrap_global(self, frame: FrameView, name: str) -> Value:
        namespace = frame.namespace
        if name not in namespace:
            if not frame.trusted:
                source = frame.globals_source or ObjectSource(namespace, "globals()")
                self.guards.absent(source, name)
            return self._builtin(frame, name)
        obj = namespace[name]
        if frame.trusted or trusted_module(str(namespace.get("__name__", ""))):
            return self.objects.wrap(obj, ObjectSource(obj, f"{namespace.get('__name__')}.{name}"))
        if frame.globals_source is None:
            return self.objects.wrap(obj, GlobalSource(name))
        return self.objects.wrap(obj, ItemSource(frame.globals_source, name))

    def _builtin(self, frame: FrameView, name: str) -> Value:
        source = self.guards.builtin(frame.builtins, name)
        if source is None:
            self.raise_error(NameError, f"name '{name}' is not defined")
        return self.objects.wrap(frame.builtins[name], source)
