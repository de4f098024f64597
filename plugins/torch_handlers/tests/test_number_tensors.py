"""Items at ints that change, and tensors of one number where torch takes a number: one graph, with eager's answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import armature
from armature.pipeline.session import Outcome, session

Function = Callable[[Tensor, Any], Any]
TIMES = 3


def written(x: Tensor, n: Any) -> Tensor:
    x = x.clone()
    x[n] = 1
    return x


def written_within(x: Tensor, n: Any) -> Tensor:
    x = x.clone()
    x[:, n] = x[:, 0]
    x[..., n, 1] = 2
    x[n, None, 1:5] = x[:1, :4] * 2
    x[n, n] += 1
    return x


def written_column(x: Tensor, n: Any) -> Tensor:
    x = x.clone()
    x[:, n] = torch.ones(6)
    return x


ITEMS: dict[str, Function] = {
    "row": lambda x, n: x[n] * 2,
    "column": lambda x, n: x[:, n] * 2,
    "element": lambda x, n: x[n, 0] + x[0, n] + x[n, n],
    "last axis": lambda x, n: x[..., n],
    "new axes": lambda x, n: (x[None, n, :4], x[n, None], x[n, ..., None], x[None, ..., n, None]),
    "slices": lambda x, n: (x[:n], x[:, n:], x[1:n, ..., n]),
    "written": written,
    "written within": written_within,
}
COUNTS: dict[str, Function] = {
    "arange": lambda x, n: torch.arange(n) * 2,
    "rows": lambda x, n: x[torch.arange(1, n)],
    "zeros": lambda x, n: torch.zeros(n, 2),
    "full": lambda x, n: torch.full((n, 2), 3.0),
    "narrow": lambda x, n: x.narrow(0, 0, n) * 2,
    "by keyword": lambda x, n: torch.zeros(size=(n, 8)) + x.narrow(0, start=1, length=n),
    "pad": lambda x, n: F.pad(x, (0, n, 1, 1)),
    "filled": lambda x, n: torch.full((2, 2), n),
    "expand": lambda x, n: x.expand(n, 6, 8) + 1,
    "reshape": lambda x, n: torch.zeros(n, 7).reshape(7, n),
}
CONSTANTS: dict[str, Function] = {  # torch makes constants of these numbers, whatever they are to the graph
    "roll and tile": lambda x, n: torch.tile(x.roll(n, 0), (n, 1)),
    "topk and tril": lambda x, n: (x.topk(n).values, torch.tril(x, n), x.diagonal(n)),
    "parts": lambda x, n: (*x.split(n), *x.chunk(n)),
}


ASKED: dict[str, Function] = {  # functions of torch that ask tensors for numbers, in each way in which they take them
    "linspace": lambda x, n: (torch.linspace(0, 1, n), torch.linspace(0, n, steps=n)),
    "scalars": lambda x, n: (torch.add(x, x, alpha=n), torch.addmm(x[:6, :6], x[:, :6], x[:, :6], beta=n, alpha=n)),
    "functions of the library": lambda x, n: F.interpolate(x[None, None], size=(n, n)),
    "pooling": lambda x, n: (
        F.adaptive_avg_pool2d(x[None], (n, 1)),
        F.max_pool2d(x[None], n, stride=n, padding=n // n),
    ),
    "axes": lambda x, n: (
        x.sum(n - n),
        x.transpose(n - n, 1),
        torch.softmax(x, dim=n - n),
        x.movedim([0, n - n + 1], [1, 0]),
    ),
    "a list in a tuple": lambda x, n: torch.tensordot(x, x, dims=([n // n, 0], [1, 0])),
    "spectra": lambda x, n: torch.fft.rfft(x, n=n).abs(),
    "inverse spectra": lambda x, n: torch.ones(3, 5, dtype=torch.complex64).istft(4, hop_length=n, center=False),
    "a list as an index": lambda x, n: x[[n, 0]],
    "written before": lambda x, n: x.clone().add_(1)[:, :n] + torch.arange(n),
    "repeated lists": lambda x, n: torch.stack([x] * n),
    "two tensors": lambda x, n: x.unfold(0, n, n) + torch.zeros(n // n, n).sum(),
}


def check(fn: Function, make: Callable[[int], Any], numbers: tuple[int, ...]) -> None:
    armature.reset()
    quick = armature.compile(fn, fullgraph=True)
    for number in numbers:
        x = torch.randn(6, 8)
        got, wanted = quick(x, make(number)), fn(x, make(number))
        for mine, theirs in zip(*(r if isinstance(r, tuple) else (r,) for r in (got, wanted)), strict=True):
            torch.testing.assert_close(mine, theirs)
            assert mine.stride() == theirs.stride()


@pytest.mark.parametrize("make", [int, torch.tensor])
@pytest.mark.parametrize("name", ITEMS)
def test_items(name: str, make: Callable[[int], Any]) -> None:
    check(ITEMS[name], make, (3, 2, 4, 5))
    assert len(session().compilations) <= TIMES
    check(ITEMS[name], make, (-3, -2, -1, 0, 1, 2))


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name: str) -> None:
    check(COUNTS[name], torch.tensor, (3, 2, 4, 5))
    assert len(session().compilations) <= TIMES


@pytest.mark.parametrize("name", CONSTANTS)
def test_numbers_that_become_constants(name: str) -> None:
    check(CONSTANTS[name], torch.tensor, (3, 2, 3))


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence", "ignore:A window was not provided")
@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("name", ASKED)
def test_numbers_that_torch_asks_for(name: str, backend: str) -> None:
    """In one graph, without the setting that reads numbers in the graph."""
    armature.reset()
    quick = armature.compile(ASKED[name], backend=backend)
    for number in (3, 2, 4):
        x = torch.randn(6, 8)
        torch.testing.assert_close(quick(x, torch.tensor(number)), ASKED[name](x, torch.tensor(number)))
    assert {record.outcome for record in session().compilations} == {Outcome.COMPILED}


def test_a_call_that_takes_no_number_relies_on_none() -> None:
    """Where the graph breaks all the same, what a tensor holds is not guarded."""
    armature.reset()
    quick = armature.compile(lambda x, n: (x * 2, torch.repeat_interleave(n, n)))
    for number in (1, 2, 3, 4):
        torch.testing.assert_close(quick(torch.ones(2), torch.tensor(number))[1], torch.full((number,), number))
    assert len([one for one in session().compilations if "resumed" not in one.function]) == 1


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32])
def test_other_ints(dtype: torch.dtype) -> None:
    check(ITEMS["row"], lambda number: torch.tensor(number, dtype=dtype), (3, 2, -1))


def changed_before(x: Tensor, n: Tensor) -> Tensor:
    n.add_(1)
    return x[n]


def set_before(x: Tensor, n: Tensor) -> Tensor:
    n.set_(torch.tensor(1))
    return x[n]


def replaced_before(x: Tensor, n: Tensor) -> Tensor:
    n.data = torch.tensor(2)
    return x[n]


def changed_after(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    row = x[n] * 1
    n.add_(1)
    return row, n


def size_of_the_moment(x: Tensor, n: Tensor) -> tuple[Tensor, int]:
    rows = torch.arange(n)
    n.add_(1)
    return rows, rows.shape[0] * 2


def through_an_alias(x: Tensor, n: Tensor) -> Tensor:
    n.view(1).zero_()
    return x[n]


def through_an_array(x: Tensor, n: Tensor) -> Tensor:
    torch.from_numpy(n.numpy()).add_(1)
    return x[n] + torch.arange(n)[-1]


def after_another_was_written(x: Tensor, n: Tensor) -> Tensor:
    n.add_(1)
    return torch.linspace(0, 1, n)


@pytest.mark.parametrize(
    "fn",
    [
        through_an_array,
        after_another_was_written,
        changed_before,
        set_before,
        replaced_before,
        changed_after,
        size_of_the_moment,
        through_an_alias,
    ],
)
def test_the_number_is_that_of_the_moment(fn: Function) -> None:
    armature.reset()
    quick = armature.compile(fn)
    for number in (3, 2, 1, 3):
        x, mine, theirs = torch.randn(6, 8), torch.tensor(number), torch.tensor(number)
        torch.testing.assert_close(quick(x, mine), fn(x, theirs))
        assert mine == theirs


def test_masks_and_numbers_to_fill_with_are_no_places() -> None:
    armature.reset()
    x = torch.randn(6, 8)
    for n in (torch.tensor(True), torch.tensor(1, dtype=torch.uint8)):
        torch.testing.assert_close(armature.compile(lambda x, n: x[n])(x, n), x[n])
    assert torch.equal(armature.compile(lambda n: torch.full((2,), n))(torch.tensor(3)), torch.tensor([3, 3]))


def test_out_of_range_is_the_error_of_eager() -> None:
    armature.reset()
    quick = armature.compile(lambda x, n: x[n, 0])
    for n in (3, 2, 4):
        quick(torch.ones(6, 8), torch.tensor(n))
    with pytest.raises(IndexError, match="index 6 is out of bounds for dimension 0 with size 6"):
        quick(torch.ones(6, 8), torch.tensor(6))


def test_writes_at_places_that_change_keep_gradients() -> None:
    armature.reset()
    quick = armature.compile(written_within, fullgraph=True)
    for number in (3, 2, 4, -1):
        mine, theirs = (torch.ones(6, 8, requires_grad=True) for _ in range(2))
        weights = torch.randn(6, 8)
        (quick(mine, number) * weights).sum().backward()
        (written_within(theirs, number) * weights).sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad)
    assert len(session().compilations) <= TIMES


def test_a_write_out_of_range_is_the_error_of_eager() -> None:
    armature.reset()
    quick = armature.compile(written_column)
    for n in (3, 2, 4):
        quick(torch.ones(6, 8), n)
    with pytest.raises(IndexError, match="index 8 is out of bounds for dimension 1 with size 8"):
        quick(torch.ones(6, 8), 8)
    with pytest.raises(RuntimeError, match="The expanded size of the tensor"):
        quick(torch.ones(5, 8), 3)


@pytest.mark.parametrize("name", ["row", "column", "selected", "softmax"])
def test_a_number_out_of_range_is_the_error_of_eager(name: str) -> None:
    programs: dict[str, Function] = {
        **ITEMS, "selected": lambda x, n: x.select(1, n), "softmax": lambda x, n: x.softmax(n - 3),
    }  # fmt: skip
    armature.reset()
    program, x = programs[name], torch.rand(6, 6)
    quick = armature.compile(program)
    for n in (3, 2, 4):
        torch.testing.assert_close(quick(x, n), program(x, n))
    for n in (6, -7):
        with pytest.raises(IndexError) as expected:
            program(x, n)
        with pytest.raises(IndexError) as found:
            quick(x, n)
        assert str(found.value) == str(expected.value)


def after_a_break(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    x = x * 2
    armature.graph_break()
    return x[n] * 2


def test_the_number_is_read_without_compiling_the_reading() -> None:
    armature.reset()
    quick, x = armature.compile(after_a_break, backend="eager"), torch.arange(9.0)
    for n in (1, 2, 3, 4):
        assert quick(x, torch.tensor(n)) == after_a_break(x, torch.tensor(n))
    assert {record.function.partition(" ")[0] for record in session().compilations} == {"after_a_break"}
