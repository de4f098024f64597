"""numpy scalars of the program that vary from call to call.

What Python and numpy compute from them and from other numbers is computed before the graph, and varies too. To torch's
operators such a scalar is its Python number, which can be a graph input. Any other use makes it a guarded constant.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinFunctionType
from typing import ClassVar

import attrs
import torch

from armature.plugin_api import (
    NUMBER_SLOTS,
    Args,
    BoundMethod,
    Call,
    CallSource,
    ConstantValue,
    FormulaSource,
    Kwargs,
    ListValue,
    NotConstant,
    PrecomputedNumber,
    SliceValue,
    Source,
    Tracing,
    TupleValue,
    Value,
    ValueType,
    VaryingNumber,
    handles,
    known_before_graph,
    number_now,
)
from armature.plugin_api import numpy_layer as layer
from armature_torch_handlers.arrays import torch_dtype, traced_functions
from armature_torch_handlers.contexts.array_errors import set_inside
from armature_torch_handlers.lists import of_tensors

np = layer.numpy
LONGEST = 4000  # characters of a formula: one that uses its parts twice grows with each step
MATH = tuple(fn for fn in vars(math).values() if isinstance(fn, BuiltinFunctionType))
SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "and": "&",
    "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
}  # fmt: skip
COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
# The operators' methods: the function, its expression, and whether the object is the second operand.
BINARY: dict[str, tuple[Callable[..., object], str, bool]] = {
    **{f"__{name}__": (getattr(operator, name), f"{{0}} {symbol} {{1}}", False) for name, symbol in COMPARED.items()},
    **{
        f"__{prefix}{name}__": (getattr(operator, f"__{name}__"), f"{{0}} {symbol} {{1}}", bool(prefix))
        for name, symbol in SYMBOLS.items()
        for prefix in ("", "r")
    },
}
UNARY: dict[str, tuple[Callable[..., object], str]] = {
    "__neg__": (operator.neg, "-{0}"), "__pos__": (operator.pos, "+{0}"), "__invert__": (operator.invert, "~{0}"),
}  # fmt: skip
FACTS = frozenset({"dtype", "shape", "ndim", "size", "itemsize", "nbytes", "strides"})  # the same for all of a type
COMPLEX_PARTS = frozenset({"real", "imag"})
# Methods without side effects that return a number.
METHODS = frozenset({
    "__int__", "__float__", "__abs__", "__round__", "__trunc__", "__floor__", "__ceil__", "astype", "conjugate",
    "clip", "round", "is_integer",
})  # fmt: skip
# Calls that take a bool of numpy for the float which it converts to, as torch's operators take it.
TAKE_FLOATS = frozenset({
    "add", "sub", "mul", "truediv", "div", "pow", "eq", "ne", "lt", "le", "gt", "ge", "where", "full", "full_like",
    "masked_fill", "fill", "clamp", "iadd", "isub", "imul", "itruediv", "mod", "imod", "fmod", "remainder", "floordiv",
    "ifloordiv", "floor_divide", "new_full",
})  # fmt: skip
PYTHONS: tuple[Callable[..., object], ...] = (int, float, abs, round, operator.index, *MATH)
NUMPYS: tuple[Callable[..., object], ...] = () if np is None else (np.clip, np.round, np.around)


class NumpyScalar(ConstantValue):
    """A scalar that is known."""

    def as_argument(self, tracer: Tracing) -> object:
        """The Python number as which torch treats the scalar, unless it treats it as a float, or refuses it."""
        scalar = self.as_constant()
        if type(scalar) in layer.TAKEN_FOR_FLOATS or (isinstance(scalar, np.integer) and scalar >= 2**63):
            tracer.graph_break("numpy-number-argument", type=type(scalar).__name__)
        return scalar.item()

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        """Types are arguments of `astype`."""
        known = [arg for arg in map(operand, args) if arg is not None] if name == "astype" and not kwargs else []
        if not known or len(known) < len(args):
            return super().call_method(tracer, name, args, kwargs)
        made: Value = tracer.as_value(self.as_constant().astype(*(given for given, _ in known)))
        return made


@attrs.define(eq=False)
class NumpyNumber(Value):
    """An int or float of numpy that varies. scalar: its current value. Only its type is guarded until it is used."""

    scalar: object
    tracer: Tracing
    source: Source = attrs.field(kw_only=True)

    is_symbolic: ClassVar[bool] = True
    slots = NUMBER_SLOTS

    def python_type(self) -> type:
        return type(self.scalar)

    @property
    def is_integer(self) -> bool:
        """Whether it is an int."""
        return isinstance(self.scalar, np.integer)

    def number(self) -> Value:
        """The Python number as which torch's operators treat it."""
        inside = CallSource(self.source, layer.number_in, "{}.item()")
        found: Value = self.tracer.sizes.of_program(self.tracer, layer.number_in(self.scalar), inside)
        return found

    def as_scalar(self) -> NumpyScalar:
        """The scalar as a constant, guarded."""
        return NumpyScalar(self.as_constant())

    def as_constant(self) -> object:
        self.tracer.guards.equal(self.source, self.scalar)
        return self.scalar

    def as_argument(self, tracer: Tracing) -> object:
        return self.as_scalar().as_argument(tracer)

    def truth(self, tracer: Tracing) -> bool:
        answer = computed(tracer, bool, "bool({0})", (self,))
        return bool((answer or self).as_constant())

    def unary(self, tracer: Tracing, name: str) -> Value:
        found = computed(tracer, *UNARY[name], (self,))
        return self.as_scalar().call_method(tracer, name, (), {}) if found is None else found

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        if name not in BINARY:
            return None
        function, words, swapped = BINARY[name]
        return computed(tracer, function, words, (other, self) if swapped else (self, other))

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name in FACTS:
            made: Value = tracer.as_value(getattr(self.scalar, name))
            return made
        found = computed(tracer, operator.attrgetter(name), f"{{0}}.{name}", (self,)) if name in COMPLEX_PARTS else None
        if found is None and callable(getattr(self.scalar, name, None)):
            return BoundMethod(self, name)
        return self.as_scalar().get_attribute(tracer, name) if found is None else found

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        found = None
        if name in ("item", "tolist", *(("__int__", "__index__") if self.is_integer else ("__float__",))):
            found = None if args or kwargs else self.number()
        elif name in METHODS and not kwargs:
            words = f"{{0}}.{name}({', '.join(f'{{{place}}}' for place in range(1, len(args) + 1))})"
            found = computed(tracer, lambda scalar, *rest: getattr(scalar, name)(*rest), words, (self, *args))
        elif name in BINARY and len(args) == 1:
            found = self.binary(tracer, name, args[0])
        return self.as_scalar().call_method(tracer, name, args, kwargs) if found is None else found


