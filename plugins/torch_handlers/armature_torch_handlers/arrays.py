"""numpy: arrays are tensors of the graph, and numpy's functions are torch's equivalents.

numpy's own result is found by running numpy, while tracing, on arrays of zeros with the same dtypes, sizes and strides.
If torch's function returns another dtype or size, or shares memory where numpy's does not, the result is corrected or
the graph breaks. So only the elements are torch's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import BuiltinFunctionType
from typing import ClassVar, TypeGuard, cast

import attrs
import torch

from armature.plugin_api import (
    COLLECTION_SLOTS,
    NUMBER_SLOTS,
    Args,
    AttrSource,
    BoundMethod,
    BuiltinValue,
    Call,
    CallSource,
    ConstantValue,
    Kwargs,
    ListValue,
    NotConstant,
    Rebuilding,
    SequenceValue,
    SliceValue,
    Source,
    TracedTensor,
    Tracing,
    TupleValue,
    Value,
    ValueType,
    existing,
    handles,
)
from armature.plugin_api import numpy_layer as layer
from armature_torch_handlers.array_numbers import NumbersAsTensors
from armature_torch_handlers.array_types import Elements
from armature_torch_handlers.contexts.array_errors import set_inside

np = layer.numpy
OF_ANY_SIZE = ("ndim", "dtype", "itemsize")
ATTRIBUTES = ("shape", "ndim", "size", "dtype", "itemsize", "nbytes", "strides")  # known from dtype, sizes and strides
VIEWS = ("T", "real", "imag", "mT")
BINARY: dict[str, tuple[Callable[..., object], bool]] = {
    **{
        f"__{prefix}{name}__": (getattr(operator, name if name not in ("and", "or") else f"{name}_"), bool(prefix))
        for name in (
            "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift",
        )
        for prefix in ("", "r")
    },
    **{f"__{name}__": (getattr(operator, name), False) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
}  # fmt: skip
IN_PLACE: dict[str, Callable[..., object]] = {
    f"__i{name}__": getattr(operator, f"i{name}")
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")
}
UNARY: dict[str, Callable[..., object]] = {
    "__neg__": operator.neg, "__pos__": operator.pos, "__invert__": operator.invert, "__abs__": abs,
}  # fmt: skip
OPERATORS = frozenset({*(function for function, _ in BINARY.values()), *UNARY.values()})
# Their results are uninitialised memory.
UNSPECIFIED: tuple[object, ...] = () if np is None else (np.empty, np.empty_like)
MOST_TRACKED = 4096  # limit for arrays whose content is tracked, in elements
NO_CONTENTS: Mapping[int, object] = {}
# Methods that return numbers, text or files, which depend on the elements.
NEEDS_NUMBERS = frozenset({
    "item", "tolist", "tobytes", "tofile", "dump", "dumps", "__bool__", "__int__", "__float__", "__complex__",
    "__index__", "__contains__", "__array__", "__reduce__", "__str__", "__repr__", "__format__", "__hash__",
})  # fmt: skip


# Those of them that can be answered if the content is known.
ANSWERED_BY_CONTENT = frozenset({
    "item", "tolist", "__bool__", "__int__", "__float__", "__complex__", "__index__", "__contains__",
})  # fmt: skip


@attrs.define(eq=False)
class Memory:
    """Shared by arrays of known content that are views of each other. written: the content may have changed."""

    written: bool = False


@attrs.frozen(eq=False)
class Content:
    """The content of an array that the frame made from constants, computed by numpy while tracing."""

    numbers: Elements
    memory: Memory


@attrs.define(eq=False)
class ArrayValue(Value):
    """An array or scalar that numpy computes. zeros: an array of them with the same dtype, sizes and strides; None
    until it is asked for, of an array of the program. content: its elements, if it was made from constants."""

    tensor: TracedTensor
    zeros: Elements | None
    content: Content | None = None
    writeable: bool = True

    mutable: ClassVar[bool] = True
    slots = COLLECTION_SLOTS | NUMBER_SLOTS | {"__getitem__", "__setitem__"}

    @property
    def is_writeable(self) -> bool:
        """Whether numpy lets the program write to it."""
        return self.writeable if self.zeros is None else self.zeros.flags.writeable

    @property
    def shadow(self) -> Elements:
        """The array of zeros. From here on, the sizes are guarded."""
        if self.zeros is None:
            shadow = layer.shadow_of(self.tensor.fake, tuple(int(size) for size in self.tensor.fake.shape))
            shadow.setflags(write=self.writeable)
            self.zeros = shadow
        return self.zeros

    def python_type(self) -> type:
        return type(np.ndarray(())) if self.zeros is None else type(self.zeros)

    def describe(self) -> str:
        return f"a numpy {'scalar' if self.is_scalar else 'array'}"

    @property
    def is_scalar(self) -> bool:
        """Whether it is a numpy scalar, not a 0-d array."""
        return self.zeros is not None and not isinstance(self.zeros, np.ndarray)

    @property
    def numbers(self) -> Elements | None:
        """Its elements, None if unknown."""
        return None if self.content is None or self.content.memory.written else self.content.numbers

    def as_constant(self) -> object:
        if self.is_scalar and self.numbers is not None:
            return self.numbers
        return super().as_constant()

    def as_argument(self, tracer: Tracing) -> object:
        if self.is_scalar and self.numbers is not None:
            return tracer.constant(self.numbers).as_argument(tracer)
        return super().as_argument(tracer)

    def forget(self) -> None:
        """Forget the content of the array and its views."""
        if self.content is not None:
            self.content.memory.written = True

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name == "shape" and self.zeros is None:
            return TupleValue(tracer.unpack(self.tensor.get_attribute(tracer, name)))
        if name in ATTRIBUTES:
            form = np.empty((0,) * self.tensor.fake.dim(), str(self.tensor.dtype).removeprefix("torch."))
            return _value_of(tracer, getattr(form if name in OF_ANY_SIZE else self.shadow, name))
        if name in VIEWS:
            return apply(tracer, layer.attribute_of_layer(name), operator.attrgetter(name), (self,), {})
        if name == "__class__":
            return _value_of(tracer, type(self.shadow))
        if callable(getattr(type(self.shadow), name, None)):
            return BoundMethod(self, name)
        if not hasattr(self.shadow, name):
            kind = type(self.shadow)
            text = f"'{kind.__module__}.{kind.__name__}' object has no attribute '{name}'"
            tracer.raise_error(AttributeError, text)
        found: Value = super().get_attribute(tracer, name)
        return found

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name in ANSWERED_BY_CONTENT and self.numbers is not None and not kwargs:
            return self._answer(tracer, name, args)
        if name in NEEDS_NUMBERS:
            tracer.graph_break("array-value", operation=name)
        if name == "__len__" and not args:
            return _value_of(tracer, self.length(tracer))
        if name == "__getitem__" and len(args) == 1:
            return self.get_item(tracer, args[0])
        if name == "__iter__":
            made: Value = tracer.python.iterator(self)
            return made
        if name in BINARY or name in IN_PLACE:
            found = self.binary(tracer, name, *args)
            return tracer.constant(NotImplemented) if found is None else found
        if name in UNARY:
            return apply(tracer, layer.in_layer(UNARY[name], name), UNARY[name], (self,), {})
        if not hasattr(layer.Array, name):
            tracer.graph_break("array-attribute", name=name)
        return apply(tracer, layer.method_of_layer(name), _method(name), (self, *args), kwargs)

    def _answer(self, tracer: Tracing, name: str, args: Args) -> Value:
        """numpy's answer for known content."""
        try:
            plain = [arg.as_constant() for arg in args]
        except NotConstant:
            tracer.graph_break("array-value", operation=name)
        try:
            with layer.asking():
                found = getattr(self.numbers, name)(*plain)
        except Exception as error:
            tracer.raise_real(error)
        return _value_of(tracer, found)

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        if name in IN_PLACE and not self.is_scalar:
            return apply(tracer, layer.in_layer(IN_PLACE[name], name), IN_PLACE[name], (self, other), {})
        if name not in BINARY or not _is_operand(other):
            return None
        function, swapped = BINARY[name]
        operands = (other, self) if swapped else (self, other)
        return apply(tracer, layer.in_layer(function, function.__name__), function, operands, {})

    def get_item(self, tracer: Tracing, key: Value) -> Value:
        return apply(tracer, layer.in_layer(operator.getitem, "getitem"), operator.getitem, (self, key), {})

    def set_item(self, tracer: Tracing, key: Value, value: Value) -> None:
        apply(tracer, layer.in_layer(operator.setitem, "setitem"), operator.setitem, (self, key, value), {})

    def truth(self, tracer: Tracing) -> bool:
        if self.numbers is not None:
            return bool(self._answer(tracer, "__bool__", ()).as_constant())
        tracer.graph_break("array-branch", test=tracer.stack.expression())

    def length(self, tracer: Tracing) -> int:
        if not np.ndim(self.shadow):
            tracer.raise_error(TypeError, "len() of unsized object")
        return len(self.shadow)

    def stream(self, tracer: Tracing) -> Iterator[Value]:
        if not np.ndim(self.shadow):
            tracer.raise_error(TypeError, "iteration over a 0-d array")
        return (self.get_item(tracer, tracer.constant(row)) for row in range(len(self.shadow)))

    def contains(self, tracer: Tracing, item: Value) -> bool:
        if self.numbers is not None and item.is_constant:
            return bool(self._answer(tracer, "__contains__", (item,)).as_constant())
        tracer.graph_break("array-value", operation="__contains__")

    def rebuild(self, out: Rebuilding) -> None:
        out.null_function(layer.as_scalar if self.is_scalar else layer.as_array)
        out.load(self.tensor)
        out.call(1)


