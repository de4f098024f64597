"""All errors. Each class has a code, a text in the user's terms and a hint that says what to do.

A raise passes facts, never prose: `raise UnknownBackend(name=name, known=...)`. The user's file and line, if known,
come first in the printed message. A1xx plugins, A2xx a user's requests, A3xx tracing, A4xx lowering and scheduling,
A5xx code generation and tools, A9xx armature's own faults.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar, Self


class ArmatureError(Exception):
    """Base class of all errors. Subclasses set `code`, `text` and `hint`, templates over the constructor's facts."""

    code: ClassVar[str] = "A000"
    text: ClassVar[str] = ""
    hint: ClassVar[str] = ""

    def __init__(self, *, where: str = "", **facts: object) -> None:
        self.where = where
        self.facts = facts
        super().__init__(self.message())

    def message(self) -> str:
        """The whole message: location, code, what happened, what to do."""
        lead = f"{self.where}: " if self.where else ""
        body = f"{lead}[{self.code}] {self.text.format(**self.facts)}"
        hint = self.hint.format(**self.facts)
        return f"{body}\n  What to do: {hint}" if hint else body

    def fresh(self) -> Self:
        """A fresh copy to raise, so that a stored error does not collect tracebacks."""
        return type(self)(where=self.where, **self.facts)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question with the most similar known name, ending in a space; "" if none is similar."""
    nearest = difflib.get_close_matches(name, list(known), n=1)
    return f"Did you mean {nearest[0]!r}? " if nearest else ""


class InvariantError(ArmatureError):
    """A guarantee of armature itself is violated."""

    code = "A900"
    text = "{what} ({details})"
    hint = "This is a fault of armature, not of your program. Please report it with the text above."


def invariant(condition: bool, what: str, **facts: object) -> None:
    """Raise InvariantError with the facts if the condition does not hold."""
    if not condition:
        details = ", ".join(f"{k}={v!r}" for k, v in facts.items())
        raise InvariantError(what=what, details=details)


class Unsupported(ArmatureError):
    """Under fullgraph=True: the frame can't be captured in one graph."""

    code = "A301"
    text = "{title}: {explanation}\n{stack}"
    hint = "{hints}"


class BackendError(ArmatureError):
    """A device back end could not build or load a kernel."""

    code = "A501"
    text = "{backend} could not build {what}: {message}"
    hint = "{fix}"


class NoKernelFolder(ArmatureError):
    """Neither the configured folder nor a temporary one can hold built kernels."""

    code = "A502"
    text = "there is no folder to build kernels in: {folder} can't be used ({reason}), nor a temporary one ({error})"
    hint = "Let ARMATURE_CACHE_DIR or TMPDIR name a folder of yours that can be written and run from."


class LoweringError(ArmatureError):
    """An operator's lowering failed."""

    code = "A401"
    text = "lowering {op} failed: {message}"
    hint = "Run with ARMATURE_STRICT=0 to use eager for this frame, and report the operator with its input shapes."


class PluginLoweringFailed(LoweringError):
    """A plugin's lowering raised, or gave another result than its operator."""

    code = "A402"
    text = "lowering {op} of plugin {plugin} failed: {message}"
    hint = "Report it to {plugin}. With ARMATURE_STRICT=0 the operator stays an ATen call."


class PluginError(ArmatureError):
    """A problem with a plugin. Facts of all: plugin, distribution, version, hook ("" if none)."""

    code = "A100"
    text = "plugin {plugin} ({distribution} {version}): {problem}"
    hint = "Update it, or leave it out with ARMATURE_DISABLE_PLUGINS={plugin}."


class PluginImportFailed(PluginError):
    """The entry point of a plugin could not be imported."""

    code = "A101"
    text = "plugin {plugin} ({distribution} {version}) could not be imported: {problem}"
    hint = "Reinstall {distribution}, or leave it out with ARMATURE_DISABLE_PLUGINS={plugin}."


class PluginVersionMismatch(PluginError):
    """A plugin is written for another version of the plugin API or of armature."""

    code = "A102"
    text = "plugin {plugin} ({distribution} {version}) is written for {wanted}; this is {have}"
    hint = "Install a version of {distribution} that matches, or leave it out with ARMATURE_DISABLE_PLUGINS={plugin}."


