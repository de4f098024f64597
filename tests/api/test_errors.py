"""What a user gets wrong: each gives an error with a code and the fix, or a clean fallback that names it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import armature
from armature.config import BadSetting
from armature.errors import (
    ArmatureError,
    ArmatureWarning,
    DeviceBackendUnready,
    NoDeviceBackend,
    NoPlugins,
    NotCallable,
    OptionOfProcess,
    UnknownBackend,
    UnknownMode,
    UnknownOption,
    UnknownPass,
    UnknownPlugin,
    WrongArgument,
)
from armature.hookspecs import hookimpl
from armature.pipeline.session import Outcome, session
from armature.plugins import manager
from armature_cpu_cpp.backend import CpuBackend


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
    with pytest.raises(UnknownMode, match=r'A212(.|\n)*Choose one of "default", "reduce-overhead"(.|\n)*options=\{'):
        armature.compile(increment, mode=mode)


@pytest.mark.parametrize("mode", [None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_the_modes_there_are(mode: str | None) -> None:
    assert torch.equal(armature.compile(increment, mode=mode, backend="eager")(torch.zeros(2)), torch.ones(2))


def test_unknown_option_names_the_nearest() -> None:
    with pytest.raises(UnknownOption, match="Did you mean fuse"):
        armature.compile(increment, options={"fuze": True})


@pytest.mark.parametrize("name", ["log", "eager_on_interrupt"])
def test_an_option_that_is_no_matter_of_one_function(name: str) -> None:
    value = getattr(armature.config.current(), name)
    with pytest.raises(OptionOfProcess, match=rf"A227(.|\n)*armature\.config\.update\({name}="):
        armature.compile(increment, options={name: value})


@pytest.mark.filterwarnings("ignore:.*no plugin makes kernels")
def test_plugins_are_chosen_for_a_function() -> None:
    """One without code generation beside one with it, in turns."""
    without = armature.compile(increment, options={"disabled_plugins": ("cpu_cpp",)})
    x = torch.ones(3)
    for _ in range(2):
        armature.reset()
        assert torch.equal(without(x), x + 1) and torch.equal(armature.compile(increment)(x), x + 1)
        kernels = [sum(graph.program.kernel_count for graph in one.graphs) for one in session().compilations]
        assert kernels == [0, 1]


def test_the_order_of_plugins_is_chosen_for_a_function() -> None:
    class Mine:
        @hookimpl
        def armature_device_backend(self, device_type: str) -> Any:
            return Told(device_type) if device_type == "cpu" else None

    asked: list[str] = []

    class Told(CpuBackend):
        def generate(self, kernels: Any, plan: Any, ctx: Any) -> Any:
            asked.append(plan.name)
            return super().generate(kernels, plan, ctx)

        def __init__(self, device_type: str) -> None:
            super().__init__()

    with manager().registered(Mine(), "mine"):
        armature.compile(increment)(torch.ones(3))
        assert not asked
        armature.compile(increment, options={"plugin_order": ("mine",)})(torch.ones(3))
    assert len(asked) == 1


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


@pytest.mark.parametrize("mark", [armature.mark_dynamic, armature.mark_static])
@pytest.mark.parametrize("dim", [2, -3, "0", 1.0, True, [0, "a"], [0.5], [[0]], object()])
def test_marking_wants_dimensions(mark: Any, dim: Any) -> None:
    x = torch.ones(2, 2)
    with pytest.raises(WrongArgument, match=rf"A214\] dim is (.|\n)*from -2 to 1(.|\n)*armature\.{mark.__name__}"):
        mark(x, dim)
    assert not vars(x)


@pytest.mark.parametrize("mark", [armature.mark_dynamic, armature.mark_static])
@pytest.mark.parametrize("tensor", [[1], 3, None, torch.nn.Linear(1, 1)])
@pytest.mark.parametrize("dim", [0, None])
def test_marking_wants_a_tensor(mark: Any, tensor: Any, dim: Any) -> None:
    with pytest.raises(WrongArgument, match=rf"A214\] tensor is (.|\n)*armature\.{mark.__name__}"):
        mark(tensor, dim)


def test_marking_a_tensor_without_dimensions() -> None:
    with pytest.raises(WrongArgument, match="as it has no dimensions"):
        armature.mark_dynamic(torch.tensor(1.0), 0)
    armature.mark_static(torch.tensor(1.0))


@pytest.mark.parametrize("fn", [3, "text", None, torch.nn.Linear, torch.ones(1)])
def test_explain_tells_at_once_what_it_can_not_call(fn: Any) -> None:
    with pytest.raises(NotCallable, match=r"A210\] armature\.explain"):
        armature.explain(fn)


def test_explain_checks_dynamic() -> None:
    with pytest.raises(WrongArgument, match=r"dynamic is 3(.|\n)*armature\.explain"):
        armature.explain(increment, dynamic=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("show", [{"fxx"}, ["fx", "nope"], [3]])
def test_a_stage_to_print_that_is_not_there(show: Any) -> None:
    with pytest.raises(BadSetting, match=r"A201(.|\n)*among fx, aten, loops, plan, kernels, wrapper"):
        armature.compile(increment, options={"show": show})
    with pytest.raises(BadSetting, match="A201"), armature.config.patch(show=show):
        pass


@pytest.mark.parametrize("value", [3, None, "fx", 1.5])
def test_a_setting_that_is_no_collection(value: Any) -> None:
    with pytest.raises(BadSetting, match="expected a value of type frozenset"):
        armature.compile(increment, options={"show": value})


@pytest.mark.parametrize("setting", ["disabled_plugins", "plugin_order"])
def test_an_option_that_names_no_plugin(setting: str) -> None:
    with pytest.raises(UnknownPlugin, match=r"A110(.|\n)*'nope'(.|\n)*Choose from: .*aten_lowerings"):
        armature.compile(increment, options={setting: ("nope",)})
    for name in ("cpu_cpp", "armature-cpu-cpp", "user"):  # a plugin, its distribution, and what the user says
        armature.compile(increment, options={setting: (name,)})


@pytest.mark.parametrize("setting", ["disabled_passes", "pass_order"])
def test_an_option_that_names_no_pass(setting: str) -> None:
    with pytest.raises(
        UnknownPass, match=r"A113(.|\n)*'comon-values'(.|\n)*Did you mean 'common-values'\? Choose from: "
    ):
        armature.compile(increment, options={setting: ("dead-code", "comon-values")})
    armature.compile(increment, options={setting: ("dead-code",)})


@pytest.mark.parametrize(
    ("changes", "error"),
    [({"disabled_passes": {"ded-code"}}, UnknownPass), ({"plugin_order": ["aten_lowering"]}, UnknownPlugin)],
    ids=["pass", "plugin"],
)
def test_a_setting_that_names_nothing_is_told_in_the_first_call(changes: Any, error: type[ArmatureError]) -> None:
    compiled = armature.compile(increment)
    with armature.config.patch(strict=True, **changes), pytest.raises(error, match="Did you mean"):
        compiled(torch.zeros(2))
    armature.reset()
    with armature.config.patch(strict=False, **changes), pytest.warns(ArmatureWarning, match="Did you mean"):
        assert torch.equal(compiled(torch.zeros(2)), torch.ones(2))
    assert session().compilations[-1].outcome is Outcome.COMPILED


def test_a_pass_of_a_plugin_that_is_left_out_may_be_named() -> None:
    options = {"disabled_plugins": ("aten_lowerings",), "disabled_passes": ("dead-code",)}
    assert torch.equal(armature.compile(increment, options=options)(torch.zeros(2)), torch.ones(2))


def test_an_option_like_no_other_names_all() -> None:
    with pytest.raises(UnknownOption, match=r"Did you mean one of strict, .*max_kernel_nodes"):
        armature.compile(increment, options={"q": True})


def test_without_plugins_everything_runs_eagerly_and_says_what_to_install() -> None:
    everyone = frozenset(plugin.name for plugin in manager().plugins)
    compiled = armature.compile(increment)
    alone = armature.config.patch(disabled_plugins=everyone, strict=False)
    with alone, pytest.warns(ArmatureWarning, match=r'pip install "torch-armature\[cpu\]"'):
        assert torch.equal(compiled(torch.zeros(2)), torch.ones(2))
    armature.reset()
    with armature.config.patch(disabled_plugins=everyone, strict=True), pytest.raises(NoPlugins):
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
        with armature.config.patch(strict=True), pytest.raises(DeviceBackendUnready):
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
    with manager().registered(BrokenPlugin(), "broken"), armature.config.patch(strict=True):
        compiled = armature.compile(increment, backend="broken")
        with pytest.raises(RuntimeError, match="the backend is broken"):
            compiled(torch.zeros(2))


class Raises(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        raise ValueError("of the model", 3)


def hooked(register: str) -> Any:
    def fails(*args: Any) -> Any:
        raise KeyError("of a hook")

    layer = torch.nn.Linear(3, 3)
    getattr(layer, register)(fails)
    return layer


def gives_a_number() -> Any:
    layer = torch.nn.Linear(3, 3)
    layer.register_forward_pre_hook(lambda module, args: 3)
    return layer


X = torch.ones(3)
PROGRAMS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "a model that raises": (Raises(), (X,)),
    "a hook": (hooked("register_forward_hook"), (X,)),
    "a hook before": (hooked("register_forward_pre_hook"), (X,)),
    "a hook of backward": (hooked("register_full_backward_hook"), (X.requires_grad_(),)),
    "a hook that gives no tensor": (gives_a_number(), (X,)),
    "two devices in a list": (lambda xs: xs[0] + xs[1], ([torch.ones(2, device="meta"), torch.ones(2)],)),
    "a device in a dictionary": (lambda d: d["meta"] + d["cpu"], ({"meta": X.detach().to("meta"), "cpu": X},)),
    "too many arguments": (increment, (X, X)),
    "no tensor": (increment, (None,)),
    "sizes that do not fit": (torch.nn.Linear(3, 3), (torch.ones(2),)),
    "a dtype that does not fit": (torch.nn.Linear(3, 3), (torch.ones(3, dtype=torch.int64),)),
}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_error_of_the_program_is_that_of_eager_mode(name: str, backend: str, strict: bool) -> None:
    fn, args = PROGRAMS[name]

    def outcome(run: Any) -> tuple[type, tuple[Any, ...]]:
        with pytest.raises(Exception) as caught, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a device without a plugin, and of torch
            run(*args).sum().backward()
        return caught.type, caught.value.args

    with armature.config.patch(strict=strict):
        assert outcome(armature.compile(fn, backend=backend)) == outcome(fn)
