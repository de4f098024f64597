"""Dropout whose numbers kernels compute: through the interpreter, with a generator of the CPU in place of a device's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import attrs
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import armature
from armature.backend_api import Features, Numbering, philox
from armature.pipeline.session import session
from armature_gpu_triton import random_numbers
from armature_gpu_triton.features import FEATURES

THREADS = 48


@attrs.define(eq=False)
class Generator:
    """Like a device's generator: a seed, and an offset that moves on. torch's own on the CPU is left alone."""

    vector: int = 8
    seed: int = -7
    offset: int = 0
    reserved: list[int] = attrs.field(factory=list)

    def numbering(self, device: torch.device, dtype: torch.dtype) -> Numbering | None:
        return Numbering(self.vector, THREADS)

    def reserve(self, device: torch.device, count: int) -> Tensor:
        self.reserved.append(count)
        self.offset += count
        return torch.tensor([self.seed, self.offset - count])

    def eager(self, x: Tensor, p: float, offset: int) -> Tensor:
        """Which elements eager's kernel would keep of a dense tensor, element by element."""
        vector = self.vector
        while x.numel() % vector:
            vector //= 2
        state = (torch.tensor(n) for n in (self.seed, offset))
        ways = (torch.tensor(vector), torch.tensor(THREADS))
        drawn = philox.uniform(*state, torch.arange(x.numel()), *ways) < torch.tensor(1 - p, dtype=torch.float32)
        return torch.empty_like(x, dtype=torch.bool).set_(drawn.untyped_storage(), 0, x.shape, x.stride())


@pytest.fixture
def generator(serving: Callable[[Features], AbstractContextManager[None]]) -> Iterator[Generator]:
    found = Generator()
    with serving(attrs.evolve(FEATURES, random=found)):
        yield found


def texts() -> str:
    return "\n".join(source.text for source in session().kernel_sources())


