"""The reference for back ends: evaluates a kernel with torch operators.

Each node is evaluated over the whole iteration space at once, one axis per loop variable, so a case costs as much as a
few eager operators. Sums are computed in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from armature.errors import invariant
from armature.lower.data import Buffer, Const, IndexValue, Load, Masked, Node, Reduce, Scan, Store
from armature.lower.index import FloorDiv, Index, Product, Size, Sum, Var, linear
from armature.schedule.data import Kernel
from armature.testing.loop_evaluator import meaning, put, scanned


def _wide(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Compute 16-bit floats in float32, as kernels do."""

    def run(*args: Tensor) -> Tensor:
        return fn(*(a.float() if a.dtype in (torch.float16, torch.bfloat16) else a for a in args))

    return run


class Reference:
    """One run of a kernel over `memory` (flat storage of each buffer, changed in place) with symbolic `sizes`."""

    def __init__(
        self, kernel: Kernel, buffers: Mapping[str, Buffer], memory: Mapping[str, Tensor], sizes: Mapping[str, int]
    ) -> None:
        self.kernel = kernel
        self.buffers = buffers
        self.memory = memory
        self.sizes = sizes
        self.device = kernel.device
        self.extents = {v: self.number(v.extent) for v in (*kernel.outer, *kernel.inner)}
        self.axes = {v: axis for axis, v in enumerate(self.extents)}
        self.reduced: dict[int, Tensor] = {}

    def run(self) -> None:
        """Run all passes. Errors: IndexError if a checked index is out of range."""
        for name in self.kernel.sums:
            self.memory[name].zero_()
        every = tuple(self.extents.values())
        points = tuple(1 if v in self.kernel.inner else n for v, n in self.extents.items())
        for step in self.kernel.passes:
            memo: dict[tuple[int, int], Tensor] = {}
            found = {id(r): self.reduce(r, memo, every) for r in step.reductions}
            self.stores(step.inner_stores, memo, every)
            self.reduced.update(found)
            self.stores(step.outer_stores, {}, points)  # a new memo, because later values see inner stores

    def number(self, index: Index) -> int:
        """Value of an index without loop variables."""
        return int(self.index(index, {}))

    def index(self, index: Index, bound: Mapping[Var, Tensor]) -> Tensor:
        """Value of an index at every point: int64, broadcasting against the iteration space."""
        if isinstance(index, int):
            return torch.tensor(index, device=self.device)
        if isinstance(index, Size):
            return torch.tensor(self.sizes[index.name], device=self.device)
        if isinstance(index, Var):
            return bound[index] if index in bound else self.counter(index)
        if isinstance(index, Sum):
            total = torch.tensor(index.const, device=self.device)
            for factor, coefficient in index.terms:
                total = total + self.index(factor, bound) * coefficient
            return total
        if isinstance(index, Product):
            product = self.index(index.factors[0], bound)
            for factor in index.factors[1:]:
                product = product * self.index(factor, bound)
            return product
        num, den = self.index(index.num, bound), self.index(index.den, bound)
        return torch.div(num, den, rounding_mode="floor") if isinstance(index, FloorDiv) else torch.remainder(num, den)

    def counter(self, var: Var) -> Tensor:
        """0, 1, 2 ... along the axis of the variable."""
        invariant(var in self.axes, "a variable of no loop", variable=var.name, kernel=self.kernel.name)
        shape = [1] * len(self.axes)
        shape[self.axes[var]] = self.extents[var]
        return torch.arange(self.extents[var], device=self.device).view(shape)

    def where(
        self, name: str, index: Sequence[Index], indirect: Sequence[tuple[Var, Node]],
        memo: dict[tuple[int, int], Tensor], mask: Tensor | None,
    ) -> Tensor:  # fmt: skip
        """Position in the buffer's storage, 0 where the mask is false."""
        bound = {v: self.value(node, memo, mask).to(torch.int64) for v, node in indirect}
        place = self.index(linear(index, self.buffers[name].strides), bound)
        return place if mask is None else torch.where(mask, place, 0)

    def value(self, node: Node, memo: dict[tuple[int, int], Tensor], mask: Tensor | None = None) -> Tensor:
        """The node at every point, broadcasting. `mask`: the points where it is needed."""
        key = (id(node), id(mask))
        if key not in memo:
            memo[key] = self._value(node, memo, mask)
        return memo[key]

    def _value(self, node: Node, memo: dict[tuple[int, int], Tensor], mask: Tensor | None) -> Tensor:
        """The node at every point, computed from its operands."""
        if isinstance(node, Const):
            return torch.tensor(node.value, dtype=node.dtype, device=self.device)
        if isinstance(node, IndexValue):
            return self.index(node.index, {}).to(node.dtype)
        if isinstance(node, Load):
            flat = self.memory[node.buffer]
            place = self.where(node.buffer, node.index, node.indirect, memo, mask)
            return flat[place.reshape(-1)].reshape(place.shape) if place.numel() else flat.new_empty(place.shape)
        if isinstance(node, Masked):
            cond = self.value(node.cond, memo, mask)
            inner = cond if mask is None else cond & mask
            memo[(-1, id(inner))] = inner  # holds the mask, and so its id, while the memo lives
            return torch.where(cond, self.value(node.value, memo, inner), self.value(node.other, memo))
        if isinstance(node, Reduce):
            return self.reduced[id(node)]
        if isinstance(node, Scan):
            return self.scan(node, memo)
        args = [self.value(a, memo, mask) for a in node.args]
        if node.op == "cast":
            return args[0].to(node.dtype)
        if node.op == "bitcast":
            return args[0].view(node.dtype)
        if node.op == "check_index":
            return self.check_index(args[0], args[1], mask)
        return _wide(meaning(node.op))(*args).to(node.dtype)

    def check_index(self, value: Tensor, size: Tensor, mask: Tensor | None) -> Tensor:
        bad = (value < 0) | (value >= size)
        if bool((bad if mask is None else bad & mask).any()):
            raise IndexError(f"index out of range in {self.kernel.name}")
        return value

    def reduce(self, node: Reduce, memo: dict[tuple[int, int], Tensor], every: tuple[int, ...]) -> Tensor:
        """The reduction, with axes of size 1 in place of the inner ones."""
        value = self.value(node.value, memo).broadcast_to(every)
        dims = [self.axes[v] for v in node.over]
        kept = [1 if axis in dims else n for axis, n in enumerate(every)]
        flat = value.movedim(dims, list(range(-len(dims), 0))).flatten(-len(dims)) if dims else value.unsqueeze(-1)
        return _REDUCE[node.op](flat).to(node.dtype).reshape(kept)

    def scan(self, node: Scan, memo: dict[tuple[int, int], Tensor]) -> Tensor:
        """The scan at every point, also where no mask asks for it."""
        every = [self.extents[var] for var in sorted(self.axes, key=self.axes.__getitem__)]
        return scanned(node, self.value(node.value, memo).broadcast_to(every), [self.axes[v] for v in node.over])

    def stores(self, stores: Sequence[Store], memo: dict[tuple[int, int], Tensor], space: tuple[int, ...]) -> None:
        """Make the stores, after all loads that any of them needs."""
        ready: list[tuple[Store, Tensor, Tensor]] = []
        for store in stores:
            value = self.value(store.value, memo).broadcast_to(space)
            place = self.where(store.buffer, store.index, store.indirect, memo, None).broadcast_to(space)
            ready.append((store, place, value))
        for store, place, value in ready:
            flat = self.memory[store.buffer]
            if store.atomic:
                put(store, flat, (place,), value)
            else:
                flat.index_put_((place.reshape(-1),), value.reshape(-1).to(flat.dtype))