def _method(name: str) -> Callable[..., object]:
    return lambda array, *args, **kwargs: getattr(array, name)(*args, **kwargs)


def _value_of(tracer: Tracing, obj: object) -> Value:
    found: Value = tracer.as_value(obj)
    return found


def _is_operand(value: Value) -> bool:
    """Whether numpy treats the value as an operand."""
    return isinstance(value, (ArrayValue, ListValue, TupleValue)) or (
        (value.is_constant or value.is_symbolic) and issubclass(value.python_type(), (int, float, complex, np.generic))
    )


# Calls.


def apply(
    tracer: Tracing, function: Callable[..., object], ours: Callable[..., object], args: Args, kwargs: Kwargs
) -> Value:
    """Add `function`, of tensors, to the graph; `ours` is numpy's own, which determines the form of the result."""
    _rely_on_quiet(tracer, function.__name__)
    inputs = [found for value in (*args, *kwargs.values()) for found in _arrays(tracer, value)]
    for value in inputs:
        value.shadow  # noqa: B018 - the graph's nodes have the sizes that numpy computes with
    given = [_for_graph(tracer, value) for value in args]
    named = {name: _for_graph(tracer, value) for name, value in kwargs.items()}
    result = tracer.graph.call(function, given, named)
    try:
        with layer.asking():
            shadows = [_for_numpy(tracer, value) for value in args]
            expected = ours(*shadows, **{name: _for_numpy(tracer, value) for name, value in kwargs.items()})
    except Exception as error:
        message = f"numpy raises {type(error).__name__} for zeros"
        tracer.graph_break("array-function-fails", operation=function.__name__, message=message)
    found = _as_numpy_has_it(tracer, result, expected, inputs, function.__name__)
    _note_content(tracer, found, ours, (args, kwargs), inputs)
    return found


