"""Checks the arguments of `compile`, and makes the frame hook for them; equal arguments share it, and so cached
code."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from typing import Any

import attrs

from armature import config
from armature.config import Config
from armature.errors import OptionOfProcess, UnknownBackend, UnknownMode, UnknownOption, WrongArgument
from armature.frame.hook import FrameHook
from armature.pipeline.backends import NATIVE
from armature.pipeline.compiler import Compiler
from armature.plugins.plugin_manager import manager
from armature.torch_abi.eval_frame import Key

MODES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "reduce-overhead": {"record_launches": True},
    "max-autotune": {"autotune": True, "record_launches": True},
    "max-autotune-no-cudagraphs": {"autotune": True},
}
"""The modes, as settings.

`autotune`: on a CUDA device, kernels are chosen by measuring. Products of matrices (mm, addmm, bmm, baddbmm, int8's mm)
are torch's with kernels around them, or one Triton kernel in one of several tile sizes; other kernels have other tile
sizes to choose from. Convolutions, grouped products and attention are torch's. On a CPU, products in float32 and
float64 are torch's or C++ by blocks of several sizes. Back ends that measure nothing say so in a warning.
"""


@attrs.frozen
class Options:
    """Checked arguments of `compile`. Equal ones share a hook."""

    fullgraph: bool = False
    dynamic: bool | None = None
    backend: str | Callable[..., Any] = "auto"
    changes: tuple[tuple[str, Hashable], ...] = ()  # settings for these compilations only


def checked(
    fullgraph: bool,
    dynamic: bool | None,
    backend: str | Callable[..., Any],
    mode: str | None,
    options: Mapping[str, Any] | None,
) -> Options:
    """The arguments as Options. Errors: UnknownBackend, UnknownMode, UnknownOption, UnknownPlugin,
    UnknownPass, WrongArgument, BadSetting.
    """
    if not isinstance(fullgraph, bool):
        raise WrongArgument(name="fullgraph", value=fullgraph, expected="True or False")
    if dynamic is not None and not isinstance(dynamic, bool):
        raise WrongArgument(name="dynamic", value=dynamic, expected="True, False or None")
    preset = settings_of(mode)
    if options is not None and not isinstance(options, Mapping):
        raise WrongArgument(name="options", value=options, expected="a mapping of settings, as in {'fuse': False}")
    _check_backend(backend)
    return Options(fullgraph, dynamic, backend, check_changes({**preset, **(options or {})}))


def settings_of(mode: object) -> Mapping[str, Any]:
    """The settings of a mode; None is "default". Errors: UnknownMode."""
    if mode is None:
        return {}
    if isinstance(mode, str) and mode in MODES:
        return MODES[mode]
    raise UnknownMode(name=mode, known=", ".join(f'"{name}"' for name in MODES))


def _check_backend(backend: object) -> None:
    if callable(backend):
        return
    if not isinstance(backend, str):
        raise WrongArgument(name="backend", value=backend, expected="a name or a function")
    if backend not in NATIVE:
        known = manager().tables().graph_backends
        if backend not in known:
            raise UnknownBackend(name=backend, known=", ".join((*NATIVE, *known)))


def check_changes(changes: Mapping[str, Any]) -> tuple[tuple[str, Hashable], ...]:
    """The settings with immutable values. Errors: UnknownOption, OptionOfProcess, BadSetting, UnknownPlugin,
    UnknownPass."""
    fields = attrs.fields_dict(Config)
    names = [name for name, field in fields.items() if not field.metadata["of_process"]]
    for name in changes:
        if name in fields and name not in names:
            raise OptionOfProcess(name=name, env=fields[name].metadata["env"])
        if name not in names:
            nearest = difflib.get_close_matches(str(name), names, n=1)
            raise UnknownOption(name=name, nearest=nearest[0] if nearest else f"one of {', '.join(names)}")
    made = config.current().changed(changes)  # checks the values, and makes them immutable
    manager().check_settings(made, changes)
    return tuple((name, getattr(made, name)) for name in changes)


@cache
def hook_for(options: Options) -> FrameHook:
    """The hook of these options."""
    compiler = Compiler(options.backend, options.fullgraph, options.dynamic, dict(options.changes))
    return FrameHook(compiler, Key())
