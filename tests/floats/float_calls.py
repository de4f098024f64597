"""Calls of torch with a float that varies, made from the signatures and schemas that torch has, with arguments that eager
mode takes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import attrs
import torch
from torch import Tensor

from tests.writes.written_calls import NO_DEFAULT, Parameter, functions_in_python, numbers, of_schema, spellings

KINDS = frozenset({"float", "number", "Optional[float]", "Optional[number]"})
# For other devices or layouts; they trust their arguments; for matrices of full rank.
ELSEWHERE = (
    "cudnn",
    "miopen",
    "fbgemm",
    "sparse",
    "quantize",
    "fake_quant",
    "fused",
    "mkldnn",
    "_histogramdd",
    "qparams",
    "lstm",
    "rnn_",
    "gru",
    "lstsq",
    "._",
)
SHAPES: tuple[tuple[int, ...], ...] = ((4, 4), (4,), (2, 4, 4), (1, 2, 4, 4), (1, 2, 4, 4, 4), ())
DTYPES = (torch.float32, torch.int64, torch.bool)
# Six values for the argument; the first list that eager mode takes.
VALUES: tuple[tuple[float, ...], ...] = (
    (0.3, 0.45, 0.6, 0.75, 0.85, 0.2),
    (1.25, 2.5, 1.75, 3.5, 2.25, 1.5),
    (0.01, 0.02, 0.005, 0.03, 0.04, 0.015),
)
PLAIN = {
    "number": "0.5", "float": "0.5", "bool": "False", "str": '"mean"', "ScalarType": "torch.float32",
    "List[int]": "[2, 2]", "List[float]": "[0.5]", "List[bool]": "[True]",
}  # fmt: skip


@attrs.frozen(eq=False)
class FloatCall:
    """A call that eager mode takes with six values: its text, with `fn` for the function, t0, t1, ... for tensors and
    `value` for the float that varies."""

    label: str
    fn: Callable[..., Any]
    text: str
    tensors: dict[str, Tensor]
    values: tuple[float, ...]
    kind: str = ""  # of the argument in the schema; "" for functions in Python

    def __str__(self) -> str:
        return self.label


def functions() -> Iterator[tuple[str, Callable[..., Any], tuple[Parameter, ...]]]:
    """The functions and methods of torch, with their parameters: those in Python by signature, those in C by schema."""
    yield from (found for found in functions_in_python() if not found[0].rpartition(".")[2].startswith("_"))
    spelled = spellings()
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        outs = any(
            one.alias_info is not None and one.alias_info.is_write and one.kwarg_only for one in schema.arguments
        )
        tensors = any("Tensor" in str(one.type) for one in (*schema.arguments, *schema.returns))
        if space != "aten" or name.startswith("_") or outs or not tensors:
            continue
        for label, call in spelled.get(name, ()):
            yield f"{label}({schema.overload_name})", call, tuple(map(of_schema, schema.arguments))


def calls() -> Iterator[FloatCall | str]:
    """A call for each argument of each function that may be a float; a label where eager mode takes none of those
    tried."""
    for label, fn, parameters in functions():
        if any(word in label for word in ELSEWHERE):
            continue
        for one in parameters:
            if one.kind in KINDS or type(one.default) is float:
                made = _first_taken(f"{label}:{one.name}", fn, parameters, one)
                kind = "" if isinstance(fn, FunctionType) else one.kind
                yield f"{label}:{one.name}" if made is None else attrs.evolve(made, kind=kind)


def _first_taken(
    label: str, fn: Callable[..., Any], parameters: tuple[Parameter, ...], varied: Parameter
) -> FloatCall | None:
    for dtype, shape, number, values in itertools.product(DTYPES, SHAPES, (0, 1, 2), VALUES):
        call = _call(label, fn, parameters, varied, dtype, shape, number, values)
        if taken(call):
            return call
    return None


def taken(call: FloatCall) -> bool:
    """Whether eager mode makes the call with all values, and gives something that depends on tensors or makes some."""
    try:
        for value in call.values:
            if not any(isinstance(one, Tensor) for one in leaves(run(call, value))):
                return False
    except Exception:
        return False
    return True


def leaves(value: Any) -> list[Any]:
    return [leaf for one in value for leaf in leaves(one)] if isinstance(value, (list, tuple)) else [value]


def run(call: FloatCall, value: float) -> Any:
    """Its result in eager mode."""
    names: dict[str, Any] = {name: one.clone() for name, one in call.tensors.items()}
    return eval(call.text, {"fn": call.fn, "torch": torch, "value": value, **names})


def _call(
    label: str,
    fn: Callable[..., Any],
    parameters: tuple[Parameter, ...],
    varied: Parameter,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    number: int,
    values: tuple[float, ...],
) -> FloatCall:
    tensors: dict[str, Tensor] = {}

    def tensor(one: Parameter) -> str:
        name = f"t{len(tensors)}"
        if "ind" in one.name or (one.name in ("offsets", "target") and number == 2):
            tensors[name] = torch.zeros(shape, dtype=torch.int64)
        elif "mask" in one.name or one.name == "condition":
            tensors[name] = numbers(shape, torch.bool)
        else:
            tensors[name] = numbers(shape, dtype)
        changed = fn.__name__.endswith("_") and len(tensors) == 1
        return f"{name}.clone()" if changed else name

    parts: list[str] = []
    by_name = False
    for one in parameters:
        by_name = by_name or one.by_keyword_only
        if one is varied:
            text = "value"
        elif one.default is not NO_DEFAULT:
            by_name = True
            continue
        else:
            text = guess(one, tensor, shape, number)
        parts.append(f"{one.name}={text}" if by_name else text)
    text = f"fn({', '.join(parts)})"
    if label.startswith("torch.Tensor."):
        text = f"{parts[0]}.{fn.__name__}({', '.join(parts[1:])})"
    return FloatCall(label, fn, text, tensors, values)


def guess(one: Parameter, tensor: Callable[[Parameter], str], shape: tuple[int, ...], number: int) -> str:
    """The text of an argument."""
    kind = one.kind.removeprefix("Optional[").removesuffix("]") if one.kind.startswith("Optional[") else one.kind
    if kind == "Tensor":
        return tensor(one)
    if "Tensor" in kind:
        return f"[{tensor(one)}, {tensor(one)}]"
    return PLAIN.get(kind, str(number))
