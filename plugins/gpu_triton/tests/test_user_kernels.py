"""Kernels of the program: in Triton's interpreter on CPU tensors, and with `-m gpu` on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import nn
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

import armature
from armature.pipeline.session import session
from armature_gpu_triton.written import read_only

Tensor = torch.Tensor
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
BACKENDS = ["eager", "auto"]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True, params=BACKENDS)
def backend(request: pytest.FixtureRequest, all_plugins: None) -> str:
    for needed in ("builtin_rules", "torch_handlers", "aten_lowerings", "cpu_cpp"):
        pytest.importorskip(f"armature_{needed}")
    armature.reset()
    return str(request.param)


def jit(device: str, fn: Callable[..., None]) -> Any:
    return InterpretedFunction(fn) if device == "cpu" else triton.jit(fn)


def one_round(fn: Callable[[], object], quantiles: object) -> list[float]:
    fn()
    return [1.0, 1.0, 1.0]


def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


def scale(x, n, factor, BLOCK: tl.constexpr = 16):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(x + at, tl.load(x + at, mask=inside) * factor, mask=inside)


def even_or_odd(x, out, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, mask=inside)
    if EVEN:
        value = value * 2
    tl.store(out + at, value, mask=inside)


def rows(x, out, stride, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < columns
    start = tl.program_id(0) * stride
    tl.store(out + start + at, tl.load(x + start + at, mask=inside) + 1, mask=inside)


def numbers(*shape: int, device: str) -> Tensor:
    return torch.randn(*shape, device=device)


def check(
    fn: Callable[..., Any], backend: str, *calls: tuple[Any, ...], graphs: int | None = None, **options: Any
) -> Any:
    """The same results and the same arguments afterwards as in eager mode."""
    compiled = armature.compile(fn, backend=backend, fullgraph=True, **options)
    for args in calls:
        copies = tuple(arg.clone() if isinstance(arg, Tensor) else arg for arg in args)
        expected, found = fn(*args), compiled(*copies)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(copies, args)
    if graphs is not None:
        assert len(session().compilations) == graphs
    return compiled


def adding(device: str, grid_of: Callable[[int], Any]) -> Callable[[Tensor, Tensor], Tensor]:
    kernel = jit(device, add)

    def fn(x: Tensor, y: Tensor) -> Tensor:
        x = x * 2
        out = torch.empty_like(x)
        kernel[grid_of(x.numel())](x, y, out, x.numel(), BLOCK=16)
        return out + 1

    return fn


def by_tuple(n: int) -> Any:
    return (triton.cdiv(n, 16),)


def by_list_of_three(n: int) -> Any:
    return (triton.cdiv(n, 16), 1, 1)


def by_lambda(n: int) -> Any:
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("grid_of", [by_tuple, by_list_of_three, by_lambda])
def test_launch(grid_of: Any, dynamic: bool | None, device: str, backend: str) -> None:
    calls = [(numbers(n, device=device), numbers(n, device=device)) for n in (50, 64, 17)]
    check(adding(device, grid_of), backend, *calls, dynamic=dynamic)


def test_what_is_traced_of_a_compiled_kernel(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, but for what the launch does at last."""

    def run(self: Any, *args: Any, grid: Any, warmup: bool, num_warps: int = 4, **kwargs: Any) -> None:
        tried.append(num_warps)
        kwargs = {name: value for name, value in kwargs.items() if name in self.arg_names}
        grid = grid(dict(zip(self.arg_names, args)) | kwargs) if callable(grid) else grid
        InterpretedFunction(self.fn).run(*args, grid=grid, warmup=warmup, **kwargs)

    tried: list[int] = []
    monkeypatch.setattr(JITFunction, "run", run)
    configs = [triton.Config({"BLOCK": 16}, num_warps=1), triton.Config({"BLOCK": 32}, num_warps=2)]
    heuristic = triton.heuristics({"EVEN": lambda given: given["n"] % 2 == 0})
    tuned = triton.autotune(configs, key=["n"], do_bench=one_round)(heuristic(triton.jit(even_or_odd)))
    plain = triton.jit(add)

    def fn(x: Tensor, y: Tensor) -> Tensor:
        out, more = torch.zeros_like(x), torch.zeros_like(x)
        n = x.numel()
        plain[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, y, out, n, BLOCK=16, num_warps=8, num_stages=2)
        tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](out, more, n)
        torch.library.wrap_triton(plain)[(4,)](x, more, out, n, 16)
        return out.sin()

    check(fn, backend, *((torch.randn(n), torch.randn(n)) for n in (40, 50)))
    assert {1, 2, 4, 8} >= set(tried) >= {1, 4, 8}


