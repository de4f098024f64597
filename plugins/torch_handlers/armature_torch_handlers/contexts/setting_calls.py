"""Calls that change how torch computes: `torch.use_deterministic_algorithms`, `torch.set_float32_matmul_precision` and
their kind, also those behind `torch.backends.cudnn.benchmark = True`.

Operators read these settings when they run, and lowering reads them too, so a call is a context that is left where the
program makes the setting again, or where the graph ends. The code after the graph then sets what holds at the end.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FunctionType
from typing import NoReturn

import attrs
import torch

from armature.plugin_api import (
    UNCOMPILED,
    Call,
    FrameView,
    PairedContextValue,
    SkipFrame,
    Tracing,
    Value,
    Write,
    existing,
    grad_modes,
    handles,
)
from armature_torch_handlers.contexts.generators import GeneratorContextValue

Arguments = tuple[object, ...]
Context = tuple[Callable[..., object], Arguments, Callable[..., object]]
"""What a context is made of: the function that enters it, its arguments, and the function that leaves it."""


@attrs.frozen(eq=False)
class Setting:
    """A setting. read: what `set_back` takes, which begins with what `set` takes; about: those of one kind change each
    other."""

    about: str
    read: Callable[[], Arguments]
    set: Callable[..., object]
    set_back: Callable[..., object]


def deterministic_now() -> Arguments:
    """Whether algorithms must be deterministic, and whether others only warn."""
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def set_deterministic(mode: bool, warn_only: bool) -> None:
    """`torch.use_deterministic_algorithms`, without names."""
    torch.use_deterministic_algorithms(mode, warn_only=warn_only)


LIBRARIES = (torch.backends.cuda, torch.backends.mkldnn)
PRODUCTS = tuple(part.matmul for part in LIBRARIES if hasattr(getattr(part, "matmul", None), "fp32_precision"))


def precision_now() -> Arguments:
    """The precision of products, for all libraries and each. Errors: RuntimeError where both have been set."""
    return (torch.get_float32_matmul_precision(), *(part.fp32_precision for part in PRODUCTS))


def set_precision_back(precision: str, *of_libraries: str) -> None:
    """Set the precision of products, also where a library's was not set."""
    torch.set_float32_matmul_precision(precision)
    for part, held in zip(PRODUCTS, of_libraries, strict=True):
        part.fp32_precision = held


def tf32_now() -> Arguments:
    """Whether products on GPUs may be in TF32, and the precisions."""
    return (torch.backends.cuda.matmul.allow_tf32, *precision_now())


def set_tf32_back(allowed: bool, *precisions: str) -> None:
    """Set it back: whether it is allowed follows from the precisions."""
    set_precision_back(*precisions)


CONVOLUTIONS = tuple(
    getattr(torch.backends.cudnn, name)
    for name in ("conv", "rnn")
    if hasattr(getattr(torch.backends.cudnn, name, None), "fp32_precision")
)


def cudnn_tf32_now() -> Arguments:
    """Whether convolutions on GPUs may be in TF32, and the precisions. Errors: RuntimeError where these differ."""
    return (torch.backends.cudnn.allow_tf32, *(part.fp32_precision for part in CONVOLUTIONS))


def set_cudnn_tf32_back(allowed: bool, *precisions: str) -> None:
    """Set it back, also where the precisions were set and not this."""
    torch.backends.cudnn.allow_tf32 = allowed
    for part, held in zip(CONVOLUTIONS, precisions, strict=True):
        part.fp32_precision = held


def anomaly_now() -> Arguments:
    """Whether autograd looks for anomalies, and for NaN among them."""
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


@attrs.frozen
class One:
    """What a function returns, as the only argument of another."""

    read: Callable[[], object]

    def __call__(self) -> Arguments:
        return (self.read(),)


