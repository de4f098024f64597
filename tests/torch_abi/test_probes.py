"""Fakes refuse the dtypes and numbers that kernels of the CPU refuse, and the program then sees the kernel's error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import armature
from armature.plugins import manager
from armature.torch_abi.fake import FakeWorld
from armature.torch_abi.probes import Probed, of_operator

DTYPES = (
    torch.bool, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
    torch.float64, torch.complex32, torch.complex64, torch.complex128, torch.uint16, torch.uint64, torch.float8_e5m2,
)  # fmt: skip


def ones(dtype: torch.dtype) -> Tensor:
    return torch.ones(3).to(dtype)


MADE: dict[str, Callable[[torch.dtype], Tensor]] = {
    "linspace": lambda dtype: torch.linspace(0, 1, 3, dtype=dtype),
    "linspace of one": lambda dtype: torch.linspace(0, 1, 1, dtype=dtype),
    "logspace": lambda dtype: torch.logspace(0, 1, 3, dtype=dtype),
    "arange": lambda dtype: torch.arange(3, dtype=dtype),
    "arange backwards": lambda dtype: torch.arange(1, 0, -1, dtype=dtype),
    "arange of none": lambda dtype: torch.arange(0, dtype=dtype),
    "arange, long": lambda dtype: torch.arange(300, dtype=dtype),
    "full": lambda dtype: torch.full((2,), 1.5, dtype=dtype),
    "full of a large int": lambda dtype: torch.full((2,), 2**40, dtype=dtype),
    "full of a large float": lambda dtype: torch.full((2,), 1e300, dtype=dtype),
    "full of one": lambda dtype: torch.full((1,), 1e300, dtype=dtype),
    "full of NaN": lambda dtype: torch.full((2,), float("nan"), dtype=dtype),
    "full of a complex number": lambda dtype: torch.full((2,), 3j, dtype=dtype),
    "full_like": lambda dtype: torch.full_like(ones(dtype), 3j),
    "new_full": lambda dtype: ones(dtype).new_full((2,), 3j),
    "fill_": lambda dtype: ones(dtype).fill_(2**40),
    "masked_fill": lambda dtype: ones(dtype).masked_fill(torch.ones(3) > 0, 2**40),
    "zeros": lambda dtype: torch.zeros(2, dtype=dtype),
    "eye": lambda dtype: torch.eye(2, dtype=dtype),
    "rand": lambda dtype: torch.rand(2, dtype=dtype),
    "randn": lambda dtype: torch.randn(2, dtype=dtype),
    "rand of none": lambda dtype: torch.rand(0, dtype=dtype),
    "rand_like": lambda dtype: torch.rand_like(ones(dtype)),
    "randint": lambda dtype: torch.randint(0, 300, (2,), dtype=dtype),
    "randint of negative": lambda dtype: torch.randint(-5, 5, (2,), dtype=dtype),
    "randint_like": lambda dtype: torch.randint_like(ones(dtype), 2),
    "randperm": lambda dtype: torch.randperm(3, dtype=dtype),
    "randperm, long": lambda dtype: torch.randperm(300, dtype=dtype),
    "normal": lambda dtype: torch.normal(ones(dtype)),
    "bernoulli": lambda dtype: torch.bernoulli(ones(dtype)),
    "bernoulli of a chance": lambda dtype: torch.bernoulli(ones(dtype), 0.5),
    "bernoulli_": lambda dtype: ones(dtype).bernoulli_(torch.ones(3)),
    "multinomial": lambda dtype: torch.multinomial(ones(dtype), 1),
    "poisson": lambda dtype: torch.poisson(ones(dtype)),
    "uniform_": lambda dtype: ones(dtype).uniform_(),
    "normal_": lambda dtype: ones(dtype).normal_(),
    "exponential_": lambda dtype: ones(dtype).exponential_(),
    "geometric_": lambda dtype: ones(dtype).geometric_(0.5),
    "random_": lambda dtype: ones(dtype).random_(0, 300),
    "dropout": lambda dtype: torch.dropout(ones(dtype), 0.5, True),
    "polar": lambda dtype: torch.polar(ones(dtype), ones(dtype)),
    "hann_window": lambda dtype: torch.hann_window(3, dtype=dtype),
    "kaiser_window": lambda dtype: torch.kaiser_window(3, dtype=dtype),
    "fftfreq": lambda dtype: torch.fft.fftfreq(3, dtype=dtype),
}


def refused_by_kernel(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception | None:
    ask = manager().tables().fake_rules.of(op).refused
    return None if ask is None else ask(op, args, kwargs)


def error_of(make: Callable[[torch.dtype], Tensor], dtype: torch.dtype) -> str:
    try:
        make(dtype)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MADE)
def test_fakes_refuse_what_kernels_refuse(name: str) -> None:
    for dtype in DTYPES:
        state = torch.get_rng_state()
        with FakeWorld(rules=manager().tables().fake_rules).mode:
            told = error_of(MADE[name], dtype)
        assert torch.equal(torch.get_rng_state(), state)  # nothing was drawn
        assert bool(told) or not error_of(MADE[name], dtype), dtype


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32, torch.complex64])
@pytest.mark.parametrize(
    "name", ["linspace", "arange", "full of a large int", "rand", "randperm", "bernoulli", "fill_"]
)
def test_the_program_sees_the_error(name: str, dtype: torch.dtype) -> None:
    armature.reset()
    compiled = armature.compile(lambda dtype: MADE[name](dtype))
    for _ in range(2):
        assert error_of(compiled, dtype) == error_of(MADE[name], dtype)


def elementwise() -> Iterator[torch._ops.OpOverload]:
    """All of ATen's, but those that write into a given tensor."""
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads() if isinstance(packet, torch._ops.OpOverloadPacket) else ():
            op = getattr(packet, overload)
            if torch.Tag.pointwise in op.tags and "out" not in overload:
                yield op


