"""numpy on tensors and arrays: in the graph by torch's numpy layer, and in all but the last bits as numpy has it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import armature
from armature.pipeline.session import Outcome, session
from armature.testing.differential import difference
from tests.support.tensor_programs import run
from tests.support.tracing import break_of


def arrays() -> tuple[Any, ...]:
    a = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    return a, np.arange(4.0), torch.linspace(0, 1, 12).reshape(3, 4)


def arithmetic(a, b, t):
    return a + b, a * 2, 2 - a, a @ a.T, -a, a**2, a / 3, a // 0.5, a % 0.3, a > 0, (a > 0) & (b > 1), abs(a), a == b


def reductions(a, b, t):
    return (
        a.sum(),
        a.mean(axis=0),
        np.max(a),
        np.min(a, axis=1),
        a.std(),
        np.argmax(a),
        a.any(),
        np.all(a > -2),
        a.prod(),
    )


def functions(a, b, t):
    return (
        np.exp(a), np.sin(b), np.where(a > 0, a, 0), np.maximum(a, 0), np.clip(a, -0.5, 0.5), np.abs(a), np.sqrt(b),
        np.concatenate([a, a]), np.stack([b, b], axis=1), np.dot(a, a.T), np.outer(b, b), np.cumsum(b), np.tile(b, 2),
        np.expand_dims(b, 0), np.transpose(a), np.isnan(a), np.floor(a), np.square(b), np.sign(a), np.log1p(b),
    )  # fmt: skip


def shapes(a, b, t):
    return (
        a.shape, a.ndim, a.size, a.dtype, a.itemsize, a.nbytes, a.strides, len(a), np.shape(a), a.T.strides,
        a.reshape(-1).shape, a.reshape(2, 6), a.ravel(), a.flatten(), a.transpose(), a.swapaxes(0, 1), a.squeeze(),
        a.astype(np.float64), a.astype("int32"), a.copy(), a.dtype == np.float32, isinstance(a, np.ndarray),
    )  # fmt: skip


def indexing(a, b, t):
    return (
        a[0],
        a[0, 1],
        a[:, 1],
        a[1:, ::2],
        a[..., -1],
        a[None],
        a[[0, 2]],
        a[np.array([0, 1])],
        [row[0] for row in a],
    )


def scalars(a, b, t):
    s = np.sum(b)
    return s, s + 1, s * a, s.dtype, s.shape, np.float32(2) * a, a * np.float64(2), s / 2, b[0], b[0] + b[1]


def in_place(a, b, t):
    a[0] = 5
    a += 1
    a[:, 1] *= 2
    b[1:3] = a[0, :2]
    n = t.numpy()
    n[1] = 0
    n -= b.astype(np.float32)
    return a, n, t


def between(a, b, t):
    n = t.numpy()
    return (
        torch.from_numpy(a), torch.from_numpy(b[1:]), torch.as_tensor(a), torch.tensor(a), torch.tensor(a, dtype=torch.float64),
        torch.from_numpy(n * 2) + t, n, n[0], t.detach().numpy(), torch.tensor(np.float64(1.5)), torch.as_tensor(np.int64(3)),
        torch.tensor(np.sum(b)), t.numpy(force=True), np.asarray(t), torch.asarray(b), t + torch.from_numpy(a).sum(),
    )  # fmt: skip


def made(a, b, t):
    return (
        np.zeros((2, 3)), np.ones(3, dtype=np.int64), np.arange(5), np.linspace(0, 1, 5), np.eye(2), np.full((2,), 7.0),
        np.array([[1, 2], [3, 4]]), np.array([1.5, 2]), np.zeros_like(a), np.empty((0,)), np.asarray([1, 2]) + b[:2],
    )  # fmt: skip


def constants(a, b, t):
    return (
        np.pi, np.sqrt(2.0), np.prod([2, 3]), np.dtype("float32"), np.isscalar(3), np.float32(1.5), np.int64(3) + 1,
        np.issubdtype(np.float32, np.floating), t * np.float32(2), np.float64(1.5) * t, t[np.int64(0)], np.float32,
        isinstance(np.float64(1), float), range(np.int64(3)), [1, 2, 3][np.int64(1)], t.reshape(np.int64(4), 3),
    )  # fmt: skip


def keeps_identity(a, b, t):
    c = a
    return c is a, a.reshape(3, 4) is a, a, [a, a]


def linear_algebra(a, b, t):
    return np.linalg.norm(a), np.linalg.norm(a, axis=1), np.einsum("ij,kj->ik", a, a), np.trace(a @ a.T), np.triu(a)


def order_of_memory(a, b, t):
    c = a.T + 1
    return c, np.exp(a.T), c.strides, np.concatenate([a.T, a.T]), a.T.reshape(-1), a.T.copy(), np.ascontiguousarray(a.T)


def known_content(a, b, t):
    c, d = np.array([3, 1, 2]), np.arange(6).reshape(2, 3)
    total = sum(int(item) for item in c) + d[1].tolist()[2] + c[1].item() + d.item(4) + [5, 6, 7][c[1]]
    plain = c.tolist(), d.T.tolist(), np.array(3.5).item(), np.sort(c).tolist(), (c * 2).cumsum().tolist(), 3 in c
    sized = np.array(t.shape).prod().item(), np.ones(2).tolist(), np.array([1 + 2j]).tolist(), np.array([]).tolist()
    scaled = t * float(np.array([1.0, 2.0]).mean()) if c.sum() > 5 else t
    return scaled, total, plain, sized, c + b[0], c.tolist()


ONE_GRAPH = [
    known_content,
    arithmetic, reductions, functions, shapes, indexing, scalars, in_place, between, made, constants, keeps_identity,
    linear_algebra, order_of_memory,
]  # fmt: skip


def compare(function: Callable[..., Any], fullgraph: bool, backend: str = "eager") -> None:
    """Values up to a rounding; types, dtypes, sizes, strides, sharing of memory and changes exactly."""
    armature.reset()
    compiled = armature.compile(function, backend=backend, fullgraph=fullgraph)
    for _ in range(2):
        eager = run(function, arrays(), torch.enable_grad, False)
        found = run(compiled, arrays(), torch.enable_grad, False)
        assert repr(found.error) == repr(eager.error)
        assert difference(eager.result, found.result) < 1e-5
        assert difference(eager.inputs, found.inputs) < 1e-5
        assert not fullgraph or [record.outcome for record in session().compilations] == [Outcome.COMPILED]
        assert sharing(found) == sharing(eager)


def sharing(seen: Any) -> list[tuple[int, int]]:
    """The arrays and tensors among results and inputs that are one, or lie in the same memory."""
    flat = list(seen.inputs)
    flat += seen.result if isinstance(seen.result, (tuple, list)) else [seen.result]
    plain = [item.numpy() if isinstance(item, torch.Tensor) else item for item in flat]
    held = [item if isinstance(item, np.ndarray) else np.empty(0) for item in plain]
    found = [(i, j) for i, one in enumerate(held) for j in range(i) if np.may_share_memory(one, held[j])]
    return found + [(i, j) for i, one in enumerate(flat) for j in range(i) if one is flat[j] and is_object(one)]


def is_object(obj: object) -> bool:
    return isinstance(obj, (np.ndarray, torch.Tensor))


@pytest.mark.parametrize("function", ONE_GRAPH)
def test_in_one_graph(function: Callable[..., Any]) -> None:
    compare(function, fullgraph=True)


@pytest.mark.parametrize("backend", ["aot_eager", "auto"])
def test_other_backends(backend: str) -> None:
    def program(a, b, t):
        c = np.where(a > 0, a, 0) * 2 + b.astype(np.float32)
        return c, c.sum(axis=0), torch.from_numpy(np.exp(c)) + t

    compare(program, fullgraph=True, backend=backend)
    if backend == "aot_eager":
        compare(in_place, fullgraph=True, backend=backend)


def branches(a, b, t):
    return a * 2 if b.sum() > 0 else a * 3


def converts(a, b, t):
    return float(b[1]) * t, int(b.sum()), a.tolist(), b.item(2)


def draws(a, b, t):
    np.random.seed(0)
    return np.random.rand(3) + b[:3], t * 2


def masks(a, b, t):
    return a[a > 0], np.nonzero(b), np.unique(b)


def formats(a, b, t):
    return f"{b}", str(a.shape), repr(b[1])


def not_in_torch(a, b, t):
    return np.interp(b, b, b), t + 1, np.poly(b)


def written_by_operator(a, b, t):
    c = np.array([1.0, 2.0])
    c[:1] += 1
    return c.tolist(), t * 2


def written_by_function(a, b, t):
    c, d = np.array([3, 1, 2]), np.array([3, 1, 2])
    np.copyto(c.reshape(3, 1), 7)
    d.sort()
    return c.tolist(), d.tolist(), t * 2


def written_by_tensor(a, b, t):
    c, d = np.zeros(3), np.zeros(3)
    torch.from_numpy(c).add_(1)
    torch.as_tensor(d[:1]).data.add_(1)
    return c.tolist(), d.tolist(), t * 2


def written_with_unknown(a, b, t):
    c = np.zeros(3)
    before = c.tolist()
    c[0] = b[1]
    np.add(c, 1, out=c, where=b[:3] > 0)
    return before, c.tolist(), t * 2


def out_of_bounds(a, b, t):
    return np.array([1, 2]).item(7), t


def strings(a, b, t):
    return len(np.array(["x", "y"])), np.array([None, 1], dtype=object).shape, t * 2


def owners(a, b, t):
    part = (a * 2)[:1]
    return part.base is None, part.size > part.base.size // 1, type(part.base), a + 1


def reads_only(a, b, t):
    a.setflags(write=False)
    return a * 2


def tensor_and_array(a, b, t):
    return t + a, np.exp(t)


def structured(a, b, t):
    return np.ma.array(b, mask=[0, 1, 0, 0]).sum(), np.matrix(a) * 2


@pytest.mark.filterwarnings("ignore:__array_wrap__")
@pytest.mark.parametrize(
    "function",
    [
        branches, converts, draws, masks, formats, not_in_torch, strings, reads_only, tensor_and_array, structured, owners,
        written_by_operator, written_by_function, written_by_tensor, written_with_unknown, out_of_bounds,
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_breaks_and_is_as_eager(function: Callable[..., Any]) -> None:
    compare(function, fullgraph=False)


def test_why_it_breaks() -> None:
    a, b, t = arrays()
    assert break_of(branches, a, b, t) == "array-branch"
    assert break_of(lambda b: b.item(), b) == "array-value"
    assert break_of(lambda a: np.unwrap(a), a) == "library-without-tensors"
    assert break_of(lambda a: np.flip(a), a) == "array-differs"  # torch has no negative strides


def compilations() -> int:
    return len(session().compilations)


def test_guards_on_arrays() -> None:
    fn = lambda a: (np.sin(a) * 2, a.shape)  # noqa: E731
    compiled = armature.compile(fn, backend="eager", fullgraph=True)
    a = np.arange(6.0).reshape(2, 3)
    frozen = a.copy()
    frozen.setflags(write=False)
    steps: list[tuple[Any, bool]] = [
        (a, True), (a + 1, False), (a.astype(np.float32), True), (a.T, True), (a[:, :2], True), (frozen, True),
        (np.arange(6), True), (torch.ones(2, 3).numpy().astype(np.float64), False),
    ]  # fmt: skip
    for given, again in steps:
        before = compilations()
        assert difference(fn(given), compiled(given)) < 1e-6
        assert (compilations() > before) == again


def test_guards_on_scalars() -> None:
    fn = lambda t, s: t * s  # noqa: E731
    compiled = armature.compile(fn, backend="eager", fullgraph=True)
    t = torch.ones(2)
    for scalar in (np.float64(2), np.float32(2), np.float64(3), np.int64(2), 2.0, np.float64("nan"), np.float64(-0.0)):
        assert difference(fn(t, scalar), compiled(t, scalar)) == 0.0


def test_a_replaced_function_of_numpy_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = armature.compile(lambda a: np.sin(a), backend="eager")
    a = np.arange(3.0)
    assert difference(np.sin(a), compiled(a)) < 1e-6
    monkeypatch.setattr(np, "sin", np.cos)
    assert difference(np.cos(a), compiled(a)) < 1e-6


def test_one_array_twice_and_two_views_of_one() -> None:
    def fn(a, b):
        a += 1
        return a + b

    compiled = armature.compile(fn, backend="eager", fullgraph=True)
    for make in (
        lambda: (np.arange(4.0),) * 2, lambda: (np.arange(4.0), np.arange(4.0)),
        lambda: ((base := np.arange(6.0))[:4], base[2:]), lambda: ((base := np.arange(8.0))[:4], base[4:]),
    ):  # fmt: skip
        mine, theirs = make(), make()
        assert difference(fn(*theirs), compiled(*mine)) == 0.0
        assert difference(theirs, mine) == 0.0


def test_frozen_arrays_raise_as_in_eager_mode() -> None:
    def fn(a):
        a[0] = 1
        return a

    compiled = armature.compile(fn, backend="eager")
    a = np.arange(3.0)
    a.setflags(write=False)
    for function in (fn, compiled):
        with pytest.raises(ValueError, match="read-only"):
            function(a)


def test_arrays_are_told_apart_by_themselves() -> None:
    """Not by the tensors over their memory, which come and go at one address."""

    def adds(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a += b
        return a * b

    one, two = (np.ones(3, dtype=np.float32) for _ in range(2))
    compiled = armature.compile(adds, backend="eager", fullgraph=True)
    compiled(one, two)
    guards = session().compilations[-1].guards
    assert any(text.startswith("no two of these are one object: a, b") for text in guards)
    assert compiled(one, one).tolist() == [16.0] * 3


def errors_of(run: Callable[..., Any], *args: Any) -> object:
    try:
        return run(*args).tolist()
    except (FloatingPointError, RuntimeWarning) as error:
        return str(error)


def test_errors_of_floating_point_are_raised_where_numpy_is_told_to() -> None:
    def divide(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() / y.numpy())

    x, y = torch.ones(2), torch.zeros(2)
    for loud_first in (False, True):
        armature.reset()
        mine = armature.compile(divide, backend="eager")
        for loud in (loud_first, not loud_first, loud_first):
            with np.errstate(all="raise" if loud else "ignore"):
                assert errors_of(mine, x, y) == errors_of(divide, x, y)
            with np.errstate(all="warn"), warnings.catch_warnings():
                warnings.simplefilter("error" if loud else "ignore")
                assert errors_of(mine, x, y) == errors_of(divide, x, y)
    with np.errstate(all="raise"):
        assert break_of(divide, x, y) == "array-errors"


def test_functions_of_known_numbers_rely_on_how_numpy_reports_errors() -> None:
    def known(x: torch.Tensor) -> torch.Tensor:
        return x * float(np.exp(np.float64(1000)))

    def asks(x: torch.Tensor) -> tuple[object, ...]:
        return x + 1, np.dtype(np.uint8), np.promote_types(np.float32, np.int64)

    x = torch.ones(2)
    mine = armature.compile(known, backend="eager")
    for way in ("raise", "ignore", "raise"):
        with np.errstate(all=way):
            assert errors_of(mine, x) == errors_of(known, x)
    with np.errstate(all="raise"):
        assert break_of(known, x) == "array-errors"
        found = armature.compile(asks, backend="eager", fullgraph=True)(x)
        assert found[0].tolist() == [2.0, 2.0] and found[1:] == asks(x)[1:]


def test_errors_of_floating_point_are_handled_where_they_are_raised() -> None:
    def handled(x: torch.Tensor) -> object:
        try:
            with np.errstate(over="raise"):
                return np.exp(x.numpy() * 1000)
        except FloatingPointError as error:
            return str(error)

    assert armature.compile(handled, backend="eager")(torch.ones(2)) == handled(torch.ones(2))


def test_a_tensor_over_an_array_counts_its_own_writes() -> None:
    def program(y: torch.Tensor) -> tuple[Any, ...]:
        z = torch.from_numpy(y.numpy())
        y.add_(1)
        z.mul_(1)
        z.mul_(2)
        return z, z is y, y._version, z._version

    mine, theirs = torch.ones(3), torch.ones(3)
    found, expected = armature.compile(program, backend="eager")(mine), program(theirs)
    assert found[1:] == expected[1:]
    assert (found[0]._version, mine._version) == (expected[0]._version, theirs._version)
    assert torch.equal(mine, theirs)
    assert found[0].data_ptr() == mine.data_ptr()


def of_order(t):
    return t.permute(*np.argsort([1, 0])), t.permute(tuple(np.array([1, 0]))), t + np.arange(3)[1]


def of_lists(t):
    whole, single = torch.tensor([np.float64(2.5), 1]), torch.as_tensor([[np.float32(1)], [np.float32(2)]])
    return whole, single, torch.tensor((np.int32(2), 1)), torch.asarray([np.float16(1)]), t.new_tensor([np.float64(3)])


@pytest.mark.parametrize("program", [of_order, of_lists])
@pytest.mark.parametrize("backend", ["eager", "callable"])
def test_numbers_of_numpy_in_graphs(program, backend):
    def callable_backend(module, inputs):
        return module.forward

    run = armature.compile(program, backend=callable_backend if backend == "callable" else "eager", fullgraph=True)
    t = torch.arange(6.0).reshape(2, 3)
    for found, expected in zip(run(t), program(t), strict=True):
        assert found.dtype is expected.dtype and torch.equal(found, expected)


@pytest.mark.parametrize(
    "number", [np.bool_(True), np.complex64(2 + 1j), np.complex128(2 + 1j), np.float16(1.5), np.uint8(3)]
)
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_numbers_of_numpy_are_to_operators_what_they_are_in_eager_mode(number):
    def program(t):
        return t * number, number + t, t == number

    t = torch.arange(6.0).reshape(2, 3)
    for found, expected in zip(armature.compile(program, backend="eager")(t), program(t), strict=True):
        assert found.dtype is expected.dtype and torch.equal(found, expected)


class Noting(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = super().__torch_function__(func, types, args, kwargs or {})
        return [found] if isinstance(found, np.ndarray) else found


def test_arrays_of_tensors_that_override_functions() -> None:
    program = lambda t: t.numpy()  # noqa: E731
    t = torch.arange(3.0).as_subclass(Noting)
    (found,) = armature.compile(program, backend="eager")(t)
    assert found.tolist() == [0.0, 1.0, 2.0]
