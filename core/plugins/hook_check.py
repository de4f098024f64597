"""Checks which functions of a plugin are valid hook implementations."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import pluggy

from armature import hookspecs
from armature.errors import PluginError, UnknownHook, WrongHookSignature
from armature.plugins.calls import Plugin

MARK = f"{hookspecs.PROJECT}_impl"  # the attribute that pluggy's marker sets


def hook_specs() -> Mapping[str, Callable[..., Any]]:
    """The hooks of the contract by name, in order."""
    return {name: spec for name, spec in vars(hookspecs).items() if name.startswith("armature_")}


def marked(obj: object) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The functions and methods of a plugin marked with `@hookimpl`, by the name of their hook."""
    for attribute in dir(obj):
        function = getattr(obj, attribute, None)
        options = getattr(function, MARK, None) if inspect.isroutine(function) else None
        if function is not None and isinstance(options, dict):
            yield options.get("specname") or attribute, function


def sound_hooks(obj: object, plugin: Plugin, report: Callable[[PluginError], None]) -> Mapping[str, Callable[..., Any]]:
    """The implementations that match their hook; the others are reported and left out."""
    specs = hook_specs()
    sound: dict[str, Callable[..., Any]] = {}
    for name, function in marked(obj):
        if name not in specs:
            nearest = difflib.get_close_matches(name, specs, n=1, cutoff=0.0)[0]
            report(UnknownHook(hook=name, nearest=nearest, **plugin.facts))
        elif problem := misfit(name, function, plugin):
            report(problem)
        else:
            sound[name] = function
    return sound


def as_plugin(hooks: Mapping[str, Callable[..., Any]]) -> ModuleType:
    """An object for pluggy with these functions. It is a module, because empty namespaces would equal one another."""
    made = ModuleType("hooks")
    vars(made).update(hooks)
    return made


def misfit(name: str, function: Callable[..., Any], plugin: Plugin) -> PluginError | None:
    """Why a function is not a valid implementation of its hook."""
    options = getattr(function, MARK)
    if options.get("wrapper") or options.get("hookwrapper"):
        return PluginError(
            hook=name, problem=f"{name} is a wrapper; hooks of armature can't be wrapped", **plugin.facts
        )
    if inspect.iscoroutinefunction(function):
        return PluginError(hook=name, problem=f"{name} is a coroutine; hooks are called plainly", **plugin.facts)
    trial = pluggy.PluginManager(hookspecs.PROJECT)
    trial.add_hookspecs(hookspecs)
    try:
        trial.register(as_plugin({name: function}))
    except pluggy.PluginValidationError:
        return WrongHookSignature(hook=name, given=parameters(function), expected=expected(name), **plugin.facts)
    required = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is parameter.KEYWORD_ONLY
    ]
    if required:
        return WrongHookSignature(hook=name, given=parameters(function), expected=expected(name), **plugin.facts)
    return None


def parameters(function: Callable[..., Any]) -> str:
    """The names of the parameters, as in the source."""
    return ", ".join(inspect.signature(function).parameters)


def expected(name: str) -> str:
    """A hook with its parameters, "armature_decide(subject)"."""
    return f"{name}({parameters(hook_specs()[name])})"
