"""What forward keeps for backward: as few bytes as it takes, and the same gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional

import armature
from armature.graph.data import GraphKind
from armature.lower.data import ExternCall
from armature.pipeline.session import session
from armature.testing.differential import difference
from armature_aten_lowerings import saving
from armature_aten_lowerings.windows import Window

aten = torch.ops.aten
POINTWISE_LEAKY_RELU = pytest.mark.skipif(
    torch.__version__.startswith("2.11."), reason="torch 2.11 doesn't know that backward can compute leaky_relu again"
)


def gradients(function: Callable[..., Tensor], *inputs: Tensor) -> list[Any]:
    """The result, and the gradients of all inputs."""
    given = [x.detach().clone(memory_format=torch.preserve_format).requires_grad_() for x in inputs]
    result = function(*given)
    result.backward(torch.linspace(-1, 1, result.numel(), dtype=result.dtype).reshape(result.shape))
    return [result.detach(), *(x.grad for x in given)]


def checked(function: Callable[..., Tensor], *inputs: Tensor, within: float = 1e-5) -> list[Tensor]:
    """Gradients as in eager; gives the values that the forward graph passes on, inputs and views of them left out."""
    armature.reset()
    expected = gradients(function, *inputs)
    assert difference(expected, gradients(armature.compile(function, fullgraph=True), *inputs)) <= within
    found: list[Tensor] = []
    for graph in session().compilations[-1].graphs:
        if graph.aten.kind is GraphKind.FORWARD:
            results: Any = graph.aten.module.graph.output_node().args[0]
            kept = [node for node in results[1:] if isinstance(node, fx.Node) and node.op != "placeholder"]
            values = [node.meta["val"] for node in kept]
            found += list({v.untyped_storage()._cdata: v for v in values if isinstance(v, Tensor)}.values())
    return found


def total(values: list[Tensor]) -> int:
    return sum(v.numel() * v.dtype.itemsize for v in values)


def test_of_relu_a_byte_for_each_number() -> None:
    x, w = torch.randn(8, 16), torch.randn(16, 16)
    kept = checked(lambda x, w: (x @ w).relu().cos() @ w, x, w, within=1e-4)
    assert all(v.dtype != torch.bool or v.numel() == 128 for v in kept)
    scaled = checked(lambda x, w: (torch.relu(x @ w) * 3).sum(1), x, w)
    assert total(scaled) <= 128 * 4
    odd = torch.tensor([[0.0, -0.0, float("nan"), float("inf"), -1.0, 2.0]])
    checked(lambda x: functional.threshold(x, 0.5, 0.25) + x.relu(), odd)


def test_a_result_is_not_kept_for_its_own_derivative() -> None:
    """HF's GELU: `tanh` of what a product gives is computed again from that."""
    w, x = torch.randn(16, 16), torch.randn(8, 16)

    def gelu(x: Tensor, w: Tensor) -> Tensor:
        h = x @ w
        return (0.5 * h * (1 + torch.tanh(0.8 * (h + 0.045 * h**3)))) @ w

    kept = checked(gelu, x, w, within=1e-4)
    assert total(kept) <= 2 * 8 * 16 * 4


DROPPED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "an activation": lambda x, w: functional.dropout(functional.gelu(x @ w), 0.25) @ w,
    "a view": lambda x, w: functional.dropout(functional.gelu(x @ w).view(2, 4, 16), 0.25) @ w,
    "an activation that is saved": lambda x, w: functional.dropout((x @ w).tanh(), 0.25) @ w,
    "attention": lambda x, w: functional.dropout((x @ w).softmax(-1), 0.25) @ w,
}


@pytest.mark.parametrize("name", DROPPED)
def test_dropout_keeps_its_mask_alone(name: str) -> None:
    """Beside what the function before it needs, which has as many numbers."""
    x, w = torch.randn(8, 16), torch.randn(16, 16)

    def seeded(function: Callable[..., Tensor]) -> list[Any]:
        torch.manual_seed(3)
        return gradients(function, x, w)

    armature.reset()
    expected = seeded(DROPPED[name])
    assert difference(expected, seeded(armature.compile(DROPPED[name], fullgraph=True))) <= 1e-4
    (forward,) = (g for g in session().compilations[-1].graphs if g.aten.kind is GraphKind.FORWARD)
    results: Any = forward.aten.module.graph.output_node().args[0]
    kept = [node.meta["val"] for node in results[1:] if isinstance(node, fx.Node) and node.op != "placeholder"]
    assert total(kept) == 8 * 16 * (4 + 1)


