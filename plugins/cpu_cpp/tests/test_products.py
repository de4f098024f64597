"""Products of matrices in compilations that measure: what each way computes, and how one is chosen and kept."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import armature
from armature.backend_api import KernelChoice, ProductSizes
from armature.pipeline.session import session
from armature_cpu_cpp import isa, products
from armature_cpu_cpp.products import PANELS, Blocks, Sides, divided, tiled

Preferring = Callable[..., AbstractContextManager[Any]]
WAYS = ("library", "in place", "in panels", "dots", "loops")
OWN = WAYS[1:4]


def compiled(fn: Callable[..., Any], mode: str = "max-autotune", **options: Any) -> Callable[..., Any]:
    found: Callable[..., Any] = armature.compile(fn, fullgraph=True, mode=mode, **options)
    return found


def choices() -> list[KernelChoice]:
    return [choice for source in session().kernel_sources() for choice in source.choices]


def ways() -> set[str]:
    """The ways that were taken."""
    return {choice.chosen for choice in choices()}


def plain(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return x @ w


def biased(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return torch.addmm(b, x, w)


def scaled(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return torch.addmm(r, x, w, beta=0.5, alpha=2)


def activated(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return functional.gelu(x @ w + b) + r


def prepared(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return (x * x[:, :1]) @ (w - 1)


def padded(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return functional.pad(x[:, :-2], (1, 1)) @ w


def rounded(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return ((x.bfloat16().to(x.dtype) @ w) * 2).to(torch.bfloat16)


def turned(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    product = (x @ w).relu()
    return product, product.t() * 2


def written_turned(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return (x @ w).t().contiguous() + 1


def batched(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    factors = torch.arange(3).to(x.dtype)[:, None, None]
    return (torch.bmm(x * factors, w + factors) * 0.125).tanh()


def broadcast(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return torch.matmul(torch.stack([x, -x]), w) + b


def of_parts(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return x[::2, 1:] @ w[1:, ::3]


def normed(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return torch.softmax(functional.layer_norm(x, x.shape[-1:]) @ w, -1)


def shared(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return (x @ w).sum() + (x @ w.abs()).amax() + r


PROGRAMS = (
    plain, biased, scaled, activated, prepared, padded, rounded, turned, written_turned, batched, broadcast, of_parts,
    normed, shared,
)  # fmt: skip
SHAPES = ((37, 70, 50), (1, 40, 100), (5, 3, 7), (64, 64, 64), (3, 600, 33), (130, 17, 1), (1, 1, 1), (100, 40, 500))


def arguments(m: int, k: int, n: int, dtype: torch.dtype, by_columns: bool) -> list[Tensor]:
    torch.manual_seed(0)
    x, w, b, r = (torch.randn(shape, dtype=dtype) for shape in ((m, k), (k, n), (n,), (m, n)))
    return [x, w.t().contiguous().t() if by_columns else w, b, r]


def check(found: object, expected: object, dtype: torch.dtype = torch.float32) -> None:
    close = 2e-4 if dtype == torch.float32 else 1e-9
    for one, other in zip(*([v] if isinstance(v, Tensor) else v for v in (found, expected)), strict=True):  # type: ignore[call-overload]
        bits = one.dtype == torch.bfloat16
        torch.testing.assert_close(one, other, rtol=1e-2 if bits else close, atol=1e-2 if bits else close)
        assert one.stride() == other.stride() or one.numel() == 0


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("fn", PROGRAMS)
@pytest.mark.parametrize("word", WAYS)
def test_each_way_gives_what_eager_gives(
    fn: Callable[..., Any], word: str, by_columns: bool, preferring: Preferring
) -> None:
    with preferring(word):
        for shape in SHAPES[:3]:
            if fn is padded and shape[1] < 4:
                continue
            args = arguments(*shape, torch.float32, by_columns)
            check(compiled(fn, dynamic=False)(*args), fn(*args))


@pytest.mark.parametrize("target", [isa.BASELINE, isa.AVX2, isa.AVX512], ids=lambda target: target.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("word", OWN)
def test_every_size_with_every_register(word: str, dtype: torch.dtype, target: isa.Isa, preferring: Preferring) -> None:
    if target.register_bytes > isa.detect().register_bytes:
        pytest.skip("this machine has no such registers")
    with preferring(word, target):
        for shape in SHAPES:
            args = arguments(*shape, dtype, word == "dots")
            check(compiled(activated, dynamic=False)(*args), activated(*args), dtype)
        assert any(word in way for way in ways())


@pytest.mark.parametrize("shape", [(0, 4, 5), (4, 0, 5), (4, 5, 0), (0, 0, 0)])
@pytest.mark.parametrize("word", WAYS)
def test_sides_without_elements(word: str, shape: tuple[int, int, int], preferring: Preferring) -> None:
    args = arguments(*shape, torch.float32, False)
    with preferring(word):
        for fn in (plain, biased, activated):
            check(compiled(fn, dynamic=False)(*args), fn(*args))


@pytest.mark.parametrize("word", WAYS)
def test_sizes_that_change(word: str, preferring: Preferring) -> None:
    with preferring(word):
        quick = compiled(activated, dynamic=True)
        for shape in ((40, 70, 50), (3, 600, 33), (100, 40, 500), (2, 3, 4)):
            args = arguments(*shape, torch.float32, word == "dots")
            check(quick(*args), activated(*args))


@pytest.mark.parametrize("word", WAYS)
def test_what_is_no_number_stays_in_its_row_and_column(word: str, preferring: Preferring) -> None:
    x, w, b, r = arguments(21, 40, 37, torch.float32, word == "dots")
    x[3, 7], w[5, 36], x[20, 1], w[2, 0] = float("nan"), float("inf"), float("-inf"), 1e38
    with preferring(word):
        found, expected = compiled(plain)(x, w, b, r), plain(x, w, b, r)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4, equal_nan=True)


def gradients(run: Callable[[Tensor], Tensor], model: torch.nn.Module, x: Tensor) -> list[Tensor]:
    """Those of the input and of all parameters."""
    for each in (x, *model.parameters()):
        each.grad = None
    run(x).square().mean().backward()
    return [each.grad for each in (x, *model.parameters()) if each.grad is not None]


@pytest.mark.parametrize("word", WAYS)
def test_gradients(word: str, preferring: Preferring) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(40, 70), torch.nn.ReLU(), torch.nn.Linear(70, 9))
    x = torch.randn(23, 40, requires_grad=True)

    expected = gradients(model, model, x)
    with preferring(word):
        check(gradients(compiled(model), model, x), expected)
        assert any(word in way for way in ways())


@pytest.mark.parametrize("word", OWN)
def test_results_do_not_depend_on_the_number_of_threads(word: str, preferring: Preferring) -> None:
    args = arguments(300, 260, 500, torch.float32, word == "dots")
    found: list[Tensor] = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            with preferring(word), armature.config.patch(cpu_threads=threads):
                found.append(compiled(activated)(*args))
                (text,) = (source.text for source in session().kernel_sources())
                assert ("parallel(" in text) == (threads > 1)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(each, found[0]) for each in found)


def test_rows_do_not_depend_on_their_number(preferring: Preferring) -> None:
    x, w, b, r = arguments(64, 300, 90, torch.float32, False)
    with preferring("in place"):
        whole = compiled(plain, dynamic=False)(x, w, b, r)
        part = compiled(plain, dynamic=False)(x[:19], w, b, r)
    assert torch.equal(part, whole[:19])


def test_an_input_that_is_written_in_place(preferring: Preferring) -> None:
    def fn(x: Tensor, w: Tensor, total: Tensor) -> Tensor:
        total += x @ w
        return total * 2

    for word in ("library", *OWN):
        x, w, _, total = arguments(19, 33, 41, torch.float32, word == "dots")
        mine = total.clone()
        with preferring(word):
            check(compiled(fn)(x, w, mine), fn(x, w, total))
            check(mine, total)


def test_batches_of_sizes_that_change(preferring: Preferring) -> None:
    def fn(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return (torch.matmul(x.transpose(1, 2), w[:, None]) + b).relu()

    for word in ("library", "in panels"):
        with preferring(word):
            quick = compiled(fn, dynamic=True)
            for batch, rows, heads in ((3, 17, 4), (2, 40, 5), (7, 5, 3)):
                x, w = torch.randn(batch, rows, heads, 24), torch.randn(batch, 24, 33)
                check(quick(x, w, torch.ones(33)), fn(x, w, torch.ones(33)))
            assert any(word in way for way in ways())


def test_long_inner_loops_take_no_memory_of_their_own(preferring: Preferring) -> None:
    x, w, b, r = arguments(5, 1 << 17, 6, torch.float32, False)
    with preferring("panels"):
        quick = compiled(lambda x, w: x.t().contiguous().t() @ w)
        torch.testing.assert_close(quick(x, w), x @ w, rtol=1e-3, atol=1e-1)
        assert not any("panels" in tried.label for choice in choices() for tried in choice.tried)


def test_measured_once_and_kept(preferring: Preferring) -> None:
    args = arguments(37, 70, 50, torch.float32, False)
    with preferring("panels") as bench:
        compiled(activated)(*args)
        (first,) = choices()
        assert first.how == "measured" and "panels" in first.chosen and len(bench.timed) == len(first.tried)
        armature.reset()
        compiled(activated)(*args)
        (again,) = choices()
        assert (again.how, again.chosen, again.tried) == ("kept", first.chosen, first.tried)
        armature.reset()
        compiled(plain, options={"measure": False})(*args)
        (off,) = choices()
        assert (off.how, off.chosen) == ("by rule: measuring is switched off", "library")


def test_measured_on_this_machine() -> None:
    args = arguments(37, 70, 50, torch.float32, False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(compiled(activated)(*args), activated(*args))
    (choice,) = choices()
    assert "threads" in choice.device and all(tried.seconds for tried in choice.tried)


def test_other_modes_and_dtypes_measure_nothing(preferring: Preferring) -> None:
    args = arguments(37, 70, 50, torch.float32, False)
    with preferring("blocks"):
        compiled(activated, mode="default")(*args)
        compiled(plain)(*(each.bfloat16() for each in args))
        assert not choices()


@pytest.mark.parametrize(
    "sides", [Sides(1, 1, 1, 1), Sides(1, 1000, 1000, 1000), Sides(64, 10, 200, 70), Sides(1, 3, 9, 10**7)]
)
def test_tiles_are_whole_blocks_and_small(sides: Sides) -> None:
    for rows, columns in ((8, 3), (12, 2)):
        found = tiled(PANELS, rows, columns, 16, sides, 2)
        assert isinstance(found, Blocks) and found.rows <= rows and found.columns <= columns
        assert found.tile_rows % found.rows == 0 == found.tile_columns % found.width
        assert found.tile_columns <= 384 + found.width and found.tile_rows <= 96 + found.rows


def test_equal_parts() -> None:
    assert [divided(whole, 8) for whole in (1, 8, 9, 16, 17, 33)] == [1, 8, 5, 8, 6, 7]


def test_the_text_is_the_same_each_time(preferring: Preferring) -> None:
    texts: Sequence[str] = []
    with preferring("panels"):
        for _ in range(2):
            armature.reset()
            compiled(activated)(*arguments(37, 70, 50, torch.float32, False))
            texts = [*texts, *(source.text for source in session().kernel_sources())]
    assert len(texts) == 2 == texts.count(texts[0])


# Without measurements, by rule.


@pytest.fixture
def slow_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor whose library is slow."""
    monkeypatch.setattr(isa, "has_slow_library", lambda: True)


