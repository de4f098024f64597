"""Operations of the loop IR as C++ expressions over values of armature_vec.h: vectors and scalars alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch

from armature.backend_api import OPS, Const, Op, OpForm
from armature_cpu_cpp.vector import accumulator, cpp_type

BOOL_FORMS: Mapping[str, str] = MappingProxyType(
    {
        "add": "{0} | {1}", "mul": "{0} & {1}", "sub": "{0} ^ {1}", "maximum": "{0} | {1}", "minimum": "{0} & {1}",
        "eq": "logical_not({0} ^ {1})", "ne": "{0} ^ {1}", "lt": "logical_not({0}) & {1}",
        "le": "logical_not({0}) | {1}", "gt": "{0} & logical_not({1})", "ge": "{0} | logical_not({1})",
        "bit_not": "logical_not({0})", "abs": "{0}",
    }
)  # fmt: skip
"""What operations mean on bools, where it is not what the C++ operator does with a mask."""


def _infix(op: str) -> OpForm:
    """A C++ infix operator, and its meaning on bools."""

    def form(node: Op, operands: Sequence[str]) -> str:
        if node.args[0].dtype == torch.bool and node.op in BOOL_FORMS:
            return BOOL_FORMS[node.op].format(*operands)
        return f"{operands[0]} {op} {operands[1]}"

    return form


def _call(name: str) -> OpForm:
    """A function of the header, and its meaning on bools."""

    def form(node: Op, operands: Sequence[str]) -> str:
        if node.args[0].dtype == torch.bool and node.op in BOOL_FORMS:
            return BOOL_FORMS[node.op].format(*operands)
        return f"{name}({', '.join(operands)})"

    return form


def _to_type(function: str) -> OpForm:
    return lambda node, operands: f"{function}<{cpp_type(node.dtype)}>({operands[0]})"


POWERS: Mapping[float, str] = MappingProxyType(
    {
        0.5: "sqrt({0})", 1.0: "{0}", 2.0: "{0} * {0}", 3.0: "{0} * {0} * {0}", 4.0: "({0} * {0}) * ({0} * {0})",
        -0.5: "rsqrt({0})", -1.0: "reciprocal({0})", -2.0: "reciprocal({0} * {0})",
    }
)  # fmt: skip


def _pow(node: Op, operands: Sequence[str]) -> str:
    exponent = node.args[1]
    if not node.dtype.is_floating_point:
        return f"power({operands[0]}, {operands[1]})"
    if isinstance(exponent, Const) and float(exponent.value) in POWERS:
        return POWERS[float(exponent.value)].format(operands[0])
    return f"pow({operands[0]}, {operands[1]})"


def _product(node: Op, operands: Sequence[str]) -> str:
    """The product of two factors, which are integers of fewer bits than their sum, or floats."""
    wide = [
        f"cast<{cpp_type(node.dtype)}>({text})" if not arg.dtype.is_floating_point and arg.dtype != node.dtype else text
        for arg, text in zip(node.args, operands, strict=True)
    ]
    return " * ".join(wide)


INFIX = frozenset(
    ("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor",
     "bit_and", "bit_or", "bit_xor")
)  # fmt: skip
SERIES = frozenset(name for name, info in OPS.items() if info.family == "series")
"""Operations that are loops themselves, in a header of their own."""
IMPLICIT = INFIX | frozenset(("maximum", "minimum", "fmax", "fmin", "where"))
"""Operations that take a scalar beside a vector as it is; for others the scalar is spread over the lanes first."""

FORMS: Mapping[str, OpForm] = MappingProxyType(
    {
        "add": _infix("+"), "sub": _infix("-"), "mul": _infix("*"), "div": _infix("/"), "neg": "-{0}",
        "product": _product, "abs": _call("abs"), "sign": _call("sign"), "fma": _call("fma"),
        "floordiv": _call("floordiv"), "truncdiv": _call("truncdiv"), "mod": _call("mod"), "fmod": _call("fmod"),
        "pow": _pow,
        "maximum": _call("maximum"), "minimum": _call("minimum"), "fmax": _call("fmax"), "fmin": _call("fmin"),
        "floor": _call("floor"), "ceil": _call("ceil"), "trunc": _call("trunc"), "round": _call("round_even"),
        "eq": _infix("=="), "ne": _infix("!="), "lt": _infix("<"), "le": _infix("<="), "gt": _infix(">"),
        "ge": _infix(">="), "isnan": _call("isnan"), "isinf": _call("isinf"), "signbit": _call("signbit"),
        "logical_and": _infix("&"), "logical_or": _infix("|"), "logical_xor": _infix("^"),
        "logical_not": _call("logical_not"),
        "bit_and": _infix("&"), "bit_or": _infix("|"), "bit_xor": _infix("^"),
        "bit_not": lambda node, o: f"logical_not({o[0]})" if node.dtype == torch.bool else f"~{o[0]}",
        "shift_left": _call("shift_left"), "shift_right": _call("shift_right"),
        "where": _call("where"), "cast": _to_type("cast"), "bitcast": _to_type("bits_as"),
        "sqrt": _call("sqrt"), "rsqrt": _call("rsqrt"), "reciprocal": _call("reciprocal"),
        "exp": _call("exp"), "exp2": _call("exp2"), "expm1": _call("expm1"), "log": _call("log"),
        "log2": _call("log2"), "log10": _call("log10"), "log1p": _call("log1p"), "sigmoid": _call("sigmoid"),
        "sin": _call("sin"), "cos": _call("cos"), "tan": _call("tan"), "asin": _call("asin"), "acos": _call("acos"),
        "atan": _call("atan"), "sinh": _call("sinh"), "cosh": _call("cosh"), "tanh": _call("tanh"),
        "asinh": _call("asinh"), "acosh": _call("acosh"), "atanh": _call("atanh"), "atan2": _call("atan2"),
        "hypot": _call("hypot"), "copysign": _call("copysign"), "erf": _call("erf"), "erfc": _call("erfc"),
        "erfinv": _call("erfinv"), "lgamma": _call("lgamma"), "nextafter": _call("nextafter"),
        **{name: _call(name) for name in SERIES},
        "check_index": "check_index({0}, {1}, bad)",
    }
)  # fmt: skip

STORED_AS_THEY_ARE = frozenset(("cast", "bitcast", "where"))


def in_float(node: Op, form: OpForm, operands: Sequence[str]) -> str:
    """An operation on 16-bit floats: computed in float, as eager does, and rounded at its end."""
    wide = [
        f"cast<float>({text})" if accumulator(arg.dtype) != arg.dtype else text
        for arg, text in zip(node.args, operands, strict=True)
    ]
    text = form.format(*wide) if isinstance(form, str) else form(node, wide)
    return text if accumulator(node.dtype) == node.dtype else f"cast<{cpp_type(node.dtype)}>({text})"
