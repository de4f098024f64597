"""The arguments of `compile`, checked; and the frame hook for them: equal arguments share it, and so cached code."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from typing import Any

import attrs

from armature import config
from armature.api_errors import UnknownBackend, UnknownMode, UnknownOption, WrongArgument
from armature.config import Config
from armature.frame.hook import FrameHook
from armature.pipeline import NATIVE, Compiler
from armature.plugins import manager

MODES: Mapping[str, Mapping[str, object]] = {
    # The names of torch.compile, so that its calls can be redirected; armature has one way to compile.
    "default": {},
    "reduce-overhead": {},
    "max-autotune": {},
    "max-autotune-no-cudagraphs": {},
}


@attrs.frozen
class Options:
    """Checked arguments of `compile`. Equal ones share a hook."""

    fullgraph: bool = False
    dynamic: bool | None = None
    backend: str | Callable[..., Any] = "auto"
    changes: tuple[tuple[str, Hashable], ...] = ()  # settings for these compilations only


class Key:
    """What torch files cached code under. A type without attributes: torch asks each key for one on every call."""

    __slots__ = ()


def checked(
    fullgraph: bool,
    dynamic: bool | None,
    backend: str | Callable[..., Any],
    mode: str | None,
    options: Mapping[str, Any] | None,
) -> Options:
    """The arguments as Options. Errors: UnknownBackend, UnknownMode, UnknownOption, WrongArgument, BadSetting."""
    if not isinstance(fullgraph, bool):
        raise WrongArgument(name="fullgraph", value=fullgraph, expected="True or False")
    if dynamic is not None and not isinstance(dynamic, bool):
        raise WrongArgument(name="dynamic", value=dynamic, expected="True, False or None")
    if mode is not None and (not isinstance(mode, str) or mode not in MODES):
        raise UnknownMode(name=mode, known=", ".join(MODES))
    if options is not None and not isinstance(options, Mapping):
        raise WrongArgument(name="options", value=options, expected="a mapping of settings, as in {'fuse': False}")
    _check_backend(backend)
    changes = {**MODES[mode or "default"], **(options or {})}
    return Options(fullgraph, dynamic, backend, _check_changes(changes))


def _check_backend(backend: object) -> None:
    if callable(backend):
        return
    if not isinstance(backend, str):
        raise WrongArgument(name="backend", value=backend, expected="a name or a function")
    if backend not in NATIVE:
        known = manager().tables().graph_backends
        if backend not in known:
            raise UnknownBackend(name=backend, known=", ".join((*NATIVE, *known)))


def _check_changes(changes: Mapping[str, Any]) -> tuple[tuple[str, Hashable], ...]:
    names = [field.name for field in attrs.fields(Config)]
    for name in changes:
        if name not in names:
            nearest = difflib.get_close_matches(str(name), names, n=1) or names
            raise UnknownOption(name=name, nearest=nearest[0])
    made = config.current().changed(changes)  # checks the values, and makes them immutable
    return tuple((name, getattr(made, name)) for name in changes)


@cache
def hook_for(options: Options) -> FrameHook:
    """The hook of these options."""
    compiler = Compiler(options.backend, options.fullgraph, options.dynamic, dict(options.changes))
    return FrameHook(compiler, Key())
