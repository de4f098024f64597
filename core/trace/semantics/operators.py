"""Operators on values: folded for constants, in the graph for tensors, otherwise by the methods of the types.

`slots.py` defines which methods are called, and in which order. A builtin type's methods are implemented by its value
class (`Value.binary`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from armature.introspection import MISSING, class_member
from armature.trace import slots
from armature.trace.base import NotConstant, Value, raise_unordered
from armature.trace.errors import UserRaised
from armature.trace.handlers import fold
from armature.trace.recording import aliasing
from armature.trace.slots import COMPARISONS, OPERATORS, Comparison, Operator
from armature.trace.values import computed, derived, floats, symbolic
from armature.trace.values.classes import inherits, overrides, rely_on_class
from armature.trace.values.constant import SCALARS
from armature.trace.values.derived import derives, native, overrides_method_for_c
from armature.trace.values.user_object import UserObjectValue

if TYPE_CHECKING:
    from armature.trace.base import Tracing, TypeRules

Ask = Callable[["Tracing", str, str, Value, Value], Value | None]
P = TypeVar("P", Operator, Comparison)
Rows = tuple[tuple[str, Callable[[P, Value, Value], bool], Callable[..., Value | None]], ...]
TOO_LARGE = 1 << 20  # size of a folded result, in bytes or bits, that the program itself might never have computed


def operate(tracer: Tracing, name: str, left: Value, right: Value, in_place: bool = False) -> Value:
    """`left <op> right` (data model, 3.3.8), by the first row of `BINARY` that returns a value. in_place: for `left
    <op>= right`, which errors mention."""
    op = OPERATORS[name]
    found = _by_first_row(BINARY, tracer, op, left, right, in_place)
    return _without_method(tracer, op, left, right) if found is None else found


def _by_first_row(rows: Rows[P], tracer: Tracing, op: P, left: Value, right: Value, *more: bool) -> Value | None:
    """What the first row gives that fits the operands and returns a value."""
    for _, fits, carry_out in rows:
        if fits(op, left, right):
            found = carry_out(tracer, op, left, right, *more)
            if found is not None:
                return found
    return None


def _of_constants(tracer: Tracing, op: Operator, left: Value, right: Value, in_place: bool) -> Value:
    """A method of an enum member's class decides, if there is one; otherwise the operation is folded."""
    found = _by_member(tracer, by_methods, op.method, op.reflected, left, right)
    if found is not None:
        return found
    function = op.in_place if in_place else op.function
    a: Any = left.as_constant()
    b: Any = right.as_constant()
    huge = op.name in ("pow", "lshift") and isinstance(a, int) and isinstance(b, int)
    if huge and (b if op.name == "lshift" else a.bit_length() * abs(b)) > TOO_LARGE:
        tracer.graph_break("integers-too-large", operation=op.name)
    return fold(tracer, function, a, b)


def _of_tensors(tracer: Tracing, op: Operator, left: Value, right: Value, in_place: bool) -> Value:
    """The call becomes a node of the graph, unless an object of the program implements the operator."""
    found = _with_tensor(tracer, by_methods, op.method, op.reflected, left, right)
    return tracer.graph.call(op.function, (left, right), {}) if found is None else found


def _of_numbers(tracer: Tracing, op: Operator, left: Value, right: Value, in_place: bool) -> Value | None:
    found = computed.operate(tracer, op.name, left, right) or floats.operate(tracer, op.name, left, right)
    return found or symbolic.operate(tracer, op.name, left, right)


def _of_choices(tracer: Tracing, op: Operator, left: Value, right: Value, in_place: bool) -> Value | None:
    return left.binary(tracer, op.method, right) if left.is_choice else right.binary(tracer, op.reflected, left)


def _by_handler(target: Any, tracer: Tracing, op: Operator, left: Value, right: Value, in_place: bool) -> Value | None:
    return tracer.calls.handled(target, (left, right), {})


def _text_of_tensor(tracer: Tracing, op: Operator, left: Value, right: Value, in_place: bool) -> Value:
    """A handler formats it: folding would give the text of a fake tensor."""
    found = tracer.calls.handled(str.__mod__, (left, right), {})
    return _without_method(tracer, op, left, right) if found is None else found


