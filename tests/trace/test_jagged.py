"""Nested tensors of the jagged layout: one graph for all lengths, as in eager mode; which ragged sizes are equal is guarded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nested import nested_tensor_from_jagged as jagged
from torch.utils import _pytree as pytree

import armature
from armature.pipeline.session import Outcome, session

WEIGHT = torch.linspace(-1, 1, 20).reshape(5, 4)
LENGTHS = [(2, 3, 4), (4, 4, 1), (1, 2), (5, 1, 2, 7), (3,), (2, 2)]


@pytest.fixture(autouse=True)
def _nothing_compiled() -> None:
    armature.reset()


def numbers(*size: int) -> torch.Tensor:
    return torch.linspace(-1, 1, torch.Size(size).numel()).reshape(size)


def offsets(*lengths: int) -> torch.Tensor:
    return torch.tensor([0, *lengths]).cumsum(0)


def listed(lengths: tuple[int, ...], learns: bool = False) -> torch.Tensor:
    """It knows its shortest and longest part."""
    parts = [numbers(length, 4) for length in lengths]
    return torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=learns)


def viewed(lengths: tuple[int, ...], learns: bool = False) -> torch.Tensor:
    return jagged(numbers(sum(lengths), 4).requires_grad_(learns), offsets(*lengths))


def together(*lengths: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two over the same offsets."""
    one = viewed(lengths)
    return one, jagged(one.values() + 1, one.offsets())


def apart(*lengths: int) -> tuple[torch.Tensor, torch.Tensor]:
    return viewed(lengths), viewed(lengths)


