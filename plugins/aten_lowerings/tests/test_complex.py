"""Complex numbers as loops of real and imaginary parts: eager's values, layouts and marks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import armature
from armature.lower.data import ExternCall
from armature.pipeline.session import session

aten = torch.ops.aten
VIEWS = {aten.view_as_real.default, aten.view_as_complex.default, aten._conj.default, aten.resolve_conj.default}
KINDS = (torch.complex64, torch.complex128)
BIG, NAN = float("inf"), float("nan")


def numbers(*shape: int, dtype: torch.dtype = torch.complex64, grad: bool = False, seed: int = 0) -> Tensor:
    made = torch.randn(*shape, dtype=torch.complex128, generator=torch.Generator().manual_seed(seed))
    return made.to(dtype).requires_grad_(grad)


def calls() -> list[object]:
    """What the graphs of the last compilation call, besides views."""
    found = [n for g in session().compilations[-1].graphs for n in g.loops.nodes if isinstance(n, ExternCall)]
    return [node.target for node in found if node.target not in VIEWS]


def flat(results: object) -> list[Tensor]:
    return list(results) if isinstance(results, (list, tuple)) else [results]  # type: ignore[list-item]


def copied(x: Tensor) -> Tensor:
    """A copy with the same marks."""
    if x.is_conj():
        return x.conj().clone().conj()
    return torch._neg_view(torch._neg_view(x).clone()) if x.is_neg() else x.clone()


def agree(fn: Callable[..., object], *inputs: Tensor, fullgraph: bool = True, **options: object) -> list[object]:
    """Compare with eager mode, backward too where an input asks for it. Returns what is called."""
    armature.reset()
    compiled = armature.compile(fn, fullgraph=fullgraph, **options)  # type: ignore[call-overload]
    runs = []
    for run in (fn, compiled):
        given = [copied(x.detach()).requires_grad_(x.requires_grad) for x in inputs]
        results = flat(run(*given))
        total = sum(torch.view_as_real(one.resolve_conj()).sum() if one.is_complex() else one.sum() for one in results)
        wanted = [x for x in given if x.requires_grad]
        grads = torch.autograd.grad(total, wanted) if wanted else ()  # type: ignore[arg-type]
        runs.append([*results, *grads])
    for found, eager in zip(*reversed(runs), strict=True):
        torch.testing.assert_close(found, eager, equal_nan=True)
        assert found.stride() == eager.stride()
        assert (found.is_conj(), found.is_neg()) == (eager.is_conj(), eager.is_neg())
    return calls()


def rope(x: Tensor, table: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * table).flatten(3).type_as(x)


def table(length: int, half: int) -> Tensor:
    turns = torch.outer(torch.arange(length).float(), 1.0 / 100 ** (torch.arange(half).float() / half))
    return torch.polar(torch.ones_like(turns), turns)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("grad", [False, True])
def test_rotary_embeddings_are_loops(dtype: torch.dtype, grad: bool) -> None:
    def block(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        turns = table(6, 4)[None, :, None]
        return rope(q, turns), rope(k, turns)

    q, k = (torch.randn(2, 6, 3, 8).to(dtype).requires_grad_(grad) for _ in range(2))
    assert agree(block, q, k) == []


def test_a_given_table_enters_by_a_view() -> None:
    assert agree(rope, torch.randn(2, 6, 3, 8), table(6, 4)[None, :, None]) == []


def real(formula: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The formula on parts, so that no complex number lies in memory."""

    def run(*given: Tensor) -> Tensor:
        out = formula(*map(torch.view_as_complex, given))
        return torch.view_as_real(out) if out.is_complex() else out

    return run


