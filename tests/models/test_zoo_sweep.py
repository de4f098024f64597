"""The sweep over models of libraries: what it compares, how it sorts what differs, shrinks, orders and survives."""

from __future__ import annotations

import ctypes
import io
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from benchmarks.zoo import known
from benchmarks.zoo.app import evenly, prepare_environment
from benchmarks.zoo.causes import Failure, breaks_of, failures, normalised, summary
from benchmarks.zoo.earlier import machines, read_rows
from benchmarks.zoo.explaining import explained, raises_as_told
from benchmarks.zoo.pool import Job, run_all
from benchmarks.zoo.report import causes_table
from benchmarks.zoo.shrink import UNCHANGED, Scale, shrunk
from benchmarks.zoo.tensors import Difference, Results, differences


def results(value: torch.Tensor, path: str = "out", group: str = "output") -> Results:
    made = Results()
    made.keep(group, iter([(path, value)]))
    return made


def kinds(found: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor | None = None) -> list[str]:
    wrong = differences(results(found), results(eager), None if exact is None else results(exact))
    return [one.kind for one in wrong]


EAGER = torch.linspace(1.0, 2.0, 6).reshape(2, 3)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (EAGER.clone(), []),
        (EAGER * (1 + 1e-6), []),
        (EAGER * (1 + 1e-3), ["value"]),
        (EAGER.double(), ["dtype"]),
        (EAGER[:1], ["shape"]),
        (EAGER.t().contiguous().t(), ["strides"]),
        (EAGER / (EAGER != 1.0), ["not finite"]),
    ],
    ids=["same", "rounding", "value", "dtype", "shape", "strides", "infinite"],
)
def test_what_counts_as_different(found: torch.Tensor, expected: list[str]) -> None:
    assert kinds(found, EAGER, EAGER.double()) == expected


def test_more_is_allowed_where_eager_mode_is_off_itself() -> None:
    found, exact = EAGER * (1 + 4e-4), EAGER.double() * (1 - 1e-4)
    assert kinds(found, EAGER, EAGER.double()) == ["value"]
    assert kinds(found, EAGER, exact) == []
    assert kinds(EAGER * (1 + 4e-3), EAGER, exact) == ["value"]


def test_integers_must_be_equal() -> None:
    whole = torch.arange(5)
    assert kinds(whole, whole) == []
    assert kinds(whole + 1, whole) == ["value"]


def test_tensors_that_one_side_lacks() -> None:
    wrong = differences(results(EAGER, "a"), results(EAGER, "b"), None)
    assert sorted((one.kind, one.path) for one in wrong) == [("extra", "a"), ("missing", "b")]


def explain(
    found: torch.Tensor,
    told: Callable[[], torch.Tensor],
    shaken: Callable[[int], torch.Tensor],
    exact: torch.Tensor | None = None,
) -> list[int]:
    """How many differences are wrong, asked for and unstable."""
    reference = None if exact is None else results(exact)
    wrong = differences(results(found), results(EAGER), reference)
    why = explained(
        results(found), wrong, results(EAGER), reference, lambda: (results(told()), None), lambda n: results(shaken(n))
    )
    return [len(why.wrong), len(why.asks), len(why.unstable)]


def asks() -> torch.Tensor:
    return EAGER + 1 if torch.compiler.is_compiling() else EAGER


def test_a_program_that_asks_whether_it_is_compiled() -> None:
    assert explain(EAGER + 1, asks, lambda _: EAGER) == [0, 1, 0]
    assert not torch.compiler.is_compiling()
    assert explain(EAGER + 2, asks, lambda _: EAGER) == [1, 0, 0]  # not what it does then
    assert explain(EAGER + 1, lambda: EAGER, lambda _: EAGER) == [1, 0, 0]  # it does not ask


def test_a_shape_that_rounding_decides() -> None:
    """A detector whose scores are ties in float32 has another number of boxes in float64."""
    assert explain(EAGER[:1], lambda: EAGER, lambda _: EAGER, exact=EAGER.double()[:0]) == [0, 0, 1]
    assert explain(EAGER[:1], lambda: EAGER, lambda _: EAGER, exact=EAGER.double()) == [1, 0, 0]
    assert explain(EAGER + 1, lambda: EAGER, lambda _: EAGER, exact=EAGER.double()) == [1, 0, 0]


def test_a_program_that_raises_if_it_is_told_that_it_is_compiled() -> None:
    """transformers' BridgeTower builds a mask of the wrong size then."""

    def told() -> tuple[Results, None]:
        if torch.compiler.is_compiling():
            raise ValueError("sizes 3\nand 4")
        return results(EAGER), None

    assert raises_as_told("ValueError: sizes 3 and 4", told)
    assert not torch.compiler.is_compiling()
    assert not raises_as_told("ValueError: sizes 3 and 5", told)
    assert not raises_as_told("ValueError: sizes 3 and 4", lambda: (results(EAGER), None))