def _rely_on_quiet(tracer: Tracing, name: str) -> None:
    """Break the graph if numpy is set to report divisions by zero and overflows."""
    given = (set_inside(tracer),)
    loud = layer.reports_errors(*given)
    tracer.guards.answers(layer.reports_errors, given, {}, loud)
    if loud:
        tracer.graph_break("array-errors", operation=name)


def _note_content(
    tracer: Tracing, found: Value, ours: Callable[..., object], given: tuple[Args, Kwargs], inputs: list[ArrayValue]
) -> None:
    """Compute the results' content if the arguments' content is known. Forget content that may have been written to."""
    args, kwargs = given
    known = {id(value): value.numbers for value in inputs if value.numbers is not None}
    if not all(id(value) in known for value in inputs) or ours in UNSPECIFIED or "where" in kwargs:
        if ours not in OPERATORS:  # operators return new arrays, and write to nothing
            for value in inputs:
                value.forget()
        return
    copies = {key: numbers.copy() for key, numbers in known.items()}
    try:
        with layer.asking():
            plain = [_for_numpy(tracer, value, copies) for value in args]
            made = ours(*plain, **{name: _for_numpy(tracer, value, copies) for name, value in kwargs.items()})
    except Exception:  # numpy raises for these numbers: the graph will show it at run time
        made = None
    if any(copies[key].tobytes() != numbers.tobytes() for key, numbers in known.items()):
        for value in inputs:
            value.forget()
        return
    _keep_content(found, made, inputs, Memory())