FORMULAS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mul": lambda x, y: x * y,
    "mul by a number": lambda x, y: x * (1.5 - 2j) + 2 * y,
    "mul by a real tensor": lambda x, y: x * y.real,
    "add": lambda x, y: torch.add(x, y, alpha=2) + 1,
    "add of a complex multiple": lambda x, y: torch.add(x, y, alpha=1 + 2j),
    "sub": lambda x, y: 1j - torch.sub(x, y, alpha=0.5),
    "div": lambda x, y: x / y,
    "div by a number": lambda x, y: x / 3 + y / (1 - 2j) + x / 2j,
    "div by a real tensor": lambda x, y: x / y.real,
    "div of a number": lambda x, y: 2.3 / x + (1 + 1j) / y,
    "reciprocal": lambda x, y: x.reciprocal() + y,
    "neg": lambda x, y: -x + y,
    "conj": lambda x, y: x.conj() * y,
    "conj twice": lambda x, y: x.conj().conj() * y.conj_physical(),
    "imaginary part of a conjugate": lambda x, y: (x * y).conj().imag * 2,
    "real": lambda x, y: (x * y).real + x.imag,
    "abs": lambda x, y: (x * y).abs(),
    "square of abs": lambda x, y: (x * y).abs() ** 2,
    "angle": lambda x, y: (x * y).angle(),
    "sgn": lambda x, y: (x * y).sgn(),
    "exp": lambda x, y: (x * y).exp(),
    "exp of an imaginary number": lambda x, y: torch.exp(1j * x.real) * y,
    "square": lambda x, y: x**2 + y.square() + y**3 + x**-1,
    "polar": lambda x, y: torch.polar(x.abs(), y.real) * y,
    "complex": lambda x, y: torch.complex(x.imag, y.real) * y,
    "complex of other shapes": lambda x, y: torch.complex(x.imag[:1], y.real[:, :1]) * y,
    "a real tensor of another shape": lambda x, y: x[:, :1] * 2 + y.real[:1],
    "where": lambda x, y: torch.where(x.real > 0, x * y, y),
    "where with numbers": lambda x, y: torch.where(x.real > 0, x * y, 1j) + torch.where(y.real > 0, 2, x),
    "masked_fill": lambda x, y: (x * y).masked_fill(x.real > 0, 2),
    "sum": lambda x, y: (x * y).sum(0) + (x * y).sum(),
    "mean": lambda x, y: (x * y).mean(-1, keepdim=True) + (x * y).mean(),
    "cumsum": lambda x, y: (x * y).cumsum(1),
    "cat": lambda x, y: torch.cat([x * y, y, y.real.to(y.dtype)], 1) * 2,
    "stack": lambda x, y: torch.stack([x * y, y], -1) * 2,
    "views": lambda x, y: (x * y).reshape(-1)[None].expand(2, -1).mT.unflatten(0, (-1, 2))[1:, 0] * 2,
    "select and flip": lambda x, y: (x * y).flip(0)[1] * y[:, 1:2].squeeze(1).sum() + (x * y).roll(1, 1)[0],
    "split": lambda x, y: torch.chunk(x * y, 2, 1)[1] * (x * y).unbind(0)[0][:2],
    "index": lambda x, y: (x * y)[torch.tensor([2, 0])] * y[0],
    "pad": lambda x, y: torch.nn.functional.pad(x * y, (1, 2)) * 2,
    "new tensors": lambda x, y: torch.zeros_like(x) + torch.full_like(x, 2j) * x + y.new_ones(3, 1) * y,
    "dot": lambda x, y: torch.dot(x[0], y[0]) + torch.vdot(x[1] * 2, y[1]),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=2),
    "in place": lambda x, y: (x * 1).mul_(y).add_(1j).div_(2),
    "writes of parts": lambda x, y: _with_first_row(x * y, y) * 2,
    "norm": lambda x, y: torch.linalg.vector_norm(x * y) + (x * y).norm(dim=1),
    "a wider dtype": lambda x, y: (x * y).to(torch.complex128) * 2,
}


def _with_first_row(x: Tensor, y: Tensor) -> Tensor:
    x[0] = y[1]
    x[:, 1:3] = 2j
    return x


def _pair(dtype: torch.dtype, grad: bool) -> list[Tensor]:
    return [torch.view_as_real(numbers(3, 4, dtype=dtype, seed=k)).clone().requires_grad_(grad) for k in range(2)]


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("name", FORMULAS)
def test_operators_are_loops(name: str, dtype: torch.dtype) -> None:
    assert agree(real(FORMULAS[name]), *_pair(dtype, grad=False)) == []


@pytest.mark.parametrize("name", FORMULAS)
def test_their_gradients(name: str) -> None:
    agree(real(FORMULAS[name]), *_pair(torch.complex64, grad=True))


@pytest.mark.parametrize("name", FORMULAS)
def test_complex_inputs_and_results(name: str) -> None:
    agree(FORMULAS[name], numbers(3, 4, grad=True), numbers(3, 4, grad=True, seed=1))
    agree(FORMULAS[name], numbers(4, 3).mT, numbers(3, 8, seed=1)[:, ::2].conj())


@pytest.mark.parametrize("name", FORMULAS)
def test_sizes_that_vary(name: str) -> None:
    agree(real(FORMULAS[name]), *_pair(torch.complex64, grad=False), dynamic=True)


SPECIAL = [0.0, -0.0, 1.0, -2.5, 1e-40, BIG, -BIG, NAN]
LARGE = [3e38, 1e30, -2e-38]  # squares overflow and vanish
OF_SPECIAL = (
    "mul", "add", "sub", "div", "abs", "sgn", "neg", "conj", "reciprocal", "mul by a real tensor", "div by a real tensor",
)  # fmt: skip


def _grid(values: list[float], dtype: torch.dtype) -> list[Tensor]:
    kind = torch.view_as_real(torch.empty(0, dtype=dtype)).dtype
    each = torch.cartesian_prod(*[torch.tensor(values, dtype=kind)] * 2)
    shape = (len(each), len(each), 2)
    return [each[:, None].expand(shape).contiguous(), each[None].expand(shape).contiguous()]