def in_default_mode(fn: Callable[..., Any], *args: Tensor, **options: Any) -> tuple[object, int]:
    """The result, and how many operators were called as they are."""
    armature.reset()
    found = compiled(fn, "default", **options)(*args)
    return found, sum(graph.program.extern_count for each in session().compilations for graph in each.graphs)


@pytest.mark.parametrize(
    ("by_columns", "dtype"), [(False, torch.float32), (True, torch.float32), (True, torch.float64)]
)
@pytest.mark.parametrize("fn", PROGRAMS)
def test_programs_by_rule(fn: Callable[..., Any], by_columns: bool, dtype: torch.dtype, slow_library: None) -> None:
    for shape in SHAPES[0], SHAPES[2]:
        if fn is padded and shape[1] < 4:
            continue
        args = arguments(*shape, dtype, by_columns)
        found, _ = in_default_mode(fn, *args, dynamic=False)
        check(found, fn(*args), dtype)


def test_blocks_are_taken_where_the_library_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    args = arguments(100, 400, 500, torch.float32, False)
    for slow, own, externs in ((True, True, 0), (True, False, 1), (False, True, 1)):
        monkeypatch.setattr(isa, "has_slow_library", lambda slow=slow: slow)
        found, called = in_default_mode(activated, *args, options={"own_products": own})
        check(found, activated(*args))
        assert called == externs


