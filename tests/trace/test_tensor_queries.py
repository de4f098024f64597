"""Shapes, attributes, indexing of every kind, numbers out of tensors, random numbers, subclasses and modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import armature
from tests.support.tensor_programs import compare


def two() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(12.0).reshape(3, 4), torch.linspace(1, 2, 4)


def shape_arithmetic(x, y):
    rows, columns = x.shape
    half = columns // 2
    flat = x.reshape(rows * half, -1)
    return flat, x.shape[-1] % 3, x.shape + (1,), x.shape[::-1], torch.Size([*x.shape, 2]).numel(), x.size(-1), len(x)


def shape_queries(x, y):
    return (
        x.shape == (3, 4), x.size(), x.ndim, x.dim(), x.numel(), x.nelement(), x.stride(), x.stride(0), x.is_contiguous(),
        x.t().is_contiguous(), x.storage_offset(), x[1].storage_offset(), x.element_size(), x.nbytes, x.itemsize,
        tuple(x.shape), list(x.shape), max(x.shape), isinstance(x.shape, tuple), 4 in x.shape, x.shape.index(4),
    )  # fmt: skip


def attributes(x, y):
    return (
        x.dtype, x.device, x.device.type, x.layout, x.is_cuda, x.is_sparse, x.is_quantized, x.is_meta, x.dtype.is_complex,
        x.dtype.is_floating_point, x.is_floating_point(), x.is_complex(), x.is_signed(), x.get_device(), x.dtype
        == torch.float32, x.type(), torch.is_tensor(x), isinstance(x, torch.Tensor), isinstance(x, nn.Parameter),
        x.dtype.itemsize, torch.finfo(x.dtype).max, torch.iinfo(torch.int8).min, x.is_inference(), x.is_conj(),
        torch.promote_types(x.dtype, torch.int64), torch.result_type(x, 1), torch.can_cast(x.dtype, torch.int32),
    )  # fmt: skip


def own_attributes(x, y):
    return getattr(x, "note", None), hasattr(x, "note"), hasattr(x, "shape"), hasattr(x, "nothing")


def transposes(x, y):
    return x.T, x.mT, x.t(), x.H, x.adjoint(), x.permute(1, 0), x.swapaxes(0, 1), x.movedim(0, 1), x.real


def integer_indices(x, y):
    return x[0], x[-1], x[0, 1], x[1][2], x[(2, 3)], x[0:2], x[::2], x[:, 1], x[1:, :-1], x[..., 0], x[..., -1:], x[:]


def none_and_bool_indices(x, y):
    return x[None], x[:, None], x[None, ..., None], x[True], x[False].shape, x[..., None, :]


def slices(x, y):
    s = slice(0, 2)
    return x[s], x[s, s], x[slice(None), 1], x[slice(None, None, 2)], x[1:1].shape, x[5:].shape, x[-2:], x[:-1, 1:3]


def tensor_indices(x, y):
    i = torch.tensor([0, 2])
    j = torch.tensor([1, 3])
    return (
        x[i],
        x[i, j],
        x[:, j],
        x[i[:, None], j],
        x[i, 1:3],
        x[[0, 2]],
        x[[0, 1], [1, 2]],
        x[i, ..., None],
        x[i.int()],
    )


def scalar_tensor_index(x, y):
    return x[torch.tensor(1)], x[torch.tensor(1), 2], y[torch.tensor(-1)]


def list_indices(x, y):
    return x[[[0, 1], [1, 2]]].shape, x[(slice(None), [0, 1])]


def boolean_list_index(x, y):
    return x[[True, False, True]]


def no_such(x, y):
    return round(y)


def index_dunder(x, y):
    return (
        x.__getitem__(0),
        x.select(0, 1),
        x.narrow(1, 0, 2),
        x.take(torch.tensor([0, 5])),
        x.diagonal(),
        x.unfold(1, 2, 1),
    )


def masks(x, y):
    return x[x > 5], x.nonzero(), torch.where(x > 5), x.masked_select(x < 3), torch.argwhere(x > 9)


def where_three(x, y):
    return torch.where(x > 5, x, -x), x.where(x > 2, 0.0), torch.where(x > 5, 1.0, y)


def iterate(x, y):
    total = 0
    for row in x:
        total = total + row.sum()
    return total, [r * 2 for r in x], [*y], dict(enumerate(y)), list(reversed(x)), reversed(y), len(x)


def unpack(x, y):
    a, b, c = x
    first, *rest = y
    return a + b, c, first, rest


def tolist(x, y):
    return x.tolist(), y.int().tolist()


def item(x, y):
    return x.sum().item(), int(x[0, 1]), float(y[0]), bool(x.any()), x[0, 0].item() + 1


def branch(x, y):
    return x * 2 if x.sum() > 0 else x * 3


def contains(x, y):
    return 5.0 in x, 100 in x


def asserts(x, y):
    assert (x >= 0).all()
    assert x.shape[0] == 3, "three rows"
    return x


def equality(x, y):
    return x == y, x != 1, x < 3, x.eq(2), x is x, x is not y, (x == None) is False, torch.equal(x.shape and x, x)  # noqa: E711


def numbers_to_tensors(x, y):
    return (
        torch.tensor([x.shape[0], 2]), torch.tensor(3.5), torch.tensor([[1, 2], [3, 4]], dtype=torch.float64),
        torch.as_tensor([1.0]), torch.full((2,), 7), torch.arange(x.size(0)), torch.arange(1, 4, 0.5), torch.linspace(0, 1, 3),
        torch.zeros_like(x), torch.eye(2), torch.empty(0), torch.scalar_tensor(2), torch.ones(x.shape), torch.zeros(2, 0),
    )  # fmt: skip


def operators(x, y):
    return (
        x + 1, 1 + x, x - y, 2 - x, x * y, x / 2, 2 / (x + 1), x // 2, x % 3, 7 % (x + 1), x**2, 2**y, x @ y, -x, +x, abs(x),
        x.int() & 3, x.int() | 1, x.int() ^ 2, ~x.int(), x.int() << 1, x.int() >> 1, (x > 1) & (x < 5),
    )  # fmt: skip


def conversions(x, y):
    return (
        x.to(torch.float64), x.to("cpu"), x.double(), x.half(), x.bfloat16(), x.int(), x.bool(), x.to(y), x.type(torch.int16),
        x.type_as(y), x.float() is x, x.to(torch.float32) is x, x.cpu() is x, x.contiguous() is x, x.clone() is x,
        x.to(torch.float32, copy=True) is x, x.view(torch.int32), x.byte(), x.char(), x.long(), x.short(),
        x.type(torch.DoubleTensor), x.T.type(torch.LongTensor, non_blocking=True), x.type(torch.FloatTensor) is x,
    )  # fmt: skip


def random_numbers(x, y):
    return torch.rand(2), torch.randn(2, 2), torch.randint(0, 9, (3,)), torch.randperm(5), torch.rand_like(x)


def random_modules(x, y):
    z = F.dropout(x, 0.5, training=True)
    return (
        nn.functional.dropout1d(z[None], 0.3),
        torch.bernoulli(torch.full((4,), 0.5)),
        torch.multinomial(y, 2),
        torch.normal(x, 1.0),
    )


def random_in_branch(x, y):
    if x.shape[0] == 3:
        x = x + torch.rand(1)
    return x + torch.randn(())


def random_generator(x, y):
    g = torch.Generator()
    g.manual_seed(3)
    return torch.rand(2, generator=g), torch.rand(1)


def seeds(x, y):
    torch.manual_seed(5)
    return torch.rand(2)


def forked(x, y):
    with torch.random.fork_rng():
        z = torch.rand(2)
    return z, torch.rand(2)


def rng_state(x, y):
    state = torch.get_rng_state()
    a = torch.rand(2)
    torch.set_rng_state(state)
    return a, torch.rand(2)


def methods_by_reference(x, y):
    f, g = x.add, torch.Tensor.mul
    return (
        f(1),
        g(x, y),
        x.sum(),
        [m(x) for m in (torch.sin, torch.Tensor.cos)],
        torch.Tensor.add(x, y, alpha=2),
    )


def named_results(x, y):
    r = x.max(1)
    values, indices = torch.topk(y, 2)
    return (
        r.values,
        r.indices,
        values,
        indices,
        r[0],
        x.sort(descending=True).values,
        torch.min(x, 0),
        x.median(0).indices,
    )


def numpy_bridge(x, y):
    return torch.from_numpy(x.numpy() * 2), x.numpy().shape


def keyword_and_defaults(x, y):
    return (
        torch.sum(x, dim=1, keepdim=True),
        x.sum(axis=0),
        torch.cat(tensors=[x, x], dim=-1),
        F.pad(x, (1, 1), value=2.0),
    )


def einsum_and_stack(x, y):
    return (
        torch.einsum("ij,j->i", x, y),
        torch.stack([x, x], 1),
        torch.block_diag(x, y),
        torch.meshgrid(y, y, indexing="ij"),
    )


ONE_GRAPH = [
    shape_arithmetic, shape_queries, attributes, own_attributes, transposes, integer_indices, none_and_bool_indices,
    slices, tensor_indices, list_indices, index_dunder, where_three, iterate, unpack, numbers_to_tensors, operators,
    conversions, random_numbers, random_modules, random_in_branch, methods_by_reference, named_results,
    keyword_and_defaults, einsum_and_stack, scalar_tensor_index, seeds,
]  # fmt: skip
ANY = [
    boolean_list_index, no_such, masks, tolist, item, branch, contains, asserts, equality, random_generator, forked,
    rng_state, numpy_bridge,
]  # fmt: skip


@pytest.mark.parametrize("function", ONE_GRAPH, ids=lambda function: function.__name__)
@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_in_one_graph(function: Callable[..., Any]) -> None:
    compare(function, two, fullgraph=True)


@pytest.mark.parametrize("function", ANY, ids=lambda function: function.__name__)
def test_as_eager(function: Callable[..., Any]) -> None:
    compare(function, two, fullgraph=False)


class Labelled(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, cls):
            result.label = func.__name__
        return result


class Plain(torch.Tensor):
    pass


class Doubling(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.sin else result


class Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", [Labelled, Plain, nn.Parameter])
def test_subclass(kind: type) -> None:
    def make() -> tuple[torch.Tensor, torch.Tensor]:
        held = torch.arange(12.0).reshape(3, 4)
        return (kind(held) if kind is nn.Parameter else held.as_subclass(kind)), torch.ones(4)

    compare(lambda x, y: (x * y, torch.sin(x).sum(), type(x).__name__, y + 1), make, fullgraph=False)
    compare(lambda x, y: getattr(x + y, "label", None), make, fullgraph=False)


def test_function_mode_inside() -> None:
    def program(x, y):
        with Doubling():
            z = torch.sin(x)
        return z, torch.sin(x)

    compare(program, two, fullgraph=False)


def test_function_mode_around() -> None:
    compare(lambda x, y: torch.sin(x) + y, two, fullgraph=False, around=Doubling)
    compare(lambda x, y: torch.sin(x) + y, two, fullgraph=False)


def test_dispatch_mode_around() -> None:
    function = armature.compile(lambda x: torch.sin(x) + 1, backend="eager")
    function(torch.ones(2))
    with Counting() as mode:
        function(torch.ones(2))
    eager = Counting()
    with eager:
        torch.sin(torch.ones(2)) + 1
    assert mode.count == eager.count


def test_dispatch_mode_inside() -> None:
    def program(x, y):
        with Counting() as mode:
            z = x + 1
        return z, mode.count

    compare(program, two, fullgraph=False)


@pytest.mark.parametrize("train", [True, False])
def test_dropout_draws_as_eager_does(train: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4), nn.Dropout(0.2)).train(train)
    compiled = armature.compile(model, backend="eager", fullgraph=True)
    x = torch.ones(3, 4)
    for fn in (model, compiled):
        torch.manual_seed(3)
        results = [fn(x), fn(x), torch.rand(2)]
        if fn is model:
            expected = results
    torch.testing.assert_close(results, expected)
