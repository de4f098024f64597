"""Compiled graphs as records: nodes with the kernels that compute them, kernels with code, memory step by step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs
import torch
from torch import fx

from armature.codegen.data import KernelSource
from armature.frame.guards.explain import as_written
from armature.graph.data import Origin
from armature.lower.data import Buffer, BufferKind, ExternCall
from armature.lower.reasons import KINDS
from armature.reports.record import Choice, Graph, Kernel, MemoryStep, Node, Place, Tried
from armature.run.data import CompiledGraph
from armature.schedule import data as plans
from armature.schedule.data import Allocate, KernelPlan, Launch, Release

OWN_MEMORY = (BufferKind.TEMP, BufferKind.OUTPUT)


def compiled_graph(number: int, frame: int, graph: CompiledGraph) -> Graph:
    """The record of a graph that went through all stages."""
    by_loop = {loop.name: nodes_of(loop.origins) for loop in graph.loops.nodes}
    kernels = tuple(_kernels(graph, by_loop))
    computed: dict[str, list[str]] = {}
    for kernel in kernels:
        for node in kernel.nodes:
            computed.setdefault(node, []).append(kernel.name)
    nodes = tuple(nodes_in(graph.aten.module.graph, computed))
    memory = tuple(memory_steps(graph.plan))
    return Graph(number, frame, graph.name, graph.aten.kind.value, nodes, kernels, graph.program.wrapper, memory)


def with_inputs(graph: Graph, inputs: Sequence[tuple[str, object]]) -> Graph:
    """The graph with the program's expressions for its inputs, if these are those of the captured graph."""
    own = [node for node in graph.nodes if node.kind == "input"]
    if [node.type for node in own] != [type_of(fake) for _, fake in inputs]:
        return graph
    named = {node.name: as_written(expr) for node, (expr, _) in zip(own, inputs, strict=True) if expr}
    nodes = (attrs.evolve(node, target=named.get(node.name, node.target)) for node in graph.nodes)
    return attrs.evolve(graph, nodes=tuple(nodes))


def captured_graph(number: int, frame: int, name: str, module: fx.GraphModule) -> Graph:
    """The record of a graph that was given to a backend as captured, without this package's stages."""
    return Graph(number, frame, name, "captured", tuple(nodes_in(module.graph, {})))


def nodes_of(origins: Iterable[Origin]) -> tuple[str, ...]:
    """The names of the graph nodes that these loop nodes were lowered from."""
    return tuple(dict.fromkeys(origin.node for origin in origins if origin.node))


def nodes_in(graph: fx.Graph, computed: Mapping[str, Sequence[str]]) -> Iterator[Node]:
    """The nodes of a graph. computed: the kernels that compute each."""
    for node in graph.nodes:
        yield Node(
            name=node.name,
            kind=NODE_KINDS.get(node.op, "operator"),
            target=target_of(node),
            inputs=tuple(used.name for used in node.all_input_nodes),
            type=type_of(node.meta.get("val", node.meta.get("example_value"))),
            place=place_of(node.meta.get("origin")),
            kernels=tuple(computed.get(node.name, ())),
        )


NODE_KINDS = {"placeholder": "input", "get_attr": "input", "output": "output"}


def target_of(node: fx.Node) -> str:
    """What a node calls: `aten.add.Tensor`, `torch.relu`, `.sum` of a method."""
    if node.op == "call_method":
        return f".{node.target}"
    if node.op != "call_function" or isinstance(node.target, torch._ops.OpOverload):
        return str(node.target)
    module = getattr(node.target, "__module__", "") or ""
    name = str(getattr(node.target, "__qualname__", None) or getattr(node.target, "__name__", node.target))
    home = "" if module in ("builtins", "_operator") or module.startswith("torch._C") else f"{module}."
    return f"{home}{name.removeprefix('_VariableFunctionsClass.')}"


def type_of(value: object) -> str:
    """`float32[2, 4]` for a tensor; the name of its type for anything else."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(type_of, value))})"
    return "" if value is None else type(value).__name__


def place_of(origin: object) -> Place | None:
    """The user's line of a node, from its `Origin` or `FrameSummary`."""
    file, line = getattr(origin, "file", ""), getattr(origin, "line", 0)
    return Place(file, line, getattr(origin, "function", ""), getattr(origin, "text", "")) if file else None