def _of_derived(tracer: Tracing, op: Operator, left: Value, right: Value, in_place: bool) -> Value | None:
    """Call a method in Python if that comes first, else those of the builtin types. None: a text is formatted."""
    own = has_own(tracer, left, right, op.method, op.reflected)
    if _calls_program(tracer.types, op, left, right, in_place, own):
        break_at_method_order(tracer, op.method, left, right)
    if _formats(op, left, right):
        return None
    found = by_methods(tracer, op.method, op.reflected, left, right)
    if found is not None:
        return found
    try:
        return operate(tracer, op.name, native(left), native(right), in_place)
    except UserRaised as raised:
        check_names_no_class(tracer, raised.value, op.method, left, right)
        raise


def _of_objects(tracer: Tracing, op: Operator, left: Value, right: Value, in_place: bool) -> Value | None:
    return by_methods(tracer, op.method, op.reflected, left, right)


def _folded(tracer: Tracing, op: Operator, left: Value, right: Value, in_place: bool) -> Value | None:
    """Apply the operator's function to objects that tracing knows completely; None for any others."""
    try:
        operands = left.as_constant(), right.as_constant()
    except NotConstant:
        return None
    return fold(tracer, op.in_place if in_place else op.function, *operands)


def _without_method(tracer: Tracing, op: Operator, left: Value, right: Value) -> NoReturn:
    """Break, because no row supports the operands, and the program's TypeError would describe them."""
    if _formats(op, left, right) or right.is_tensor:
        tracer.graph_break("percent-format", type=right.describe())
    unknown = f"{left.describe()} and {right.describe()}"
    tracer.graph_break("operator-of-objects", operation=op.name.removesuffix("_"), type=unknown)


def _formats(op: Operator, left: Value, right: Value) -> bool:
    """Whether it is `text % operand`, which never calls the operand's method, only the text's."""
    return op.name == "mod" and left.python_type() is str and not issubclass(right.python_type(), str)


def _is_template(op: Operator, left: Value) -> bool:
    """Whether it is `text % operand` with a known text."""
    return op.name == "mod" and left.is_constant and isinstance(left.as_constant(), str)


def _calls_program(types: TypeRules, op: Operator, left: Value, right: Value, in_place: bool, own: bool) -> bool:
    """Whether C code may call what the class of an operand defines, which derives from a builtin type. own: a method
    of an operand in Python is called instead."""
    formats = op.name == "mod" and issubclass(left.python_type(), (str, bytes))
    if formats and overrides_method_for_c(right, *slots.AS_ARGUMENT, *slots.AS_TEXT):
        return True
    sides = ((left, op.method), (right, op.reflected))
    made = any(derived.chooses_class_in_c(types, side, method) for side, method in sides)
    calls = (made and not in_place) or any(overrides_method_for_c(side, *slots.AS_OPERAND) for side in (left, right))
    return calls and not own


# One row for each kind of operands, tried in this order; if a row returns None, the next one that fits is tried.
BINARY: Rows[Operator] = (
    ("constants", lambda op, left, right: left.is_constant and right.is_constant, _of_constants),
    ("tensors in a text", lambda op, left, right: right.is_tensor and _is_template(op, left), _text_of_tensor),
    ("a tensor", lambda op, left, right: left.is_tensor or right.is_tensor, _of_tensors),
    ("a choice", lambda op, left, right: left.is_choice or right.is_choice, _of_choices),
    ("symbolic numbers", lambda op, left, right: left.is_symbolic or right.is_symbolic, _of_numbers),
    ("classes: `int | None`", lambda op, left, right: op.name == "or_", partial(_by_handler, type.__or__)),
    ("derived classes", lambda op, left, right: is_derived(left, right), _of_derived),
    ("objects", lambda op, left, right: not is_derived(left, right) and not _formats(op, left, right), _of_objects),
    ("a text", lambda op, left, right: _is_template(op, left), partial(_by_handler, str.__mod__)),
    ("what is known", lambda op, left, right: True, _folded),
)


def check_names_no_class(tracer: Tracing, error: Value, name: str, left: Value, right: Value) -> None:
    """Break the graph if builtin types have raised a TypeError for objects of derived classes: it would name these."""
    if error.python_type() is TypeError:
        break_at_method_order(tracer, name, left, right)


def set_item(tracer: Tracing, container: Value, key: Value, value: Value) -> None:
    """`container[key] = value` (data model, 3.3.7)."""
    check_holds_items(tracer, container, "__setitem__")
    container.set_item(tracer, key, value)


def delete_item(tracer: Tracing, container: Value, key: Value) -> None:
    """`del container[key]` (data model, 3.3.7)."""
    check_holds_items(tracer, container, "__delitem__")
    container.delete_item(tracer, key)


