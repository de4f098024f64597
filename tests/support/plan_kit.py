"""Runs a KernelPlan with plain torch operations: what a plan means, with no back end, to compare schedules by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import torch
from torch import Tensor

from armature.codegen.data import KernelSource
from armature.lower.data import Argument, Buffer, ExternCall, View
from armature.lower.features import Features
from armature.lower.index import FloorDiv, Index, Mod, Product, Size, Sum, Var, computed, substitute
from armature.lower.sharing import shared_memory
from armature.schedule.data import Allocate, Batch, Kernel, KernelPlan, Launch, Release, Work
from armature.schedule.show import show_kernel
from armature.testing.kernel_reference import run_reference
from armature.testing.lowering_kit import ReferenceBackend

if TYPE_CHECKING:
    from armature.context import CompileContext

_INDEX = (Var, Size, Sum, Product, FloorDiv, Mod)


def run_plan(plan: KernelPlan, args: Sequence[object]) -> tuple[object, ...]:
    """The plan's outputs for the inputs; inputs that it mutates are changed.

    Memory is given and taken exactly as the plan says, and what was released is overwritten, so that a wrong plan gives
    wrong numbers. Errors: KeyError for memory that is not there.
    """
    return _Run(plan, list(args)).run()


@attrs.define(eq=False)
class _Run:
    plan: KernelPlan
    args: list[object]
    memory: dict[str, Tensor] = attrs.field(factory=dict)
    sizes: dict[Size, int] = attrs.field(factory=dict)

    def run(self) -> tuple[object, ...]:
        for name, value in zip(self.plan.inputs, self.args, strict=True):
            if isinstance(value, Tensor):
                self.memory[name] = value.detach()
        for size, read in self.plan.sizes.items():
            self.sizes[size] = read.value(self.args[read.position])
        self.memory.update(self.plan.constants)
        shared = shared_memory(self.plan.steps)
        for step in self.plan.steps:
            if isinstance(step, Allocate):
                self.allocate(step)
            elif isinstance(step, Release):
                gone = self.memory.pop(step.buffer)
                mine = step.buffer not in self.plan.inputs and step.buffer not in shared
                if mine and not self.taken(step.buffer):
                    gone.fill_(float("nan") if gone.dtype.is_floating_point else 1)
                elif self.taken(step.buffer):
                    self.memory[step.buffer] = gone
            elif isinstance(step, Launch):
                self.launch(step)
            else:
                self.extern(step)
        return tuple(self.argument(o) for o in self.plan.outputs)

    def taken(self, name: str) -> bool:
        """Whether a later buffer takes over this one's memory."""
        return any(isinstance(s, Allocate) and s.reuse == name for s in self.plan.steps)

    def number(self, value: Index) -> int:
        """Value of an index without loop variables."""
        if isinstance(value, int):
            return value
        if isinstance(value, Size):
            return computed(value, self.sizes) if value.definition else self.sizes[value]
        found = substitute(value, {})
        if isinstance(found, Sum):
            return found.const + sum(self.number(f) * c for f, c in found.terms)
        if isinstance(found, Product):
            out = 1
            for factor in found.factors:
                out *= self.number(factor)
            return out
        if isinstance(found, FloorDiv):
            return self.number(found.num) // self.number(found.den)
        if isinstance(found, Mod):
            return self.number(found.num) % self.number(found.den)
        raise ValueError(f"not a number: {value}")

    def numbers(self, values: Sequence[Index]) -> tuple[int, ...]:
        return tuple(self.number(v) for v in values)

    def allocate(self, step: Allocate) -> None:
        buffer = self.plan.buffers[step.buffer]
        shape, strides = self.numbers(buffer.shape), self.numbers(buffer.strides)
        if step.over is not None:
            self.memory[step.buffer] = self.memory[step.over].as_strided(shape, strides)
        elif step.reuse is None:
            made = torch.empty_strided(shape, strides, dtype=buffer.dtype, device=buffer.device)
            self.memory[step.buffer] = made.fill_(float("nan") if made.dtype.is_floating_point else 1)
        else:
            old = self.memory.pop(step.reuse)
            self.memory[step.buffer] = old.as_strided(shape, strides)

    def launch(self, step: Launch) -> None:
        for kernel in _one_by_one(step.kernel):
            flat = {name: _flat(self.memory[name]) for name in (*kernel.reads, *kernel.writes)}
            run_reference(kernel, self.plan.buffers, flat, {s.name: n for s, n in self.sizes.items()})

    def extern(self, call: ExternCall) -> None:
        args = [self.argument(a) for a in call.args]
        kwargs = {k: self.argument(a) for k, a in call.kwargs.items()}
        found = call.target(*args, **kwargs)
        results = found if isinstance(found, (tuple, list)) else (found,)
        for name, result in zip(call.outputs, results, strict=True):
            if name is not None:
                self.memory[name] = result

    def argument(self, value: Argument) -> Any:
        if isinstance(value, View):
            base = self.memory[value.buffer]
            offset = base.storage_offset() + self.number(value.offset)
            return base.as_strided(self.numbers(value.shape), self.numbers(value.strides), offset)
        if isinstance(value, tuple):
            return [self.argument(v) for v in value]
        return self.number(value) if isinstance(value, _INDEX) else value


