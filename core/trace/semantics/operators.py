"""Operators on values: folded on constants, in the graph on tensors, by the methods of the types on others."""

from __future__ import annotations

import collections
import enum
import operator
from collections.abc import Callable
from types import GenericAlias, MappingProxyType, UnionType
from typing import TYPE_CHECKING, Any, List, NoReturn, TypeVar, Union  # noqa: UP035

import torch

from armature.frame.sources import object_source
from armature.introspection import MISSING, class_member
from armature.trace.errors import UserRaised
from armature.trace.recording import aliasing
from armature.trace.semantics import text
from armature.trace.values import computed, derived, symbolic
from armature.trace.values.base import BoundMethod, NotConstant, Value, raise_unsupported, type_name
from armature.trace.values.classes import ClassValue, inherits, overrides, rely_on_class
from armature.trace.values.constant import SCALARS
from armature.trace.values.derived import AS_OPERAND, AS_TEXT, ASKED, LOOKUPS, asks_the_program, native, or_itself
from armature.trace.values.mapping import DictValue
from armature.trace.values.sequence import COMPARING, ListValue, SequenceValue, TupleValue
from armature.trace.values.symbolic import SymbolicValue
from armature.trace.values.user_object import LACKING, UserObjectValue, namesake

if TYPE_CHECKING:
    from armature.trace.frame_state import Trace

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name)
    for name in (
        "add", "and_", "floordiv", "lshift", "matmul", "mul", "mod", "or_", "pow", "rshift", "sub", "truediv", "xor",
    )
}  # fmt: skip
IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, "i" + name.removesuffix("_")) for name in FUNCTIONS
}
UNARY: dict[str, Callable[[Any], Any]] = {"neg": operator.neg, "pos": operator.pos, "invert": operator.invert}
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
Ask = Callable[["Trace", str, str, Value, Value], Value | None]
COMPARE_METHODS = {op: name for name, op in COMPARING.items()}
UNIONS = (UnionType, type(Union[int, str]))  # noqa: UP007 - the older spelling has a type of its own
# What stands for a type with parameters, or for several types.
ALIASES = (GenericAlias, type(List[int]), TypeVar, *UNIONS)  # noqa: UP006 - the older spelling has a type of its own
# Objects of classes that make none when they are called without arguments.
MADE_BY_NO_CALL: tuple[Any, ...] = (
    lambda: None, "".join, memoryview(b""), {}.keys(), {}.values(), {}.items(), iter([]), iter(()), iter({}),
    (0 for _ in ()), MappingProxyType({}),
)  # fmt: skip
EXAMPLES: dict[type, object] = {type(example): example for example in MADE_BY_NO_CALL}
SWAPPED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
TOO_LARGE = 1 << 20  # bytes or bits of a folded result that the program itself might never have computed


def fold(tracer: Trace, function: Callable[..., Any], *operands: Any) -> Value:
    """The constant that a function gives for constants; what it raises, the program raises."""
    try:
        return tracer.as_value(function(*operands))
    except Exception as error:
        tracer.raise_real(error)


REPEATED: frozenset[type] = frozenset({list, tuple, torch.Size, str, bytes, bytearray})


