"""Operators in place, views, `out=`, and what they leave in the arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import armature
from tests.support.tensor_programs import compare

HELD = torch.zeros(3)


def two() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(6.0).reshape(2, 3), torch.linspace(1, 2, 6).reshape(2, 3)


def add_in_place(x, y):
    x.add_(y)
    return x


def augmented(x, y):
    x += y
    x *= 2
    x -= 1
    x /= 3
    x //= 1
    x **= 2
    return x + y


def augmented_view(x, y):
    row = x[0]
    row += 1
    return row, x.sum()


def integers(x, y):
    z = x.to(torch.int64)
    z <<= 1
    z |= 1
    z &= 7
    z ^= 2
    z %= 5
    return z


def view_then_change(x, y):
    flat = x.view(-1)
    flat[2:4] = 9
    flat.narrow(0, 0, 2).zero_()
    return x, flat, x.t()


def change_then_view(x, y):
    t = x.t()
    x.mul_(2)
    return t[0], t.contiguous()


def set_items(x, y):
    x[0, 1] = 5
    x[:, -1] = y[:, 0]
    x[x > 3] = 0
    x[torch.tensor([0, 1]), torch.tensor([1, 0])] = 7
    x[..., None][0] = 8
    return x


def set_none_and_bool(x, y):
    x[None] = y
    x[True] = y + 1
    return x


def swap(x, y):
    x[0], x[1] = x[1].clone(), x[0].clone()
    return x


def copy_into(x, y):
    x.copy_(y)
    y.fill_(3)
    return x, y


def out_argument(x, y):
    z = torch.empty(2, 3)
    torch.add(x, y, out=z)
    r = torch.mul(x, y, out=x)
    return z, r


def out_two(x, y):
    values, indices = torch.empty(2), torch.empty(2, dtype=torch.int64)
    torch.max(x, 1, out=(values, indices))
    return values, indices


def functional_in_place(x, y):
    return F.relu(x - 2, inplace=True), F.dropout(y, 0.0, inplace=True)


def index_functions(x, y):
    i = torch.tensor([1, 0])
    x.index_fill_(0, i[:1], 4.0)
    x.index_add_(0, i, y)
    x.scatter_(1, i[:, None], 2.0)
    x.masked_fill_(x > 5, -1)
    return x, x.gather(1, i[:, None]), x.index_select(1, i)


def result_is_argument(x, y):
    return x, x.contiguous(), x.to(torch.float32), x.detach(), y.requires_grad_(False)


def views_of_arguments(x, y):
    return x.t(), x.view(3, 2), x[0], x.unsqueeze(0), x.expand(2, 2, 3), x.reshape(-1), x.squeeze()


def unbind_and_split(x, y):
    a, b = x
    c, d = x.split(1)
    e, f, g = y.unbind(1)
    a.add_(1)
    d.mul_(2)
    f.zero_()
    return a, b, c, d, e, f, g


def chunk_in_loop(x, y):
    for part in x.chunk(3, 1):
        part.add_(part.sum())
    return x


def global_tensor(x, y):
    HELD.copy_(x[0])
    HELD.add_(x.sum())
    return HELD * 2


def intermediate(x, y):
    z = x * 2
    w = z.view(-1)
    w[0] = 100
    z[1] += y[1]
    return z


def data_of(x, y):
    x.data.add_(1)
    z = x.data
    z[0] = 5
    return x, z


def detach_and_change(x, y):
    z = x.detach()
    z.mul_(3)
    return x, z


def resize_like(x, y):
    z = x.new_zeros(3)
    z[1] = x.sum()
    return z, x.new_full((2,), 3), x.new_tensor([1, 2]), x.new_empty(0).shape, x.new_ones(1, dtype=torch.int32)


def as_strided_view(x, y):
    z = x.as_strided((2, 2), (1, 2))
    z.add_(10)
    return x, z


def real_of_complex(x, y):
    z = torch.complex(x, y)
    z.real.add_(1)
    z.imag[0] = 0
    return z, torch.view_as_real(z), z.conj().is_conj()


def same_twice(x, y):
    x.add_(x)
    y.copy_(x)
    return torch.equal(x.shape and torch.tensor(x.shape), torch.tensor(y.shape)) if False else x + y


def foreach(x, y):
    torch._foreach_add_([x, y], 1)
    torch._foreach_mul_([x, y], [y, x])
    return torch._foreach_neg([x, y])


def setattr_data(x, y):
    x.data = y * 2
    return x + 1


def zero_grad_style(x, y):
    z = x.clone().zero_()
    z.exponential_().clamp_(0, 1)
    return z


def random_in_place(x, y):
    x.normal_()
    y.uniform_(0, 2)
    return x.bernoulli_(0.5), y, torch.empty(3).random_(0, 10)


def fill_diagonal(x, y):
    x.fill_diagonal_(9)
    return x.tril_(), y.triu_(1)


def transpose_in_place(x, y):
    x.t_()
    return x, x.shape


def squeeze_in_place(x, y):
    z = x[None].clone()
    z.squeeze_(0)
    z.unsqueeze_(-1)
    return z, z.shape


ONE_GRAPH = [
    add_in_place, augmented, augmented_view, integers, view_then_change, change_then_view, set_items,
    set_none_and_bool, swap, copy_into, out_argument, out_two, functional_in_place, index_functions,
    result_is_argument, views_of_arguments, unbind_and_split, chunk_in_loop, intermediate, data_of,
    detach_and_change, resize_like, as_strided_view, real_of_complex, same_twice, foreach, zero_grad_style,
    random_in_place, fill_diagonal, squeeze_in_place,
]  # fmt: skip
ANY = [setattr_data, transpose_in_place]


@pytest.mark.parametrize("function", ONE_GRAPH, ids=lambda function: function.__name__)
def test_in_one_graph(function: Callable[..., Any]) -> None:
    compare(function, two, fullgraph=True)


@pytest.mark.parametrize("function", ANY, ids=lambda function: function.__name__)
def test_as_eager(function: Callable[..., Any]) -> None:
    compare(function, two, fullgraph=False)


@pytest.mark.parametrize(
    "function", [add_in_place, view_then_change, copy_into, set_items, out_argument], ids=lambda f: f.__name__
)
def test_on_the_same_tensor_twice(function: Callable[..., Any]) -> None:
    def same() -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.arange(6.0).reshape(2, 3)
        return x, x

    compare(function, same, fullgraph=False)


@pytest.mark.parametrize(
    "function", [add_in_place, view_then_change, copy_into, set_items, out_argument], ids=lambda f: f.__name__
)
def test_on_a_tensor_and_its_view(function: Callable[..., Any]) -> None:
    def overlapping() -> tuple[torch.Tensor, torch.Tensor]:
        held = torch.arange(12.0)
        return held[:6].view(2, 3), held[6:].view(2, 3)

    compare(function, overlapping, fullgraph=False)


def test_a_global_is_changed_each_time() -> None:
    compare(global_tensor, two, fullgraph=True)


IN_PLACE = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
BITWISE = ("and", "or", "xor", "lshift", "rshift")


@pytest.mark.parametrize("name", [*IN_PLACE, *BITWISE])
@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("unbound", [False, True])
def test_methods_of_operators_in_place_that_are_called(name: str, backend: str, unbound: bool) -> None:
    """`x.__iadd__(y)`, also where nobody uses the result."""

    def program(x):
        made = x * 1
        if unbound:
            getattr(torch.Tensor, f"__i{name}__")(made, 2)
        else:
            getattr(made, f"__i{name}__")(2)
        return made, getattr(x, f"__i{name}__")(3) is x

    numbers = torch.tensor([5, 6]) if name in BITWISE else torch.tensor([5.0, 6.0])
    given, wanted = numbers.clone(), numbers.clone()
    compiled = armature.compile(program, backend=backend, fullgraph=True)
    assert str(compiled(given)) == str(program(wanted))
    assert torch.equal(given, wanted)


def lists_that_overlap(t: torch.Tensor) -> list[torch.Tensor]:
    made = [t, t + 1]
    torch._foreach_add_(made, [t, t * 2], alpha=0.5)
    torch._foreach_addcdiv_(made, [t, t], [t + 3, t + 4], value=0.2)
    twice = t * 3
    torch._foreach_mul_([twice, twice], 2)
    torch._foreach_sub_([twice[:1], made[0]], [made[1][:1], twice])
    return [*made, twice]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "auto"])
def test_lists_are_changed_one_tensor_after_the_other(backend: str) -> None:
    given = [torch.linspace(-1, 1, 8).reshape(2, 4) for _ in range(2)]
    found = armature.compile(lists_that_overlap, backend=backend)(given[0])
    torch.testing.assert_close([*found, given[0]], [*lists_that_overlap(given[1]), given[1]])


def test_parts_of_one_storage_are_no_overlap() -> None:
    def parts(t: torch.Tensor) -> torch.Tensor:
        whole = t * 2
        torch._foreach_add_([whole[0], whole[1]], [whole[0], whole[1]])
        return whole

    given = torch.linspace(-1, 1, 8).reshape(2, 4)
    assert torch.equal(armature.compile(parts, backend="auto", fullgraph=True)(given), parts(given))
