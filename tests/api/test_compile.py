"""`compile` as people call it: as decorator, on functions, methods, C functions; cached, broken, disabled."""

from __future__ import annotations

import warnings
from typing import Any

import attrs
import pytest
import torch

import armature
from armature import graph_break
from armature.backend_api import DeviceBackend
from armature.errors import ArmatureWarning, WrongArgument
from armature.pipeline.session import Outcome, session
from armature.plugin_api import hookimpl
from armature.plugins import manager
from armature_cpu_cpp.backend import CpuBackend
from armature_cpu_cpp.features import FEATURES

X = torch.linspace(-1, 1, 8)
BACKENDS = ["eager", "auto"]


def increment(x: Any) -> Any:
    return x + 1


def break_here(x: Any) -> Any:
    graph_break("for the test")
    return x + 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_function_and_decorators(backend: str) -> None:
    @armature.compile(backend=backend, fullgraph=True)
    def with_arguments(x: Any) -> Any:
        return torch.sin(x) * 2

    @armature.compile
    def bare(x: Any, *, scale: float = 2.0) -> Any:
        return torch.sin(x) * scale

    torch.testing.assert_close(with_arguments(X), torch.sin(X) * 2)
    torch.testing.assert_close(bare(X), torch.sin(X) * 2)
    torch.testing.assert_close(bare(X, scale=3.0), torch.sin(X) * 3)
    assert bare.__name__ == "bare"


def test_method_lambda_and_c_function() -> None:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = by

        def apply(self, x: Any) -> Any:
            return x * self.by

    assert torch.equal(armature.compile(Scale(3.0).apply, backend="eager")(X), X * 3)
    assert torch.equal(armature.compile(lambda x: x - 1, backend="eager")(X), X - 1)
    torch.testing.assert_close(armature.compile(torch.sin, backend="eager")(X), X.sin())
    torch.testing.assert_close(armature.compile(torch.cos, backend="eager")(X), X.cos())
    assert session().totals().graphs == 4


def test_torchs_own_glue_is_compiled_when_asked_for_only() -> None:
    def outer(x: Any) -> Any:
        armature.graph_break("for the test")
        return armature.disable(torch.nn.functional.hardsigmoid)(x)

    armature.compile(outer, backend="eager")(X)
    assert session().totals().graphs == 0
    asked = armature.compile(torch.nn.functional.hardsigmoid, backend="eager", fullgraph=True)
    torch.testing.assert_close(asked(X), torch.nn.functional.hardsigmoid(X))
    layer = armature.compile(torch.nn.Sequential(torch.nn.GELU()), backend="eager", fullgraph=True)
    torch.testing.assert_close(layer(X), torch.nn.functional.gelu(X))
    assert session().totals().graphs == 2


def test_a_second_call_compiles_nothing() -> None:
    compiled = armature.compile(increment, backend="eager")
    compiled(X)
    count = len(session().compilations)
    assert torch.equal(compiled(X * 2), X * 2 + 1)
    assert len(session().compilations) == count == 1


def test_equal_options_share_compiled_code() -> None:
    armature.compile(increment, backend="eager")(X)
    armature.compile(increment, backend="eager")(X)
    assert len(session().compilations) == 1
    armature.compile(increment, backend="eager", fullgraph=True)(X)
    assert len(session().compilations) == 2


def test_compiling_what_is_compiled_replaces_the_options() -> None:
    compiled = armature.compile(armature.compile(increment), backend="eager")
    assert compiled.__armature_original__ is increment
    assert torch.equal(compiled(X), X + 1)


def test_a_changed_argument_compiles_again_and_the_record_says_why() -> None:
    def power(x: Any, n: int) -> Any:
        return x**n

    compiled = armature.compile(power, backend="eager")
    assert torch.equal(compiled(X, 2), X**2) and torch.equal(compiled(X, 3), X**3)
    first, second = session().compilations
    assert first.recompiled_for == ()
    assert "n == 2" in second.recompiled_for[0]


def test_the_recompile_limit_ends_in_eager_with_one_warning() -> None:
    def power(x: Any, n: int) -> Any:
        return x**n

    compiled = armature.compile(power, backend="eager", dynamic=False, options={"recompile_limit": 2})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(6):
            assert torch.equal(compiled(X, n), X**n)
    (warning,) = [w for w in caught if w.category is ArmatureWarning]
    assert "n == 0" in str(warning.message) and warning.filename == __file__
    assert len(session().compilations) == 2


def test_a_graph_break_is_resumed_and_recorded() -> None:
    compiled = armature.compile(break_here, backend="eager")
    assert torch.equal(compiled(X), X + 1)
    record, rest = session().compilations
    assert record.outcome is Outcome.COMPILED and len(record.breaks) == 1
    assert rest.outcome is Outcome.COMPILED and rest.module is not None and not rest.breaks
    assert record.breaks[0].stack[-1].file == __file__


def test_a_break_for_some_arguments_leaves_the_others_compiled() -> None:
    def sometimes(x: Any, broken: bool) -> Any:
        if broken:
            armature.graph_break("for the test")
        return increment(x)

    compiled = armature.compile(sometimes, backend="eager")
    for broken in (True, False, True, False):
        assert torch.equal(compiled(X, broken), X + 1)
    found = [(c.function.rpartition(".")[2].partition(" (")[0], len(c.breaks)) for c in session().compilations]
    assert found == [("sometimes", 1), ("sometimes", 0), ("sometimes", 0)]