def check_holds_items(tracer: Tracing, container: Value, name: str) -> None:
    """Break the graph if a class has no such method, because C words the error, depending on the key."""
    if class_member(container.python_type(), name) is MISSING:
        tracer.graph_break("item-of-object", operation=name, type=container.describe())


def _with_tensor(tracer: Tracing, ask: Ask, name: str, reflected: str, left: Value, right: Value) -> Value | None:
    """A tensor and an object of the program: torch defers to the object if that implements the operator."""
    if left.is_tensor and derives(right) and issubclass(right.python_type(), (int, float, complex)):
        return None  # a number to torch
    if isinstance(left, UserObjectValue) or isinstance(right, UserObjectValue) or tracer.overrides.present:
        return ask(tracer, name, reflected, left, right)
    return None


def by_methods(tracer: Tracing, name: str, reflected: str, left: Value, right: Value) -> Value | None:
    """A binary operator by the operands' methods, in the order of `slots.right_goes_first`. None: neither operand
    implements it. Two objects of one class of the program have no reflected call (data model, 3.3.8)."""
    mine, theirs = left.python_type(), right.python_type()
    if is_derived(left, right):
        return by_first_method(tracer, name, reflected, left, right, slots.differs(mine, theirs, reflected))
    order = [(left, name, right)]
    if mine is not theirs or not isinstance(left, UserObjectValue) or not isinstance(right, UserObjectValue):
        rely_on_class(tracer, mine, reflected)
        rely_on_class(tracer, theirs, reflected)
        order.insert(0 if slots.right_goes_first(mine, theirs, reflected) else 1, (right, reflected, left))
    return _first_known(tracer, order)


def by_comparing(tracer: Tracing, name: str, reflected: str, left: Value, right: Value) -> Value | None:
    """A comparison by the operands' methods (data model, 3.3.1). None: neither implements it."""
    order = [(left, name, right), (right, reflected, left)]
    if is_derived(left, right):
        found = by_first_method(tracer, name, reflected, left, right)
        if found is not None or name != "__ne__":
            return found
        order = [step for step in order if inherits(step[0].python_type(), name, object)]
    elif slots.right_compares_first(left.python_type(), right.python_type()):
        order.reverse()
    return _first_known(tracer, order)


def is_derived(left: Value, right: Value) -> bool:
    """Whether the class of an operand derives from a builtin type. Tensors don't support such classes."""
    return (derives(left) or derives(right)) and not (left.is_tensor or right.is_tensor)


def by_first_method(
    tracer: Tracing, name: str, reflected: str, left: Value, right: Value, right_first: bool = True
) -> Value | None:
    """Operate by the method that is called first, if an operand's class overrides one. None: neither does.

    If it returns NotImplemented the graph breaks: which method is next depends on the classes' C slots. right_first:
    whether a right operand whose class derives from the left one's comes before it.
    """
    mine, theirs = left.python_type(), right.python_type()
    if not has_own(tracer, left, right, name, reflected):
        return None
    owner, method, other = left, name, right
    if right_first and mine is not theirs and issubclass(theirs, mine):
        owner, method, other = right, reflected, left
    found = _ask(tracer, owner, method, other) if overrides(owner.python_type(), method) else None
    if found is None:
        break_at_method_order(tracer, name, left, right)
    return found


def has_own(tracer: Tracing, left: Value, right: Value, *names: str) -> bool:
    """Whether the class of an operand has one of these methods in Python."""
    for side in (left, right):
        rely_on_class(tracer, side.python_type(), *names)
    return any(overrides(side.python_type(), name) for side in (left, right) for name in names)


def break_at_method_order(tracer: Tracing, name: str, left: Value, right: Value) -> NoReturn:
    """Break: tracing does not know which method implements the operation."""
    operands = f"{left.describe()} and {right.describe()}"
    tracer.graph_break("operator-method-order", operation=name, type=operands)


def _ask(tracer: Tracing, owner: Value, method: str, other: Value) -> Value | None:
    """The result of an operator's method; None: NotImplemented, or not in the value's `slots`."""
    if owner.is_tensor and isinstance(other, UserObjectValue) and has_own(tracer, other, other, *slots.LOOKUPS):
        count, outer, tracer.effects.watched = tracer.effects.count, tracer.effects.watched, {}
        asked = tracer.python.attribute_or_none(other, "__torch_function__")  # torch asks the object several times
        changed, tracer.effects.watched = tracer.effects.watched, outer
        if asked is not None or changed or tracer.effects.count != count:
            break_at_method_order(tracer, method, owner, other)
    found = owner.binary(tracer, method, other) if method in owner.slots else None
    if found is None and method == "__ne__" and inherits(owner.python_type(), method, object):  # that asks `__eq__`
        equal = _ask(tracer, owner, "__eq__", other)
        return None if equal is None else tracer.constant(not equal.truth(tracer))
    return found


