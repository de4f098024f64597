"""The operations of the loop IR in NumPy: one row each. An operator that needs another operation stays an ATen call."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from armature.backend_api import OPS, Const, OpForm

DTYPES: Mapping[torch.dtype, str] = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.uint8: "uint8",
    torch.bool: "bool_",
}
"""NumPy's names. It has no bfloat16: what computes in it is not lowered, and runs as ATen."""

SAME_NAME = (
    "maximum", "minimum", "fmod", "copysign", "hypot", "nextafter", "fmax", "fmin", "floor",
    "ceil", "trunc", "isnan", "isinf", "signbit", "logical_and", "logical_or", "logical_xor", "logical_not",
    "where", "sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p",
    "sin", "cos", "tan", "sinh", "cosh", "tanh",
)  # fmt: skip
OTHER_NAME = {
    "abs": "absolute", "round": "rint", "floordiv": "floor_divide", "mod": "remainder", "pow": "power",
    "bit_and": "bitwise_and", "bit_or": "bitwise_or", "bit_xor": "bitwise_xor", "bit_not": "bitwise_not",
    "shift_left": "left_shift", "shift_right": "right_shift",
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2",
    "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
}  # fmt: skip
SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip


def _call(function: str, op: str) -> str:
    """`np.exp({0})`, with as many operands as the operation takes."""
    return f"np.{function}({', '.join(f'{{{n}}}' for n in range(OPS[op].arity))})"


FORMS: Mapping[str, OpForm] = {
    **{op: _call(op, op) for op in SAME_NAME},
    **{op: _call(function, op) for op, function in OTHER_NAME.items()},
    **{op: f"{{0}} {sign} {{1}}" for op, sign in SIGNS.items()},
    "neg": "-{0}",
    "sign": "np.nan_to_num(np.sign({0}))",  # 0 for NaN in torch
    "fma": "{0} * {1} + {2}",
    "rsqrt": "1 / np.sqrt({0})",
    "reciprocal": "1 / {0}",
    "sigmoid": "1 / (1 + np.exp(-{0}))",
    "truncdiv": "rt.truncdiv({0}, {1})",
    "cast": lambda node, operands: f"rt.cast({operands[0]}, np.{DTYPES[node.dtype]})",
    "bitcast": lambda node, operands: f"{operands[0]}.view(np.{DTYPES[node.dtype]})",
}


def constant(node: Const) -> str:
    """A literal with its dtype, because NumPy would choose one."""
    text = repr(node.value) if math.isfinite(node.value) else repr(str(node.value))
    return f"np.{DTYPES[node.dtype]}({text})"