def test_sizes_are_symbols(device: str, backend: str) -> None:
    calls = [(numbers(n, device=device), numbers(n, device=device)) for n in (50, 64, 17)]
    check(adding(device, by_lambda), backend, *calls, dynamic=True, graphs=1)


def test_two_launches_and_a_written_argument(device: str, backend: str) -> None:
    kernel = jit(device, scale)

    def fn(x: Tensor, factor: float) -> tuple[Tensor, Tensor]:
        before = x + 1
        kernel[(4,)](x, x.numel(), factor)
        kernel[(4,)](before, x.numel(), 3.0, BLOCK=16)
        kernel.run(x, x.numel(), 0.5, grid=(4,), warmup=False)
        return before, x * 2

    check(fn, backend, (numbers(60, device=device), 2.0), (numbers(60, device=device), 4.0))


def test_views_share_memory(device: str, backend: str) -> None:
    kernel = jit(device, rows)

    def fn(x: Tensor) -> tuple[Tensor, ...]:
        out = torch.zeros(4, x.shape[1], device=x.device)
        part = out[1:3]
        kernel[(2,)](x[1:], part, x.shape[1], x.shape[1], BLOCK=16)
        kernel[(1,)](x, x, x.shape[1], x.shape[1], BLOCK=16)
        return out.sum(0), part * 2, out[1], x.t() + 1

    check(fn, backend, (numbers(3, 10, device=device),))


def test_columns_of_an_argument(device: str, backend: str) -> None:
    """A view of memory of the caller, of which the kernel reaches more than the view."""
    kernel = jit(device, rows)

    def fn(x: Tensor) -> Tensor:
        kernel[(3,)](x, x, x.stride(0), 4, BLOCK=4)
        return x * 2

    whole, copy = numbers(3, 10, device=device), None
    copy = whole.clone()
    compiled = armature.compile(fn, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(copy[:, 2:]), fn(whole[:, 2:]))
    torch.testing.assert_close(copy, whole)
    torch.testing.assert_close(compiled(copy[:, 1:3]), fn(whole[:, 1:3]))
    torch.testing.assert_close(copy, whole)


@pytest.mark.parametrize("dynamic", [None, True])
def test_autotuned_with_heuristics(dynamic: bool | None, device: str, backend: str) -> None:
    configs = [triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32}, num_warps=2)]
    heuristic = triton.heuristics({"EVEN": lambda given: given["n"] % 2 == 0})
    kernel = triton.autotune(configs, key=["n"], do_bench=one_round)(heuristic(jit(device, even_or_odd)))

    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        first, second = torch.zeros_like(x), torch.zeros_like(x)
        kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, first, x.numel())
        kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]) if meta["EVEN"] else 5,)](y, second, n=x.numel())
        return first + 1, second

    calls = [(numbers(n, device=device), numbers(n, device=device)) for n in (50, 60, 17)]
    check(fn, backend, *calls, dynamic=dynamic)


def test_heuristics_are_traced(device: str, backend: str) -> None:
    kernel = triton.heuristics({"BLOCK": lambda given: triton.next_power_of_2(given["n"])})(jit(device, scale))

    def fn(x: Tensor) -> Tensor:
        y = x.sin()
        kernel[(1,)](y, y.numel(), 2.0)
        return y.cos()

    check(fn, backend, (numbers(16, device=device),), (numbers(64, device=device),), (numbers(64, device=device),))


def test_a_kernel_that_is_replaced(device: str, backend: str) -> None:
    held = {"kernel": jit(device, scale)}

    def twice(x, n, factor, BLOCK: tl.constexpr = 16):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + at, tl.load(x + at, mask=at < n) * factor * 2, mask=at < n)

    def fn(x: Tensor) -> Tensor:
        y = x + 1
        held["kernel"][(1,)](y, y.numel(), 2.0)
        return y

    x = numbers(10, device=device)
    compiled = check(fn, backend, (x,), graphs=1)
    held["kernel"] = jit(device, twice)
    torch.testing.assert_close(compiled(x), (x + 1) * 4)
    assert len(session().compilations) == 2


