"""The protocol between the core and a device back end: loop IR in, callable kernels out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from armature.codegen.data import KernelSource
from armature.graph.data import GraphCall
from armature.lower.features import Features
from armature.schedule.data import KernelPlan, Work

if TYPE_CHECKING:
    from armature.services import Services


class DeviceBackend(Protocol):
    """A back end: turns kernels into callables for the devices it names."""

    name: str
    device_types: frozenset[str]
    features: Features

    def generate(self, kernels: Sequence[Work], plan: KernelPlan, ctx: Services) -> KernelSource:
        """Print all kernels of one graph as one source. Deterministic: the same kernels yield the same text."""

    def build(self, source: KernelSource, ctx: Services) -> Mapping[str, Callable[..., None]]:
        """Build (or take from ctx.cache) and load. Each callable takes the tensors and ints of `source.kernels[name]`,
        positionally, and writes its outputs. Errors: BackendError with the tool's message and the source's path."""

    def missing(self) -> str | None:
        """None if the back end works here; else what is missing and the command that installs it."""


@runtime_checkable
class CompilesCalls(Protocol):
    """A further method of back ends whose features name `graph_calls`."""

    def compile_call(self, call: GraphCall, ctx: Services) -> Callable[..., Any] | None:
        """A callable that takes the arguments of `call.op`. Whatever the known sizes allow is built now. None: torch's
        own operator makes this call. Errors: BackendError."""


@runtime_checkable
class Prepares(Protocol):
    """A further method of back ends whose tools take a while to start."""

    def prepare(self, ctx: Services) -> None:
        """Start what building kernels needs, without waiting for it: a graph with tensors on such a device has been
        captured, whose kernels are still to be made. They may turn out to be cached."""