def _keep_content(found: Value, made: object, inputs: list[ArrayValue], fresh: Memory) -> None:
    """Store numpy's result with the value. `fresh`: the memory of results that are not views of an argument."""
    if isinstance(found, (ListValue, TupleValue)) and isinstance(made, (list, tuple)):
        for item, other in zip(found.items, made):
            _keep_content(item, other, inputs, fresh)
    elif isinstance(found, ArrayValue) and found not in inputs and _alike(made, found.shadow):
        shared = (value.content for value in inputs if layer.share_memory(found.shadow, value.shadow))
        found.content = Content(made.copy(), next((held.memory for held in shared if held is not None), fresh))


def _alike(made: object, shadow: Elements) -> TypeGuard[Elements]:
    """Whether numpy's result for the real content has the same type, dtype and sizes as the one for zeros, and is small
    enough to store."""
    if shadow.size > MOST_TRACKED or type(made) is not type(shadow) or not isinstance(made, (np.ndarray, np.generic)):
        return False
    return bool(made.shape == shadow.shape and made.dtype == shadow.dtype)


def _as_numpy_has_it(tracer: Tracing, result: Value, expected: object, inputs: list[ArrayValue], name: str) -> Value:
    """Make the value of a result in the form of numpy's own: array, scalar or sequence."""
    if isinstance(expected, (tuple, list)) and isinstance(result, (TupleValue, ListValue)):
        if len(expected) != len(result.items):
            tracer.graph_break("array-differs", operation=name)
        pairs = zip(result.items, expected)
        items = [_as_numpy_has_it(tracer, item, other, inputs, name) for item, other in pairs]
        return ListValue(items) if isinstance(expected, list) else TupleValue(items, type(expected))
    if expected is None and result.is_constant and result.as_constant() is None:
        return result
    if isinstance(expected, (np.ndarray, np.generic)) and isinstance(result, TracedTensor):
        own = next((value for value in inputs if value.shadow is expected), None)
        if own is not None:  # changed in place
            return own
        kinds = layer.DTYPES.get(expected.dtype.name) is result.dtype and expected.dtype.isnative
        if kinds and tuple(result.shape) == expected.shape:
            return _mended(tracer, result, expected, inputs, name)
    tracer.graph_break("array-differs", operation=name)


