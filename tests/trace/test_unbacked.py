"""Numbers and sizes that only a run tells, kept in the graph where the settings allow it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import armature
from armature import config, errors
from armature.errors import ArmatureWarning
from armature.pipeline.session import session


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    armature.reset()
    yield
    armature.reset()


@pytest.fixture(params=["eager", "auto"])
def compiled(request: pytest.FixtureRequest) -> Callable[..., Any]:
    options = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    return lambda fn: armature.compile(fn, backend=request.param, fullgraph=True, options=options)


def count() -> int:
    return len(session().compilations)


NEED_THE_SETTINGS: tuple[Callable[[torch.Tensor], Any], ...] = (
    lambda x: x.sum().item() + x,
    lambda x: x.nonzero() + 1,
    lambda x: x[x > 0] * 2,
    lambda x: x.masked_select(x > 1).sum(),
)
TAKE_NUMBERS = (*NEED_THE_SETTINGS, lambda x: torch.ones(2).add(x.sum(), alpha=x[0]))


def test_without_the_settings_the_graph_breaks() -> None:
    for fn in NEED_THE_SETTINGS:
        armature.reset()
        armature.compile(fn, backend="eager")(torch.ones(3))
        assert any(compilation.breaks for compilation in session().compilations)


def test_in_one_graph_numbers_stay_in_it() -> None:
    for fn in TAKE_NUMBERS:
        quick = armature.compile(fn, fullgraph=True)
        for values in ([1.0, 2.0, 3.0], [0.0, 0.0, 5.0]):
            x = torch.tensor(values)
            torch.testing.assert_close(quick(x), fn(x), rtol=0, atol=0)


def test_options_go_before_what_one_graph_sets() -> None:
    options = {"capture_scalar_outputs": False}
    with pytest.raises(errors.Unsupported, match="CAPTURE"):
        armature.compile(TAKE_NUMBERS[0], backend="eager", fullgraph=True, options=options)(torch.ones(3))


def test_item(compiled: Any) -> None:
    def fn(x: torch.Tensor, n: torch.Tensor) -> Any:
        k = n.item()
        return x * k + k, k + 1, k, x.sum().item()

    quick = compiled(fn)
    for k in (3, 5, 0, -2):
        x, n = torch.randn(4), torch.tensor(k)
        got, want = quick(x, n), fn(x, n)
        torch.testing.assert_close(got, want, rtol=0, atol=0)
        assert [type(item) for item in got] == [type(item) for item in want]
    assert count() == 1


def test_tolist(compiled: Any) -> None:
    def fn(x: torch.Tensor, n: torch.Tensor) -> Any:
        a, b = n.tolist()
        return x * a - b, [a, b]

    quick = compiled(fn)
    for pair in ([1, 2], [4, -1]):
        x, n = torch.randn(4), torch.tensor(pair)
        torch.testing.assert_close(quick(x, n), fn(x, n), rtol=0, atol=0)
    assert count() == 1


def test_nonzero_and_masks(compiled: Any) -> None:
    def fn(x: torch.Tensor) -> Any:
        where = x.nonzero()
        return where + 1, (x[x > 0] * 2).sum(), where.shape[0]

    quick = compiled(fn)
    for seed in range(4):
        torch.manual_seed(seed)
        x = torch.randn(3, 4).relu()
        torch.testing.assert_close(quick(x), fn(x), rtol=0, atol=0)
    x = torch.zeros(3, 4)
    torch.testing.assert_close(quick(x), fn(x), rtol=0, atol=0)
    assert count() == 1


@pytest.mark.parametrize("dim", [0, 1])
def test_places_of_a_split_in_a_tensor(compiled: Any, dim: int) -> None:
    def program(x: torch.Tensor, places: torch.Tensor) -> list[torch.Tensor]:
        return [part * 2 for part in torch.tensor_split(x, places, dim)] + list(x.tensor_split(places, dim=dim))

    run, x = compiled(program), torch.randn(4, 6)
    for places in ([1, 3], [0, 2], [3, 9], [2, 1]):
        torch.testing.assert_close(run(x, torch.tensor(places)), program(x, torch.tensor(places)))
    broken = armature.compile(program, backend="eager")
    torch.testing.assert_close(broken(x, torch.tensor([1, 3])), program(x, torch.tensor([1, 3])))
    with pytest.raises(RuntimeError, match="long"):
        broken(x, torch.tensor([1, 3], dtype=torch.int32))


def test_a_size_that_an_operator_has_told(compiled: Any) -> None:
    """The operands have to fit, so the first call's fakes have two rows; a later call may have others."""

    def program(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return x[x[:, 0] > 0] * other

    run, other = compiled(program), torch.tensor([[2.0], [3.0]])
    for rows in ([1, -1, 1], [-1, 1, -1], [1, 1, -1]):  # two rows, one that is expanded, two others
        x = torch.tensor(rows)[:, None] * torch.arange(1.0, 4.0)
        for needs_grad in (False, True):
            given = x.clone().requires_grad_(needs_grad)
            torch.testing.assert_close(run(given, other), program(given, other))
    with pytest.raises(RuntimeError, match="must match"):
        run(torch.ones(3, 3), other)


def test_a_branch_on_such_a_number_breaks(compiled: Any) -> None:
    with pytest.raises(errors.Unsupported, match="Data-dependent branching on a size"):
        compiled(lambda x: x + 1 if x.sum().item() > 0 else x)(torch.ones(2))


def test_a_check_lets_the_number_be_a_size(compiled: Any) -> None:
    def fn(x: torch.Tensor, n: torch.Tensor) -> Any:
        k = n.item()
        torch._check(k >= 2, lambda: "too few")
        torch._check(k <= x.shape[0])
        return torch.zeros(k) + 1, k

    quick = compiled(fn)
    for k in (2, 3, 4):
        torch.testing.assert_close(quick(torch.ones(4), torch.tensor(k)), fn(torch.ones(4), torch.tensor(k)))
    assert count() == 1
    for k in (1, 5):
        with pytest.raises(RuntimeError):
            fn(torch.ones(4), torch.tensor(k))
        with pytest.raises(RuntimeError):
            quick(torch.ones(4), torch.tensor(k))


def test_a_check_of_a_size_is_a_guard() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        torch._check(x.shape[0] > 2, lambda: f"{x.shape[0]} is too few")
        return x + 1

    quick = armature.compile(fn, backend="eager", dynamic=True)
    for n in (3, 4, 9):
        assert torch.equal(quick(torch.ones(n)), torch.full((n,), 2.0))
    assert count() == 1
    with pytest.raises(RuntimeError, match="2 is too few"):
        quick(torch.ones(2))


UNBACKED: dict[str, Callable[[torch.Tensor], Any]] = {
    "positions": lambda t: (t.nonzero().float() * 2 + 1, t.nonzero().shape[0]),
    "chosen": lambda t: (t[t > 0].exp().sum(), t[t > 0] * 2),
    "number": lambda t: t * t.sum().item(),
    "squares": lambda t: (t[t > 0] * t[t > 0]).sum(),
}


@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize("name", UNBACKED)
def test_values_and_gradients(compiled: Any, name: str, needs_grad: bool) -> None:
    quick = compiled(UNBACKED[name])
    for rows in (3, 4, 5):
        mine = torch.randn(rows, 4).requires_grad_(needs_grad)
        theirs = mine.detach().clone().requires_grad_(needs_grad)
        found, expected = quick(mine), UNBACKED[name](theirs)
        torch.testing.assert_close(found, expected)
        for result in (found, expected):
            parts = [part for part in (result if isinstance(result, tuple) else (result,)) if needs_grad]
            sums = [part.sum() for part in parts if isinstance(part, torch.Tensor) and part.requires_grad]
            if sums:
                torch.stack(sums).sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad)


