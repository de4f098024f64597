"""Triton kernels of the program: a launch is a node of the graph, which makes it when the graph runs.

Triton's classes are known by name, so that it need not be imported before the program does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import NoReturn, Protocol, TypeGuard, runtime_checkable

import attrs
import torch

from armature.plugin_api import (
    BoundMethod,
    BreakType,
    Call,
    NotConstant,
    ObjectValue,
    SequenceValue,
    Source,
    TracedTensor,
    Tracing,
    TupleValue,
    Value,
    ValueType,
    call_uncompiled,
    existing,
    handles,
    ours,
    supportable,
    with_examples,
)
from armature_gpu_triton import written

ID = "triton-launch"
BREAKS = with_examples(
    (
        BreakType(
            ID,
            "Launch of a Triton kernel",
            "The launch of {kernel} can't be part of the graph: {met}.",
            (
                supportable("Pass the kernel tensors, numbers and constants, and a grid computed from these."),
                ours("Launch it between compiled functions, not inside one."),
            ),
            code="AB0198",
            cause="A launch can be part of a graph only if its arguments say what it reads and writes.",
            also=("GB0361",),
        ),
    ),
    "armature_gpu_triton.examples",
)
INTERFACE = ("triton.runtime.jit", "KernelInterface")
# Classes with a `run` that launches; that of `Heuristics` is traced into.
LAUNCHERS = frozenset({
    ("triton.runtime.jit", "JITFunction"),
    ("triton.runtime.interpreter", "InterpretedFunction"),
    ("triton.runtime.autotuner", "Autotuner"),
})  # fmt: skip
AUTOTUNER = ("triton.runtime.autotuner", "Autotuner")
HEURISTICS = ("triton.runtime.autotuner", "Heuristics")


def name_of(cls: type) -> tuple[str, str]:
    """A class's module and qualified name."""
    return cls.__module__, cls.__qualname__


@runtime_checkable
class Compiled(Protocol):
    """A function that Triton compiles (`JITFunction`)."""

    fn: FunctionType
    arg_names: Sequence[str]


class Configuration(Protocol):
    """A configuration that an autotuner tries (`Config`)."""

    kwargs: Mapping[str, object]
    pre_hook: object


class Layer(Protocol):
    """A layer above a function. fn: the layer below, or at the end the function."""

    fn: Heuristics


class Heuristics(Layer, Protocol):
    """A layer that computes arguments (`Heuristics`)."""

    values: Mapping[str, Callable[[Mapping[str, object]], object]]


class Autotuner(Layer, Protocol):
    """A layer that tries configurations (`Autotuner`)."""

    configs: Sequence[Configuration]
    user_defined_pre_hook: object
    user_defined_post_hook: object
    early_config_prune: object
    perf_model: object
    reset_to_zero: Sequence[str]
    restore_value: Sequence[str]


class Runnable(Protocol):
    """An object that launches a kernel."""

    def run(self, *args: object, grid: object, warmup: bool, **named: object) -> object:
        """Launch it."""


def is_autotuner(obj: object) -> TypeGuard[Autotuner]:
    """Whether an object is an autotuner."""
    return name_of(type(obj)) == AUTOTUNER


def is_heuristics(obj: object) -> TypeGuard[Heuristics]:
    """Whether an object is a layer that computes arguments."""
    return name_of(type(obj)) == HEURISTICS


def is_kernel(obj: object) -> bool:
    """Whether an object is a kernel that can be launched."""
    return any(name_of(cls) == INTERFACE for cls in type(obj).__mro__)


def launches(cls: type) -> bool:
    """Whether the class's `run` method is Triton's own."""
    holder = next((base for base in cls.__mro__ if "run" in vars(base)), object)
    return name_of(holder) in LAUNCHERS


