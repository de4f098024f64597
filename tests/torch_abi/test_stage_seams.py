"""The seams that the trace and graph stages use, on whatever torch is installed."""

from __future__ import annotations

import ast
import operator
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import traceback
from torch.fx.experimental.proxy_tensor import make_fx

from armature.plugins import manager
from armature.torch_abi import (
    altering,
    aot,
    decomps,
    effects,
    fake,
    grad_modes,
    guard_tree,
    operators,
    partition,
    pytree,
    recorder,
    scripts,
    streams,
)

ROOT = Path(__file__).resolve().parents[2]
aten = torch.ops.aten


def graph_of(fn: Callable[..., Any]) -> fx.GraphModule:
    """A captured graph, by torch's own tracer: what the seam is given does not matter here."""
    module = fx.symbolic_trace(fn)
    for node in module.graph.nodes:
        if node.op == "output":
            node.args = ((node.args[0],),)
    module.recompile()
    return module


def test_kernels_that_read_numbers_by_themselves_are_told_from_those_that_refuse() -> None:
    world = fake.FakeWorld()
    x, places = world.of(torch.rand(5)), world.of(torch.tensor([1, 3]))
    with world.mode, pytest.raises(RuntimeError) as read:
        torch.tensor_split(x, places)
    with world.mode, pytest.raises(RuntimeError) as refused:
        torch.tensor_split(x, places.float())
    assert fake.reads_numbers(read.value)
    assert not fake.reads_numbers(refused.value)


def test_fakes_have_the_tensors_properties() -> None:
    world = fake.FakeWorld()
    real = torch.randn(3, 4, requires_grad=True)
    made = world.of(real)
    assert (made.shape, made.stride(), made.dtype, made.device) == (real.shape, real.stride(), real.dtype, real.device)
    assert made.requires_grad
    with world.mode:
        assert (made @ made.T).shape == (3, 3)


def test_fakes_of_tensors_that_share_memory_share_it() -> None:
    world = fake.FakeWorld()
    base = torch.randn(4, 4)
    one, other = world.of(base), world.of(base[1])
    assert one.untyped_storage()._cdata == other.untyped_storage()._cdata
    assert world.of(torch.randn(2)).untyped_storage()._cdata != one.untyped_storage()._cdata


def test_a_parameter_stays_one() -> None:
    assert isinstance(fake.FakeWorld().of(nn.Parameter(torch.ones(2))), nn.Parameter)


def test_versions_count_changes_in_place() -> None:
    tensor = torch.zeros(2)
    before = fake.version_of(tensor)
    tensor.add_(1)
    assert fake.version_of(tensor) == before + 1


def test_recording_gives_aten_operators_with_fakes() -> None:
    world = fake.FakeWorld()
    module = recorder.record(graph_of(lambda x: torch.relu(x) + 1), [world.of(torch.randn(3))], {})
    called = [n.target for n in module.graph.nodes if n.op == "call_function"]
    assert called == [aten.relu.default, aten.add.Tensor]
    assert all("val" in n.meta for n in module.graph.nodes if n.op == "call_function")


def test_recording_uses_the_decompositions_given() -> None:
    world = fake.FakeWorld()
    table = {aten.relu.default: lambda x: aten.clamp_min.default(x, 0)}
    module = recorder.record(graph_of(lambda x: torch.relu(x)), [world.of(torch.randn(3))], table)
    assert [n.target for n in module.graph.nodes if n.op == "call_function"] == [aten.clamp_min.default]


def test_torch_has_the_decompositions_asked_for() -> None:
    found = decomps.torch_decompositions([aten.silu_backward.default, aten.mm.default])
    assert aten.silu_backward.default in found
    x = torch.randn(5)
    assert torch.allclose(found[aten.silu_backward.default](x, x), aten.silu_backward.default(x, x))