def operate(tracer: Trace, name: str, left: Value, right: Value, in_place: bool = False) -> Value:
    """`left <op> right`. in_place: for `left <op>= right`, which says so in its errors."""
    functions = IN_PLACE if in_place else FUNCTIONS
    plain = name.removesuffix("_")
    if left.is_constant and right.is_constant:
        found = _by_member(tracer, by_methods, f"__{plain}__", f"__r{plain}__", left, right)
        if found is not None:
            return found
        return _fold_scalars(tracer, name, functions[name], left.as_constant(), right.as_constant())
    if right.is_tensor and _is_template(name, left):
        return _percent(tracer, left, right)
    if left.is_tensor or right.is_tensor:
        found = _with_tensor(tracer, by_methods, f"__{plain}__", f"__r{plain}__", left, right)
        return tracer.graph_call(FUNCTIONS[name], (left, right), {}) if found is None else found
    if left.is_symbolic or right.is_symbolic:
        found = computed.operate(tracer, name, left, right) or symbolic.operate(tracer, name, left, right)
        if found is not None:
            return found
    found = _containers(tracer, name, left, right)
    if found is not None:
        return found
    made = _union_of_types(tracer, left, right) if name == "or_" else None
    if made is not None:
        return made
    formats = name == "mod" and left.python_type() is str and not issubclass(right.python_type(), str)
    if name == "mod" and issubclass(left.python_type(), (str, bytes)) and asks_the_program(right, *ASKED, *AS_TEXT):
        unclear(tracer, plain, left, right)
    if _asks(name, left, right, in_place) and not has_own(tracer, left, right, f"__{plain}__", f"__r{plain}__"):
        unclear(tracer, plain, left, right)
    found = None if formats else by_methods(tracer, f"__{plain}__", f"__r{plain}__", left, right)
    if found is not None:
        return found
    made = _repeated_by_index(tracer, left, right) if name == "mul" and not in_place else None
    if made is not None:
        return made
    if (left.base is not None or right.base is not None) and not formats:
        try:
            made = operate(tracer, name, native(left), native(right), in_place)
        except UserRaised as raised:
            raise_for_classes(tracer, raised, functions[name], left, right)
        return or_itself(tracer, left, "__mod__", (native(right),), {}, made) if name == "mod" else made
    if name == "mul" and (isinstance(left, UserObjectValue) or isinstance(right, UserObjectValue)):
        made = _repeated(tracer, left, right) or (None if in_place else _repeated(tracer, right, left))
        if made is not None:
            return made
    if _is_template(name, left):
        made = text.percent(tracer, str(left.as_constant()), right)
        if made is not None:
            return made
    try:
        operands = left.as_constant(), right.as_constant()
    except NotConstant:
        if isinstance(left, UserObjectValue) or isinstance(right, UserObjectValue):
            if formats:
                tracer.graph_break("unsupported-operation", operation="%", type=right.describe())
            fold(tracer, functions[name], stand_in(tracer, left), stand_in(tracer, right))
        unknown = f"{left.describe()} and {right.describe()}"
        tracer.graph_break("unsupported-operation", operation=plain, type=unknown)
    return fold(tracer, functions[name], *operands)


def _asks(name: str, left: Value, right: Value, in_place: bool) -> bool:
    """Whether C code asks what the class of an operand defines, which derives from a builtin type."""
    if name == "or_" and not in_place and (derived.makes_its_own(left) or derived.makes_its_own(right)):
        return True
    return is_derived(left, right) and any(asks_the_program(side, *AS_OPERAND) for side in (left, right))


def raise_for_classes(
    tracer: Trace, raised: UserRaised, function: Callable[..., Any], left: Value, right: Value
) -> NoReturn:
    """What builtin types have raised for objects of derived classes. A TypeError names the classes of the objects."""
    if raised.value.python_type() is TypeError:
        try:
            function(stand_in(tracer, left), stand_in(tracer, right))
        except TypeError as error:
            tracer.raise_real(error)
        except Exception:  # not what was raised: the operands are others
            pass
    raise raised


def stand_in(tracer: Trace, value: Value) -> object:
    """An object of a class of the same name, with nothing of the program in it."""
    kind = value.python_type()
    if value.base is not None:
        return type(kind.__name__, (native(value).python_type(),), {"__module__": kind.__module__})()
    if isinstance(value, UserObjectValue):
        return namesake(kind)
    try:
        return value.as_object()
    except NotConstant:
        pass
    try:
        return EXAMPLES[kind] if kind in EXAMPLES else kind()
    except TypeError:
        tracer.graph_break("unsupported-operation", operation="an operator", type=value.describe())


def set_item(tracer: Trace, container: Value, key: Value, value: Value) -> None:
    """`container[key] = value`."""
    if lacks(tracer, container, "__setitem__", key):
        fold(tracer, operator.setitem, stand_in(tracer, container), key.as_constant(), None)
    container.set_item(tracer, key, value)