def computed(tracer: Tracing, function: Callable[..., object], words: str, operands: Args) -> Value | None:
    """The number that Python or numpy computes before the graph from numbers, some of which vary. words: the function
    as an expression, with {0} for the first operand. None: not such numbers, no number, or the function raises."""
    given = [operand(value) for value in operands]
    if None in given or layer.calls_for_errors() or set_inside(tracer):
        return None
    known = [one for one in given if one is not None]
    parts = tuple({part: None for _, part in known if not isinstance(part, str)})
    texts = [part if isinstance(part, str) else f"{{{parts.index(part)}}}" for _, part in known]
    source = FormulaSource(words.format(*texts), parts, (("np", np),))
    if len(source.expr) > LONGEST:
        return None
    try:
        made = function(*(now for now, _ in known))
    except Exception:  # the program's error
        return None
    kind = type(made)
    if kind in layer.NUMBERS and layer.number_in(made) < 2**63:
        tracer.guards.type_is(source, kind)
        return NumpyNumber(made, tracer, source=source)
    if isinstance(made, float) and kind is float:
        return tracer.sizes.of_program(tracer, made, source)
    return tracer.objects.wrap(made, source) if kind in (int, bool) or kind in layer.SCALARS else None


def operand(value: Value) -> tuple[object, Source | str] | None:
    """A number in a formula: its current value, and its text, or where it is read if it varies; None for others."""
    if isinstance(value, NumpyNumber):
        return value.scalar, value.source
    if value.is_symbolic:
        read = known_before_graph(value) and not isinstance(value, PrecomputedNumber)
        return (number_now(value), value.source) if read and value.source is not None else None
    if value.is_tensor:
        return None
    try:
        held = value.as_object()
    except NotConstant:
        return None
    text = TEXTS.get(type(held), text_of_type)(held)
    return None if text is None else (held, text)


def text_of(number: object) -> str:
    """A number of Python as an expression."""
    return f"float('{number}')" if type(number) is float and not math.isfinite(number) else f"({number!r})"


def text_of_type(held: object) -> str | None:
    """A type of numpy's scalars; None for other objects, which are in no formula."""
    return f"np.{held.__name__}" if isinstance(held, type) and held in layer.SCALARS else None


