"""Fake tensors: tensors without data, on which torch functions are run to learn shapes, strides and dtypes."""

from __future__ import annotations

import contextlib
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeGuard, cast

import attrs
import torch
from torch import nn
from torch._dispatch.python import enable_python_dispatcher
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch._higher_order_ops.utils import registered_hop_fake_fns
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from armature.torch_abi import devices, known_strides
from armature.torch_abi.fake_results import MOST, QUERIES, cached_result, keyed_call
from armature.torch_abi.fake_rules import NO_RULES, AxesOfOne, Facts, FakeResult, FakeRules, check_operands
from armature.torch_abi.jagged import is_jagged, ragged_axis, ragged_name, ragged_number
from armature.torch_abi.operators import arguments_at, drops_nothing
from armature.torch_abi.symbols import Symbols, expression, hint, is_unbacked, symbols_of
from armature.torch_abi.varying import FIXED, Axes, Layout, Varying, laid_out, layout_of
from armature.torch_abi.wrappers import flatten, innermost, is_wrapper

# Errors of a run on fake tensors for operations that depend on values.
DATA_DEPENDENT: tuple[type[BaseException], ...] = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
)
DYNAMIC_SHAPE: tuple[type[BaseException], ...] = (DynamicOutputShapeException,)  # the subset about sizes
NUMBER: Any = torch.ops.aten._local_scalar_dense.default
NO_MEMORY = "its data is not allocated yet"  # torch's message to kernels that read memory without checking for it
UNSUPPORTED_OPERATOR: tuple[type[BaseException], ...] = (UnsupportedOperatorException,)
HOP_RULES: dict[Any, Any] = registered_hop_fake_fns
WITHOUT_FAKES: Mapping[FakeResult, Callable[[Any], Exception]] = MappingProxyType({
    FakeResult.WRONG: UnsupportedOperatorException, FakeResult.UNSIZED: DynamicOutputShapeException,
})  # fmt: skip
PLACELESS = frozenset(("cpu", "meta"))  # types of which there is one device
NULL_CONTEXT: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
PLAIN_TENSORS: frozenset[type] = frozenset({torch.Tensor, nn.Parameter})

__all__ = [
    "DATA_DEPENDENT",
    "DYNAMIC_SHAPE",
    "PLAIN_TENSORS",
    "UNSUPPORTED_OPERATOR",
    "FakeTensor",
    "FakeWorld",
    "NumberRead",
    "alias",
    "count_write",
    "detached",
    "enable_python_dispatcher",
    "in_transform",
    "is_wrapped",
    "like",
    "of_transform",
    "reads_numbers",
    "tensor_of_number",
    "version_of",
    "without_subclass",
]