SHAPES: dict[str, Callable[[], Tensor]] = {
    "rows of four": lambda: torch.ones(6, 24),
    "few": lambda: torch.ones(4),
    "half precision": lambda: torch.ones(3, 5, 16, dtype=torch.bfloat16),
    "eight at once": lambda: torch.ones(200, dtype=torch.float16),
    "two at once": lambda: torch.ones(3, 5, 2),
    "one at once": lambda: torch.ones(7, 71),
    "several steps of a thread": lambda: torch.ones(1024),
    "single": lambda: torch.ones(9 * THREADS),
    "transposed": lambda: torch.ones(12, 8).t(),
    "channels last": lambda: torch.ones(2, 4, 3, 3).to(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("vector", [4, 8, 16])
@pytest.mark.parametrize("shape", SHAPES)
def test_numbers_are_those_of_eagers_kernel(shape: str, vector: int, generator: Generator) -> None:
    generator.vector = vector
    x = SHAPES[shape]()
    compiled = armature.compile(lambda x: F.dropout(x, 0.3), fullgraph=True)
    for _ in range(2):
        before = generator.offset
        kept = generator.eager(x, 0.3, before)
        torch.testing.assert_close(compiled(x), torch.where(kept, x / 0.7, 0))
        assert generator.offset == before + 4 * -(-x.numel() // (4 * THREADS))
    assert "uniform" in texts()


def test_dropout_is_in_the_kernel_of_the_norm_behind_it(generator: Generator) -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        return F.layer_norm(F.dropout(x, 0.1) + y, (x.shape[-1],))

    x, y = torch.randn(64, 128, dtype=torch.bfloat16), torch.randn(64, 128, dtype=torch.bfloat16)
    kept = generator.eager(x, 0.1, 0)
    found = armature.compile(program, fullgraph=True)(x, y)
    expected = F.layer_norm(torch.where(kept, (x.float() / 0.9).bfloat16(), 0) + y, (128,))
    torch.testing.assert_close(found, expected)
    (graph,) = session().compilations[-1].graphs
    assert graph.program.kernel_count == 1 and graph.program.extern_count == 1
    assert "helpers.uniform_fours" in texts()  # four numbers from one counter


def test_operators_in_a_row_share_a_reservation(generator: Generator) -> None:
    def program(x: Tensor) -> Tensor:
        return F.dropout(F.dropout(x, 0.5) + 1, 0.25)

    x = torch.ones(32, 40)
    steps = 4 * -(-x.numel() // (4 * THREADS))
    first, second = generator.eager(x, 0.5, 0), generator.eager(x, 0.25, steps)
    found = armature.compile(program, fullgraph=True)(x)
    torch.testing.assert_close(found, (first * 2.0 + 1) * second / 0.75)
    assert generator.reserved == [2 * steps]


def test_an_operator_that_draws_itself_keeps_its_turn(generator: Generator) -> None:
    def program(x: Tensor) -> Tensor:
        return F.dropout(torch.bernoulli(F.dropout(x, 0.5) / 2) + 1, 0.5)

    armature.compile(program, fullgraph=True)(torch.ones(8, 8))
    assert generator.reserved == [4, 4]
    (graph,) = session().compilations[-1].graphs
    assert re.findall(r"= (?:armature|aten)_(reserve|bernoulli)", graph.program.wrapper) == [
        "reserve",
        "bernoulli",
        "reserve",
    ]


def test_backward_has_forwards_mask(generator: Generator) -> None:
    compiled = armature.compile(lambda x: F.dropout(x.exp(), 0.4), fullgraph=True)
    x = torch.linspace(0, 1, 240).reshape(6, 40).requires_grad_()
    out = compiled(x)
    out.sum().backward()
    kept = generator.eager(x, 0.4, 0)
    assert torch.equal(out != 0, kept) and generator.reserved == [8]
    torch.testing.assert_close(x.grad, out.detach())


def test_what_is_recomputed_is_the_same(generator: Generator) -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        y = F.dropout(x, 0.5)
        return y.t().contiguous(), y.sum(0), y[:, ::2] * 2, y.flip(1)

    kept = generator.eager(torch.ones(12, 20), 0.5, 0) * 2.0
    found = armature.compile(program, fullgraph=True)(torch.ones(12, 20))
    for one, other in zip(found, (kept.t(), kept.sum(0), kept[:, ::2] * 2, kept.flip(1)), strict=True):
        torch.testing.assert_close(one, other)


def test_a_size_that_is_not_known(generator: Generator) -> None:
    compiled = armature.compile(lambda x: F.dropout(x, 0.5), fullgraph=True)
    for rows in (3, 5, 30, 31):  # from the second on, the number of rows is a symbol
        x, before = torch.ones(rows, 16), generator.offset
        torch.testing.assert_close(compiled(x), generator.eager(x, 0.5, before) * 2.0)
    assert len(generator.reserved) == 4 and len(session().compilations) == 2


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_nothing_is_drawn_where_nothing_is_left_to_chance(p: float, generator: Generator) -> None:
    found = armature.compile(lambda x: F.dropout(x, p) + 1, fullgraph=True)(torch.ones(8, 8))
    assert torch.equal(found, torch.full((8, 8), 2.0 - p)) and generator.reserved == []


def test_a_numbering_that_is_not_known_leaves_eagers_call(
    generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Generator, "numbering", lambda self, device, dtype: None)
    torch.manual_seed(5)
    expected = F.dropout(torch.ones(6, 8), 0.5)
    torch.manual_seed(5)
    assert torch.equal(armature.compile(lambda x: F.dropout(x, 0.5), fullgraph=True)(torch.ones(6, 8)), expected)


def test_the_numbers_are_uniform_and_independent() -> None:
    count = 1 << 16
    ways = (torch.tensor(8), torch.tensor(2048))
    rows = [
        philox.uniform(torch.tensor(seed), torch.tensor(offset), torch.arange(count), *ways)
        for seed, offset in ((0, 0), (1, 0), (0, 64))
    ]
    drawn = torch.stack([*rows, rows[0].roll(1)])
    assert drawn.min() > 0 and drawn.max() <= 1
    assert ((drawn.mean(1) - 0.5).abs() < 5 / (12 * count) ** 0.5).all()
    counts = torch.histc(drawn[0], 64, 0, 1)
    assert ((counts - count / 64) ** 2 / (count / 64)).sum() < 63 + 5 * 126**0.5
    assert (torch.corrcoef(drawn) - torch.eye(4)).abs().max() < 5 / count**0.5


class Eager:
    """Stands for a device: a generator, and dropout that numbers its values in some way."""

    def __init__(self, number: Callable[[Tensor], Tensor]) -> None:
        self.number, self.offset = number, 12

    def initial_seed(self) -> int:
        return 2**64 - 9

    def get_offset(self) -> int:
        return self.offset

    def set_offset(self, offset: int) -> None:
        self.offset = offset

    def dropout(self, x: Tensor, p: float, train: bool) -> tuple[Tensor, Tensor]:
        self.offset += 100
        return x, self.number(torch.arange(x.numel())) < p


@pytest.mark.parametrize("vector", [16, 8, 4, None])
def test_eagers_numbering_is_found_by_comparison(vector: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def number(element: Tensor) -> Tensor:
        state = (torch.tensor(-9), torch.tensor(12), element)
        return philox.uniform(*state, torch.tensor(8 if vector is None else vector), torch.tensor(THREADS))

    device = Eager(number if vector else lambda element: number(element + 4))
    monkeypatch.setattr(random_numbers, "generator_of", lambda _: device)
    monkeypatch.setattr(random_numbers, "threads_of", lambda _: THREADS)
    monkeypatch.setattr(torch, "native_dropout", device.dropout)
    found = random_numbers.compared(torch.device("cpu"), torch.float32)
    assert found == (Numbering(vector, THREADS) if vector else None)
    assert device.offset == 12


@pytest.fixture
def no_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)  # needs a build with CUDA


def test_a_recording_draws_before_each_replay(no_capture: None, monkeypatch: pytest.MonkeyPatch) -> None:
    device, numbers = Eager(lambda element: element), random_numbers.CudaRandomNumbers()
    monkeypatch.setattr(random_numbers, "generator_of", lambda _: device)
    with numbers.recorded() as reserved:
        places = [numbers.reserve(torch.device("cpu"), count) for count in (4, 8)]
    assert device.offset == 12
    for start in (12, 24):
        reserved.renew()
        assert [place.tolist() for place in places] == [[-9, start], [-9, start + 4]]
    assert numbers.reserve(torch.device("cpu"), 4).tolist() == [-9, 36] and len(reserved.states) == 2


def test_a_recording_that_fails_ends(no_capture: None, monkeypatch: pytest.MonkeyPatch) -> None:
    device, numbers = Eager(lambda element: element), random_numbers.CudaRandomNumbers()
    monkeypatch.setattr(random_numbers, "generator_of", lambda _: device)
    with pytest.raises(ValueError), numbers.recorded():
        raise ValueError
    assert numbers.reserve(torch.device("cpu"), 4).tolist() == [-9, 12] and device.offset == 16
