"""Comments that lead to the user's lines: what they may hold."""

from __future__ import annotations

import pytest

from armature.codegen.origins import heading, place
from armature.lower.data import Origin


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("y = x + \\", "model.py:41  y = x +"),
        ("y = x + \\ \t", "model.py:41  y = x +"),
        ("y = x  # \\\\", "model.py:41  y = x  #"),
        ('y = "\\\\"', 'model.py:41  y = "\\\\"'),
        ("y = 1\ry = 2", "model.py:41  y = 1 y = 2"),
        ("y = x  # größer", "model.py:41  y = x  # größer"),
        ("", "model.py:41"),
    ],
)
def test_a_place_ends_where_its_line_ends(text: str, shown: str) -> None:
    assert place(Origin("aten.add.Tensor", "/src/model.py", 41, "forward", text)) == shown
    assert heading([Origin("aten.add.Tensor", "/src/model.py", 41, "forward", text)]) == [f"aten.add.Tensor    {shown}"]


@pytest.mark.parametrize("name", ["a\nb.py", "a\u2028b.py", "a\udcffb.py", "a\x00b.py"])
def test_names_of_files_may_hold_anything(name: str) -> None:
    assert place(Origin("aten.add.Tensor", f"/src/{name}", 1, "forward", "x")) == "a b.py:1  x"
