"""A training graph in pieces: wherever passes want it cut, values, gradients and buffers are eager mode's."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

import armature
from armature import config
from armature.pipeline.session import session
from armature.plugin_api import EventKind, Pass, Split, hookimpl
from armature.plugins import manager
from armature.testing.differential import against_eager

QUICK = {"backend": "aot_eager"}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.manual_seed(0)
    armature.reset()
    with config.patch(strict=True):
        yield


@attrs.frozen
class Cutting:
    """A plugin whose pass cuts before the nodes that are chosen; it keeps what it was given."""

    choose: Callable[[fx.Node], bool] = lambda node: True
    splits: list[Split] = attrs.field(factory=list)

    def run(self, split: Any, ctx: Any) -> Any:
        self.splits.append(split)
        return attrs.evolve(split, cuts=frozenset(filter(self.choose, split.module.graph.nodes)))

    @hookimpl
    def armature_passes(self) -> Sequence[Pass]:
        return (Pass("cut-for-a-test", "split", self.run),)


@contextmanager
def cutting(choose: Callable[[fx.Node], bool] = lambda node: True) -> Iterator[Cutting]:
    plugin = Cutting(choose)
    with manager().registered(plugin, "cutting"):
        yield plugin


def pieces() -> list[str]:
    """What the records say of cuts."""
    events = (event for one in session().compilations for event in one.events)
    return [event.detail for event in events if event.kind is EventKind.STAGE and event.detail.startswith("split into")]


class Model(nn.Module):
    """Linear layers and a norm, which a program uses."""

    def __init__(self, program: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.program = program
        self.one, self.two, self.three = (nn.Linear(6, 6) for _ in range(3))
        self.norm = nn.BatchNorm1d(6)
        self.register_buffer("count", torch.zeros(6))

    def forward(self, x: Tensor) -> Any:
        return self.program(self, x)


def in_a_row(m: Any, x: Tensor) -> Tensor:
    return m.three(torch.tanh(m.two(torch.tanh(m.one(x)))))


def in_place(m: Any, x: Tensor) -> Tensor:
    y = m.one(x)
    y.relu_()
    z = m.two(y)
    part = z[:, :3]
    part.mul_(2)
    return m.three(z + 1)


def with_a_norm(m: Any, x: Tensor) -> Tensor:
    return m.two(F.relu(m.norm(m.one(x)), inplace=True))


def with_a_norm_twice(m: Any, x: Tensor) -> Tensor:
    return m.norm(m.two(m.norm(m.one(x))))


def counting(m: Any, x: Tensor) -> Tensor:
    y = m.one(x) * (m.count + 1)
    m.count.add_(1)
    return m.two(y) + m.count


def with_tuples(m: Any, x: Tensor) -> Tensor:
    low, high = m.one(x).chunk(2, dim=1)
    found = m.two(torch.cat([high, low], dim=1)).max(dim=1)
    return found.values * 2 + found.indices


def with_sizes(m: Any, x: Tensor) -> Tensor:
    y = m.one(x)
    return m.two(y).reshape(y.shape[1], y.shape[0]) * y.size(0) + y.shape.numel()


def with_contexts(m: Any, x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        y = m.two(m.one(x).relu())
    with torch.no_grad():
        scale = m.three(y.float()).abs().mean()
    y = y.float() * scale
    torch.set_grad_enabled(False)
    shift = y.sum() * 2
    torch.set_grad_enabled(True)
    return y + shift


def with_views(m: Any, x: Tensor) -> dict[str, Any]:
    y = m.one(x)
    view = y.t()
    z = m.two(y)
    return {
        "y": y,
        "view": view,
        "again": view.t().exp(),
        "x": x,
        "z": z,
        "rows": z.unbind()[0].sin(),
        "given": m.count,
    }


def with_shared_weights(m: Any, x: Tensor) -> Tensor:
    return F.linear(m.two(m.one(x)).relu(), m.one.weight.t(), m.two.bias)


def written_late(m: Any, x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    z = m.one(x)
    w = m.two(z)
    y.add_(w)
    y[0] = z[1]
    return y.sum(0) + w.detach()


def without_numbers(m: Any, x: Tensor) -> Tensor:
    """A result that wants no gradient, and a piece that gives nothing."""
    y = m.one(x)
    m.count.copy_(y.detach().sum(0))
    return m.two(x.ceil())


PROGRAMS = (
    in_a_row, in_place, with_a_norm, with_a_norm_twice, counting, with_tuples, with_sizes, with_contexts, with_views,
    with_shared_weights, written_late, without_numbers,
)  # fmt: skip


def total(found: Any) -> Tensor:
    leaves = found.values() if isinstance(found, dict) else [found]
    return sum((leaf.double().square().sum() for leaf in leaves if leaf.requires_grad), torch.zeros(()))


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "dynamic"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_cut_wherever_it_can_be(program: Callable[[Any, Tensor], Any], dynamic: bool) -> None:
    def compile_model(model: nn.Module) -> Callable[..., Any]:
        return armature.compile(model, fullgraph=True, dynamic=dynamic, **QUICK)

    with cutting():
        gap = against_eager(Model(program), compile_model, (torch.randn(5, 6),), total)
    assert gap < 2e-6
    assert len(pieces()) == 1


@pytest.mark.parametrize("program", [in_a_row, with_a_norm, with_views], ids=lambda program: program.__name__)
def test_pieces_become_kernels(program: Callable[[Any, Tensor], Any]) -> None:
    with cutting(lambda node: "two" in str(node.args)):
        gap = against_eager(Model(program), armature.compile, (torch.randn(5, 6),), total)
    assert gap < 1e-5
    assert pieces() == ["split into 2 pieces, of 2 that were requested"]
    (record,) = session().compilations
    assert [graph.aten.kind.value for graph in record.graphs] == ["forward", "forward", "backward", "backward"]


CLOSED = {
    with_a_norm_twice: "split into 3 pieces",  # between the first norm and the second there is no cut
    counting: "split into 2 pieces",
}


@pytest.mark.parametrize("program", CLOSED, ids=lambda program: program.__name__)
def test_what_is_written_is_one_pieces_affair(program: Callable[[Any, Tensor], Any]) -> None:
    with cutting():
        against_eager(Model(program), lambda model: armature.compile(model, **QUICK), (torch.randn(5, 6),), total)
    assert [text.partition(",")[0] for text in pieces()] == [CLOSED[program]]


def test_gradients_come_in_parts() -> None:
    model, order = Model(in_a_row), []
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda p, name=name: order.append(name))
    with cutting(lambda node: "tanh" in str(node.target)):
        found = armature.compile(model, **QUICK)(torch.randn(5, 6))
    found.sum().backward()
    assert [name.partition(".")[0] for name in order if not name.startswith(("norm", "count"))] == [
        "three", "three", "two", "two", "one", "one",
    ]  # fmt: skip


def test_a_back_end_of_the_program_is_given_the_pieces() -> None:
    given: list[list[str]] = []

    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        given.append([str(node.target) for node in module.graph.nodes if node.op.startswith("call_")])
        return module.forward

    with cutting(lambda node: "tanh" in str(node.target)):
        armature.compile(Model(in_a_row), backend=backend)(torch.randn(5, 6))
    assert [len(names) for names in given] == [1, 2, 2]


def test_no_pass_is_asked_where_no_gradient_is_wanted() -> None:
    model = Model(in_a_row)
    with cutting() as plugin:
        compiled = armature.compile(model, **QUICK)
        with torch.no_grad():
            compiled(torch.randn(5, 6))
        assert not plugin.splits
        compiled(torch.randn(5, 6))
    assert len(plugin.splits) == 1


def test_a_pass_is_told_the_parameters() -> None:
    model = Model(in_a_row)
    with cutting() as plugin:
        armature.compile(model, **QUICK)(torch.randn(5, 6))
    found = plugin.splits[0].parameters
    assert {id(real) for real in found.values()} == {
        id(p) for layer in (model.one, model.two, model.three) for p in layer.parameters()
    }
    assert all(node.op == "placeholder" for node in found)


def test_nothing_of_the_program_is_kept() -> None:
    model, x = Model(in_a_row), torch.randn(5, 6)
    with cutting() as plugin:
        armature.compile(model, **QUICK)(x)
    plugin.splits.clear()
    gone = weakref.ref(x), weakref.ref(model.one.weight)
    armature.reset()
    del model, x
    gc.collect()
    assert [ref() for ref in gone] == [None, None]
