"""Rules of fusion and figures of scheduling: each is added or changed in one place, as docs/recipes.md says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

from armature.lower.data import Load, LoopGraph, Node, Op
from armature.lower.index import Var
from armature.lower.ops import OPS
from armature.schedule import fusion
from armature.schedule.align import Alignment
from armature.schedule.fusion import NEST_RULES, PAIR_RULES, Fusion
from armature.schedule.group import Group
from armature.schedule.schedule import schedule
from armature.schedule.score import cost
from armature.schedule.walk import operands, postorder
from armature.testing.lowering_kit import context
from tests.support.loop_graphs import LoopWriter

STAGE = Path(fusion.__file__).parent


def two_results_of_one_input() -> LoopGraph:
    """Two loops that read one buffer: one kernel."""
    w = LoopWriter()
    x = w.input(4, 5)
    return w.graph(w.op("tanh", x), w.op("neg", x))


def softmax() -> LoopGraph:
    """Loops with an inner loop in common: one kernel."""
    w = LoopWriter()
    x = w.input(6, 8)
    exp = w.op("exp", w.op("sub", x, w.reduce("max", x, [1], keepdim=True)))
    return w.graph(w.op("div", exp, w.reduce("sum", exp, [1], keepdim=True)))


def kernels(graph: LoopGraph) -> int:
    return len(schedule(graph, context(())).kernels)


def test_a_rule_of_two_groups_is_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_result(fusion: Fusion, one: Group, other: Group) -> bool:
        """A kernel has one result."""
        return len(one.stores) + len(other.stores) < 2

    assert kernels(two_results_of_one_input()) == 1
    monkeypatch.setattr(fusion, "PAIR_RULES", (*PAIR_RULES, one_result))
    assert kernels(two_results_of_one_input()) == 2


def test_a_rule_of_the_common_nest_is_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_inner_loop(fusion: Fusion, keep: Group, gone: Group, found: Alignment) -> bool:
        """Nothing is joined with a reduction."""
        return not found.inner

    assert kernels(softmax()) == 1
    monkeypatch.setattr(fusion, "NEST_RULES", (*NEST_RULES, no_inner_loop))
    assert kernels(softmax()) > 1


@pytest.mark.parametrize("rule", [*PAIR_RULES, *NEST_RULES], ids=lambda rule: rule.__name__)
def test_a_rule_says_what_must_hold(rule: object) -> None:
    assert rule.__doc__ and rule.__doc__.strip()


def test_figures_that_were_chosen_stand_in_one_file() -> None:
    found = {}
    for path in STAGE.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.BinOp):
                value = eval(compile(ast.Expression(node.value), path.name, "eval"), {})
                if type(value) is int:
                    found.setdefault(path.name, set()).add(ast.unparse(node.targets[0]))
    assert found.pop("score.py") >= {"CHEAP", "MOST_BUFFERS", "NEIGHBOURS", "FARTHEST"}
    # How texts are laid out is no matter of scheduling.
    assert found == {"names.py": {"_LONGEST"}, "show.py": {"_COLUMN"}}


def test_a_figure_is_changed_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "MOST_BUFFERS", 3)  # imported from score: two inputs and a result fit, not more
    assert kernels(two_results_of_one_input()) == 2


def test_rounding_to_half_precision_costs_nothing() -> None:
    def price(dtype: torch.dtype) -> int:
        x = Load("x", (Var("i", 8),), dtype)
        wide: Node = x if dtype == torch.float32 else Op("cast", (x,), torch.float32)
        total = Op("add", (wide, wide), torch.float32)
        return cost(postorder([total if dtype == torch.float32 else Op("cast", (total,), dtype)], operands))

    assert price(torch.bfloat16) == price(torch.float32)
    assert cost([Op("cast", (Load("x", (Var("i", 8),), torch.int64),), torch.float32)]) == OPS["cast"].cost