def _kernels(graph: CompiledGraph, by_loop: Mapping[str, tuple[str, ...]]) -> Iterator[Kernel]:
    sources = {name: source for source in graph.program.sources for name in source.kernels}
    buffers = graph.plan.buffers
    for step in graph.plan.steps:
        if isinstance(step, Launch):
            source = sources.get(step.kernel.name)
            made = of_plan(step.kernel, buffers, by_loop)
            if source is not None:
                code = source.parts.get(made.name, "") or source.text
                made = attrs.evolve(made, language=source.language, code=code, choice=chosen(source, made.name))
            yield made
        elif isinstance(step, ExternCall):
            yield of_call(step, buffers)


def chosen(source: KernelSource, name: str) -> Choice | None:
    """How a kernel was chosen, if a back end had several ways to compute it."""
    found = next((choice for choice in source.choices if choice.kernel == name), None)
    if found is None:
        return None
    tried = tuple(Tried(each.label, each.seconds, each.problem) for each in found.tried)
    return Choice(found.chosen, found.how, found.device, tried)


def of_plan(kernel: plans.Work, buffers: Mapping[str, Buffer], by_loop: Mapping[str, tuple[str, ...]]) -> Kernel:
    """A kernel of a plan, without its code."""
    members = kernel.members if isinstance(kernel, plans.Batch) else (kernel,)
    nodes = dict.fromkeys(node for member in members for loop in member.loops for node in by_loop.get(loop, ()))
    return Kernel(
        name=kernel.name,
        generated=True,
        device=str(kernel.device),
        operators=tuple(dict.fromkeys(origin.op for origin in kernel.origins)),
        nodes=tuple(nodes),
        reads=kernel.reads,
        writes=kernel.writes,
        bytes_read=total(kernel.reads, buffers),
        bytes_written=total(kernel.writes, buffers),
        places=user_lines(kernel.origins),
    )


def of_call(call: ExternCall, buffers: Mapping[str, Buffer]) -> Kernel:
    """A call of one of torch's operators, which is not part of a kernel."""
    nodes = nodes_of(call.origins)
    made = tuple(name for name in call.outputs if name is not None)
    device = next((str(buffers[name].device) for name in made if name in buffers), "")
    return Kernel(
        name=f"{call.target} ({', '.join(nodes) or call.name})",
        generated=False,
        device=device,
        operators=tuple(dict.fromkeys(origin.op for origin in call.origins)) or (str(call.target),),
        nodes=nodes,
        writes=(*made, *call.mutates),
        bytes_written=total((*made, *call.mutates), buffers),
        reason=KINDS[call.reason.kind],
        detail=call.reason.detail,
        places=user_lines(call.origins),
    )


def user_lines(origins: Iterable[Origin]) -> tuple[Place, ...]:
    """The user's lines, each once."""
    return tuple(dict.fromkeys(place for origin in origins if (place := place_of(origin)) is not None))


def size_of(buffer: Buffer) -> int | None:
    """Bytes of a buffer; None where sizes are symbols."""
    sizes = [size for size in buffer.shape if isinstance(size, int)]
    return math.prod(sizes) * buffer.dtype.itemsize if len(sizes) == len(buffer.shape) else None


def total(names: Iterable[str], buffers: Mapping[str, Buffer]) -> int | None:
    """Bytes of buffers together; None where one is not known."""
    sizes = [size_of(buffers[name]) if name in buffers else None for name in names]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def memory_steps(plan: KernelPlan) -> Iterator[MemoryStep]:
    """The memory that the graph has allocated at each kernel or call; empty if a size is a symbol."""
    sizes = {name: size_of(buffer) for name, buffer in plan.buffers.items() if buffer.kind in OWN_MEMORY}
    if any(size is None for size in sizes.values()):
        return
    held = {step.reuse for step in plan.steps if isinstance(step, Allocate)}
    alive: dict[str, int] = {}
    for step in plan.steps:
        if isinstance(step, Allocate):
            taken = alive.pop(step.reuse, None) if step.reuse is not None else None
            alive[step.buffer] = (sizes.get(step.buffer) or 0) if taken is None else taken
        elif isinstance(step, Release):
            if step.buffer not in held:  # otherwise a later buffer gets this memory
                alive.pop(step.buffer, None)
        elif isinstance(step, ExternCall):
            alive.update((name, sizes.get(name) or 0) for name in step.outputs if name is not None)
            yield MemoryStep(str(step.target), sum(alive.values()) + step.workspace)
        else:
            yield MemoryStep(step.kernel.name, sum(alive.values()))
