"""Parts of a trace as the modules below them see them.

Values need these, and these need values: so they are told what a value (V), a write (W) and the trace (T) is. The names
to use, which say that, stand in `values/base.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

if TYPE_CHECKING:
    from torch import fx

    from armature.frame.sources import Source
    from armature.torch_abi.overrides import Off
    from armature.torch_abi.symbols import Symbols
    from armature.trace.instructions import Instruction

V = TypeVar("V")
W = TypeVar("W")
T_contra = TypeVar("T_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)


class FrameView(Protocol[V]):
    """A frame being traced, as values and handlers see it.

    position: of the instruction that runs next. ordinal, rounds: its number in the trace, and how often it jumped back.
    trusted: it runs code of a library of which globals are not guarded. callee: what its last call instruction called.
    lazy: arguments that were not read yet, and where they are. globals_source: None for those of the frame being
    compiled.
    """

    code: CodeType
    namespace: dict[str, object]
    builtins: Mapping[str, object]
    position: int
    ordinal: int
    rounds: int
    trusted: bool
    callee: V | None
    globals_source: Source | None
    variables: dict[str, V]
    lazy: dict[str, tuple[object, Source]]
    stack: list[V]
    instructions: tuple[Instruction, ...]

    @property
    def cells(self) -> Mapping[str, V]:
        """The cells of the variables that it shares with other functions."""

    @property
    def own_cells(self) -> Mapping[str, V]:
        """The cells with which it began; a comprehension may put others in their place for a while."""

    @property
    def handling(self) -> Sequence[Any]:
        """The exceptions that its `except` and `finally` blocks are at work on, the innermost last."""

    @property
    def line(self) -> int:
        """The line of the instruction that runs, or ran last."""


class OverridingNow(Protocol[V, W, T_contra]):
    """Who overrides torch's functions at this point (`__torch_function__`).

    present: whether anybody may, so that calls have to be looked at. wrappers: whether tensors were met that hold
    others, and take over operators. modes: those entered, the innermost last. off: what `DisableTorchFunction` has
    switched off.
    """

    modes: list[V]
    off: Off
    present: bool
    wrappers: bool

    @property
    def moved(self) -> bool:
        """Whether torch's stack of modes is another one than when the frame began."""

    @property
    def asks_modes(self) -> bool:
        """Whether a mode is asked before each call."""

    def asks(self, value: V) -> bool:
        """Whether the class of an object is asked when that is given to torch's functions."""

    def may_ask(self, values: list[V]) -> bool:
        """Whether anybody is asked when torch is called with these values, or lists of them."""

    def accept(self, tracer: T_contra, kind: type) -> None:
        """Break the graph unless tensors of a class can be traced."""

    def push(self, tracer: T_contra, mode: V) -> None:
        """A mode is entered."""

    def pop(self, tracer: T_contra) -> V:
        """The innermost mode is left."""

    def writes(self, out: Any) -> list[W]:
        """The calls that bring torch's stack of modes to where it is."""


class SymbolicSizes(Protocol[T_co]):
    """Numbers of the program that are symbols."""

    def changing(self, number: float, source: Source, inside: Source | None = None) -> Callable[[], T_co] | None:
        """What makes the value of an int or float of the program that is another one from call to call; None: it is to
        be a constant. inside: where the number itself is read, if the object at `source` holds it."""

    @property
    def symbols(self) -> Symbols:
        """torch's side of it."""

    def bind_result(self, result: Any, node: fx.Node) -> None:
        """Note which symbols come with the result of a node of the graph."""

    def computes(self, nodes: Collection[fx.Node]) -> bool:
        """Whether one of the nodes computes a symbol that only a run will tell."""

    def forget(self, nodes: Collection[fx.Node]) -> None:
        """The nodes leave the graph."""

    def argument(self, number: Any) -> Any:
        """What stands for a symbolic number among the arguments of an FX node."""

    def decide(self, condition: Any) -> bool:
        """Whether a condition on symbols holds; guarded."""

    def assume(self, condition: Any, message: str) -> bool:
        """The condition holds, or the graph raises with this message. False: it can't be asked for in the graph."""