def operands(op: torch._ops.OpOverload, first: torch.dtype, others: torch.dtype) -> list[object] | None:
    """Arguments without which the operator can't be called; None: some are of another kind."""
    kinds = [str(one.type) for one in op._schema.arguments if not one.kwarg_only and not one.has_default_value()]
    numbers = {"number": 0.5, "float": 0.5, "int": 1}
    if not all(kind == "Tensor" or kind in numbers for kind in kinds):
        return None
    return [ones(others if place else first) if kind == "Tensor" else numbers[kind] for place, kind in enumerate(kinds)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("others", [torch.float32, None], ids=str)
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.complex64])
def test_elementwise_operators_refuse_what_kernels_refuse(dtype: torch.dtype, others: torch.dtype | None) -> None:
    refused = 0
    for op in elementwise():
        given = operands(op, dtype, others or dtype)
        if given is None or all(one.is_floating_point() for one in given if isinstance(one, Tensor)):
            continue
        asked = refused_by_kernel(op, tuple(given), {})
        with FakeWorld(rules=manager().tables().fake_rules).mode:
            told = error_of(lambda _, op=op: op(*operands(op, dtype, others or dtype)), dtype)  # type: ignore[misc]
        real = error_of(lambda _, op=op, given=given: op(*given), dtype)  # type: ignore[misc]
        assert (told or not real) and (real or asked is None), (op, told, asked, real)
        refused += bool(real)
    assert refused > 5


def multiply(x: Tensor) -> Tensor:
    x *= 0.5
    return x


REFUSED: dict[str, Callable[[Tensor], Tensor]] = {
    "x *= 0.5": multiply,
    "round": torch.round,
    "relu": torch.relu,
    "lerp": lambda x: x.lerp(x, 0.5),
    "addcmul_": lambda x: x.addcmul_(torch.ones(3), torch.ones(3)),
    "of a part": lambda x: x[1:].mul_(torch.ones(2)),
}


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
@pytest.mark.parametrize("name", REFUSED)
def test_the_program_sees_the_error_of_an_elementwise_operator(name: str, dtype: torch.dtype) -> None:
    compiled = armature.compile(REFUSED[name])
    for _ in range(2):
        x, twin = ones(dtype), ones(dtype)
        assert error_of(lambda _, x=x: compiled(x), dtype) == error_of(lambda _, x=twin: REFUSED[name](x), dtype)  # type: ignore[misc]
        assert torch.equal(x, twin)


