"""Functions that an operator of the graph calls, maybe often, on inputs of its own: bodies of loops, branches, hooks.

They are traced on inputs that stand for those of any call. What else they use is passed to them each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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
    """An input of a function in a graph of its own: a tensor of this kind, without numbers. ANY_INT: any int."""

    shape: tuple[int | torch.SymInt, ...] = ()
    stride: tuple[int | torch.SymInt, ...] = ()
    dtype: torch.dtype | None = None
    device: torch.device | None = None
    requires_grad: bool = False

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Like:
        """One like a tensor."""
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad)

    def without_gradient(self) -> Like:
        """The same, that needs no gradient."""
        return attrs.evolve(self, requires_grad=False)

    def dense(self) -> bool:
        """Whether a copy has the same strides."""
        return self.fake().clone().stride() == self.stride

    def learns(self) -> bool:
        """Whether the dtype is one of tensors with gradients."""
        return self.dtype is not None and (self.dtype.is_floating_point or self.dtype.is_complex)

    def fake(self) -> torch.Tensor:
        """A leaf of that kind. Called in the fake mode."""
        made = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)
        return made.requires_grad_() if self.requires_grad else made

    def made(self, requires_grad: bool) -> torch.Tensor:
        """What a dense result of an operator is, if it is of that kind but for its gradient."""
        with torch.enable_grad():
            like = attrs.evolve(self, requires_grad=requires_grad and self.learns())
            return like.fake().clone() if like.requires_grad else like.fake()


ANY_INT = Like()


@attrs.frozen(eq=False)
class Body:
    """A function as a graph: `module(*inputs, *free)`.

    free: what it uses of the graph around it. results: what a call returned, flat; its tensors are in that graph only.
    tree: their structure.
    """

    module: fx.GraphModule
    inputs: int
    free: tuple[fx.Node, ...]
    results: tuple[Value, ...]
    tree: Value

    @property
    def free_fakes(self) -> tuple[torch.Tensor | torch.SymInt, ...]:
        """Fakes of what it uses, and symbolic ints."""
        return tuple(node.meta["example_value"] for node in self.free)

    def over(self, free: Sequence[fx.Node]) -> fx.GraphModule:
        """The graph with other parameters after its inputs: what it uses is among them."""
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

    single: it must return one, which the graph returns as it is, and else a tuple. fresh: tensors must be its own.

    Errors: NotSeparable, where it can't be a graph, and GraphBreak.
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


def flat_call(function: Callable[..., Any], *args: Any) -> tuple[list[Any], Any]:
    """What a function returns, in leaves, and its structure. Traced."""
    return tree_flatten(function(*args))


def _module(
    tracer: Tracing, part: Subgraph, inputs: list[fx.Node], results: Sequence[Value], name: str, single: bool
) -> tuple[fx.GraphModule, tuple[fx.Node, ...]]:
    """The graph of a function, and what it uses besides its inputs."""
    free = [node for node in part.outside if node not in inputs]
    if not all(isinstance(node.meta.get("example_value"), (torch.Tensor, torch.SymInt)) for node in free):
        raise NotSeparable("uses a number that is not known while tracing")
    outputs = tuple(value.as_argument(tracer) for value in results)
    if single and len(outputs) != 1:
        raise NotSeparable("gives more or less than one thing")
    return part.module([*inputs, *free], outputs[0] if single else outputs, name), tuple(free)


def _check(part: Subgraph, results: Sequence[Value], inputs: Sequence[fx.Node], fresh: bool) -> None:
    """Whether the results are tensors and numbers, and, if they must be, of the part: no two share memory with each
    other or inputs."""
    own = set(part.nodes)
    seen = {_memory(node.meta["example_value"]) for node in (*inputs, *part.outside)} - {None}
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
    """Which memory a fake is in; None for what is no dense tensor."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    memory: int = value.untyped_storage()._cdata
    return memory


def together(bodies: Sequence[Body]) -> tuple[list[fx.GraphModule], list[fx.Node]]:
    """The graphs, each with parameters for all that any of them uses besides inputs; and that."""
    free = list(dict.fromkeys(node for body in bodies for node in body.free))
    return [body.over(free) for body in bodies], free


def needs_gradient(values: Sequence[Value], bodies: Sequence[Body]) -> bool:
    """Whether a call of functions with some values is to have gradients."""
    fakes: list[object] = [value.fake for value in values if isinstance(value, TracedTensor)]
    fakes += [fake for body in bodies for fake in body.free_fakes]
    return torch.is_grad_enabled() and any(getattr(fake, "requires_grad", False) for fake in fakes)


def in_tree(tracer: Tracing, leaves: Sequence[Value], tree: Value) -> Value:
    """Values in a structure."""
    return tracer.calls.inline_python(tree_unflatten, (ListValue(list(leaves)), tree), {})
