"""Functions that an operator of the graph calls, maybe often, with inputs of its own: bodies of loops and scans.

They are traced on inputs that stand for those of any call. What they use besides is given to them each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import getitem
from typing import TYPE_CHECKING, Any

import attrs
import torch
from torch import fx

from armature.torch_abi import pytree
from armature.torch_abi.fake import in_transform
from armature.trace.errors import UserRaised
from armature.trace.frame_state import whole
from armature.trace.places import places_of
from armature.trace.recording import graph_calls
from armature.trace.recording.subgraphs import NotApart, Part, Watch, add_module, remove, trace_part
from armature.trace.values.base import Args, Tracing, Value
from armature.trace.values.sequence import ListValue
from armature.trace.values.symbolic import SymbolicValue
from armature.trace.values.tensor import TensorValue

if TYPE_CHECKING:
    from armature.trace.frame_state import Trace


@attrs.frozen
class Like:
    """An input of a function in a graph of its own: a tensor of this kind, without numbers. `int`: any int."""

    shape: tuple[Any, ...] = ()
    stride: tuple[Any, ...] = ()
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
        """What an operator gives that is dense, and of that kind but for its gradient."""
        with torch.enable_grad():
            like = attrs.evolve(self, requires_grad=requires_grad and self.learns())
            return like.fake().clone() if like.requires_grad else like.fake()


ANY_INT = Like()


@attrs.frozen(eq=False)
class Body:
    """A function as a graph: `module(*inputs, *free)`.

    free: what it uses of the graph around it. results: what a call gave, flat; its tensors are in that graph only.
    tree: the structure that they have.
    """

    module: fx.GraphModule
    inputs: int
    free: tuple[fx.Node, ...]
    results: tuple[Value, ...]
    tree: Value

    @property
    def free_fakes(self) -> tuple[Any, ...]:
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
        for position, outside in enumerate(free):
            if outside in known:
                copies[known[outside]] = graph.node_copy(known[outside])
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
    """Trace `function(*inputs, *args)`. It may give tensors and ints, in any nest.

    single: it must give one, which the graph gives as it is, and else gives a tuple. fresh: tensors must be its own.

    Errors: NotApart, where it can't be a graph, and GraphBreak.
    """
    tracer = whole(tracer)
    if in_transform():  # whose levels its inputs would not have
        raise NotApart("is called in a transform of torch.func")
    values = [_fresh(tracer, like) for like in inputs]
    nodes = [value.node for value in values if value.node is not None]
    places = places_of(tracer.frames)
    part: Part | None = None
    try:
        with Watch(tracer) as watch:
            part = trace_part(tracer, flat_call, (function, *values, *args), {})
        if part.writes or watch.changed():
            raise NotApart("changes something outside of it")
        leaves, tree = tracer.unpack(part.result)
        results = tracer.unpack(leaves)
        part = part.giving(results)
        _check(part, results, nodes, fresh)
        free = [node for node in part.outside if node not in nodes]
        if not all(isinstance(node.meta.get("example_value"), (torch.Tensor, torch.SymInt)) for node in free):
            raise NotApart("uses a number that is not known while tracing")
        outputs = tuple(value.as_argument(tracer) for value in results)
        if single and len(outputs) != 1:
            raise NotApart("gives more or less than one thing")
        module = part.module([*nodes, *free], outputs[0] if single else outputs, name)
        return Body(module, len(nodes), tuple(free), tuple(results), tree)
    except UserRaised as error:
        raise NotApart("raises an error") from error
    finally:
        if part is not None:
            part.remove()
        remove(tracer, tuple(nodes), places)


def flat_call(function: Callable[..., Any], *args: Any) -> tuple[list[Any], Any]:
    """What a function gives, in leaves, and its structure. Traced."""
    return pytree.tree_flatten(function(*args))


def _fresh(tracer: Trace, like: Like) -> TensorValue | SymbolicValue:
    """An input at the end of the graph, for as long as a function is traced."""
    node = graph_calls.record(tracer, "placeholder", "given", (), {})
    if like is ANY_INT:
        number = tracer.sizes.symbols.create_unbacked_symint()
        node.meta["example_value"] = number
        tracer.sizes.bind_result(number, node)
        return SymbolicValue(number, node)
    fake = node.meta["example_value"] = like.fake()
    value = tracer.by_fake[id(fake)] = TensorValue(fake, node)
    return value


def _check(part: Part, results: Sequence[Value], inputs: Sequence[fx.Node], fresh: bool) -> None:
    """Whether the results are tensors and numbers, and, if they must be, of the part: no two share memory with each
    other or inputs."""
    own = set(part.nodes)
    seen = {_memory(node.meta["example_value"]) for node in (*inputs, *part.outside)} - {None}
    for value in results:
        if isinstance(value, TensorValue):
            memory = _memory(value.fake)
            known = value.node not in own or memory in seen
            if value.kind is not None or memory is None or (fresh and known):
                raise NotApart(f"gives {value.describe()} that is not its own")
            seen.add(memory)
        elif not issubclass(value.python_type(), int) or not (value.is_constant or value.is_symbolic):
            raise NotApart(f"gives {value.describe()}")


def _memory(value: Any) -> int | None:
    """Which memory a fake is in; None for what is no dense tensor."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    memory: int = value.untyped_storage()._cdata
    return memory


