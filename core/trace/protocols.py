"""The parts of a trace, as interfaces for the modules that come before them in the import order.

Values need these interfaces, and the interfaces mention values. So they are generic in the type of values (V), of
writes (W) and of the trace (T); `base.py` defines the names to use, with these types filled in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from torch import fx

    from armature.breaks.types import FrameSummary
    from armature.frame.guards.guard import Guard
    from armature.frame.sources import Source
    from armature.rules.data import Verdict
    from armature.torch_abi.overrides import Off
    from armature.torch_abi.symbols import Symbols
    from armature.trace.bytecode.instructions import Instruction

V = TypeVar("V")
W = TypeVar("W")
T_contra = TypeVar("T_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)


class FrameView(Protocol[V]):
    """A frame being traced, as values and handlers see it.

    position: of the next instruction. ordinal, rounds: its number in the trace, and how often it has jumped back.
    trusted: it runs library code whose globals are not guarded. callee: the function that its last call instruction
    called. lazy: arguments not read yet, with their sources. globals_source: None for the globals of the frame being
    compiled. done: it has returned. thrown: an exception to raise where it stands.
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
    done: bool
    thrown: Any

    def push(self, value: V) -> None:
        """Push on the stack."""

    @property
    def cells(self) -> Mapping[str, V]:
        """The cells of the variables that it shares with other functions."""

    @property
    def own_cells(self) -> Mapping[str, V]:
        """The cells with which it began; a comprehension may temporarily replace them."""

    @property
    def handling(self) -> Sequence[Any]:
        """The exceptions being handled by its `except` and `finally` blocks, the innermost last."""

    @property
    def line(self) -> int:
        """The line of the current instruction, or of the last one if the frame has ended."""


class FramesNow(Protocol[V]):
    """The frames being traced. atomic_depth: nesting depth of calls that enter the graph whole or not at all.
    generators: those made so far."""

    atomic_depth: int
    generators: list[V]

    @property
    def frames(self) -> Sequence[FrameView[V]]:
        """The outermost first."""

    def origin(self) -> tuple[FrameSummary, str, str]:
        """The innermost line of the user's code: its summary, its text as in a traceback, and "model.py:41"."""

    def expression(self) -> str:
        """The source text of the user's expression that is being evaluated, as far as it fits on one line."""


class OverridingNow(Protocol[V, W]):
    """The `__torch_function__` overrides in effect at this point.

    present: whether there may be any, so that calls have to be checked. wrappers: whether wrapper subclasses were met,
    which override operators. modes: the active function modes, the innermost last. off: the overrides that
    `DisableTorchFunction` has switched off.
    """

    modes: list[V]
    off: Off
    present: bool
    wrappers: bool

    @property
    def moved(self) -> bool:
        """Whether torch's stack of function modes differs from when the frame began."""

    @property
    def has_modes(self) -> bool:
        """Whether a function mode is active, which every call passes through."""

    def is_overriding(self, value: V) -> bool:
        """Whether a torch function that is given the object calls `__torch_function__` of its class."""

    def may_be_overridden(self, values: list[V]) -> bool:
        """Whether calling torch with these values, or lists of them, may call an override."""

    def accept(self, kind: type) -> None:
        """Break the graph unless tensors of a class can be traced."""

    def push(self, mode: V) -> None:
        """Enter a function mode."""

    def pop(self) -> V:
        """Leave the innermost function mode."""

    def writes(self, out: Any) -> list[W]:
        """The calls that bring torch's stack of function modes to its final state."""


class SymbolicSizes(Protocol[T_co, T_contra]):
    """The numbers of the program that are represented by symbols. floats: those that are nodes, by their sources.
    contents: those in tensors that the graph may write to. quantities: by symbol, where the code reads it."""

    floats: dict[Source, Any]
    contents: dict[Source, None]
    quantities: dict[Any, Any]

    def changes(self, number: float, source: Source) -> bool:
        """Whether an int or float of the program varies from call to call, so that it is no constant."""

    def of_program(self, tracer: T_contra, number: float, source: Source) -> T_co:
        """The value of such a number."""

    @property
    def symbols(self) -> Symbols:
        """torch's symbolic-shape environment."""

    def bind_tensor(self, value: Any, source: Source) -> None:
        """Note which symbols are read from an input tensor."""

    def conditions(self) -> tuple[Guard, ...]:
        """The guards on decisions made so far."""

    def bind_result(self, result: Any, node: fx.Node) -> None:
        """Note which symbols a graph node's result introduces."""

    def computes(self, nodes: Collection[fx.Node]) -> bool:
        """Whether one of the nodes computes an unbacked symbol (known only at run time)."""

    def forget(self, nodes: Collection[fx.Node]) -> None:
        """Forget the symbols of nodes that leave the graph."""

    def argument(self, number: Any) -> Any:
        """The representation of a symbolic number among the arguments of an FX node."""

    def decide(self, condition: Any) -> bool:
        """Whether a condition on symbols holds; guarded."""

    def assume(self, condition: Any, message: str) -> bool:
        """Assume a condition, with a check in the graph that raises `message`. False if the graph can't check it."""


