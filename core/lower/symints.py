"""Symbolic integers: from torch.SymInt to the index algebra of the loop IR."""

from __future__ import annotations

from typing import Any

import sympy  # type: ignore[import-untyped]
import torch

from armature.errors import LoweringError
from armature.lower import index
from armature.lower.index import Index, Size


def to_index(value: int | torch.SymInt) -> Index:
    """The index expression of an int or a SymInt. Errors: LoweringError when an operation has no index form."""
    if isinstance(value, int):
        return int(value)
    node = value.node
    constant = node.maybe_as_int()
    if constant is not None:
        return int(constant)
    return _convert(node.expr, node.shape_env)


def symbol_name(value: object) -> str | None:
    """`s0` when the value is a SymInt that is one lone symbol, else None."""
    if not isinstance(value, torch.SymInt):
        return None
    expr = value.node.expr
    return str(expr) if isinstance(expr, sympy.Symbol) else None


def _size(symbol: sympy.Symbol, shape_env: object) -> Size:
    hints = getattr(shape_env, "backed_var_to_val", None) or getattr(shape_env, "var_to_val", {})
    ranges: Any = getattr(shape_env, "var_to_range", {})
    if symbol not in hints:
        raise LoweringError(op=str(symbol), message="a size that is known only when the program runs")
    lower = ranges[symbol].lower if symbol in ranges else sympy.Integer(0)
    return Size(str(symbol), int(hints[symbol]), int(lower) if lower.is_Integer else 0)


def _convert(expr: sympy.Expr, shape_env: object) -> Index:
    if isinstance(expr, sympy.Integer):
        return int(expr)
    if isinstance(expr, sympy.Symbol):
        return _size(expr, shape_env)
    kind = type(expr).__name__
    if kind == "Pow" and isinstance(expr.args[1], sympy.Integer) and expr.args[1] > 0:
        return index.numel([_convert(expr.args[0], shape_env)] * int(expr.args[1]))
    if kind not in ("Add", "Mul", "FloorDiv", "CleanDiv", "Mod", "PythonMod"):
        raise LoweringError(op=str(expr), message=f"no index form for {kind}")
    parts = [_convert(arg, shape_env) for arg in expr.args]
    if kind == "Add":
        return index.add(*parts)
    if kind == "Mul":
        return index.numel(parts)
    return index.floordiv(*parts) if kind in ("FloorDiv", "CleanDiv") else index.mod(*parts)
