"""DistributedDataParallel in two processes: gradients, graphs, and what is summed while backward still runs."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import attrs
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import armature
from armature.pipeline.session import session
from armature.plugin_api import data_parallel
from tests.support import processes

if not data_parallel.AVAILABLE:
    pytest.skip("torch was built without torch.distributed", allow_module_level=True)

from torch.distributed.algorithms import Join
from torch.nn.parallel import DistributedDataParallel

STEPS, WIDTH, ROWS = 3, 32, 6
ORDERS = ("outside", "inside")  # armature.compile(DistributedDataParallel(model)), and the other way round
SMALL = {"bucket_cap_mb": 0.006}  # one layer of WIDTH, and a bit
QUICK = {"backend": "aot_eager"}  # backward graphs, without the time that it takes to build kernels
Around = Callable[[Any, int], AbstractContextManager[Any]]


class Layers(nn.Module):
    """Layers one after another; gradients of the last come first."""

    def __init__(self, count: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(count)])
        self.norm = nn.BatchNorm1d(WIDTH)
        self.last = nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu_(layer(x))
        return self.last(self.norm(x))


class Twice(Layers):
    """Weights and a norm that are used at the start and at the end, a result that is a view, one in a dict."""

    def forward(self, x: Tensor) -> dict[str, Any]:
        first = self.norm(self.layers[0](x))
        low, high = self.layers[1](first).chunk(2, dim=1)
        x = self.layers[2](torch.cat([high, low * 2], dim=1))
        with torch.autocast("cpu", torch.bfloat16):
            x = self.layers[3](x.sin()).float()
        x = self.layers[0](x)
        y = self.norm(x)
        return {"y": y, "view": y.t(), "last": [self.last(y.cos())]}


class Chosen(Layers):
    """One layer of two is used, another one in each process."""

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layers[2 + dist.get_rank()](self.layers[0](x).relu()))


class Printing(Layers):
    """The graph breaks in the middle."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers[1](self.layers[0](x).relu()).relu()
        print(end="")
        return self.last(self.norm(self.layers[3](self.layers[2](x).relu())))


@attrs.frozen
class Pair:
    """A model in eager mode, and the same compiled: the DistributedDataParallel, and what is called."""

    eager: DistributedDataParallel
    parallel: DistributedDataParallel
    called: Callable[..., Any]


def pair(order: str, make: Callable[[], nn.Module], compiling: Mapping[str, Any], options: Mapping[str, Any]) -> Pair:
    torch.manual_seed(0)
    plain, model = (lambda one: (one, copy.deepcopy(one)))(make())
    eager = DistributedDataParallel(plain, **options)
    armature.reset()
    if order == "inside":
        parallel = DistributedDataParallel(armature.compile(model, **compiling), **options)
        return Pair(eager, parallel, parallel)
    parallel = DistributedDataParallel(model, **options)
    return Pair(eager, parallel, armature.compile(parallel, **compiling))


def loss_of(found: Any) -> Tensor:
    found = found if isinstance(found, dict) else {"found": found}
    leaves = [leaf for one in found.values() for leaf in (one if isinstance(one, list) else [one])]
    return sum((leaf.float().square().mean() for leaf in leaves), torch.zeros(()))


def far(left: Sequence[Tensor | None], right: Sequence[Tensor | None]) -> float:
    """The largest difference; both are None, or neither."""
    assert [one is None for one in left] == [one is None for one in right]
    pairs = [(one, other) for one, other in zip(left, right, strict=True) if one is not None and other is not None]
    return max((float((one.double() - other.double()).abs().max()) for one, other in pairs), default=0.0)


def state(model: nn.Module) -> list[Tensor | None]:
    return [*(p.grad for p in model.parameters()), *model.buffers()]


def compiled() -> dict[str, Any]:
    """What was compiled since the last reset."""
    done = session().compilations
    return {
        "breaks": [event.type.id for one in done for event in one.breaks],
        "captured": [one.function for one in done if one.module is not None],
        "others": [f"{one.function}: {one.outcome.value} {one.reason}" for one in done if one.module is None],
        "split": [event.detail for one in done for event in one.events if event.detail.startswith("split")],
        "backward": sum(graph.aten.kind.value == "backward" for one in done for graph in one.graphs),
    }