DETERMINISTIC, PRECISION, CUDA = "deterministic algorithms", "precision of products", torch.backends.cuda
BY_FUNCTION = {
    torch.set_deterministic_debug_mode: Setting(
        DETERMINISTIC,
        One(torch.get_deterministic_debug_mode),
        torch.set_deterministic_debug_mode,
        torch.set_deterministic_debug_mode,
    ),
    **{
        fn: Setting(PRECISION, precision_now, fn, set_precision_back)
        for fn in existing("torch.set_float32_matmul_precision", "torch._C._set_float32_matmul_precision")
    },
    **{
        fn: Setting(PRECISION, tf32_now, fn, set_tf32_back)
        for fn in existing("torch._C._set_cublas_allow_tf32")  # `torch.backends.cuda.matmul.allow_tf32 = ...`
    },
    **{
        fn: Setting("precision of convolutions", cudnn_tf32_now, fn, set_cudnn_tf32_back)
        for fn in existing("torch._C._set_cudnn_allow_tf32")
    },
    **{fn: Setting("detection of anomalies", anomaly_now, fn, fn) for fn in existing("torch.set_anomaly_enabled")},
    **{
        setter: Setting(read.__name__, read, setter, setter)  # two flags, in one tuple
        for reads, sets in (
            (f"torch._C._get_cublas_allow_{name}", f"torch._C._set_cublas_allow_{name}")
            for name in ("fp16_reduced_precision_reduction", "bf16_reduced_precision_reduction")
        )
        for read, setter in zip(existing(reads), existing(sets), strict=False)
    },
    **{
        fn: Setting(f"kernels of attention: {read.__name__}", One(read), fn, fn)
        for read, fn in (
            (CUDA.flash_sdp_enabled, CUDA.enable_flash_sdp),
            (CUDA.math_sdp_enabled, CUDA.enable_math_sdp),
            (CUDA.mem_efficient_sdp_enabled, CUDA.enable_mem_efficient_sdp),
            (CUDA.cudnn_sdp_enabled, CUDA.enable_cudnn_sdp),
        )
    },
    **{
        setter: Setting(read.__name__, One(read), setter, setter)
        for reads, sets in (
            ("torch.is_warn_always_enabled", "torch.set_warn_always"),
            ("torch._C._get_cudnn_enabled", "torch._C._set_cudnn_enabled"),
            ("torch._C._get_cudnn_benchmark", "torch._C._set_cudnn_benchmark"),
            ("torch._C._get_cudnn_deterministic", "torch._C._set_cudnn_deterministic"),
            ("torch._C._get_mkldnn_enabled", "torch._C._set_mkldnn_enabled"),
            ("torch._C._get_cublas_allow_fp16_accumulation", "torch._C._set_cublas_allow_fp16_accumulation"),
            ("torch._C._get_mkldnn_deterministic", "torch._C._set_mkldnn_deterministic"),
        )
        for read, setter in zip(existing(reads), existing(sets), strict=False)  # none where torch lacks one
    },
}
SETTINGS = {
    DETERMINISTIC: Setting(DETERMINISTIC, deterministic_now, set_deterministic, set_deterministic),
    **{fn.__name__: setting for fn, setting in BY_FUNCTION.items()},
}
DEBUG_MODES: dict[object, object] = {"default": 0, "warn": 1, "error": 2}


def make_setting(name: str, wanted: Arguments) -> tuple[str, Arguments]:
    """Make a setting; returns what sets it back."""
    before = SETTINGS[name].read()
    SETTINGS[name].set(*wanted)
    return name, before


def set_back(made: tuple[str, Arguments]) -> None:
    """Set it back."""
    name, before = made
    SETTINGS[name].set_back(*before)


for each in (make_setting, set_back):
    setattr(each, UNCOMPILED, frozenset())


@attrs.frozen
class AutocastNow:
    """Whether a device has autocast, with the device: what `torch.set_autocast_enabled` takes."""

    device: str

    def __call__(self) -> Arguments:
        return self.device, torch.is_autocast_enabled(self.device)


@attrs.frozen(eq=False)
class ChosenSetting:
    """A setting that the frame has made. wanted: as arguments of `set`; before: what held when the frame began."""

    setting: Setting
    wanted: Arguments
    before: Arguments


@attrs.define(eq=False)
class SettingCallValue(GeneratorContextValue):
    """The context that a call stands for."""

    chosen: ChosenSetting = attrs.field(kw_only=True)

    def describe(self) -> str:
        return f"a call that sets the {self.chosen.setting.about}"


def set_from_here(call: Call, name: str, wanted: Arguments) -> Value:
    """Make a setting from here on. Errors: those of torch, for the program."""
    change_from_here(call, SETTINGS[name], wanted, (make_setting, (name, wanted), set_back))
    return call.constant(None)


def change_from_here(call: Call, setting: Setting, wanted: Arguments, context: Context) -> None:
    """Make a setting from here on, by the functions of a context that makes it. Errors: those of torch."""
    tracing = call.tracing
    held = made_here(tracing, setting.about)
    if held is not None and held.chosen.setting.set is not setting.set:
        cannot(call)
    try:
        now = setting.read()
    except RuntimeError:
        cannot(call)
    try:
        setting.set(*wanted)
    except (RuntimeError, TypeError, ValueError) as error:
        tracing.raise_real(error)
    then = setting.read()
    setting.set_back(*now)
    if then[: len(wanted)] != wanted:  # torch warns
        cannot(call)
    if held is None:
        tracing.guards.answers(setting.read, (), {}, now)
    elif then != now:
        held.leave(tracing)
    before = now if held is None else held.chosen.before
    if then not in (now, before):
        facts = ChosenSetting(setting, wanted, before)
        SettingCallValue(AbstractContextManager, *context, chosen=facts).enter(tracing)
        tracing.ending.checks[end_settings] = None