@attrs.define(eq=False)
class PlanBackend:
    """A back end whose kernels are run by the reference: tests the stages after scheduling without a compiler.

    `builds` counts how often something was built; `failing` makes every build raise it.
    """

    name: str = "reference"
    device_types: frozenset[str] = frozenset(("cpu",))
    features: Features = attrs.field(factory=lambda: ReferenceBackend().features)
    failing: Exception | None = None
    builds: int = 0
    _known: dict[str, tuple[Work, Mapping[str, Buffer]]] = attrs.field(factory=dict)

    def generate(self, kernels: Sequence[Work], plan: KernelPlan, ctx: CompileContext) -> KernelSource:
        """The kernels as `show` prints them."""
        for kernel in kernels:
            self._known[kernel.name] = (kernel, plan.buffers)
        parts = {work.name: "\n".join(map(show_kernel, _one_by_one(work))) for work in kernels}
        arguments = {kernel.name: kernel.arguments for kernel in kernels}
        return KernelSource(self.name, "text", "\n".join(parts.values()), arguments, parts=parts)

    def build(self, source: KernelSource, ctx: CompileContext) -> Mapping[str, Callable[..., None]]:
        """Callables that take tensors and sizes as `source.kernels` says."""
        self.builds += 1
        if self.failing is not None:
            raise self.failing
        return {name: self._callable(name, arguments) for name, arguments in source.kernels.items()}

    def missing(self) -> str | None:
        """Nothing: torch is all it takes."""
        return None

    def _callable(self, name: str, arguments: tuple[str, ...]) -> Callable[..., None]:
        kernel, buffers = self._known[name]

        def run(*given: Any) -> None:
            found = dict(zip(arguments, given, strict=True))
            memory = {k: _flat(v) for k, v in found.items() if isinstance(v, Tensor)}
            sizes = {k: v for k, v in found.items() if isinstance(v, int)}
            for part in _one_by_one(kernel):
                own = {name: memory[name] for name in (*part.reads, *part.writes)}
                run_reference(part, buffers, own, sizes)

        return run


def _one_by_one(work: Work) -> tuple[Kernel, ...]:
    """The kernels of a launch. Those of a batch run in any order: last to first shows whether one needs another."""
    return work.members[::-1] if isinstance(work, Batch) else (work,)


def _flat(tensor: Tensor) -> Tensor:
    """The memory from the tensor's first element to its last."""
    span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((span,), (1,)) if tensor.numel() else tensor.reshape(-1)