def test_a_result_that_rounding_moves() -> None:
    assert explain(EAGER.flip(1), lambda: EAGER, lambda _: EAGER.flip(1)) == [0, 0, 1]
    assert explain(EAGER.flip(1), lambda: EAGER, lambda _: EAGER + 1e-6) == [1, 0, 0]


@pytest.mark.parametrize(("share", "counts"), [(0.9, [0, 0, 1]), (0.3, [1, 0, 0])])
def test_a_small_difference_that_rounding_makes(share: float, counts: list[int]) -> None:
    """As where a unit at zero is on or off: much less than the largest value."""
    small = 5e-4 * EAGER.abs().max()
    exact = EAGER.double()
    assert explain(EAGER + small, lambda: EAGER, lambda _: EAGER + share * small, exact) == counts


def test_an_error_of_a_run_that_explains() -> None:
    def fails(*_: Any) -> torch.Tensor:
        raise RuntimeError("needs a compiler")

    assert explain(EAGER + 1, fails, fails) == [1, 0, 0]
    assert not torch.compiler.is_compiling()


def way(**more: Any) -> dict[str, Any]:
    return {"graphs": [3], "break count": 0, "breaks": [], "fallbacks": [], "wrong": [], **more}


def row(**ways: dict[str, Any]) -> dict[str, Any]:
    found = {name.replace("theirs", "torch.compile"): one for name, one in ways.items()}
    return {"library": "lib", "name": "model", "stage": "done", "parameters": 5, "infer": found}


BREAK = {"id": "some-break", "facts": "{}", "line": "x.item()", "place": "/a/site-packages/lib/m.py:3 in f"}
VALUE = {"group": "output", "path": "out", "kind": "value", "detail": "1e-1 off"}


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (row(capture=way(), theirs=way(), auto=way()), []),
        (row(capture=way(wrong=[VALUE])), ["wrong"]),
        (row(capture=way(wrong=[{**VALUE, "kind": "strides"}])), ["layout"]),
        (row(capture=way(asks=[VALUE])), ["asks"]),
        (row(auto=way(unstable=[VALUE])), ["unstable"]),
        (row(auto=way(raised="TypeError: no")), ["raises"]),
        (row(auto=way(raised="TypeError: no", **{"raised as told": True})), ["asks"]),
        (row(auto=way(raised="TypeError: no", **{"raised as told": False})), ["raises"]),
        (row(auto=way(fallbacks=["f: no kernel"])), ["fallback"]),
        (row(capture=way(**{"break count": 1, "breaks": [BREAK]}), theirs=way()), ["more breaks"]),
        (row(capture=way(**{"break count": 1}), theirs=way(**{"break count": 1})), []),
        (row(capture=way(**{"break count": 1, "graphs": [1, 2]}), theirs=way(**{"given up": 1})), []),
        ({**row(), "stage": "infer: auto", "ended": "crashed: SIGSEGV"}, ["crash"]),
        ({**row(), "stage": "infer: torch.compile", "ended": "crashed: SIGSEGV"}, []),
        ({**row(), "stage": "train: capture", "ended": "over 90 s"}, ["timeout"]),
    ],
)
def test_failures_of_a_row(made: dict[str, Any], expected: list[str]) -> None:
    assert [failure.kind for failure in failures(made)] == expected


@pytest.mark.parametrize(("graphs", "breaks", "expected"), [(3, 0, 2), (3, 4, 4), (1, 0, 0), (0, 0, 0)])
def test_breaks_of_a_frame_that_torch_compile_gave_up_on(graphs: int, breaks: int, expected: int) -> None:
    assert breaks_of({"graphs": [1] * graphs, "break count": breaks}) == expected


def test_the_table_of_causes_names_breaks() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(causes_table([row(capture=way(**{"break count": 1, "breaks": [BREAK]}), theirs=way())]))
    assert "[some-break] x.item()" in console.export_text()


def test_numbers_of_a_summary() -> None:
    found = summary(
        [
            row(capture=way(), theirs=way()),
            {**row(capture=way(wrong=[VALUE]), theirs=way()), "name": "other"},
            {"library": "lib", "name": "third", "not built": "no"},
        ]
    )
    assert (found.rows, found.ran, found.right, found.unbuilt) == (3, 2, 1, 1)
    assert (found.phases, found.one_graph_theirs, found.one_graph_both, found.more_breaks) == (2, 2, 2, 0)


def test_messages_that_differ_in_numbers_are_one_cause() -> None:
    texts = [f"/usr/lib{n}/torch/nn.py: size {n}, at 0x7f{n}" for n in (3, 4)]
    assert normalised(texts[0]) == normalised(texts[1])
    assert normalised("one") != normalised("another")