def cannot(call: Call) -> NoReturn:
    """Break the graph at a setting."""
    call.graph_break("global-state", function=f"{call.fn.__module__ or 'torch'}.{call.fn.__name__}")


def made_here(tracing: Tracing, about: str) -> SettingCallValue | None:
    """The setting of a kind that the frame has made, if it holds now."""
    held = (each for each in tracing.effects.entered if isinstance(each, SettingCallValue))
    return next((each for each in held if each.chosen.setting.about == about), None)


def end_settings(tracing: Tracing, frame: FrameView | None, result: Value | None) -> None:
    """Called where the graph ends: it ends with the settings that it began with, and the code after it makes them. At
    a break inside a context that makes settings as well, the call breaks the graph: the context is entered again."""
    opened = [each for each in tracing.effects.entered if isinstance(each, GeneratorContextValue)]
    held = [each for each in opened if isinstance(each, SettingCallValue)]
    if frame is None or (result is None and len(held) < len(opened)):
        return
    for each in reversed(held):
        each.leave(tracing)
    for each in held:
        operands = tuple(tracing.constant(argument) for argument in each.chosen.wanted)
        tracing.effects.call(Write(each.chosen.setting.set, operands))


@handles(*existing("torch.use_deterministic_algorithms"))
def use_deterministic_algorithms(call: Call, mode: Value, *, warn_only: Value | None = None) -> Value:
    """Whether algorithms must be deterministic from here on."""
    given = mode.python_type(), bool if warn_only is None else warn_only.python_type()
    if given != (bool, bool):
        cannot(call)
    warns = warn_only is not None and warn_only.truth(call.tracing)
    return set_from_here(call, DETERMINISTIC, (mode.truth(call.tracing), warns))


@handles(*BY_FUNCTION)
def set_one(call: Call, *args: Value, **kwargs: Value) -> Value:
    """A setting of one value from here on, or of two that are one setting."""
    if isinstance(call.fn, FunctionType):
        try:
            args, kwargs = inspect.signature(call.fn).bind(*args, **kwargs).args, {}
        except TypeError:  # eager mode says it in its words
            cannot(call)
    if kwargs or not args or not all(value.is_constant for value in args):
        cannot(call)
    given = (value.as_constant() for value in args)
    return set_from_here(call, call.fn.__name__, tuple(DEBUG_MODES.get(wanted, wanted) for wanted in given))


@handles(*existing("torch.set_autocast_enabled"))
def set_autocast(call: Call, *args: Value, **kwargs: Value) -> Value:
    """Autocast from here on, for a device, or for CUDA without one: as in a context of autocast."""
    given = [value.as_constant() for value in args if value.is_constant]
    match given:
        case [str() as device, bool() as enabled] if len(args) == 2 and not kwargs:
            pass
        case [bool() as enabled] if len(args) == 1 and not kwargs:
            device = "cuda"
        case _:
            cannot(call)
    if any(map(is_autocast, call.tracing.effects.entered)):  # a break would enter that context again, and undo the call
        raise SkipFrame("it sets autocast within a context of autocast that it has entered")
    if device not in grad_modes.AUTOCAST_DEVICES:
        cannot(call)
    call.tracing.guards.autocast_dtype(device)
    setting = Setting(
        f"autocast of {device}", AutocastNow(device), torch.set_autocast_enabled, torch.set_autocast_enabled
    )
    arguments = device, torch.get_autocast_dtype(device), enabled, torch.is_autocast_cache_enabled()
    context = grad_modes.enter_autocast, arguments, grad_modes.exit_autocast
    change_from_here(call, setting, (device, enabled), context)
    return call.constant(None)


def is_autocast(entered: Value) -> bool:
    """Whether it is a context of autocast, and no call that sets it."""
    if not isinstance(entered, PairedContextValue) or isinstance(entered, SettingCallValue):
        return False
    return entered.enter_by is grad_modes.enter_autocast


@handles(torch.backends.ContextProp.__set__)
def set_attribute(call: Call, described: Value, module: Value, value: Value) -> Value:
    """An attribute of one of torch's libraries is set, which calls a function."""
    prop = described.as_object()
    if getattr(prop, "setter", None) not in BY_FUNCTION or torch.backends.flags_frozen():
        name = next((name for name, held in vars(module.python_type()).items() if held is prop), "")
        call.graph_break("sets-library-attribute", name=name, type=module.describe())
    return described.get_attribute(call.tracing, "setter").call(call.tracing, (value,), {})