class UnknownHook(PluginError):
    """A function is marked as a hook implementation, but there is no such hook."""

    code = "A103"
    text = "plugin {plugin} ({distribution} {version}) implements {hook}, which is not a hook of armature"
    hint = "Did you mean {nearest}? All hooks are in armature.hookspecs."


class WrongHookSignature(PluginError):
    """A hook implementation's parameters differ from the hook's."""

    code = "A104"
    text = "plugin {plugin} ({distribution} {version}): {hook}({given}) takes other arguments than the hook passes"
    hint = "Write it as {expected}; arguments that are not needed may be left out."


class HookFailed(PluginError):
    """A hook implementation raised."""

    code = "A105"
    text = "plugin {plugin} ({distribution} {version}): {hook} raised {problem} at {place}"
    hint = "Report it to the authors of {distribution}, or leave it out with ARMATURE_DISABLE_PLUGINS={plugin}."


class InvalidRow(PluginError):
    """A hook returned something that is not a row of its table."""

    code = "A106"
    text = "plugin {plugin} ({distribution} {version}): {hook} returned {row}: {problem}"
    hint = "Return rows as the docstring of armature.hookspecs.{hook} shows."


class DuplicateRow(PluginError):
    """Two rows for the same key have the same priority."""

    code = "A107"
    text = "{table} of {key}: registered with the same priority by {first} and by {second}; the first one is used"
    hint = "Give one row a larger priority, set ARMATURE_PLUGIN_ORDER={plugin}, or disable one of the plugins."


class PassOrderCycle(PluginError):
    """The before and after of passes contradict each other."""

    code = "A108"
    text = "the passes of stage {stage} cannot be ordered: {cycle}"
    hint = "Remove one `before` or `after`; {plugin} is among those that declare them."


class PassFailed(ArmatureError):
    """A pass raised, or broke the graph."""

    code = "A112"
    text = "pass {name} of plugin {plugin} failed: {problem}"
    hint = "Report it to {plugin}. ARMATURE_DISABLE_PASSES={name} leaves the pass out."


class FusionRuleFailed(ArmatureError):
    """A rule of fusion raised."""

    code = "A115"
    text = "fusion rule {name} of plugin {plugin} failed: {problem}"
    hint = "Report it to {plugin}. ARMATURE_DISABLE_PLUGINS={plugin} leaves the plugin out."


class DuplicatePlugin(PluginError):
    """Two plugins have the same name."""

    code = "A109"
    text = "there is a plugin {plugin} already ({held}); that of {distribution} {version} is left out"
    hint = "Uninstall one of them."


class UnknownPlugin(ArmatureError):
    """A name that is not a plugin's."""

    code = "A110"
    text = "there is no plugin {name!r}"
    hint = "{nearest}Choose from: {known}."


class UnknownPass(ArmatureError):
    """A name that is not a pass's."""

    code = "A113"
    text = "there is no pass {name!r}"
    hint = "{nearest}Choose from: {known}."


class UndeclaredSlots(ArmatureError):
    """A class of values implements operations that it does not declare."""

    code = "A114"
    text = "the value class {name} {problem}"
    hint = "List in `slots` of the class the special methods that its objects support, as docs/plugins.md says."


class UnknownBreakType(ArmatureError):
    """A graph break was raised with an id that is in no catalogue."""

    code = "A111"
    text = "no plugin has a break type {id!r}"
    hint = "Return it from armature_break_types, or install the plugin that does: pip install {distribution}."


class UnknownName(ArmatureError, LookupError):
    """A dotted name that leads to nothing."""

    code = "A203"
    text = "{name!r} is not the name of anything that can be imported here"
    hint = "{advice}"


class PathTaken(ArmatureError):
    """A file or folder to be made already exists."""

    code = "A204"
    text = "{path} exists already"
    hint = "Choose another name, or another place with --path."


class BadPluginName(ArmatureError):
    """A name for a new plugin that can't be a package's."""

    code = "A205"
    text = "{name!r} can't be the name of a plugin"
    hint = "Use letters, digits, - and _, and begin with a letter: armature plugins new {suggestion}."


