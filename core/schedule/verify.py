"""The spec of a kernel plan; run in strict mode."""

from __future__ import annotations

from collections import Counter

from armature.errors import invariant
from armature.lower.data import BufferKind, ExternCall, IndexValue, Load, Node, Reduce, Scan, Store, View
from armature.lower.index import Var, sizes, variables
from armature.lower.sharing import shared_memory
from armature.schedule.batch import body_of
from armature.schedule.data import Allocate, Batch, Kernel, KernelPlan, Launch, Release
from armature.schedule.dependencies import reads_of
from armature.schedule.walk import depends, operands, postorder, recomputed_operands, store_roots


def verify(plan: KernelPlan) -> None:
    """Raise InvariantError naming the kernel or buffer where the plan breaks the promises of `KernelPlan`."""
    names = [work.name for work in plan.launches]
    invariant(len(names) == len(set(names)), "two kernels with one name", names=names)
    for kernel in plan.kernels:
        verify_kernel(kernel, plan)
    _verify_lifetimes(plan)


def _verify_lifetimes(plan: KernelPlan) -> None:
    """Every buffer has memory when it is touched, and keeps it until its last use."""
    alive = {*plan.inputs, *plan.constants}
    shared = shared_memory(plan.steps)
    for step in plan.steps:
        if isinstance(step, Allocate):
            invariant(step.buffer not in alive, "a buffer is made twice", buffer=step.buffer)
            alive.add(step.buffer)
            alive.discard(step.reuse or "")
            invariant(step.reuse not in shared, "memory that others share is reused", buffer=step.reuse)
            over = step.over is None or (step.over in alive.intersection(plan.inputs) and step.over not in shared)
            invariant(over, "memory is used that is no live input's", buffer=step.over)
        elif isinstance(step, Release):
            invariant(step.buffer in alive, "a buffer is released that is not live", buffer=step.buffer)
            alive.discard(step.buffer)
        elif isinstance(step, Launch):
            if isinstance(step.kernel, Batch):
                _verify_batch(step.kernel, plan)
            for name in (*step.kernel.reads, *step.kernel.writes):
                invariant(
                    name in alive, "a kernel touches memory that is not allocated", kernel=step.kernel.name, buffer=name
                )
        elif isinstance(step, ExternCall):
            for name in (*reads_of(step), *step.mutates):
                invariant(name in alive, "an operator reads memory that is not allocated", call=step.name, buffer=name)
            alive.update(name for name in step.outputs if name is not None)
    for output in plan.outputs:
        invariant(not isinstance(output, View) or output.buffer in alive, "an output has no memory", output=output)


def _verify_batch(batch: Batch, plan: KernelPlan) -> None:
    """Members have the same structure, and none touches what another one writes."""
    body_of(batch, plan.buffers)
    users = Counter(name for kernel in batch.members for name in {*kernel.reads, *kernel.writes})
    shared = [name for name in batch.writes if users[name] > 1]
    invariant(not shared, "members of a batch touch one buffer", batch=batch.name, buffers=shared)


def verify_kernel(kernel: Kernel, plan: KernelPlan) -> None:
    """Raise InvariantError if a kernel's passes, variables or argument lists do not agree."""
    where = {"kernel": kernel.name}
    loops = frozenset((*kernel.outer, *kernel.inner))
    invariant(
        len({v.name for v in loops}) == len(kernel.outer) + len(kernel.inner), "loop variables with one name", **where
    )
    invariant(bool(kernel.passes), "a kernel without passes", **where)
    stores = [s for p in kernel.passes for s in (*p.inner_stores, *p.outer_stores)]
    order = postorder(root for s in stores for root in store_roots(s))
    loads = {n.buffer for n in order if isinstance(n, Load)}
    written = {s.buffer for s in stores}
    invariant(set(kernel.writes) == written, "writes differ from the stores", **where, writes=kernel.writes)
    invariant(set(kernel.reads) == loads - written, "reads differ from the loads", **where, reads=kernel.reads)
    inside = [s for p in kernel.passes for s in p.inner_stores if s.buffer in kernel.sums]
    plain = all(s.atomic and not s.indirect for s in inside) and len(inside) == len(kernel.sums)
    invariant(plain and {s.buffer for s in inside} == set(kernel.sums), "sums that inner stores do not make", **where)
    for name in kernel.writes:
        kind = plan.buffers[name].kind
        invariant(kind is not BufferKind.CONSTANT, "a kernel writes a constant", **where, buffer=name)
    free = depends(order)
    for node in order:
        invariant(
            free[node] <= loops, "a value uses a variable that no loop defines", **where, variables=free[node] - loops
        )
        _verify_rank(node, kernel, plan)
    for store in stores:
        _verify_rank(store, kernel, plan)
    _verify_passes(kernel, free)
    used = frozenset().union(*(sizes(v.extent) for v in loops)) if loops else frozenset()
    invariant(used <= frozenset(kernel.sizes), "a size that is not an argument", **where, sizes=used)


def _verify_rank(node: Node | Store, kernel: Kernel, plan: KernelPlan) -> None:
    if isinstance(node, (Load, Store)):
        buffer = plan.buffers[node.buffer]
        invariant(
            len(node.index) == len(buffer.shape),
            "an access has one coordinate per axis",
            kernel=kernel.name,
            buffer=node.buffer,
        )
        dtype = node.dtype if isinstance(node, Load) else node.value.dtype
        invariant(dtype == buffer.dtype, "a dtype other than the buffer's", kernel=kernel.name, buffer=node.buffer)
    elif isinstance(node, IndexValue):
        used = sizes(node.index)
        invariant(used <= frozenset(kernel.sizes), "a size that is not an argument", kernel=kernel.name, sizes=used)


def _verify_passes(kernel: Kernel, free: dict[Node, frozenset[Var]]) -> None:
    """Each pass uses only what earlier ones have reduced, and reads nothing that they have written."""
    inner = frozenset(kernel.inner)
    done: set[Node] = set()
    written: set[str] = set()
    for item in kernel.passes:
        roots = (root for s in (*item.inner_stores, *item.outer_stores) for root in store_roots(s))
        fresh = postorder((*roots, *(r.value for r in item.reductions)), recomputed_operands)
        again = {node.buffer for node in fresh if isinstance(node, Load)} & written
        invariant(not again, "a pass reads what an earlier one has written", kernel=kernel.name, buffers=again)
        written.update(s.buffer for s in (*item.inner_stores, *item.outer_stores))
        for node in item.reductions:
            invariant(node.over == kernel.inner, "a reduction over other variables", kernel=kernel.name, over=node.over)
            _verify_known(operands(node), done, kernel)
        for store in item.inner_stores:
            _verify_known(store_roots(store), done, kernel)
        for scan in (node for node in fresh if isinstance(node, Scan)):
            invariant(scan.over == kernel.inner, "a scan along other variables than the inner ones", kernel=kernel.name)
        done.update(item.reductions)
        for store in item.outer_stores:
            _verify_known(store_roots(store), done, kernel)
            used = frozenset().union(*(variables(i) for i in store.index)) if store.index else frozenset()
            for root in store_roots(store):
                used |= free[root]
            invariant(
                not used & inner, "an outer store uses an inner variable", kernel=kernel.name, buffer=store.buffer
            )


def _verify_known(roots: tuple[Node, ...], done: set[Node], kernel: Kernel) -> None:
    """Every reduction that the roots need was made in an earlier pass."""
    for node in postorder(roots, recomputed_operands):
        if isinstance(node, Reduce):
            invariant(node in done, "a reduction is used before its pass has ended", kernel=kernel.name, op=node.op)
