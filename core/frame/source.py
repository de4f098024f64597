"""Sources: paths from the frame that is compiled to values, and their readers.

A source has four readers: `Resolver` (finds the object in a frame about to run), `Expressions` (Python text that reads
it, for guards written in Python), `Reach` (its node in torch's C++ guard tree) and a `Loader` (code that pushes it).
None of them knows the kinds of sources: each kind, in `frame/sources.py`, has a method for each reader, and `expr`, the
expression that users see.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import attrs

from armature.errors import InvariantError
from armature.frame.data import FrameRequest
from armature.torch_abi.eval_frame import framelocals_index
from armature.torch_abi.guard_tree import Manager, Root


@attrs.frozen
class Source:
    """Base class of all kinds.

    loaded_at_once: one instruction pushes the object, so that code need not store it. is_fixed: it is always the same
    object. is_computed: a number that Python computes from others. of_call: what is below an argument of the call, if
    only items lead there, and not read from a module or the function.
    """

    loaded_at_once: ClassVar[bool] = False
    is_fixed: ClassVar[bool] = False
    is_computed: ClassVar[bool] = False
    of_call: ClassVar[bool] = True

    @property
    def expr(self) -> str:
        """The Python expression shown to users."""
        raise self._cannot("shown")

    def read(self, frame: Resolver) -> Any:
        """The object there. Errors: whatever reading it raises."""
        raise self._cannot("read in a frame")

    def text(self, texts: Expressions) -> str:
        """The Python expression over `L`, the dict of the frame's locals."""
        raise self._cannot("written as text")

    def manager(self, reach: Reach) -> Manager:
        """The guard tree's node, below that of the base source; getting there runs no code of the program."""
        raise self._cannot("guarded")

    def load(self, out: Loader) -> None:
        """Push the object in the code that replaces the frame's."""
        raise self._cannot("loaded")

    def _cannot(self, done: str) -> InvariantError:
        return InvariantError(what=f"this kind of source is never {done}", details=type(self).__name__)


class Resolver:
    """Objects at sources of one frame, each read once."""

    def __init__(self, request: FrameRequest) -> None:
        self.request = request
        self._values: dict[Source, object] = {}

    def value(self, source: Source) -> Any:
        """The object at the source. Errors: whatever reading it raises."""
        if source not in self._values:
            self._values[source] = source.read(self)
        return self._values[source]


class Expressions:
    """Python text over `L`, the dict of the frame's locals; objects that text can't name are in `namespace`."""

    def __init__(self, request: FrameRequest) -> None:
        self.namespace: dict[str, Any] = {
            "G": request.globals,
            "max": max,
            "min": min,
            "abs": abs,
        }

    def of(self, source: Source) -> str:
        """The expression that reads the object at the source."""
        return source.text(self)

    def name(self, obj: object) -> str:
        """A name bound to the object in `namespace`."""
        name = f"k{len(self.namespace)}"
        self.namespace[name] = obj
        return name


class Reach:
    """Guard managers for the sources of one frame, each made once.

    Globals, builtins and objects that no path leads to are entries of one constant dict below the root, which C++ reads
    without entering Python.
    """

    def __init__(self, root: Root, request: FrameRequest) -> None:
        self.root = root
        self.request = request
        self.resolver = Resolver(request)
        self.indices = framelocals_index(request.code)
        self._managers: dict[Source, Manager] = {}
        self._roots: dict[object, object] = {}
        self._anchor: Manager | None = None
        self._anchored: dict[object, Manager] = {}

    def manager(self, source: Source) -> Manager:
        """The manager of the object at the source."""
        if source not in self._managers:
            self._managers[source] = source.manager(self)
        return self._managers[source]

    def anchored(self, key: object, held: object, label: str) -> Manager:
        """The manager of an entry of the constant dict, which holds an object under a key."""
        if key not in self._anchored:
            self._roots[key] = held
            if self._anchor is None:
                self._anchor = self.root.globals_dict_manager(self._roots, "constants", None, None)
            self._anchored[key] = self._anchor.dict_getitem_manager(key, label, None, None)
        return self._anchored[key]

    def globals(self) -> Manager:
        """The manager of the frame's globals."""
        return self.anchored("globals", self.request.globals, "globals()")


class Loader(Protocol):
    """The writer of the code that replaces a frame's, as sources see it."""

    def asks(self, source: Source) -> bool:
        """Whether the class of the object at a source overrides attribute lookup, so that reading an attribute runs its
        code."""

    def load_source(self, source: Source) -> None:
        """Push the object at another source."""

    def load_precall(self, source: Any) -> None:
        """Push the result of a call made before the graph."""

    def variable(self, name: str) -> Any:
        """A variable of the frame as an operand: a name, or a cell."""

    def emit(self, name: str, *arg: Any) -> None:
        """Add an instruction."""

    def constant(self, obj: object) -> None:
        """Push an object that the code holds as a constant."""

    def null_function(self, fn: Callable[..., Any]) -> None:
        """Push a function, ready to be called."""

    def function(self, load: Callable[[], None]) -> None:
        """Push what `load` pushes, ready to be called."""

    def call(self, count: int) -> None:
        """Call with this many positional arguments."""

    def attribute(self, name: str) -> None:
        """Replace the object on the stack by its attribute."""