def batches(rank: int, count: int = STEPS) -> list[Tensor]:
    torch.manual_seed(rank + 1)
    return [torch.randn(ROWS, WIDTH) for _ in range(count)]


def trained(both: Pair, inputs: Sequence[Tensor], around: Around = lambda model, step: nullcontext()) -> dict[str, Any]:
    """A backward of both models for each input: how far losses, gradients and buffers are apart at most. Gradients of
    steps that are not to be summed yet grow."""
    apart = []
    for step, x in enumerate(inputs):
        losses = []
        for model, called in ((both.eager, both.eager), (both.parallel, both.called)):
            if model.require_backward_grad_sync and step % 2 == 0:
                model.zero_grad()
            with around(model, step):
                losses.append(loss_of(called(x)))
            losses[-1].backward()
        apart.append(max(far(losses[:1], losses[1:]), far(state(both.eager), state(both.parallel))))
    return {"apart": max(apart), **compiled()}


def plain(order: str, rank: int, world: int, make: Callable[[], nn.Module] = Layers, **options: Any) -> dict[str, Any]:
    """Three steps."""
    return trained(pair(order, make, QUICK, {**SMALL, **options}), batches(rank))


def with_kernels(order: str, rank: int, world: int) -> dict[str, Any]:
    return trained(pair(order, Layers, {"fullgraph": True}, SMALL), batches(rank))


def overlapping(order: str, rank: int, world: int) -> list[str]:
    """What happens in the third backward, in order: gradients of layers are made, buckets are summed."""
    both = pair(order, Layers, QUICK, SMALL)
    told: list[str] = []
    for k, layer in enumerate(both.parallel.module.layers):
        layer.weight.register_post_accumulate_grad_hook(lambda p, k=k: told.append(f"layer {k}"))

    def summed(state, bucket):  # type: ignore[no-untyped-def]  # torch looks at the annotations, and takes no texts
        told.append(f"bucket {bucket.index()}")
        work: Any = dist.all_reduce(bucket.buffer().div_(world), async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    both.parallel.register_comm_hook(None, summed)
    for x in batches(rank):
        told.clear()
        both.called(x).sum().backward()
    return told


def accumulated(order: str, rank: int, world: int) -> dict[str, Any]:
    """Gradients are summed in every second step only."""
    both = pair(order, Layers, QUICK, SMALL)
    return trained(both, batches(rank, 4), lambda model, step: nullcontext() if step % 2 else model.no_sync())


def under_autocast(order: str, rank: int, world: int) -> dict[str, Any]:
    both = pair(order, Layers, QUICK, SMALL)
    return trained(both, batches(rank), lambda model, step: torch.autocast("cpu", torch.bfloat16))


def joined(order: str, rank: int, world: int) -> dict[str, Any]:
    """One process has fewer inputs than the other."""
    both = pair(order, Layers, QUICK, SMALL)
    inputs = batches(rank, 2 + rank)
    for model, called in ((both.eager, both.eager), (both.parallel, both.called)):
        with Join([model]):
            for x in inputs:
                model.zero_grad()
                loss_of(called(x)).backward()
    return {"apart": far(state(both.eager), state(both.parallel)), **compiled()}


def in_a_step(order: str, rank: int, world: int) -> dict[str, Any]:
    """The loss is computed in the compiled function too."""
    both = pair("inside", Layers, QUICK, SMALL)
    step = armature.compile(lambda x: both.parallel(x * 2) / 2, **QUICK)
    both.eager.register_forward_pre_hook(lambda module, given: (given[0] * 2,))
    both.eager.register_forward_hook(lambda module, given, found: found / 2)
    return trained(attrs.evolve(both, called=step), batches(rank))


def other_sizes(order: str, rank: int, world: int) -> dict[str, Any]:
    rows = [6, 4, 9, 11]
    return trained(pair(order, Layers, QUICK, SMALL), [x[:n] for x, n in zip([torch.randn(16, WIDTH)] * 4, rows)])


def evaluated(order: str, rank: int, world: int) -> dict[str, Any]:
    both = pair(order, Layers, QUICK, SMALL)
    x = batches(rank)[0]
    for model in (both.eager, both.parallel):
        model.eval()
    with torch.no_grad():
        apart = far([both.eager(x)], [both.called(x)])
    before = compiled()
    for model in (both.eager, both.parallel):
        model.train()
    return {"before": before, "without gradients": apart, **trained(both, batches(rank))}


def ignoring(order: str, rank: int, world: int) -> dict[str, Any]:
    """Some gradients are not summed."""

    def make() -> nn.Module:
        model = Layers()
        names = ["layers.3.weight", "norm.running_mean"]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)
        return model

    return plain(order, rank, world, make)


