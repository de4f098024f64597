"""Seam to torch's symbolic sizes: a ShapeEnv that records the user's lines, and expressions as text or graph nodes."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import sympy
import torch
from sympy.logic.boolalg import BooleanFunction
from torch import fx
from torch._guards import Source as TorchSource
from torch.fx.experimental import sym_node
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, free_unbacked_symbols
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.printers import PythonPrinter
from torch.utils._sympy.reference import PythonReferenceAnalysis
from torch.utils._sympy.symbol import SymT, symbol_is_type

from armature.torch_abi.jagged import is_ragged
from armature.torch_abi.overrides import Asking

SYMBOLIC: tuple[type[Any], ...] = (torch.SymInt, torch.SymFloat, torch.SymBool)
NAMESPACE: Mapping[str, Any] = {
    "math": math, "torch": torch, "max": max, "min": min, "abs": abs, "round": round, "inf": math.inf, "nan": math.nan,
}  # fmt: skip
"""What the text of an expression may name, besides its symbols."""

__all__ = [
    "ASSERT",
    "MATH_FUNCTIONS",
    "NAMESPACE",
    "SMALLEST_SIZE",
    "SYMBOLIC",
    "TAKES_NUMBERS",
    "LateGuard",
    "Symbols",
    "as_node",
    "assume",
    "depends_on_numbers",
    "exact_sum",
    "expression",
    "fill",
    "has_own_strides",
    "hint",
    "is_unbacked",
    "plain",
    "single_symbol",
    "symbols_of",
    "text",
    "was_unbacked",
    "words",
]


ASSERT: Callable[..., None] = torch.ops.aten._assert_scalar.default
"""`ASSERT(condition, message)` in a graph: a RuntimeError where the condition does not hold."""
TAKES_NUMBERS = "takes_numbers"  # in the meta of a node whose operator reads a number from a tensor
# The functions of `math` on one number that torch also has for symbolic numbers.
MATH_FUNCTIONS: Mapping[Callable[..., object], Callable[..., object]] = {
    getattr(math, name): symbolic
    for name in ("sqrt", "exp", "log", "log2", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan")
    if (symbolic := getattr(torch, f"_sym_{name}", None)) is not None
}
UNBACKED = (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT)
Answer: TypeAlias = Callable[[str, Callable[..., Any], Sequence[Any]], Any]  # the value of a constant, or None
SMALLEST_SIZE = 2  # the smallest value of a symbol, because operators treat 0 and 1 specially


TORCHS_SUM = sym_node._optimized_add


def exact_sum(lhs: Any, rhs: Any, lhs_is_sum: bool = False, rhs_is_sum: bool = False) -> tuple[bool, Any]:
    """The sum of two sympy expressions, and whether it adds different symbols. Replaces `sym_node._optimized_add`.

    torch's version joins the terms of such a sum without comparing them, even where symbols have become equal or known:
    `(s0 + s1) + s2` was `s0 + s2 + 2` instead of `2*s0 + s2`, and `s2` instead of `2*s2`.
    """
    return TORCHS_SUM(lhs, rhs, lhs_is_sum and _adds_symbols(lhs), rhs_is_sum and _adds_symbols(rhs))


def _adds_symbols(expr: Any) -> bool:
    return bool(expr.is_Add) and all(part.is_symbol for part in expr.args)


class LateGuard(Exception):
    """A decision about a symbolic size was made after the guards were built."""


class _Named(TorchSource):
    """A source in torch's sense: only a name, which torch cannot read itself."""

    label: str

    def __init__(self, label: str) -> None:
        object.__setattr__(self, "label", label)  # torch's class is frozen

    @property
    def name(self) -> str:
        return self.label

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Named) and other.name == self.name


