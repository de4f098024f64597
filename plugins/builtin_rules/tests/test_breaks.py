"""The catalogue has exactly the ids that the interpreter raises, and texts that use the facts it gives."""

from __future__ import annotations

import string

import pytest

from armature.plugin_api import BreakType
from armature.trace.break_ids import BREAK_IDS
from armature_builtin_rules import plugin

ROWS = {row.id: row for row in plugin.armature_break_types()}


def test_every_id_stands_in_the_catalogue_and_no_other() -> None:
    assert ROWS.keys() == BREAK_IDS.keys()


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_texts(row: BreakType) -> None:
    fields = {name for _, name, _, _ in string.Formatter().parse(row.explanation) if name is not None}
    assert fields == set(BREAK_IDS[row.id])
    assert row.explanation.endswith(".")
    assert len(row.title.split()) >= 3
    assert all(len(hint.text) > 20 for hint in row.hints)
    assert row.explanation.format(**dict.fromkeys(fields, "it"))
