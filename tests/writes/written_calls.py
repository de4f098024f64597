"""Calls of torch that write to an argument, made from the signatures and schemas that torch has, with arguments that
eager mode takes."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import attrs
import torch
from torch import Tensor, nn

NAMESPACES: dict[str, Any] = {
    "torch": torch,
    "torch.nn.functional": nn.functional,
    "torch.special": torch.special,
    "torch.linalg": torch.linalg,
    "torch.fft": torch.fft,
    "torch.sparse": torch.sparse,
    "torch.Tensor": torch.Tensor,
}
# They change what a tensor is, or are for other devices.
ELSEWHERE = ("record_stream", "share_memory", "set_", "resize", "requires_grad_", "data", "cudnn", "miopen", "fbgemm")
NO_DEFAULT: Any = object()
SHAPES: tuple[tuple[int, ...], ...] = ((4, 4), (4,), (2, 4, 4), (1, 2, 4, 4), (1, 2, 4, 4, 4), ())
DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)


@attrs.frozen
class Parameter:
    """One parameter of a function. kind: a word for what it takes."""

    name: str
    kind: str
    default: Any = NO_DEFAULT
    by_keyword_only: bool = False


@attrs.frozen
class Writer:
    """A function that writes to the arguments `written`; to `out` if that is empty. flag: what has to be true for it."""

    label: str
    call: Callable[..., Any]
    parameters: tuple[Parameter, ...]
    written: frozenset[str] = frozenset()
    flag: str = ""


@attrs.frozen(eq=False)
class Call:
    """A call that eager mode takes: its text, with `fn` for the function and t0, t1, ... for tensors. written: names of
    those that are written to. outs: what it gives, to be written to `out`."""

    label: str
    fn: Callable[..., Any]
    text: str
    tensors: dict[str, Tensor]
    written: tuple[str, ...]
    outs: tuple[Tensor, ...] = ()

    def __str__(self) -> str:
        return f"{self.label} {self.text}"


def functions_in_python() -> Iterator[tuple[str, FunctionType, tuple[Parameter, ...]]]:
    """The functions of torch that are written in Python, with their names and parameters."""
    for space, module in NAMESPACES.items():
        for name, fn in sorted(vars(module).items()):
            if not isinstance(fn, FunctionType) or name.startswith("__"):
                continue
            try:
                found = inspect.signature(fn).parameters
            except (TypeError, ValueError):
                continue
            yield f"{space}.{name}", fn, tuple(of_signature(one) for one in found.values())


def by_signature() -> Iterator[Writer]:
    """Functions in Python with a parameter `inplace` or `out`."""
    for label, fn, parameters in functions_in_python():
        names = {one.name for one in parameters}
        if "inplace" in names:
            yield Writer(label, fn, parameters, frozenset((parameters[0].name,)), "inplace")
        if "out" in names:
            yield Writer(label, fn, parameters)


def of_signature(one: inspect.Parameter) -> Parameter:
    kind = "Tensor" if one.annotation is one.empty else getattr(one.annotation, "__name__", str(one.annotation))
    default = NO_DEFAULT if one.default is one.empty else one.default
    return Parameter(one.name, kind, default, one.kind is one.KEYWORD_ONLY)


def by_schema() -> Iterator[Writer]:
    """Functions and methods in C whose schemas mark an argument as written."""
    spelled = spellings()
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if space != "aten" or name not in spelled or any(word in name for word in ELSEWHERE):
            continue
        if name.startswith("_") and not name.startswith("_foreach_"):  # these trust their arguments
            continue
        writes = [one for one in schema.arguments if one.alias_info is not None and one.alias_info.is_write]
        if not writes or not all("Tensor" in str(one.type) for one in writes):
            continue
        outs = {one.name for one in writes if one.kwarg_only}
        parameters = [of_schema(one) for one in schema.arguments if one.name not in outs]
        if outs:
            parameters.append(Parameter("out", "Tensor", None, True))
        for label, call in spelled[name]:
            if outs and label.startswith("torch.Tensor."):  # methods have no `out`
                continue
            label = f"{label}({schema.overload_name})"
            written = frozenset(_python_name(one.name) for one in writes if one.name not in outs)
            yield Writer(label, call, tuple(parameters), written)


def of_schema(one: Any) -> Parameter:
    default = one.default_value if one.has_default_value() else NO_DEFAULT
    return Parameter(_python_name(one.name), str(one.type), default, one.kwarg_only)


def _python_name(name: str) -> str:
    return "input" if name == "self" else name


def spellings() -> dict[str, list[tuple[str, Callable[..., Any]]]]:
    """By names of operators: the functions and methods in C that call them."""
    found: dict[str, list[tuple[str, Callable[..., Any]]]] = {}
    for space, module in NAMESPACES.items():
        for name in sorted(dir(module)):
            fn = getattr(module, name, None)
            if callable(fn) and not isinstance(fn, (type, FunctionType)) and not name.startswith("__"):
                found.setdefault(getattr(fn, "__name__", name), []).append((f"{space}.{name}", fn))
    return found


def modules() -> Iterator[type[nn.Module]]:
    """The classes of modules that are made with `inplace`."""
    for name in sorted(nn.modules.__all__):
        cls = getattr(nn, name)
        if "inplace" in inspect.signature(cls).parameters:
            yield cls


def calls(writer: Writer) -> list[Call]:
    """The call in all forms: what makes it write is given by its place, or by keyword."""
    key = writer.flag or next(iter(sorted(writer.written)), "out")
    by_place = not next(one for one in writer.parameters if one.name == key).by_keyword_only
    found = (_first_taken(writer, "" if place else key) for place in ((True, False) if by_place else (False,)))
    return [call for call in found if call is not None]


def _first_taken(writer: Writer, named: str) -> Call | None:
    """With the first arguments that eager mode takes."""
    for dtype, shape, number in itertools.product(DTYPES, SHAPES, (0, 1, 2)):
        call = _call(writer, named, dtype, shape, number)
        try:
            with torch.no_grad():
                if writer.written:
                    run(call)
                    return call
                # What is given by place ends the arguments that are.
                result = run(attrs.evolve(call, text=call.text.replace("out=OUT", "").replace("OUT", "None")))
                outs = (result,) if isinstance(result, Tensor) else tuple(result)
                if outs and all(isinstance(one, Tensor) for one in outs):
                    call = attrs.evolve(call, outs=outs)
                    run(call)
                    return call
        except Exception:  # these are no arguments for it
            continue
    return None


def run(call: Call) -> Any:
    """Its result in eager mode."""
    outs = tuple(torch.empty_like(one) for one in call.outs)
    out = outs if len(outs) > 1 else next(iter(outs), None)
    names: dict[str, Any] = {name: one.clone() for name, one in call.tensors.items()}
    return eval(call.text, {"fn": call.fn, "OUT": out, **names})


def _call(writer: Writer, named: str, dtype: torch.dtype, shape: tuple[int, ...], number: int) -> Call:
    """A call with guesses for its arguments. named: what is given by keyword."""
    tensors: dict[str, Tensor] = {}
    written: list[str] = []

    def tensor(one: Parameter) -> str:
        name = f"t{len(tensors)}"
        tensors[name] = numbers(shape, torch.bool if one.name == "mask" else dtype)
        if "ind" in one.name:
            tensors[name] = torch.zeros(shape, dtype=torch.int64)
        if one.name in writer.written:
            written.append(name)
        return name

    last = max(n for n, one in enumerate(writer.parameters) if one.name == writer.flag or one.default is NO_DEFAULT)
    parts: list[str] = []
    by_name = False
    for n, one in enumerate(writer.parameters):
        if one.name == writer.flag:
            text = "True"
        elif one.name == "out" and not writer.written:
            text = "OUT"
        elif one.default is not NO_DEFAULT and not (number == 2 and one.kind == "Optional[number]"):
            text = repr(one.default)
        else:
            text = guess(one, tensor, shape, number)
        ends = one.name == named and not (named == "input" and "Tensor." in writer.label)
        by_name = by_name or ends or one.by_keyword_only
        if by_name and one.default is not NO_DEFAULT and text not in ("True", "OUT"):
            continue
        if n > last and text in (repr(one.default), "OUT")[: 2 if writer.written else 1] and (named or writer.written):
            by_name = True
            continue
        parts.append(f"{one.name}={text}" if by_name else text)
    text = f"fn({', '.join(parts)})"
    if writer.label.startswith("torch.Tensor."):
        text = f"{parts[0]}.{writer.call.__name__}({', '.join(parts[1:])})"
    return Call(writer.label, writer.call, text, tensors, tuple(written))


def numbers(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Of both signs, where the dtype has them."""
    count = torch.Size(shape).numel()
    steps = torch.arange(count, dtype=torch.float32)
    found = (((steps - count / 2) * 0.7 + 0.1).sin() + (steps * steps * 0.37).cos() / 2).reshape(shape)
    if dtype is torch.bool:
        return found > 0
    return (found * 2).round().abs().long() if dtype is torch.int64 else found.to(dtype)


def guess(one: Parameter, tensor: Callable[[Parameter], str], shape: tuple[int, ...], number: int) -> str:
    """The text of an argument."""
    kind = one.kind.removeprefix("Optional[").removesuffix("]") if one.kind.startswith("Optional[") else one.kind
    if kind == "Tensor":
        return tensor(one)
    if "Tensor" in kind:
        return f"[{tensor(one)}, {tensor(one)}]"
    by_kind = {
        "number": str(number + 1),
        "float": str(number / 2),
        "bool": "False",
        "str": '"mean"',
        "List[int]": str(list(shape) if number == 2 else [number] * max(len(shape) - 2, 1)),
        "List[float]": "[0.5]",
        "List[bool]": "[True]",
        "ScalarType": "torch.float32",
    }
    return by_kind.get(kind, str(number))