def test_an_empty_tensor_is_refused_as_little_as_by_the_kernel() -> None:
    fn = lambda x: x.round()  # noqa: E731
    for sizes in ((0,), (2, 0)):
        x = torch.ones(sizes, dtype=torch.bool)
        assert error_of(lambda _, x=x: armature.compile(fn)(x), x.dtype) == error_of(lambda _, x=x: fn(x), x.dtype)  # type: ignore[misc]


def test_a_format_needs_its_rank() -> None:
    """Whoever asks the kernel has to ask about as many axes."""
    x = torch.ones(1, 3, 4, 5, dtype=torch.int64)
    for fn in (
        lambda x: x.to(torch.float64, memory_format=torch.channels_last),
        lambda x: torch.cat([x, x]).cfloat(memory_format=torch.channels_last),
    ):
        found = armature.compile(fn, fullgraph=True)(x)
        torch.testing.assert_close(found, fn(x), check_stride=True)


def test_the_kernel_is_asked() -> None:
    arange = torch.ops.aten.arange.default
    refused = refused_by_kernel(arange, (3,), {"dtype": torch.bool})
    assert refused is not None and "Bool" in str(refused)
    assert refused_by_kernel(arange, (3,), {"dtype": torch.int64}) is None
    assert refused_by_kernel(torch.ops.aten.sin.default, (ones(torch.float32),), {}) is None


def test_which_kernels_are_asked() -> None:
    ask = of_operator(torch.ops.aten.full.default, Probed.SMALL)
    assert ask is not None and ask(torch.ops.aten.full.default, ([2], 3j), {"dtype": torch.float32})
    assert of_operator(torch.ops.aten.full.default, None) is of_operator(torch.ops.aten.mm.default, None) is None
    assert of_operator(torch.ops.aten.sin.default, None) is not None


def test_arguments_that_depend_on_sizes_fit_the_smaller_ones() -> None:
    run = armature.compile(lambda x: torch.multinomial(x, 5), fullgraph=True, backend="eager")
    assert run(torch.rand(3, 10)).shape == (3, 5)


def test_what_is_large_is_not_made() -> None:
    with FakeWorld(rules=manager().tables().fake_rules).mode:
        for made in (torch.arange(1 << 40), torch.rand(1 << 40), torch.eye(1 << 20), torch.linspace(0, 1, 1 << 40)):
            assert made.numel() == 1 << 40


CHANGING: dict[str, Callable[[int, float], Tensor]] = {
    "arange": lambda n, p: torch.arange(1, n + 1),
    "arange of halves": lambda n, p: torch.arange(0.5, n, 0.5),
    "randint": lambda n, p: torch.randint(0, n, (n,)) * 0,
    "randperm": lambda n, p: torch.randperm(n) * 0,
    "uniform_": lambda n, p: torch.ones(n).uniform_(-1, p) * 0,
    "geometric_": lambda n, p: torch.ones(n).geometric_(1 / (n + 1)) * 0,
    "exponential_": lambda n, p: torch.ones(n).exponential_(p) * 0,
    "full": lambda n, p: torch.full((n,), p),
}


@pytest.mark.parametrize("name", CHANGING)
def test_numbers_that_change_are_not_refused(name: str) -> None:
    armature.reset()
    compiled = armature.compile(lambda n, p: CHANGING[name](n, p), backend="eager", fullgraph=True)
    for n in (2, 3, 5, 7):
        torch.testing.assert_close(compiled(n, n / 10), CHANGING[name](n, n / 10))
