"""`explain`, its report, and the session's sums."""

from __future__ import annotations

import contextvars
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list

import armature
from armature.pipeline.session import session
from armature.reports.html import page
from armature.reports.recorder import Recorder

X = torch.ones(3)


def inner(x: Any) -> Any:
    return x * 2 + 1


def broken(x: Any) -> Any:
    armature.graph_break("a reason of <mine>")
    return inner(x)


def test_one_graph() -> None:
    output = armature.explain(inner)(X)
    assert (output.graph_count, output.break_count) == (1, 0)
    assert output.frames[0].operators == 2
    assert any("x is a tensor float32[3]" in text for text in output.guards)
    assert "inner" in str(output)


def test_breaks_are_told_with_place_and_hints(tmp_path: Path) -> None:
    output = armature.explain(broken)(X)
    assert (output.graph_count, output.break_count) == (1, 1)
    event = output.breaks[0]
    text = str(output)
    assert event.type.id in text and all(hint.text.split("`")[0] in text for hint in event.type.hints)
    assert f":{broken.__code__.co_firstlineno + 1}" in text
    text = output.to_html(tmp_path / "page.html").read_text()
    assert event.type.id in text and "<mine>" not in text and "x * 2" in text


def test_its_page_is_that_of_the_command(tmp_path: Path) -> None:
    output = armature.explain(broken)(X)
    with Recorder("test_explain.broken") as recorder:
        armature.compile(broken, backend="eager")(X)
    shape = re.compile(r"<(?:h1|h2|h3)[^>]*>.*?</")
    found, expected = (shape.findall(text) for text in (output.page(), page(recorder.recording())))
    assert found and "".join(found).count("<h3") == "".join(expected).count("<h3") > 0
    assert [text for text in found if "<h2" in text] == [text for text in expected if "<h2" in text]
    assert output.page().split("</style>")[0].count("@media") > 0, "light and dark, and phones"


def test_a_module_and_a_compiled_one() -> None:
    net = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    assert armature.explain(net)(X).graph_count == 1
    assert armature.explain(armature.compile(net))(X).graph_count == 1


def test_reset_forgets_what_explain_had_cached() -> None:
    codes = (broken.__code__, inner.__code__)
    for function in (broken, inner):
        armature.explain(function)(X)
    assert all(_debug_get_cache_entry_list(code) for code in codes)
    armature.reset()
    assert not any(_debug_get_cache_entry_list(code) for code in codes)


def test_explaining_leaves_the_session_alone() -> None:
    armature.explain(inner)(X)
    assert not session().compilations
    armature.compile(inner, backend="eager")(X)
    totals = session().totals()
    assert (totals.graphs, totals.breaks, totals.operators) == (1, 0, 2)
    assert totals.seconds > 0


def test_what_users_of_torch_read() -> None:
    """The names of torch's own, with values of the same kind: those are asked for side by side."""
    ours, theirs = armature.explain(printing)(X), torch._dynamo.explain(printing)(X)
    for name in ("graph_count", "graph_break_count", "op_count"):
        assert getattr(ours, name) == getattr(theirs, name) > 0
    assert len(ours.graphs) == len(theirs.graphs) == 2 and all(isinstance(g, torch.fx.GraphModule) for g in ours.graphs)
    assert ours.ops_per_graph == theirs.ops_per_graph
    (reason,), (other,) = ours.break_reasons, theirs.break_reasons
    assert isinstance(reason.reason, str) and "What to do: " in reason.reason and reason.graph_break
    assert [(f.filename, f.lineno, f.name, f.line) for f in reason.user_stack] == [
        (f.filename, f.lineno, f.name, f.line) for f in other.user_stack
    ]
    assert ours.out_guards == list(ours.guards) and any("x is a tensor" in text for text in ours.out_guards)
    header, *lines = ours.compile_times.splitlines()
    stages = {stage: [float(seconds) for seconds in frames] for stage, *frames in (line.split(", ") for line in lines)}
    assert header == "stage, seconds for each frame"
    # A stage with nothing to do may take less than is shown: only tracing always takes longer.
    assert all(seconds > 0 for stage in ("trace", "whole") for seconds in stages[stage])
    assert all(seconds >= 0 for frames in stages.values() for seconds in frames)
    assert isinstance(theirs.compile_times, str)


def printing(x: Any) -> Any:
    y = x + 1
    print("between")
    return y * 2


def count(n: int) -> int:
    return n + 1


def in_pieces(x: Any) -> Iterator[Any]:
    yield inner(x)
    yield count(3)


def driven(x: Any) -> Any:
    return contextvars.copy_context().run(list, in_pieces(x))


def test_what_is_left_alone_is_told_with_the_reason_each_time(tmp_path: Path) -> None:
    def left() -> dict[str, str]:
        return {skip.function: skip.reason for skip in armature.explain(driven)(X).skipped}

    first = left()
    assert "generator" in first["in_pieces"] and "nothing with tensors" in first["count"]
    compiled = armature.compile(driven, backend="eager")
    for _ in range(5):
        compiled(X)
    before = list(session().skips)
    assert left() == first  # though torch shows these frames to nobody any more
    compiled(X)
    assert list(session().skips) == before
    output = armature.explain(driven)(X)
    assert "runs in pieces" in str(output) and "in_pieces" in output.to_html(tmp_path / "page.html").read_text()
