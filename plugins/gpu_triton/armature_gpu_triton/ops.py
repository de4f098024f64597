"""The operations of the loop IR as Triton expressions: one row each.

A form takes the printed operands. Operands and result have the types of the IR's dtypes, except that 16-bit floats are
widened to float32 before and rounded after every operation (`kernel_printer`): a form sees float32, float64, integers,
bools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch

from armature.backend_api import OPS, Buffer, Const, Node, Op, OpForm

HALVES = frozenset((torch.float16, torch.bfloat16))
FLOAT8 = frozenset((torch.float8_e4m3fn, torch.float8_e5m2))  # only moved: kernels see their bits
UNSIGNED = frozenset((torch.uint8,))

TYPES: Mapping[torch.dtype, str] = MappingProxyType(
    {
        torch.bool: "tl.int1",
        torch.uint8: "tl.uint8",
        torch.int8: "tl.int8",
        torch.int16: "tl.int16",
        torch.int32: "tl.int32",
        torch.int64: "tl.int64",
        torch.float16: "tl.float16",
        torch.bfloat16: "tl.bfloat16",
        torch.float32: "tl.float32",
        torch.float64: "tl.float64",
        **dict.fromkeys(FLOAT8, "tl.uint8"),
    }
)
# The pointer type of a dtype in a kernel's signature; bools are stored as bytes of 0 and 1.
POINTERS: Mapping[torch.dtype, str] = MappingProxyType(
    {
        torch.bool: "*i1",
        torch.uint8: "*u8",
        torch.int8: "*i8",
        torch.int16: "*i16",
        torch.int32: "*i32",
        torch.int64: "*i64",
        torch.float16: "*fp16",
        torch.bfloat16: "*bf16",
        torch.float32: "*fp32",
        torch.float64: "*fp64",
        **dict.fromkeys(FLOAT8, "*u8"),
    }
)
NUMBER = "fp64"  # the type of a number that is passed by value


def is_number(buffer: Buffer, device: torch.device) -> bool:
    """Whether kernels of a device take the element of a tensor of the CPU by value."""
    return buffer.device.type == "cpu" != device.type and (buffer.shape, buffer.dtype) == ((), torch.float64)


def argument_type(buffer: Buffer, device: torch.device) -> str:
    """The type of an argument in the signature of a kernel of a device."""
    return NUMBER if is_number(buffer, device) else POINTERS[buffer.dtype]


WIDER: Mapping[torch.dtype, str] = MappingProxyType({torch.int8: "tl.int32"})
BITS: Mapping[torch.dtype, str] = MappingProxyType({torch.float32: "tl.int32", torch.float64: "tl.int64"})


def kind(dtype: torch.dtype) -> str:
    """bool, uint, int or float."""
    if dtype == torch.bool:
        return "bool"
    if dtype in FLOAT8:
        return "uint"
    if dtype.is_floating_point:
        return "float"
    return "uint" if dtype in UNSIGNED else "int"


def by_kind(**forms: str) -> Callable[[Op, Sequence[str]], str]:
    """A form for each kind of the first operand; `float32` and `float64` may have separate rows, `int` covers uint."""

    def form(node: Op, operands: Sequence[str]) -> str:
        dtype = node.args[0].dtype
        names = [kind(dtype)]
        if names[0] == "float":
            names.insert(0, "float64" if dtype == torch.float64 else "float32")
        if names[0] == "uint":
            names.append("int")
        return next(forms[n] for n in names if n in forms).format(*operands)

    return form


def cast_text(value: str, source: torch.dtype, target: torch.dtype) -> str:
    """A conversion with ATen's semantics: floats to integers truncate, to bool means `!= 0`, to 16-bit floats round to
    even."""
    if source == target:
        return value
    if target == torch.bool:
        return f"helpers.nonzero({widen(value, source)})"
    if source == torch.bfloat16:
        return cast_text(f"helpers.from_bfloat16({value})", torch.float32, target)
    if target == torch.bfloat16:
        single = value if source == torch.float32 else f"{value}.to(tl.float32)"
        return f"helpers.to_bfloat16({single})"
    return f"{value}.to({TYPES[target]})"


def widen(value: str, dtype: torch.dtype) -> str:
    """A 16-bit float as float32; anything else unchanged."""
    return cast_text(value, dtype, torch.float32) if dtype in HALVES else value


def _cast(node: Op, operands: Sequence[str]) -> str:
    return cast_text(operands[0], node.args[0].dtype, node.dtype)


def _bitcast(node: Op, operands: Sequence[str]) -> str:
    return f"{operands[0]}.to({TYPES[node.dtype]}, bitcast=True)"


def _signbit(node: Op, operands: Sequence[str]) -> str:
    dtype = node.args[0].dtype
    if kind(dtype) != "float":
        return f"({operands[0]} < 0)"
    return f"({operands[0]}.to({BITS.get(dtype, 'tl.int32')}, bitcast=True) < 0)"


def _shift(name: str) -> Callable[[Op, Sequence[str]], str]:
    def form(node: Op, operands: Sequence[str]) -> str:
        return f"helpers.{name}({operands[0]}, {operands[1]}, {node.dtype.itemsize * 8})"

    return form


# Infix operations: a literal takes the type of the other operand.
INFIX: Mapping[str, str] = MappingProxyType(
    {
        "add": "+", "sub": "-", "mul": "*", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
        "bit_and": "&", "bit_or": "|", "bit_xor": "^", "logical_and": "&", "logical_or": "|", "logical_xor": "^",
    }
)  # fmt: skip

# Operations that are functions of libdevice of the same name.
LIBDEVICE = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "copysign", "cosh", "erfc", "erfinv", "expm1",
    "hypot", "lgamma", "log10", "log1p", "nextafter", "sinh", "tan", "tanh", "erf",
)  # fmt: skip


def _libdevice(name: str) -> str:
    operands = ", ".join(f"{{{k}}}" for k in range(OPS[name].arity))
    return f"libdevice.{name}({operands})"


def _product(node: Op, operands: Sequence[str]) -> str:
    """The product of two factors, in a kernel that computes a matrix product with ordinary loops."""
    wide = WIDER.get(node.args[0].dtype)
    return " * ".join(f"{text}.to({wide})" if wide else text for text in operands)


FORMS: Mapping[str, OpForm] = MappingProxyType(
    {
        **{name: f"{{0}} {sign} {{1}}" for name, sign in INFIX.items()},
        **{name: _libdevice(name) for name in LIBDEVICE},
        "product": _product,
        "logaddexp": "helpers.logaddexp({0}, {1})",
        "neg": "-{0}",
        "abs": by_kind(float="tl.abs({0})", int="tl.abs({0})", uint="{0}", bool="{0}"),
        "sign": by_kind(float="helpers.sign({0})", int="helpers.sign({0})", uint="({0} > 0).to({0}.dtype)", bool="{0}"),
        "div": by_kind(float64="{0} / {1}", float32="tl.div_rn({0}, {1})"),
        "floordiv": by_kind(
            float="helpers.floordiv_float({0}, {1})", int="helpers.floordiv_int({0}, {1})", uint="{0} // {1}"
        ),
        "truncdiv": by_kind(
            float64="libdevice.trunc({0} / {1})", float32="libdevice.trunc(tl.div_rn({0}, {1}))", int="{0} // {1}"
        ),
        "mod": by_kind(float="helpers.mod_float({0}, {1})", int="helpers.mod_int({0}, {1})", uint="{0} % {1}"),
        "fmod": by_kind(float="libdevice.fmod({0}, {1})", int="{0} % {1}"),
        "pow": by_kind(float="libdevice.pow({0}, {1})", int="helpers.pow_int({0}, {1})"),
        "fma": by_kind(float="tl.fma({0}, {1}, {2})", int="{0} * {1} + {2}"),
        "maximum": by_kind(float="helpers.maximum({0}, {1})", int="tl.maximum({0}, {1})", bool="{0} | {1}"),
        "minimum": by_kind(float="helpers.minimum({0}, {1})", int="tl.minimum({0}, {1})", bool="{0} & {1}"),
        "fmax": by_kind(float="helpers.fmax({0}, {1})", int="tl.maximum({0}, {1})", bool="{0} | {1}"),
        "fmin": by_kind(float="helpers.fmin({0}, {1})", int="tl.minimum({0}, {1})", bool="{0} & {1}"),
        "floor": by_kind(float="tl.floor({0})", int="{0}", bool="{0}"),
        "ceil": by_kind(float="tl.ceil({0})", int="{0}", bool="{0}"),
        "trunc": by_kind(float="libdevice.trunc({0})", int="{0}", bool="{0}"),
        "round": by_kind(float="libdevice.rint({0})", int="{0}", bool="{0}"),
        "isnan": by_kind(float="{0} != {0}", int="{0} != {0}", bool="{0} != {0}"),
        "isinf": by_kind(float='tl.abs({0}) == float("inf")', int="{0} != {0}", bool="{0} != {0}"),
        "signbit": _signbit,
        "logical_not": "~{0}",
        "bit_not": by_kind(uint="{0} ^ 255", int="~{0}", bool="~{0}"),
        "shift_left": _shift("shift_left"),
        "shift_right": _shift("shift_right"),
        "where": "tl.where({0}, {1}, {2})",
        "cast": _cast,
        "bitcast": _bitcast,
        "sqrt": by_kind(float64="tl.sqrt({0})", float32="tl.sqrt_rn({0})"),
        "rsqrt": "tl.rsqrt({0})",
        "reciprocal": by_kind(float64="1.0 / {0}", float32="helpers.reciprocal({0})"),
        "exp": "tl.exp({0})",
        "exp2": "tl.exp2({0})",
        "log": "tl.log({0})",
        "log2": "tl.log2({0})",
        "sigmoid": by_kind(float64="1.0 / (1.0 + tl.exp(-{0}))", float32="helpers.sigmoid({0})"),
        "sin": "tl.sin({0})",
        "cos": "tl.cos({0})",
        "uniform": "helpers.uniform({0}, {1}, {2}, {3}, {4})",
        "check_index": "helpers.check_index({0}, {1}, {mask})",
    }
)


# For results that are rounded to 16 bits: forms with fewer instructions, right to about 16 digits of a float32.
ROUGH_FORMS: Mapping[str, OpForm] = MappingProxyType({"sigmoid": "helpers.rough_sigmoid({0})"})
ROUGH_SUMS: Mapping[str, str] = MappingProxyType({"erf": "one_plus_erf", "tanh": "one_plus_tanh"})


def sum_with_one(node: Op) -> tuple[str, Node] | None:
    """The function of `helpers` that computes `erf(x) + 1` or `tanh(x) + 1`, which the forms of GELU and their
    derivatives use, and x; None for another operation."""
    if node.op != "add" or node.dtype != torch.float32:
        return None
    left, right = node.args
    if isinstance(left, Op) and left.op in ROUGH_SUMS and isinstance(right, Const) and right.value == 1:
        return (ROUGH_SUMS[left.op], left.args[0]) if left.args[0].dtype == torch.float32 else None
    return None