def _first_known(tracer: Tracing, order: list[tuple[Value, str, Value]]) -> Value | None:
    for owner, method, other in order:
        found = _ask(tracer, owner, method, other)
        if found is not None:
            return found
    return None


def _by_member(tracer: Tracing, ask: Ask, name: str, reflected: str, left: Value, right: Value) -> Value | None:
    """Call the method that an enum member's class defines. None: neither class has one."""
    if any(issubclass(side.python_type(), enum.Enum) for side in (left, right)):
        return ask(tracer, name, reflected, left, right)
    return None


def operate_in_place(tracer: Tracing, name: str, left: Value, right: Value) -> Value:
    """`left <op>= right`: the value to store (data model, 3.3.8: the in-place method, else as `left <op> right`)."""
    op = OPERATORS[name]
    found = _by_first_row(IN_PLACE, tracer, op, left, right)
    return operate(tracer, name, left, right, in_place=True) if found is None else found


def _tensor_in_place(tracer: Tracing, op: Operator, left: Value, right: Value) -> Value:
    found = _ask(tracer, left, op.in_place_method, right) if tracer.overrides.present else None
    return tracer.graph.call(op.in_place, (left, right), {}) if found is None else found


def _own_in_place(tracer: Tracing, op: Operator, left: Value, right: Value) -> Value | None:
    """Call the in-place method in Python of a class that derives from a builtin type."""
    own = overrides(left.python_type(), op.in_place_method)
    found = _ask(tracer, left, op.in_place_method, right) if own else None
    if found is None and (left is right or has_own(tracer, left, right, op.in_place_method, op.method, op.reflected)):
        break_at_method_order(tracer, op.in_place_method, left, right)
    return found


def _number_first(tracer: Tracing, op: Operator, left: Value, right: Value) -> Value | None:
    """The method of a number precedes `+=` and `*=` of a sequence, which have slots of their own in C."""
    return _ask(tracer, right, op.reflected, left) if isinstance(right, UserObjectValue) else None


def _by_in_place_method(tracer: Tracing, op: Operator, left: Value, right: Value) -> Value | None:
    return _ask(tracer, left, op.in_place_method, right)


def _of_builtin_part(tracer: Tracing, op: Operator, left: Value, right: Value) -> Value:
    """Call the method of the builtin type, which changes the object."""
    part = native(left)
    try:
        changed = operate_in_place(tracer, op.name, part, right)
    except UserRaised as raised:
        check_names_no_class(tracer, raised.value, op.in_place_method, left, right)
        raise
    return left if changed is part else changed


def _with_builtin_part(tracer: Tracing, op: Operator, left: Value, right: Value) -> Value | None:
    """A set accepts any set, including one of a derived class."""
    return _ask(tracer, left, op.in_place_method, native(right))


IN_PLACE: Rows[Operator] = (
    ("a tensor", lambda op, left, right: left.is_tensor, _tensor_in_place),
    ("derived classes", lambda op, left, right: is_derived(left, right), _own_in_place),
    ("a list", lambda op, left, right: left.python_type() is list and op.name in ("add", "mul"), _number_first),
    ("all", lambda op, left, right: True, _by_in_place_method),
    ("mutable, derived", lambda op, left, right: derives(left) and native(left).mutable, _of_builtin_part),
    ("by one derived", lambda op, left, right: derives(right), _with_builtin_part),
)


def operate_unary(tracer: Tracing, name: str, value: Value) -> Value:
    """`-value`, `+value` or `~value` (data model, 3.3.8)."""
    method = f"__{name}__"
    return value.unary(tracer, method) if method in value.slots else value.by_method(tracer, method)


def compare(tracer: Tracing, symbol: str, left: Value, right: Value) -> Value:
    """`left <op> right` for a comparison (data model, 3.3.1), by the first row of `COMPARED` that returns a value."""
    row = COMPARISONS[symbol]
    found = _by_first_row(COMPARED, tracer, row, left, right)
    return _compare_objects(tracer, row, left, right) if found is None else found


def _compare_constants(tracer: Tracing, row: Comparison, left: Value, right: Value) -> Value:
    """A method of an enum member's class decides, if there is one; otherwise the operation is folded."""
    found = _by_member(tracer, by_comparing, row.method, row.reflected, left, right)
    return fold(tracer, row.function, left.as_constant(), right.as_constant()) if found is None else found