FLOATS: dict[str, Callable[[torch.Tensor], Any]] = {
    "quotient": lambda x: (x.sum().item() / 2 + 1, x * (1 / x.sum().item())),
    "of ints": lambda x: ((x > 0.5).sum().item() / 3, (x > 0.5).sum().item() * 0.5, 2.0 ** (x > 0.5).sum().item()),
    "in order": lambda x: (x[0].item() + 1e16) - 1e16 - x[1].item() * 3.3 // 0.1 % 0.7,
    "signs": lambda x: (-x.sum().item(), abs(-x.sum().item()), +x[0].item()),
    "largest": lambda x: (max(0.7, x[0].item()), min(x[0].item(), x[1].item(), 0.7), max(x.tolist())),
    "powers": lambda x: (x.sum().item() ** 0.5, 2 ** x[0].item(), x.sum().item() ** 2, (-x[0].item()) ** 3),
    "math": lambda x: (
        math.sqrt(x[0].item()),
        math.sin(x[1].item()),
        math.fabs(-x[1].item()),
        math.fabs(-(x > 0).sum().item()),
    ),
    "mean": lambda x: sum(x.tolist()) / len(x),
    "sum": lambda x: (sum([x[0].item(), 1e16, 0.1, -1e16, 3]), sum([0.1] * 9 + [x[1].item(), True], 0.2)),
    "sum and tensors": lambda x: sum([0.1, 1e16, x[0].item(), -1e16, x, 0.3]),
    "float": lambda x: (float(x[0].item()), float((x > 0.5).sum().item())),
    "arguments": lambda x: (
        x.lerp(x + 1, x[0].item() / 2),
        x.add(x, alpha=max(0.1, x[1].item())),
        x.clamp(x[2].item() * 2),
    ),
    "written": lambda x: x.clone().mul_(1 - 0.1 * x[0].item()),
}


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "auto"])
def test_arithmetic_on_floats(backend: str, name: str) -> None:
    """The very numbers, also where their sum depends on the order."""
    quick = armature.compile(FLOATS[name], backend=backend, fullgraph=True)
    for seed in range(4):
        torch.manual_seed(seed)
        x = torch.rand(4, dtype=torch.float64) + 0.1
        torch.testing.assert_close(quick(x), FLOATS[name](x), rtol=0, atol=0)
    assert count() == 1