def delete_item(tracer: Trace, container: Value, key: Value) -> None:
    """`del container[key]`."""
    if lacks(tracer, container, "__delitem__", key):
        fold(tracer, operator.delitem, stand_in(tracer, container), key.as_constant())
    container.delete_item(tracer, key)


SLOT_MATES = {"__setitem__": "__delitem__", "__delitem__": "__setitem__"}  # one slot of a type in C


def lacks(tracer: Trace, container: Value, name: str, key: Value) -> bool:
    """Whether the class of a container has no such method. C says so in an error that depends on the key."""
    kind = container.python_type()
    if class_member(kind, name) is not MISSING or class_member(kind, SLOT_MATES[name]) is not MISSING:
        return False
    rely_on_class(tracer, kind, name, SLOT_MATES[name])
    try:
        key.as_constant()
    except NotConstant:
        tracer.graph_break("unsupported-operation", operation=name, type=container.describe())
    return True


def _is_template(name: str, left: Value) -> bool:
    """Whether the operation is `text % operand`."""
    return name == "mod" and left.is_constant and isinstance(left.as_constant(), str)


def _percent(tracer: Trace, template: Value, tensor: Value) -> Value:
    """`template % tensor`: the text of a fake is another one."""
    made = text.percent(tracer, str(template.as_constant()), tensor)
    if made is None:
        tracer.graph_break("unsupported-operation", operation="mod", type=f"a text and {tensor.describe()}")
    return made


def _union_of_types(tracer: Trace, left: Value, right: Value) -> Value | None:
    """`int | None` and the like; None: the operands are not types."""
    if not any(_is_type(side) for side in (left, right)):
        return None
    try:
        made = operator.or_(left.as_object(), right.as_object())
    except (NotConstant, TypeError):
        return None
    return tracer.wrap(made, object_source(made)) if isinstance(made, UNIONS) else None


def _is_type(value: Value) -> bool:
    """Whether the value is a class whose metaclass leaves `|` as it is, or what stands for types in annotations."""
    if isinstance(value, ClassValue):
        return inherits(type(value.cls), "__or__", type)
    return issubclass(value.python_type(), ALIASES)


def _with_tensor(tracer: Trace, ask: Ask, name: str, reflected: str, left: Value, right: Value) -> Value | None:
    """A tensor and an object of the program: torch leaves it to the object, if that knows the operator."""
    if left.is_tensor and right.base is not None and issubclass(right.python_type(), (int, float, complex)):
        return None  # a number to torch
    for side in (left, right):
        if isinstance(side, UserObjectValue) and has_own(tracer, side, side, *LOOKUPS):
            unclear(tracer, name, left, right)  # torch asks the object for `__torch_function__`
    if isinstance(left, UserObjectValue) or isinstance(right, UserObjectValue) or tracer.overrides.present:
        return ask(tracer, name, reflected, left, right)
    return None


def by_methods(tracer: Trace, name: str, reflected: str, left: Value, right: Value) -> Value | None:
    """By the method of the left operand, else of the right one. None: neither knows.

    A derived class on the right goes first where it reflects in a way of its own; two of one class reflect nothing.
    """
    mine, theirs = left.python_type(), right.python_type()
    if is_derived(left, right):
        again = class_member(mine, reflected) is not class_member(theirs, reflected)
        return by_first_method(tracer, name, reflected, left, right, again)
    order = [(left, name, right)]
    if mine is not theirs or not isinstance(left, UserObjectValue) or not isinstance(right, UserObjectValue):
        rely_on_class(tracer, mine, reflected)
        rely_on_class(tracer, theirs, reflected)
        overloaded = class_member(mine, reflected) is not class_member(theirs, reflected)
        order.insert(0 if overloaded and issubclass(theirs, mine) else 1, (right, reflected, left))
    return _first_known(tracer, order)


