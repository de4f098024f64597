"""What Python does with values, for the modules of values, which stand below those that say it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import attrs

from armature.trace.errors import UserRaised
from armature.trace.semantics import iteration, keywords, operators
from armature.trace.values.base import Value
from armature.trace.values.classes import class_attribute, overrides
from armature.trace.values.user_object import UserObjectValue

if TYPE_CHECKING:
    from armature.trace.frame_state import Trace


@attrs.frozen(eq=False)
class PythonRules:
    """Operators, comparison, iteration, text and the lookup of attributes, as the language has them."""

    trace: Trace

    def takes(self, fn: object, positional: int, names: Iterable[str]) -> bool:
        """Whether a function takes so many arguments, and keywords of these names; True where nobody tells."""
        return keywords.takes(fn, positional, names, self.trace.tables.signature(fn))

    def iterator(self, value: Value) -> Value:
        """`iter(value)`."""
        return iteration.iterator(self.trace, value)

    def reversed_iterator(self, value: Value) -> Value:
        """`reversed(value)`."""
        return iteration.reverse(self.trace, value)

    def taken(self, value: Value) -> Iterator[Value]:
        """The items of an iterable, of which Python makes a list or tuple."""
        return iteration.taken(self.trace, value)

    def in_sequence(self, value: Value, refusal: str) -> list[Value]:
        """The items of a list or tuple, or of a list that Python makes of an iterator; `refusal`: of what is none."""
        return iteration.in_sequence(self.trace, value, refusal)

    def index(self, value: Value) -> Value:
        """`operator.index(value)` of an object that has `__index__`; any other value as it is."""
        if not isinstance(value, UserObjectValue) or issubclass(value.cls, int):
            return value
        method = value.method(self.trace, "__index__")
        return value if method is None else operators.must_be_int(self.trace, method.call(self.trace, (), {}))

    def operate(self, name: str, left: Value, right: Value) -> Value:
        """`left <op> right`."""
        return operators.operate(self.trace, name, left, right)

    def by_methods(self, name: str, reflected: str, left: Value, right: Value) -> Value | None:
        """A binary operator by two methods of its operands, in the language's order; None: neither knows."""
        return operators.by_methods(self.trace, name, reflected, left, right)

    def operate_unary(self, name: str, value: Value) -> Value:
        """`-value` and the like."""
        return operators.operate_unary(self.trace, name, value)

    def operate_in_place(self, name: str, left: Value, right: Value) -> Value:
        """`left <op>= right`."""
        return operators.operate_in_place(self.trace, name, left, right)

    def compare(self, op: str, left: Value, right: Value) -> Value:
        """A comparison."""
        return operators.compare(self.trace, op, left, right)

    def same_or_equal(self, left: Value, right: Value) -> bool:
        """How containers compare members."""
        return operators.same_or_equal(self.trace, left, right)

    def identical(self, left: Value, right: Value) -> bool:
        """`left is right`."""
        return operators.identical(self.trace, left, right)

    def builtin(self, fn: Callable[..., object], *args: Value) -> Value:
        """What a function of Python gives, as its handlers say: the language itself calls it."""
        made = self.trace.calls.handled(fn, args, {})
        return self.trace.graph_break("function-arguments", function=fn.__name__) if made is None else made

    def attribute_or_none(self, value: Value, name: str) -> Value | None:
        """An attribute, None where reading it raises AttributeError."""
        try:
            return value.get_attribute(self.trace, name)
        except UserRaised as raised:
            if issubclass(raised.value.python_type(), AttributeError):
                return None
            raise

    def has_attribute(self, value: Value, name: str) -> bool:
        """Whether an object has an attribute. Of one of the program's classes it is read, as C code does."""
        if isinstance(value, UserObjectValue):
            return self.attribute_or_none(value, name) is not None
        return hasattr(value.python_type(), name)

    def method_or_none(self, owner: Value, name: str) -> Value | None:
        """A special method as the language looks it up, in the class only; None when the class has none."""
        return owner.method(self.trace, name) if isinstance(owner, UserObjectValue) else None

    def iterates_plainly(self, value: Value) -> bool:
        """Whether the class of an object derives from a builtin type and iterates as that does."""
        return value.base is not None and not overrides(value.python_type(), "__iter__")

    def class_attribute(self, owner: Value, cls: type, name: str) -> Value:
        """An attribute that the classes of an object know."""
        return class_attribute(self.trace, owner, cls, name)

    def globals_of(self, namespace: dict[str, object]) -> Value:
        """The variables of a module as a dict, which is not to be changed."""
        return self.trace.names.of_module(namespace)
