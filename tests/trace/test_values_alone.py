"""Values work with the parts of a trace that they ask, and with no trace."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from armature.trace.values.base import Value
from armature.trace.values.constant import ConstantValue
from armature.trace.values.mapping import DictValue
from armature.trace.values.sequence import ListValue, TupleValue


class Rules:
    """The one verb of `Tracing.python` that is needed here; counts what it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def same_or_equal(self, left: Value, right: Value) -> bool:
        self.asked += 1
        return left.as_constant() == right.as_constant()


class Raised(Exception):
    pass


def trace_of(**parts: Any) -> Any:
    def refuse(kind: type, *args: Any) -> None:
        raise Raised(kind.__name__)

    return SimpleNamespace(constant=ConstantValue, raise_error=refuse, raise_value=refuse, **parts)


def numbers(*items: int) -> list[Value]:
    return [ConstantValue(item) for item in items]


@pytest.mark.parametrize("kind", [TupleValue, ListValue])
def test_a_sequence_asks_for_comparison_alone(kind: type[Any]) -> None:
    rules = Rules()
    value = kind(numbers(1, 2, 3))
    assert value.contains(trace_of(python=rules), ConstantValue(2)) and rules.asked == 2
    assert not value.contains(trace_of(python=rules), ConstantValue(7)) and rules.asked == 5
    assert value.length(trace_of()) == 3 and value.truth(trace_of())


def test_a_dict_needs_no_part_for_keys_that_are_known() -> None:
    trace = trace_of(guards=None)
    value = DictValue({})
    changed: list[Value] = []
    trace.mutate = changed.append
    value.set_item(trace, ConstantValue("a"), ConstantValue(1))
    assert changed == [value]
    assert value.get_item(trace, ConstantValue("a")).as_constant() == 1
    with pytest.raises(Raised, match="KeyError"):
        value.get_item(trace, ConstantValue("b"))