def test_what_is_known_of_a_constant_is_forgotten(device: str, backend: str) -> None:
    kernel = jit(device, scale)

    def fn(x: Tensor) -> tuple[Tensor, float]:
        three = torch.tensor([3.0], device=x.device)
        kernel[(1,)](three, 1, 2.0)
        return x * three, three.item()

    check(fn, backend, (numbers(3, device=device),))


class Layer(nn.Module):
    def __init__(self, kernel: Any) -> None:
        super().__init__()
        self.first, self.last, self.kernel = nn.Linear(8, 8), nn.Linear(8, 4), kernel

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.first(x))
        bias = torch.empty_like(hidden)
        with torch.no_grad():
            self.kernel[(triton.cdiv(hidden.numel(), 16),)](hidden, hidden, bias, hidden.numel(), BLOCK=16)
        return self.last(hidden * 2 + bias)


def test_training_around_a_launch(device: str, backend: str) -> None:
    torch.manual_seed(0)
    model = Layer(jit(device, add)).to(device)
    x = numbers(6, 8, device=device)
    compiled = armature.compile(model, backend=backend, fullgraph=True)
    found = []
    for run in (model, compiled):
        model.zero_grad()
        run(x).square().sum().backward()
        found.append([parameter.grad.clone() for parameter in model.parameters()])
    torch.testing.assert_close(*found)
    assert len(session().compilations) == 1


def test_history_does_not_see_what_a_kernel_writes(device: str, backend: str) -> None:
    """The gradient is computed with what stands in the saved tensor by then, as in eager mode."""
    kernel = jit(device, scale)

    def fn(x: Tensor) -> Tensor:
        y = x.sin()
        z = y * y
        kernel[(1,)](y, y.numel(), 3.0)
        return z.sum() + y.sum()

    gradients = []
    for run in (fn, armature.compile(fn, backend=backend, fullgraph=True)):
        x = torch.linspace(0, 1, 8, device=device).requires_grad_()
        run(x).backward()
        assert x._version == 0
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


class Doubled(torch.autograd.Function):
    kernel: Any = None

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        Doubled.kernel[(triton.cdiv(x.numel(), 16),)](x, x, out, x.numel(), BLOCK=16)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        gradient, out = gradient.contiguous(), torch.empty_like(gradient)
        Doubled.kernel[(triton.cdiv(out.numel(), 16),)](gradient, gradient, out, out.numel(), BLOCK=16)
        return out


def test_an_autograd_function_of_kernels(device: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Doubled, "kernel", jit(device, add))

    def fn(x: Tensor) -> Tensor:
        return (Doubled.apply(x.sin()) * x).cos()

    found = []
    for run in (fn, armature.compile(fn, backend=backend, fullgraph=True)):
        x = torch.linspace(0, 1, 40, device=device).requires_grad_()
        out = run(x)
        out.sum().backward()
        found.append((out.detach(), x.grad))
    torch.testing.assert_close(*found)


def test_what_is_around_is_compiled(device: str) -> None:
    """Inference and training: kernels are made of what stands before and after, a graph each."""
    fn = adding(device, by_lambda)
    x = numbers(20, device=device)
    torch.testing.assert_close(armature.compile(fn, fullgraph=True)(x, x), fn(x, x))
    assert len(session().kernel_sources()) == 2
    weight = numbers(20, device=device).requires_grad_()
    torch.testing.assert_close(armature.compile(fn, fullgraph=True)(weight, x), fn(weight, x))
    assert len(session().compilations[-1].graphs) >= 2