@pytest.mark.parametrize("name", OF_SPECIAL)
@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_infinite_numbers_and_nan(name: str, dtype: torch.dtype) -> None:
    formula = FORMULAS[name] if name not in ("abs", "sgn") else lambda x, y: getattr(x, name)()
    agree(real(formula), *_grid(SPECIAL, dtype))


@pytest.mark.parametrize("name", ["abs", "div", "sgn", "reciprocal"])
@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_nothing_overflows_in_between(name: str, dtype: torch.dtype) -> None:
    formula = FORMULAS[name] if name in ("div", "reciprocal") else lambda x, y: getattr(x, name)()
    scale = 1 if dtype == torch.complex64 else 1e269
    agree(real(formula), *_grid([*(x * scale if x > 1 else x / scale for x in LARGE), 1.0], dtype))


def test_a_conjugate_and_the_memory_behind_it_are_not_confused() -> None:
    agree(lambda x: x * x.real, numbers(40, 40).conj())


def test_an_input_is_written_to() -> None:
    def scaled(x: Tensor, w: Tensor) -> Tensor:
        x.mul_(w).add_(1j)
        torch.view_as_real(x)[..., 0] = 3
        return x.real * 2

    x, w, y = numbers(3, 4), numbers(4), numbers(3, 4)
    eager, found = scaled(x, w), armature.compile(scaled, fullgraph=True)(y, w)
    torch.testing.assert_close(found, eager)
    torch.testing.assert_close(y, x)


def test_results_that_share_memory() -> None:
    def both(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x * w + x * 2
        return y, torch.view_as_real(y), y.conj()

    y, parts, conjugate = armature.compile(both, fullgraph=True)(numbers(2000), numbers(2000, seed=1))
    parts[0] = 7
    assert y[0] == 7 + 7j and conjugate[0] == 7 - 7j


def test_a_result_is_conjugated_lazily_as_in_eager_mode() -> None:
    agree(lambda x, w: (x * w + x * 2).conj(), numbers(2000), numbers(2000, seed=1))
    agree(lambda x, w: ((x * w + x * 2).conj().imag, x.conj().imag), numbers(2000), numbers(2000, seed=1))


@pytest.mark.parametrize("shape", [(50, 40), (5, 1, 40)])
def test_results_have_the_strides_of_eager_mode(shape: tuple[int, ...]) -> None:
    agree(lambda x, w: (x * w + x * 2).exp(), numbers(*shape).mT, numbers(shape[-1], 1, seed=1))
    agree(lambda x, w: (x * w + x * 2).exp(), numbers(*shape).expand(50, *shape), numbers(shape[-1], seed=1))


def test_values_that_are_marked_as_negated_are_read_as_such() -> None:
    x = numbers(4)
    agree(lambda x: x.conj().imag * 2, x)
    agree(lambda y: y * 2 + y.sin(), x.conj().imag)
    agree(lambda y: (y, y[1:].exp()), x.conj().imag)


def test_a_value_that_is_marked_as_negated_is_written_to() -> None:
    def doubled(y: Tensor) -> Tensor:
        return y.mul_(2).add_(1) * 3

    for parts in (lambda x: torch._neg_view(x.real.clone()), lambda x: x.conj().imag):
        ours, eagers = parts(numbers(4)), parts(numbers(4))
        torch.testing.assert_close(armature.compile(doubled)(ours), doubled(eagers))
        torch.testing.assert_close(ours, eagers)


def test_a_gradient_that_is_marked_as_negated_or_conjugated() -> None:
    def gradient(fn: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        y = fn(x)
        conjugate = (y if y.is_complex() else torch.complex(torch.ones_like(y), y)).conj()
        return torch.autograd.grad(conjugate, x, torch.full_like(conjugate, 1 + 1j))[0]

    def doubled(x: Tensor) -> Tensor:
        return x * 2 + x.sin() if not x.is_complex() else torch.view_as_complex(torch.view_as_real(x) * 2) * x

    for x in (torch.randn(4, requires_grad=True), numbers(4, grad=True)):
        armature.reset()
        torch.testing.assert_close(gradient(armature.compile(doubled), x), gradient(doubled, x))


def test_what_would_cost_more_as_loops_stays_a_call() -> None:
    def filtered(x: Tensor, w: Tensor) -> Tensor:
        return torch.fft.irfft(torch.fft.rfft(x) * w)

    assert aten.mul.Tensor in agree(filtered, torch.randn(3, 16), numbers(9))
    assert aten.sum.default in agree(lambda x: x.sum(), numbers(3, 4))


def test_half_precision_stays_a_call() -> None:
    assert agree(lambda x: (x * x).real + 1, numbers(4).to(torch.complex32)) != []
