"""Parts of a trace, and the writer of its code, as the modules below them see them.

Values need these, and these need values: so they are told what a value (V), a write (W) and the trace (T) is. The names
to use, which say that, stand in `values/base.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

if TYPE_CHECKING:
    import torch

    from armature.frame.sources import Source
    from armature.torch_abi.overrides import Off
    from armature.trace.instructions import Instruction

V = TypeVar("V")
W = TypeVar("W")
T_contra = TypeVar("T_contra", contravariant=True)
W_contra = TypeVar("W_contra", contravariant=True)
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
    instructions: tuple[Instruction, ...]

    @property
    def cells(self) -> Mapping[str, V]:
        """The cells of the variables that it shares with other functions."""

    @property
    def handling(self) -> Sequence[Any]:
        """The exceptions that its `except` and `finally` blocks are at work on, the innermost last."""

    @property
    def line(self) -> int:
        """The line of the instruction that runs, or ran last."""


class Changes(Protocol[V, W]):
    """What the frame has changed so far; it is changed when the generated code runs.

    count: of changes to what outlives the frame. changed: the objects. owners: objects that were looked at, by ids of
    their dicts. globals_: variables of modules. calls: made when all else has been changed. entered: context managers
    of torch that are open now. grad, grad_after: the grad mode where the frame begins, and where it ends.
    """

    count: int
    changed: dict[V, None]
    owners: dict[int, V]
    globals_: dict[tuple[int, str], tuple[dict[str, object], V | None]]
    calls: list[W]
    entered: dict[V, None]
    grad: bool
    grad_after: bool | None
    altered: dict[Any, torch.UntypedStorage]
    class_attributes: dict[tuple[type, str], V]

    @property
    def empty(self) -> bool:
        """Whether nothing that outlives the frame was changed."""

    def record(self, value: V) -> None:
        """The object of a value is changed."""

    def inputs_written(self, tensors: Iterable[Any]) -> int:
        """How many of some tensors are the program's, and written to by the graph."""

    def alter(self, value: Any) -> None:
        """The graph changes what a tensor is."""

    def call(self, write: W) -> None:
        """Something to be done when the frame ends."""

    def switch_default_dtype(self, dtype: torch.dtype) -> None:
        """torch's default dtype is another one from now on."""

    def store_class_attribute(self, cls: type, name: str, value: V) -> None:
        """Set an attribute of a class at the end of the frame."""

    def class_attribute(self, cls: type, name: str) -> V | None:
        """What the frame has stored in an attribute of a class, None where that is hidden or nothing was stored."""

    def store_global(self, namespace: dict[str, object], name: str, value: V | None) -> None:
        """A global variable is set; None: deleted."""


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

    def argument(self, number: Any) -> Any:
        """What stands for a symbolic number among the arguments of an FX node."""

    def decide(self, condition: Any) -> bool:
        """Whether a condition on symbols holds; guarded."""

    def assume(self, condition: Any, message: str) -> bool:
        """The condition holds, or the graph raises with this message. False: it can't be asked for in the graph."""


class CallsBefore(Protocol[V]):
    """Calls that the generated code makes before it calls the graph.

    taken: the graph takes a number out of a tensor. changed: objects that the calls change, with what reads and sets
    their state.
    """

    taken: bool
    calls: list[Any]
    changed: dict[V, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]]

    def add(self, function: Callable[..., Any], operands: tuple[V, ...]) -> Source:
        """One more call; where to find what it gives."""


class Rebuilding(Protocol[V, W_contra, T_co]):
    """Writes the code that makes the frame's objects again: instructions that leave one object more on the stack."""

    @property
    def tracer(self) -> T_co:
        """The trace, which has ended."""

    @property
    def none(self) -> V:
        """The value of None."""

    def emit(self, name: str, *arg: Any) -> None:
        """Add an instruction."""

    def cannot(self, value: V) -> NoReturn:
        """The object can't be made again: a graph break, taken where it was made."""

    def load_source(self, source: Source) -> None:
        """Push the object at a source, as it was when the frame began."""

    def load_early(self, source: Any) -> None:
        """Push what a call before the graph gave."""

    def variable(self, name: str) -> Any:
        """A variable of the frame as an operand of an instruction."""

    def temporary(self) -> str:
        """The name of a fresh local variable."""

    def keep(self, value: V) -> str:
        """The name of a variable that has the object of a value."""

    def load(self, value: V) -> None:
        """Push the object of a value, made once however often it is loaded."""

    def hold(self, value: V) -> None:
        """Keep the object on top of the stack for when it is loaded again."""

    def later(self, function: Callable[..., object], argument: object) -> None:
        """Call a function with the object on top of the stack and an argument, when the changes have been made."""

    def output(self, value: Any) -> None:
        """Push a tensor that the graph computes."""

    def symbolic(self, value: Any) -> None:
        """Push a number computed from sizes and ints of the program, as they were when the frame began."""

    def constant(self, obj: object) -> None:
        """Push an object that the code keeps."""

    def value(self, obj: object) -> V:
        """A value for an object that the code keeps."""

    def build(self, name: str, count: int) -> None:
        """A BUILD_ instruction."""

    def null_below(self) -> None:
        """Make the callable on the stack one to be called."""

    def null_function(self, fn: Callable[..., Any]) -> None:
        """Push a function to be called."""

    def function(self, load: Callable[[], None]) -> None:
        """Push a function and the NULL that its call needs."""

    def call(self, count: int) -> None:
        """Call with so many positional arguments."""

    def attribute(self, name: str) -> None:
        """Replace the object on the stack by its attribute."""

    def method(self, name: str) -> None:
        """Replace the object on the stack by its method, to be called."""

    def new_function(
        self,
        code: CodeType | Callable[[], None],
        namespace: dict[str, object],
        name: str,
        defaults: Sequence[V] = (),
        cells: Sequence[V | str] = (),
    ) -> None:
        """Push a function. code: or what pushes it. cells: values, or names of variables of this frame."""

    def set_attribute(self, owner: V, name: str, value: V) -> None:
        """`object.__setattr__(owner, name, value)`."""

    def spread(self, fn: Callable[..., Any], args: tuple[V, ...], kwargs: dict[str, V]) -> None:
        """Push the result of `fn(*args, **kwargs)`."""

    def do(self, write: W_contra) -> None:
        """Make a call whose result is dropped."""

    def store_attribute(self, name: str, value: V) -> None:
        """Set an attribute of the object on the stack, which stays there."""

    def dict_of(self, items: dict[str, V]) -> V:
        """A dict of names to values."""


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