def by_comparing(tracer: Trace, name: str, reflected: str, left: Value, right: Value) -> Value | None:
    """By the method of the left operand, else of the right one; of a derived class first. None: neither knows."""
    if is_derived(left, right):
        return by_first_method(tracer, name, reflected, left, right)
    order = [(left, name, right), (right, reflected, left)]
    mine, theirs = left.python_type(), right.python_type()
    if mine is not theirs and issubclass(theirs, mine):
        order.reverse()
    return _first_known(tracer, order)


def is_derived(left: Value, right: Value) -> bool:
    """Whether the class of an operand derives from a builtin type. Tensors know of no such classes."""
    return (left.base is not None or right.base is not None) and not (left.is_tensor or right.is_tensor)


def by_first_method(
    tracer: Trace, name: str, reflected: str, left: Value, right: Value, right_first: bool = True
) -> Value | None:
    """By the method of the class that is asked first, where one derives from a builtin type. None: all are builtin.

    Whose turn comes next depends on the slots that the classes have in C: a break. right_first: whether the right
    operand's class, if it derives from the left one's, goes before that.
    """
    mine, theirs = left.python_type(), right.python_type()
    if not has_own(tracer, left, right, name, reflected):
        return None
    owner, method, other = left, name, right
    if right_first and mine is not theirs and issubclass(theirs, mine):
        owner, method, other = right, reflected, left
    found = owner.binary(tracer, method, other) if overrides(owner.python_type(), method) else None
    if found is None:
        unclear(tracer, name, left, right)
    return found


def has_own(tracer: Trace, left: Value, right: Value, *names: str) -> bool:
    """Whether the class of an operand has one of these methods in Python."""
    for side in (left, right):
        rely_on_class(tracer, side.python_type(), *names)
    return any(overrides(side.python_type(), name) for side in (left, right) for name in names)


def unclear(tracer: Trace, name: str, left: Value, right: Value) -> NoReturn:
    """Which method does it is for Python to find out."""
    operands = f"{left.describe()} and {right.describe()}"
    tracer.graph_break("unsupported-operation", operation=name, type=operands)


def _first_known(tracer: Trace, order: list[tuple[Value, str, Value]]) -> Value | None:
    for owner, method, other in order:
        found = owner.binary(tracer, method, other)
        if found is not None:
            return found
    return None


def _by_member(tracer: Trace, ask: Ask, name: str, reflected: str, left: Value, right: Value) -> Value | None:
    """By the method that the class of an enum member defines. None: neither has one."""
    if any(issubclass(side.python_type(), enum.Enum) for side in (left, right)):
        return ask(tracer, name, reflected, left, right)
    return None


def divide_with_rest(tracer: Trace, left: Value, right: Value) -> Value:
    """`divmod(left, right)`."""
    found = by_methods(tracer, "__divmod__", "__rdivmod__", left, right)
    if found is not None:
        return found
    names = " and ".join(repr(type_name(side.python_type())) for side in (left, right))
    left, right = native(left), native(right)
    if not all(hasattr(side.python_type(), "__divmod__") for side in (left, right)) or any(
        isinstance(side, UserObjectValue) for side in (left, right)
    ):  # tensors have `//` and `%`, but not this
        tracer.raise_error(TypeError, f"unsupported operand type(s) for divmod(): {names}")
    return TupleValue([operate(tracer, "floordiv", left, right), operate(tracer, "mod", left, right)])


def _fold_scalars(tracer: Trace, name: str, function: Callable[..., Any], left: Any, right: Any) -> Value:
    huge = name in ("pow", "lshift") and isinstance(left, int) and isinstance(right, int)
    if huge and (right if name == "lshift" else left.bit_length() * abs(right)) > TOO_LARGE:
        tracer.graph_break("unsupported-operation", operation=name, type="integers this large")
    return fold(tracer, function, left, right)