class PythonVerbs(Protocol[V]):
    """What Python does with values: operators, comparison, iteration, text and the lookup of attributes."""

    def takes(self, fn: object, positional: int, names: Iterable[str]) -> bool:
        """Whether a function takes so many arguments, and keywords of these names; True where nobody tells."""

    def iterator(self, value: V) -> V:
        """`iter(value)`."""

    def reversed_iterator(self, value: V) -> V:
        """`reversed(value)`."""

    def taken(self, value: V) -> Iterator[V]:
        """The items of an iterable, of which Python makes a list or tuple."""

    def in_sequence(self, value: V, refusal: str) -> list[V]:
        """The items of a list or tuple, or of a list that Python makes of an iterator; `refusal`: of what is none."""

    def index(self, value: V) -> V:
        """`operator.index(value)` of an object that has `__index__`; any other value as it is."""

    def operate(self, name: str, left: V, right: V) -> V:
        """`left <op> right`."""

    def by_methods(self, name: str, reflected: str, left: V, right: V) -> V | None:
        """A binary operator by two methods of its operands, in the language's order; None: neither knows."""

    def operate_unary(self, name: str, value: V) -> V:
        """`-value` and the like."""

    def operate_in_place(self, name: str, left: V, right: V) -> V:
        """`left <op>= right`."""

    def compare(self, op: str, left: V, right: V) -> V:
        """A comparison."""

    def same_or_equal(self, left: V, right: V) -> bool:
        """How containers compare members."""

    def identical(self, left: V, right: V) -> bool:
        """`left is right`."""

    def builtin(self, fn: Callable[..., object], *args: V) -> V:
        """What a function of Python gives, as its handlers say: the language itself calls it."""

    def attribute_or_none(self, value: V, name: str) -> V | None:
        """An attribute, None where reading it raises AttributeError."""

    def has_attribute(self, value: V, name: str) -> bool:
        """Whether an object has an attribute. Of one of the program's classes it is read, as C code does."""

    def method_or_none(self, owner: V, name: str) -> V | None:
        """A special method as the language looks it up, in the class only; None when the class has none."""

    def iterates_plainly(self, value: V) -> bool:
        """Whether the class of an object derives from a builtin type and iterates as that does."""

    def class_attribute(self, owner: V, cls: type, name: str) -> V:
        """An attribute that the classes of an object know."""

    def globals_of(self, namespace: dict[str, object]) -> V:
        """The variables of a module as a dict, which is not to be changed."""


class CallVerbs(Protocol[V]):
    """Calls of functions and classes that are known as objects, as handlers, polyfills and rules say."""

    def call_object(self, fn: Callable[..., Any], value: V, args: Sequence[V], kwargs: Mapping[str, V]) -> V:
        """Call a Python function or one written in C, as handlers, polyfills and rules say. value: the function's."""

    def instantiate(self, value: Any, args: Sequence[V], kwargs: Mapping[str, V]) -> V:
        """Make an object of a class by `__new__` and `__init__`."""

    def call_class(self, value: Any, args: Sequence[V], kwargs: Mapping[str, V]) -> V:
        """Call a class."""

    def handled(self, fn: object, args: Sequence[V], kwargs: Mapping[str, V]) -> V | None:
        """What a handler or polyfill of `fn` gives, None when there is none or it declines."""

    def handled_as(
        self, target: Callable[..., object], fn: Any, args: Sequence[V], kwargs: Mapping[str, V]
    ) -> V | None:
        """What the handler of a target that stands for many functions gives for one of them."""

    def has_handler(self, fn: object) -> bool:
        """Whether a handler or a polyfill knows a callable."""

    def goes_first(self, fn: object) -> bool:
        """Whether a handler, a polyfill, or a rule that goes before these, knows a callable."""

    def read_in_c(self, cls: type, lookup: object, name: str) -> NoReturn:
        """Break the graph where an attribute is read of an object whose class looks it up in C."""

    def inline_closure(self, function: Any, args: Sequence[V], kwargs: Mapping[str, V]) -> V:
        """Call a function made in the frame."""

    def inline_python(self, fn: Callable[..., Any], args: Sequence[V], kwargs: Mapping[str, V]) -> V:
        """Trace into a Python function that stands in for another."""

    def call_whole(self, fn: V | Callable[..., Any], args: Sequence[V], kwargs: Mapping[str, V]) -> V:
        """Trace into a function; what breaks in it breaks at the call of it."""

    def resume(self, frame: Any) -> V:
        """Run a suspended frame to its next value."""