def test_operators_below_their_decompositions() -> None:
    """torch decomposes this one at the key of autograd, which comes before the recorder."""

    def enlarged(x: torch.Tensor) -> torch.Tensor:
        return aten.upsample_bilinear2d.default(x, [4, 4], False)

    def kept(x: torch.Tensor) -> torch.Tensor:
        with decomps.undecomposed():
            return enlarged(x)

    def targets(program: Callable[[torch.Tensor], torch.Tensor]) -> list[object]:
        with fake.enable_python_dispatcher():
            graph = make_fx(program)(torch.randn(1, 1, 2, 2)).graph
        return [node.target for node in graph.nodes if node.op == "call_function"]

    assert aten.upsample_bilinear2d.default not in targets(enlarged)
    assert targets(kept) == [aten.upsample_bilinear2d.default]


def test_operators_by_name() -> None:
    assert decomps.overload("add.Tensor") is aten.add.Tensor
    assert decomps.overload("no_such_operator.Tensor") is None


def test_aot_gives_forward_and_backward_graphs() -> None:
    seen: dict[str, fx.GraphModule] = {}

    def keep(kind: str) -> Callable[..., Any]:
        def compile_graph(graph: fx.GraphModule, inputs: Any) -> Callable[..., Any]:
            seen[kind] = graph
            return lambda args: graph(*args)

        return compile_graph

    compilers = aot.Compilers(keep("forward"), keep("backward"), keep("inference"), partition.min_cut)
    world = fake.FakeWorld()
    x = torch.randn(3, requires_grad=True)
    run = aot.compile_functional(graph_of(lambda a: torch.sin(a) * 2), [world.of(x)], compilers, {})
    run(x)[0].sum().backward()
    assert x.grad is not None
    assert torch.allclose(x.grad, torch.cos(x) * 2)
    assert seen.keys() >= {"forward", "backward"}


def scaled_by_a_number() -> tuple[fx.GraphModule, list[Any]]:
    """A graph that reads a number, and fakes of its inputs."""
    graph = fx.Graph()
    x, number = graph.placeholder("x"), graph.placeholder("number")
    read = graph.call_method("item", (number,))
    graph.output((graph.call_function(torch.add, (x, x), {"alpha": read}),))
    world = fake.FakeWorld()
    world.symbols.take_numbers()
    module = fx.GraphModule({}, graph)
    return module, [world.of(torch.randn(3, requires_grad=True)), world.of(fake.tensor_of_number(0.5))]


