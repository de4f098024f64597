"""Passes: which run, in which order, what they did, and what is said of one that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx
from typer.testing import CliRunner

import armature
from armature import config
from armature.cli.app import make_app
from armature.errors import PassFailed
from armature.graph.passes import chosen
from armature.pipeline.session import session
from armature.plugin_api import Pass, hookimpl
from armature.plugins import manager

aten = torch.ops.aten
X = torch.linspace(-1, 1, 6).view(2, 3)


class Plugin:
    def __init__(self, run: Callable[[Any, Any], Any], stage: str = "post_grad") -> None:
        self.step = Pass("mine", stage, run)

    @hookimpl
    def armature_passes(self) -> list[Pass]:
        return [self.step]


def cosines(module: Any, ctx: object) -> Any:
    for node in module.graph.find_nodes(op="call_function", target=aten.sin.default):
        node.target = aten.cos.default
    return module


def ran(plugin: Plugin, **settings: Any) -> torch.Tensor:
    armature.reset()
    with manager().registered(plugin, "mine"), config.patch(**settings):
        return armature.compile(lambda x: x.sin() * 2, fullgraph=True)(X)


def step(name: str, before: tuple[str, ...] = (), after: tuple[str, ...] = ()) -> Pass:
    return Pass(name, "joint", lambda module, ctx: module, before, after)


def test_a_pass_is_left_out() -> None:
    torch.testing.assert_close(ran(Plugin(cosines)), X.cos() * 2)
    torch.testing.assert_close(ran(Plugin(cosines), disabled_passes={"mine"}), X.sin() * 2)


def test_order_of_the_settings_gives_way_to_that_of_the_passes() -> None:
    steps = [step("a"), step("b", after=("a",)), step("c"), step("d", before=("a",))]
    names = lambda first: [one.name for one in chosen(steps, frozenset(), first)]  # noqa: E731
    assert names(()) == ["c", "d", "a", "b"]
    assert names(("b", "a")) == ["c", "d", "a", "b"]
    assert names(("d",))[0] == "d"
    assert [one.name for one in chosen(steps, frozenset({"a"}), ("b",))] == ["b", "c", "d"]


def test_what_passes_did_is_kept_where_asked_for() -> None:
    ran(Plugin(cosines))
    assert session().compilations[-1].passes == []
    ran(Plugin(cosines), keep_passes=True)
    found = {one.name: one for one in session().compilations[-1].passes}
    mine = found["mine"]
    assert (mine.stage, mine.plugin) == ("post_grad", "mine")
    assert "aten.sin" in mine.before and "aten.sin" not in mine.after and "aten.cos" in mine.after
    assert found["common-values"].before == found["common-values"].after


def raises(module: Any, ctx: object) -> Any:
    raise KeyError("nothing there")


def forgets(module: Any, ctx: object) -> Any:
    return None


def misplaces(module: fx.GraphModule, ctx: object) -> fx.GraphModule:
    [node] = module.graph.find_nodes(op="call_function", target=aten.sin.default)
    module.graph.output_node().prepend(node)
    return module


def lies(module: fx.GraphModule, ctx: object) -> fx.GraphModule:
    [node] = module.graph.find_nodes(op="call_function", target=aten.sin.default)
    with module.graph.inserting_after(node):
        made = module.graph.call_function(aten.sum.dim_IntList, (node.args[0], [0]))
    made.meta.update(node.meta)
    node.replace_all_uses_with(made)
    return module


def shrinks(module: fx.GraphModule, ctx: object) -> fx.GraphModule:
    [node] = module.graph.find_nodes(op="call_function", target=aten.sin.default)
    [last] = module.graph.output_node().all_input_nodes
    with module.graph.inserting_after(last):
        made = module.graph.call_function(aten.sum.dim_IntList, (last, [0]))
    made.meta.update(node.meta, val=last.meta["val"].sum(0))
    module.graph.output_node().args = ((made,),)
    return module


WRONG: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "it raises": (raises, "KeyError: 'nothing there'"),
    "it gives something else": (forgets, "returned NoneType, not GraphModule"),
    "the order is wrong": (misplaces, "not well formed"),
    "a shape is not the operator's": (lies, r"sum.dim_IntList gives \(\(3,\), .* says \(\(2, 3\), .*test_passes.py"),
    "the results are others": (shrinks, r"the graph gives \(\(3,\), .* as result 0, not \(\(2, 3\)"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_pass_is_named_with_its_plugin(case: str) -> None:
    run, told = WRONG[case]
    with pytest.raises(PassFailed, match="pass mine of plugin mine failed: .*" + told):
        ran(Plugin(run))


def test_without_strict_mode_a_pass_that_raises_ends_in_eager_mode() -> None:
    with pytest.warns(UserWarning, match="pass mine of plugin mine failed"):
        found = ran(Plugin(raises), strict=False)
    torch.testing.assert_close(found, X.sin() * 2)


def test_the_command_shows_what_passes_did(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("import torch\n@torch.compile\ndef f(x):\n    return x.sin() + x.sin()\nf(torch.ones(3))\n")
    armature.reset()
    app = make_app(manager())
    done = CliRunner().invoke(app, ["code", str(script), "--passes"])
    assert done.exit_code == 0, done.output
    assert "before post_grad: common-values" in done.output and "after post_grad: common-values" in done.output
    assert "post_grad: dead-code of" in done.output
    listed = CliRunner().invoke(app, ["plugins", "passes"]).output
    assert listed.index("attention") < listed.index("attention-masks") < listed.index("common-values")