def test_known_failures() -> None:
    failure = Failure("wrong", "cause", "lib/model", "infer, auto")
    assert known.new([failure], []) == [failure]
    assert known.new([failure], [known.Known("lib/mod*", "wrong", "infer, *", "why")]) == []
    assert known.new([failure], [known.Known("lib/mod*", "crash", "infer, *", "why")]) == [failure]
    assert known.new([Failure("more breaks", "cause", "lib/model", "infer")], []) == []
    with pytest.raises(ValueError, match="reason"):
        known.Known("lib/model", "wrong", "*", " ")
    with pytest.raises(ValueError, match="none of"):
        known.Known("lib/model", "wrnog", "*", "why")


def test_the_file_of_known_failures_can_be_read() -> None:
    assert all(one.reason for one in known.read())


def test_small_values_for_fields() -> None:
    fields = {"hidden_size": 4096, "num_hidden_layers": 32, "hidden_act": "silu", "use_cache": True, "conv_kernel": 7}
    scale = Scale()
    small = shrunk(fields, scale)
    assert small == {"hidden_size": scale.width, "num_hidden_layers": scale.layers}
    assert scale.width != UNCHANGED


def test_any_beginning_of_the_order_has_each_library() -> None:
    names = [("large", f"m{n}") for n in range(300)] + [("small", f"m{n}") for n in range(30)]
    order = evenly(names, "seed")
    assert sorted(order) == sorted(names)
    assert order != evenly(names, "other seed")
    for length in (55, 110, 220):
        count = Counter(library for library, _ in order[:length])
        assert abs(count["small"] - length / 11) <= 1.5


def test_parts_of_a_sweep_are_put_together(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    late = {"library": "a", "name": "late", "ended": "not started in time"}
    rows = [{"library": "a", "name": "one", "run": 1}, {"library": "a", "name": "two", "run": 1}, late]
    (first / "rows.jsonl").write_text("".join(json.dumps(made) + "\n" for made in rows) + '{"library": "a", "na')
    (first / "zoo.json").write_text(json.dumps({"machine": "a machine"}))
    again = [{"library": "a", "name": "two", "run": 2}, {"library": "b", "name": "one", "ended": "over 9 s"}]
    (second / "rows.jsonl").write_text("".join(json.dumps(made) + "\n" for made in again))
    assert read_rows([first, second / "rows.jsonl"]) == [rows[0], again[0], again[1]]
    assert machines([first, second / "rows.jsonl"]) == ["a machine"]


def test_gpus_are_hidden_from_runs_on_the_cpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"CUDA_VISIBLE_DEVICES": "3", "ARMATURE_CACHE_DIR": "kept"})
    prepare_environment("cuda")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"
    prepare_environment("cpu")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert os.environ["ARMATURE_CACHE_DIR"] == "kept"


def what_happens(library: str, name: str, settings: Any, report: Callable[[dict[str, Any]], None]) -> None:
    """The work of a process of these tests."""
    report({"library": library, "name": name, "stage": "infer: auto"})
    if name == "crashes":
        ctypes.string_at(0)
    elif name == "raises":
        raise RuntimeError("said so")
    elif name == "hangs":
        time.sleep(600)
    report({"library": library, "name": name, "stage": "done"})


def test_a_process_may_crash_raise_and_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    )
    jobs = [Job("lib", name, None, 90.0) for name in ("well", "crashes", "raises")] + [Job("lib", "hangs", None, 1.0)]
    rows = {found["name"]: found for found in run_all(jobs, what_happens, 2, preloaded=["torch"])}
    assert rows["well"]["stage"] == "done"
    assert "ended" not in rows["well"]
    assert rows["crashes"]["ended"] == "crashed: SIGSEGV"
    assert rows["raises"]["ended"] == "exit status 3"
    assert "said so" in rows["raises"]["log"]
    assert rows["hangs"]["ended"] == "over 1 s"
    assert {rows[name]["stage"] for name in ("crashes", "raises")} == {"infer: auto"}


def test_jobs_for_which_there_is_no_time() -> None:
    rows = list(run_all([Job("lib", "well", None, 9.0)], what_happens, 1, time.monotonic() - 1, preloaded=["torch"]))
    assert [found["ended"] for found in rows] == ["not started in time"]
    assert list(failures(rows[0])) == []


def test_strides_are_not_explained_away() -> None:
    wrong = [Difference("output", "out", "strides", "(1, 2) for (3, 1)")]
    run = results(EAGER), None
    why = explained(results(EAGER), wrong, results(EAGER), None, lambda: run, lambda _: results(EAGER + 1))
    assert why.wrong == wrong