def test_read_parameters_are_known() -> None:
    def helper(p):
        tl.store(p, 1)

    def kernel(a, b, c, d, e, f, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        p = a
        for _k in range(0, 4):
            p += at
            value = tl.load(p, mask=at < n).to(a.dtype.element_ty)
        q = b + at if n > 3 else c
        tl.store(q, value)
        tl.atomic_add(d + at, value)
        helper(e)
        tl.store(BLOCK, tl.load(f + tl.load(a)))

    assert read_only(kernel) & set("abcdef") == {"a", "f"}

    def shadowed(a, b):
        tl = helper
        tl.load(a)

    assert "a" not in read_only(shadowed) and "b" in read_only(shadowed)


@torch.library.triton_op("armature_test::twice", mutates_args={"total"})
def twice(x: Tensor, total: Tensor) -> Tensor:
    total.add_(x.sum())
    return x * 2


def test_operators_of_torch_for_kernels(device: str, backend: str) -> None:
    """They are called as they are, with what is compiled around them."""

    def fn(x: Tensor, total: Tensor) -> Tensor:
        y = twice(x.sin(), total)
        return y.cos() + total

    check(fn, backend, *((numbers(n, device=device), torch.ones((), device=device)) for n in (4, 9, 10)))
    if backend == "auto":
        assert len(session().compilations[0].graphs) == 2


@pytest.mark.gpu
def test_an_operator_of_a_wrapped_kernel(backend: str) -> None:
    kernel = triton.jit(add)

    @torch.library.triton_op(f"armature_test::add_{backend}", mutates_args={})
    def operator(x: Tensor, y: Tensor) -> Tensor:
        out = torch.empty_like(x)
        torch.library.wrap_triton(kernel)[(triton.cdiv(x.numel(), 16),)](x, y, out, x.numel(), BLOCK=16)
        return out

    def fn(x: Tensor, y: Tensor) -> Tensor:
        return operator(x.sin(), y).cos()

    check(fn, backend, *((numbers(n, device="cuda"), numbers(n, device="cuda")) for n in (40, 50)))


def test_a_wrapped_kernel(device: str, backend: str) -> None:
    kernel = jit(device, add)
    if device == "cpu" and torch.__version__.startswith("2.11."):
        pytest.skip("torch 2.11 wraps no kernel that is interpreted")

    def fn(x: Tensor, y: Tensor) -> Tensor:
        out = torch.empty_like(x)
        torch.library.wrap_triton(kernel)[(4,)](x.sin(), y, out, x.numel(), BLOCK=16)
        return out.cos()

    check(fn, backend, (numbers(40, device=device), numbers(40, device=device)))


class Unfit:
    pass


def test_what_a_node_can_not_be_given_breaks(device: str) -> None:
    kernel = jit(device, scale)

    def fn(x: Tensor) -> Tensor:
        y = x + 1
        kernel[(1,)](y, y.numel(), Unfit())
        return y

    with pytest.raises(armature.errors.Unsupported, match=r"Unfit is among the arguments"):
        armature.compile(fn, fullgraph=True)(numbers(3, device=device))


def addressed(x, n, BLOCK: tl.constexpr):
    tl.store(tl.load(x).to(tl.pointer_type(tl.float32)), 1.0)


def test_a_kernel_that_makes_pointers_breaks(device: str) -> None:
    kernel = jit(device, addressed)

    def fn(x: Tensor) -> Tensor:
        y = x + 1
        kernel[(1,)](y, y.numel(), BLOCK=16)
        return y

    with pytest.raises(armature.errors.Unsupported, match="pointers to memory that it is not given"):
        armature.compile(fn, fullgraph=True)(numbers(3, device=device))


def test_hooks_of_an_autotuner_see_what_was_changed_before(device: str, backend: str) -> None:
    """Changes of objects are held back while a graph runs: the graph ends before such a launch."""
    seen: list[int] = []
    held = {"count": 0}
    config = triton.Config({"BLOCK": 16}, pre_hook=lambda given: seen.append(held["count"]))
    kernel = triton.autotune([config], key=[])(jit(device, scale))

    def fn(x: Tensor) -> Tensor:
        y = x + 1
        held["count"] += 1
        kernel[(4,)](y, y.numel(), 2.0)
        return y * 2

    x = numbers(20, device=device)
    torch.testing.assert_close(armature.compile(fn, backend=backend)(x), (x + 1) * 4)
    assert seen == [1] and held == {"count": 1}


def test_a_grid_by_what_a_tensor_holds(device: str, backend: str) -> None:
    kernel = jit(device, scale)

    def fn(x: Tensor, count: Tensor) -> Tensor:
        y = x + 1
        kernel[(count.item(),)](y, y.numel(), 2.0)
        return y

    x = numbers(40, device=device)
    check(fn, backend, *((x, torch.tensor(n, device=device)) for n in (1, 2, 3)))


def test_kernels_are_in_graphs_without_fullgraph(device: str, backend: str) -> None:
    fn = adding(device, by_lambda)
    x = numbers(20, device=device)
    explained = armature.compile(fn, backend=backend)
    torch.testing.assert_close(explained(x, x), fn(x, x))
    assert [record.breaks for record in session().compilations] == [()]
