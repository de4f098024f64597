"""numpy as torch implements it: `torch._numpy`, numpy's functions on tensors in place of arrays. Works without numpy.

Graphs call functions of tensors: `in_layer` and `operator_on` make them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch._numpy

numpy: Any
try:
    numpy = importlib.import_module("numpy")
except ImportError:  # an optional dependency of torch
    numpy = None

layer: Any = torch._numpy
Array: Any = layer.ndarray
_NAMES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "complex64", "complex128",
)  # fmt: skip
DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name) for name in _NAMES if not name.startswith("uint") or name == "uint8"
}
"""torch's dtypes by the names that numpy has for its own."""
SCALARS: frozenset[type] = frozenset() if numpy is None else frozenset(numpy.dtype(name).type for name in _NAMES)
"""numpy's scalars: immutable numbers, each of a fixed dtype."""
TAKEN_FOR_FLOATS: frozenset[type] = frozenset() if numpy is None else frozenset((numpy.bool_, numpy.complex64))
"""The scalars that operators treat as the float to which they convert: a bool's type and an imaginary part are lost."""
NUMBERS: frozenset[type] = frozenset(kind for kind in SCALARS - TAKEN_FOR_FLOATS if not issubclass(kind, complex))
"""The other scalars that hold an int or a float."""
DTYPE_TYPES: frozenset[type] = frozenset() if numpy is None else frozenset(type(numpy.dtype(name)) for name in _NAMES)


def as_tensor(array: Any) -> torch.Tensor | None:
    """A tensor over the memory of an array; None if torch does not support the dtype."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about arrays that are not writable
        try:
            return torch.from_numpy(array)
        except (TypeError, ValueError):
            return None


def memory_of(array: Any) -> torch.Tensor | None:
    """Like `as_tensor`, but makes a real tensor even while tracing, when new tensors would be fakes."""
    with torch._C._DisableTorchDispatch():
        return as_tensor(array)


def as_array(tensor: torch.Tensor) -> Any:
    """The array over a tensor's memory. Its base is an array too, because programs read `a.base.size`, which is a
    method of tensors. The caller has already checked the tensor's class for overrides, so they are not called again."""
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.numpy()[...]


def as_scalar(tensor: torch.Tensor) -> Any:
    """The numpy scalar that a 0-d tensor holds."""
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.numpy()[()]


def number_in(scalar: Any) -> Any:
    """The Python number as which torch's operators treat a numpy scalar."""
    return scalar.item()


def is_array(obj: object) -> bool:
    """Whether it is an array or a scalar of numpy."""
    return numpy is not None and isinstance(obj, (numpy.ndarray, numpy.generic))


def comparable(array: Any) -> torch.Tensor:
    """A tensor with an array's dtype, sizes, strides and values."""
    return torch.from_numpy(numpy.asarray(array))


def function_of_layer(fn: Any) -> Callable[..., Any] | None:
    """torch's implementation of a numpy function."""
    module, name = str(getattr(fn, "__module__", None) or "numpy"), getattr(fn, "__name__", "")
    for known, home in (("numpy.linalg", layer.linalg), ("numpy.fft", layer.fft), ("numpy", layer)):
        if module.startswith(known):
            public = getattr(functools.reduce(getattr, known.split(".")[1:], numpy), name, None)
            found = getattr(home, name, None) if public is fn else None
            return found if callable(found) and not isinstance(found, type) else None
    return None


@functools.lru_cache(maxsize=1024)
def in_layer(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function of the layer as a function of tensors. Other arguments are passed unchanged."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return unwrapped(fn(*wrapped(args), **wrapped(kwargs)))

    call.__name__ = call.__qualname__ = f"numpy_{name}"
    return call


def method_of_layer(name: str) -> Callable[..., Any]:
    """A method of arrays, as a function of tensors."""
    return _method(name)


@functools.lru_cache(maxsize=1024)
def _method(name: str) -> Callable[..., Any]:
    def method(array: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(array, name)(*args, **kwargs)

    return in_layer(method, name)


@functools.lru_cache(maxsize=1024)
def attribute_of_layer(name: str) -> Callable[..., Any]:
    """An attribute of arrays, as a function of tensors."""
    return in_layer(operator.attrgetter(name), name)


def wrapped(value: Any) -> Any:
    """Replace tensors by arrays of the layer, also in tuples, lists, dicts and slices."""
    if isinstance(value, torch.Tensor):
        return Array(value)
    if isinstance(value, (tuple, list)):
        return type(value)([wrapped(item) for item in value])
    if isinstance(value, dict):
        return {name: wrapped(item) for name, item in value.items()}
    return value


def unwrapped(value: Any) -> Any:
    """The inverse of `wrapped`."""
    if isinstance(value, Array):
        return value.tensor
    if isinstance(value, (tuple, list)):
        return type(value)([unwrapped(item) for item in value])
    return value


def with_strides(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """A copy with other strides."""
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


# numpy's own result, found by calling it with arrays of zeros.


def shadow_of(tensor: torch.Tensor, sizes: tuple[int, ...]) -> Any:
    """An array of zeros with the dtype, sizes and strides of a tensor, as `tensor.numpy()` has them; None if too
    large."""
    last = sum((size - 1) * int(stride) for size, stride in zip(sizes, tensor.stride())) if 0 not in sizes else -1
    if last >= LARGEST:
        return None
    held = numpy.zeros(last + 1, dtype=str(tensor.dtype).removeprefix("torch."))
    strides = [int(stride) * held.itemsize for stride in tensor.stride()]
    return numpy.ndarray(sizes, held.dtype, held, 0, strides)


LARGEST = 1 << 26  # limit in elements


@contextlib.contextmanager
def asking() -> Iterator[None]:
    """A context in which numpy is called with zeros."""
    with warnings.catch_warnings(), numpy.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


ERRORS = ("divide", "over", "under", "invalid")
"""The errors of floating point for which numpy can be told what to do."""


def errors_of(ways: Mapping[str, str]) -> dict[str, str]:
    """The settings for single errors that arguments of `numpy.errstate` stand for."""
    common = dict.fromkeys(ERRORS, ways["all"]) if "all" in ways else {}
    return common | {name: way for name, way in ways.items() if name != "all"}


def set_errors(ways: Mapping[str, str]) -> dict[str, str]:
    """Tell numpy what to do at errors of floating point; returns what it did before."""
    before: dict[str, str] = numpy.seterr(**ways)
    return before


def reports_errors(inside: tuple[tuple[str, str], ...] = ()) -> bool:
    """Whether numpy is set to do more than warn about a division by zero or overflow: the layer reports neither.
    inside: settings that go before numpy's own."""
    reports = set({**numpy.geterr(), **dict(inside)}.values()) - {"ignore"}
    if not reports <= {"warn"}:
        return True
    heeding = (action for action, _, kind, _, _ in warnings.filters if issubclass(RuntimeWarning, kind))
    return bool(reports) and next(heeding, "default") == "error"


def calls_for_errors() -> bool:
    """Whether numpy is set to do something else than warn or raise at an error: call a function, print or log."""
    return not {"ignore", "warn", "raise"}.issuperset(numpy.geterr().values())


def share_memory(first: Any, second: Any) -> bool:
    """Whether two arrays lie in the same memory."""
    return bool(numpy.may_share_memory(first, second))