@attrs.define(eq=False)
class KernelValue(ObjectValue):
    """A kernel of the program. `kernel[grid]` is Python code, which is traced, and finally calls `run`."""

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name == "run" and self.obj is not None and launches(self.cls) and "run" not in vars(self.obj):
            return BoundMethod(self, name)
        return super().get_attribute(tracer, name)

    def call_method(self, tracer: Tracing, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        if name != "run":
            return super().call_method(tracer, name, args, kwargs)
        return launch(tracer, self, args, kwargs)


def build(obj: object, source: Source, tracer: Tracing) -> Value:
    """The value of a kernel of the program."""
    tracer.guards.same(source, obj)
    value: Value = tracer.objects.remember(obj, KernelValue(type(obj), obj, source=source))
    return value


VALUE_TYPES = (ValueType(is_kernel, build),)


@attrs.frozen(eq=False)
class Launch:
    """The function of a node: `kernel.run` with arguments, the last of which are numbers of grids.

    names: of the arguments passed by name, which are the last ones. constants: arguments by position that are the
    same in each call. grids: for each configuration of an autotuner, its settings, and the length of its grid.
    """

    kernel: Runnable
    names: tuple[str, ...]
    constants: Mapping[int, object]
    grids: tuple[tuple[Mapping[str, object], int], ...]

    def __call__(self, *given: object) -> None:
        count = len(given) - sum(size for _, size in self.grids)
        values = [self.constants.get(n, value) for n, value in enumerate(given[:count])]
        split = count - len(self.names)
        named = dict(zip(self.names, values[split:], strict=True))
        self.kernel.run(*values[:split], grid=self.grid(given[count:]), warmup=False, **named)

    def grid(self, numbers: Sequence[object]) -> object:
        """The grid, or a function that returns the one for a configuration."""
        found, first = [], 0
        for chosen, size in self.grids:
            found.append((chosen, tuple(numbers[first : first + size])))
            first += size
        if all(grid == found[0][1] for _, grid in found):
            return found[0][1]
        return lambda meta: next(grid for chosen, grid in found if agrees(chosen, meta))


def agrees(chosen: Mapping[str, object], meta: Mapping[str, object]) -> bool:
    """Whether a launch has the arguments that a configuration sets."""
    return all(name in meta and meta[name] == value for name, value in chosen.items())


@attrs.frozen(eq=False)
class Kernel:
    """The layers of a launch. outer: the object that is launched. heuristics: the layers between it and the function,
    outermost first. function: the function that Triton compiles."""

    outer: Runnable
    heuristics: tuple[Heuristics, ...]
    function: Compiled

    @classmethod
    def of(cls, outer: Runnable) -> Kernel | None:
        """Make a Kernel of an object. None: there is an autotuner below another layer, or no function."""
        found: list[Heuristics] = []
        inner: object = outer.fn if is_autotuner(outer) or is_heuristics(outer) else outer
        while is_heuristics(inner):
            found.append(inner)
            inner = inner.fn
        return cls(outer, tuple(found), inner) if isinstance(inner, Compiled) and not is_autotuner(inner) else None

    @property
    def tuner(self) -> Autotuner | None:
        """The autotuner, if there is one."""
        return self.outer if is_autotuner(self.outer) else None

    @property
    def configurations(self) -> list[Configuration]:
        """The configurations that an autotuner tries."""
        return [] if self.tuner is None else list(self.tuner.configs)

    @property
    def text(self) -> str:
        """Triton's copy of the source."""
        held = getattr(self.function, "src", None)
        try:
            return held if isinstance(held, str) else inspect.getsource(self.function.fn)
        except (OSError, TypeError):
            return ""

    @property
    def hooked(self) -> bool:
        """Whether functions of the program receive the arguments before or after the kernel."""
        hooks = [getattr(self.function, "pre_run_hooks", True), *(config.pre_hook for config in self.configurations)]
        if self.configurations and self.tuner is not None:
            hooks += [self.tuner.user_defined_pre_hook, self.tuner.user_defined_post_hook]
        return any(hooks)

    @property
    def calls_others(self) -> bool:
        """Whether a launch calls functions of the program that are not traced."""
        tuner = self.tuner if self.configurations else None
        choosing = [] if tuner is None else [tuner.early_config_prune, tuner.perf_model]
        return self.hooked or bool(self.heuristics) or any(choosing)

    def read_only(self) -> frozenset[str]:
        """The arguments that a launch does not write to."""
        if self.hooked:
            return frozenset()
        tuner = self.tuner if self.configurations else None
        reset = set() if tuner is None else {*tuner.reset_to_zero, *tuner.restore_value}
        return written.read_only(self.function.fn, self.text) - reset

    @property
    def name(self) -> str:
        """The name for users and for the graph."""
        return str(getattr(self.function.fn, "__name__", "kernel"))


def launch(tracer: Tracing, value: KernelValue, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """`kernel.run(*args, grid=, warmup=, **kwargs)`."""
    kernel = Kernel.of(value.as_object())
    if kernel is None:
        refuse(tracer, "a kernel", "an autotuner stands below another")
    if written.makes_pointers(kernel.text):
        refuse(tracer, kernel.name, "it may make pointers to memory that it is not given")
    if tracer.effects.globals_ or (kernel.calls_others and not tracer.effects.empty):
        refuse(tracer, kernel.name, "the function has changed what code of the launch may read")
    named = dict(kwargs)
    grid, warmup = named.pop("grid", None), named.pop("warmup", None)
    if grid is None or warmup is None or not warmup.is_constant or warmup.as_constant() is not False:
        refuse(tracer, kernel.name, "it is compiled, and not run, or has no grid")
    value.rely_on(tracer)
    grids = grids_of(tracer, value, kernel, grid, args, named)
    given: list[Value] = []
    held: dict[int, object] = {}
    for position, argument in enumerate((*args, *named.values())):
        if is_plain(argument):
            given.append(argument)
        else:
            held[position] = constant_object(tracer, kernel, argument)
            given.append(tracer.constant(None))
    settings = [dict(config.kwargs) for config in kernel.configurations] or [{}]
    sizes = tuple(zip(settings, map(len, grids), strict=True))
    node = Launch(kernel.outer, tuple(named), held, sizes)
    untouched = kernel.read_only()
    names = [*kernel.function.arg_names[: len(args)], *named]
    read = frozenset(position for position, name in enumerate(names) if name in untouched)
    numbers = [number for one in grids for number in one]
    return call_uncompiled(tracer, node, f"launch_{kernel.name}", [*given, *numbers], read)


def refuse(tracer: Tracing, kernel: str, met: str) -> NoReturn:
    """Break the graph: the launch is made in eager mode."""
    tracer.graph_break(ID, kernel=kernel, met=met)
    raise AssertionError("a graph break raises")


def is_plain(value: Value) -> bool:
    """Whether it can be an argument of a node."""
    if isinstance(value, TupleValue):
        return value.python_type() is tuple and all(map(is_plain, value.items))
    return isinstance(value, TracedTensor) or value.is_symbolic or (value.is_constant and plain_constant(value))


def plain_constant(value: Value) -> bool:
    return isinstance(value.as_constant(), (int, float, str, bool, type(None), torch.dtype))


def constant_object(tracer: Tracing, kernel: Kernel, value: Value) -> object:
    """An argument that is an object of the program, guarded by identity."""
    changed = isinstance(value, ObjectValue) and (value.written or value.instance_dict is not None)
    try:
        if not changed and (value.is_constant or value.source is not None) and not value.is_tensor:
            value.rely_on(tracer)
            return value.as_object()
    except NotConstant:
        pass
    refuse(tracer, kernel.name, f"{value.describe()} is among the arguments")


def grids_of(
    tracer: Tracing, value: Value, kernel: Kernel, grid: Value, args: Sequence[Value], named: Mapping[str, Value]
) -> list[list[Value]]:
    """The numbers of the grid, for each configuration if there are some. Code that computes them is traced."""
    tried = kernel.configurations
    if isinstance(grid, SequenceValue):
        found: list[Value] = [grid] * (len(tried) or 1)
    else:
        function = kernel.function
        names = list(function.arg_names)
        signature = inspect.signature(function.fn)
        defaults = {n: p.default for n, p in signature.parameters.items() if p.default is not inspect.Parameter.empty}
        arguments = (
            tracer.as_value(names),
            tracer.as_value(defaults),
            TupleValue(list(args)),
            tracer.calls.inline_python(dict, (), named),
        )
        traced = tracer.calls.inline_python(
            computed_grids if tried else computed_grid,
            (value, grid, *arguments, tracer.as_value(tuple(range(len(kernel.heuristics))))),
            {},
        )
        found = tracer.unpack(traced)
    return [numbers_of(tracer, kernel, one) for one in found]


def numbers_of(tracer: Tracing, kernel: Kernel, grid: Value) -> list[Value]:
    """Numbers of one to three dimensions."""
    numbers = list(grid.items) if isinstance(grid, SequenceValue) else []
    if not numbers or not all(issubclass(n.python_type(), int) and (n.is_constant or n.is_symbolic) for n in numbers):
        refuse(tracer, kernel.name, f"its grid is {grid.describe()}")
    return numbers


# Traced.


def bound(
    names: Sequence[str], defaults: Mapping[str, object], args: Sequence[object], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """A kernel's arguments by name."""
    given = {**dict(zip(names, args)), **kwargs}
    return {
        name: given[name] if name in given else defaults[name] for name in names if name in given or name in defaults
    }


def computed_grid(
    kernel: object,
    grid: Callable[..., object],
    names: Sequence[str],
    defaults: Mapping[str, object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    _: object,
) -> object:
    """The grid of a launch without an autotuner."""
    return [grid(bound(names, defaults, args, kwargs))]


def computed_grids(
    kernel: Autotuner,
    grid: Callable[..., object],
    names: Sequence[str],
    defaults: Mapping[str, object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    levels: Sequence[object],
) -> object:
    """The grid for each configuration of an autotuner."""
    found = []
    for config in kernel.configs:
        chosen = {**kwargs, **config.kwargs}
        layer: Layer = kernel
        for _ in levels:
            heuristics = layer.fn
            for name, function in heuristics.values.items():
                chosen[name] = function({**dict(zip(names, args)), **chosen})
            layer = heuristics
        found.append(grid(bound(names, defaults, args, chosen)))
    return found


@handles(*existing("torch.library.wrap_triton", "torch._library.capture_triton"))
def wrap_triton(call: Call, triton_kernel: Value) -> Value | None:
    """In a graph the kernel does what its wrapper would."""
    return triton_kernel if isinstance(triton_kernel, KernelValue) else None
