"""Symbolic numbers: sizes along dynamic axes, and ints that vary from call to call."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import torch

from armature.torch_abi.fake import DATA_DEPENDENT
from armature.torch_abi.symbols import SYMBOLIC, expression, is_unbacked, plain
from armature.trace.base import Args, BoundMethod, Kwargs, NotConstant, Value
from armature.trace.signatures import takes
from armature.trace.slots import UNARY
from armature.trace.values.constant import ConstantValue

if TYPE_CHECKING:
    from torch import fx

    from armature.trace.base import Rebuilding, Tracing

TYPES: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


@attrs.define(eq=False)
class SymbolicValue(Value):
    """An int (or the result of comparing ints) as torch's symbolic number.

    Where the program needs the number itself (`as_constant`), it becomes a guarded constant. node: its graph input, if
    it is an int of the program that the graph uses.
    """

    fake: Any
    node: fx.Node | None = None

    is_symbolic: ClassVar[bool] = True
    slots = frozenset({"__bool__", *UNARY})

    def python_type(self) -> type:
        return TYPES[type(self.fake)]

    def describe(self) -> str:
        return f"a {self.python_type().__name__} that is not known while tracing"

    def as_constant(self) -> Any:
        try:
            return self.python_type()(self.fake)
        except DATA_DEPENDENT:
            raise NotConstant(self) from None

    def as_argument(self, tracer: Tracing) -> object:
        return tracer.sizes.argument(self.fake)

    def as_fake(self, tracer: Tracing) -> object:
        return plain(self.fake)

    def truth(self, tracer: Tracing) -> bool:
        return tracer.sizes.decide(self.fake)

    def constant(self) -> Value:
        """The number as a constant, guarded. Raises NotConstant if it is only known at run time."""
        return ConstantValue(self.as_constant())

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name in ("real", "numerator") and isinstance(self.fake, torch.SymInt):
            return self
        if name in NUMBER_METHODS:
            return BoundMethod(self, name)
        return self.constant().get_attribute(tracer, name)

    def unary(self, tracer: Tracing, name: str) -> Value:
        if type(self.fake) is torch.SymInt:
            return symbolic(tracer, -1 - self.fake if name == "__invert__" else UNARY[name](self.fake))
        if type(self.fake) is torch.SymFloat and name != "__invert__":
            return tracer.graph.call(UNARY[name], (self,), {}, lambda *fakes: tracer.fakes.symbols.unknown_float())
        return self.constant().unary(tracer, name)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        method = NUMBER_METHODS.get(name)
        if method is not None and not kwargs and takes(method, 2 + len(args)):
            return method(tracer, self, *args)
        return self.constant().call_method(tracer, name, args, kwargs)

    def rebuild(self, out: Rebuilding) -> None:
        out.symbolic(self)


def symbolic(tracer: Tracing, number: Any) -> Value:
    """The value of one of torch's symbolic numbers: a constant if it is known. A float always becomes a constant."""
    known = plain(number)
    if isinstance(known, torch.SymFloat) and not is_unbacked(known):
        # sums and products of floats depend on the order, which symbolic expressions do not preserve
        known = float(known)
    return SymbolicValue(known) if isinstance(known, SYMBOLIC) else ConstantValue(known)


def number_of(value: Value, unknown: bool = False) -> Any:
    """The symbolic or constant number of a value; None if it is not a number. A bool counts as one.

    unknown: whether to return symbolic floats and bools; by default they become constants.
    """
    if isinstance(value, SymbolicValue) and (unknown or type(value.fake) is torch.SymInt):
        return value.fake
    known = value.as_constant() if isinstance(value, (SymbolicValue, ConstantValue)) else None
    if isinstance(known, bool):
        return int(known)  # sympy's False does not equal its 0
    return known if type(known) in (int, float) else None


ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "mod": operator.mod,
}  # fmt: skip


def operate(tracer: Tracing, name: str, left: Value, right: Value) -> Value | None:
    """`left <op> right` for ints, one of them symbolic; None: use them as constants, or it is not arithmetic."""
    fn = ARITHMETIC.get(name)
    if name == "pow" and isinstance(right, ConstantValue) and type(right.value) is int and 0 < right.value < 9:
        fn = operator.pow
    a, b = number_of(left), number_of(right)
    if fn is None or type(a) is float or type(b) is float or a is None or b is None:
        return None
    if name in ("floordiv", "mod") and not tracer.sizes.decide(b != 0):
        return None  # computing with constants will raise the program's error
    return symbolic(tracer, fn(a, b))


EQUALITY: tuple[Callable[[Any, Any], Any], ...] = (operator.eq, operator.ne)


def compare(tracer: Tracing, relation: Callable[[Any, Any], Any], left: Value, right: Value) -> Value | None:
    """A comparison of numbers, one of them symbolic; None if either is not a number."""
    a, b = number_of(left, unknown=True), number_of(right, unknown=True)
    if a is None or b is None:
        other = right if b is None else left
        unlike = isinstance(other, ConstantValue) and not isinstance(other.value, (int, float, complex))
        unlike = unlike and any(side.python_type() in TYPES.values() for side in (left, right))  # not numpy's
        return ConstantValue(relation is operator.ne) if unlike and relation in EQUALITY else None
    if type(a) is type(b) is torch.SymFloat and expression(a) == expression(b):
        raise NotConstant(left)  # a NaN does not equal itself
    if torch.SymBool in (type(a), type(b)):
        return symbolic(tracer, relation(left.as_constant(), right.as_constant()))
    for number in (a, b):
        if type(number) is float and not math.isfinite(number) and torch.SymFloat not in (type(a), type(b)):
            # All ints compare the same way with an infinity or NaN.
            return ConstantValue(relation(0 if number is b else a, 0 if number is a else b))
    return symbolic(tracer, relation(a, b))


def _itself(tracer: Tracing, value: SymbolicValue) -> Value:
    return value if type(value.fake) is torch.SymInt else value.constant()


def _arithmetic(name: str, swapped: bool = False) -> Callable[..., Value]:
    def method(tracer: Tracing, value: SymbolicValue, other: Value) -> Value:
        if other.python_type() not in (int, bool):
            return value.constant().call_method(tracer, f"__{'r' if swapped else ''}{name}__", (other,), {})
        return tracer.python.operate(name, other, value) if swapped else tracer.python.operate(name, value, other)

    return method


NUMBER_METHODS: dict[str, Callable[..., Value]] = {
    **dict.fromkeys(("__int__", "__index__", "__trunc__", "__floor__", "__ceil__", "conjugate"), _itself),
    **{f"__{name}__": _arithmetic(name) for name in (*ARITHMETIC, "pow", "truediv")},
    **{f"__r{name}__": _arithmetic(name, swapped=True) for name in (*ARITHMETIC, "pow", "truediv")},
    "__bool__": lambda tracer, value: tracer.constant(value.truth(tracer)),
    "__neg__": lambda tracer, value: tracer.python.operate_unary("neg", value),
    "__abs__": lambda tracer, value: tracer.python.builtin(abs, value),
}
