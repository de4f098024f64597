"""Restores eager behaviour of torch's optimizers, which behave differently when they are being compiled.

In eager mode they read numbers such as the step count from tensors by `.item()`; when compiled, they compute with the
tensors. In double precision, that of Python's floats, the results are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

import attrs
import torch

from armature.plugin_api import AS_CAPTURED, Call, TracedTensor, Value, call_uncompiled, existing, handles

OF_PRODUCTS = (torch.addcmul, torch.Tensor.addcmul)
OF_QUOTIENTS = (torch.addcdiv, torch.Tensor.addcdiv)


@handles(*existing("torch.optim.optimizer._get_value"))
def number_of(call: Call, x: Value) -> Value | None:
    """The number in a tensor, as a 0-d tensor of double precision."""
    if not isinstance(x, TracedTensor) or not x.dtype.is_floating_point or x.fake.numel() != 1:
        return None
    return call.graph_call("reshape", call.graph_call("double", x), call.constant(()))


@handles(torch.Tensor.addcdiv_, torch.Tensor.addcmul_, *OF_PRODUCTS, *OF_QUOTIENTS)
def scaled_addition(call: Call, self: Value, *args: Value, value: Value | None = None, **kwargs: Value) -> Value | None:
    """An addition with a tensor as factor, whose value torch itself would read. The graph would also compute gradients
    for a factor that requires them."""
    if not isinstance(value, TracedTensor) or value.fake.requires_grad or len(args) != 2 or kwargs:
        return None
    added = add_quotient if call.fn is torch.Tensor.addcdiv_ or call.fn in OF_QUOTIENTS else add_product
    if call.fn in (torch.Tensor.addcdiv_, torch.Tensor.addcmul_):
        return call.polyfill(added, self, *args, value)
    if {item.dtype for item in (self, *args) if isinstance(item, TracedTensor)} not in (
        {torch.float32},
        {torch.float64},
    ):
        return None  # narrower ones would be rounded more than once
    return call.polyfill(added, call.graph_call("clone", self), *args, value)


Tensors = Sequence[torch.Tensor]


def add_quotient(
    self: torch.Tensor, tensor1: torch.Tensor, tensor2: torch.Tensor, value: torch.Tensor | float
) -> torch.Tensor:
    """`self.addcdiv_(tensor1, tensor2, value=value)`."""
    return self.add_(value * tensor1 / tensor2)


def add_product(
    self: torch.Tensor, tensor1: torch.Tensor, tensor2: torch.Tensor, value: torch.Tensor | float
) -> torch.Tensor:
    """`self.addcmul_(tensor1, tensor2, value=value)`."""
    return self.add_(value * tensor1 * tensor2)


@handles(torch._foreach_addcdiv_, torch._foreach_addcmul_)
def scaled_additions(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """The same on lists of tensors, with a tensor of factors, or a list of one-element tensors."""
    if len(args) != 4 or kwargs or not (isinstance(args[3], TracedTensor) or holds_tensors(call, args[3])):
        return on_lists(call, *args, **kwargs)
    return call.polyfill(add_quotients if call.fn is torch._foreach_addcdiv_ else add_products, *args)


def holds_tensors(call: Call, value: Value) -> bool:
    """Whether it is a list or tuple that contains a tensor."""
    if not issubclass(value.python_type(), (list, tuple)):
        return False
    return any(isinstance(item, TracedTensor) for item in call.tracing.unpack(value))


def add_quotients(self: Tensors, tensors1: Tensors, tensors2: Tensors, scalars: Iterable[torch.Tensor]) -> None:
    """`torch._foreach_addcdiv_(self, tensors1, tensors2, scalars)`."""
    for own, tensor1, tensor2, value in zip(self, tensors1, tensors2, scalars):
        add_quotient(own, tensor1, tensor2, value)


def add_products(self: Tensors, tensors1: Tensors, tensors2: Tensors, scalars: Iterable[torch.Tensor]) -> None:
    """`torch._foreach_addcmul_(self, tensors1, tensors2, scalars)`."""
    for own, tensor1, tensor2, value in zip(self, tensors1, tensors2, scalars):
        add_product(own, tensor1, tensor2, value)


@handles(*existing("torch._C._group_tensors_by_device_and_dtype"))
def grouped(call: Call, tensorlistlist: Value, with_indices: Value | None = None) -> Value | None:
    """Lists of tensors by device and dtype, grouped as torch groups the fakes, because sums of norms follow that
    order."""
    if with_indices is not None and not with_indices.is_constant:
        return None
    lists = [call.tracing.unpack(row) for row in call.tracing.unpack(tensorlistlist)]
    known = [[fake_or_none(item) for item in row] for row in lists]
    sizes = {len(row) for row in known if row}
    if (
        len(sizes) != 1
        or any(item is UNKNOWN for row in known for item in row)
        or any(item is None for item in known[0])
    ):
        return None
    found = call.fn(known, with_indices is not None and with_indices.as_constant())
    if not isinstance(found, dict):
        return None
    places = [{id(item): place for place, item in enumerate(row)} for row in known]
    layout = tuple(
        (key, tuple(tuple(map(at.__getitem__, map(id, row))) for at, row in zip(places, rows)), tuple(indices))
        for key, (rows, indices) in found.items()
    )
    return call.polyfill(arranged, tensorlistlist, call.constant(layout))


UNKNOWN = object()


def fake_or_none(item: Value) -> object:
    """The item of a list from which torch makes groups: a tensor's fake, or None."""
    if isinstance(item, TracedTensor):
        return item.fake
    return None if item.is_constant and item.as_constant() is None else UNKNOWN