class NumberRead(DataDependentOutputException):
    """Raised when an operator reads the number of a fake that is known without running the graph."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(NUMBER)
        self.tensor = tensor


def reads_numbers(error: Exception) -> bool:
    """Whether this is the error of a fake whose memory C++ code tries to read directly."""
    return isinstance(error, RuntimeError) and NO_MEMORY in str(error)


class WatchingMode(FakeTensorMode):
    """A mode that records operators which draw random numbers or write, and corrects layouts that torch gets wrong.

    written: the tensors that operators have written to since the last query, with their versions before. knows: whether
    the number of a fake is known; an operator that asks for it then raises NumberRead. current: the index of the
    current device, if there are several and an operator was given one: "cuda" stands for the current one.
    """

    random = False
    rules: FakeRules = NO_RULES
    written: tuple[tuple[Any, int], ...] = ()
    knows: Callable[[torch.Tensor], bool] | None = None
    current: int | None = None
    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The result of an operator, built anew from what is known of an earlier call like this one."""
        # nearly half of AOTAutograd's calls only ask for a tensor's device
        if (query := QUERIES.get(func)) is not None:
            return query(args)
        if isinstance(func, torch._ops.HigherOrderOperator):  # torch looks rules up by the exact class
            return self._of_higher_order(func, types, args, kwargs)
        if func is NUMBER and self.knows is not None and self.knows(args[0]):
            raise NumberRead(args[0])
        facts, named = self.rules.of(func), kwargs or {}
        if (device := named.get("device")) is not None and device.type not in PLACELESS:
            # torch's cache of fakes, like ours, takes "cuda" for the same device whenever it is given
            named, self.current = {**named, "device": devices.with_index(device)}, devices.current_of_several()
        call = None if facts.draws or facts.writes or not self.cache_enabled else keyed_call(self, func, args, named)
        if call is None:
            return self._computed(facts, func, types, args, named)
        results = self.rules.results
        if call.key in results:
            known = results[call.key]
            if known is not None:
                return known.build(self, call.tensors)
            return self._computed(facts, func, types, args, named)
        result = self._computed(facts, func, types, args, named)
        if len(results) >= MOST:
            results.clear()
        results[call.key] = cached_result(self, func, args, named, call, result)
        return result

    def _computed(self, facts: Facts, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """The result of an operator, in the layout of its kernel."""
        if facts.fake is not None:
            raise WITHOUT_FAKES[facts.fake](func)
        if facts.takes is not None:
            check_operands(facts.takes, func, args)
        if facts.refused is not None and (error := facts.refused(func, args, kwargs)) is not None:
            try:
                raise error
            finally:
                del error  # a frame that holds an error by name is part of a reference cycle
        if facts.draws and not drops_nothing(func, args, kwargs):
            self.random = True
        if facts.writes is not None:
            written = arguments_at(func, facts.writes(args), args, kwargs)
            self.written += tuple((one, version_of(one)) for one in written)
        given = args if facts.rewritten is None else facts.rewritten(args)
        result = self.dispatch(func, types, given, kwargs)
        if func is NUMBER and isinstance(result, torch.SymFloat) and isinstance(self.shape_env, Symbols):
            self.shape_env.note_number(args[0], result)
        chosen = kwargs.get("memory_format")
        if facts.relaid is not None and result is not NotImplemented and chosen in (None, torch.preserve_format):
            with self if facts.in_mode else NULL_CONTEXT:
                result = facts.relaid(args, result)
        known_strides.note(facts.axes_of_one, args, kwargs, result)
        return result

    def _of_higher_order(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func in HOP_RULES:
            result = super().__torch_dispatch__(func, types, args, kwargs)
        else:
            rule = func.python_key_table.get(FakeTensorMode)
            result = NotImplemented if rule is None else rule(self, *args, **kwargs or {})
        known_strides.note(AxesOfOne.GUESSED, args, kwargs or {}, result)
        return result


def _mode_of(world: FakeWorld) -> WatchingMode:
    mode = WatchingMode(shape_env=world.symbols, allow_non_fake_inputs=False, static_shapes=True)
    mode.rules = world.rules
    return mode


@attrs.define(eq=False)
class FakeWorld:
    """Makes the fakes of one trace. Tensors that share memory get fakes that share memory.

    Enter `mode` while torch functions run on fakes. rules: of operators whose fakes torch gets wrong.
    """

    symbols: Symbols = attrs.field(factory=Symbols)
    rules: FakeRules = NO_RULES
    mode: WatchingMode = attrs.field(default=attrs.Factory(_mode_of, takes_self=True))
    layouts: dict[int, Layout] = attrs.field(factory=dict)  # of tensors with symbolic sizes, by id
    given_up: set[Any] = attrs.field(factory=set)  # symbols that no fake uses any more
    getitem: Callable[[Any, Any], Any] = operator.getitem  # how an item of a fake is read
    _storages: dict[int, torch.Tensor | None] = attrs.field(factory=dict)
    _bases: dict[int, tuple[torch.Tensor, FakeTensor]] = attrs.field(factory=dict)  # bases of views, by id

    @contextlib.contextmanager
    def reading_items(self, getitem: Callable[[Any, Any], Any]) -> Iterator[None]:
        """A context in which items are read in another way."""
        before, self.getitem = self.getitem, getitem
        try:
            yield
        finally:
            self.getitem = before

    @contextlib.contextmanager
    def raising_for_numbers(self, knows: Callable[[torch.Tensor], bool]) -> Iterator[None]:
        """In this context, an operator that reads the number of a fake gets NumberRead if the number is known."""
        before, self.mode.knows = self.mode.knows, knows
        try:
            yield
        finally:
            self.mode.knows = before

    @property
    def random(self) -> bool:
        """Whether an operator that was run draws random numbers."""
        return self.mode.random

    def take_written(self) -> tuple[tuple[torch.Tensor, int], ...]:
        """The tensors written to since the last call, with their versions before."""
        written, self.mode.written = self.mode.written, ()
        return written

    def run_real(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function as the program would, with real tensors."""
        with torch._C._DisableTorchDispatch():
            return fn(*args, **kwargs)

    def afresh(self) -> FakeWorld:
        """A world over the same symbols, with unmodified fakes."""
        return FakeWorld(self.symbols, self.rules, layouts=self.layouts)

    def of(self, tensor: torch.Tensor, axes: Varying | Axes = FIXED, label: str = "") -> FakeTensor:
        """The fake of a tensor of the program. Sizes and strides along `axes` are symbols, unless they are 0 or 1."""
        if in_transform():  # torch would wrap it: what is made inside a level belongs to it
            with temporarily_clear_interpreter_stack():
                return self.of(tensor, axes, label)
        kind = tensor.is_inference()
        if kind == torch.is_inference_mode_enabled():
            fake = self._of(tensor, axes, label)
        else:
            with torch.inference_mode(kind):
                fake = self._of(tensor, axes, label)
        ragged = ragged_number(tensor)
        if ragged is not None:  # one symbol for one tensor, whichever nested tensors share it
            fake.nested_int_memo = self.mode.create_symbolic_nested_int(nt_tensor_id=ragged)
        return fake

    def _of(self, tensor: torch.Tensor, axes: Varying | Axes, label: str) -> FakeTensor:
        """The fake of a tensor: an existing one, a symbolic one, or one that shares memory with another fake."""
        key = id(tensor)
        if isinstance(axes, Axes) or is_wrapper(type(tensor)):
            wrapper: FakeTensor = self._wrapper(tensor, axes if isinstance(axes, Axes) else Axes(), label)
            return wrapper
        if type(tensor) not in PLAIN_TENSORS or is_part_of_sparse(tensor):
            tensor = without_subclass(tensor)
        if key in self._bases:
            return self._bases[key][1]
        layout = self.layouts.get(key)
        if layout is None and has_layout(tensor) and axes.of(tensor):
            layout = self.layouts[key] = layout_of(self.symbols, tensor, axes, label)
        if layout is not None:
            return self._symbolic(tensor, layout)
        storage = tensor.untyped_storage() if tensor.layout is torch.strided else None
        if storage is None:
            return self._convert(tensor)
        if is_plain_view(tensor):
            return self._view(tensor)
        # A parameter is nearly always alone in its memory; building its fake here is ten times faster than in torch.
        memory = storage._cdata
        fresh = memory not in self._storages
        if fresh and is_simple(tensor) and tensor.storage_offset() == 0 and storage.nbytes() == dense_bytes(tensor):
            meta = self._bare(tensor)
            self._storages[memory] = meta
            return self._wrap(tensor, meta)
        held = self._storages.setdefault(memory, None)
        if held is None:
            return self._convert(tensor)
        return self._sharing(tensor, Layout(tensor.shape, tensor.stride()), held)

    def _view(self, tensor: torch.Tensor) -> FakeTensor:
        """A view of the fake of its base, so that changes of the base show in it, even those made before."""
        real: Any = tensor._base
        if id(real) not in self._bases:
            known = self.mode.fake_tensor_converter._get_memo(real)
            self._bases[id(real)] = (real, self._of(real, FIXED, "") if known is None else known)
        base = self._bases[id(real)][1]
        written = base.requires_grad and not real.requires_grad and version_of(base) > 0 and not base.is_leaf
        if not written and base.requires_grad != real.requires_grad:
            return self._convert(tensor)
        with torch.set_grad_enabled(written or not tensor.is_leaf), tracking_views(), self.mode:
            fake = cast(FakeTensor, base.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()))
        get, put = torch._C._autograd._get_creation_meta, torch._C._autograd._set_creation_meta
        put(fake, get(tensor))
        self.mode.fake_tensor_converter.set_tensor_memo(tensor, fake)
        return fake

    def _wrapper(self, tensor: torch.Tensor, axes: Axes, label: str) -> Any:
        """A wrapper of the same class, over fakes."""
        if is_jagged(tensor):
            return self._jagged(tensor, axes, label)
        layout = self.layouts.get(id(tensor))
        if layout is None and (axes.own or any(axes.inner.values())):
            layout = self._plan(tensor, axes, label)
        if layout is not None:
            return self._holding(tensor, layout)
        for inner in innermost(tensor):
            self._storages.setdefault(inner.untyped_storage()._cdata, None)
        return self._convert(tensor)

    def _jagged(self, tensor: Any, axes: Axes, label: str) -> Any:
        """A nested tensor over fakes. All sizes follow from its inner tensors."""
        for name, inner in flatten(tensor).tensors.items():
            chosen = axes.inner.get(name, frozenset())
            if id(inner) not in self.layouts and any(inner.shape[axis] > 1 for axis in chosen):
                self.layouts[id(inner)] = layout_of(self.symbols, inner, Varying(chosen), f"{label}.{name}")
        ragged: Any = self.of(getattr(tensor, ragged_name(tensor)))
        sizes: list[Any] = [None] * tensor.dim()
        sizes[ragged_axis(tensor)] = ragged.nested_int_memo
        return self._holding(tensor, Layout(tuple(sizes), ()))

    def _plan(self, tensor: torch.Tensor, axes: Axes, label: str) -> Layout | None:
        """The layout of a wrapper; those of its inner tensors are stored. None if the class can't be rebuilt with
        these."""
        whole = layout_of(self.symbols, tensor, Varying(axes.own), label)
        held, kept = flatten(tensor).tensors, dict(self.layouts)
        for name, inner in held.items():
            alike = inner.dim() == tensor.dim()
            known = {
                axis: size
                for axis, size in enumerate(whole.sizes)
                if isinstance(size, torch.SymInt) and alike and inner.shape[axis] == tensor.shape[axis]
            }
            chosen = axes.inner.get(name, frozenset()) | known.keys()
            if id(inner) not in self.layouts and any(inner.shape[axis] > 1 for axis in chosen):
                self.layouts[id(inner)] = layout_of(self.symbols, inner, Varying(chosen), f"{label}.{name}", known)
        try:
            made = self._holding(tensor, whole)
        except Exception:  # raised by the class, if it needs concrete sizes
            made = None
        if type(made) is type(tensor) and laid_out(made, whole):
            self.layouts[id(tensor)] = whole
            return whole
        tried = [layout for key, layout in self.layouts.items() if key not in kept]
        self.given_up.update(
            s for layout in (whole, *tried) for size in layout.sizes for s in symbols_of(expression(size))
        )
        self.layouts = kept
        return None

    def _holding(self, tensor: torch.Tensor, layout: Layout) -> Any:
        """A wrapper of the class over fakes, with symbolic sizes."""
        found, kind = flatten(tensor), cast(Any, type(tensor))
        inner = {name: self.of(value) for name, value in found.tensors.items()}
        with torch.no_grad(), self.mode:
            made = kind.__tensor_unflatten__({**inner, **found.objects}, found.context, layout.sizes, layout.strides)
            made.requires_grad_(tensor.requires_grad)
        if isinstance(tensor, nn.Parameter):
            made._is_param = True
        if tensor.requires_grad and not tensor.is_leaf:
            with torch.enable_grad(), self.mode:
                made = made.clone()
        return made

    def _symbolic(self, tensor: torch.Tensor, layout: Layout) -> FakeTensor:
        """A fake with symbolic sizes, in the memory of its storage's earlier fake if there is one."""
        key = tensor.untyped_storage()._cdata
        held = self._storages.get(key)
        if held is not None:
            return self._sharing(tensor, layout, held)
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            if tensor.storage_offset() == 0:
                meta = torch.empty_strided(
                    layout.sizes,
                    layout.strides,
                    dtype=tensor.dtype,
                    device="meta",
                    requires_grad=tensor.requires_grad,
                )
            else:
                last = sum((size - 1) * stride for size, stride in zip(layout.sizes, layout.strides))
                memory = torch.empty((tensor.storage_offset() + last + 1,), dtype=tensor.dtype, device="meta")
                meta = _without_memory(tensor)
                _place(meta, memory, tensor.storage_offset(), layout)
        self._storages[key] = meta
        fake = self._wrap(tensor, meta)
        if tensor.requires_grad and not tensor.is_leaf:
            with torch.enable_grad(), self.mode:
                made = cast(FakeTensor, fake.clone())
                made.data = fake  # a copy is dense
            self.mode.fake_tensor_converter.set_tensor_memo(tensor, made)
            return made
        return fake

    def _convert(self, tensor: torch.Tensor) -> FakeTensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch reads the .grad of non-leaf tensors
            try:
                return self.mode.from_tensor(tensor, static_shapes=True)
            except DataDependentOutputException:  # a part of a jagged tensor: where it begins is in another's data
                fake = self.mode.from_tensor(without_subclass(tensor), static_shapes=True)
                self.mode.fake_tensor_converter.set_tensor_memo(tensor, fake)
                return fake

    def _bare(self, tensor: torch.Tensor) -> torch.Tensor:
        with torch._C._DisableTorchDispatch():
            return torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta", requires_grad=tensor.requires_grad
            )

    def _sharing(self, tensor: torch.Tensor, layout: Layout, held: torch.Tensor) -> FakeTensor:
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            meta = _without_memory(tensor)
            _place(meta, held, tensor.storage_offset(), layout)
        return self._wrap(tensor, meta)

    def _wrap(self, tensor: torch.Tensor, meta: torch.Tensor) -> FakeTensor:
        with torch._C._DisableTorchDispatch():
            fake = FakeTensor(self.mode, meta, tensor.device)
        if isinstance(tensor, nn.Parameter):
            fake._is_param = True
        self.mode.fake_tensor_converter.set_tensor_memo(tensor, fake)
        return fake


def _without_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The start of a meta tensor that is as differentiable: in a transform torch refuses `requires_grad_` later."""
    return torch.empty(0, dtype=tensor.dtype, device="meta", requires_grad=tensor.requires_grad)


def _place(meta: torch.Tensor, memory: torch.Tensor, offset: Any, layout: Layout) -> None:
    """Give a new tensor the memory of another, without counting a change of it."""
    meta.set_(memory.untyped_storage(), offset, layout.sizes, layout.strides)
    set_versions((meta,), (0,))


def tensor_of_number(number: float) -> torch.Tensor:
    """A real tensor of a float or int, even if a fake mode is active."""
    with torch._C._DisableTorchDispatch():
        return torch.tensor(number, dtype=torch.float64 if type(number) is float else torch.int64, device="cpu")


def is_fake(value: object) -> TypeGuard[FakeTensor]:
    """Whether the value is a fake of a plain tensor, not of a wrapper subclass."""
    return type(value) is FakeTensor


def like(fake: torch.Tensor) -> torch.Tensor:
    """Zeros in the layout of a fake, with symbolic sizes at their values in this call; the fake itself if it has
    none."""
    if not is_fake(fake) or fake.layout is not torch.strided or fake.is_quantized:
        return fake
    layout = (fake.shape, fake.stride())
    if any(is_unbacked(size) for part in layout for size in part):
        return fake
    sizes, strides = ([size if type(size) is int else hint(size) for size in part] for part in layout)
    made = torch.empty_strided(sizes, strides, dtype=fake.dtype, device=fake.device)
    return made.zero_().requires_grad_(fake.requires_grad)


def is_part_of_sparse(tensor: torch.Tensor) -> bool:
    """Whether the tensor is autograd's view of the values of a sparse tensor, or of a nested one that is not jagged: no
    fake has such a base."""
    base = tensor._base if tensor.layout is torch.strided and tensor._is_view() else None
    return base is not None and base.is_nested == (base.layout is torch.strided)


def without_subclass(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of torch's own class over the same memory, with the same place in autograd's graph.

    Called with `__torch_function__` off.
    """
    with torch._C._DisableTorchDispatch():
        made = tensor.data.as_subclass(torch.Tensor).requires_grad_(tensor.requires_grad)
        return made if tensor.is_leaf else made.view_as(made)


def alias(fake: torch.Tensor) -> torch.Tensor:
    """Another tensor over the same memory. Called in the fake mode."""
    made: torch.Tensor = torch.ops.aten.alias.default(fake)
    return made


def has_layout(tensor: torch.Tensor) -> bool:
    """Whether the tensor's sizes can be symbols: a plain strided tensor that owns its values."""
    return (
        type(tensor) in PLAIN_TENSORS
        and tensor.layout is torch.strided
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor.is_inference()
        and tensor.device.type != "meta"
    )


def is_simple(tensor: torch.Tensor) -> bool:
    """Whether the fake only needs the tensor's sizes, strides, dtype, device and requires_grad."""
    return has_layout(tensor) and tensor.is_leaf and not tensor._is_view()


def is_plain_view(tensor: torch.Tensor) -> bool:
    """Whether the tensor is autograd's view of a plain one, with sizes and strides of its own and nothing else."""
    if not tensor._is_view() or not has_layout(tensor):
        return False
    base = cast(torch.Tensor, tensor._base)
    if tensor.requires_grad and (tensor.is_leaf or not base.requires_grad):
        return False  # it was made to require gradients later
    return has_layout(base) and base.dtype == tensor.dtype


@contextlib.contextmanager
def tracking_views() -> Iterator[None]:
    """A context in which views are marked as such even if the program runs with autograd's keys off."""
    key = torch._C.DispatchKey.ADInplaceOrView
    excluded = torch._C._dispatch_tls_is_dispatch_key_excluded(key)
    torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
    try:
        yield
    finally:
        torch._C._dispatch_tls_set_dispatch_key_excluded(key, excluded)


def dense_bytes(tensor: torch.Tensor) -> int:
    """Bytes from the first to the last element, inclusive."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return (last + 1) * tensor.element_size()


def detached(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor.detach()` of a real tensor, even if a fake mode is active."""
    with torch._C._DisableTorchDispatch():
        return tensor.detach()


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Whether torch.func wraps it, or it is already fake: tracing then happens inside another transform."""
    return isinstance(tensor, FakeTensor) or of_transform(tensor)


def in_transform() -> bool:
    """Whether a transform of torch.func is running the program now."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def of_transform(tensor: torch.Tensor) -> bool:
    """Whether a torch.func transform made the tensor: it is only meaningful inside."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def version_of(tensor: Any) -> int:
    """The version counter of a tensor; 0 for inference tensors, which have none."""
    return 0 if tensor.is_inference() else int(tensor._version)


def set_versions(tensors: Iterable[torch.Tensor], versions: Iterable[int]) -> None:
    """Set the version counters of tensors."""
    pairs = [(tensor, version) for tensor, version in zip(tensors, versions) if not tensor.is_inference()]
    torch._C._autograd._unsafe_set_version_counter(tuple(t for t, _ in pairs), tuple(v for _, v in pairs))


def count_write(tensor: torch.Tensor) -> None:
    """Record a write to a fake tensor: its known values are no longer valid."""
    if isinstance(tensor, FakeTensor) and tensor.constant is not None:
        tensor.fake_mode.fake_tensor_converter.invalidate_constant_aliases(tensor.constant)
    if isinstance(tensor, FakeTensor) and isinstance(tensor.fake_mode, WatchingMode):
        tensor.fake_mode.written += ((tensor, version_of(tensor)),)
    if not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)