def together(bodies: Sequence[Body]) -> tuple[list[fx.GraphModule], list[fx.Node]]:
    """The graphs, each with parameters for all that any of them uses besides inputs; and that."""
    free = list(dict.fromkeys(node for body in bodies for node in body.free))
    return [body.over(free) for body in bodies], free


def call_bodies(
    tracer: Tracing,
    operator: Callable[..., Any],
    modules: Sequence[fx.GraphModule],
    arguments: Callable[..., tuple[Any, ...]],
    results: Sequence[torch.Tensor | None],
) -> list[Value]:
    """A node of the graph, that calls an operator.

    arguments: what it is called with, made of a node for each module. results: fakes of what it gives; None for an int
    that only a run will tell.
    """
    tracer = whole(tracer)
    getters = [graph_calls.record(tracer, "get_attr", add_module(tracer, module), (), {}) for module in modules]
    given = [tracer.sizes.symbols.create_unbacked_symint() if fake is None else fake for fake in results]
    node = graph_calls.record(tracer, "call_function", operator, arguments(*getters), {})
    node.meta["example_value"] = tuple(given)
    return [_item(tracer, fake, node, position) for position, fake in enumerate(given)]


def attach_body(tracer: Tracing, function: Callable[..., None], body: Body, value: TensorValue) -> None:
    """A node of the graph, for what it does: `function(tensor, module, free)`."""
    tracer = whole(tracer)
    getter = graph_calls.record(tracer, "get_attr", add_module(tracer, body.module), (), {})
    node = graph_calls.record(tracer, "call_function", function, (value.as_argument(tracer), getter, body.free), {})
    node.meta["example_value"] = None


def _item(tracer: Trace, fake: Any, node: fx.Node, position: int) -> Value:
    getter = graph_calls.record(tracer, "call_function", getitem, (node, position), {})
    return graph_calls.from_fake(tracer, fake, getter)


def needs_gradient(values: Sequence[Value], bodies: Sequence[Body]) -> bool:
    """Whether a call of functions with some values is to have gradients."""
    fakes = [value.fake for value in values if isinstance(value, TensorValue)]
    fakes += [fake for body in bodies for fake in body.free_fakes]
    return torch.is_grad_enabled() and any(getattr(fake, "requires_grad", False) for fake in fakes)


def in_tree(tracer: Tracing, leaves: Sequence[Value], tree: Value) -> Value:
    """Values in a structure."""
    return tracer.calls.inline_python(pytree.tree_unflatten, (ListValue(list(leaves)), tree), {})
