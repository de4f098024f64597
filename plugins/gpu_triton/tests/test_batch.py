"""Batches of kernels: one Triton function for all members, which finds its member from the program's number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

import armature
from armature.backend_api import GroupSpec
from armature.codegen.data import KernelSource
from armature.context import CompileContext
from armature.lower.data import Buffer, BufferKind, ExternCall, Load, Node, Op, Store
from armature.lower.index import Var, contiguous_strides
from armature.pipeline.session import session
from armature.schedule.data import Batch, Kernel, KernelPlan, Launch, Pass
from armature.testing.differential import difference
from armature.testing.lowering_kit import context
from armature_gpu_triton import launch, toolchain
from armature_gpu_triton.backend import TritonBackend
from armature_gpu_triton.spec import MOST_ARGUMENTS

F32 = torch.float32


def batch_of(sizes: Sequence[int], device: str = "cpu", aligned: bool = True) -> tuple[Batch, KernelPlan]:
    """y_k = x_k * scales[k], and x_k = x_k + y_k in place."""
    where = torch.device(device)
    buffers: dict[str, Buffer] = {}
    kernels: list[Kernel] = []

    def buffer(name: str, *shape: int) -> None:
        buffers[name] = Buffer(name, F32, where, shape, contiguous_strides(shape), BufferKind.INPUT)

    buffer("scales", len(sizes))
    for k, size in enumerate(sizes):
        buffer(f"x{k}", size)
        buffer(f"y{k}", size)
        i = Var("i", size)
        x: Node = Load(f"x{k}", (i,), F32)
        scaled = Op("mul", (x, Load("scales", (k,), F32)), F32)
        total = Op("add", (x, scaled), F32)
        step = Pass((), (), (Store(f"y{k}", (i,), scaled), Store(f"x{k}", (i,), total)))
        kernels.append(Kernel(f"scale_{k}", where, (i,), (), (step,), ("scales",), (f"y{k}", f"x{k}")))
    batch = Batch.of(kernels)
    return batch, KernelPlan("batch", (), {}, buffers, (Launch(batch),), (), {})


def source_of(sizes: Sequence[int], device: str = "cpu") -> KernelSource:
    batch, plan = batch_of(sizes, device)
    return TritonBackend(interpret=True).generate([batch], plan, context(()))


@pytest.mark.parametrize(
    "sizes", [(5, 5), (3000, 7, 1024, 1, 2048), (2048, 1024), (512, 16, 5000), (300_000, 32, 20, 4096)], ids=str
)
def test_values_in_the_interpreter(sizes: tuple[int, ...], compile_context: CompileContext) -> None:
    backend = TritonBackend(interpret=True)
    batch, plan = batch_of(sizes)
    run = backend.build(backend.generate([batch], plan, compile_context), compile_context)[batch.name]
    memory = {name: torch.randn(buffer.shape) for name, buffer in plan.buffers.items()}
    before = {name: value.clone() for name, value in memory.items()}
    run(*(memory[name] for name in batch.arguments))
    for k in range(len(sizes)):
        scaled = before[f"x{k}"] * before["scales"][k]
        torch.testing.assert_close(memory[f"y{k}"], scaled)
        torch.testing.assert_close(memory[f"x{k}"], before[f"x{k}"] + scaled)
    assert torch.equal(memory["scales"], before["scales"])


def groups_of(source: KernelSource) -> list[GroupSpec]:
    return list(source.meta["groups"])  # type: ignore[call-overload]


def test_members_masked_alike_share_a_function() -> None:
    """One tensor of odd size must not keep the others from wide accesses and from having no mask."""
    (group,) = groups_of(source_of([1 << 20, 1 << 19, 300_000, 7, 4096]))
    assert [len(part.arguments) for part in group.parts] == [7, 3, 3]
    (small,) = groups_of(source_of([1 << 20, 80, 7, 96]))
    assert len(small.parts) == 2
    text = source_of([1 << 20, 80, 7, 96]).text
    assert text.count("x_in = x < points") == 1 and text.count("tl.store(") == 4


def test_the_text_grows_with_members_and_not_with_what_they_do() -> None:
    few, many = (source_of([1024] * n).text for n in (2, 40))
    assert few.count("tl.store(") == many.count("tl.store(") == 2
    depth = max(len(line) - len(line.lstrip()) for line in many.splitlines() if "first = " in line)
    assert depth <= 4 * 8  # a search by halves


def test_no_batch_has_more_arguments_than_a_launch_takes() -> None:
    text = launch.SOURCE.read_text()
    found = re.search(r"#define MAX_ARGS (\d+)", text)
    assert found is not None and int(found[1]) >= MOST_ARGUMENTS


@pytest.mark.parametrize("capability", [80, 90])
def test_machine_code(capability: int, tmp_path: Path) -> None:
    source = source_of([1 << 20, 1024, 1 << 18, 1000, 7, 1 << 19], "cuda")
    path = tmp_path / "batch.py"
    path.write_text(source.text)
    functions = toolchain.functions_of(source.text, path)
    specs = launch.specs_of(groups_of(source))
    assert len(specs) == 2
    for spec in specs:
        for variant in (spec, spec.unaligned()):
            built = toolchain.compile_function(functions[spec.name], variant, capability)
            assert built.cubin.startswith(b"\x7fELF") and built.shared == 0


STEPS = ("SGD", "Adam", "AdamW", "RMSprop", "Adadelta", "NAdam", "RAdam", "Adamax", "Adagrad", "ASGD", "Rprop")


@pytest.mark.parametrize(
    ("name", "foreach"), [*((name, True) for name in STEPS), *((name, False) for name in ("SGD", "Adam", "RMSprop"))]
)
@pytest.mark.filterwarnings("ignore:(divide by zero|invalid value) encountered")
def test_steps_of_optimizers(name: str, foreach: bool, interpreted: None) -> None:
    def run(compiled: bool) -> list[Tensor]:
        torch.manual_seed(0)
        parameters = [torch.randn(*shape).requires_grad_() for shape in ((40, 30), (7,), (1024,), (33, 64), (3, 5))]
        optimizer = getattr(torch.optim, name)(parameters, lr=0.01, foreach=foreach)
        step = armature.compile(optimizer.step) if compiled else optimizer.step
        for _ in range(3):
            for parameter in parameters:
                parameter.grad = torch.randn_like(parameter)
            step()
        return [p.detach() for p in parameters]

    assert difference(run(False), run(True)) <= 2e-6
    plan = session().compilations[-1].graphs[-1].plan
    batches = [work for work in plan.launches if isinstance(work, Batch)]
    assert batches and max(len(b.members) for b in batches) == 5 and len(plan.launches) <= 4
    assert not any(isinstance(step, ExternCall) for step in plan.steps)


@pytest.mark.gpu
@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_a_step_over_36_tensors_of_a_gpu_is_one_launch_there(name: str, foreach: bool, all_plugins: None) -> None:
    """What eager mode holds on the CPU, counts of steps, comes in one copy."""
    armature.reset()

    def run(compiled: bool) -> list[Tensor]:
        torch.manual_seed(0)
        shapes = ((256, 256), (256,), (1024, 64))
        parameters = [torch.randn(*shapes[k % 3], device="cuda").requires_grad_() for k in range(36)]
        optimizer = getattr(torch.optim, name)(parameters, lr=0.01, foreach=foreach)
        step = optimizer.step
        for number in range(4):
            for parameter in parameters:
                parameter.grad = torch.randn_like(parameter)
            step()
            if compiled and number == 0:  # with state that eager mode has made
                step = armature.compile(optimizer.step)
        return [p.detach() for p in parameters]

    assert difference(run(False), run(True)) <= 1e-5
    plan = session().compilations[-1].graphs[-1].plan
    assert [work.device.type for work in plan.launches].count("cuda") == 1
    assert sum(isinstance(step, ExternCall) for step in plan.steps) <= 1


def turned(*given: Tensor) -> list[Tensor]:
    """Each laid out anew, as the weights of convolutions are for images with channels last."""
    return [x.movedim(1, -1).contiguous() for x in given]


SHAPES = ((5, 70, 40), (6, 70, 3, 3), (3, 64, 9))  # the tiles of their kernels have two dimensions


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_transposes_of_several_tensors(shape: tuple[int, ...], interpreted: None, tmp_path: Path) -> None:
    given = [torch.randn(shape) for _ in range(3)]
    armature.reset()
    found = armature.compile(turned, fullgraph=True)(*given)
    assert difference(turned(*given), found) == 0
    (source,) = session().kernel_sources()
    assert len(source.kernels) == 1 and "RBLOCK" in source.text and "first = " in source.text
    path = tmp_path / "kernels.py"
    path.write_text(source.text)
    functions = toolchain.functions_of(source.text, path)
    for spec in launch.specs_of(source.meta["groups"]):
        assert toolchain.compile_function(functions[spec.name], spec, 90).cubin.startswith(b"\x7fELF")


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_transposes_of_several_tensors_on_a_gpu(shape: tuple[int, ...], all_plugins: None) -> None:
    given = [torch.randn(shape, device="cuda") for _ in range(3)]
    armature.reset()
    assert difference(turned(*given), armature.compile(turned, fullgraph=True)(*given)) == 0