def _containers(tracer: Trace, name: str, left: Value, right: Value) -> Value | None:
    if name == "add" and isinstance(left, ListValue) and isinstance(right, ListValue):
        return ListValue([*left.items, *right.items])
    if name == "add" and isinstance(left, TupleValue) and isinstance(right, TupleValue):
        if left.kind is tuple and right.kind is tuple:
            return TupleValue([*left.items, *right.items])
    elif name == "mul":
        for sequence, count in ((left, right), (right, left)):
            if isinstance(sequence, SequenceValue) and _is_count(count):
                return sequence.like(repeated(tracer, sequence.items, count))
    elif name == "or_" and isinstance(left, DictValue) and isinstance(right, DictValue):
        return _merged(tracer, left, right)
    return None


def _merged(tracer: Trace, left: DictValue, right: DictValue) -> Value:
    """`left | right`: a key that both have is the left one's, and a derived type goes before dict on either side."""
    kinds = [side.dict_kind for side in (left, right)]
    first = kinds[0] is not dict or kinds[1] is dict
    owner, kind = (left, kinds[0]) if first else (right, kinds[1])
    made = DictValue(dict(left.realise(tracer)), kind, owner.factory)
    for key, value in right.realise(tracer).values():
        made.set_item(tracer, key, value)
    return made


def repeated(tracer: Trace, items: list[Value], count: Value) -> list[Value]:
    """`items * count`, of a list that the program has room for."""
    try:
        return items * count.as_constant()  # type: ignore[operator]
    except (OverflowError, MemoryError) as error:
        tracer.raise_real(error)


def _is_count(value: Value) -> bool:
    return value.is_symbolic or (value.is_constant and isinstance(value.as_constant(), int))


def operate_in_place(tracer: Trace, name: str, left: Value, right: Value) -> Value:
    """`left <op>= right`: the value to store."""
    if left.is_tensor:
        found = left.binary(tracer, f"__i{name.removesuffix('_')}__", right) if tracer.overrides.present else None
        return tracer.graph_call(IN_PLACE[name], (left, right), {}) if found is None else found
    plain = name.removesuffix("_")
    method = f"__i{plain}__"
    if is_derived(left, right):
        found = left.binary(tracer, method, right) if overrides(left.python_type(), method) else None
        if found is not None:
            return found
        if left is right or has_own(tracer, left, right, method, f"__{plain}__", f"__r{plain}__"):
            unclear(tracer, method, left, right)
    if isinstance(left, ListValue):
        # A number's method goes before the one of a list.
        own = isinstance(right, UserObjectValue) and name in ("add", "mul")
        found = right.binary(tracer, f"__r{name}__", left) if own else None
        if found is not None:
            return found
        if name == "add":
            left.call_method(tracer, "extend", (right,), {})
            return left
        if name == "mul" and right.python_type() in (int, bool):
            items = repeated(tracer, left.items, right)
            tracer.mutate(left)
            left.items[:] = items
            return left
    if isinstance(left, DictValue) and name == "or_":
        left.call_method(tracer, "update", (right,), {})
        return left
    found = left.binary(tracer, method, right)
    if found is None and left.base is not None and left.base.mutable:  # the methods of the builtin type change it
        try:
            changed = operate_in_place(tracer, name, left.base, right)
        except UserRaised as raised:
            raise_for_classes(tracer, raised, IN_PLACE[name], left, right)
        return left if changed is left.base else changed
    if found is None and right.base is not None:  # a set is changed by any set, also by one of a derived class
        found = left.binary(tracer, method, native(right))
    return found if found is not None else operate(tracer, name, left, right, in_place=True)


def operate_unary(tracer: Trace, name: str, value: Value) -> Value:
    """`-value`, `+value` or `~value`."""
    if value.is_tensor:
        method = value.get_attribute(tracer, f"__{name}__") if tracer.overrides.present else None
        if method is not None and not isinstance(method, BoundMethod):
            return method.call(tracer, (), {})
        return tracer.graph_call(UNARY[name], (value,), {})
    if isinstance(value, SymbolicValue):
        found = computed.unary(tracer, name, value) or symbolic.negated(tracer, name, value)
        return fold(tracer, UNARY[name], value.as_constant()) if found is None else found
    if value.is_constant:
        return fold(tracer, UNARY[name], value.as_constant())
    if isinstance(value, UserObjectValue):
        return value.special(tracer, f"__{name}__")
    if isinstance(value, ClassValue):
        method = value.meta(tracer, f"__{name}__")
        if method is None:
            text = LACKING[f"__{name}__"].format(type_name(value.python_type()))
            tracer.raise_error(TypeError, text)
        return method.call(tracer, (), {})
    if class_member(value.python_type(), f"__{name}__") is MISSING:
        raise_unsupported(tracer, value, LACKING[f"__{name}__"])
    return value.call_method(tracer, f"__{name}__", (), {})