def test_graphs_of_aot_read_numbers() -> None:
    """torch's own pass would replace them by tensors; and the derivative of a sum asks whether its factor is 1."""
    seen: dict[str, fx.GraphModule] = {}

    def keep(graph: fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        seen[str(len(seen))] = graph
        return lambda args: graph(*args)

    module, fakes = scaled_by_a_number()
    run = aot.compile_functional(module, fakes, aot.Compilers(keep, keep, keep, partition.min_cut), {})
    x = torch.ones(3, requires_grad=True)
    run(x, fake.tensor_of_number(0.25))[0].sum().backward()
    assert x.grad is not None and torch.equal(x.grad, torch.full((3,), 1.25))
    (read,) = seen["0"].graph.find_nodes(op="call_function", target=fake.NUMBER)
    assert isinstance(read.meta["val"], torch.SymFloat) and read.args[0].op == "placeholder"
    assert any(read in node.all_input_nodes for node in seen["0"].graph.nodes)


def test_recordings_read_numbers() -> None:
    module, fakes = scaled_by_a_number()
    with torch.no_grad():
        recorded = recorder.record(module, fakes, {})
    read, total = (node for node in recorded.graph.nodes if node.op == "call_function")
    assert read.target is fake.NUMBER and isinstance(read.meta["val"], torch.SymFloat)
    assert total.target is aten.add.Tensor and total.kwargs == {"alpha": read}


def test_switches_of_torchs_state() -> None:
    with torch.enable_grad():
        grad_modes.set_grad_enabled(False)
        assert not torch.is_grad_enabled()
    context = grad_modes.enter_autocast("cpu", torch.bfloat16, True, None)
    assert torch.is_autocast_enabled("cpu")
    grad_modes.exit_autocast(context)
    assert not torch.is_autocast_enabled("cpu")
    context = grad_modes.enter_inference(True)
    assert torch.is_inference_mode_enabled()
    grad_modes.exit_inference(context)
    assert not torch.is_inference_mode_enabled()
    with pytest.raises(TypeError):
        grad_modes.set_default_dtype(torch.int32)
    assert grad_modes.with_default_dtype(torch.float64, torch.ones)(2).dtype is torch.float64
    with pytest.raises(RuntimeError):
        grad_modes.with_default_dtype(torch.float64, torch.ones)(-1)
    assert torch.get_default_dtype() is torch.float32


def test_what_torchs_passes_note_of_nodes_is_set_back() -> None:
    from_before = traceback.current_meta
    with grad_modes.switches_set_back():
        assert traceback.current_meta == from_before and traceback.current_meta is not from_before
        traceback.current_meta["noted"] = 1
        with traceback.preserve_node_meta():
            pass
    assert traceback.current_meta is from_before and "noted" not in from_before


CHANGES = {
    grad_modes.GRAD_MODE: lambda: torch._C._set_grad_enabled(False),
    grad_modes.FORWARD_MODE: lambda: torch._C._set_fwd_grad_enabled(False),
    grad_modes.IN_PLACE: lambda: grad_modes.LEVELS.set_inplace_requires_grad_allowed(True),
    grad_modes.TRANSFORMS: lambda: [grad_modes.LEVELS._grad_increment_nesting() for _ in range(2)],
    grad_modes.DUAL_LEVEL: torch._C._enter_dual_level,
}


@pytest.mark.parametrize("switch", dict.fromkeys(grad_modes.CHANGED_BY.values()))
def test_switches_are_set_back(switch: grad_modes.Switch) -> None:
    before = switch.read()
    CHANGES[switch]()
    assert switch.read() != before
    switch.restore(before)
    assert switch.read() == before
    switch.restore(before)
    assert switch.read() == before


def test_levels_of_transforms_are_left_one_by_one() -> None:
    levels = grad_modes.LEVELS
    kinds = [key.name for key in levels.TransformType.__members__.values()]
    assert grad_modes.LEAVE_LEVEL.keys() | {"Torch"} == {*kinds}  # Torch: no level
    levels._grad_increment_nesting()
    levels._jvp_increment_nesting()
    levels._vmap_increment_nesting(2, "error")
    for depth in (2, 1, 0):
        grad_modes.leave_transforms(depth)
        assert levels.get_dynamic_layer_stack_depth() == depth
    assert levels.peek_interpreter_stack() is None and torch.ones(2).add(1).tolist() == [2, 2]


def test_versions_are_set() -> None:
    tensors = [torch.ones(2).add_(1), torch.ones(2)]
    with torch.inference_mode():
        tensors.append(torch.ones(2))
    fake.set_versions(tensors, [5, 0, 3])
    assert [fake.version_of(tensor) for tensor in tensors] == [5, 0, 0]


def test_streams_need_cuda() -> None:
    if torch.cuda.is_available():
        assert streams.raw_stream_getter()(0) == torch.cuda.current_stream(0).cuda_stream
    elif not hasattr(torch._C, "_cuda_getCurrentRawStream"):
        with pytest.raises(RuntimeError, match="without CUDA"):
            streams.raw_stream_getter()
    else:
        assert callable(streams.raw_stream_getter())


def test_trees_come_back_as_they_were() -> None:
    tree = ({"a": [1, 2]}, (3,))
    leaves, spec = pytree.tree_flatten(tree)
    assert leaves == [1, 2, 3] == pytree.tree_leaves(tree)
    assert pytree.tree_unflatten(leaves, spec) == tree
    assert pytree.tree_map(lambda v: v + 1, tree) == ({"a": [2, 3]}, (4,))


def test_every_seam_has_a_contract_test() -> None:
    seams = {p.stem for p in (ROOT / "core" / "torch_abi").glob("*.py")} - {"__init__"}
    tested: set[str] = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "armature.torch_abi":
                tested |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("armature.torch_abi."):
                tested.add(str(node.module).rsplit(".", 1)[1])
    assert seams <= tested


def test_the_level_of_forward_mode() -> None:
    assert guard_tree.forward_level() == -1
    root = guard_tree.new_root()
    guard_tree.global_state(root, ["state"])
    assert root.check({})
    with torch.autograd.forward_ad.dual_level() as level:
        assert guard_tree.forward_level() == level == 0
        assert not root.check({})
    assert root.check({})


def test_inside_of_a_transform() -> None:
    assert not fake.in_transform()
    seen = []

    def f(x: torch.Tensor) -> torch.Tensor:
        seen.append((fake.in_transform(), fake.of_transform(x), fake.is_wrapped(x)))
        return x.sum()

    torch.func.grad(f)(torch.ones(2))
    assert seen == [(True, True, True)]
    assert not fake.of_transform(torch.ones(2))
    assert not fake.in_transform()


def test_a_fake_world_notices_random_numbers() -> None:
    world = fake.FakeWorld()
    with world.mode:
        torch.ones(2) + 1
        torch.nn.functional.dropout(torch.ones(2), training=False)
        assert not world.random
        torch.nn.functional.dropout(torch.ones(2))
    assert world.random
    assert not world.afresh().random


def test_quantized_tensors_have_no_fakes() -> None:
    """Those of `quantize_per_tensor` would be floats."""
    world = fake.FakeWorld(rules=manager().tables().fake_rules)
    scale, zero = torch.tensor(0.1), torch.tensor(0)
    for given in ((0.1, 0), (scale, zero)):
        with world.mode, pytest.raises(fake.UNSUPPORTED_OPERATOR):
            torch.quantize_per_tensor(
                torch.ones(2), *[world.of(x) if x is scale or x is zero else x for x in given], torch.qint8
            )


@pytest.mark.filterwarnings("ignore:torch.tensor results are registered")
def test_functions_in_torchscript_are_called_with_fakes_and_their_own_constants() -> None:
    world = fake.FakeWorld()
    traced = torch.jit.trace(lambda x: x * x.shape[0] + torch.tensor([1.0, 2.0, 3.0]), torch.ones(3))
    with world.mode:
        assert scripts.call_with_constants(traced, torch.ones(3)).shape == (3,)


def test_effects_are_plain_calls_in_the_order_of_the_graph() -> None:
    effect, make, sink = torch.ops.higher_order.with_effects, torch.ops.prims._make_token, torch.ops.prims._sink_tokens
    graph = fx.Graph()
    info = graph.placeholder("info")
    checked = graph.call_function(
        effect,
        (graph.call_function(make.default), torch.ops.aten._linalg_check_errors.default, info, "inv"),
        {"is_matrix": True},
    )
    checked.meta["val"] = (None, None)
    graph.call_function(sink.default, ([graph.call_function(operator.getitem, (checked, 0))],))
    graph.output((info,))
    module = fx.GraphModule({}, graph)
    aot.without_tokens(module)
    called = [node.target for node in graph.nodes if node.op == "call_function"]
    assert called == [torch.ops.aten._linalg_check_errors.default]
    module.recompile()
    with pytest.raises(torch.linalg.LinAlgError, match="inv"):
        module(torch.tensor(1, dtype=torch.int32))


def test_a_check_stays_where_gradients_are_recorded() -> None:
    seen: list[Any] = []

    def keep(module: fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        seen.extend(node.target for node in module.graph.nodes)
        return lambda given: module(*given)

    def checked(x: torch.Tensor) -> torch.Tensor:
        effects.CHECK(x.sum() > 0, "positive")
        return x * x

    x = torch.ones(3, requires_grad=True)
    with fake.FakeWorld().mode as mode:
        fakes = [mode.from_tensor(x)]
    aot.compile_functional(graph_of(checked), fakes, aot.Compilers(keep, keep, keep, partition.min_cut), {})
    assert effects.CHECK in seen


def test_equal_values_are_computed_once_but_each_number_is_drawn() -> None:
    with fake.FakeWorld().mode as mode:
        fakes = [mode.from_tensor(torch.ones(3, requires_grad=True))]
    kept: list[list[str]] = []

    def keep(graph: fx.GraphModule, _: Any) -> Callable[..., Any]:
        kept.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    def draws(x: torch.Tensor) -> torch.Tensor:
        first, second = (torch.empty_like(x.detach()).exponential_() for _ in range(2))
        return (x.sin() * first).exp() + (x.sin() * second).cos()

    aot.compile_functional(graph_of(draws), fakes, aot.Compilers(keep, keep, keep, partition.min_cut), {})
    forward = kept[0]
    assert forward.count("aten.exponential.default") == 2 and forward.count("aten.sin.default") == 1


def test_numbers_that_nothing_reads_are_drawn_in_forward() -> None:
    with fake.FakeWorld().mode as mode:
        fakes = [mode.from_tensor(torch.ones(3, requires_grad=True))]
    kept: dict[str, list[str]] = {}

    def keep(kind: str) -> Callable[..., Any]:
        def compile_graph(graph: fx.GraphModule, _: Any) -> Callable[..., Any]:
            kept[kind] = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
            return lambda args: graph.forward(*args)

        return compile_graph

    def draws(x: torch.Tensor) -> torch.Tensor:
        torch.rand_like(x)
        x = x.sin()
        torch.randn_like(x).lt(0)
        return x * torch.rand_like(x)

    compilers = aot.Compilers(keep("forward"), keep("backward"), keep("inference"), partition.min_cut)
    run = aot.compile_functional(graph_of(draws), fakes, compilers, {})
    torch.manual_seed(0)
    (found,) = run(torch.ones(3, requires_grad=True))
    torch.manual_seed(0)
    assert torch.equal(found, draws(torch.ones(3)))
    found.sum().backward()
    drawn = [name for name in kept["forward"] if "rand" in name]
    assert drawn == ["aten.rand_like.default", "aten.randn_like.default", "aten.rand_like.default"]
    assert not any("rand" in name for name in kept["backward"])


def test_which_values_of_a_joint_graph_are_equal() -> None:
    aten, graph = torch.ops.aten, fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.ones(3)

    def call(target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        node = graph.call_function(target, args, kwargs)
        node.meta["val"] = torch.ones(3)
        return node

    first = [call(aten.add.Tensor, x, number) for number in (1, 1.0, True, 0.0, -0.0)]
    again = [call(aten.add.Tensor, x, number) for number in (1, 1.0, True, 0.0, -0.0)]
    sizes = [call(aten.sum.dim_IntList, x, dims, keepdim=kept) for dims in ([0], [1]) for kept in (True, False)]
    empty = [call(aten.empty.memory_format, [3]) for _ in range(2)]
    read = [call(aten.sin.default, x), call(aten.sin.default, x)]
    call(aten.copy_.default, x, read[0])
    read.append(call(aten.sin.default, x))
    returned = [call(aten.cos.default, x) for _ in range(2)]
    used = [*first, *again, *sizes, *empty, *read]
    whole = call(aten.cat.default, list(used))
    graph.output((whole, *returned))
    joint = fx.GraphModule({}, graph)
    partition._share_equal_values(joint)
    values = whole.args[0]
    assert values == [*first, *first, *sizes, *empty, read[0], read[0], read[2]]
    assert graph.output_node().args[0] == (whole, *returned)
    assert not set(graph.nodes) & {*again, read[1]}


def test_training_does_without_torchs_compiler() -> None:
    lines = (
        "import sys, torch, armature",
        "model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.LayerNorm(4))",
        "armature.compile(model)(torch.ones(2, 3)).sum().backward()",
        "heavy = ('lowering', 'scheduler', 'pattern_matcher')",
        "print([name for name in heavy if f'torch._inductor.{name}' in sys.modules])",
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_counted_write_is_a_write() -> None:
    with fake.FakeWorld().mode:
        known = torch.tensor([3.0])
        part = known[:1]
        assert known.item() == 3.0
        fake.count_write(part)
        assert fake.version_of(known) == fake.version_of(part) == 1
        with pytest.raises(fake.DATA_DEPENDENT):
            known.item()
        with torch.inference_mode():
            fake.count_write(torch.zeros(2))


def test_operators_of_kernels_and_what_operators_write() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> None:
        y.copy_(x)

    made = torch.library.triton_op(
        "armature_test::written", fn, mutates_args=("y",), schema="(Tensor x, Tensor(a!) y) -> ()"
    )
    target = torch.ops.armature_test.written.default
    assert made is not None and operators.is_kernel_operator(target) and not operators.is_kernel_operator(fn)
    assert not operators.is_kernel_operator(aten.copy_.default)
    assert operators.written_positions(target) == {1} and operators.written_positions(aten.copy_.default) == {0}
    assert operators.written_positions(aten.add.Tensor) == frozenset()


def test_forward_modes_zeros_get_memory() -> None:
    zeros = torch._efficientzerotensor((2, 3)).t()
    assert altering.is_zero_tensor(zeros)
    assert not altering.is_zero_tensor(torch.zeros(2))
    graph = fx.Graph()
    graph.output((graph.get_attr("held"),))
    module = fx.GraphModule({"held": zeros}, graph)
    with FakeTensorMode():
        aot.give_memory(module)
    assert type(module.held) is torch.Tensor
    assert module.held.stride() == zeros.stride()
    assert module.held.untyped_storage().data_ptr()
    assert torch.equal(module.held, torch.zeros(3, 2))


def test_devices_with_autocast_are_those_that_torch_names() -> None:
    assert {"cpu", "cuda"} <= set(grad_modes.AUTOCAST_DEVICES)
    for kind in grad_modes.AUTOCAST_DEVICES:
        with torch.autocast(kind, torch.get_autocast_dtype(kind), enabled=False):
            assert not torch.is_autocast_enabled(kind)
    found = [torch._C._dispatch_key_for_device(kind) for kind in ("cpu", "cuda")]
    assert all(hasattr(torch._C.DispatchKey, f"Autocast{name}") for name in found)


def test_code_of_graphs_is_written_when_they_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[fx.Graph] = []
    write = fx.Graph.python_code

    def counted(graph: fx.Graph, *args: Any, **kwargs: Any) -> Any:
        written.append(graph)
        return write(graph, *args, **kwargs)

    monkeypatch.setattr(fx.Graph, "python_code", counted)
    x = torch.rand(3)
    with aot.code_when_called():
        traced = make_fx(lambda x: x.sin() + 1)(x)
    traced.recompile()
    assert not written
    assert torch.equal(traced(x), x.sin() + 1)
    assert written == [traced.graph]
    make_fx(lambda x: x.cos())(x)
    assert len(written) > 1


def test_code_of_a_graph_to_be_compiled_is_that_of_before_it_was_changed() -> None:
    x = torch.rand(3)
    with aot.code_when_called():
        traced, other = (make_fx(lambda x: x.sin() + 1)(x) for _ in range(2))
    aot.write_code(traced)
    for module in (traced, other):
        for node in module.graph.find_nodes(op="call_function", target=aten.sin.default):
            node.target = aten.cos.default
    assert torch.equal(traced(x), x.sin() + 1)
    assert torch.equal(other(x), x.cos() + 1)
    traced.recompile()
    assert torch.equal(traced(x), x.cos() + 1)