def for_a_callable(order: str, rank: int, world: int) -> list[int]:
    """What a back end of the program is given."""
    given: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        given.append(len(graph.graph.nodes))
        return graph.forward

    both = pair(order, Layers, {"backend": backend}, SMALL)
    trained(both, batches(rank))
    return given


SCENARIOS: dict[str, processes.Scenario] = {
    f"{name} {order}": functools.partial(scenario, order, **options)
    for order, name, scenario, options in (
        ("outside", "kernels", with_kernels, {}),
        ("inside", "kernels", with_kernels, {}),
        ("outside", "overlap", overlapping, {}),
        ("inside", "overlap", overlapping, {}),
        ("outside", "twice", plain, {"make": Twice}),
        ("outside", "chosen", plain, {"make": Chosen, "find_unused_parameters": True}),
        ("inside", "chosen", plain, {"make": Chosen, "find_unused_parameters": True}),
        ("inside", "unused", plain, {"find_unused_parameters": True}),
        ("outside", "printing", plain, {"make": Printing}),
        ("inside", "static", plain, {"static_graph": True}),
        ("outside", "views", plain, {"gradient_as_bucket_view": True}),
        ("outside", "accumulated", accumulated, {}),
        ("inside", "autocast", under_autocast, {}),
        ("outside", "joined", joined, {}),
        ("inside", "sizes", other_sizes, {}),
        ("outside", "evaluated", evaluated, {}),
        ("outside", "ignoring", ignoring, {}),
        ("inside", "callable", for_a_callable, {}),
        ("outside", "step", in_a_step, {}),
    )
}


@pytest.fixture(scope="module")
def results() -> dict[str, list[Any]]:
    return processes.run(__file__)


def of(results: Mapping[str, list[Any]], name: str) -> Any:
    """What both processes have found, which is the same."""
    first, second = results[name]
    assert first == second
    return first


TRAINED = [name for name in SCENARIOS if name.partition(" ")[0] not in ("overlap", "callable")]
SPLIT = {"printing outside": 0, "unused inside": 3, "evaluated outside": 2, "sizes inside": 4}  # others: 2 pieces


@pytest.mark.parametrize("name", TRAINED)
def test_gradients_and_buffers_are_those_of_eager_mode(results: dict[str, list[Any]], name: str) -> None:
    for found in results[name]:
        assert found["apart"] < (1e-5 if "kernels" in name else 1e-6)


@pytest.mark.parametrize("name", TRAINED)
def test_the_module_is_one_graph_in_a_piece_for_each_bucket(results: dict[str, list[Any]], name: str) -> None:
    for found in results[name]:
        expected = {"printing outside": ["prints"], "step outside": ["skipped-function"]}
        assert found["breaks"] == expected.get(name, [])
        assert not found["others"]
        pieces = [int(text.split()[2]) for text in found["split"]]
        assert sum(pieces) == SPLIT.get(name, 2), found["split"]


@pytest.mark.parametrize("order", ORDERS)
def test_each_piece_has_a_backward_graph(results: dict[str, list[Any]], order: str) -> None:
    assert of(results, f"kernels {order}")["backward"] == 2


@pytest.mark.parametrize("order", ORDERS)
def test_buckets_are_summed_while_backward_runs(results: dict[str, list[Any]], order: str) -> None:
    told = of(results, f"overlap {order}")
    assert told.index("bucket 0") < min(told.index("layer 0"), told.index("layer 1"))
    assert {"layer 2", "layer 3"} == set(told[: told.index("bucket 0")])


def test_a_back_end_of_the_program_is_given_the_pieces(results: dict[str, list[Any]]) -> None:
    assert len(of(results, "callable inside")) == 2


def test_without_gradients_there_are_no_pieces(results: dict[str, list[Any]]) -> None:
    found = of(results, "evaluated outside")
    assert found["without gradients"] == 0
    assert not found["before"]["split"]


if __name__ == "__main__":
    processes.serve(SCENARIOS)
