"""`why`: the verdict on an object or a name, and the rows of all tables that speak of it."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from armature import plugins
from armature.errors import UnknownName
from armature.plugin_api import (
    Decision,
    Handler,
    Lowering,
    Polyfill,
    Rule,
    hookimpl,
)
from armature.plugins import PluginManager
from armature.rules.provenance import why


def trace_numel(call: Any, input: Any) -> None:
    return None


class Mine:
    @hookimpl
    def armature_rules(self) -> list[Rule]:
        return [Rule("json.dumps", Decision.SKIP, "text, not tensors"), Rule("json", Decision.INLINE, "plain Python")]

    @hookimpl
    def armature_handlers(self) -> list[Handler]:
        return [Handler((torch.numel,), trace_numel)]

    @hookimpl
    def armature_polyfills(self) -> list[Polyfill]:
        return [Polyfill(math.sqrt, trace_numel)]

    @hookimpl
    def armature_lowerings(self) -> list[Lowering]:
        return [Lowering(torch.ops.aten.hardtanh.default, trace_numel)]


@pytest.fixture(autouse=True)
def own(manager: PluginManager, monkeypatch: pytest.MonkeyPatch) -> None:
    manager.register(Mine(), "mine")
    monkeypatch.setattr(plugins, "manager", lambda: manager)


def test_a_name_and_its_object_get_one_answer() -> None:
    by_name, by_object = why("json.dumps"), why(json.dumps)
    assert by_name == by_object
    assert by_name.decision is Decision.SKIP
    assert by_name.reason == "text, not tensors"
    assert by_name.origin.plugin == "mine"
    assert by_name.file.startswith(json.__file__)


def test_what_lost_is_shown() -> None:
    answer = why("json.dumps")
    assert [lost.reason for lost in answer.overruled] == ["plain Python"]
    assert "overrules  inline: plain Python" in str(answer)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("torch.numel", "handler"), ("math.sqrt", "polyfill"), ("torch.ops.aten.hardtanh.default", "lowering")],
)
def test_rows_of_other_tables_are_shown(name: str, kind: str) -> None:
    (speaker,) = why(name).speakers
    assert speaker.kind == kind
    assert speaker.origin.line == trace_numel.__code__.co_firstlineno
    assert f"{kind}" in str(why(name))


def test_every_answer_has_a_reason_and_a_source() -> None:
    for obj in (len, torch.add, torch.nn.Linear, test_what_lost_is_shown, torch.Tensor.add, "".join):
        assert why(obj).reason
        assert why(obj).origin.plugin


@pytest.mark.parametrize("name", ["", "json.", "no_such_module", "json.no_such_thing", "torch.ops.aten.no_such_op.x"])
def test_a_name_of_nothing(name: str) -> None:
    with pytest.raises(UnknownName):
        why(name)


def test_data_has_what_the_text_has() -> None:
    data = json.loads(json.dumps(why("json.dumps").as_data()))
    assert data["decision"] == "skip"
    assert data["overruled"][0]["origin"]["plugin"] == "mine"