# The known parts of formulas as expressions.
TEXTS: dict[type, Callable[..., str | None]] = {
    **dict.fromkeys((int, float, bool, complex, type(None)), text_of),
    **dict.fromkeys(layer.SCALARS, lambda scalar: f"np.{type(scalar).__name__}({text_of(scalar.item())})"),
    **dict.fromkeys(layer.DTYPE_TYPES, lambda dtype: f"np.dtype({dtype.str!r})"),
    str: lambda text: None if {"{", "}"} & set(text) else repr(text),
}


@handles(*PYTHONS, priority=2)
def of_python(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """A function of Python for scalars that vary."""
    if kwargs or not any(isinstance(arg, NumpyNumber) for arg in args):
        return None
    if isinstance(args[0], NumpyNumber) and call.fn in (int, float, operator.index) and len(args) == 1:
        return args[0].call_method(call.tracing, f"__{call.fn.__name__}__", (), {})
    name = call.fn.__name__ if call.fn in PYTHONS[:4] else f"math.{call.fn.__name__}"
    return computed(call.tracing, call.fn, called(name, args), args)


@handles(*traced_functions(), *layer.SCALARS, priority=1)
def of_numpy(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """A function of numpy for scalars that vary, element by element, or a type called with one."""
    if kwargs or not any(isinstance(arg, NumpyNumber) for arg in args):
        return None
    if type(call.fn) is not np.ufunc and call.fn not in layer.SCALARS and call.fn not in NUMPYS:
        return None
    return computed(call.tracing, call.fn, called(f"np.{call.fn.__name__}", args), args)


def called(name: str, args: Args) -> str:
    """The expression of a call."""
    return f"{name}({', '.join(f'{{{place}}}' for place in range(len(args)))})"


def tensor_of_scalars(call: Call, data: Value, options: dict[str, Value]) -> Value | None:
    """A tensor made of numpy numbers, alone or in lists, which determine its dtype; None if there are none."""
    if np is None or not any(isinstance(one, np.generic) for one in numbers_in(data)):
        return None
    if "dtype" not in options or (options["dtype"].is_constant and options["dtype"].as_constant() is None):
        options = {**options, "dtype": call.constant(dtype_of(call, data))}
    made = of_varying(call, data, options) if isinstance(data, NumpyNumber) else None
    if made is None:
        made = of_tensors(call, plain_numbers(data), options)
    return call.tracing.graph.call(call.fn, (with_constants(data),), options) if made is None else made


def dtype_of(call: Call, data: Value) -> torch.dtype:
    """The dtype that torch gives a tensor of such numbers."""
    try:
        held = as_python(data)
        return torch_dtype(call.tracing, held.dtype) if isinstance(held, np.generic) else torch.tensor(held).dtype
    except (NotConstant, TypeError, ValueError, RuntimeError):  # torch refuses it, as eager mode will show
        call.graph_break("tensor-of-numpy-numbers")


def of_varying(call: Call, data: NumpyNumber, options: dict[str, Value]) -> Value | None:
    """A tensor of a scalar that varies; None with other options than a dtype and a device."""
    known = all(value.is_constant for value in options.values()) and not options.keys() - {"dtype", "device"}
    if not known or call.tracing.ending.undo or call.tracing.overrides.present:
        return None
    given = {name: value for name, value in options.items() if value.as_constant() is not None}
    number = data.number()
    if not isinstance(number, VaryingNumber):
        wide = call.graph_call(torch.full, TupleValue([]), number, dtype=call.constant(torch.int64))
    else:
        wide = number.as_tensor()
    device = {"device": call.constant(torch.get_default_device())}
    return call.graph_call("to", wide, **{**device, **given, "copy": call.constant(True)})


def numbers_in(data: Value) -> Iterator[object]:
    """The numbers in nested lists and tuples; of those that vary, the current ones."""
    if isinstance(data, (ListValue, TupleValue)):
        yield from (found for item in data.items for found in numbers_in(item))
    elif isinstance(data, NumpyNumber):
        yield data.scalar
    elif data.is_constant:
        yield data.as_constant()


def has_bools(data: Value) -> bool:
    """Whether bools of numpy are in nested lists and tuples."""
    return np is not None and any(isinstance(number, np.bool_) for number in numbers_in(data))


def as_python(data: Value) -> object:
    """Nested lists and tuples of numbers, as lists; of numbers of numpy that vary, the current ones."""
    if isinstance(data, (ListValue, TupleValue)):
        return [as_python(item) for item in data.items]
    return data.scalar if isinstance(data, NumpyNumber) else data.as_constant()


def plain_numbers(data: Value) -> Value:
    """Nested lists and tuples with Python's numbers in place of numpy's."""
    if isinstance(data, (ListValue, TupleValue)):
        return ListValue([plain_numbers(item) for item in data.items])
    if isinstance(data, NumpyScalar) and type(data.value) in layer.NUMBERS:
        return ConstantValue(layer.number_in(data.value))
    return data.number() if isinstance(data, NumpyNumber) else data


def with_constants(data: Value) -> Value:
    """Nested lists and tuples with constants in place of numbers that vary, and Python's bools in place of numpy's."""
    if isinstance(data, (ListValue, TupleValue)):
        return ListValue([with_constants(item) for item in data.items])
    return data.as_scalar() if isinstance(data, NumpyNumber) else bool_of(data)


def of_program(scalar: object, source: Source, tracer: Tracing) -> Value:
    """The value of a numpy int or float of the program."""
    number = layer.number_in(scalar)
    if not tracer.sizes.changes(number, source) or (number >= 2**63 and isinstance(number, int)):
        return constant(scalar, source, tracer)
    tracer.recorder.rewrites[with_numbers] = None
    return NumpyNumber(scalar, tracer, source=source)


def constant(scalar: object, source: Source, tracer: Tracing) -> Value:
    """The value of a scalar that is a guarded constant."""
    tracer.guards.equal(source, scalar)
    tracer.recorder.rewrites[with_numbers] = None
    return NumpyScalar(scalar, source=source)


def dtype(obj: object, source: Source, tracer: Tracing) -> Value:
    """The value of a dtype."""
    tracer.guards.equal(source, obj)
    return ConstantValue(obj, source=source)


def with_numbers(name: str, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """The arguments of a graph call with Python numbers in place of scalars that vary, and of bools."""
    if name.strip("_") in TAKE_FLOATS:
        args, kwargs = tuple(map(float_of, args)), {name: float_of(value) for name, value in kwargs.items()}
    return tuple(map(number_of, args)), {name: number_of(value) for name, value in kwargs.items()}


def float_of(value: Value) -> Value:
    """The float for a bool of numpy; other values unchanged."""
    held = value.value if isinstance(value, NumpyScalar) else None
    return ConstantValue(float(held)) if isinstance(held, np.bool_) else value


def bool_of(value: Value) -> Value:
    """Python's bool for one of numpy; other values unchanged."""
    held = value.value if isinstance(value, NumpyScalar) else None
    return ConstantValue(bool(held)) if isinstance(held, np.bool_) else value


def number_of(value: Value) -> Value:
    """The Python number for such a scalar, also in lists, plain tuples and slices; other values unchanged."""
    if isinstance(value, NumpyNumber):
        return value.number()
    if isinstance(value, SliceValue):
        start, stop, step = map(number_of, value.parts)
        parts = (start, stop, step)
        return value if same(parts, value.parts) else attrs.evolve(value, parts=parts)
    if isinstance(value, ListValue) or (isinstance(value, TupleValue) and value.kind is tuple):
        items = [number_of(item) for item in value.items]
        return value if same(items, value.items) else value.like(items)
    return value


def same(new: Iterable[Value], old: Iterable[Value]) -> bool:
    """Whether nothing was replaced."""
    return all(one is other for one, other in zip(new, old, strict=True))


def fresh(scalar: object, tracer: Tracing) -> Value:
    """The value of a scalar that tracing has computed."""
    tracer.recorder.rewrites[with_numbers] = None
    return NumpyScalar(scalar)


def fresh_dtype(obj: object, tracer: Tracing) -> Value:
    """The value of a dtype that tracing has computed."""
    return ConstantValue(obj)


def by_name(kinds: Iterable[type]) -> list[type]:
    """Types in an order that is always the same."""
    return sorted(kinds, key=lambda kind: kind.__name__)


VALUE_TYPES = (
    *(ValueType(kind, of_program, fresh=fresh, constant=True) for kind in by_name(layer.NUMBERS)),
    *(ValueType(kind, constant, fresh=fresh, constant=True) for kind in by_name(layer.SCALARS - layer.NUMBERS)),
    *(ValueType(kind, dtype, fresh=fresh_dtype, constant=True) for kind in by_name(layer.DTYPE_TYPES)),
)