@pytest.mark.parametrize("shape", [(1, 400, 500), (100, 400, 1), (3, (1 << 14) + 1, 30)])
def test_vectors_and_long_sums_are_the_librarys(shape: tuple[int, int, int], slow_library: None) -> None:
    assert not products.pays_by_rule(ProductSizes(torch.float32, 1, shape[0], shape[2], shape[1]))
    assert products.pays_by_rule(ProductSizes(torch.float32, 1, 2, 2, 1 << 14))


@pytest.mark.parametrize(
    ("shape", "by_columns", "function"),
    [
        ((8, 400, 500), False, "sums_in_place"),
        ((300, 400, 500), False, "sums_in_place"),
        ((8, 400, 500), True, "sums_of_dots"),
        ((32, 400, 500), True, "sums_of_dots"),
        ((33, 400, 500), True, "sums_of_panels"),
        ((16, 30, 500), True, "sums_of_panels"),
    ],
)
def test_the_form_that_the_rules_take(
    shape: tuple[int, int, int], by_columns: bool, function: str, slow_library: None
) -> None:
    in_default_mode(plain, *arguments(*shape, torch.float32, by_columns))
    (source,) = session().kernel_sources()
    assert f"{function}<" in source.text or f"{function}(" in source.text


def test_one_matrix_by_each_of_several_is_read_in_rows(slow_library: None) -> None:
    """As a convolution of width 1 is: the columns of all images are no row in memory."""
    x, w, b = torch.randn(3, 20, 50), torch.randn(30, 20), torch.randn(30, 1)

    def mixed(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return functional.gelu(w @ x + b)

    found, called = in_default_mode(mixed, x, w, b, dynamic=False)
    check(found, mixed(x, w, b))
    (source,) = session().kernel_sources()
    assert called == 0 and "sums_in_place<" in source.text
    assert "gather(" not in source.text and "scatter(" not in source.text


def test_gradients_by_rule(slow_library: None) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(40, 70), torch.nn.GELU(), torch.nn.Linear(70, 90))
    x = torch.randn(23, 40, requires_grad=True)

    expected = gradients(model, model, x)
    armature.reset()
    check(gradients(compiled(model, "default"), model, x), expected)
    graphs = [graph for each in session().compilations for graph in each.graphs]
    assert len(graphs) == 2 and not any(graph.program.extern_count for graph in graphs)