class BadSetting(ArmatureError):
    """A setting has an invalid value."""

    code = "A201"
    text = "{name} is {value!r}: {problem}"
    hint = "Set it to a valid value, or leave it out for the default; `armature doctor` lists all settings."


class UnknownSetting(ArmatureError):
    """There is no setting of that name."""

    code = "A202"
    text = "there is no setting {name!r}"
    hint = "Did you mean: {nearest}?"


class ArmatureWarning(UserWarning):
    """Something runs eagerly that could have been compiled, or kernels are rebuilt that could have been cached."""


class NotCallable(ArmatureError):
    """A value that can't be called was passed to `compile`, `disable` or the like, which `call` names."""

    code = "A210"
    text = "{call} was given {what}, which can't be called"
    hint = "Give it {wanted}{suggestion}."

    def __init__(self, *, what: str, call: str = "armature.compile", wanted: str = "", suggestion: str = "") -> None:
        wanted = wanted or "a function or a torch.nn.Module"
        super().__init__(what=what, call=call, wanted=wanted, suggestion=suggestion)


class UnknownBackend(ArmatureError):
    """A name that is not a graph backend's."""

    code = "A211"
    text = "there is no backend {name!r}"
    hint = "Choose one of {known}, or give a function backend(graph_module, example_inputs) that returns a callable."


class UnknownMode(ArmatureError):
    """A name that is not a mode's."""

    code = "A212"
    text = "there is no mode {name!r}"
    hint = 'Choose one of {known}; without one you get "default". Settings are changed with options={{...}}.'


class UnknownOption(ArmatureError):
    """A key of `options` that is not a setting of a compilation."""

    code = "A213"
    text = "there is no option {name!r}"
    hint = "Did you mean {nearest}? `armature doctor` lists all settings."


class OptionOfProcess(UnknownOption):
    """A key of `options` that is a setting of the whole process."""

    code = "A227"
    text = "{name} is a setting of the whole process, not of one function"
    hint = "Set {env}, or call armature.config.update({name}=...)."


class WrongArgument(ArmatureError):
    """An argument of `compile` or the like, which `call` names, has the wrong type."""

    code = "A214"
    text = "{name} is {value!r}; expected {expected}"
    hint = "See the documentation of {call}."

    def __init__(self, *, name: str, value: object, expected: str, call: str = "armature.compile") -> None:
        super().__init__(name=name, value=value, expected=expected, call=call)


class NoPlugins(ArmatureError):
    """Only the core is installed."""

    code = "A215"
    text = "no plugins are installed, so armature compiles nothing and runs your program as it is"
    hint = 'pip install "torch-armature[cpu]" for the CPU, "torch-armature[gpu]" for a GPU.'


class NoDeviceBackend(ArmatureError):
    """No plugin makes kernels for a device."""

    code = "A216"
    text = "no plugin makes kernels for the device {device!r}: operators on it run one by one"
    hint = (
        'pip install "torch-armature[cpu]" has one for CPUs, "torch-armature[gpu]" one for NVIDIA GPUs; '
        "for another device, install a plugin that is made for it."
    )


class DeviceBackendUnready(ArmatureError):
    """A device back end is installed but can't work."""

    code = "A217"
    text = "{backend} can't build kernels: {missing}"
    hint = "`armature doctor` shows what was found. Until then your program runs as it is."


class ReadsSource(ArmatureError):
    """A torch tool that reads a module's class instead of calling it was given a compiled module."""

    code = "A218"
    text = "{tool} reads the class of a module, which does not describe a module compiled by armature"
    hint = "Give it the module that was compiled, `module.__armature_original__`, and compile what it returns."


class BackendFunctionFailed(ArmatureError):
    """A function passed as `backend` raised, or did not do what is expected of one. `__cause__` is its error."""

    code = "A219"
    text = "the backend {backend} {problem} (for the graph of {function})"
    hint = (
        "A backend is a function (graph_module, example_inputs) that returns a callable. It takes what the graph takes "
        'and returns a tuple. backend="eager" runs the same graph without it.'
    )
