"""Replaces attention written as two products with a softmax in between by `scaled_dot_product_attention`.

Its CPU kernels never write the scores of all queries and keys to memory. That pays from WORTH scores on, with gradients
too (measured with one thread, as CPU time: 0.55 to 0.85 of the loops' in inference, 0.8 to 1.02 in training; below that
up to 1.4 times as much; in float16 0.4 and 0.9). In bfloat16, a library's products and the loops are as fast or faster
(where the CPU computes in it: 0.93 to 1.47 of the loops' time, in training 1.06 to 2), so only the memory counts, from
128 MB of scores on. Attention with an active dropout is left alone, to keep its own random numbers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence

import attrs
import torch
from torch import Tensor, fx
from torch.nn import functional

from armature.plugin_api import KnownValues, Match, Services, fake_of, function_of, is_replaceable, replace_match
from armature_aten_lowerings.attention_forms import Step, Written, compute_instead_of_writing, read
from armature_aten_lowerings.einsums import as_products
from armature_aten_lowerings.masks import value_if_known

WORTH = 1 << 19
WORTH_IN_BFLOAT16 = 1 << 26
PRODUCTS = frozenset((
    functional.linear, operator.matmul, torch.matmul, torch.bmm, torch.mm, torch.addmm, functional.embedding,
))  # fmt: skip
NOTHING = -1e9
"""A score that is replaced by at most this has no weight beside another."""
ABSORBS = -1e30
"""A number to which a score may be added without a change, even in double precision."""
HALVES = (torch.float16, torch.bfloat16)


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
        factor, kept, fills = 1.0, list[Step](), list[float]()
        for step in steps:
            if step.kind == "scaled":
                factor *= step.value
                if not kept:
                    continue
                if step.value <= 0:
                    return None
                fills = [fill * step.value for fill in fills]
            elif step.kind != "added":
                fills.append(step.value)
            kept.append(step)
        least = torch.finfo(dtype).min
        fills = [fill if fill >= least else -math.inf for fill in fills]
        if not factor or max(fills, default=-math.inf) > NOTHING:
            return None
        adds = any(step.kind == "added" for step in kept)
        if not fills or adds:
            return cls(factor, tuple(kept)) if max(fills, default=-math.inf) <= ABSORBS else None
        # In a row without a key that is seen, those with the largest number share the weight.
        hiding = tuple(step for step in kept if step.kind != "scaled")
        return cls(factor, hiding, fills[0]) if len(set(fills)) == 1 else None


@attrs.frozen(eq=False)
class Replacement:
    """Makes the calls that replace attention. lead: the first two axes, batches and heads. written: as it was."""

    written: Written
    masks: Masks
    lead: tuple[int, int]

    def __call__(self, query: Tensor, keys: Tensor, value: Tensor, **masks: Tensor) -> object:
        product, result = fake_of(self.written.product).dim(), fake_of(self.written.root).dim()
        given = [self.four_axes(query, product), self.four_axes(keys, product), self.four_axes(value, result)]
        fakes = [fake_of(node_of(one)) for one in (query, keys, value)]
        given = [
            one if self.has_lead(fake) else one.expand(*self.lead, *fake.shape[-2:])
            for one, fake in zip(given, fakes, strict=True)
        ]
        mask = self.mask(masks)
        mixed = functional.scaled_dot_product_attention(
            given[0], given[1].transpose(-2, -1), given[2], attn_mask=mask, scale=self.masks.factor
        ).contiguous()
        if mask is not None and not each_sees_a_key(node_of(mask)):
            mixed = with_blind_queries(mixed, given[2], mask, self.masks.fill, fakes[2].dtype)
        if result == 4:
            return mixed
        return mixed.squeeze(0) if self.lead[0] == 1 else mixed.flatten(0, 1)

    def has_lead(self, fake: Tensor) -> bool:
        """Whether a tensor has all batches and heads."""
        return math.prod(fake.shape[:-2]) == math.prod(self.lead)

    def four_axes(self, tensor: Tensor, axes: int) -> Tensor:
        """A tensor with axes for batches and heads. axes: of the scores that it is used with; 3, with one for both."""
        fake = fake_of(node_of(tensor))
        if axes == fake.dim() == 3 and fake.shape[0] != 1 and self.lead[0] != 1:
            return torch.unflatten(tensor, 0, self.lead)
        for _ in range(4 - fake.dim()):
            tensor = tensor.unsqueeze(0)
        return tensor

    def mask(self, given: Mapping[str, Tensor]) -> Tensor | None:
        """The mask as the kernel takes it: true where a key is visible, or numbers to add."""
        made: Tensor | None = None
        for place, step in enumerate(self.masks.steps):
            if step.kind == "scaled":
                made = made if made is None else torch.mul(made, step.value)
                continue
            part = self.four_axes(given[f"mask_{place}"], step.result.dim())
            if self.masks.fill is not None:
                shown = part if step.kind == "shown" else torch.logical_not(part)
                made = shown if made is None else torch.logical_and(made, shown)
            elif step.kind == "added":
                part = self.addend(part, step)
                made = part if made is None else torch.add(made, part)
            else:
                hidden = torch.logical_not(part) if step.kind == "shown" else part
                made = torch.where(hidden, step.value, 0.0 if made is None else made).to(self.mask_dtype)
        return made

    @property
    def mask_dtype(self) -> torch.dtype:
        """The dtype of a mask to be added."""
        dtype: torch.dtype = fake_of(self.written.query).dtype
        return torch.float32 if dtype is torch.float16 else dtype

    def addend(self, part: Tensor, step: Step) -> Tensor:
        """What a step adds. Scores in float16 are lost beside its least number, but not in the kernel, which computes
        in float32: this shows in rows without a key that is seen."""
        if self.mask_dtype is not fake_of(step.mask).dtype:
            least = torch.finfo(torch.float16).min
            wide = part.to(self.mask_dtype)
            part = torch.where(part == least, ABSORBS, wide) if step.result.dtype is torch.float16 else wide
        return part if step.value == 1 else torch.mul(part, step.value)


def node_of(value: object) -> fx.Node:
    """The node of a value of the replacement, which is called with proxies."""
    if not isinstance(value, fx.Proxy):
        raise TypeError(f"a replacement is called with proxies, not with {type(value).__name__}")
    return value.node


def each_sees_a_key(mask: fx.Node) -> bool:
    """Whether each query is known to see a key."""
    known = value_if_known(mask, KnownValues())
    if known is None:
        return False
    return bool((known if known.dtype is torch.bool else known > -math.inf).any(-1).all())


def with_blind_queries(mixed: Tensor, value: Tensor, mask: Tensor, fill: float | None, dtype: torch.dtype) -> Tensor:
    """The result corrected for queries that see no key, where the kernel returns zeros. Eager mode returns the mean of
    the values if all scores are equal, and NaN if they are minus infinity."""
    if fill is None:
        blind = mask.amax(-1, True) == -math.inf
        return mixed * nan_where(blind, dtype)  # a product, so that gradients become NaN too
    blind = torch.logical_not(mask.any(-1, True))
    mean = value.mean(-2, True)
    if fill == -math.inf:
        # NaN only if a query is blind: otherwise gradients of zero would become NaN.
        mean = mean * nan_where(blind.any(-2, True), dtype)
    return torch.where(blind, mean, mixed)


def nan_where(condition: Tensor, dtype: torch.dtype) -> Tensor:
    """Factors: NaN under the condition, 1 elsewhere. torch takes two numbers for float32."""
    return torch.where(condition, math.nan, 1.0).to(dtype)


def replacement_of(written: Written) -> Replacement | None:
    """What replaces attention, if the operator is equivalent, and faster."""
    query, keys, value, result = map(fake_of, (written.query, written.keys, written.value, written.root))
    tensors = (query, keys, value, result, fake_of(written.product), fake_of(written.softmax))
    if not all(isinstance(one, Tensor) and one.dim() in (3, 4) for one in tensors):
        return None
    numbers = all(type(n) is int for one in tensors for n in one.shape)
    if not numbers or query.device.type != "cpu" or not has_dtypes_of_the_kernel(written) or written.dropped:
        return None
    masks, lead = Masks.of(written.steps, query.dtype), batches_and_heads(written)
    if query.requires_grad or keys.requires_grad:
        masks = None if masks is None or masks.mixes else masks
    fits = (
        query.shape[-1] == keys.shape[-2] == value.shape[-1]
        and keys.shape[-1] == value.shape[-2]
        and result.is_contiguous()
        and all(_gets_same_gradient(one) for one in (written.query, written.keys, written.value))
        and all(_is_plain(step, query.dtype) for step in written.steps)
    )
    if masks is None or lead is None or not fits:
        return None
    least = WORTH_IN_BFLOAT16 if query.dtype is torch.bfloat16 else WORTH
    return (
        Replacement(written, masks, lead)
        if math.prod((*lead, *keys.shape[-1:], *query.shape[-2:-1])) >= least
        else None
    )


def batches_and_heads(written: Written) -> tuple[int, int] | None:
    """The sizes of the axes for batches and heads, if scores and result have the same; a single axis counts as heads.
    Where views make one axis of both, those of the views."""
    nodes = (written.product, written.softmax, written.root, *(step.scores for step in written.steps))
    leads = {tuple(fake_of(node).shape[:-2]) for node in nodes if node is not None}
    if len({math.prod(lead) for lead in leads}) > 1 or len({lead for lead in leads if len(lead) == 2}) > 1:
        return None
    longest = max(leads, key=len)
    return (longest[-2] if len(longest) == 2 else 1, longest[-1]) if len(longest) in (1, 2) else None


def has_dtypes_of_the_kernel(written: Written) -> bool:
    """Whether all is computed in the dtype of queries, keys and values. The kernels have scores of 16 bits in float32,
    and so may the program."""
    ends = (written.query, written.keys, written.value, written.product, written.root)
    [dtype, *others] = {fake_of(node).dtype for node in ends}
    if others or not dtype.is_floating_point:
        return False
    inner = {
        one.dtype for node in written.nodes if isinstance(one := fake_of(node), Tensor) and one.is_floating_point()
    }
    return inner <= ({dtype, torch.float32} if dtype in HALVES else {dtype})


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


def _is_plain(step: Step, dtype: torch.dtype) -> bool:
    """Whether the kernel takes a step's mask."""
    if step.mask is None:
        return True
    mask = fake_of(step.mask)
    if not isinstance(mask, Tensor) or mask.requires_grad or mask.dim() not in range(1, step.result.dim() + 1):
        return False
    return mask.dtype is (dtype if step.kind == "added" else torch.bool)


def use_attention(module: object, ctx: Services) -> object:
    """The pass."""
    if not isinstance(module, fx.GraphModule):
        return module
    einsums = as_products(module, WORTH)
    compute_instead_of_writing(module, WORTH)
    changed = False
    for node in list(module.graph.nodes):
        written = read(node, ctx.functions)
        made = None if written is None else replacement_of(written)
        if written is None or made is None:
            continue
        masks = {f"mask_{place}": step.mask for place, step in enumerate(made.masks.steps) if step.mask is not None}
        bound = {"query": written.query, "keys": written.keys, "value": written.value, **masks}
        match = Match(node, bound, written.nodes)
        if is_replaceable(match):
            replace_match(module.graph, match, made, "attention")
            changed = True
    for one in einsums:
        one.restore(module.graph)
    if changed or einsums:
        module.recompile()
    return module
