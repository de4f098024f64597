"""Errors of what a user asks `armature.compile` for, and the warning of a fallback."""

from __future__ import annotations

from armature.errors import ArmatureError


class ArmatureWarning(UserWarning):
    """Something runs eagerly that could have been compiled, or is built in each process that could have been kept."""


class NotCallable(ArmatureError):
    """Something that is no function was given to `compile`, `disable` and their kin, which `call` names."""

    code = "A210"
    text = "{call} was given {what}, which can't be called"
    hint = "Give it {wanted}{suggestion}."

    def __init__(self, *, what: str, call: str = "armature.compile", wanted: str = "", suggestion: str = "") -> None:
        wanted = wanted or "a function or a torch.nn.Module"
        super().__init__(what=what, call=call, wanted=wanted, suggestion=suggestion)


class UnknownBackend(ArmatureError):
    """A name that is no graph backend."""

    code = "A211"
    text = "there is no backend {name!r}"
    hint = "Choose one of {known}, or give a function backend(graph_module, example_inputs) that returns a callable."


class UnknownMode(ArmatureError):
    """A name that is no mode."""

    code = "A212"
    text = "there is no mode {name!r}"
    hint = 'The only one is "default", which is what you get without one; settings are changed with options={{...}}.'


class ModeNotThere(UnknownMode):
    """A mode of torch.compile that armature does not have: taking it would promise what is not done."""

    code = "A225"
    text = "the mode {name!r} of torch.compile is not there in armature"
    hint = "Leave it out. {instead}"


class UnknownOption(ArmatureError):
    """A key of `options` that is no setting of a compilation."""

    code = "A213"
    text = "there is no option {name!r}"
    hint = "Did you mean {nearest}? `armature doctor` lists all settings."


class WrongArgument(ArmatureError):
    """An argument of `compile` and its kin, which `call` names, has the wrong type."""

    code = "A214"
    text = "{name} is {value!r}; expected {expected}"
    hint = "See the documentation of {call}."

    def __init__(self, *, name: str, value: object, expected: str, call: str = "armature.compile") -> None:
        super().__init__(name=name, value=value, expected=expected, call=call)


class NoPlugins(ArmatureError):
    """The core is installed alone."""

    code = "A215"
    text = "no plugins are installed, so armature compiles nothing and runs your program as it is"
    hint = 'pip install "torch-armature[cpu]" for the CPU, "torch-armature[gpu]" for a GPU.'


class NoDeviceBackend(ArmatureError):
    """No plugin makes kernels for a device."""

    code = "A216"
    text = "no plugin makes kernels for the device {device!r}: operators on it run one by one"
    hint = "{fix}"


class DeviceBackendUnready(ArmatureError):
    """A device back end is installed but can't work."""

    code = "A217"
    text = "{backend} can't build kernels: {missing}"
    hint = "`armature doctor` shows what was found. Until then your program runs as it is."


class ReadsSource(ArmatureError):
    """A tool of torch that reads the class of a module, instead of calling it, was given a compiled module."""

    code = "A218"
    text = "{tool} reads the class of a module, which tells nothing of one that armature compiled"
    hint = "Give it the module that was compiled, `module.__armature_original__`, and compile what it returns."


class BackendFunctionFailed(ArmatureError):
    """A function given as `backend` raised, or did not do what is expected of one. `__cause__` is what it raised."""

    code = "A219"
    text = "the backend {backend} {problem} (for the graph of {function})"
    hint = (
        "A backend is a function (graph_module, example_inputs) that returns a callable. It takes what the graph takes "
        'and returns a tuple. backend="eager" runs the same graph without it.'
    )