def modulated(x: Tensor, w: Tensor, scale: Tensor, v: Tensor) -> Tensor:
    return (functional.layer_norm(x @ w, (16,)) * (1 + scale[:4])) @ v


def test_a_result_in_the_memory_of_what_its_kernel_reads_behind_the_sums(slow_library: None) -> None:
    """In backward, a gradient takes the memory of the factor, which was saved for it, and by which it is multiplied."""
    inputs = [torch.randn(4, 16), *torch.randn(3, 16, 16)]

    def step(run: Callable[..., Tensor]) -> list[Tensor]:
        leaves = [x.clone().requires_grad_() for x in inputs]
        return list(torch.autograd.grad(run(*leaves).square().sum(), leaves))

    expected = step(modulated)
    armature.reset()
    for one, other in zip(step(compiled(modulated, "default")), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


def test_sizes_that_change_by_rule(slow_library: None) -> None:
    armature.reset()
    quick = compiled(activated, "default", dynamic=True)
    for shape in ((40, 70, 50), (3, 600, 33), (100, 40, 500), (2, 3, 4)):
        args = arguments(*shape, torch.float32, True)
        check(quick(*args), activated(*args))


def test_the_maker_of_a_processor() -> None:
    assert isa.vendor("processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC\n") == "AuthenticAMD"
    assert isa.vendor("processor : 0\n") == ""
