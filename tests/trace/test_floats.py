"""Floats that change from call to call: the third value compiles code for all, with Python's own arithmetic."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import BaseTorchFunctionMode

import armature
from armature.pipeline.session import session
from tests.support.tensor_programs import same


def x() -> torch.Tensor:
    return torch.linspace(-1, 1, 7)


def scales(t, lr, wd):
    y = t * lr
    z = y.add(t, alpha=-lr)
    return z * (1 - lr * wd) / 3 + lr, lr, -lr, 2 / 3 * lr, lr - wd, (lr + 1) / 7


def in_place(t, lr, wd):
    t.mul_(1 - lr * wd)
    t.add_(torch.ones(7), alpha=lr)
    t += lr
    t.addcmul_(t, t, value=lr)
    return t, t.addcdiv(t, t + 3, value=-lr)


def lists(t, lr, wd):
    made = [t * 2, t + 1]
    torch._foreach_mul_(made, 1 - lr * wd)
    torch._foreach_add_(made, [t, t * 2], alpha=-lr)
    torch._foreach_addcdiv_(made, [t, t], [t + 3, t + 4], value=lr * 2)
    torch._foreach_lerp_(made, [t, t], weight=lr / 2)
    torch._foreach_clamp_min_(made, lr - 1)
    torch._foreach_maximum_(made, lr / 100)
    return made, torch._foreach_add(made, lr), torch._foreach_div(made, math.pow(lr, 2) + 1)


def tensors_made(t, lr, wd):
    of_numbers = [torch.tensor([lr, lr * 2]), torch.tensor([[lr, 1.0], [wd, 2]], dtype=torch.float64), torch.tensor(lr)]
    return of_numbers, torch.full((2,), lr, dtype=torch.float64), torch.full((), fill_value=lr, dtype=t.dtype) * t


def bounds(t, lr, wd):
    made = [torch.full((2,), lr), torch.linspace(0, lr, 3), torch.linspace(-lr, 1, 3)]
    inside = [t.clamp(max=lr), t.clamp(-1, lr), torch.clip(t, min=lr), t.clone().clamp_(lr), t.clamp_min(lr)]
    return [*made, *inside, F.leaky_relu(t, lr), torch.lerp(t, t * 2, lr), torch.full_like(t, wd)]


def comparisons(t, lr, wd):
    compared = [t > lr, t >= lr, lr > t, t <= lr, t == lr, t != lr, torch.lt(t, lr), t.clone().gt_(lr)]
    chosen = torch.where(t > 0, t, lr), torch.where(t > lr, lr, t), torch.where(t > 0, lr, 1), t.where(t > 0, lr)
    filled = t.masked_fill(t > 0, lr), t.clone().masked_fill_(t > lr, lr), t.index_fill(0, torch.tensor([1]), lr)
    return (
        compared,
        chosen,
        filled,
        t.scatter(0, torch.tensor([1]), lr),
        F.threshold(t, lr, 0.25),
        F.threshold(t, 0, lr),
    )


def powers(t, lr, wd):
    of_tensors = t**lr, t.abs() ** lr, torch.pow(t, lr), t.abs().pow_(lr), lr**t, torch.pow(lr, t), t.abs() ** -lr
    return of_tensors, t // lr, t % lr, lr % t, torch.fmod(t, lr), t.remainder(lr), torch.xlogy(t.abs(), lr)


def filled(t, lr, wd):
    y, z = t.clone(), t.clone()
    y[1:3], z[z > 0] = lr, lr
    made = t.clone().fill_(lr), torch.full_like(t, lr), t.new_full((2,), lr), t.new_tensor(lr), t.new_tensor([lr, 1])
    return y, z, made, torch.full((3,), lr), torch.scalar_tensor(lr), torch.logspace(0, lr / 100, 3)


def scaled(t, lr, wd):
    made = t.sub(t * 3, alpha=lr), torch.subtract(t, t * 3, alpha=lr), torch.rsub(t, t * 3, alpha=lr)
    activated = F.elu(t, lr), F.softplus(t, lr), F.hardshrink(t, lr), F.normalize(t, dim=0, eps=lr), t.copysign(lr)
    return made, activated, t.clone().sub_(t * 3, alpha=lr), torch.sub(torch.arange(3), 2) * lr, (t > 0) * lr


def other_dtypes(t, lr, wd):
    whole = torch.arange(3)
    counts = (torch.full((2,), lr, dtype=torch.int64), torch.linspace(0, lr, 3, dtype=torch.int32), whole.clamp(max=lr))
    if lr < 10:
        t = t + counts[0][0] + counts[1].sum() + counts[2].sum()
    return whole * lr, t.double() * lr, t.half() * lr, t.sum() * lr, torch.full((2,), lr), t.clamp(max=lr), t**lr


def needs_the_number(t, lr, wd):
    values = (float(lr), int(lr), bool(lr), str(lr), f"{lr:.2f}", round(lr, 1), abs(-lr), lr**2, lr // 0.1, lr % 0.1)
    return t * lr, values, math.sqrt(lr), min(lr, 1), max(0, lr), {lr: 1}, [lr, 1.0], lr == 0.5, isinstance(lr, float)


def functions(t, lr, wd):
    made = (float(lr), abs(lr), round(lr, 1), math.cos(lr), math.sqrt(lr), math.log1p(lr), math.fabs(lr))
    return t * float(lr), t * round(lr, 2), t + math.sin(lr) / 2, made, math.isfinite(lr)


def decides(t, lr, wd):
    return t * lr if lr > 0.35 else t - lr


def breaks(t, lr, wd):
    y = t * lr
    armature.graph_break("here")
    return y + lr * 2


def under_a_mode(t, lr, wd):
    with BaseTorchFunctionMode():
        return t * lr * 2 - lr


def made_from(t, lr, wd):
    half = lr**0.5
    made = (t * lr**2, t - 2**lr, t * (lr // 0.07), t * (lr % 0.3 + wd), t / (lr + 1), t * (lr / (lr + 0.5)), t + half)
    return made, lr**2, 1 / (lr + 1), half, math.sqrt(lr + 1) * math.cos(lr), -(lr**3)


def compares(t, lr, wd):
    scale = min(1.0, lr * 4)
    if lr * 2 < lr + 2 and lr**2 < 4 and not (lr + 1) <= wd:
        return t * max(lr, -1.0) * scale, lr * 2 >= 0
    return t - lr


VALUES = (0.1, 0.2, 0.5, 0.3, 0.7, 0.1, -0.0, 1e-30, float("inf"))


def compiled_calls(fn: Callable[..., Any], backend: str, values: tuple[float, ...]) -> int:
    armature.reset()
    compiled = armature.compile(fn, backend=backend, options={"recompile_limit": 32})
    for value in values:
        found, expected = compiled(x(), value, 0.25), fn(x(), value, 0.25)
        if backend == "eager":
            same(found, expected, f"result for {value}")
        else:
            torch.testing.assert_close(found, expected, equal_nan=True)
    return len(session().compilations)


@pytest.mark.parametrize("fn", [scales, in_place, lists, tensors_made, bounds, filled, scaled])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "auto"])
def test_three_compilations(fn: Callable[..., Any], backend: str) -> None:
    assert compiled_calls(fn, backend, VALUES) == 3


@pytest.mark.parametrize("fn", [comparisons, powers])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "auto"])
def test_operators_that_get_a_number(fn: Callable[..., Any], backend: str) -> None:
    """Not as a tensor: the kernels for some powers differ from those for all."""
    values = (0.1, 2.0, 0.5, 3.0, -1.0, -0.5, 1.0, -2.0, 0.0, -0.0, 1e-30, math.inf, math.nan)
    assert compiled_calls(fn, backend, values) == 3


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("shape", [(7,), ()])
def test_dtypes_are_those_of_eager_mode(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    def fn(t: torch.Tensor, lr: float) -> Any:
        made = [t * lr, t > lr, torch.where(t > 0, t, lr), torch.where(t > 0, lr, 1), t.clamp(max=lr), torch.pow(t, lr)]
        made += [t / lr, t + lr, lr**t, torch.xlogy(t, lr), torch.linspace(0, lr, 3), torch.tensor([lr, 1])]
        return made, [(one.dtype, one.shape) for one in made]

    armature.reset()
    compiled = armature.compile(fn, backend="eager", fullgraph=True)
    given = torch.tensor([0, 1, 2, 3, 1, 5, 6]).to(dtype)[: 7 if shape else 1].reshape(shape)
    for lr in (0.5, 2.0, 3.25, 0.25, 0.1, 1.0, 4.5):
        same(compiled(given, lr), fn(given, lr), f"result for {lr}")
    assert len(session().compilations) == 3


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "auto"])
def test_gradients_of_powers(backend: str) -> None:
    """Their derivatives ask for the exponent."""
    fn = lambda t, lr: (t.abs() + 1) ** lr  # noqa: E731
    armature.reset()
    compiled = armature.compile(fn, backend=backend)
    for lr in (0.5, 2.0, 3.0, 1.0, 0.0, -1.5):
        grads = []
        for run in (compiled, fn):
            t = x().requires_grad_()
            run(t, lr).sum().backward()
            grads.append(t.grad)
        torch.testing.assert_close(*grads)
    assert len(session().compilations) == 3


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_tensors_made_of_ints(backend: str) -> None:
    def fn(t: torch.Tensor, n: int) -> Any:
        made = torch.tensor(n), torch.tensor([n, 1]), torch.tensor(n, dtype=torch.float32), torch.tensor((n, 0.5))
        return made, torch.as_tensor(n), torch.as_tensor([n, n + 1]), t.new_tensor(n), torch.tensor(t.shape), t**n

    armature.reset()
    compiled = armature.compile(fn, backend=backend, fullgraph=True)
    for n in (2, 3, 5, -1, 2**40, 0, 1):
        given = torch.linspace(-1, 1, max(2, n % 10))
        same(compiled(given, n), fn(given, n), f"result for {n}", 0.0 if backend == "eager" else 1e-6)
    assert len(session().compilations) == 2


def test_what_python_computes_from_floats() -> None:
    assert compiled_calls(made_from, "eager", (0.1, 0.2, 0.5, 0.3, 0.7, 0.1, 1e-30, 1.5)) == 3
    assert compiled_calls(compares, "eager", (0.1, 0.2, 0.15, 0.03, 0.1, 0.24)) == 3
    assert compiled_calls(compares, "eager", (0.1, 0.2, 0.15, 0.3, 2.5, float("nan"), 0.31)) <= 6


def test_a_float_that_becomes_complex_or_raises() -> None:
    def root(t: torch.Tensor, lr: float) -> Any:
        try:
            return t * (1 / lr), t.sum() * (lr**0.5)
        except ZeroDivisionError:
            return t, lr

    compiled = armature.compile(root, backend="eager")
    for lr in (0.1, 0.2, 0.3, 0.4, -0.5, 0.0, 0.6):
        same(compiled(x(), lr), root(x(), lr), f"result for {lr}")


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_floats_computed_from_sizes(backend: str) -> None:
    def average(t: torch.Tensor) -> Any:
        rows, columns = t.shape
        return t.sum(0) * (1 / rows), t / math.sqrt(rows * columns + 1), t * float(rows), rows**-0.5

    armature.reset()
    compiled = armature.compile(average, backend=backend, fullgraph=True)
    for rows in range(2, 14):
        given = torch.ones(rows, 3)
        torch.testing.assert_close(compiled(given), average(given))
    assert len(session().compilations) == 2


OF_INTS: tuple[Callable[[torch.Tensor, int], Any], ...] = (
    lambda t, n: t * (n / 3),
    lambda t, n: t * n**0.5 + 1.0 * n,
    lambda t, n: t * (1 + math.cos(math.pi * n / 10)) / 2,
    lambda t, n: t * 0.99**n - math.exp(-n),
    lambda t, n: t * float(n) / math.sqrt(t.shape[0] * n),
)


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("fn", OF_INTS)
def test_floats_computed_from_ints_vary_with_them(fn: Callable[..., Any], backend: str) -> None:
    armature.reset()
    compiled = armature.compile(fn, backend=backend, fullgraph=True)
    for step in range(2, 9):
        torch.testing.assert_close(compiled(x(), step), fn(x(), step))
    assert len(session().compilations) == 2


def test_an_optimizer_that_counts_its_steps() -> None:
    def step(parameter: torch.Tensor, grad: torch.Tensor, group: dict[str, Any]) -> tuple[float, int]:
        group["step"] += 1
        first, second = 1 - math.pow(group["beta"], group["step"]), 1 - 0.999 ** group["step"]
        rate = group["lr"] * min(1.0, group["step"] / 50) * math.sqrt(second) / first
        parameter.sub_(grad * rate)
        before, group["lr"] = group["lr"], group["lr"] * 0.5
        return rate * before, group["step"]

    found = []
    armature.reset()
    for run in (step, armature.compile(step, backend="eager", fullgraph=True)):
        group = {"step": 0, "beta": 0.9, "lr": 0.1}
        parameter = x()
        found.append([(run(parameter, x() / 3, group), parameter.clone(), dict(group)) for _ in range(20)])
    same(found[1], found[0], "results")
    assert len(session().compilations) <= 5


@pytest.mark.parametrize("fn", [other_dtypes, needs_the_number, decides, breaks, under_a_mode])
def test_as_eager(fn: Callable[..., Any]) -> None:
    values = VALUES if fn in (breaks, under_a_mode) else VALUES[:6]
    assert compiled_calls(fn, "eager", values) <= 2 * len(values)


def test_a_float_beside_one_that_stays() -> None:
    fn = lambda t, lr, wd: t * lr * wd  # noqa: E731
    armature.reset()
    compiled = armature.compile(fn, backend="eager", fullgraph=True)
    for lr in (0.1, 0.2, 0.3, 0.4):
        same(compiled(x(), lr, 0.5), fn(x(), lr, 0.5), "result")
    count = len(session().compilations)
    same(compiled(x(), 0.5, 0.25), fn(x(), 0.5, 0.25), "result")
    assert (count, len(session().compilations)) == (3, 4)
    same(compiled(x(), 1, 0.25), fn(x(), 1, 0.25), "an int is no float")


def test_gradients() -> None:
    compiled = armature.compile(lambda t, lr: (t * lr).sin(), backend="aot_eager", fullgraph=True)
    for lr in (0.1, 0.2, 0.3, 0.4):
        grads = []
        for run in (compiled, lambda t, lr: (t * lr).sin()):
            t = x().requires_grad_()
            run(t, lr).sum().backward()
            grads.append(t.grad)
        assert torch.allclose(grads[0], grads[1])


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_a_schedule_of_learning_rates(backend: str) -> None:
    def train(compiled: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Linear(3, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
        step = armature.compile(lambda: optimizer.step(), backend=backend) if compiled else optimizer.step
        for turn in range(10):
            optimizer.param_groups[0]["lr"] = 0.1 / (turn + 1)
            model(torch.ones(2, 3)).pow(2).sum().backward()
            step()
            optimizer.zero_grad()
        return [parameter.detach() for parameter in model.parameters()]

    armature.reset()
    for found, expected in zip(train(compiled=True), train(compiled=False)):
        assert torch.allclose(found, expected)
    assert len(session().compilations) <= 4


def test_floats_are_not_told_apart_by_the_tensors_made_of_them() -> None:
    """Which come and go at one address."""

    def adds(t: torch.Tensor, one: float, two: float) -> torch.Tensor:
        t += one
        t += two
        return t

    compiled = armature.compile(adds, backend="eager", fullgraph=True)
    for number in range(1, 5):
        same(compiled(x(), number / 2, number / 4), adds(x(), number / 2, number / 4), "sum")
    guards = session().compilations[-1].guards
    assert guards and not any("as_tensor" in text and "one object" in text for text in guards)


SUMMED: dict[str, Callable[[torch.Tensor, float], Any]] = {
    "changing": lambda x, rate: x * sum([rate, 1e16, 0.1, -1e16, rate * 2]),
    "constants": lambda x, rate: sum([0.1] * 10 + [x, 0.2] + [rate]),
    "product": lambda x, rate: x + sum(value * rate for value in (0.1, 0.2, 1e16, -1e16)),
    "drawn": lambda x, rate: x + sum([rate, 1e16, random.Random(3).random(), -1e16]),
}


@pytest.mark.parametrize("name", SUMMED)
def test_sums_are_pythons(name: str) -> None:
    """From 3.12 on they keep what plain additions lose."""
    armature.reset()
    quick = armature.compile(SUMMED[name], backend="eager", fullgraph=True)
    x = torch.ones(2, dtype=torch.float64)
    for rate in (0.1, 0.2, 0.3, 0.7, 1 / 3):
        torch.testing.assert_close(quick(x, rate), SUMMED[name](x, rate), rtol=0, atol=0)


def test_texts_are_not_summed() -> None:
    for start in ("", b"", bytearray()):
        quick = armature.compile(lambda x, start=start: x + len(sum([start], start)), backend="eager")
        with pytest.raises(TypeError, match="can't sum"):
            quick(torch.ones(2))


def test_a_sum_adds_before_it_asks_for_the_next() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()

        def terms() -> Any:
            yield 0.5
            yield y
            y.add_(1)
            yield y

        return sum(terms())

    x = torch.ones(2)
    torch.testing.assert_close(armature.compile(fn, backend="eager", fullgraph=True)(x), fn(x))


def branches(t: torch.Tensor, lr: float) -> Any:
    y = t * lr if lr else t
    return y + 1 if 0.5 < lr <= 100 else y - 1, lr == 3


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_functions_of_floats_vary_with_them(backend: str) -> None:
    assert compiled_calls(functions, backend, (0.1, 0.2, 0.5, 0.3, 0.7, 1e-30)) <= 4


def test_functions_of_floats_that_raise_for_others() -> None:
    root = lambda t, lr: t * math.sqrt(lr)  # noqa: E731
    armature.reset()
    compiled = armature.compile(root, backend="eager")
    for lr in (1.0, 2.0, 3.0, 4.0):
        same(compiled(x(), lr), root(x(), lr), str(lr))
    with pytest.raises(ValueError, match="math domain error"):
        compiled(x(), -1.0)
    same(compiled(x(), 5.0), root(x(), 5.0), "after an error")


def test_whole_parts_of_floats_are_guarded_not_the_floats() -> None:
    steps = lambda t, lr: t * int(lr) + math.floor(lr)  # noqa: E731
    armature.reset()
    compiled = armature.compile(steps, backend="eager")
    for lr in (1.0, 2.0, 3.0):
        same(compiled(x(), lr), steps(x(), lr), str(lr))
    count = len(session().compilations)
    for lr in (3.25, 3.5, 3.75):
        same(compiled(x(), lr), steps(x(), lr), str(lr))
    assert len(session().compilations) == count


def test_comparisons_are_guarded_by_their_answers() -> None:
    armature.reset()
    quick = armature.compile(branches, backend="eager", options={"recompile_limit": 32})
    for lr in (1.0, 1.5):
        quick(x(), lr)
    compilations = len(session().compilations)
    for lr in (2.5, 7.25, 99.0):
        same(quick(x(), lr), branches(x(), lr), str(lr))
    assert len(session().compilations) <= compilations + 1
    for lr in (0.0, 0.25, 3.0, 101.0, -0.0, math.inf, math.nan):
        same(quick(x(), lr), branches(x(), lr), str(lr))


ASKED: dict[str, Callable[[torch.Tensor, float], Any]] = {
    "factor of what is added to": lambda t, f: torch.addmm(torch.full((7, 7), math.nan), t[None].T, t[None], beta=f),
    "bounds": lambda t, f: F.hardtanh(t, min_val=f, max_val=f + 1),
    "order": lambda t, f: (t.norm(p=f), torch.linalg.vector_norm(t, f), F.normalize(t, p=f, dim=0)),
    "limit": lambda t, f: F.softshrink(t, f),
    "norm": lambda t, f: torch.renorm(t[None].expand(3, 7), 2, 0, f),
    "end": lambda t, f: torch.arange(f),
    "end after": lambda t, f: torch.arange(-1, f, dtype=torch.float64),
    "copied": lambda t, f: t.clone().copy_(f),
}


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_what_operators_ask_of_floats_is_guarded(name: str, backend: str) -> None:
    """Values for which a kernel does something else, or raises, after those for which it does not."""
    fn = ASKED[name]
    armature.reset()
    quick = armature.compile(fn, backend=backend, options={"recompile_limit": 32})
    for value in (0.5, 0.7, 0.3, 0.0, 0.9, 2.0, math.inf, -0.5, 1.0, math.nan, 3.25, -math.inf, 0.1):
        try:
            expected = fn(x(), value)
        except (RuntimeError, ValueError) as error:
            with pytest.raises(type(error)):
                quick(x(), value)
        else:
            torch.testing.assert_close(quick(x(), value), expected, equal_nan=True)