def compare(tracer: Trace, op: str, left: Value, right: Value) -> Value:
    """`left <op> right` for a comparison."""
    if left.is_constant and right.is_constant:
        found = _by_member(tracer, by_comparing, COMPARE_METHODS[op], COMPARE_METHODS[SWAPPED[op]], left, right)
        if found is None and op == "!=":
            found = _by_member(tracer, by_comparing, "__eq__", "__eq__", left, right)
            found = None if found is None else tracer.constant(not found.truth(tracer))
        if found is not None:
            return found
        return fold(tracer, COMPARISONS[op], left.as_constant(), right.as_constant())
    if left.is_tensor or right.is_tensor:
        found = _with_tensor(tracer, by_comparing, COMPARE_METHODS[op], COMPARE_METHODS[SWAPPED[op]], left, right)
        return tracer.graph_call(COMPARISONS[op], (left, right), {}) if found is None else found
    if left.is_symbolic or right.is_symbolic:
        found = symbolic.compare(tracer, COMPARISONS[op], left, right)
        if found is not None:
            return found
    if isinstance(left, SequenceValue) and isinstance(right, SequenceValue):
        return _compare_sequences(tracer, op, left, right)
    if isinstance(left, DictValue) and isinstance(right, DictValue) and op in ("==", "!="):
        equal = _equal_dicts(tracer, left, right)
        if left.dict_kind is right.dict_kind is collections.OrderedDict:
            equal = equal and list(left.entries) == list(right.entries)
        return tracer.constant(equal == (op == "=="))
    found = by_comparing(tracer, COMPARE_METHODS[op], COMPARE_METHODS[SWAPPED[op]], left, right)
    if found is None and op == "!=":
        found = _negated_eq(tracer, left, right)
    derived = left.base is not None or right.base is not None
    plain = [side for side in (left, right) if isinstance(side, UserObjectValue) and side.base is None]
    if found is None and derived and op == "!=" and any(has_own(tracer, side, side, "__eq__") for side in plain):
        unclear(tracer, "__ne__", left, right)  # it was asked, and did not know
    if found is None and derived and (left is not right or op not in ("==", "!=")):
        try:
            return compare(tracer, op, native(left), native(right))
        except UserRaised as raised:
            raise_for_classes(tracer, raised, COMPARISONS[op], left, right)
    return found if found is not None else _compare_objects(tracer, op, left, right)


def _negated_eq(tracer: Trace, left: Value, right: Value) -> Value | None:
    """By `object.__ne__`, which asks `__eq__`, where a class has that."""
    for first, second in ((left, right), (right, left)):
        equal = first.binary(tracer, "__eq__", second) if inherits(first.python_type(), "__ne__", object) else None
        if equal is not None:
            return tracer.constant(not equal.truth(tracer))
    return None


def _compare_objects(tracer: Trace, op: str, left: Value, right: Value) -> Value:
    """Objects without a method for it: constants by value, others equal only themselves."""
    methods = (COMPARE_METHODS[op], COMPARE_METHODS[SWAPPED[op]], *(("__eq__",) if op == "!=" else ()))
    objects = [side for side in (left, right) if isinstance(side, UserObjectValue)]
    asked = any(has_own(tracer, side, side, *methods) for side in objects)  # and did not know
    try:
        if not asked:
            return fold(tracer, COMPARISONS[op], left.as_object(), right.as_object())
    except NotConstant:
        pass
    if op in ("==", "!="):
        if left is right:
            return tracer.constant(op == "==")
        if asked or plain_identity(left) or plain_identity(right) or left.is_constant or right.is_constant:
            return tracer.constant(identical(tracer, left, right) == (op == "=="))
    elif isinstance(left, UserObjectValue) or isinstance(right, UserObjectValue):
        kinds = f"'{type_name(left.python_type())}' and '{type_name(right.python_type())}'"
        tracer.raise_error(TypeError, f"'{op}' not supported between instances of {kinds}")
    unknown = f"{left.describe()} and {right.describe()}"
    tracer.graph_break("unsupported-operation", operation=op, type=unknown)