def _sum(flat: Tensor) -> Tensor:
    return flat.double().sum(-1) if flat.dtype.is_floating_point else flat.sum(-1)


def _xor(flat: Tensor) -> Tensor:
    out = torch.zeros(flat.shape[:-1], dtype=flat.dtype, device=flat.device)
    for item in flat.unbind(-1):
        out = out ^ item
    return out


_REDUCE: Mapping[str, Callable[[Tensor], Tensor]] = {
    "sum": _sum,
    "prod": lambda flat: flat.double().prod(-1) if flat.dtype.is_floating_point else flat.prod(-1),
    "logsumexp": lambda flat: flat.double().logsumexp(-1),
    "max": lambda flat: flat.amax(-1),
    "min": lambda flat: flat.amin(-1),
    "any": lambda flat: flat.any(-1),
    "all": lambda flat: flat.all(-1),
    "xor": _xor,
    "argmax": lambda flat: flat.argmax(-1),
    "argmin": lambda flat: flat.argmin(-1),
}


def run_reference(
    kernel: Kernel, buffers: Mapping[str, Buffer], memory: Mapping[str, Tensor], sizes: Mapping[str, int] | None = None
) -> None:
    """Run `kernel` on the flat storages in `memory`, changing those that it writes. Errors: IndexError."""
    Reference(kernel, buffers, memory, sizes or {}).run()
