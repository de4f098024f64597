"""The seam to schemas and signatures: what functions of torch write to."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch.nn import functional as F

import armature
from armature.plugins.plugin_manager import manager
from armature.torch_abi import fake, operators
from armature.torch_abi.operators import WrittenArgument, arguments_at, written_arguments, written_positions

aten = torch.ops.aten


def test_what_functions_in_python_write_to() -> None:
    assert written_arguments(F.leaky_relu) == (WrittenArgument(0, "input", "inplace", 2),)
    assert written_arguments(torch.norm) == (WrittenArgument(4, "out"),)
    assert written_arguments(F.scaled_dot_product_attention) == () == written_arguments(F.cross_entropy)


def test_what_functions_in_c_write_to() -> None:
    assert WrittenArgument(0, "input") in written_arguments("add_") == written_arguments(torch.Tensor.add_)
    assert WrittenArgument(0, "input", many=True) in written_arguments(torch._foreach_add_)
    assert {one.name for one in written_arguments(torch.max)} >= {"out"}
    assert all(one.position is None for one in written_arguments(torch.max))
    assert WrittenArgument(3, "running_min") in written_arguments(torch.fused_moving_avg_obs_fake_quant)
    assert written_arguments("view") == () == written_arguments("no_such_method")


def test_what_operators_write_to() -> None:
    assert written_arguments(aten.add_.Tensor) == (WrittenArgument(0, "input"),)
    assert WrittenArgument(None, "out") in written_arguments(aten.add)
    x, y = torch.zeros(2), torch.ones(2)

    def written(op: torch._ops.OpOverload, *args: object, **kwargs: object) -> tuple[torch.Tensor, ...]:
        return arguments_at(op, written_positions(op), args, kwargs)

    assert [one is x for one in written(aten.add_.Tensor, x, y)] == [True]
    assert [one is y for one in written(aten.add.out, x, x, out=y)] == [True]
    assert [one is y for one in written(aten._foreach_add_.Scalar, [x, y], 1)] == [False, True]


@pytest.mark.parametrize("inference", (False, True))
def test_fakes_tell_what_was_written(inference: bool) -> None:
    world = fake.FakeWorld()
    with torch.inference_mode(inference), world.mode:
        x = torch.zeros(2, 3)
        world.take_written()
        F.elu(x[0], 1.0, True)
        ((written, version),) = world.take_written()
        assert version == 0 and (inference or fake.version_of(written) == 1)
        assert written.untyped_storage()._cdata == x.untyped_storage()._cdata
        x.view(-1) + 1
        assert world.take_written() == ()


@pytest.mark.parametrize("dispatcher", (False, True))
@pytest.mark.parametrize("trains", (False, True))
def test_fakes_tell_of_running_statistics(dispatcher: bool, trains: bool) -> None:
    world = fake.FakeWorld(rules=manager().tables().fake_rules)
    with world.mode, fake.enable_python_dispatcher() if dispatcher else contextlib.nullcontext():
        mean, variance = torch.zeros(3), torch.ones(3)
        world.take_written()
        F.batch_norm(torch.zeros(2, 3), mean, variance, None, None, trains)
        memories = {one.untyped_storage()._cdata for one, _ in world.take_written()}
        statistics = {one.untyped_storage()._cdata for one in (mean, variance)}
        assert statistics & memories == (statistics if trains else set())


def test_an_argument_that_is_named_by_a_word_of_python_is_given_by_position() -> None:
    assert operators.by_position("uniform_", [0], {"from": 1, "to": 2}) == ([0, 1], {"to": 2})
    assert operators.by_position("random_", [0], {"to": 2, "from": 1}) == ([0, 1], {"to": 2})
    for args, named in (([0, 1], {"from": 1}), ([0], {"to": 2}), ([0], {"class": 1})):
        assert operators.by_position("uniform_", args, named) == (args, named)


@pytest.mark.parametrize(("name", "backend"), [("uniform_", "eager"), ("uniform_", "auto"), ("random_", "eager")])
def test_a_graph_with_such_a_call(name: str, backend: str) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return getattr(torch.zeros_like(x), name)(**{"from": 2, "to": 3}) * x

    compiled = armature.compile(program, backend=backend, fullgraph=True)
    x = torch.ones(50)
    found = compiled(x)
    assert float(found.min()) >= 2 and float(found.max()) <= 3


def test_operators_of_libraries_are_told_from_those_of_torch() -> None:
    with torch.library._scoped_library("armature_tests", "FRAGMENT") as library:
        library.define("nothing(Tensor x) -> Tensor")
        registered = torch.ops.armature_tests.nothing
        assert operators.is_of_library(registered) and operators.is_of_library(registered.default)
    own = (torch.ops.aten.mm, torch.ops.aten.mm.default, torch.ops.prims.sin.default, torch.mm, "mm")
    assert not any(map(operators.is_of_library, own))
