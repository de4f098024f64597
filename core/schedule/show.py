"""Prints a kernel plan as a readable program: loops, values and stores, with the user's lines in the margin."""

from __future__ import annotations

from collections.abc import Iterable

from armature.lower.data import Const, ExternCall, IndexValue, Load, Masked, Node, Op, Origin, Reduce, Scan, Store
from armature.schedule.batch import body_of
from armature.schedule.data import Allocate, Batch, Kernel, KernelPlan, Launch
from armature.schedule.walk import postorder, recomputed_operands, store_roots

_COLUMN = 84


def show(plan: KernelPlan) -> str:
    """All steps in order."""
    lines = [f"plan {plan.name}({', '.join(plan.inputs)})"]
    for step in plan.steps:
        if isinstance(step, Launch):
            text = show_batch(step.kernel, plan) if isinstance(step.kernel, Batch) else show_kernel(step.kernel)
            lines += ["  " + line for line in text.splitlines()]
        elif isinstance(step, ExternCall):
            outputs = ", ".join(name or "_" for name in step.outputs)
            lines.append(_noted(f"  {outputs} = {step.target}(...)", step.origins))
        elif isinstance(step, Allocate):
            buffer = plan.buffers[step.buffer]
            shape = ", ".join(str(n) for n in buffer.shape)
            kind = str(buffer.dtype).removeprefix("torch.")
            source = f" from {step.reuse}" if step.reuse else f" over {step.over}" if step.over else ""
            lines.append(f"  make {step.buffer}: {kind}[{shape}]{source}")
        else:
            lines.append(f"  free {step.buffer}")
    outputs = ", ".join(str(getattr(o, "buffer", o)) for o in plan.outputs)
    return "\n".join([*lines, f"  return {outputs}"]) + "\n"


def show_batch(batch: Batch, plan: KernelPlan) -> str:
    """The common kernel of the members, and each member's buffers for its slots."""
    body = body_of(batch, plan.buffers)
    lines = [f"batch {batch.name}: {len(body.rows)} times, {', '.join(body.slots)} being"]
    for row in body.rows:
        bindings = (p.buffer + (f"+{p.offset}" if p.offset else "") for p in row.bindings)
        lines.append(f"  {', '.join(bindings)}    points {row.points}")
    return "\n".join([*lines, *("  " + line for line in show_kernel(body.kernel).splitlines())])


def show_kernel(kernel: Kernel) -> str:
    """The kernel's loops and passes."""
    arguments = ", ".join(kernel.arguments)
    lines = [_noted(f"kernel {kernel.name}({arguments}) on {kernel.device}", kernel.origins)]
    lines.append("  for " + _loops(kernel.outer))
    names: dict[Node, str] = {}
    for number, item in enumerate(kernel.passes):
        if item.reductions or item.inner_stores:
            lines.append(f"    pass {number + 1}: for " + _loops(kernel.inner))
            known = set(names)
            for node in item.reductions:
                lines += _values((node.value,), names, "      ")
                names[node] = f"r{len(names)}"
                lines.append(_noted(f"      {names[node]} = {node.op} {_text(node.value, names)}", _origin(node)))
            for store in item.inner_stores:
                lines += _store(store, names, "      ")
            for gone in [n for n in names if n not in known and not isinstance(n, Reduce)]:
                del names[gone]
        for store in item.outer_stores:
            lines += _store(store, names, "    ")
    return "\n".join(lines)


def _loops(variables: Iterable[object]) -> str:
    text = ", ".join(f"{v} < {getattr(v, 'extent', '?')}" for v in variables)
    return text or "one point"


def _store(store: Store, names: dict[Node, str], indent: str) -> list[str]:
    lines = _values(store_roots(store), names, indent)
    where = ", ".join(str(i) for i in store.index)
    sign = "=" if not store.atomic else "+=" if store.combine == "sum" else f"{store.combine}="
    bound = "".join(f" with {var} = {_text(value, names)}" for var, value in store.indirect)
    return [*lines, f"{indent}{store.buffer}[{where}] {sign} {_text(store.value, names)}{bound}"]


def _values(roots: tuple[Node, ...], names: dict[Node, str], indent: str) -> list[str]:
    lines: list[str] = []
    for node in postorder(roots, recomputed_operands, names):
        if isinstance(node, (Const, Reduce)):
            continue
        text = _describe(node, names)
        names[node] = f"v{len(names)}"
        lines.append(_noted(f"{indent}{names[node]} = {text}", _origin(node)))
    return lines


def _describe(node: Node, names: dict[Node, str]) -> str:
    if isinstance(node, Load):
        bound = "".join(f" with {var} = {_text(value, names)}" for var, value in node.indirect)
        return f"{node.buffer}[{', '.join(str(i) for i in node.index)}]{bound}"
    if isinstance(node, IndexValue):
        return f"index {node.index}"
    if isinstance(node, Masked):
        return f"{_text(node.value, names)} if {_text(node.cond, names)} else {node.other.value}"
    if isinstance(node, Scan):
        return f"{node.op} {_text(node.value, names)} along {', '.join(str(v) for v in node.over)}"
    if isinstance(node, Op):
        kind = f" to {str(node.dtype).removeprefix('torch.')}" if node.op in ("cast", "bitcast") else ""
        return f"{node.op} {', '.join(_text(a, names) for a in node.args)}{kind}"
    return "?"


def _text(node: Node, names: dict[Node, str]) -> str:
    return repr(node.value) if isinstance(node, Const) else names.get(node, "?")


def _origin(node: Node) -> tuple[Origin, ...]:
    return (node.origin,) if isinstance(node, (Op, Reduce, Scan)) and node.origin else ()


def _noted(text: str, origins: Iterable[Origin]) -> str:
    """The text with the user's line in the margin."""
    for origin in origins:
        if origin.file:
            return f"{text.ljust(_COLUMN)}  # {origin.file.rsplit('/', 1)[-1]}:{origin.line}  {origin.text}".rstrip()
    return text
