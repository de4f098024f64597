"""Prints a loop graph as a readable program: one line per loop, with the user's lines in the margin."""

from __future__ import annotations

from collections.abc import Sequence

from armature.lower.data import (
    AsNumber,
    Buffer,
    BufferKind,
    Const,
    ExternCall,
    IndexValue,
    Load,
    Loop,
    LoopGraph,
    Masked,
    Node,
    Op,
    Origin,
    Reduce,
    Scan,
    Store,
    View,
)
from armature.lower.index import Index, Var
from armature.lower.ops import OPS

COLUMN = 88


def show(graph: LoopGraph) -> str:
    """The whole graph as text; deterministic."""
    lines = [f"def {graph.name}({', '.join(graph.inputs)}):"]
    lines += [f"    # {line}" for line in _declarations(graph)]
    for node in graph.nodes:
        body = _loop(node) if isinstance(node, Loop) else [_call(node)]
        for k, line in enumerate(body):
            lines.append(_with_origin(f"    {line}", node.origins if k == 0 else ()))
    lines.append(f"    return {', '.join(_argument(o) for o in graph.outputs)}")
    return "\n".join(lines) + "\n"


def _declarations(graph: LoopGraph) -> list[str]:
    out = [f"{size} = {read.text(graph.inputs[read.position])}" for size, read in graph.sizes.items()]
    shown = (BufferKind.INPUT, BufferKind.CONSTANT)
    return out + [_buffer(b) for b in graph.buffers.values() if b.kind in shown]


def _buffer(buffer: Buffer) -> str:
    dtype = str(buffer.dtype).removeprefix("torch.")
    return f"{buffer.name}: {dtype}[{_list(buffer.shape)}] strides ({_list(buffer.strides)}) {buffer.kind.value}"


def _with_origin(line: str, origins: Sequence[Origin]) -> str:
    if not origins:
        return line
    origin = origins[0]
    place = f"{origin.file.rsplit('/', 1)[-1]}:{origin.line}  {origin.text}" if origin.file else ""
    return f"{line.ljust(COLUMN)}  # {origin.op.removesuffix('.default'):24} {place}".rstrip()


def _loop(loop: Loop) -> list[str]:
    ranges = ", ".join(f"{v.name}<{v.extent}" for v in loop.space)
    return [f"for {ranges or 'once'}: {_store(store)}" for store in loop.stores]


def _store(store: Store) -> str:
    printer = _Printer()
    value = printer.node(store.value)
    where = printer.place(store.buffer, store.index, store.indirect)
    sign = "=" if not store.atomic else "+=" if store.combine == "sum" else f"{store.combine}="
    text = f"{where} {sign} {value}"
    shared = "".join(f"{name} = {body}; " for name, body in printer.shared)
    return shared + text


def _call(call: ExternCall) -> str:
    results = ", ".join(name or "_" for name in call.outputs)
    given = [*(_argument(a) for a in call.args), *(f"{k}={_argument(v)}" for k, v in call.kwargs.items())]
    return f"{results} = {call.target}({', '.join(given)})"


def _argument(value: object) -> str:
    if isinstance(value, AsNumber):
        return f"{value.buffer}.item()"
    if isinstance(value, View):
        offset = f" + {value.offset}" if value.offset != 0 else ""
        return f"{value.buffer}{offset}[{_list(value.shape)}; {_list(value.strides)}]"
    if isinstance(value, tuple):
        return f"({', '.join(_argument(v) for v in value)})"
    return str(value)


def _list(values: Sequence[Index]) -> str:
    return ", ".join(str(v) for v in values)


class _Printer:
    """Prints values; one that is used twice gets a name, so that the text stays as small as the graph."""

    def __init__(self) -> None:
        self.shared: list[tuple[str, str]] = []
        self.names: dict[int, str] = {}
        self.counts: dict[int, int] = {}

    def node(self, root: Node) -> str:
        """The text of a value; shared parts are added to `shared`."""
        for node in _in_order(root):
            for child in _children(node):
                self.counts[id(child)] = self.counts.get(id(child), 0) + 1
        texts: dict[int, str] = {}
        for node in _in_order(root):
            text = self.text(node, [texts[id(c)] for c in _children(node)])
            if self.counts.get(id(node), 0) > 1 and not isinstance(node, (Const, Load, IndexValue)):
                name = f"t{len(self.shared)}"
                self.shared.append((name, text))
                text = name
            texts[id(node)] = text
        return texts[id(root)]

    def text(self, node: Node, parts: list[str]) -> str:
        dtype = str(node.dtype).removeprefix("torch.")
        if isinstance(node, Const):
            return str(node.value)
        if isinstance(node, IndexValue):
            return f"{dtype}({node.index})"
        if isinstance(node, Load):
            return self.place(node.buffer, node.index, node.indirect, parts)
        if isinstance(node, Masked):
            return f"({parts[1]} if {parts[0]} else {node.other.value})"
        if isinstance(node, Reduce):
            return f"{node.op}({parts[0]} over {', '.join(f'{v.name}<{v.extent}' for v in node.over)})"
        if isinstance(node, Scan):
            return f"{node.op}({parts[0]} along {_list(node.over)})"
        if node.op == "cast":
            return f"{dtype}({parts[0]})"
        if sign := OPS[node.op].sign:
            return f"({parts[0]} {sign} {parts[1]})"
        return f"{node.op}({', '.join(parts)})"

    def place(
        self,
        buffer: str,
        index: Sequence[Index],
        indirect: Sequence[tuple[Var, Node]],
        parts: Sequence[str] | None = None,
    ) -> str:
        """`buffer[index]`, with indirect variables expanded."""
        texts = parts if parts is not None else [self.node(n) for _, n in indirect]
        bound = "".join(f"; {v}={t}" for (v, _), t in zip(indirect, texts, strict=True))
        return f"{buffer}[{_list(index)}{bound}]"


def _children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Op):
        return node.args
    if isinstance(node, Masked):
        return (node.cond, node.value)
    if isinstance(node, (Reduce, Scan)):
        return (node.value,)
    return tuple(n for _, n in node.indirect) if isinstance(node, Load) else ()


def _in_order(root: Node) -> list[Node]:
    """Each node once, after its operands."""
    out: list[Node] = []
    seen: set[int] = set()
    todo: list[tuple[Node, bool]] = [(root, False)]
    while todo:
        node, ready = todo.pop()
        if ready:
            out.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            todo.append((node, True))
            todo.extend((child, False) for child in reversed(_children(node)))
    return out
