"""What a graph that raises has done by then, undone: torch's state, memory of its inputs, random numbers drawn.

State is always set back. Memory and random numbers are copied before the first call, which shows whether there is a
kernel for each operator, and before each call where an operator may raise for the numbers that it is given; if that is
little memory.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any

import attrs
import torch
from torch import fx

from armature.torch_abi.altering import Kept, keep, put_back
from armature.torch_abi.fake import set_versions, version_of
from armature.torch_abi.grad_modes import CHANGED_BY, Switch
from armature.torch_abi.pytree import tree_leaves
from armature.torch_abi.symbols import is_unbacked
from armature.torch_abi.wrappers import is_wrapper
from armature.trace.errors import GraphBreak
from armature.trace.values.tensor import TensorValue

if TYPE_CHECKING:
    from armature.trace.frame_state import Trace

LEAVE = "leave"  # in the meta of a node that enters a context: what leaves it
MOST_BYTES = 1 << 20  # of memory that is copied before each call
MOST_BYTES_ONCE = 1 << 26  # before the first one
# Operators that raise for numbers which their shapes and dtypes do not tell, by the beginnings of their names.
RAISES = re.compile(
    r"_*(index|gather|scatter|take|put|embedding|nll|cross_entropy|multi(?!ply)|one_hot|bincount|ctc|repeat_interleave|masked_scatter|"
    r"bernoulli|normal(?!ize)|poisson|binomial|cauchy|exponential|geometric|log_normal|cholesky|inv|pinverse|solve|triangular|lu|"
    r"ldl|qr|svd|eig|lstsq|det(?!ach)|slogdet|logdet|matrix|tensorinv|tensorsolve|cond|hist|quantile|nanquantile|tensor_split|"
    r"max_unpool|fake_quantize|quantize|segment|pack|pad_packed|assert|check|item|tolist|local_scalar)"
)
# By zero, or to a power below it.
RAISES_FOR_INTEGERS = re.compile(r"_*(i?floordiv|floor_div|i?mod|remainder|fmod|div|i?pow|rpow|rmod|rfloordiv)")
# For tensors of several dtypes, which their counterparts without numbers may take.
RAISES_FOR_MIXED = re.compile(
    r"_*(r?matmul|\w*mm|mv|addmv|(bi)?linear|\w*conv\w*|einsum|v?dot|tensordot|inner|lerp|cross|\w*attention|\w*_norm|lstm|gru|rnn)"
)
ITEMS = frozenset({operator.getitem, operator.setitem})


@attrs.frozen(eq=False)
class Before:
    """What there was before a graph ran. memory: storages that it writes to, with copies; None: not kept."""

    states: tuple[Any, ...]
    memory: tuple[tuple[torch.UntypedStorage, torch.UntypedStorage], ...] | None = None
    tensors: tuple[torch.Tensor, ...] = ()
    versions: tuple[int, ...] = ()
    layouts: tuple[Any, ...] = ()
    generator: torch.Tensor | None = None
    altered: tuple[Kept, ...] = ()


@attrs.define(eq=False)
class Undo:
    """What to keep before each call of a graph, and to set back if it raises.

    states: changed by the graph itself. entered: names of nodes that enter a context, with what leaves it.
    written: positions of the inputs whose memory changes. remembered: of those where autograd then knows of it, which
    can't be undone: the graph must have raised before. altered: of inputs that become other tensors.
    draws: random numbers. kept: whether all of these are kept, as long as it has not been `proven` by a call that did
    not raise; always: after that too.
    """

    states: tuple[Switch, ...] = ()
    entered: tuple[tuple[str, Callable[[Any], Any]], ...] = ()
    written: tuple[int, ...] = ()
    remembered: frozenset[int] = frozenset()
    altered: tuple[int, ...] = ()
    draws: bool = False
    kept: bool = False
    always: bool = False
    proven: bool = False
    _left: set[int] = attrs.field(factory=set)  # ids of errors after which memory is not what it was

    @property
    def happens(self) -> bool:
        """Whether the graph does what the program can see before it has come to its end."""
        return self.draws or bool(self.written) or bool(self.altered)

    @property
    def keeps_now(self) -> bool:
        """Whether what a call changes is kept before it."""
        return self.kept and (self.always or not self.proven)

    def around(self, run: Callable[..., Any], code: CodeType | None) -> Callable[..., Any]:
        """A graph's callable that undoes what it has done when it raises. code: the captured graph's, if that runs."""
        states = self.states if code is not None else ()
        if not states and not self.kept and (code is None or not self.entered):
            return run

        once = not (self.always or states or (code is not None and self.entered))

        def undoing(*args: Any) -> Any:
            if once and self.proven:
                return run(*args)
            before = self.before(states, args)
            try:
                result = run(*args)
            except BaseException as error:
                if code is not None:
                    self.leave(error, code)
                self.restore(states, before, error)
                raise
            self.proven = True
            return result

        return undoing

    def before(self, states: tuple[Switch, ...], args: tuple[Any, ...]) -> Before:
        """Keep what the graph may change."""
        known = tuple(switch.read() for switch in states)
        if not self.keeps_now:
            return Before(known)
        tensors = tuple(args[position] for position in self.written)
        storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in tensors}
        if sum(storage.nbytes() for storage in storages.values()) > (MOST_BYTES if self.proven else MOST_BYTES_ONCE):
            return Before(known)
        return Before(
            known,
            tuple((storage, storage.clone()) for storage in storages.values()),
            tensors,
            tuple(map(version_of, tensors)),
            tuple(map(_layout, tensors)),
            torch.get_rng_state() if self.draws else None,
            keep(args[position] for position in self.altered),
        )

    def leave(self, error: BaseException, code: CodeType) -> None:
        """Leave the contexts that were entered: the frame of the graph that has raised holds them."""
        for frame in reversed(list(_frames(error.__traceback__))):
            if frame.f_code.co_code == code.co_code and frame.f_code.co_varnames == code.co_varnames:
                for name, leave in reversed(self.entered):
                    opened = frame.f_locals.get(name)
                    if opened is not None:
                        leave(opened)

    def restore(self, states: tuple[Switch, ...], before: Before, error: BaseException) -> None:
        """Set back what was kept."""
        for switch, known in reversed([*zip(states, before.states)]):  # what was changed last goes first
            switch.restore(known)
        if not self.kept:
            return
        put_back(before.altered)
        if (
            before.memory is None
            or tuple(map(_layout, before.tensors)) != before.layouts
            or self._is_remembered(before)
        ):
            self._left.add(id(error))
            return
        for storage, copy in before.memory:
            storage.copy_(copy)
        set_versions(before.tensors, before.versions)
        if before.generator is not None:
            torch.set_rng_state(before.generator)

    def _is_remembered(self, before: Before) -> bool:
        """Whether autograd knows of a change that the graph had made by then."""
        then = zip(self.written, before.tensors, before.versions)
        return any(version_of(tensor) != version for n, tensor, version in then if n in self.remembered)

    def is_undone(self, error: BaseException) -> bool:
        """Asked once, after an error of the graph: whether all is as it was."""
        if not self.happens:
            return True
        if not self.keeps_now or id(error) in self._left:
            self._left.discard(id(error))
            return False
        return True


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.untyped_storage()._cdata, tensor.shape, tensor.stride(), tensor.storage_offset()


def _frames(trace: TracebackType | None) -> Iterator[FrameType]:
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def plan(tracer: Trace) -> Undo:
    """What the graph of a frame has to be undone of."""
    called = [node for node in tracer.graph.nodes if node.op.startswith("call_")]
    changed = [CHANGED_BY[node.target] for node in called if "changes_state" in node.meta and node.target in CHANGED_BY]
    values = tracer.inputs
    tensors = [(n, value) for n, value in enumerate(values) if isinstance(value, TensorValue)]
    effects = tracer.effects
    written = tuple(
        n
        for n, value in tensors
        if version_of(value.fake) or effects.writes_to(value) or effects.writes_uncounted(value)
    )
    altered = tuple(n for n, value in enumerate(values) if value in effects.altered)
    undo = Undo(
        tuple(dict.fromkeys(changed)),
        tuple((node.name, node.meta[LEAVE]) for node in called if LEAVE in node.meta),
        written,
        frozenset(position for position in written if _has_history(values[position].fake)),
        altered,
        tracer.fakes.random,
    )
    undo.kept = undo.happens and all(map(_is_plain, tracer.graph.nodes))
    undo.always = any(map(may_raise, called))
    return undo


def watch(tracer: Trace, node: fx.Node) -> None:
    """Told of nodes after a change: one that may raise may end the graph, if a tensor with gradients was changed."""
    if tracer.request.fullgraph or not may_raise(node):
        return
    tensors = (value.fake for value in tracer.inputs if isinstance(value, TensorValue))
    if any(_has_history(fake) and version_of(fake) for fake in tensors):
        try:
            tracer.graph_break("may-raise-after-change")
        except GraphBreak as stop:
            stop.assumed = True
            tracer.rerun_breaks.append(stop)


def _has_history(fake: Any) -> bool:
    """Whether autograd remembers what was written to a tensor: it would not forget it with the memory."""
    return bool(fake.requires_grad) and not fake.is_leaf


def may_raise(node: fx.Node) -> bool:
    """Whether a node's function may raise for the numbers that it is given."""
    if node.op == "call_module" or any(is_unbacked(value) for value in _values(node)):
        return True
    if node.target in ITEMS:
        indices = tree_leaves(node.args[1])
        return any(isinstance(index, fx.Node) and _tensors(index) for index in indices)
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if RAISES_FOR_INTEGERS.match(name):
        return not all(tensor.is_floating_point() for tensor in _tensors(node))
    if RAISES_FOR_MIXED.match(name):
        return len({tensor.dtype for given in node.all_input_nodes for tensor in _tensors(given)}) > 1
    return RAISES.match(name) is not None or getattr(node.target, "__module__", "") == "torch._linalg"


def _values(node: fx.Node) -> list[Any]:
    return tree_leaves(node.meta.get("example_value"))


def _tensors(node: fx.Node) -> list[torch.Tensor]:
    return [value for value in _values(node) if isinstance(value, torch.Tensor)]


def _is_plain(node: fx.Node) -> bool:
    """Whether what a node gives is in memory of this process, in the plain way."""
    return all(
        tensor.device.type == "cpu" and tensor.layout is torch.strided and not is_wrapper(type(tensor))
        for tensor in _tensors(node)
    )
