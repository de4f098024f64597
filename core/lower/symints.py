"""Converts symbolic integers from torch.SymInt to the index algebra of the loop IR."""

from __future__ import annotations

import hashlib
from typing import Any

import sympy
import torch

from armature.errors import LoweringError
from armature.lower import index
from armature.lower.index import Index, Size
from armature.torch_abi import symbols

UNBOUNDED = -(1 << 62)  # below any int that a size or index can be


def to_index(value: int | torch.SymInt) -> Index:
    """The index expression of an int or a SymInt. Errors: LoweringError for an operation without an index form."""
    if isinstance(value, int):
        return int(value)
    node = value.node
    constant = node.maybe_as_int()
    if constant is not None:
        return int(constant)
    return _convert(node.expr, node.shape_env)


def _size(symbol: sympy.Symbol, shape_env: object) -> Size:
    hints = getattr(shape_env, "backed_var_to_val", None)
    if hints is None:
        hints = getattr(shape_env, "var_to_val", {})
    ranges: Any = getattr(shape_env, "var_to_range", {})
    if symbol not in hints:
        raise LoweringError(op=str(symbol), message="a size that is known only when the program runs")
    lower = ranges[symbol].lower if symbol in ranges else sympy.Integer(0)
    return Size(str(symbol), int(hints[symbol]), int(lower) if lower.is_Integer else UNBOUNDED)


def derived(value: torch.SymFloat) -> Size:
    """The representation of a float computed from sizes."""
    return _derived(value.node.expr, value.node.shape_env)


def _derived(expr: sympy.Expr, shape_env: Any) -> Size:
    """A size of its own for an expression that the index algebra can't represent; computed before the kernels run."""
    definition = symbols.text(expr)
    if "math." in definition or "torch." in definition:
        raise LoweringError(op=str(expr), message=f"no index form for {type(expr).__name__}")
    parts = {symbol: _size(symbol, shape_env).hint for symbol in expr.free_symbols}
    lower = shape_env.bound_sympy(expr).lower
    name = f"derived_{hashlib.sha1(definition.encode()).hexdigest()[:8]}"
    return Size(name, int(expr.xreplace(parts)), int(lower) if lower.is_Integer else UNBOUNDED, definition)


def _convert(expr: sympy.Expr, shape_env: Any) -> Index:
    if isinstance(expr, sympy.Integer):
        return int(expr)
    if isinstance(expr, sympy.Symbol):
        return _size(expr, shape_env)
    kind = type(expr).__name__
    if kind == "Pow" and isinstance(expr.args[1], sympy.Integer) and expr.args[1] > 0:
        return index.numel([_convert(expr.args[0], shape_env)] * int(expr.args[1]))
    if kind not in ("Add", "Mul", "FloorDiv", "CleanDiv", "Mod", "PythonMod"):
        return _derived(expr, shape_env)
    parts = [_convert(arg, shape_env) for arg in expr.args]
    if kind == "Add":
        return index.add(*parts)
    if kind == "Mul":
        return index.numel(parts)
    return index.floordiv(*parts) if kind in ("FloorDiv", "CleanDiv") else index.mod(*parts)