def plain_identity(value: Value) -> bool:
    """Whether objects of the type are equal only to themselves."""
    return inherits(value.python_type(), "__eq__", object)


def _compare_sequences(tracer: Trace, op: str, left: SequenceValue, right: SequenceValue) -> Value:
    same_family = type(left) is type(right)
    if op in ("==", "!="):
        equal = same_family and len(left.items) == len(right.items)
        equal = equal and all(same_or_equal(tracer, a, b) for a, b in zip(left.items, right.items))
        return tracer.constant(equal == (op == "=="))
    if not same_family:
        names = f"'{type_name(left.python_type())}' and '{type_name(right.python_type())}'"
        tracer.raise_error(TypeError, f"'{op}' not supported between instances of {names}")
    for a, b in zip(left.items, right.items):
        if not same_or_equal(tracer, a, b):
            return compare(tracer, op, a, b)
    return tracer.constant(COMPARISONS[op](len(left.items), len(right.items)))


def _equal_dicts(tracer: Trace, left: DictValue, right: DictValue) -> bool:
    mine, theirs = left.realise(tracer), right.realise(tracer)
    if mine.keys() != theirs.keys():
        return False
    return all(same_or_equal(tracer, mine[key][1], theirs[key][1]) for key in mine)


def same_or_equal(tracer: Trace, left: Value, right: Value) -> bool:
    """How containers compare members: identical, or equal."""
    return left is right or compare(tracer, "==", left, right).truth(tracer)


def identical(tracer: Trace, left: Value, right: Value) -> bool:
    """`left is right`."""
    if left is right:
        return True
    if (left.is_symbolic or right.is_symbolic) and left.python_type() is right.python_type():
        return _identical_constants(tracer, left.as_constant(), right.as_constant())
    if left.is_constant != right.is_constant:
        return False
    if left.is_constant:
        return _identical_constants(tracer, left.as_constant(), right.as_constant())
    return aliasing.identical(tracer, left, right)


def _identical_constants(tracer: Trace, left: object, right: object) -> bool:
    if left is right:
        return True
    if type(left) is type(right) and type(left) in SCALARS and left == right:
        # Whether equal numbers and strings are one object is up to CPython.
        tracer.graph_break("unsupported-operation", operation="is", type=f"the constant {left!r}")
    return False


def _repeated_by_index(tracer: Trace, left: Value, right: Value) -> Value | None:
    """A sequence as often as an object says that derives from a builtin type, none that is a number."""
    for items, count in ((left, right), (right, left)):
        derived = count.base is not None and not issubclass(count.python_type(), int)
        if derived and hasattr(count.python_type(), "__index__"):
            return _repeated(tracer, items, count)
    return None


def _repeated(tracer: Trace, items: Value, count: Value) -> Value | None:
    """A sequence as often as the `__index__` of an object says; None where the first is no sequence."""
    kind = items.python_type()
    if kind not in REPEATED or not isinstance(count, UserObjectValue):
        return None
    times = tracer.python.index(count)
    if times is count:
        tracer.raise_error(TypeError, f"can't multiply sequence by non-int of type '{type_name(count.cls)}'")
    return operate(tracer, "mul", items, times)


def must_be_int(tracer: Trace, made: Value) -> Value:
    """What `__index__` has returned. TypeError of the program when that is no int."""
    kind = made.python_type()
    if not issubclass(kind, int):
        tracer.raise_error(TypeError, f"__index__ returned non-int (type {kind.__name__})")
    return made