def arranged(
    lists: Sequence[Sequence[object]], layout: Iterable[tuple[Hashable, Sequence[Sequence[int]], Sequence[int]]]
) -> dict[Hashable, tuple[list[list[object]], list[int]]]:
    """Groups of the lists' items: key, positions in each list, and the items."""
    return {
        key: ([[row[place] for place in places] for row, places in zip(lists, rows)], list(indices))
        for key, rows, indices in layout
    }


@handles(*existing("torch.optim.radam._single_tensor_radam", "torch.optim.radam._multi_tensor_radam"))
def radam(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """RAdam with steps counted outside the graph: these decide in the graph, by torch's own arithmetic."""
    return without_reading(call, radam_by_tensors, 5, args, kwargs)


@handles(*existing("torch.optim.asgd._single_tensor_asgd", "torch.optim.asgd._multi_tensor_asgd"))
def asgd(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """ASGD with steps counted outside the graph."""
    return without_reading(call, asgd_by_tensors, 6, args, kwargs)


def without_reading(
    call: Call, replacement: Callable[..., None], lists: int, args: Sequence[Value], kwargs: Mapping[str, Value]
) -> Value | None:
    """An optimizer step that would otherwise branch on values of tensors. None if torch's function does not, or if
    gradients would flow through the branch not taken."""
    flags = {name: kwargs.get(name) for name in ("capturable", "differentiable")}
    known = all(flag is not None and flag.is_constant and not flag.as_constant() for flag in flags.values())
    if len(args) != lists or not known or torch.get_default_dtype() not in (torch.float32, torch.float64):
        return None
    return call.polyfill(replacement, call.constant(call.fn), *args, **kwargs)


ASGD_ONE_BY_ONE = existing("torch.optim.asgd._single_tensor_asgd")


def radam_by_tensors(
    function: Callable[..., None],
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    state_steps: Tensors,
    **options: object,
) -> None:
    """RAdam with steps in double precision, like the Python floats that it computes with otherwise."""
    options["capturable"] = True
    steps = [step.to(param.device, torch.float64) for step, param in zip(state_steps, params)]
    function(params, grads, exp_avgs, exp_avg_sqs, steps, **options)
    for step in state_steps:
        step.add_(1)


def asgd_by_tensors(
    function: Callable[..., None],
    params: Tensors,
    grads: Tensors,
    axs: Tensors,
    mus: Tensors,
    etas: Tensors,
    state_steps: Tensors,
    **options: object,
) -> None:
    """ASGD in the same way."""
    options["capturable"] = True
    # The single-tensor form takes the parameter itself while nothing is averaged, whatever the average was.
    taken = [(*pair, mu == 1) for *pair, mu in zip(axs, params, mus)] if function in ASGD_ONE_BY_ONE else []
    numbers = [[number.double() for number in held] for held in (mus, etas, state_steps)]
    function(params, grads, axs, *numbers, **options)
    for ax, param, first in taken:
        ax.copy_(torch.where(first, param, ax))
    for held, computed in zip((mus, etas, state_steps), numbers):
        for own, number in zip(held, computed):
            own.copy_(number)


@attrs.frozen(eq=False)
class FusedStep:
    """Calls a fused step with arguments in a row: those of its lists, then those passed by name."""

    step: Callable[..., object]
    lengths: tuple[int, ...]
    names: tuple[str, ...]

    def __call__(self, *given: object) -> None:
        rest = iter(given)
        lists = [[next(rest) for _ in range(length)] for length in self.lengths]
        self.step(*lists, **dict(zip(self.names, rest, strict=True)))


@handles(*existing("torch._fused_adam_", "torch._fused_adamw_", "torch._fused_sgd_", "torch._fused_adagrad_"))
def fused_step(call: Call, *lists: Value, **kwargs: Value) -> Value | None:
    """A fused step runs between compiled graphs. torch can't make a functional graph of it: some lists may be empty,
    which counts as tensors that a graph must not write to, and half of the operators don't run on fakes."""
    if not all(issubclass(given.python_type(), (list, tuple)) for given in lists):
        return None
    rows = [call.tracing.unpack(given) for given in lists]
    if not all(isinstance(item, TracedTensor) for row in rows for item in row):
        return None
    named = dict(kwargs)
    lr = named.get("lr")
    if lr is not None and lr.is_symbolic:  # a scheduler changes it: the step takes a tensor as well
        form = {"dtype": call.constant(torch.float64), "device": call.constant(torch.device("cpu"))}
        named["lr"] = call.graph_call(torch.full, call.constant(()), lr, **form)
    step = FusedStep(call.fn, tuple(map(len, rows)), tuple(named))
    given = [*(item for row in rows for item in row), *named.values()]
    return call_uncompiled(call.tracing, step, call.fn.__name__, given)


SCALED = (torch._foreach_addcdiv_, torch._foreach_addcmul_)
IN_PLACE = [getattr(torch, name) for name in dir(torch) if name.startswith("_foreach_") and name.endswith("_")]


@handles(*(found for found in IN_PLACE if found not in SCALED))
def on_lists(call: Call, self: Value, *args: Value, **kwargs: Value) -> Value | None:
    """An operator in place on a list of tensors of which one overlaps an operand of a later one. They are changed one
    after the other, which a functional graph does not preserve: it computes all of them from what was there before."""
    targets: dict[int, list[tuple[int, torch.Tensor]]] = {}
    for place, target in enumerate(memories(call, self)):
        targets.setdefault(target.untyped_storage()._cdata, []).append((place, target))
    operands = [row for arg in (self, *args, *kwargs.values()) for row in enumerate(memories(call, arg))]
    if not any(
        before < place and overlap(target, operand)
        for place, operand in operands
        for before, target in targets.get(operand.untyped_storage()._cdata, ())
    ):
        return None
    made = call.tracing.graph.call(call.fn, (self, *args), kwargs)
    next(iter(reversed(call.tracing.recorder.graph.nodes))).meta[AS_CAPTURED] = True
    return made


def memories(call: Call, value: Value) -> list[torch.Tensor]:
    """The fakes of a list of strided tensors; none for other values."""
    items = call.tracing.unpack(value) if issubclass(value.python_type(), (list, tuple)) else []
    fakes = [item.fake for item in items if isinstance(item, TracedTensor)]
    return fakes if all(fake.layout is torch.strided for fake in fakes) else []


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the memory ranges of two tensors in one storage overlap, or may overlap for some sizes."""
    (begin, end), (begin_other, end_other) = extent(one), extent(other)
    known = all(isinstance(number, int) for number in (begin, end, begin_other, end_other))
    return not known or max(begin, begin_other) < min(end, end_other)


def extent(tensor: torch.Tensor) -> tuple[int | torch.SymInt, int | torch.SymInt]:
    """The begin and end of the tensor's memory in its storage, in elements."""
    begin = tensor.storage_offset()
    if 0 in tensor.shape:
        return begin, begin
    return begin, begin + 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