def test_dropout_of_what_nothing_else_needs_is_kept() -> None:
    x, w = torch.randn(8, 16), torch.randn(16, 16)

    def seeded(function: Callable[..., Tensor]) -> list[Any]:
        torch.manual_seed(3)
        return gradients(function, x, w)

    def program(x: Tensor, w: Tensor) -> Tensor:
        return functional.dropout(x @ w, 0.25) @ w

    assert difference(seeded(program), seeded(armature.compile(program, fullgraph=True))) <= 1e-4


@POINTWISE_LEAKY_RELU
def test_backward_of_an_activation_reads_what_it_can_compute() -> None:
    """Scores of all pairs are a sum of two vectors."""
    x, y = torch.randn(40, 1), torch.randn(1, 40)
    for function in (functional.leaky_relu, functional.elu, functional.softplus, functional.hardswish):
        kept = checked(lambda x, y, function=function: function(x.sin() + y.sin()).cos(), x, y)
        assert total(kept) <= 4 * 2 * 40, function


POOLS: tuple[dict[str, Any], ...] = (
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": (3, 2), "stride": (1, 2), "padding": (1, 0)},
    {"kernel_size": 3, "stride": 2, "dilation": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": 5, "stride": 1, "padding": 2},
    {"kernel_size": 4, "stride": 2, "padding": 1},
    {"kernel_size": 12, "stride": 1},
)


@pytest.mark.parametrize("options", POOLS, ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_of_a_maximum_its_place_in_the_window(options: dict[str, Any], last: bool) -> None:
    x = torch.randn(2, 3, 13, 15)
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    x[0, 0, 0, 0] = float("nan")

    def pooled(x: Tensor) -> Tensor:
        return functional.max_pool2d(x.sin(), **options)

    kept = checked(pooled, x)
    window = options["kernel_size"]
    large = window == 12
    assert any(v.dtype == torch.int64 for v in kept) is large
    assert any(v.dtype == torch.int8 for v in kept) is not large
    assert not any(v.dtype == torch.float32 for v in kept)  # of the image, backward takes the size alone


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("kernel", [(2, 2), (3, 2), (2, 5)], ids=str)
def test_every_place_of_a_window_comes_back(kernel: tuple[int, int], padding: int, dilation: int) -> None:
    image = torch.empty(1, 1, 9, 11)
    window = Window(image, kernel, [2, 1], [padding, padding], [dilation, dilation])
    assert window.can_pack
    rows, columns = ((torch.arange(3) * 2 - padding).reshape(-1, 1), torch.arange(4) - padding)
    for down in range(kernel[0]):
        for across in range(kernel[1]):
            row, column = rows + down * dilation, columns + across * dilation
            inside = (row >= 0) & (row < 9) & (column >= 0) & (column < 11)
            places = (row * 11 + column).expand(1, 1, 3, 4)
            packed = window.packed(places)
            assert packed.dtype == torch.int8
            assert bool((packed == down * kernel[1] + across)[..., inside].all())
            assert bool((window.unpacked(packed) == places)[..., inside].all())


@pytest.mark.parametrize("options", [p for p in POOLS if p["kernel_size"] != 12], ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_comparisons_find_what_the_library_finds(options: dict[str, Any], last: bool) -> None:
    torch.manual_seed(0)
    x = torch.randint(-2, 3, (2, 3, 13, 15)).float()  # many are equal
    x[0, 0, :6, :6] = -torch.inf
    x[0, 1, 2:9, 3:7] = torch.nan
    x[1, 0, -6:, -6:] = -torch.inf
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    values, places = functional.max_pool2d(x, return_indices=True, **options)
    size = options["kernel_size"]
    window = Window(x, size, options.get("stride", size), options.get("padding", 0), options.get("dilation", 1))
    largest, element = window.largest(x, values.shape[-2:])
    torch.testing.assert_close(largest, values, equal_nan=True, rtol=0, atol=0)
    assert largest.stride() == values.stride()
    assert torch.equal(window.unpacked(element), places)


@pytest.mark.parametrize("options", [p for p in POOLS if p["kernel_size"] != 12], ids=str)
def test_gradients_of_maxima_with_channels_last_are_loops(options: dict[str, Any]) -> None:
    armature.reset()
    x = torch.randint(-2, 3, (2, 3, 13, 15)).float().contiguous(memory_format=torch.channels_last)
    x[0, 1, 2:9, 3:7] = torch.nan
    ours, theirs = (x.clone().requires_grad_() for _ in range(2))
    result = armature.compile(lambda x: functional.max_pool2d(x, **options), fullgraph=True)(ours)
    wanted = functional.max_pool2d(theirs, **options)
    grad = torch.randn_like(wanted)
    result.backward(grad)
    wanted.backward(grad)
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert ours.grad is not None and ours.grad.is_contiguous(memory_format=torch.channels_last)
    graphs = session().compilations[-1].graphs
    calls = [node for graph in graphs for node in graph.loops.nodes if isinstance(node, ExternCall)]
    held_by_many = options["kernel_size"] == 5  # each element is in 25 windows
    assert {str(call.target) for call in calls} == (
        {"aten.new_empty_strided.default", "aten.max_pool2d_with_indices_backward.default"} if held_by_many else set()
    )


def test_rows_of_a_window_that_are_as_long_as_the_image() -> None:
    for width in (2, 3, 4):
        checked(lambda x: functional.max_pool2d(x * 2, 3, stride=1, padding=1), torch.randn(2, 3, 8, width))


def test_images_without_a_batch_and_positions_that_are_returned() -> None:
    checked(lambda x: functional.max_pool2d(x * 2, 2), torch.randn(3, 8, 8))

    def both(x: Tensor) -> Tensor:
        values, places = functional.max_pool2d(x * 2, 2, return_indices=True)
        return values * places

    checked(both, torch.randn(2, 3, 8, 8))


def test_a_block_of_a_residual_network() -> None:
    torch.manual_seed(0)
    block = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)).train()
    x = torch.randn(2, 3, 16, 16)
    kept = checked(lambda x: block(x), x, within=1e-4)
    assert total(kept) <= 2 * 8 * 256 * 4 + 2 * 8 * 64 * (1 + 4) + 1024


RESIZED: dict[str, tuple[int, Callable[[Tensor], Tensor]]] = {
    "averages": (2, lambda image: functional.avg_pool2d(image, 2)),
    "averages in 3 dimensions": (3, lambda image: functional.avg_pool3d(image, 2)),
    "averages of a size": (2, lambda image: functional.adaptive_avg_pool2d(image, 3)),
    "averages of a size in 3 dimensions": (3, lambda image: functional.adaptive_avg_pool3d(image, 3)),
    "reflections": (2, lambda image: functional.pad(image, (1, 2, 2, 1), "reflect")),
    "reflections in 1 dimension": (1, lambda image: functional.pad(image, (1, 2), "reflect")),
    "repetitions": (2, lambda image: functional.pad(image, (1, 2, 2, 1), "replicate")),
    "repetitions in 3 dimensions": (3, lambda image: functional.pad(image, (1,) * 6, "replicate")),
}


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", RESIZED)
def test_an_image_is_not_kept_for_its_size(name: str, last: bool) -> None:
    dims, resize = RESIZED[name]
    x = torch.randn(2, 4, *[6] * dims)
    x = x.contiguous(memory_format=torch.channels_last) if last and dims == 2 else x
    kept = checked(lambda x: resize(functional.batch_norm(x, None, None, training=True).relu()) * 2, x)
    assert total(kept) <= 4 * 8  # statistics of 4 channels


def test_an_image_that_is_kept_anyway_gives_its_size_too() -> None:
    w, x = torch.randn(4, 4, 1, 1), torch.randn(2, 4, 6, 6)

    def program(x: Tensor, w: Tensor) -> Tensor:
        image = functional.conv2d(x, w).relu()
        return functional.avg_pool2d(image, 2).sum() + functional.conv2d(image, w).sum()

    checked(program, x, w, within=1e-4)
    _, backward = session().compilations[-1].graphs
    assert not backward.aten.module.graph.find_nodes(op="call_function", target=aten.new_empty_strided.default)


def test_what_is_returned_stays_detached() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    kept, gone = graph.call_function(aten.detach.default, (x,)), graph.call_function(aten.detach.default, (x,))
    graph.output((kept, graph.call_function(aten.sin.default, (gone,))))
    module = fx.GraphModule(nn.Module(), graph)
    saving.drop_detached(module, None)
    assert [n for n in graph.nodes if n.target is aten.detach.default] == [kept]


def layer_modulated(x: Tensor, w: Tensor, scale: Tensor, v: Tensor) -> Tensor:
    return (functional.layer_norm(x @ w, (16,)) * (1 + scale[:4])) @ v


def group_activated(x: Tensor, w: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    image = functional.conv2d(x, w)
    return functional.conv2d(functional.silu(functional.group_norm(image, 4, weight, bias)), w)


def batch_activated(x: Tensor, w: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    image = functional.conv2d(x, w)
    normal = functional.batch_norm(image, None, None, weight, bias, training=True)
    return functional.conv2d(functional.hardswish(normal), w)


def activated_in_place(x: Tensor, w: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    image = functional.conv2d(x, w)
    normal = functional.batch_norm(image, None, None, weight, bias, training=True)
    return functional.conv2d(functional.silu(normal, inplace=True), w)


def gated(x: Tensor, w: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Squeeze and excitation: what the gate multiplies is read by backward of the product alone."""
    normal = functional.group_norm(functional.conv2d(x, w), 2, weight, bias)
    active = functional.silu(normal)
    return functional.conv2d(active * active.mean((2, 3), keepdim=True).sigmoid(), w)


IMAGE = torch.randn(2, 8, 6, 6), torch.randn(8, 8, 1, 1) / 3, torch.rand(8) + 0.5, torch.randn(8)


@pytest.mark.parametrize(
    ("function", "inputs", "numbers"),
    [
        pytest.param(layer_modulated, [torch.randn(4, 16), *torch.randn(3, 16, 16)], 3 * 64 + 8, id="layer"),
        pytest.param(group_activated, IMAGE, 2 * 576 + 16, id="group"),
        pytest.param(batch_activated, IMAGE, 2 * 576 + 16, id="batch"),
        pytest.param(activated_in_place, IMAGE, 2 * 576 + 16, id="in-place"),
        pytest.param(gated, IMAGE, 2 * 576 + 3 * 16, id="gate"),
    ],
)
def test_of_what_is_normalized_only_the_input(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], numbers: int
) -> None:
    """Besides it, the input of the product after it, statistics, and the factor."""
    assert total(checked(function, *inputs, within=1e-4)) <= numbers * 4
    assert computes_again()


@pytest.mark.parametrize(
    ("function", "inputs", "values", "statistics"),
    [
        pytest.param(layer_modulated, [torch.randn(4, 16), *torch.randn(3, 16, 16)], 3 * 64, 8, id="layer"),
        pytest.param(group_activated, IMAGE, 2 * 576, 16, id="group"),
        pytest.param(gated, IMAGE, 2 * 576, 48, id="gate"),
    ],
)
def test_of_what_is_normalized_in_16_bits_statistics_are_kept_in_32(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], values: int, statistics: int
) -> None:
    """What backward computes again is what forward computed: statistics in 16 bits, as eager mode's, would differ."""
    given = [x.bfloat16() for x in inputs]
    assert total(checked(function, *given, within=0.03)) <= 2 * values + 4 * statistics
    assert computes_again()
    exact = gradients(function, *(x.double() for x in given))
    eager, ours = gradients(function, *given), gradients(armature.compile(function, fullgraph=True), *given)
    for wanted, theirs, own in zip(exact, eager, ours, strict=True):
        allowed = (theirs - wanted).abs().max() + 0.01 * wanted.abs().max()
        assert (own - wanted).abs().max() <= allowed


def test_values_are_computed_again_for_sizes_that_change() -> None:
    armature.reset()
    compiled = armature.compile(activated_in_place, fullgraph=True)
    for batch in (2, 3, 5):
        inputs = torch.randn(batch, 8, 6, 6), *IMAGE[1:]
        assert difference(gradients(activated_in_place, *inputs), gradients(compiled, *inputs)) <= 1e-4
    assert len(session().compilations) == 2 and computes_again()


def test_normalized_is_kept_where_a_product_reads_it() -> None:
    """Nothing is gained by computing it again: backward of the product reads it from memory."""

    def function(x: Tensor, w: Tensor) -> Tensor:
        normal = functional.layer_norm(x, (16,))
        return (normal @ w) * normal

    checked(function, torch.randn(4, 16), torch.randn(16, 16))
    assert not computes_again()


def normalized_twice(x: Tensor, w: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """The first result is added to what follows, as in a layer with a residual connection."""
    normal = functional.layer_norm(x @ w, (16,), first, second)
    return functional.layer_norm(normal, (16,), second, first) @ w + normal


def test_of_what_is_normalized_twice_only_the_input() -> None:
    """The products' inputs, and four statistics of 8 rows: not what the second norm reads."""
    inputs = torch.randn(8, 16), torch.randn(16, 16) / 4, torch.rand(16) + 0.5, torch.rand(16)
    assert total(checked(normalized_twice, *inputs, within=1e-4)) <= (2 * 128 + 4 * 8) * 4
    assert computes_again()


def with_positions(x: Tensor, w: Tensor, positions: Tensor) -> Tensor:
    active = functional.gelu(x @ w)
    return functional.layer_norm(active + positions.cos().cumsum(0), (16,)) @ w


def with_others(x: Tensor, w: Tensor, other: Tensor) -> Tensor:
    return functional.layer_norm((x @ w).cos() + (other @ w), (16,)) @ w


def test_a_norm_s_argument_is_computed_again_from_what_is_kept() -> None:
    """Kept: the activation's argument, the positions, the product's input and two statistics of 32 rows."""
    inputs = torch.randn(4, 8, 16), torch.randn(16, 16) / 4, torch.randn(8, 16)
    assert total(checked(with_positions, *inputs, within=1e-4)) <= (2 * 512 + 128 + 2 * 32) * 4


def test_a_norm_s_argument_is_kept_where_it_takes_as_much_to_compute_it() -> None:
    """Kept: the cosine's argument, the norm's argument, the product's input and two statistics of 32 rows, but not the
    other product."""
    inputs = torch.randn(4, 8, 16), torch.randn(16, 16) / 4, torch.randn(4, 8, 16)
    kept = checked(with_others, *inputs, within=1e-4)
    assert total(kept) == (3 * 512 + 2 * 32) * 4


def test_a_norm_s_argument_is_kept_where_its_source_is_written_to() -> None:
    """Computed again, it would be made of the new positions."""

    def function(x: Tensor, w: Tensor, table: Tensor) -> Tensor:
        positions = table.detach()
        made = functional.layer_norm(functional.gelu(x @ w) + positions, (16,)) @ w
        positions.add_(1)
        return made

    x, w = torch.randn(4, 8, 16), torch.randn(16, 16) / 4
    compiled = armature.compile(function, fullgraph=True)
    found = [gradients(lambda x, w, f=each: f(x, w, torch.zeros(8, 16)), x, w) for each in (function, compiled)]
    assert difference(*found) <= 1e-4


def computes_again() -> bool:
    """Whether backward subtracts a mean, other than in a gradient of a normalisation."""
    graphs = session().compilations[-1].graphs
    (backward,) = (graph.aten.module.graph for graph in graphs if graph.aten.kind is GraphKind.BACKWARD)
    return bool(backward.find_nodes(op="call_function", target=aten.sub.Tensor))


def split_projection(x: Tensor, w: Tensor) -> Tensor:
    query, key, value = (x @ w).view(2, 128, 96).chunk(3, -1)
    scores = (query * 0.5) @ (key * 0.5).transpose(-2, -1)
    return scores.softmax(-1) @ value


def test_of_a_projection_the_part_that_backward_multiplies_by() -> None:
    """Query, key and value of 32 KiB each, and the weights of 128 KiB; not the projection, of which one is a part."""
    x, w = torch.randn(256, 32), torch.randn(32, 96)
    kept = checked(split_projection, x, w, within=1e-3)
    assert max(v.untyped_storage().nbytes() for v in kept) == 2 * 128 * 128 * 4
    assert total(kept) == sum(v.untyped_storage().nbytes() for v in kept) == 3 * 2 * 128 * 32 * 4 + 2 * 128 * 128 * 4


def test_parts_of_which_the_whole_is_needed_are_not_copied() -> None:
    x, w = torch.randn(256, 32), torch.randn(32, 96)
    checked(lambda x, w: split_projection(x, w) + (x @ w).sin().view(2, 128, 96)[..., :32], x, w, within=1e-3)
    kept = checked(lambda x, w: (y := (x @ w).chunk(3, 1))[0].t() @ y[1] @ y[2].t(), x, w / 8, within=1e-2)
    assert {v.untyped_storage().nbytes() for v in kept} >= {256 * 96 * 4}


def graph_attention(left: Tensor, right: Tensor, x: Tensor, joined: Tensor) -> Tensor:
    scores = functional.leaky_relu(left + right.t(), 0.2).masked_fill(joined, -1e9)
    return scores.softmax(-1) @ x


@pytest.mark.parametrize("parts", [lambda x: x.unbind(1), lambda x: x.split_with_sizes([1] * 8, 1)])
def test_parts_of_a_recurrence_s_factors_are_taken_again(parts: Callable[[Tensor], Sequence[Tensor]]) -> None:
    """Each is an eighth of the factors, but keeps all of them in memory."""

    def recurrence(rates: Tensor, times: Tensor, w: Tensor) -> Tensor:
        factors = torch.exp(rates * times)
        state = torch.ones_like(parts(factors)[0])
        for factor in parts(factors):
            state = factor * state + factor
        return state.flatten(1) @ w

    rates, times, w = -torch.rand(8, 1, 16), torch.rand(8, 8, 1), torch.randn(16, 16)
    kept = checked(recurrence, rates, times, w, within=1e-4)
    assert sum(v.untyped_storage().nbytes() for v in kept) < 8 * 8 * 16 * 4  # of the factors


@POINTWISE_LEAKY_RELU
def test_of_a_softmax_of_sums_only_columns() -> None:
    left, right, x = torch.randn(160, 1), torch.randn(160, 1), torch.randn(160, 8)
    joined = torch.rand(160, 160) < 0.1
    kept = checked(lambda *given: graph_attention(*given, joined), left, right, x)
    assert kept and max(v.nbytes for v in kept) == 160 * 4


def test_of_a_dropped_softmax_of_sums_one_value_and_the_mask() -> None:
    left, right, x = torch.randn(160, 1), torch.randn(160, 1), torch.randn(160, 8)

    def attend(left: Tensor, right: Tensor, x: Tensor) -> Tensor:
        return functional.dropout((left + right.t()).softmax(-1), 0.25) @ x

    def run(fn: Callable[..., Tensor]) -> list[Tensor]:
        torch.manual_seed(3)
        given = [value.clone().requires_grad_() for value in (left, right, x)]
        result = fn(*given)
        return [result.detach(), *torch.autograd.grad(result.square().sum(), given)]

    armature.reset()
    torch.testing.assert_close(run(armature.compile(attend, fullgraph=True)), run(attend), rtol=1e-4, atol=1e-4)
    [forward] = [g for g in session().compilations[-1].graphs if g.aten.kind is GraphKind.FORWARD]
    saved: Any = forward.aten.module.graph.output_node().args[0][1:]
    sizes = [n.meta["val"].nbytes for n in saved if isinstance(n.meta["val"], Tensor)]
    assert sum(size >= 160 * 160 for size in sizes) == 2 and max(sizes) == 160 * 160 * 4


@pytest.mark.parametrize("row", ["all -inf", "inf", "nan"])
def test_a_softmax_computed_again_has_eagers_nan(row: str) -> None:
    left = torch.randn(160, 1)
    left[3] = {"all -inf": -torch.inf, "inf": torch.inf, "nan": torch.nan}[row]
    checked(lambda *given: graph_attention(*given, torch.zeros(160, 160) > 0), left, left.flip(0), torch.randn(160, 8))
