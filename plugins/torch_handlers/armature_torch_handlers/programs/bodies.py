"""Functions that an operator of the graph calls, perhaps often, on inputs of its own: loop bodies, branches, hooks.

They are traced on inputs that represent those of any call. Other values that they use are passed to each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import attrs
import torch
from torch import fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from armature.plugin_api import (
    Args,
    ListValue,
    TracedTensor,
    Tracing,
    UserRaised,
    Value,
)
from armature_torch_handlers.programs.subgraphs import NotSeparable, Subgraph, Watch, graph_inputs, trace_subgraph


@attrs.frozen
class Like:
    """An input of a function with its own graph: a fake tensor of this kind. ANY_INT: any int."""

    shape: tuple[int | torch.SymInt, ...] = ()
    stride: tuple[int | torch.SymInt, ...] = ()
    dtype: torch.dtype | None = None
    device: torch.device | None = None
    requires_grad: bool = False

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Like:
        """The kind of a tensor."""
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad)

    def without_gradient(self) -> Like:
        """The kind of such a tensor without gradients."""
        return attrs.evolve(self, requires_grad=False)

    def dense(self) -> bool:
        """Whether a copy has the same strides."""
        return self.fake().clone().stride() == self.stride

    def learns(self) -> bool:
        """Whether tensors of the dtype can have gradients."""
        return self.dtype is not None and (self.dtype.is_floating_point or self.dtype.is_complex)

    def fake(self) -> torch.Tensor:
        """A leaf of that kind. Called in the fake mode."""
        made = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)
        return made.requires_grad_() if self.requires_grad else made

    def result_like(self, requires_grad: bool) -> torch.Tensor:
        """The kind of an operator's dense result, apart from requires_grad."""
        with torch.enable_grad():
            like = attrs.evolve(self, requires_grad=requires_grad and self.learns())
            return like.fake().clone() if like.requires_grad else like.fake()


ANY_INT = Like()


@attrs.frozen(eq=False)
class Body:
    """A function as a graph: `module(*inputs, *free)`.

    free: values that it uses from the graph around it. results: the results of a call, flattened; their tensors only
    exist in that graph. tree: their structure.
    """

    module: fx.GraphModule
    inputs: int
    free: tuple[fx.Node, ...]
    results: tuple[Value, ...]
    tree: Value

    @property
    def free_fakes(self) -> tuple[torch.Tensor | torch.SymInt, ...]:
        """Fakes of the free values, and symbolic ints."""
        return tuple(node.meta["example_value"] for node in self.free)

    def over(self, free: Sequence[fx.Node]) -> fx.GraphModule:
        """The graph with other free parameters, which include its own."""
        graph = fx.Graph()
        old = [node for node in self.module.graph.nodes if node.op == "placeholder"]
        known = dict(zip(self.free, old[self.inputs :], strict=True))
        copies = {}
        for node in old[: self.inputs]:
            copies[node] = graph.node_copy(node)
        for position, outer in enumerate(free):
            if outer in known:
                copies[known[outer]] = graph.node_copy(known[outer])
            else:
                graph.placeholder(f"_unused_{position}")
        for node in self.module.graph.nodes:
            if node not in copies:
                copies[node] = graph.node_copy(node, copies.__getitem__)
        return fx.GraphModule(self.module, graph, type(self.module).__name__)


def trace_body(
    tracer: Tracing,
    function: Value,
    inputs: Sequence[Like],
    args: Args = (),
    *,
    name: str,
    single: bool = False,
    fresh: bool = True,
) -> Body:
    """Trace `function(*inputs, *args)`. It may return tensors and ints, in any nest.

    single: it must return one value, which the graph returns directly, not as a tuple. fresh: result tensors must be
    new.

    Errors: NotSeparable if it can't be a graph, and GraphBreak.
    """
    fakes = [None if like is ANY_INT else like.fake() for like in inputs]
    with graph_inputs(tracer, fakes) as values:
        part: Subgraph | None = None
        try:
            with Watch(tracer) as watch:
                part = trace_subgraph(tracer, flat_call, (function, *values, *args), {})
            if part.writes or watch.changed():
                raise NotSeparable("changes something outside of it")
            leaves, tree = tracer.unpack(part.result)
            results = tracer.unpack(leaves)
            part = part.giving(results)
            nodes = [value.node for value in values if value.node is not None]
            _check(part, results, nodes, fresh)
            module, free = _module(tracer, part, nodes, results, name, single)
            return Body(module, len(nodes), free, tuple(results), tree)
        except UserRaised as error:
            raise NotSeparable("raises an error") from error
        finally:
            if part is not None:
                part.remove()


def flat_call(function: Callable[..., object], *args: object) -> tuple[list[object], object]:
    """Flatten the results of a function; also returns their structure. Traced."""
    return tree_flatten(function(*args))


def _module(
    tracer: Tracing, part: Subgraph, inputs: list[fx.Node], results: Sequence[Value], name: str, single: bool
) -> tuple[fx.GraphModule, tuple[fx.Node, ...]]:
    """The graph of a function, and its free values."""
    free = [node for node in part.captured if node not in inputs]
    if not all(isinstance(node.meta.get("example_value"), (torch.Tensor, torch.SymInt)) for node in free):
        raise NotSeparable("uses a number that is not known while tracing")
    outputs = tuple(cast(fx.node.Argument, value.as_argument(tracer)) for value in results)
    if single and len(outputs) != 1:
        raise NotSeparable("gives more or less than one thing")
    return part.module([*inputs, *free], outputs[0] if single else outputs, name), tuple(free)


def _check(part: Subgraph, results: Sequence[Value], inputs: Sequence[fx.Node], fresh: bool) -> None:
    """Check that the results are tensors and numbers, and that, if `fresh`, none shares memory with another or with an
    input."""
    own = set(part.nodes)
    seen = {_memory(node.meta["example_value"]) for node in (*inputs, *part.captured)} - {None}
    for value in results:
        if isinstance(value, TracedTensor):
            memory = _memory(value.fake)
            known = value.node not in own or memory in seen
            if value.kind is not None or memory is None or (fresh and known):
                raise NotSeparable(f"gives {value.describe()} that is not its own")
            seen.add(memory)
        elif not issubclass(value.python_type(), int) or not (value.is_constant or value.is_symbolic):
            raise NotSeparable(f"gives {value.describe()}")


def _memory(value: object) -> int | None:
    """The memory of a fake; None if it is not a dense tensor."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    memory: int = value.untyped_storage()._cdata
    return memory


def with_common_parameters(bodies: Sequence[Body]) -> tuple[list[fx.GraphModule], list[fx.Node]]:
    """Give the graphs parameters for all free values that any of them uses; returns these too."""
    free = list(dict.fromkeys(node for body in bodies for node in body.free))
    return [body.over(free) for body in bodies], free


def needs_gradient(values: Sequence[Value], bodies: Sequence[Body]) -> bool:
    """Whether a call of the functions with these values needs gradients."""
    fakes: list[object] = [value.fake for value in values if isinstance(value, TracedTensor)]
    fakes += [fake for body in bodies for fake in body.free_fakes]
    return torch.is_grad_enabled() and any(getattr(fake, "requires_grad", False) for fake in fakes)


def in_tree(tracer: Tracing, leaves: Sequence[Value], tree: Value) -> Value:
    """Values put back into a structure."""
    return tracer.calls.inline_python(tree_unflatten, (ListValue(list(leaves)), tree), {})
