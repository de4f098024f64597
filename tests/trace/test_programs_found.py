"""What random programs have found: each test is what was wrong, made small."""

from __future__ import annotations

import contextlib
import enum
import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from tests.support.program_runs import like_eager
from tests.support.resuming import resumes


class Box:
    def __init__(self) -> None:
        self.value, self.held = 1, 2


def tensor() -> tuple[torch.Tensor]:
    return (torch.linspace(-1.0, 1.0, 12).reshape(3, 4),)


def compiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    return armature.compile(fn, backend="eager")


def test_matmul_in_place_makes_a_new_tensor() -> None:
    def program(x: torch.Tensor) -> tuple[Any, Any]:
        z = x.clone()
        kept = [z]
        z @= torch.eye(4)
        return kept, z

    kept, z = compiled(program)(*tensor())
    assert kept[0] is not z


@pytest.mark.parametrize("mode", [1, 0, None, [1], "no"])
def test_grad_mode_that_is_no_bool_is_refused(mode: object) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.set_grad_enabled(mode):  # type: ignore[arg-type]
            return x + 1

    resumes(program, tensor)


def test_attribute_deleted_and_made_anew_is_the_last_one() -> None:
    def program(x: torch.Tensor, box: Box) -> tuple[Any, Any]:
        mine = Box()
        for one in (box, mine):
            del one.value
            one.value = 3
        return x + 1, vars(mine)

    box = Box()
    _, mine = compiled(program)(*tensor(), box)
    assert list(vars(box)) == list(mine) == ["held", "value"]


def test_attribute_deleted_and_made_anew_is_the_last_one_of_a_dict_that_is_read() -> None:
    def program(x: torch.Tensor, box: Box) -> tuple[Any, Any]:
        del box.value
        box.value = 3
        return x + 1, list(vars(box))

    box = Box()
    assert compiled(program)(*tensor(), box)[1] == list(vars(box)) == ["held", "value"]


def test_list_times_float_in_place_raises_in_the_program() -> None:
    def program(x: torch.Tensor) -> tuple[Any, Any]:
        items = [1]
        try:
            items *= 1.5  # type: ignore[arg-type]
        except TypeError as error:
            return x + 1, str(error)
        return x, items

    resumes(program, tensor)


def test_iterators_of_itertools_leave_the_frame_as_themselves() -> None:
    def program(x: torch.Tensor) -> tuple[Any, ...]:
        chained = itertools.chain([1], [x])
        return x + 1, type(chained) is itertools.chain, chained, itertools.count(3), itertools.groupby([1, 1])

    found, expected = compiled(program)(*tensor()), program(*tensor())
    assert [type(each) for each in found] == [type(each) for each in expected]
    assert found[1]
    assert next(found[2]) == 1
    assert next(found[3]) == 3


@pytest.mark.parametrize("start, step", [((1, 2), 1), ("a", 1), (1, None), (2.5, 1), (1j, True)])
def test_what_itertools_counts_from_is_a_number(start: Any, step: Any) -> None:
    def program(x: torch.Tensor, start: Any, step: Any) -> Any:
        try:
            return x + 1, list(itertools.islice(itertools.count(start, step), 3))
        except TypeError as error:
            return x, str(error)

    resumes(program, lambda: (*tensor(), start, step))


def test_counting_from_a_tensor_leaves_it_alone() -> None:
    def program(x: torch.Tensor) -> Any:
        return list(itertools.islice(itertools.count(x), 3)), x

    resumes(program, tensor)


def test_iterators_of_itertools_survive_a_break() -> None:
    def program(x: torch.Tensor) -> tuple[Any, ...]:
        chained, copies = itertools.chain([1], (2, 3)), itertools.tee([4, 5])
        next(chained)
        print("break")
        return x + 1, list(chained), list(copies[0]), type(copies[1]).__name__

    resumes(program, tensor)


def test_callables_of_operator_leave_the_frame_as_themselves() -> None:
    def program(x: torch.Tensor) -> tuple[Any, ...]:
        second = operator.itemgetter(1)
        return second([x, x + 1]), second, operator.attrgetter("shape"), operator.methodcaller("sum", dim=0)

    result, *made = compiled(program)(*tensor())
    assert [type(each) for each in made] == [operator.itemgetter, operator.attrgetter, operator.methodcaller]
    assert made[0]([1, 2]) == 2
    assert made[1](result) == (3, 4)
    assert made[2](result).shape == (4,)


def test_wraps_copies_the_attributes_of_a_function() -> None:
    def marked(value: Any) -> Any:
        return value

    marked.mark = 3  # type: ignore[attr-defined]

    def program(x: torch.Tensor) -> Any:
        @functools.wraps(marked)
        def inner(value: Any) -> Any:
            return marked(value)

        inner.mark += 1  # type: ignore[attr-defined]
        return inner(x) + 1, inner

    _, inner = compiled(program)(*tensor())
    assert inner.mark == 4
    assert inner.__wrapped__ is marked
    assert marked.mark == 3  # type: ignore[attr-defined]


