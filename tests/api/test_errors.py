"""What a user gets wrong: each gives an error with a code and the fix, or a clean fallback that names it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import armature
from armature.api_errors import (
    ArmatureWarning,
    DeviceBackendUnready,
    ModeNotThere,
    NoDeviceBackend,
    NoPlugins,
    NotCallable,
    UnknownBackend,
    UnknownMode,
    UnknownOption,
    WrongArgument,
)
from armature.config import BadSetting
from armature.hookspecs import hookimpl
from armature.plugins import manager
from armature.session import Outcome, session


def increment(x: Any) -> Any:
    return x + 1


@pytest.mark.parametrize("what", [3, None.__class__, "text", torch.ones(1)])
def test_not_callable(what: Any) -> None:
    with pytest.raises(NotCallable, match="A210"):
        armature.compile(what)


def test_a_class_is_told_what_to_compile_instead() -> None:
    with pytest.raises(NotCallable, match="an instance of it"):
        armature.compile(torch.nn.Linear)


def test_unknown_backend_names_those_there_are() -> None:
    with pytest.raises(UnknownBackend, match="auto, armature") as caught:
        armature.compile(increment, backend="tensorrtt")
    assert "'tensorrtt'" in str(caught.value)


@pytest.mark.parametrize("mode", ["fastest", "", 3, ["default"]])
def test_unknown_mode(mode: Any) -> None:
    with pytest.raises(UnknownMode, match=r'A212(.|\n)*The only one is "default"(.|\n)*options=\{'):
        armature.compile(increment, mode=mode)


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_a_mode_of_torch_compile_that_would_do_nothing_is_refused(mode: str) -> None:
    with pytest.raises(ModeNotThere, match=r"A225(.|\n)*What to do: Leave it out"):
        armature.compile(increment, mode=mode)


@pytest.mark.parametrize("mode", [None, "default"])
def test_the_mode_there_is(mode: str | None) -> None:
    assert torch.equal(armature.compile(increment, mode=mode, backend="eager")(torch.zeros(2)), torch.ones(2))


def test_unknown_option_names_the_nearest() -> None:
    with pytest.raises(UnknownOption, match="Did you mean fuse"):
        armature.compile(increment, options={"fuze": True})


def test_wrong_value_of_an_option() -> None:
    with pytest.raises(BadSetting, match="recompile_limit"):
        armature.compile(increment, options={"recompile_limit": 0})


@pytest.mark.parametrize(
    "arguments", [{"fullgraph": 1}, {"dynamic": "yes"}, {"backend": 3}, {"options": "fuse"}, {"options": [1]}]
)
def test_wrong_type_of_an_argument(arguments: dict[str, Any]) -> None:
    with pytest.raises(WrongArgument, match="A214"):
        armature.compile(increment, **arguments)


@pytest.mark.parametrize("call", [armature.disable, armature.allow_in_graph, armature.explain])
def test_other_functions_want_a_callable_too(call: Any) -> None:
    with pytest.raises(NotCallable):
        call(3)


def test_marking_wants_a_tensor_and_its_dimensions() -> None:
    with pytest.raises(WrongArgument):
        armature.mark_dynamic([1], 0)  # type: ignore[arg-type]
    with pytest.raises(WrongArgument):
        armature.mark_static(torch.ones(2), 1)


def test_without_plugins_everything_runs_eagerly_and_says_what_to_install() -> None:
    everyone = frozenset(plugin.name for plugin in manager().plugins)
    compiled = armature.compile(increment)
    alone = armature.config.patch(disabled_plugins=everyone, strict=False)
    with alone, pytest.warns(ArmatureWarning, match=r'pip install "torch-armature\[cpu\]"'):
        assert torch.equal(compiled(torch.zeros(2)), torch.ones(2))
    armature.reset()
    with armature.config.patch(disabled_plugins=everyone), pytest.raises(NoPlugins):
        compiled(torch.zeros(2))


class Unready:
    """A device back end whose tools are missing."""

    name = "unready"
    device_types = frozenset({"cpu"})

    def missing(self) -> str:
        return "no C++ compiler was found; apt install g++"


class UnreadyPlugin:
    ARMATURE_PRIORITY = 10

    @hookimpl(tryfirst=True)
    def armature_device_backend(self, device_type: str) -> Any:
        return Unready() if device_type == "cpu" else None


def test_no_compiler_ends_in_eager_and_names_the_fix() -> None:
    compiled = armature.compile(increment)
    with manager().registered(UnreadyPlugin(), "unready"):
        with armature.config.patch(strict=False), pytest.warns(ArmatureWarning, match=r"apt install g\+\+") as caught:
            assert torch.equal(compiled(torch.zeros(2)), torch.ones(2))
        assert caught[0].filename == __file__
        assert session().compilations[-1].outcome is Outcome.FALLBACK
        armature.reset()
        with pytest.raises(DeviceBackendUnready):
            compiled(torch.zeros(2))


def test_a_device_without_a_plugin_runs_operator_by_operator_and_says_so() -> None:
    compiled = armature.compile(increment)
    with pytest.warns(ArmatureWarning, match=NoDeviceBackend.code) as caught:
        result = compiled(torch.zeros(2, device="meta"))
    assert result.device.type == "meta" and result.shape == (2,)
    assert "'meta'" in str(caught[0].message)


def broken_backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    raise RuntimeError("the backend is broken")


class BrokenPlugin:
    @hookimpl
    def armature_graph_backends(self) -> Any:
        return {"broken": broken_backend}


def test_a_fault_of_the_compiler_ends_in_eager_with_one_warning() -> None:
    with manager().registered(BrokenPlugin(), "broken"), armature.config.patch(strict=False):
        compiled = armature.compile(increment, backend="broken")
        with pytest.warns(ArmatureWarning, match="the backend is broken") as caught:
            assert torch.equal(compiled(torch.zeros(2)), torch.ones(2))
        assert len(caught) == 1 and "armature doctor" in str(caught[0].message)
        assert (caught[0].filename, caught[0].lineno) == (__file__, increment.__code__.co_firstlineno)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled(torch.zeros(2))
            compiled(torch.zeros(3))
    assert session().totals().fallbacks == 1


def test_strict_mode_raises_it() -> None:
    with manager().registered(BrokenPlugin(), "broken"), pytest.raises(RuntimeError, match="the backend is broken"):
        armature.compile(increment, backend="broken")(torch.zeros(2))