def _mended(tracer: Tracing, result: TracedTensor, expected: Elements, inputs: list[ArrayValue], name: str) -> Value:
    """Give the result the strides of numpy's result, and copy it if numpy's is a copy."""
    if not isinstance(expected, np.ndarray):
        tracer.recorder.rewrites[NumbersAsTensors(tracer, ArrayValue)] = None
        return ArrayValue(_copied(tracer, result, inputs), expected)
    view = any(layer.share_memory(expected, value.shadow) for value in inputs)
    shares = any(_share(result, value.tensor) for value in inputs)
    if view and not shares:
        tracer.graph_break("array-differs", operation=name)
    if not view:
        result = _copied(tracer, result, inputs)
    wanted = tuple(stride // expected.itemsize for stride in expected.strides)
    given = result.fake.stride()
    if any(size > 1 and one != other for size, one, other in zip(expected.shape, wanted, given)):
        if view:
            tracer.graph_break("array-differs", operation=name)
        copied = tracer.graph.call(layer.with_strides, (result, tracer.constant(wanted)), {})
        return ArrayValue(cast(TracedTensor, copied), expected)
    return ArrayValue(result, expected)


def _copied(tracer: Tracing, result: TracedTensor, inputs: list[ArrayValue]) -> TracedTensor:
    """A copy of a result that shares memory with arguments."""
    if any(_share(result, value.tensor) for value in inputs):
        return cast(TracedTensor, tracer.graph.call("clone", (result,), {}))
    return result


def _share(one: TracedTensor, other: TracedTensor) -> bool:
    return bool(one.fake.untyped_storage()._cdata == other.fake.untyped_storage()._cdata)


def _arrays(tracer: Tracing, value: Value) -> Iterator[ArrayValue]:
    """The arrays in a nest of lists and tuples."""
    if isinstance(value, ArrayValue):
        yield value
    elif isinstance(value, (ListValue, TupleValue)):
        for item in value.items:
            yield from _arrays(tracer, item)


def _parts_of(value: Value) -> Sequence[Value] | None:
    """The parts of a value that holds others; None for other values."""
    if type(value) in (ListValue, TupleValue) and isinstance(value, SequenceValue):
        return value.items
    return value.parts if isinstance(value, SliceValue) else None


def _made_of(value: Value, parts: list[Value]) -> Value:
    """A value of the same kind, made of other parts."""
    if isinstance(value, SliceValue):
        return SliceValue((parts[0], parts[1], parts[2]))
    return ListValue(parts) if isinstance(value, ListValue) else TupleValue(parts)


def _for_graph(tracer: Tracing, value: Value) -> Value:
    """The representation of an argument of numpy in the graph."""
    if isinstance(value, ArrayValue):
        return value.tensor
    parts = _parts_of(value)
    if parts is not None:
        return _made_of(value, [_for_graph(tracer, part) for part in parts])
    if value.is_tensor:
        tracer.graph_break("tensor-in-numpy")
    return _known_for_graph(tracer, ConstantValue(value.as_constant()) if value.is_symbolic else value)


def _known_for_graph(tracer: Tracing, value: Value) -> Value:
    """The same for an argument that is known: torch's dtypes and numbers for numpy's."""
    held = _object(tracer, value)
    if isinstance(held, np.dtype) or (isinstance(held, type) and issubclass(held, (np.generic, bool, int, float))):
        return ConstantValue(torch_dtype(tracer, held))
    if isinstance(held, np.generic):  # it has a dtype of its own, unlike a Python number
        dtype = ConstantValue(torch_dtype(tracer, held.dtype))
        return _value_of(tracer, tracer.graph.call(torch.tensor, (ConstantValue(held.item()),), {"dtype": dtype}))
    return value


def torch_dtype(tracer: Tracing, kind: object) -> torch.dtype:
    """torch's dtype for numpy's."""
    found = np.dtype(kind)
    if found.name not in layer.DTYPES or not found.isnative:
        tracer.graph_break("array-dtype", dtype=found)
    return layer.DTYPES[found.name]


def _for_numpy(tracer: Tracing, value: Value, contents: Mapping[int, object] = NO_CONTENTS) -> object:
    """The argument for numpy's own function: for an array its content, taken by the id of its value, or else zeros."""
    if isinstance(value, ArrayValue):
        return contents.get(id(value), value.shadow)
    parts = _parts_of(value)
    if parts is None:
        return _object(tracer, value)
    made = [_for_numpy(tracer, part, contents) for part in parts]
    return slice(*made) if isinstance(value, SliceValue) else (tuple(made) if isinstance(value, TupleValue) else made)


def _object(tracer: Tracing, value: Value) -> object:
    try:
        return value.as_object()
    except NotConstant:
        tracer.graph_break("array-argument", type=value.describe())


# Functions of numpy.


def traced_functions() -> tuple[Callable[..., object], ...]:
    """numpy's functions that torch implements, by name; resolved when they are called."""
    homes = () if np is None else ((np, layer.layer), (np.linalg, layer.layer.linalg), (np.fft, layer.layer.fft))
    found = [getattr(home, name, None) for home, other in homes for name in vars(other) if name[:1] != "_"]
    known = {id(fn): fn for fn in found if callable(fn) and not isinstance(fn, type)}
    return tuple(fn for fn in known.values() if fn.__name__ not in ANSWERED)


# Answered by numpy itself, if all arguments are known.
ANSWERED = ("isscalar", "issubdtype", "result_type", "promote_types", "can_cast", "dtype")


@handles(*traced_functions())
def function(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """A function of numpy: folded for constants; otherwise torch's function in the graph."""
    name = getattr(call.fn, "__name__", "function")
    if name in ("asarray", "array", "ascontiguousarray") and args and args[0].is_tensor:
        shared = numpy_of_tensor(call, args[0])
        args = (shared, *args[1:]) if shared is not None else args
    if name in ("ndim", "shape", "size") and len(args) == 1 and isinstance(args[0], ArrayValue):
        return args[0].get_attribute(call.tracing, name)
    found = layer.function_of_layer(call.fn)
    if found is None:
        return None
    values = [*args, *kwargs.values()]
    if all(value.is_constant for value in values) and type(call.fn) is np.ufunc:
        return folded(call, *args, **kwargs)
    if not values or not any(value.is_tensor for value in values):
        made = folded(call, *args, **kwargs)
        if made is not None:
            return made
    return apply(call.tracing, layer.in_layer(found, name), call.fn, args, kwargs)


def folded(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """numpy's own result, if all arguments are known and it is a number, not an array."""
    name = getattr(call.fn, "__name__", "function")
    if name not in ANSWERED:  # queries about dtypes compute nothing that numpy could report
        _rely_on_quiet(call.tracing, name)
    try:
        plain = [value.as_object() for value in args]
        named = {name: value.as_object() for name, value in kwargs.items()}
        with layer.asking():
            result = call.fn(*plain, **named)
    except (NotConstant, Exception):  # an argument is unknown, or numpy raises, as eager mode will show
        return None
    return call.constant(result) if isinstance(result, (bool, int, float, np.generic, np.dtype, str)) else None


@handles(*(getattr(np, name) for name in ANSWERED if np is not None), *layer.SCALARS)
def answered(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """Queries about dtypes, and numbers made from constants."""
    return folded(call, *args, **kwargs)


# Between tensors and arrays.


@handles(torch.Tensor.numpy)
def numpy_of_tensor(call: Call, self: Value, *, force: Value | None = None) -> Value | None:
    """`tensor.numpy()`: an array over the same memory."""
    if not isinstance(self, TracedTensor) or np is None:
        return None
    if force is not None and force.is_constant and force.as_constant() is True:
        if self.device.type != "cpu" or self.fake.is_conj() or self.fake.is_neg():
            return None
        detached = call.graph_call("detach", self) if self.fake.requires_grad else self
        return numpy_of_tensor(call, detached)
    elif force is not None and not force.is_constant:
        return None
    fake = self.fake
    if fake.requires_grad or self.device.type != "cpu" or self.dtype not in layer.DTYPES.values():
        return None
    if fake.is_conj() or fake.is_neg() or (self.real is not None and self.real.is_inference()):
        return None
    shadow = layer.shadow_of(fake, tuple(int(size) for size in fake.shape))
    return None if shadow is None else ArrayValue(self, shadow)


@handles(*existing("torch.from_numpy"))
def from_numpy(call: Call, array: Value) -> Value | None:
    """`torch.from_numpy(array)`: a tensor over the same memory."""
    if not isinstance(array, ArrayValue) or array.is_scalar or not array.is_writeable:
        call.graph_break("array-as-tensor")
    array.forget()  # writes to the tensor are writes to the array
    return array.tensor.get_attribute(call.tracing, "data")  # with the same memory, and a version counter of its own


def tensor_of(call: Call, data: Value, options: dict[str, Value]) -> Value | None:
    """`torch.tensor(array)`: a copy; None if it is not an array."""
    if not isinstance(data, ArrayValue):
        return None
    if set(options) - {"dtype", "device"}:
        call.graph_break("tensor-of-array")
    result = call.graph_call("clone", data.tensor)
    return call.graph_call("to", result, **options) if options else result


# Objects of the program.


def array_of_program(obj: Elements, source: Source, tracer: Tracing) -> Value:
    """An array of the program: a graph input over its memory."""
    memory = layer.memory_of(obj) if not source.is_fixed else None
    if memory is None or not obj.dtype.isnative or memory.numel() > layer.LARGEST:
        tracer.graph_break("array-dtype", dtype=obj.dtype)
    tracer.guards.equal(AttrSource(AttrSource(source, "flags"), "writeable"), obj.flags.writeable)
    memory_source = CallSource(source, layer.as_tensor, "torch.from_numpy({})", shares=True)
    held = cast(TracedTensor, tracer.objects.wrap(memory, memory_source))
    return ArrayValue(held, None, writeable=obj.flags.writeable, source=source)


def function_of_program(obj: Callable[..., object], source: Source, tracer: Tracing) -> Value:
    """A numpy function, guarded by identity."""
    tracer.guards.same(source, obj)
    return BuiltinValue(obj, source=source)


def value_types() -> tuple[ValueType, ...]:
    """Value types for numpy's arrays and functions, if numpy is installed."""
    if np is None:
        return ()
    kinds = {type(np.exp), type(np.sum)} - {BuiltinFunctionType, type(np.isscalar)}
    return (ValueType(np.ndarray, array_of_program), *(ValueType(kind, function_of_program) for kind in kinds))