def test_wraps_of_a_class_copies_what_the_class_holds() -> None:
    def program(x: torch.Tensor) -> Any:
        @functools.wraps(Box)
        def inner(value: Any) -> Any:
            return value

        return inner(x) + 1, inner

    assert sorted(vars(compiled(program)(*tensor())[1])) == sorted(vars(program(*tensor())[1]))


def test_view_that_autograd_refuses_after_a_change_of_its_base_ends_the_graph() -> None:
    def program(x: torch.Tensor) -> tuple[Any, Any]:
        count = 0
        for row in x:
            print(row.shape)
            count += 1
            x[:, 1].add_(1)
        return x, count

    resumes(program, lambda: (torch.ones(3, 4, requires_grad=True) * 1,))


def test_two_variables_are_stored_at_once_in_a_frame_of_many() -> None:
    program = """\
def program(x, y, n, m, items, table, box):
    z = x.clone()
    text, seen, nest, tensors, later = 'q', {1, 3}, [items, [5]], [y, x], [abs]
    slot = Slotted(1, n)
    for i, row in enumerate(x):
        if row.sum() > Box.twice(slot.a):
            continue
        if 'z' in table:
            items[0] = 1
        else:
            n = 2
    return (x, y, z, m, text, seen, nest, tensors, later, {'n': n, 'box': box})
"""
    assert like_eager(program)


def test_a_function_that_the_library_makes_is_guarded_by_what_it_holds() -> None:
    said: list[int] = []

    def program(x: torch.Tensor, count: int) -> torch.Tensor:
        with contextlib.ExitStack() as exits:
            exits.callback(said.append, count)
            print("a break")
        return x + 1

    run = compiled(program)
    for count in (1, 2, 3):
        run(*tensor(), count)
    assert said == [1, 2, 3]


def test_a_key_stays_as_it_is_where_an_equal_one_was_looked_up() -> None:
    def program(x: torch.Tensor, held: dict[Any, int]) -> torch.Tensor:
        held[False] = held.get(False, 0) + 1
        return x + 1

    held = {0: 1, 1: 2}
    compiled(program)(*tensor(), held)
    assert [(type(key), value) for key, value in held.items()] == [(int, 2), (int, 2)]


def test_a_sum_of_numbers_one_of_which_becomes_known_later() -> None:
    def program(x: torch.Tensor, n: int, m: int, by: int) -> tuple[torch.Tensor, int, int]:
        total = n + by
        seen = {n, m}  # asks what n is
        return x + len(seen), total + by, by + total

    run = compiled(program)
    for args in ((2, 2, 5), (0, 3, 6), (0, 3, 7), (1, 3, 6)):
        assert run(*tensor(), *args)[1:] == program(*tensor(), *args)[1:], args


def test_a_sum_of_sizes_found_related_later() -> None:
    def program(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, int]:
        total = x.size(0) + y.size(0)
        return torch.cat([x, x]) + y, z.size(0) + total  # y is twice as long as x

    run = armature.compile(program, backend="eager", dynamic=True)
    for n, m in ((3, 4), (5, 7)):
        assert run(torch.ones(n), torch.ones(2 * n), torch.ones(m))[1] == 3 * n + m


def test_two_paths_that_spell_one_name() -> None:
    def program(xs: list[torch.Tensor], xs_0: torch.Tensor, d: dict[str, torch.Tensor]) -> torch.Tensor:
        return xs[0] - xs_0 * d["a b"] / d["a_b"]

    args = ([torch.ones(2)], torch.full((2,), 3.0), {"a b": torch.full((2,), 5.0), "a_b": torch.full((2,), 7.0)})
    for backend in ("eager", "auto"):
        torch.testing.assert_close(armature.compile(program, backend=backend, fullgraph=True)(*args), program(*args))


def test_members_of_an_enum_that_are_sizes_of_the_graph() -> None:
    class Color(enum.Enum):
        RED, GREEN, BLUE = 1, 2, 3

    def program(x: torch.Tensor, count: int) -> torch.Tensor:
        kept = x.clone()
        for i in range(count):
            kept[i] = Color(i % 3 + 1).value
        return kept

    run = armature.compile(program, backend="eager", dynamic=True)
    for count in (2, 3, 4):
        assert torch.equal(run(torch.zeros(5), count), program(torch.zeros(5), count))


NAMES = (
    "torch",
    "device",
    "inf",
    "nan",
    "self",
    "max",
    "dtype",
    "fx",
    "math",
    "operator",
    "output",
    "forward",
    "X",
    "x",
)


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("name", NAMES)
def test_an_argument_of_any_name(name: str, backend: str) -> None:
    space: dict[str, Any] = {}
    exec(f"def program({name}, other, x_1):\n    return {name}.sin() * other.to('cpu') + x_1", space)
    args = (*tensor(), torch.full((3, 4), 2.0), torch.ones(3, 4))
    run = armature.compile(space["program"], backend=backend, fullgraph=True)
    torch.testing.assert_close(run(*args), space["program"](*args))