def facts(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [facts(item) for item in value]
    if not isinstance(value, torch.Tensor):
        return value
    known = [type(value), value.dtype, value.requires_grad, value.dim()]
    if not value.is_nested:
        return [*known, value.shape, value.detach().double().mul(1e4).round().tolist()]
    return [*known, value._ragged_idx, value.values().stride(), facts(value.values().detach()), facts(value.offsets())]


def learn(found: Any) -> None:
    leaves = [leaf for leaf in pytree.tree_leaves(found) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    sum((leaf.values() if leaf.is_nested else leaf).pow(2).sum() for leaf in leaves).backward()  # type: ignore[union-attr]


def outcome(function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    try:
        found = function(*given)
    except (RuntimeError, ValueError) as error:
        return type(error)
    return facts(found)


def compare(
    function: Callable[..., Any], calls: list[Callable[[], tuple[Any, ...]]], *, fullgraph: bool = True
) -> list[Any]:
    """Compiled as eager, in each of the calls. Gives what eager mode gave."""
    for backend in ("eager", "auto"):
        armature.reset()
        compiled = armature.compile(function, backend=backend, fullgraph=fullgraph)
        seen = []
        for make in calls:
            seen.append(outcome(function, make()))
            assert outcome(compiled, make()) == seen[-1]
        if fullgraph:
            assert {record.outcome for record in session().compilations} == {Outcome.COMPILED}
    return seen


PROGRAMS: dict[str, Callable[..., Any]] = {
    "pointwise": lambda x: (x * 2 + 1, x.sin(), x + x.cos(), torch.where(x > 0, x, 0.0), F.relu(x)),
    "parts": lambda x: (x.values() * 2, x.offsets() + 1, x.lengths(), x.offsets().diff()),
    "linear": lambda x: (F.linear(x, WEIGHT), x @ WEIGHT.t()),
    "norms": lambda x: (F.layer_norm(x, (4,)), x.softmax(-1), F.dropout(x, 0.5, training=False)),
    "unbind": lambda x: [part.sum(0) for part in x.unbind()],
    "reductions": lambda x: (x.sum(), x.sum(dim=1), x.mean(dim=1), x.mean(dim=-1)),
    "views": lambda x: x.unflatten(-1, [2, 2]).transpose(1, 2),
    "shapes": lambda x: (torch.cat([x, x], -1), x.chunk(2, -1)[0] * 1, x.view(x.size(0), x.size(1), 2, 2) * 1),
    "copies": lambda x: (x.clone(), x.detach(), torch.zeros_like(x), x.to(torch.float64), x, x.contiguous()),
    "queries": lambda x: (
        x.values() * x.size(0) * x.shape[-1], x.dim(), x.is_nested, x.layout, x.dtype, x.numel(), type(x).__name__
    ),
    "branches": lambda x: x * 2 if x.size(0) > 2 else x * 3 if x.values().size(0) > 3 else x * 5,
    "ragged": lambda x: (x.values() * (2 if x.size(1) == 3 else 3), x.values() * (2 if x.size(1) == x.shape[1] else 3)),
    "made": lambda x: jagged(x.values() * 2, x.offsets()) * 3 + x,
}  # fmt: skip


@pytest.mark.parametrize("make", [listed, viewed])
@pytest.mark.parametrize("name", PROGRAMS)
def test_in_one_graph_with_any_lengths(name: str, make: Callable[..., Any]) -> None:
    compare(PROGRAMS[name], [lambda lengths=lengths: (make(lengths),) for lengths in LENGTHS])


def test_padding_needs_the_longest_part() -> None:
    calls = [lambda lengths=lengths: (listed(lengths),) for lengths in LENGTHS]
    compare(lambda x: (x.to_padded_tensor(0.0), torch.nested.to_padded_tensor(x, -1.0)), calls)
    compare(lambda x: x.to_padded_tensor(0.0), [lambda: (viewed((2, 3)),), lambda: (viewed((4, 1)),)], fullgraph=False)


def test_other_lengths_need_few_compilations() -> None:
    compiled = armature.compile(lambda x: x.sin() * 2, backend="eager", fullgraph=True)
    for lengths in ((2, 3), (2, 4), (3, 3, 3), (4, 5, 6, 7), (9, 9), (2, 2, 2, 2, 2)):
        assert facts(compiled(viewed(lengths))) == facts(viewed(lengths).sin() * 2)
    assert len(session().compilations) == 3  # once, then with symbols for the sum, then for the number of parts


def test_made_inside() -> None:
    def of_offsets(x, o):
        return jagged(x, o) * 2, jagged(x, o, min_seqlen=1, max_seqlen=4).to_padded_tensor(0.0)

    compare(of_offsets, [
        lambda: (numbers(5, 4), offsets(2, 3)), lambda: (numbers(5, 4), offsets(1, 4)),
        lambda: (numbers(8, 4), offsets(1, 4, 3)),
    ])  # fmt: skip
    compare(
        lambda parts: torch.nested.as_nested_tensor(parts, layout=torch.jagged) * 2,
        [lambda: ([numbers(2, 3), numbers(4, 3)],), lambda: ([numbers(2, 3), numbers(1, 3), numbers(5, 3)],)],
    )
    compare(lambda x: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged) * x, [
        lambda: (torch.tensor(2.0),)
    ])  # fmt: skip


@pytest.mark.parametrize("first", [together, apart])
def test_which_ragged_sizes_are_equal_is_guarded(first: Callable[..., Any]) -> None:
    other = together if first is apart else apart
    calls = [lambda: first(2, 3), lambda: other(2, 3), lambda: first(2, 3), lambda: other(4, 1, 1), lambda: first(6)]

    def told(x, y):
        return x.values() * (2 if x.size(1) == y.size(1) else 3), x.values() * (2 if x.shape == y.shape else 3)

    seen = compare(told, calls)
    assert seen[0] != seen[1]
    compare(lambda x, y: x + y, calls, fullgraph=False)  # one of them raises


@pytest.mark.parametrize("same", [True, False])
def test_offsets_that_come_alone_are_guarded(same: bool) -> None:
    def of_another(same: bool) -> tuple[Any, ...]:
        one = viewed((2, 3))
        return one, one.offsets() if same else one.offsets().clone()

    def of_none(same: bool) -> tuple[Any, ...]:
        one = offsets(2, 3)
        return numbers(5, 4), one, one if same else one.clone()

    def told(x, o):
        return x.values() * (2 if x.size(1) == jagged(x.values(), o).size(1) else 3)

    def told_of_both(x, o, p):
        return x * (2 if jagged(x, o).size(1) == jagged(x, p).size(1) else 3)

    seen = compare(told, [lambda: of_another(same), lambda: of_another(not same), lambda: of_another(same)])
    assert seen[0] != seen[1]
    seen = compare(told_of_both, [lambda: of_none(same), lambda: of_none(not same), lambda: of_none(same)])
    assert seen[0] != seen[1]


def test_what_it_holds_is_guarded() -> None:
    calls = [
        lambda: (listed((2, 3)),), lambda: (viewed((2, 3)),), lambda: (viewed((2, 3)).unflatten(-1, [2, 2]),),
        lambda: (viewed((2, 3)).unflatten(-1, [2, 2]).transpose(1, 2),), lambda: (viewed((2, 3)).double(),),
        lambda: (numbers(2, 3, 4),), lambda: (jagged(numbers(9, 4), offsets(4, 5), torch.tensor([2, 3])),),
        lambda: (jagged(numbers(9, 4), offsets(4, 5), torch.tensor([1, 2])),),
    ]  # fmt: skip
    compare(lambda x: x * 2, calls)
    compare(lambda x: (x.values() if x.is_nested else x) * (2 if x.dim() > 3 else 3), calls)


def test_ragged_sizes_leave_the_frame() -> None:
    for backend in ("eager", "auto"):
        armature.reset()
        compiled = armature.compile(lambda x: (x.size(1), x.shape, x * 2), backend=backend, fullgraph=True)
        for lengths in LENGTHS:
            x = viewed(lengths)
            size, shape, doubled = compiled(x)
            assert (size, shape) == (x.size(1), x.shape)
            assert size == doubled.size(1)
            assert size != viewed(lengths).size(1)


def test_comparing_ragged_sizes_with_numbers_breaks() -> None:
    calls = [lambda lengths=lengths: (viewed(lengths),) for lengths in LENGTHS]
    compare(lambda x: x.values() * (2 if x.size(1) > 3 else 3), calls, fullgraph=False)


def test_changes_in_place() -> None:
    def changed(x, y):
        y.mul_(3)
        x.mul_(2)
        return x * 1, y

    def told(function, x, y):
        return function(x, y), x, y

    for backend in ("eager", "auto"):
        compiled = armature.compile(changed, backend=backend)
        for make in (together, apart):
            one, other = make(2, 3), make(2, 3)
            assert facts(told(compiled, *one)) == facts(told(changed, *other))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(4), nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_training(backend: str) -> None:
    torch.manual_seed(0)
    eager, model = Block(), Block()
    model.load_state_dict(eager.state_dict())
    compiled = armature.compile(model, backend=backend, fullgraph=True)
    for make in (listed, viewed):
        for lengths in LENGTHS:
            x, y = make(lengths, True), make(lengths, True)
            learn(eager(x))
            learn(compiled(y))
            if make is listed:
                assert facts(y.grad) == facts(x.grad)
    for one, other in zip(eager.parameters(), model.parameters()):
        torch.testing.assert_close(one.grad, other.grad)


def test_modes_and_breaks() -> None:
    def under_a_device(x):
        with torch.device("cpu"):
            return x * 2 + torch.ones(4)

    def without_gradients(x):
        with torch.no_grad():
            return x * 2

    def breaks(x):
        y = x * 2
        return y * y.offsets().tolist()[1]

    calls = [lambda: (viewed((2, 3)),), lambda: (viewed((1, 2, 3)),)]
    for function in (under_a_device, without_gradients, breaks):
        compare(function, calls, fullgraph=False)
    strided = [lambda: (torch.nested.nested_tensor([numbers(2, 3)], layout=torch.strided),)]
    compare(lambda x: (x * 2).to_padded_tensor(0.0), strided, fullgraph=False)


@pytest.mark.parametrize("known", [True, False])
def test_the_longest_and_the_shortest_length(known: bool) -> None:
    """Asked of tensors that keep them, and of those where eager mode finds them in the offsets."""

    def asked(x: torch.Tensor) -> Any:
        return x._get_max_seqlen(), x._get_min_seqlen(), x._max_seqlen, x.values() * x._min_seqlen

    def made(lengths: tuple[int, ...]) -> torch.Tensor:
        if known:
            return torch.nested.nested_tensor([torch.ones(n, 2) for n in lengths], layout=torch.jagged)
        offsets = torch.tensor([0, *lengths]).cumsum(0)
        return torch.nested.nested_tensor_from_jagged(torch.ones(sum(lengths), 2), offsets)

    quick = armature.compile(asked, backend="eager", fullgraph=known)
    for lengths in ((2, 4), (2, 4), (3, 5), (1, 7, 2), (4, 4)):
        torch.testing.assert_close(quick(made(lengths)), asked(made(lengths)), rtol=0, atol=0)


def test_parts_of_nested_tensors_as_arguments() -> None:
    """Where a part begins is in another tensor's data, so it is no view of its base for tracing."""

    def loss(part: torch.Tensor) -> torch.Tensor:
        return (part.sin() * 2).sum()

    def parts(layout: torch.layout) -> torch.Tensor:
        whole = torch.nested.nested_tensor([numbers(2, 3), numbers(4, 3)], layout=layout, requires_grad=True)
        return whole

    for layout in (torch.jagged, torch.strided):
        quick, found = armature.compile(loss, backend="eager", fullgraph=True), []
        for run in (quick, loss):
            whole = parts(layout)
            sum(run(part) for part in (whole * 2).unbind()).backward()
            found.append([part.tolist() for part in whole.grad.unbind()])
        assert found[0] == found[1]


def test_unbinding_after_a_break() -> None:
    def parts(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        whole = torch.nested.nested_tensor([a, b], layout=torch.jagged) * 2 + 1
        return [part.sum() for part in whole.unbind()]

    compare(parts, [lambda: (numbers(2, 3), numbers(4, 3)), lambda: (numbers(5, 3), numbers(1, 3))], fullgraph=False)