def test_a_float_of_the_program_stays_one_that_changes(compiled: Any) -> None:
    quick = compiled(lambda x, rate: x * min(rate, 1 / x.sum().item()))
    x = torch.ones(3)
    for rate in (0.1, 0.2, 0.5, 0.3, 0.4):
        torch.testing.assert_close(quick(x, rate), x * min(rate, 1 / 3))
    assert count() <= 3


def caught(x: torch.Tensor) -> Any:
    try:
        return 1 / (x[0].item() - 1)
    except ZeroDivisionError:
        return x + 1


def test_errors_are_pythons(compiled: Any) -> None:
    quick = compiled(lambda x: x + 1 / (x[0].item() - 1))
    torch.testing.assert_close(quick(torch.full((2,), 3.0)), torch.full((2,), 3.5))
    with pytest.raises(ZeroDivisionError):
        quick(torch.ones(2))
    quick = compiled(caught)
    torch.testing.assert_close(quick(torch.full((2,), 3.0)), 0.5)
    torch.testing.assert_close(quick(torch.ones(2)), torch.full((2,), 2.0))


def test_a_complex_power_runs_in_eager_mode(compiled: Any) -> None:
    with config.patch(strict=True):
        quick = compiled(lambda x: (x[0].item() - 1) ** 0.5)
        assert quick(torch.full((2,), 5.0)) == 2.0
        with pytest.raises(ValueError, match="complex"):
            quick(torch.zeros(2))
    with config.patch(strict=False):
        quick = compiled(lambda x: (x[0].item() - 1) ** 0.5)
        assert quick(torch.full((2,), 5.0)) == 2.0
        with pytest.warns(ArmatureWarning, match="complex"):
            assert quick(torch.zeros(2)) == (-1) ** 0.5


NEED_THE_NUMBER: tuple[Callable[[torch.Tensor], Any], ...] = (
    lambda x: max(1, x[0].item()),  # an int or a float
    lambda x: x if (k := x[0].item()) == k else x + 1,  # not so of a nan
    lambda x: int(x[0].item()),
    lambda x: round(x[0].item(), 2),
)


def test_what_needs_the_number_breaks(compiled: Any) -> None:
    for fn in NEED_THE_NUMBER:
        with pytest.raises(errors.Unsupported):
            compiled(fn)(torch.ones(2))
        for x in (torch.full((2,), 2.5), torch.full((2,), torch.nan)):
            if torch.equal(x, x) or fn is NEED_THE_NUMBER[1]:
                loose = armature.compile(fn, backend="eager", options={"capture_scalar_outputs": True})
                torch.testing.assert_close(loose(x), fn(x), equal_nan=True)
