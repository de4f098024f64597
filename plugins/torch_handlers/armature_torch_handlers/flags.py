"""Buffers of one element that decide a branch: `if self.inited:`; questions about small ones: `if self.prob[2] < 1:`.

Code is compiled separately for each value of the flag, which a guard reads before the graph. So a flag that is set once
costs one recompilation, not a graph break in each call. Numbers are not treated this way: counters, or layers with
different numbers, would need too many versions.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import torch
from torch import Tensor, fx

from armature.plugin_api import Call, CallSource, TracedTensor, Tracing, Value, ValueGuard, handles, is_registered
from armature_torch_handlers.known_numbers import MOST_ELEMENTS, was_written
from armature_torch_handlers.number_tensors import may_have_changed

MOST_STEPS = 6  # operations between the buffer and the question
# Cheap ones that read nothing but their arguments, as functions or methods.
STEPS = frozenset({
    "getitem", "select", "view", "reshape", "squeeze", "gt", "lt", "ge", "le", "eq", "ne", "add", "sub", "mul",
    "truediv", "neg", "abs", "any", "all", "sum", "mean", "min", "max", "logical_not", "invert",
    "isnan", "isinf", "isfinite",
})  # fmt: skip


def truth_of(tensor: Tensor) -> bool:
    """Read the flag: whether its element is true."""
    return bool(tensor)


@handles(Tensor.__bool__, Tensor.is_nonzero, Tensor.item)
def truth(call: Call, tensor: Value) -> Value | None:
    """`if flag:`, and `flag.item()` of a bool; None: the tensor is no flag, nor made of a buffer alone."""
    tracing = call.tracing
    if not isinstance(tensor, TracedTensor):
        return None
    if call.fn is Tensor.item and (tensor.dtype is not torch.bool or tracing.config.capture_scalar_outputs):
        return None
    if is_flag(tracing, tensor):
        return relied_on(tracing, tensor, truth_of, "bool({})")
    found = question_of(tracing, tensor)
    return None if found is None else relied_on(tracing, found[0], found[1], found[1].words)


@attrs.frozen
class Step:
    """An operation on what the step before gives. called: a function, or the name of a method. place: among args."""

    called: Callable[..., object] | str
    place: int
    args: tuple[object, ...]
    kwargs: dict[str, object]

    def __call__(self, subject: object) -> object:
        """The result for a subject."""
        args = (*self.args[: self.place], subject, *self.args[self.place + 1 :])
        if isinstance(self.called, str):
            return getattr(args[0], self.called)(*args[1:], **self.kwargs)
        return self.called(*args, **self.kwargs)

    def text(self, subject: str) -> str:
        """The step in words."""
        name = self.called if isinstance(self.called, str) else self.called.__name__
        given = [subject if place == self.place else str(arg) for place, arg in enumerate(self.args)]
        return f"{name}({', '.join([*given, *(f'{key}={value}' for key, value in self.kwargs.items())])})"


@attrs.frozen
class Question:
    """Whether what some steps make of a tensor is true. words: the question, {} for the tensor."""

    words: str
    steps: tuple[Step, ...] = attrs.field(eq=False)

    def __call__(self, tensor: Tensor) -> bool | None:
        """The answer for a tensor; None if it has none."""
        made: object = tensor
        try:
            for step in self.steps:
                made = step(made)
            return bool(made)
        except (IndexError, RuntimeError, TypeError):  # a buffer of another shape or dtype has taken its place
            return None


def question_of(tracing: Tracing, tensor: TracedTensor) -> tuple[TracedTensor, Question] | None:
    """The buffer that a tensor is computed of, with the question whether it is true; None if it depends on more."""
    node, steps = tensor.node, list[Step]()
    while node is not None and node.op != "placeholder":
        step = step_of(tracing, node) if len(steps) < MOST_STEPS else None
        if step is None:
            return None
        steps.insert(0, step)
        node = node.all_input_nodes[0]
    buffer = None if node is None else tracing.objects.by_fake.get(id(node.meta.get("example_value")))
    if not steps or not isinstance(buffer, TracedTensor) or not is_small_buffer(tracing, buffer, MOST_ELEMENTS):
        return None
    words = "{}"
    for step in steps:
        words = step.text(words)
    return buffer, Question(f"bool({words})", tuple(steps))


def step_of(tracing: Tracing, node: fx.Node) -> Step | None:
    """A node as a step: a cheap operation on one tensor and constants, whose result was not written to."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    fake = node.meta.get("example_value")
    if name not in STEPS or node.op == "get_attr" or not isinstance(fake, Tensor) or torch.is_autocast_enabled("cpu"):
        return None
    made = tracing.objects.by_fake.get(id(fake))
    if not isinstance(made, TracedTensor) or was_written(tracing, made) or len(node.all_input_nodes) != 1:
        return None
    places = [place for place, arg in enumerate(node.args) if isinstance(arg, fx.Node)]
    inside: list[fx.Node] = []
    fx.map_arg((tuple(arg for arg in node.args if not isinstance(arg, fx.Node)), node.kwargs), inside.append)
    if len(places) != 1 or inside:
        return None
    args = tuple(None if isinstance(arg, fx.Node) else arg for arg in node.args)
    return Step(node.target, places[0], args, dict(node.kwargs))


def is_flag(tracing: Tracing, tensor: TracedTensor) -> bool:
    """Whether it is a buffer of one element on the CPU, as the caller left it."""
    return is_small_buffer(tracing, tensor, 1) and tensor.real is not None and tensor.real.numel() == 1


def is_small_buffer(tracing: Tracing, tensor: TracedTensor, most: int) -> bool:
    """Whether it is a buffer of at most so many elements on the CPU, as the caller left it."""
    held = tensor.real
    if type(held) is not Tensor or tensor.source is None or not is_registered(tensor.source) or held.numel() > most:
        return False
    if held.device.type != "cpu" or held.layout is not torch.strided or tracing.overrides.present:
        return False
    return not may_have_changed(tracing, tensor)


def relied_on(
    tracing: Tracing, flag: TracedTensor, question: Callable[[Tensor], bool | None], words: str
) -> Value | None:
    """Whether the flag is set, with a guard. None if there would be too many combinations with flags read before,
    because each combination needs code of its own."""
    if flag.source is None or flag.real is None:
        return None
    place = CallSource(flag.source, question, words)
    answer = tracing.fakes.run_real(question, flag.real)
    read = filter(None, map(flag_read, tracing.guards.records.values()))
    combination = int("".join("1" if guard.value else "0" for guard in read) + str(int(answer)), 2)
    if tracing.request.history.changes_often(place.expr, combination):
        return None
    tracing.guards.equal(place, answer)
    return tracing.constant(answer)


def flag_read(guard: object) -> ValueGuard | None:
    """The guard itself if it is a flag's; None for any other."""
    if not isinstance(guard, ValueGuard) or not isinstance(guard.source, CallSource):
        return None
    asks = guard.source.fn is truth_of or isinstance(guard.source.fn, Question)
    return guard if asks else None