class PythonVerbs(Protocol[V]):
    """Python's semantics for values: operators, comparison, iteration, text and attribute lookup."""

    def takes(self, fn: object, positional: int, names: Iterable[str]) -> bool:
        """Whether a function takes this many arguments and keywords of these names; True if that is unknown."""

    def iterator(self, value: V) -> V:
        """`iter(value)`."""

    def reversed_iterator(self, value: V) -> V:
        """`reversed(value)`."""

    def collect_items(self, value: V) -> Iterator[V]:
        """The items of an iterable, consumed as for making a list or tuple."""

    def in_sequence(self, value: V, refusal: str) -> list[V]:
        """The items of a list or tuple, or of another iterable as a list; `refusal`: the error text for the rest."""

    def index(self, value: V) -> V:
        """`operator.index(value)` for an object with `__index__`; any other value unchanged."""

    def operate(self, name: str, left: V, right: V) -> V:
        """`left <op> right`."""

    def by_methods(self, name: str, reflected: str, left: V, right: V) -> V | None:
        """A binary operator by two methods of its operands, in the language's order; None if both decline."""

    def operate_unary(self, name: str, value: V) -> V:
        """`-value` and the like."""

    def operate_in_place(self, name: str, left: V, right: V) -> V:
        """`left <op>= right`."""

    def compare(self, op: str, left: V, right: V) -> V:
        """A comparison."""

    def same_or_equal(self, left: V, right: V) -> bool:
        """Whether two values are identical or equal, as containers compare members."""

    def identical(self, left: V, right: V) -> bool:
        """`left is right`."""

    def builtin(self, fn: Callable[..., object], *args: V) -> V:
        """Call a builtin function on behalf of the language itself, by its handlers."""

    def attribute_or_none(self, value: V, name: str) -> V | None:
        """An attribute, or None if reading it raises AttributeError."""

    def has_attribute(self, value: V, name: str) -> bool:
        """Whether an object has an attribute. It is read from an object of the program's classes, as C code does."""

    def method_or_none(self, owner: V, name: str) -> V | None:
        """A special method, looked up in the class only as the language does; None when the class has none."""

    def iterates_plainly(self, value: V) -> bool:
        """Whether the class of an object derives from a builtin type and inherits its iteration."""

    def class_attribute(self, owner: V, cls: type, name: str) -> V:
        """An attribute found in the classes of an object."""

    def store_global(self, namespace: dict[str, object], name: str, value: V | None) -> None:
        """Set a variable of a module, or delete it if the value is None."""


class CallVerbs(Protocol[V]):
    """Calls of functions and classes that are known as objects, by handlers, polyfills and rules."""

    def call_object(self, fn: Callable[..., Any], value: V, args: Sequence[V], kwargs: Mapping[str, V]) -> V:
        """Call a Python or C function, by handlers, polyfills and rules. value: the function's value."""

    def instantiate(self, value: Any, args: Sequence[V], kwargs: Mapping[str, V]) -> V:
        """Make an object of a class by `__new__` and `__init__`."""

    def call_class(self, value: Any, args: Sequence[V], kwargs: Mapping[str, V]) -> V:
        """Call a class."""

    def handled(self, fn: object, args: Sequence[V], kwargs: Mapping[str, V]) -> V | None:
        """The result of a handler or polyfill of `fn`; None if there is none or all decline."""

    def handled_as(
        self, target: Callable[..., object], fn: Any, args: Sequence[V], kwargs: Mapping[str, V]
    ) -> V | None:
        """The result, for one function, of the handler whose target stands for many functions."""

    def has_handler(self, fn: object) -> bool:
        """Whether a handler or a polyfill exists for a callable."""

    def goes_first(self, fn: object) -> bool:
        """Whether a handler, a polyfill, or a rule that precedes them, exists for a callable."""

    def verdict(self, fn: object) -> Verdict:
        """What the rules say about a callable. The compiled code depends on the answer."""

    def read_in_c(self, owner: V, lookup: object, name: str) -> V:
        """An attribute of an object whose class implements lookup in C. Breaks the graph unless it is a method."""

    def inline_function(self, function: Any, args: Sequence[V], kwargs: Mapping[str, V]) -> V:
        """Trace into a function that exists as a Python object. function: its value."""

    def inline_closure(self, function: Any, args: Sequence[V], kwargs: Mapping[str, V]) -> V:
        """Call a function made in the frame."""

    def inline_python(self, fn: Callable[..., Any], args: Sequence[V], kwargs: Mapping[str, V]) -> V:
        """Trace into a Python function that replaces another."""

    def call_whole(self, fn: V | Callable[..., Any], args: Sequence[V], kwargs: Mapping[str, V]) -> V:
        """Trace into a function that must not be cut: a break inside it is reported at the call of it."""

    def dispatched(self, fn: Callable[..., Any] | str, args: Sequence[V], kwargs: Mapping[str, V]) -> V | None:
        """The result of a mode's or an argument's `__torch_function__` for a call; None if nothing overrides it."""

    def resume(self, frame: FrameView[V]) -> V:
        """Run a suspended frame until it yields or returns."""


class GraphVerbs(Protocol[V]):
    """Nodes of the graph: calls and inputs."""

    def call(self, fn: Callable[..., Any] | str, args: Sequence[V], kwargs: Mapping[str, V], fake: Any = None) -> V:
        """Put a call in the graph; running it, or `fake`, on fake tensors determines its result."""

    def change_state(self, fn: Callable[..., Any], arguments: tuple[Any, ...], leave: Any = None) -> fx.Node:
        """Put a call in the graph that changes torch's state; arguments are constants or nodes. leave: undoes it."""

    def lift(self, value: Any) -> fx.Node:
        """The graph input for a tensor or int of the program."""
