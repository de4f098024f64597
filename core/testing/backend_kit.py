"""Conformance of a device back end: tests that a vendor's suite inherits by subclassing.

    class TestMyBackend(BackendConformance):
        device = "mydev"

        def make_backend(self) -> DeviceBackend:
            return MyBackend()

with `from armature.testing.backend_kit import compile_context as compile_context` in its conftest.py. Every case of
`kernel_cases`, `kernel_shapes` and `kernel_accesses` is built, run on the device and compared with the reference of
`kernel_reference`. Cases of one group are built as one source. Cases that `features` does not cover are skipped.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import pytest
import torch
from torch import Tensor

from armature import config
from armature.codegen.backend import DeviceBackend
from armature.context import CompileContext
from armature.errors import invariant
from armature.lower.float8 import FORMATS
from armature.plugins import manager
from armature.run.cache import Cache
from armature.run.workers import Workers
from armature.schedule.data import Kernel, KernelPlan, Launch
from armature.testing.kernel_accesses import ACCESS_CASES
from armature.testing.kernel_cases import OPERATION_CASES, Case, Sketch, Skip
from armature.testing.kernel_reference import run_reference
from armature.testing.kernel_shapes import SHAPE_CASES

CASES: tuple[Case, ...] = (*OPERATION_CASES, *SHAPE_CASES, *ACCESS_CASES)
GROUPS: tuple[str, ...] = tuple(dict.fromkeys(case.group for case in CASES))
ACCURACY: Mapping[torch.dtype, float] = {
    torch.float64: 1e-12,
    torch.float32: 4e-6,
    torch.float16: 2e-3,
    torch.bfloat16: 1e-2,
}


def kernel_of(sketch: Sketch) -> Kernel:
    """The finished kernel of a case."""
    if sketch.kernel is None:
        raise TypeError(f"case {sketch.name} was not finished")
    return sketch.kernel


def plan_of(sketches: Sequence[Sketch]) -> KernelPlan:
    """A plan whose steps are the cases' kernels; clashing buffer names get the case's name as a prefix."""
    kernels = tuple(kernel_of(s) for s in sketches)
    buffers = {name: b for s in sketches for name, b in s.buffers.items()}
    return KernelPlan("conformance", (), {}, buffers, tuple(Launch(k) for k in kernels), (), {})


def with_own_names(sketch: Sketch) -> Sketch:
    """The case with its buffers renamed to `case_buffer`, so that many cases fit in one plan."""
    kernel = kernel_of(sketch)
    renamed = rename_buffers(kernel, {name: f"{sketch.name}_{name}" for name in sketch.buffers})
    return attrs.evolve(
        sketch,
        kernel=renamed,
        buffers={f"{sketch.name}_{n}": attrs.evolve(b, name=f"{sketch.name}_{n}") for n, b in sketch.buffers.items()},
        memory={f"{sketch.name}_{n}": m for n, m in sketch.memory.items()},
        tolerance={f"{sketch.name}_{n}": t for n, t in sketch.tolerance.items()},
    )


def rename_buffers(kernel: Kernel, names: Mapping[str, str]) -> Kernel:
    """The kernel with buffers renamed."""
    renamer = _Renamer(names)
    passes = tuple(
        attrs.evolve(
            step,
            reductions=tuple(renamer.node(r) for r in step.reductions),
            inner_stores=tuple(renamer.node(s) for s in step.inner_stores),
            outer_stores=tuple(renamer.node(s) for s in step.outer_stores),
        )
        for step in kernel.passes
    )
    return attrs.evolve(
        kernel,
        passes=passes,
        reads=tuple(names[n] for n in kernel.reads),
        writes=tuple(names[n] for n in kernel.writes),
        sums=tuple(names[n] for n in kernel.sums),
    )


class _Renamer:
    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names
        self.done: dict[object, Any] = {}

    def node(self, node: Any) -> Any:
        if node not in self.done:
            changes: dict[str, Any] = {}
            for field in ("value", "cond"):
                inner = getattr(node, field, None)
                if attrs.has(type(inner)):
                    changes[field] = self.node(inner)
            if hasattr(node, "args"):
                changes["args"] = tuple(self.node(a) for a in node.args)
            if hasattr(node, "indirect"):
                changes["indirect"] = tuple((v, self.node(n)) for v, n in node.indirect)
            if hasattr(node, "buffer"):
                changes["buffer"] = self.names[node.buffer]
            self.done[node] = attrs.evolve(node, **changes) if changes else node
        return self.done[node]


def accuracy(sketch: Sketch, name: str, dtype: torch.dtype) -> float:
    """Allowed error of a buffer, relative to max(1, |reference|)."""
    own = sketch.tolerance.get(name, 0.0) if dtype == torch.float32 else 0.0
    return max(own, ACCURACY.get(dtype, 0.0))


def check_buffer(sketch: Sketch, name: str, found: Tensor, expected: Tensor) -> None:
    """Compare one written buffer with the reference. Errors: AssertionError naming the buffer and the worst element."""
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if found.dtype in FORMATS:
        found, expected = found.view(torch.uint8), expected.view(torch.uint8)
    limit = accuracy(sketch, name, found.dtype)
    if limit == 0.0:
        bad = (found != expected).nonzero().flatten()
    else:
        a, b = expected.double(), found.double()
        same = (a == b) | (a.isnan() & b.isnan())
        gap = torch.where(same, 0.0, (a - b).abs() / a.abs().clamp(min=1.0))
        bad = ((gap > limit) | gap.isnan()).nonzero().flatten()
    if bad.numel():
        at = int(bad[0])
        raise AssertionError(
            f"{name}: {bad.numel()} of {expected.numel()} elements differ; element {at}: "
            f"reference {expected[at].item()!r}, kernel {found[at].item()!r}"
        )


def run_case(sketch: Sketch, launch: Callable[..., None], device: torch.device) -> None:
    """Run a built case and compare everything it wrote with the reference, or expect the same error in both."""
    kernel = kernel_of(sketch)
    ours = {name: flat.clone() for name, flat in sketch.memory.items()}
    theirs = {name: flat.clone() for name, flat in sketch.memory.items()}
    arguments = [ours[n] for n in (*kernel.reads, *kernel.writes)] + [sketch.sizes[s.name] for s in kernel.sizes]
    if sketch.raises is not None:
        with pytest.raises(sketch.raises):
            run_reference(kernel, sketch.buffers, theirs, sketch.sizes)
        with pytest.raises(sketch.raises):
            launch(*arguments)
        return
    run_reference(kernel, sketch.buffers, theirs, sketch.sizes)
    launch(*arguments)
    for name in kernel.writes:
        check_buffer(sketch, name, ours[name].to("cpu"), theirs[name].to("cpu"))
    for name in kernel.reads:
        assert torch.equal(ours[name].view(torch.uint8), theirs[name].view(torch.uint8)), f"{name} was changed"


@attrs.define(eq=False)
class BuiltGroup:
    """The built cases of a group that the back end supports."""

    sketches: dict[str, Sketch]
    launches: Mapping[str, Callable[..., None]]


def build_group(backend: DeviceBackend, group: str, device: torch.device, ctx: CompileContext) -> BuiltGroup:
    """Build every case of the group that the features support as one source."""
    sketches: dict[str, Sketch] = {}
    for case in CASES:
        if case.group == group:
            try:
                sketches[case.name] = with_own_names(case.make(device, backend.features))
            except Skip:
                continue
    if not sketches:
        return BuiltGroup({}, {})
    plan = plan_of(list(sketches.values()))
    source = backend.generate(plan.kernels, plan, ctx)
    again = backend.generate(plan.kernels, plan, ctx)
    invariant(source.text == again.text, "the same kernels gave two texts", backend=backend.name)
    for kernel in plan.kernels:
        expected = kernel.arguments
        invariant(source.kernels[kernel.name] == expected, "arguments differ", kernel=kernel.name, expected=expected)
    return BuiltGroup(sketches, backend.build(source, ctx))


built_groups: weakref.WeakKeyDictionary[type, dict[str, BuiltGroup]] = weakref.WeakKeyDictionary()
"""The groups that a test class has built so far: compiling a group takes longer than running it."""


@pytest.fixture(scope="class")
def compile_context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompileContext]:
    """The context for back ends: the settings, the plugins, and an empty cache. A suite imports it into its
    conftest.py, or has a fixture of its own by this name."""
    workers = Workers(1)
    yield CompileContext(config.current(), manager().tables(), Cache(tmp_path_factory.mktemp("kernels")), workers, 0)


class BackendConformance:
    """Subclass it with `device` and `make_backend`; the suite has a class-scoped fixture `compile_context`."""

    device: str = "cpu"

    def make_backend(self) -> DeviceBackend:
        """The back end under test."""
        raise NotImplementedError

    @pytest.fixture
    def built(self, compile_context: CompileContext) -> Callable[[str], BuiltGroup]:
        """Builds each group once per class, when its first case runs."""
        groups = built_groups.setdefault(type(self), {})

        def get(group: str) -> BuiltGroup:
            if group not in groups:
                groups[group] = build_group(self.make_backend(), group, torch.device(self.device), compile_context)
            return groups[group]

        return get

    @pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
    def test_kernel_computes_the_reference(self, case: Case, built: Callable[[str], BuiltGroup]) -> None:
        group = built(case.group)
        if case.name not in group.sketches:
            pytest.skip(f"features of {self.make_backend().name} do not cover it")
        sketch = group.sketches[case.name]
        run_case(sketch, group.launches[kernel_of(sketch).name], torch.device(self.device))

    def test_nothing_is_missing_here(self) -> None:
        missing = self.make_backend().missing()
        assert missing is None, missing

    def test_features_use_known_names(self) -> None:
        features = self.make_backend().features
        assert features.ops and features.reductions and torch.float32 in features.dtypes
