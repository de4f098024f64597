"""What the frame changes is changed once, after the graph; what tracing looks at is not changed at all."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import armature
from tests.support.resuming import resumes
from tests.support.tracing import break_of, check, trace

COUNTER = 0
REGISTRY: dict[str, Any] = {}


def x() -> torch.Tensor:
    return torch.linspace(-1.0, 1.0, 6).reshape(2, 3)


class Holder:
    def __init__(self) -> None:
        self.value: Any = 1
        self.items = [1, 2]
        self.table = {"a": 1}


class Slotted:
    __slots__ = ("left", "right")

    def __init__(self) -> None:
        self.left = 1


class Watched:
    """Writes go through Python code of its own."""

    def __init__(self) -> None:
        self.__dict__["log"] = 0
        self.value = 1

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, "log", self.log + 1)
        object.__setattr__(self, name, value)


def append(t, items):
    items.append(t * 2)
    items[0] = "first"
    return items, len(items)


def fill_dict(t, table):
    table["new"] = t + 1
    table.pop("old")
    del table["gone"]
    return table["new"]


def fill_set(t, members):
    members.add(3)
    members.discard(1)
    return t * len(members)


def write_attributes(t, holder):
    old = holder.value
    holder.value = t + old
    holder.items.append(holder.value)
    holder.table["b"] = holder.items
    holder.fresh = "new"
    del holder.value
    return old


def write_slots(t, obj):
    obj.right = t * obj.left
    obj.left = obj.right.sum()
    return obj.right


def write_watched(t, obj):
    obj.value = t
    obj.other = obj.value + 1
    return obj.log


def change_tensor(t, other):
    t.add_(1)
    t[0] = other
    other.mul_(2)
    return t + other


def cross(t, pair):
    pair[0], pair[1] = pair[1], pair[0]
    return t


@pytest.mark.parametrize(
    ("fn", "make"),
    [
        (append, lambda: [0, 1]),
        (fill_dict, lambda: {"old": 1, "gone": 2, "kept": 3}),
        (fill_set, lambda: {1, 2}),
        (write_attributes, Holder),
        (write_slots, Slotted),
        (write_watched, Watched),
        (change_tensor, lambda: torch.ones(3)),
        (cross, lambda: [torch.ones(2), torch.zeros(2)]),
    ],
    ids=lambda p: getattr(p, "__name__", ""),
)
def test_arguments_change_as_in_eager(fn: Any, make: Any) -> None:
    check(fn, x(), make())


def test_tracing_changes_nothing() -> None:
    holder, items, table, t = Holder(), [0, 1], {"old": 1, "gone": 2}, x()
    before = t.clone()
    trace(write_attributes, t, holder)
    trace(append, t, items)
    trace(fill_dict, t, table)
    trace(change_tensor, t, torch.ones(3))
    assert vars(holder) == {"value": 1, "items": [1, 2], "table": {"a": 1}}
    assert items == [0, 1]
    assert table == {"old": 1, "gone": 2}
    assert torch.equal(t, before)
    assert t._version == 0


def test_globals_are_written() -> None:
    def fn(t):
        global COUNTER
        COUNTER = COUNTER + 1
        REGISTRY["last"] = t * COUNTER
        return t + COUNTER

    traced = trace(fn, x())
    assert COUNTER == 0
    assert torch.equal(traced.run(x()), x() + 1)
    assert COUNTER == 1
    assert torch.equal(REGISTRY["last"], x())


def count() -> None:
    global COUNTER
    COUNTER += 1


def by_name_and_dict(t: Any) -> Any:
    global COUNTER
    names = globals()
    COUNTER = 4
    return t * names["COUNTER"]


def by_dict_and_name(t: Any) -> Any:
    global COUNTER
    COUNTER = 4
    armature.graph_break()
    t = t * globals()["COUNTER"]
    globals()["COUNTER"] = 5
    return t * COUNTER


def in_module(t: Any) -> Any:
    count()
    t = t * sys.modules[__name__].COUNTER  # type: ignore[attr-defined]
    count()
    return t * vars(sys.modules[__name__])["COUNTER"]


@pytest.mark.parametrize("fn", [by_name_and_dict, by_dict_and_name, in_module])
def test_globals_have_one_value_under_all_names(fn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    armature.reset()
    compiled = armature.compile(fn, backend="eager")
    for number in (0, 2):
        monkeypatch.setitem(globals(), "COUNTER", number)
        expected, after = fn(x()), COUNTER
        monkeypatch.setitem(globals(), "COUNTER", number)
        assert torch.equal(compiled(x()), expected)
        assert after == COUNTER


def test_cells_are_written() -> None:
    count = 0

    def fn(t):
        nonlocal count
        count += 2
        return t * count

    traced = trace(fn, x())
    assert count == 0
    assert torch.equal(traced.run(x()), x() * 2)
    assert count == 2


def test_returned_closures_share_their_cells() -> None:
    def fn(t):
        state = t * 2

        def read():
            return state

        def write(value):
            nonlocal state
            state = value

        return read, write

    read, write = trace(fn, x()).run(x())
    assert torch.equal(read(), x() * 2)
    write(5)
    assert read() == 5


def test_identity_of_what_is_returned() -> None:
    def fn(t, items):
        made = [t + 1]
        return made, made, items, t, {"made": made}

    t, items = x(), [1]
    made, again, same, tensor, table = trace(fn, t, items).run(t, items)
    assert made is again
    assert table["made"] is made
    assert same is items
    assert tensor is t


def test_a_view_and_its_base() -> None:
    def fn(t):
        row = t[0]
        row += 1
        return row, t * 1

    check(fn, x())


def test_new_objects_are_built_with_what_they_hold() -> None:
    def fn(t):
        holder = Holder()
        holder.value = t * 2
        holder.me = [holder.items]
        return holder

    made = trace(fn, x()).run(x())
    assert type(made) is Holder
    assert torch.equal(made.value, x() * 2)
    assert made.me[0] is made.items


def test_buffers_and_attributes_of_modules() -> None:
    class Running(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))
            self.calls = 0

        def forward(self, t):
            self.mean = 0.9 * self.mean + 0.1 * t.mean(0)
            self.calls += 1
            return t - self.mean

    check(Running.forward, Running(), x())


def test_an_exception_that_leaves_the_frame_leaves_it_to_eager() -> None:
    def fn(t, items):
        items.append(1)
        if t.shape[0] == 2:
            raise ValueError(f"{t.shape[0]} rows")
        return t

    items: list[int] = []
    assert break_of(fn, x(), items) == "exception-leaves-frame"
    assert items == []


def test_grad_mode_is_as_before_when_tracing_fails() -> None:
    def fn(t):
        with torch.no_grad():
            return t.item()

    assert break_of(fn, torch.ones(())) == "tensor-item"
    assert torch.is_grad_enabled()


def test_autocast_is_in_the_graph() -> None:
    def fn(a, b):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            c = a @ b
        return c, a @ b

    traced = check(fn, torch.ones(4, 4), torch.ones(4, 4))
    out = traced.run(torch.ones(4, 4), torch.ones(4, 4))
    assert [t.dtype for t in out] == [torch.bfloat16, torch.float32]
    assert not torch.is_autocast_enabled("cpu")


class Local(threading.local):
    def __init__(self, value=1):
        self.value = value


LOCAL = threading.local()
FILLED = Local(3)


def sets_local(t):
    try:
        LOCAL.value = t.shape[0]
        return t + LOCAL.value
    except (AttributeError, TypeError):
        return t * 0


def adds_to_local(t):
    FILLED.value += 1
    return t + FILLED.value


def deletes_local(t):
    FILLED.other = t.sum()
    there = hasattr(FILLED, "other")
    del FILLED.other
    return there, hasattr(FILLED, "other"), t * 2


def reads_dict_of_local(t):
    return t + FILLED.__dict__.get("value", 7) + LOCAL.__dict__.get("value", 5), "value" in vars(LOCAL)


def writes_dict_of_local(t):
    before = FILLED.value
    FILLED.__dict__["value"] = before + 1
    t = t * 2
    FILLED.other = FILLED.value
    return t + FILLED.__dict__.pop("other")


def test_the_dict_of_a_thread_local_is_of_the_calling_thread() -> None:
    run = armature.compile(reads_dict_of_local, backend="eager", fullgraph=True)
    found = []
    LOCAL.__dict__.clear()
    for value in (3, 4):
        FILLED.value = value
        found.append(run(torch.zeros(1))[0].item())
    LOCAL.value = 1
    found.append(run(torch.zeros(1))[0].item())
    thread = threading.Thread(target=lambda: found.append(run(torch.zeros(1))[0].item()))
    thread.start()
    thread.join()
    LOCAL.__dict__.clear()
    assert found == [8, 9, 5, 8]  # Local gives a new thread what it was made with


PROGRAMS_WITH_LOCALS = [sets_local, adds_to_local, deletes_local, reads_dict_of_local, writes_dict_of_local]


@pytest.mark.parametrize("program", PROGRAMS_WITH_LOCALS)
def test_attributes_that_a_type_keeps_in_a_way_of_its_own(program: Any) -> None:
    def make() -> tuple[Any, ...]:
        LOCAL.__dict__.clear()
        FILLED.value = 3
        return (x(),)

    assert resumes(program, make).graphs


def set_by_its_dict(t, obj, held):
    held["q"] = 2
    found = getattr(obj, "q", None)
    del held["q"]
    return t + 1, found, hasattr(obj, "q")


def set_by_itself(t, obj, held):
    obj.q = 2
    found = held["q"]
    obj.a += 1
    del obj.q
    return t + 1, found, "q" in held, held["a"]


def read_before(t, obj, held):
    found = obj.a
    held["a"] = 5
    del obj.a
    held["b"] = obj.__dict__ is held
    return t + 1, found, list(held), getattr(obj, "b", None)


@pytest.mark.parametrize("program", [set_by_its_dict, set_by_itself, read_before])
@pytest.mark.parametrize("kind", [Holder, nn.Module])
def test_an_object_and_its_dict_are_given(program: Callable[..., Any], kind: type) -> None:
    def given() -> tuple[Any, ...]:
        made = kind()
        made.a = 1
        return torch.ones(2), made, vars(made)

    def other() -> tuple[Any, ...]:
        return *given()[:2], {"a": 1, "b": 2, "q": 3}

    compiled = armature.compile(program, backend="eager")
    for make in (given, other, given):
        mine, eager = make(), make()
        assert str(compiled(*mine)) == str(program(*eager))
        assert list(vars(mine[1])) == list(vars(eager[1])) and mine[2].get("a") == eager[2].get("a")