def test_breaks_with_ever_new_arguments_are_not_traced_for_ever() -> None:
    def broken(x: Any, n: int) -> Any:
        y = x * n
        stop("for the test")
        return y

    stop = armature.graph_break
    compiled = armature.compile(broken, backend="eager", dynamic=False, options={"recompile_limit": 3})
    with pytest.warns(ArmatureWarning, match="3 times"):
        for n in range(8):
            assert torch.equal(compiled(X, n), X * n)
    assert len(session().compilations) == 3


def test_fullgraph_raises_with_the_users_line_first() -> None:
    armature.compile(break_here, backend="eager")(X)  # must not hide it from the next
    with pytest.raises(armature.errors.Unsupported) as caught:
        armature.compile(break_here, backend="eager", fullgraph=True)(X)
    line = break_here.__code__.co_firstlineno + 1
    assert str(caught.value).startswith(f"{__file__}:{line}: [A301]")


def test_callees_of_a_broken_frame_are_compiled() -> None:
    def outer(x: Any) -> Any:
        armature.graph_break("for the test")
        return increment(x) * 2

    assert torch.equal(armature.compile(outer, backend="eager")(X), (X + 1) * 2)
    assert [c.outcome for c in session().compilations] == [Outcome.COMPILED, Outcome.COMPILED]


def test_disabled_functions_run_eagerly_with_all_they_call() -> None:
    @armature.disable
    def outer(x: Any) -> Any:
        return increment(x)

    def calls_it(x: Any) -> Any:
        return outer(x) * 2

    assert torch.equal(armature.compile(calls_it, backend="eager")(X), (X + 1) * 2)
    assert "increment" not in [c.function for c in session().compilations]
    with pytest.raises(armature.errors.Unsupported):
        armature.compile(calls_it, backend="eager", fullgraph=True)(X)


def test_compiled_functions_may_call_compiled_functions() -> None:
    inner = armature.compile(increment, backend="eager")

    @armature.compile(backend="eager", fullgraph=True)
    def outer(x: Any) -> Any:
        return inner(x) * 2

    assert torch.equal(outer(X), (X + 1) * 2)
    assert len(session().compilations) == 1


def test_is_compiling() -> None:
    def tell(x: Any) -> Any:
        return x + 1 if armature.is_compiling() else x

    assert torch.equal(tell(X), X)
    assert torch.equal(armature.compile(tell, backend="eager")(X), X + 1)


def test_allow_in_graph_keeps_the_call_whole() -> None:
    def opaque(x: Any) -> Any:
        return x * 3

    with manager().user.apart():
        assert armature.allow_in_graph(opaque) is opaque
        assert torch.equal(armature.compile(lambda x: opaque(x) + 1, backend="eager", fullgraph=True)(X), X * 3 + 1)
    module = session().compilations[-1].module
    assert module is not None
    assert opaque in [node.target for node in module.graph.nodes]


def test_a_custom_backend_gets_the_graph_and_fake_inputs() -> None:
    given: list[Any] = []

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        given.append((module, inputs))
        return module.forward

    assert torch.equal(armature.compile(increment, backend=backend)(X), X + 1)
    module, inputs = given[0]
    assert [tuple(i.shape) for i in inputs] == [(8,)]
    assert any(node.op.startswith("call") for node in module.graph.nodes)


def test_options_are_settings_of_these_compilations_only() -> None:
    seen: list[bool] = []

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        seen.append(armature.config.current().fuse)
        return module.forward

    armature.compile(increment, backend=backend, options={"fuse": False})(X)
    assert armature.config.current().fuse and seen == [True]


class MeasuresNothing:
    """The CPU's back end as one that computes no products."""

    ARMATURE_PRIORITY = 100

    @hookimpl
    def armature_device_backend(self, device_type: str) -> DeviceBackend | None:
        return CpuBackend(features=attrs.evolve(FEATURES, products=frozenset())) if device_type == "cpu" else None


def test_a_back_end_that_measures_nothing_says_so_once() -> None:
    x = torch.ones(64)
    for warned in (1, 0):
        with manager().registered(MeasuresNothing(), "nothing"), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            compiled = armature.compile(lambda x: x.sin() * 2, mode="max-autotune-no-cudagraphs")
            torch.testing.assert_close(compiled(x), x.sin() * 2)
        assert sum("measures no kernels" in str(one.message) for one in caught) == warned


def test_reset_forgets_code_and_records() -> None:
    compiled = armature.compile(increment, backend="eager")
    compiled(X)
    armature.reset()
    assert not session().compilations
    compiled(X)
    assert len(session().compilations) == 1


def test_an_exception_of_the_program_is_the_programs() -> None:
    def wrong(x: Any) -> Any:
        return x @ torch.ones(3, 3)

    with pytest.raises(RuntimeError) as eager:
        wrong(torch.ones(2, 2))
    with armature.config.patch(strict=False), pytest.raises(RuntimeError) as compiled:
        armature.compile(wrong, backend="eager")(torch.ones(2, 2))
    assert str(compiled.value) == str(eager.value)


def test_why() -> None:
    verdict = armature.why(torch.sin)
    assert verdict.reason and armature.why("torch.sin") == verdict
    with pytest.raises(LookupError):
        armature.why("torch.no_such_thing")


def test_grad_mode_is_guarded() -> None:
    weight = torch.ones(8, requires_grad=True)

    def scale(x: Any) -> Any:
        return x * weight

    compiled = armature.compile(scale, backend="eager")
    with torch.no_grad():
        assert not compiled(X).requires_grad
    assert compiled(X).requires_grad


@pytest.mark.parametrize("message", [3, None, b"here"])
def test_the_message_of_a_break_is_a_text(message: Any) -> None:
    def fn(t):
        armature.graph_break(message)
        return t + 1

    for call in (fn, armature.compile(fn, backend="eager")):
        with pytest.raises(WrongArgument, match=r"message is .*; expected a text"):
            call(torch.ones(2))
