"""What is kept for reports while compiling: guards that failed with their values, places of breaks, callers, kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import armature
from armature.frame.guards.explain import FailedGuard, as_written, merged
from armature.pipeline.session import session
from armature.reports.recorder import Recorder

X = torch.ones(2, 4)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = 3
        self.inner = nn.Sequential(nn.Linear(4, 4))

    def forward(self, x: Any) -> Any:
        return self.inner(x) * self.factor


def failed(index: int = -1) -> tuple[FailedGuard, ...]:
    return session().compilations[index].failed_guards


def test_a_failed_guard_tells_the_expression_and_both_values() -> None:
    module = Scaled()
    compiled = armature.compile(module, backend="eager")
    compiled(X)
    module.factor = 5
    compiled(X)
    (guard,) = failed()
    assert (guard.expression, guard.before, guard.now) == ("self.factor", "3", "5")
    assert guard.user == f"test_facts.py:{Scaled.forward.__code__.co_firstlineno + 1}"


@pytest.mark.parametrize(
    ("other", "before", "now"),
    [
        (torch.ones(3, 4), "float32[2, 4]", "float32[3, 4]"),
        (torch.ones(2, 4, dtype=torch.float64), "float32[2, 4]", "float64[2, 4]"),
        (torch.ones(2, 4, requires_grad=True), "on cpu", "requires grad"),
        (torch.ones(4, 2).t(), "strides (4, 1)", "strides (1, 2)"),
    ],
    ids=["size", "dtype", "grad", "strides"],
)
def test_a_tensor_that_is_another_one(other: Any, before: str, now: str) -> None:
    compiled = armature.compile(lambda x: x + 1, backend="eager")
    compiled(X)
    compiled(other)
    (guard,) = failed()
    assert guard.expression == "x" and before in guard.before and now in guard.now and guard.before != guard.now


@pytest.mark.parametrize(
    ("first", "second", "about", "before", "now"),
    [
        ([X], [X, X], "len(what)", "1", "2"),
        ({"a": X}, {"b": X}, "list(what)", "['a']", "['b']"),
        (1, "1", "what", "1", "'1'"),
        (None, 2, "what", "None", "2"),
    ],
    ids=["length", "keys", "type", "none"],
)
def test_values_of_other_kinds(first: Any, second: Any, about: str, before: str, now: str) -> None:
    def fn(x: Any, what: Any) -> Any:
        if isinstance(what, (list, dict)):
            return x + sum(map(torch.sum, what.values() if isinstance(what, dict) else what))
        return x + (what == 1)

    compiled = armature.compile(fn, backend="eager")
    compiled(X, first)
    compiled(X, second)
    assert any((guard.expression, guard.before, guard.now) == (about, before, now) for guard in failed()), failed()


@pytest.mark.parametrize(
    ("given", "expression"),
    [
        (lambda n: iter([X] * n), "len(<items of xs>)"),
        (lambda n: enumerate([X] * n), "len(<items of what xs enumerates>)"),
        (lambda n: zip([X] * n, [X] * n), "len(<items of iterator 1 of xs>)"),
        (lambda n: map(torch.sin, [X] * n), "len(<items of iterator 1 of xs>)"),
        (lambda n: iter(dict.fromkeys(range(n), X).values()), "len(<items of xs>)"),
        (lambda n: enumerate([X], n), "<next number of xs>"),
    ],
    ids=["list", "enumerate", "zip", "map", "dict", "number"],
)
def test_an_iterator_is_told_of_by_the_name_that_the_program_has_for_it(given: Any, expression: str) -> None:
    def fn(xs: Any) -> Any:
        return [x[0] * x[1] for x in xs]

    compiled = armature.compile(fn, backend="eager")
    compiled(given(2))
    compiled(given(3))
    assert ((expression, "2", "3")) in [(guard.expression, guard.before, guard.now) for guard in failed()], failed()


def test_the_iterator_of_a_loop_in_progress_is_told_of_by_what_the_loop_goes_over() -> None:
    def fn(x: Any, pairs: Any) -> Any:
        for _ in range(1):
            for _, y in pairs.items():
                x = x * y
                armature.graph_break()
        return x

    compiled = armature.compile(fn, backend="eager")
    for count in (2, 3):
        compiled(X, dict.fromkeys(range(count), X).copy())
    words = [guard.words for record in session().compilations for guard in record.failed_guards]
    assert any("pairs" in text for text in words) and not any("progress" in text for text in words), words


def test_conditions_of_numbers_tell_what_the_numbers_are() -> None:
    def fn(x: Any, y: Any, n: int) -> Any:
        if x.size(0) == y.size(0):
            return x + y
        return x * n if n > 4 else x.sum()

    compiled = armature.compile(fn, backend="eager")
    for x, y, n in ((2, 2, 1), (3, 3, 2), (4, 5, 2), (4, 5, 3), (6, 7, 8)):
        compiled(torch.ones(x), torch.ones(y), n)
    told = {guard.words for record in session().compilations for guard in record.failed_guards}
    assert "x.size(0) == y.size(0) no longer holds: x.size(0) is now 4 and y.size(0) is now 5" in told, told
    assert any(text.startswith("n was <= 4, is now 8") for text in told), told


def test_objects_that_are_the_same_or_no_longer_are() -> None:
    def fn(x: Any, y: Any) -> Any:
        x.add_(1)
        return x * y

    compiled, x = armature.compile(fn, backend="eager"), torch.ones(3)
    compiled(x, x.clone())
    compiled(x, x)
    assert failed()[0].words == "x was another object than y, is now the same one"
    armature.reset()
    compiled(x, x)
    compiled(x, x.clone())
    assert failed()[0].words == "x was the same object as y, is now another one"


def test_what_many_compiled_codes_rely_on_is_told_together() -> None:
    compiled = armature.compile(lambda x, name: x + len(name), backend="eager")
    for number in range(7):
        compiled(X, "abcdefg"[number])
    (guard,) = merged(failed())
    assert guard.words == "name was 'a', 'b', 'c' or one of 3 others, is now 'g'" and len(failed()) == 6


def test_sources_are_spoken_as_programs_write_them() -> None:
    assert (
        as_written("self.__dict__['_modules']['layers'].__dict__['_modules']['0'].__dict__['n']") == "self.layers[0].n"
    )
    assert as_written("globals()['config']['width']") == "config['width']"
    assert as_written("self.__dict__['a b']") == "self['a b']"


def test_a_break_has_the_columns_of_the_expression_and_what_it_works_on() -> None:
    def fn(x: Any, scale: float) -> Any:
        wörd, y = 1, x * scale
        äh = 2 if (y.sum() > 0) else 3
        return y * äh * wörd

    armature.compile(fn, backend="eager")(X, 2.0)
    (event,) = session().breaks()
    place = event.stack[-1]
    with open(place.file, encoding="utf-8") as file:
        line = file.read().splitlines()[place.line - 1]
    assert line[place.column : place.end_column] == "y.sum() > 0" and place.end_line == place.line
    assert [(seen.expression, seen.description) for seen in event.values] == [("y", "a tensor float32[2, 4] on cpu")]
    assert event.seconds > 0


def test_the_limit_is_kept_with_the_guards_that_failed() -> None:
    compiled = armature.compile(lambda x, n: x + n, backend="eager", options={"recompile_limit": 2})
    with pytest.warns(armature.ArmatureWarning, match="2 times"):
        for n in ("a", "bb", "ccc"):
            with pytest.raises(TypeError):
                compiled(X, n)
            compiled(X, len(n) * 1j)
    (limit,) = session().limits
    assert "compiled 2 times" in limit.reason and any(guard.expression == "n" for guard in limit.failed_guards)
    armature.reset()
    assert not session().limits


def test_callers_are_lines_of_the_program() -> None:
    def outer(x: Any) -> Any:
        return compiled(x)

    compiled = armature.compile(lambda x: x + 1, backend="eager")
    outer(X)
    near, far, *_ = session().compilations[0].callers
    assert (near.function.rpartition(".")[2], near.file) == ("outer", __file__)
    assert near.line == outer.__code__.co_firstlineno + 1 and far.function == "test_callers_are_lines_of_the_program"


def test_each_kernel_has_its_own_text_and_knows_its_loops() -> None:
    def fn(x: Any) -> Any:
        return torch.relu(x).sum(), (x @ x.T).softmax(-1)

    armature.compile(fn)(X)
    (graph,) = session().compilations[0].graphs
    nodes = {loop.name: origin.node for loop in graph.loops.nodes for origin in loop.origins}
    assert set(nodes.values()) <= {node.name for node in graph.aten.module.graph.nodes}
    loops = [name for kernel in graph.plan.kernels for name in kernel.loops]
    assert loops and set(loops) <= set(nodes)
    for kernel in graph.plan.kernels:
        (source,) = graph.program.sources
        assert kernel.name in source.parts[kernel.name] and source.parts[kernel.name] in source.text


def test_a_loop_over_a_view_is_told_of_by_the_view() -> None:
    def program(x: torch.Tensor, items: dict[str, float]) -> torch.Tensor:
        for factor in items.values():
            if x.sum() > 0:
                x = x * factor
        return x

    with Recorder() as recorder:
        compiled = armature.compile(program, backend="eager")
        compiled(torch.ones(2), {"a": 2.0, "b": 3.0})
    told = [failure.expression for frame in recorder.recording().recompiled for failure in frame.failures]
    assert "<next value of items.values()>" in told
    assert not any("__armature" in expression for expression in told)


def test_the_object_of_a_method_in_progress_is_told_in_words() -> None:
    held: list[float] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        held.append(x.sum().item())
        return x + len(held)

    with Recorder() as recorder:
        compiled = armature.compile(program, backend="eager")
        compiled(torch.ones(2))
        compiled(torch.ones(2))
    told = {failure.expression for frame in recorder.recording().recompiled for failure in frame.failures}
    assert "len(<object whose method is called>)" in told


def test_inputs_of_a_graph_are_named_as_the_program_names_them() -> None:
    with Recorder() as recorder:
        armature.compile(Scaled())(X)
    (graph,) = recorder.recording().graphs
    named = {node.target for node in graph.nodes if node.kind == "input"}
    assert named == {"x", "self.inner[0].weight", "self.inner[0].bias"}
