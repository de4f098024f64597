"""The record of a run: outcomes, graphs with kernels, times, its JSON form, and what recording costs."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
import torch

import armature
from armature.pipeline.session import MOST_RECORDS, session
from armature.reports import schema
from armature.reports.record import End, Outcome, Recording
from armature.reports.recorder import SAMPLES, Recorder, Sampler, thinned
from armature.run.timeline import Timeline
from tests.reports.sample import everything, large

ROOT = Path(__file__).resolve().parents[2]


def test_every_outcome_is_met_and_each_has_a_reason() -> None:
    recording = everything()
    found = {frame.outcome for frame in recording.frames}
    assert found >= set(Outcome) - {Outcome.EMPTY, Outcome.FAILED}
    assert all(frame.reason for frame in recording.frames)


def test_reasons_name_the_cause() -> None:
    def reason(function: str, outcome: Outcome) -> str:
        frames = everything().frames
        return next(f.reason for f in frames if f.function == function and f.outcome is outcome)

    assert "this backend is <broken>" in reason("doubled", Outcome.FELL_BACK)
    assert "n was 'a', is now 'bb'" in reason("powers", Outcome.RECOMPILED)
    assert "compiled 2 times" in reason("powers", Outcome.LIMIT)
    assert "generator" in reason("pieces", Outcome.SKIPPED)
    assert "sample.py:" in reason("Small.forward", Outcome.BROKEN)


def test_nodes_kernels_and_lines_are_linked_both_ways() -> None:
    graphs = [graph for graph in everything().graphs if graph.kind != "captured"]
    assert {graph.kind for graph in graphs} >= {"forward", "backward"}
    for graph in graphs:
        names = {node.name for node in graph.nodes}
        kernels = {kernel.name: kernel for kernel in graph.kernels}
        for kernel in graph.kernels:
            assert kernel.nodes and set(kernel.nodes) <= names
            if kernel.generated:
                assert kernel.name in kernel.code and kernel.operators and kernel.bytes_written
        for node in graph.nodes:
            assert set(node.inputs) <= names
            assert all(node.name in kernels[name].nodes for name in node.kernels)
        assert [step.bytes for step in graph.memory] and graph.peak_bytes > 0
    softmax = next(n for graph in graphs for n in graph.nodes if n.target == "aten._softmax.default")
    assert (
        softmax.place is not None and softmax.place.text == "return y.softmax(-1)" and softmax.type == "float32[3, 4]"
    )


def test_times_lie_within_the_run() -> None:
    recording = everything()
    assert {span.kind for span in recording.spans} == {"frame", "stage", "graph", "kernel"}
    for span in recording.spans:
        assert span.start >= -0.01 and span.start + span.seconds <= recording.seconds + 0.01
    for span in (one for one in recording.spans if one.kind == "stage"):
        assert span.frame is not None
        assert recording.frames[span.frame].at <= span.start + 1e-3
    kernels = {kernel.name for kernel in recording.kernels}
    assert {span.name for span in recording.spans if span.kind == "kernel"} <= kernels


def test_memory_is_sampled() -> None:
    recording = everything()
    assert len(recording.memory) >= 2 and all(sample.resident > 2**20 for sample in recording.memory)
    assert [s.at for s in recording.memory] == sorted(s.at for s in recording.memory)
    sampler = Sampler()
    for _ in range(SAMPLES + 1):
        sampler._take()
    assert len(sampler.samples) <= SAMPLES // 2 + 1 and sampler.every > Sampler().every


def test_peaks_stay_when_samples_are_thinned() -> None:
    samples = large().memory
    assert max(s.resident for s in thinned(samples)) == max(s.resident for s in samples)


def test_the_json_form_follows_the_schema_and_can_be_read_back() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="validates the report")
    jsonschema.Draft202012Validator.check_schema(schema.schema())
    for recording in (everything(), large(50), Recording()):
        text = schema.as_json(recording)
        jsonschema.validate(json.loads(text), schema.schema())
        assert schema.from_json(text) == recording


def test_the_schema_refuses_what_no_record_has() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="validates the report")
    data = schema.as_data(everything())
    for change in ({"more": 1}, {"frames": [{}]}, {"end": "nowhere"}, {"seconds": "long"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(json.loads(json.dumps(data | change)), schema.schema())


def test_the_schema_in_the_docs_is_that_of_the_code() -> None:
    assert json.loads((ROOT / "docs" / "report.schema.json").read_text(encoding="utf-8")) == schema.schema()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}', '{"format": 1, "frames": [1]}'])
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(schema.NotARecord, match="no record"):
        schema.from_json(text)


def test_an_error_of_the_program_comes_out_and_is_kept() -> None:
    def fails() -> None:
        raise ValueError("of the program")

    recorder = Recorder()
    with pytest.raises(ValueError, match="of the program"), recorder:
        armature.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        fails()
    recording = recorder.recording()
    assert recording.end is End.RAISED and "ValueError: of the program" in recording.error
    assert recording.count(Outcome.COMPILED) == 1


def test_what_is_forgotten_by_the_session_stays_in_the_record() -> None:
    with Recorder() as recorder:
        armature.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        armature.reset()
        armature.compile(lambda x: x + 2, backend="eager")(torch.ones(2))
    assert recorder.recording().count(Outcome.COMPILED) == 2
    assert not session().followers and session().timeline is None


def test_a_block_has_its_own_records_when_the_session_has_dropped_old_ones() -> None:
    code = test_reasons_name_the_cause.__code__
    for _ in range(MOST_RECORDS):
        session().begin(code, "eager")
    with session().recording() as records:
        made = [session().begin(code, "eager") for _ in range(MOST_RECORDS + 1)]
    assert records.compilations == made
    session().begin(code, "eager")
    assert len(records.compilations) == len(made) and not session().followers


def test_a_compilation_that_was_stopped_has_a_reason() -> None:
    def stops(module: object, inputs: object) -> object:
        raise KeyboardInterrupt

    recorder = Recorder()
    with pytest.raises(KeyboardInterrupt), recorder:
        armature.compile(lambda x: x + 1, backend=stops)(torch.ones(2))
    (frame,) = recorder.recording().frames
    assert frame.outcome is Outcome.FAILED and "KeyboardInterrupt" in frame.reason


def test_no_call_is_timed_unless_asked() -> None:
    with Recorder() as recorder:
        compiled = armature.compile(lambda x: x.exp() + 1)
        compiled(torch.ones(2))
    assert {span.kind for span in recorder.recording().spans} == {"frame", "stage"}
    (graph,) = recorder.records.compilations[0].graphs
    assert graph.call.run.__code__.co_filename.startswith("<armature ")


def test_runs_that_are_too_many_are_counted() -> None:
    timeline = Timeline(most=2)
    call = timeline.timed("kernel", "add_0", lambda x: x + 1)
    assert [call(n) for n in range(5)] == [1, 2, 3, 4, 5]
    assert len(timeline.runs) == 2 and timeline.left_out == 3


def test_places_have_carets_under_their_expression() -> None:
    place = next(one.place for one in everything().breaks if one.place and "y.sum()" in one.place.text)
    assert place.text[place.caret.index("^") :].startswith("y.sum() > 1000")
    assert not attrs.evolve(place, column=-1).caret


STATES = {
    "grad": ("torch.set_grad_enabled(False)", "torch.is_grad_enabled() was True, is now False"),
    "dtype": (
        "torch.set_default_dtype(torch.float64)",
        "torch.get_default_dtype() was torch.float32, is now torch.float64",
    ),
    "autocast": ("torch.autocast('cpu').__enter__()", "torch.is_autocast_enabled('cpu') was False, is now True"),
    "deterministic": (
        "torch.use_deterministic_algorithms(True)",
        "torch.are_deterministic_algorithms_enabled() was False, is now True",
    ),
}


@pytest.mark.parametrize("kind", STATES)
def test_a_change_of_torchs_state_is_told_as_the_program_asks_for_it(kind: str) -> None:
    change, told = STATES[kind]

    def fn(x):
        return x * 2

    undo = (torch.is_grad_enabled(), torch.get_default_dtype(), torch.is_autocast_enabled("cpu"))
    with Recorder() as recorder:
        compiled = armature.compile(fn, backend="eager")
        compiled(torch.ones(2))
        try:
            exec(change)
            compiled(torch.ones(2, dtype=torch.float32))
        finally:
            torch.set_grad_enabled(undo[0])
            torch.set_default_dtype(undo[1])
            torch.set_autocast_enabled("cpu", undo[2])
            torch.use_deterministic_algorithms(False)
    (frame,) = recorder.recording().recompiled
    assert [one.words for one in frame.failures] == [told]
