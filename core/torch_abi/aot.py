"""Seam to AOTAutograd: a graph of torch functions in, functional ATen graphs for forward and backward out."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import attrs
import torch
from torch import fx

GraphCompiler = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]
Partition = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]


def _module(name: str) -> ModuleType:
    # AOTAutograd takes seconds to import, and a graph without gradients or mutations never needs it.
    return importlib.import_module(f"torch._functorch.{name}")


@attrs.frozen(eq=False)
class Compilers:
    """What is called with each functional graph and its fake inputs; each gives a callable that takes one list."""

    forward: GraphCompiler
    backward: GraphCompiler
    inference: GraphCompiler
    partition: Partition


@attrs.define(eq=False)
class _Facts:
    """What AOTAutograd found out, kept when the inference graph is compiled."""

    inner: Callable[..., Any] | None = None
    metadata: Any = None


def boxed(fn: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Mark a function as one that takes a single list and may empty it."""

    def call(args: list[Any]) -> Any:
        return fn(args)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def compile_functional(
    module: fx.GraphModule,
    fakes: Sequence[Any],
    compilers: Compilers,
    decompositions: Mapping[torch._ops.OpOverload, Callable[..., Any]],
) -> Callable[..., Any]:
    """The compiled function, called flat. `fakes`: one fake tensor or int per placeholder, all of one fake mode.

    Where nothing has to be done around the graph (no input written behind its back, no output that is a view, no
    gradients) the
    compiled graph is returned as it is.
    """
    guards = torch._guards
    fake_mode = next((f.fake_mode for f in fakes if hasattr(f, "fake_mode")), None)
    facts = _Facts()

    def inference(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        facts.inner = compilers.inference(graph, inputs)
        facts.metadata = guards.TracingContext.get().fw_metadata
        return boxed(facts.inner)

    with guards.tracing(guards.TracingContext(fake_mode)):
        whole: Callable[..., Any] = _module("aot_autograd").aot_module_simplified(
            module,
            list(fakes),
            fw_compiler=lambda graph, inputs: boxed(compilers.forward(graph, inputs)),
            bw_compiler=lambda graph, inputs: boxed(compilers.backward(graph, inputs)),
            inference_compiler=inference,
            partition_fn=compilers.partition,
            decompositions=dict(decompositions),
            keep_inference_input_mutations=True,
        )
    if facts.inner is not None and _needs_nothing_around(facts.metadata):
        return flat(facts.inner)
    return whole


def flat(inner: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """Called with the inputs one by one instead of with a list."""

    def call(*args: Any) -> Any:
        return inner([*args])

    return call


def _needs_nothing_around(metadata: Any) -> bool:
    if metadata is None:
        return False
    return not (
        metadata.num_mutated_inp_runtime_indices
        or metadata.num_outputs_aliased
        or metadata.num_intermediate_bases
        or metadata.tokens
        or metadata.grad_enabled_mutation is not None
        or any(type(m).__name__ != "PlainTensorMeta" for m in metadata.subclass_inp_meta)
        or any(type(m).__name__ != "PlainTensorMeta" for m in metadata.subclass_fw_graph_out_meta)
    )


def min_cut(
    joint: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, static_lifetime_input_indices: Any = None, **_: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Forward and backward graphs that pass on as few bytes as a minimum cut finds; cheap operators are computed
    again."""
    return _module("partitioners").min_cut_rematerialization_partition(  # type: ignore[no-any-return]
        joint,
        inputs,
        num_fwd_outputs=num_fwd_outputs,
        static_lifetime_input_indices=static_lifetime_input_indices,
    )
