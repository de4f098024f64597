"""Replaces attention written as two products with a softmax in between by `scaled_dot_product_attention`, where the
device's kernels pay (`attention_kernels.py`) and compute the same. Attention with an active dropout is left alone, to
keep its own random numbers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from functools import partial

import attrs
import torch
from torch import Tensor, fx
from torch.nn import functional

from armature.plugin_api import (
    Functions,
    Match,
    Services,
    fake_of,
    function_of,
    is_replaceable,
    replace_match,
    runs_fused,
)
from armature_aten_lowerings.attention_forms import Step, Written, compute_instead_of_writing, read
from armature_aten_lowerings.attention_kernels import HALVES, KERNELS, Kernels
from armature_aten_lowerings.blind_queries import (
    AddedMask,
    BoolMask,
    attended,
    consists_of,
    hides_or_shows,
    is_exact_in,
    is_finite,
    sees_a_key,
)
from armature_aten_lowerings.einsums import as_products

PRODUCTS = frozenset((
    functional.linear, operator.matmul, torch.matmul, torch.bmm, torch.mm, torch.addmm, functional.embedding,
))  # fmt: skip
NOTHING = -1e9
"""A score that is replaced by at most this has no weight beside another; in float16, by the least number."""
ABSORBS = -1e30
"""A number to which a score may be added without a change, even in double precision."""


@attrs.frozen(eq=False)
class Masks:
    """What the operator is given: the scores' factor, and the steps that make its mask. fill: what stands for hidden
    scores, if the mask is one of truth values; None for a mask to be added."""

    factor: float
    steps: tuple[Step, ...] = ()
    fill: float | None = None

    @property
    def mixes(self) -> bool:
        """Whether a mask to be added stands for steps that fill too. In rows without a key that is seen, it lets
        gradients through where a fill does not."""
        return self.fill is None and {"filled", "shown"} & {step.kind for step in self.steps} != set()

    @classmethod
    def of(cls, steps: Sequence[Step], dtype: torch.dtype) -> Masks | None:
        """The mask that has the effect of all steps; None if there is none for sure."""
        factor, kept, fills, limit = 1.0, list[Step](), list[float](), NOTHING
        for step in steps:
            if step.kind == "scaled":
                factor *= step.value
                if not kept:
                    continue
                if step.value <= 0:
                    return None
                fills = [fill * step.value for fill in fills]
            elif step.kind != "added":
                least = torch.finfo(step.result.dtype).min
                limit = max(limit, least)
                fills.append(step.value if step.value >= least else -math.inf)
            kept.append(step)
        if not factor or max(fills, default=-math.inf) > limit:
            return None
        if not fills or any(step.kind == "added" for step in kept):
            narrow = all(step.result.dtype is torch.float16 for step in kept)
            fit = (fill <= (torch.finfo(dtype).min if narrow else ABSORBS) for fill in fills)
            return cls(factor, tuple(kept)) if all(fit) else None
        # In a row without a key that is seen, those with the largest number share the weight.
        hiding = tuple(step for step in kept if step.kind != "scaled")
        return cls(factor, hiding, fills[0]) if len(set(fills)) == 1 else None


@attrs.frozen(eq=False)
class Replacement:
    """Makes the calls that replace attention. lead: the axes before those of queries and keys: batches, heads, and what
    shares a head of keys. written: as it was."""

    written: Written
    masks: Masks
    lead: tuple[int, ...]
    kernels: Kernels
    functions: Functions

    def __call__(self, query: Tensor, keys: Tensor, value: Tensor, **masks: Tensor) -> object:
        query, key, given, mask = self.operands(query, keys, value, masks)
        fill, scale = self.masks.fill, self.masks.factor
        if mask is None or sees_a_key(node_of(mask)) or self.is_exact(node_of(mask)):
            mask = mask.to(self.dtype) if mask is not None and self.is_wide else mask
            mixed = attended(query, key, given, mask, scale)
        elif fill is not None:
            mixed = BoolMask(self.dtype, fill, scale, self.written.cleared != ())(query, key, given, mask)
        else:
            count = fake_of(self.written.keys).shape[-1]
            mixed = AddedMask(self.dtype, self.added_to, count, scale, self.training)(query, key, given, mask)
        if fake_of(self.written.root).dim() == 3:
            return mixed.squeeze(0) if self.lead[0] == 1 else mixed.flatten(0, 1)
        return mixed if len(self.lead) == 2 else mixed.unflatten(1, self.lead[1:])

    @property
    def dtype(self) -> torch.dtype:
        """That of all the operator is given."""
        dtype: torch.dtype = fake_of(self.written.root).dtype
        return dtype

    @property
    def is_wide(self) -> bool:
        """Whether a mask to be added may be in float32 within 16 bits."""
        return self.masks.mixes or any(
            step.kind == "added" and fake_of(step.mask).dtype is not self.dtype for step in self.masks.steps
        )

    @property
    def training(self) -> bool:
        """Whether scores have gradients."""
        return any(fake_of(one).requires_grad for one in (self.written.query, self.written.keys))

    @property
    def added_to(self) -> torch.dtype:
        """The dtype of scores to which a mask is added; the narrowest, if there are several."""
        dtypes = [step.result.dtype for step in self.masks.steps if step.kind == "added"]
        return max(dtypes, key=lambda dtype: torch.finfo(dtype).eps)

    def is_exact(self, mask: fx.Node) -> bool:
        """Whether the kernel's results are right with a mask of numbers, even where no key is seen."""
        if self.masks.fill is not None or self.training or self.is_wide or self.added_to is torch.float16:
            return False
        return consists_of(mask, partial(is_finite, largest=torch.finfo(self.dtype).max), self.functions)

    def operands(
        self, query: Tensor, keys: Tensor, value: Tensor, masks: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """What the operator is given, in the result's dtype, as by autocast or before a cast to float32."""
        product, result = fake_of(self.written.product).dim(), fake_of(self.written.root).dim()
        q, k, v = (faked(one) for one in (query, keys, value))
        given = [
            self.with_lead(query, q.shape, product),
            self.with_lead(keys.transpose(-2, -1), k.mT.shape, product),
            self.with_lead(value, v.shape, result),
        ]
        made = [one if fake.dtype is self.dtype else one.to(self.dtype) for one, fake in zip(given, (q, k, v))]
        return made[0], made[1], made[2], self.mask(masks)

    def with_lead(self, tensor: Tensor, sizes: Sequence[int], axes: int) -> Tensor:
        """A tensor with all batches and heads. axes: of the scores that it is used with."""
        made = self.four_axes(tensor, sizes, axes)
        whole = len(self.lead) > 2 or math.prod(sizes[:-2]) == math.prod(self.lead)
        return made if whole else made.expand(*self.lead, *sizes[-2:])

    def four_axes(self, tensor: Tensor, sizes: Sequence[int], axes: int) -> Tensor:
        """A tensor with axes for batches and heads. axes: of the scores that it is used with; 3, with one for both."""
        if axes == len(sizes) == 3 and sizes[0] != 1 and self.lead[0] != 1:
            return torch.unflatten(tensor, 0, self.lead)
        for _ in range(len(self.lead) + 2 - len(sizes)):
            tensor = tensor.unsqueeze(0)
        if len(self.lead) == 2:
            return tensor
        if math.prod(sizes[-4:-2]) == 1:
            return tensor.squeeze(2)
        return tensor.expand(-1, *self.lead[1:], -1, -1).flatten(1, 2)

    def is_fused(self, bound: Mapping[str, fx.Node]) -> bool:
        """Whether a kernel of the device takes what the operator is given."""
        if not self.kernels.chosen:
            return True
        root = fake_of(self.written.root)
        # an input's fake is another, from before the writes, if the program writes to one
        fakes = {name: one.meta.get("traced_value", fake_of(one)) for name, one in bound.items()}
        with root.fake_mode, torch.set_grad_enabled(root.requires_grad):
            masks = {name: fake for name, fake in fakes.items() if name.startswith("mask")}
            query, key, value, mask = self.operands(fakes["query"], fakes["keys"], fakes["value"], masks)
            return runs_fused(query, key, value, mask.to(self.dtype) if self.is_wide and mask is not None else mask)

    def mask(self, given: Mapping[str, Tensor]) -> Tensor | None:
        """The mask as the kernel takes it: true where a key is visible, or numbers to add."""
        made: Tensor | None = None
        for place, step in enumerate(self.masks.steps):
            if step.kind == "scaled":
                made = made if made is None else torch.mul(made, step.value)
                continue
            part = given[f"mask_{place}"]
            part = self.four_axes(part, faked(part).shape, step.result.dim())
            if self.masks.fill is not None:
                shown = part if step.kind == "shown" else torch.logical_not(part)
                made = shown if made is None else torch.logical_and(made, shown)
            elif step.kind == "added":
                part = part if step.value == 1 else torch.mul(part, step.value)
                made = part if made is None else torch.add(made, part)
            else:
                hidden = torch.logical_not(part) if step.kind == "shown" else part
                before = hidden if made is None else made
                made = torch.where(hidden, step.value, before.to(step.result.dtype))
        return made


def node_of(value: object) -> fx.Node:
    """The node of a value of the replacement, which is called with proxies."""
    if not isinstance(value, fx.Proxy):
        raise TypeError(f"a replacement is called with proxies, not with {type(value).__name__}")
    return value.node


def faked(value: Tensor) -> Tensor:
    """The fake of a value of the replacement, which is called with proxies; that of a fake is itself."""
    fake: Tensor = fake_of(value.node) if isinstance(value, fx.Proxy) else value
    return fake


def replacement_of(written: Written, functions: Functions) -> Replacement | None:
    """What replaces attention, if the operator is equivalent, and faster."""
    query, keys, value, result = map(fake_of, (written.query, written.keys, written.value, written.root))
    tensors = (query, keys, value, result, fake_of(written.product), fake_of(written.softmax))
    if not all(isinstance(one, Tensor) and one.dim() in (3, 4, 5) for one in tensors):
        return None
    kernels = KERNELS.get(query.device.type)
    numbers = all(type(n) is int for one in tensors for n in one.shape)
    if not numbers or kernels is None or not has_dtypes_of_the_kernel(written, functions) or written.dropped:
        return None
    masks, lead = Masks.of(written.steps, result.dtype), batches_and_heads(written)
    fits = (
        query.shape[-1] == keys.shape[-2] == value.shape[-1]
        and keys.shape[-1] == value.shape[-2]
        and result.is_contiguous()
        and all(_gets_same_gradient(one) for one in (written.query, written.keys, written.value))
        and all(_is_plain(step, result.dtype, functions) for step in written.steps)
    )
    if masks is None or lead is None or not fits:
        return None
    made = Replacement(written, masks, lead, kernels, functions)
    if (made.training and masks.mixes) or not _clears_what_it_hides(made):
        return None  # the gradients of hidden scores would be others
    scores = (*lead, query.shape[-2], keys.shape[-1])
    return made if kernels.pay(query.shape[-1], result.dtype, scores, result.requires_grad) else None


def _clears_what_it_hides(made: Replacement) -> bool:
    """Whether weights are set to zero at most where the only mask hides scores, and gradients are not NaN there."""
    if not made.written.cleared:
        return True
    hiding = {step.mask for step in made.masks.steps}
    same = made.masks.fill is not None and len(made.masks.steps) == 1 and set(made.written.cleared) == hiding
    return same and made.masks.steps[0].kind == "filled" and not (made.training and made.masks.fill == -math.inf)


def batches_and_heads(written: Written) -> tuple[int, ...] | None:
    """The sizes of the axes for batches and heads, if scores and result have the same; a single axis counts as heads.
    Where views make one axis of both, those of the views."""
    nodes = (written.product, written.softmax, written.root, *(step.scores for step in written.steps))
    leads = {tuple(fake_of(node).shape[:-2]) for node in nodes if node is not None}
    longest = max(leads, key=len)
    if len({math.prod(lead) for lead in leads}) > 1 or len({lead for lead in leads if len(lead) > 1}) > 1:
        return None
    return (1, *longest) if len(longest) == 1 else longest


def has_dtypes_of_the_kernel(written: Written, functions: Functions) -> bool:
    """Whether all is computed in the result's dtype, or in float32 within 16 bits: scores, as by the kernels, and
    queries and keys of 16 bits that are cast for their product. Autocast casts the operands of a product."""
    dtype, product = fake_of(written.root).dtype, fake_of(written.product).dtype
    wide = {dtype, torch.float32} if dtype in HALVES else {dtype}
    ends = [written.query, written.keys, written.value]
    inner = [one for node in (*ends, *written.nodes) if isinstance(one := fake_of(node), Tensor)]
    if not dtype.is_floating_point or not {one.dtype for one in inner if one.is_floating_point()} <= wide:
        return False
    if product is dtype:
        return True
    sources = (written.query, written.keys)
    return fake_of(written.value).dtype is dtype and all(is_exact_in(one, dtype, functions) for one in sources)


def _gets_same_gradient(node: object) -> bool:
    """Whether the kernels' gradients, which have another layout than eager mode's, are never visible to the program:
    each passes through a product on its way to an input, or ends in a sum."""
    todo, seen = [node], set[object]()
    while todo:
        current = todo.pop()
        if current in seen or not getattr(fake_of(current), "requires_grad", True):
            continue
        seen.add(current)
        if not isinstance(current, fx.Node) or function_of(current) in PRODUCTS:
            continue
        if current.op in ("placeholder", "get_attr") and fake_of(current).dim() > 1:
            return False
        todo += current.all_input_nodes
    return True


def _is_plain(step: Step, dtype: torch.dtype, functions: Functions) -> bool:
    """Whether the kernel takes a step's mask."""
    if step.mask is None:
        return True
    mask = fake_of(step.mask)
    if not isinstance(mask, Tensor) or mask.requires_grad or mask.dim() not in range(1, step.result.dim() + 1):
        return False
    if step.kind == "added" and mask.dtype is torch.float32 and dtype in HALVES:
        return consists_of(step.mask, hides_or_shows, functions)
    return mask.dtype is (dtype if step.kind == "added" else torch.bool)


def use_attention(module: object, ctx: Services) -> object:
    """The pass."""
    if not isinstance(module, fx.GraphModule):
        return module
    einsums = as_products(module)
    compute_instead_of_writing(module)
    changed = False
    for node in list(module.graph.nodes):
        written = read(node, ctx.functions)
        made = None if written is None else replacement_of(written, ctx.functions)
        if written is None or made is None:
            continue
        masks = {f"mask_{place}": step.mask for place, step in enumerate(made.masks.steps) if step.mask is not None}
        bound = {"query": written.query, "keys": written.keys, "value": written.value, **masks}
        match = Match(node, bound, written.nodes)
        if is_replaceable(match) and made.is_fused(bound):
            replace_match(module.graph, match, made, "attention")
            changed = True
    for one in einsums:
        one.restore(module.graph)
    if changed or einsums:
        module.recompile()
    return module