def _compare_tensors(tracer: Tracing, row: Comparison, left: Value, right: Value) -> Value:
    found = _with_tensor(tracer, by_comparing, row.method, row.reflected, left, right)
    return tracer.graph.call(row.function, (left, right), {}) if found is None else found


def _compare_numbers(tracer: Tracing, row: Comparison, left: Value, right: Value) -> Value | None:
    return floats.compare(tracer, row, left, right) or symbolic.compare(tracer, row.function, left, right)


def _compare_by_methods(tracer: Tracing, row: Comparison, left: Value, right: Value) -> Value | None:
    return by_comparing(tracer, row.method, row.reflected, left, right)


def _compare_derived(tracer: Tracing, row: Comparison, left: Value, right: Value) -> Value | None:
    """Compare as objects of the builtin types from which the operands' classes derive. None: one object is compared
    for equality with itself."""
    plain = [side for side in (left, right) if isinstance(side, UserObjectValue) and not derives(side)]
    if row.symbol == "!=" and any(has_own(tracer, side, side, "__eq__") for side in plain):
        break_at_method_order(tracer, "__ne__", left, right)  # the method was called, and returned NotImplemented
    if left is right and row.symbol in ("==", "!="):
        return None
    try:
        return compare(tracer, row.symbol, native(left), native(right))
    except UserRaised as raised:
        check_names_no_class(tracer, raised.value, row.method, left, right)
        raise


COMPARED: Rows[Comparison] = (
    ("constants", lambda row, left, right: left.is_constant and right.is_constant, _compare_constants),
    ("a tensor", lambda row, left, right: left.is_tensor or right.is_tensor, _compare_tensors),
    ("symbolic numbers", lambda row, left, right: left.is_symbolic or right.is_symbolic, _compare_numbers),
    ("all", lambda row, left, right: True, _compare_by_methods),
    ("derived classes", lambda row, left, right: is_derived(left, right), _compare_derived),
)


def _compare_objects(tracer: Tracing, row: Comparison, left: Value, right: Value) -> Value:
    """Compare objects that lack the method: constants compare by value, others equal only themselves."""
    methods = {row.method, row.reflected} | ({"__eq__"} if row.symbol == "!=" else set())
    objects = [side for side in (left, right) if isinstance(side, UserObjectValue)]
    declined = any(has_own(tracer, side, side, *sorted(methods)) for side in objects)  # the method was already called
    try:
        if not declined:
            return fold(tracer, row.function, left.as_object(), right.as_object())
    except NotConstant:
        pass
    if row.symbol in ("==", "!="):
        if left is right:
            return tracer.constant(row.symbol == "==")
        if declined or plain_identity(left) or plain_identity(right) or left.is_constant or right.is_constant:
            return tracer.constant(identical(tracer, left, right) == (row.symbol == "=="))
    elif isinstance(left, UserObjectValue) or isinstance(right, UserObjectValue):
        raise_unordered(tracer, row.symbol, left, right)
    operands = f"{left.describe()} and {right.describe()}"
    tracer.graph_break("comparison-of-objects", operation=row.symbol, type=operands)


def plain_identity(value: Value) -> bool:
    """Whether objects of the type are equal only to themselves."""
    return inherits(value.python_type(), "__eq__", object)


def same_or_equal(tracer: Tracing, left: Value, right: Value) -> bool:
    """Whether two values are identical or equal, as containers compare members."""
    return left is right or compare(tracer, "==", left, right).truth(tracer)


def identical(tracer: Tracing, left: Value, right: Value) -> bool:
    """`left is right`."""
    if left is right:
        return True
    if (left.is_symbolic or right.is_symbolic) and left.python_type() is right.python_type():
        return _identical_constants(tracer, left.as_constant(), right.as_constant())
    if left.is_constant != right.is_constant:
        return False
    if left.is_constant:
        kinds = left.python_type(), right.python_type()
        return kinds[0] is kinds[1] and _identical_constants(tracer, left.as_constant(), right.as_constant())
    return aliasing.identical(tracer, left, right)


def _identical_constants(tracer: Tracing, left: object, right: object) -> bool:
    if left is right:
        return True
    if type(left) is type(right) and type(left) in SCALARS and left == right:
        # Whether equal numbers or strings are the same object depends on CPython.
        tracer.graph_break("identity-of-constants", value=repr(left))
    return False