class Symbols(ShapeEnv):
    """The symbols of one compilation, and the decisions made about them.

    `where` returns the user's line that is being traced; `lines` has it for each guard. After `close`, a decision that
    needs a new guard raises LateGuard. `decomposed`: the program has been traced, and operators' decompositions may
    read values of tensors, as the derivative of a masked write does.
    """

    def __init__(self, *, scalar_outputs: bool = False, output_shapes: bool = False) -> None:
        super().__init__(allow_scalar_outputs=scalar_outputs, allow_dynamic_output_shape_ops=output_shapes)
        # Permanently: backward graphs are compiled later, also in other threads. The function has no state.
        vars(sym_node)["_optimized_add"] = exact_sum
        self.where: Callable[[], str] = str
        self.lines: list[str] = []
        self.closed = False
        self.ragged: set[Any] = set()  # symbols of ragged sizes of nested tensors
        self.hints: dict[Any, int] = {}
        self.strides: set[Any] = set()  # symbols of strides that no size explains
        self.decomposed = False
        self.answer: Answer | None = None
        self.answers: dict[Any, bool] = {}  # to conditions over floats of the program, which are guarded
        self.numbers: dict[Any, Any] = {}  # those floats by their symbols
        self._memory_symbols: dict[int, Any] = {}  # their symbols by the memory that each is read from
        self._first_reads: dict[Any, Any] = {}  # symbols of later reads, with the first one

    @property
    def allow_scalar_outputs(self) -> bool:
        """Whether `item` returns a symbol."""
        return self.decomposed or super().allow_scalar_outputs

    @property
    def allow_dynamic_output_shape_ops(self) -> bool:
        """Whether `nonzero` and the like return a tensor with a symbolic size."""
        return self.decomposed or super().allow_dynamic_output_shape_ops

    @contextlib.contextmanager
    def taking_numbers(self) -> Iterator[None]:
        """A context in which numbers may be read from tensors, whatever the settings say."""
        before = self.settings
        self.take_numbers()
        try:
            yield
        finally:
            self.settings = before

    def take_numbers(self) -> None:
        """Allow numbers to be read from tensors from now on."""
        self.settings = dataclasses.replace(self.settings, allow_scalar_outputs=True)

    def size(self, value: int, label: str) -> torch.SymInt:
        """A symbol for a size of SMALLEST_SIZE or more."""
        symbol = self.create_symbol(value, _Named(label), DimDynamic.DYNAMIC)
        self.hints[symbol] = value
        return cast(torch.SymInt, self.create_symintnode(symbol, hint=value))

    def stride(self, value: int, label: str) -> torch.SymInt:
        """A symbol for a stride of SMALLEST_SIZE or more that does not follow from sizes."""
        made = self.size(value, label)
        self.strides.add(expression(made))
        return made

    def number(self, value: int, label: str) -> torch.SymInt:
        """A symbol for any int."""
        symbol = self.create_symbol(
            value, _Named(label), DimDynamic.DYNAMIC, positive=None, do_not_specialize_zero_one=True
        )
        self.hints[symbol] = value
        return cast(torch.SymInt, self.create_symintnode(symbol, hint=value))

    def create_symbol(self, val: Any, *args: Any, **kwargs: Any) -> Any:
        """torch's method, which also records ragged sizes."""
        symbol = super().create_symbol(val, *args, **kwargs)
        if is_ragged(val):
            self.ragged.add(symbol)
        return symbol

    def evaluate_expr(self, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
        """torch's method, which also records the user's line of a new guard. For operators that ask whether an
        unknown number is 1, to omit a multiplication, the answer is no. A comparison of a float of the program has the
        answer for its current value, which `answer` guards."""
        if self.decomposed and (found := _compared_with_one(orig_expr)) is not None:
            return sympy.true if found else sympy.false
        if (answer := self._answer(orig_expr)) is not None:
            return sympy.true if answer else sympy.false
        result = super().evaluate_expr(orig_expr, *args, **kwargs)
        if len(self.guards) > len(self.lines):
            if self.closed:
                raise LateGuard(str(self.guards[-1].expr))
            self.lines += [self.where()] * (len(self.guards) - len(self.lines))
        return result

    if not TYPE_CHECKING:  # torch's is cached, which has another type

        def guard_or_defer_runtime_assert(self, orig_expr: Any, *args: Any, **kwargs: Any) -> bool:
            """torch's method for what an operator requires; conditions over floats of the program are guarded."""
            answer = self._answer(orig_expr)
            return super().guard_or_defer_runtime_assert(orig_expr, *args, **kwargs) if answer is None else answer

    def note_number(self, place: torch.Tensor, number: object, value: object = None) -> None:
        """Note that a float of the program is read from a tensor. value: what `answer` takes for it."""
        symbol, memory = expression(number), place.untyped_storage()._cdata
        if value is not None:
            self.numbers[symbol], self._memory_symbols[memory] = value, symbol
        elif memory in self._memory_symbols:
            self._first_reads[symbol] = self._memory_symbols[memory]

    def end_answers(self) -> None:
        """Answer no more new conditions over floats of the program: the trace has ended."""
        self.answer = None
        self.numbers.clear()

    def _answer(self, expr: Any) -> bool | None:
        """What a condition over floats of the program is, as it was when it was first asked; None for others."""
        if not isinstance(expr, (sympy.Rel, BooleanFunction)):
            return None
        expr = expr.xreplace(self._first_reads)
        for known, kept in ((expr, True), (sympy.Not(expr), False)):
            if known in self.answers:
                return self.answers[known] is kept
        found = sorted(expr.free_symbols, key=str)
        if self.answer is None or not found or not all(symbol in self.numbers for symbol in found):
            return None
        wording = text(expr.xreplace({symbol: sympy.Symbol(f"{{{place}}}") for place, symbol in enumerate(found)}))
        names = [f"n{place}" for place in range(len(found))]
        function = eval(f"lambda {', '.join(names)}: {wording.format(*names)}", dict(NAMESPACE))
        answer = self.answer(wording, function, [self.numbers[symbol] for symbol in found])
        if answer is None:
            return None
        self.answers[expr] = bool(answer.as_constant())
        return self.answers[expr]

    def _maybe_guard_rel(self, expr: Any) -> None:  # type: ignore[override]  # torch's is cached
        """torch's method, which simplifies symbols by a relation that holds; skipped if solving the relation might
        divide by zero."""
        if isinstance(expr, sympy.Eq) and expr.rhs in (0, 1):
            self.size_like.discard(expr.lhs)  # of a size that counts as neither, torch's method would not learn it
        if not isinstance(expr, sympy.Rel) or not divides_by_zero(self.simplify(expr)):
            super()._maybe_guard_rel(expr)

    def assumptions(self) -> list[tuple[Any, str]]:
        """What must hold of unbacked symbols: (sympy condition, message), in the order found."""
        return [(found.expr, found.msg) for held in self.deferred_runtime_asserts.values() for found in held]

    @property
    def specialized(self) -> bool:
        """Whether a number that changes between calls has become a constant, on which the graph then depends."""
        return any(value.is_number for value in self.replacements.values())

    def unknown_float(self) -> torch.SymFloat:
        """A symbol for a float that is only known at run time."""
        return self.create_unbacked_symfloat()

    def condition(self, expr: Any) -> torch.SymBool:
        """A condition over symbols as a symbolic bool."""
        made: Callable[..., torch.SymBool] = torch.SymBool
        return made(SymNode(expr, self, bool, None))

    def close(self) -> None:
        """Allow no more guards: the existing ones are being built."""
        self.closed, self.where = True, str

    def conditions(self) -> list[tuple[Any, str]]:
        """The conditions of the decisions made: (sympy condition over symbols, the user's line).

        For ragged sizes only equality needs checking, because the tensors behind them are guarded. If one is compared
        in a product with other sizes, these must keep their values.
        """
        found: dict[Any, str] = {}
        for guard, line in zip(self.guards, self.lines, strict=True):
            symbols = guard.expr.free_symbols
            if symbols.isdisjoint(self.ragged):
                found.setdefault(guard.expr, line)
                continue
            for symbol in sorted(symbols - self.ragged, key=str):
                found.setdefault(sympy.Eq(symbol, self.hints[symbol]), line)
        return list(found.items())


def _compared_with_one(expr: Any) -> bool | None:
    """What a comparison of an unbacked float with 1 counts as; None for other expressions."""
    if not isinstance(expr, (sympy.Eq, sympy.Ne)) or expr.rhs not in (1, 1.0) or not expr.lhs.is_symbol:
        return None
    return isinstance(expr, sympy.Ne) if symbol_is_type(expr.lhs, SymT.UNBACKED_FLOAT) else None


def divides_by_zero(relation: Any) -> bool:
    """Whether solving the relation for a symbol may divide by zero: `a*b + a = 0` does not imply `b = -1`."""
    for product in relation.atoms(sympy.Mul):
        factors = [factor for factor in product.args if factor.free_symbols]
        if len(factors) > 1 and not all(factor.is_nonzero for factor in factors):
            return True
    return False


def plain(value: Any) -> Any:
    """The number that a symbolic value is known to be; the value itself if unknown."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        node = value.node
        for known in (node.maybe_as_int, node.maybe_as_float, node.maybe_as_bool):
            number = known()
            if number is not None:
                return number
    return value


def expression(value: Any) -> Any:
    """The sympy expression of a symbolic value or number."""
    return value.node.expr if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) else sympy.sympify(value)


def symbols_of(value: Any) -> list[Any]:
    """The symbols in a symbolic value or sympy expression, by name."""
    expr = expression(value) if isinstance(value, SYMBOLIC) else value
    return sorted(expr.free_symbols, key=str)


def single_symbol(value: Any) -> Any:
    """The symbol that a symbolic int consists of; None for a number or a compound expression."""
    if not isinstance(value, torch.SymInt) or not isinstance(plain(value), torch.SymInt):
        return None
    return value.node.expr if isinstance(value.node.expr, sympy.Symbol) else None


def has_own_strides(tensor: torch.Tensor) -> bool:
    """Whether a stride of a strided fake depends on one of the program's that does not follow from sizes."""
    numbers: list[Any] = [stride for stride in tensor.stride() if not isinstance(stride, int)]
    own: set[Any] = getattr(numbers[0].node.shape_env, "strides", set()) if numbers else set()
    return any(not own.isdisjoint(number.node.expr.free_symbols) for number in numbers)


def is_unbacked(value: Any) -> bool:
    """Whether the value is only known at run time."""
    return bool(free_unbacked_symbols(value))


def was_unbacked(value: Any) -> bool:
    """Whether the value is only known at run time, even if a run-time check lets it count as known (u0 == 2)."""
    expr: Any = value.node._expr if isinstance(value.node, SymNode) else None
    return expr is not None and any(symbol_is_type(symbol, UNBACKED) for symbol in expr.free_symbols)


def hint(value: Any) -> int:
    """The value of a symbolic int in this call, without a guard."""
    return int(value.node.hint)


class _Printer(PythonPrinter):
    """torch's printer, for expressions over numbers only."""

    def _print_ToFloat(self, expr: Any) -> str:
        return f"float({self._print(expr.args[0])})"

    def _print_TruncToInt(self, expr: Any) -> str:
        return f"int({self._print(expr.args[0])})"

    def _print_OpaqueUnaryFn_sqrt(self, expr: Any) -> str:
        return f"math.sqrt({self._print(expr.args[0])})"


def assume(condition: torch.SymBool, message: str) -> None:
    """Assume a condition over unbacked symbols; it becomes one of `Symbols.assumptions`."""
    check: Callable[..., None] = torch._check
    check(condition, lambda: message)


def depends_on_numbers(graph: fx.Graph, known: Collection[str] = ()) -> bool:
    """Whether a captured graph has unbacked sizes or numbers, besides floats read from the inputs `known`."""
    for node in graph.nodes:
        if TAKES_NUMBERS in node.meta:
            return True
        value = node.meta.get("example_value")
        if node.target == "item" and isinstance(value, torch.SymFloat) and node.args[0].name in known:
            continue
        numbers = value.shape if isinstance(value, torch.Tensor) else (value,)
        if any(isinstance(number, SYMBOLIC) and was_unbacked(number) for number in numbers):
            return True
    return False


def text(expr: Any) -> str:
    """A sympy expression in Python, over the names of its symbols and those of NAMESPACE."""
    return str(_Printer().doprint(expr))


def words(expr: Any, names: Mapping[Any, str]) -> str:
    """A sympy expression over ints in Python, with these texts for its symbols."""
    return text(expr.xreplace({symbol: sympy.Symbol(name, integer=True) for symbol, name in names.items()}))


class _OfProxies(PythonReferenceAnalysis):
    """Operations that torch's own class delegates to sympy, which needs the numbers."""

    @staticmethod
    def int_truediv(a: Any, b: Any) -> Any:
        return a / b

    @staticmethod
    def pow_by_natural(a: Any, b: Any) -> Any:
        return a**b

    @staticmethod
    def trunc_to_int(a: Any, dtype: Any) -> Any:
        return torch.sym_int(a)


def as_node(value: Any, graph: fx.Graph, leaf: Callable[[Any], fx.Node], made: dict[Any, Any]) -> Any:
    """A node that computes a symbolic value; a number if it is one. `leaf` returns the node of a symbol; `made` caches
    nodes by expression."""
    known = plain(value)
    if not isinstance(known, SYMBOLIC):
        return known
    expr = expression(value)
    if expr in made:
        return made[expr]
    if isinstance(expr, sympy.Symbol):
        found = leaf(expr)
    else:
        tracer = fx.proxy.GraphAppendingTracer(graph)
        env = {symbol: fx.Proxy(leaf(symbol), tracer) for symbol in symbols_of(expr)}
        with Asking():  # a proxy is asked how it overrides torch's functions
            found = sympy_interp(_OfProxies, env, expr).node
    made[expr] = found
    return found


def fill(graph: fx.Graph, last: fx.Node | None, key: str) -> list[fx.Node]:
    """Store the example values of the nodes after `last`, calls on symbolic numbers or sizes, under `meta[key]`;
    returns the nodes."""
    fresh: list[fx.Node] = []
    for node in reversed(graph.nodes):
        if node is last:
            break
        if node.op == "call_function":
            fresh.append(node)
    for node in reversed(fresh):
        args = fx.map_arg(node.args, lambda given: given.meta[key])
        called: Any = node.target
        node.meta[key] = called(*args)
    return fresh
