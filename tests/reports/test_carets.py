"""The carets under an expression: neither comments nor tabs, wide characters or long lines shift them."""

from __future__ import annotations

import io
import linecache

import pytest
import torch
from rich.console import Console

import armature
from armature.reports import carets, sarif
from armature.reports.html import page
from armature.reports.record import Place, Recording
from armature.reports.recorder import Recorder
from armature.reports.terminal import place_lines

# Python 3.11 gives `with` the columns of the statement, later versions those of what is entered.
PROGRAM = """
import threading
import torch

LOCK = threading.Lock()

def locked(x):
    with LOCK:  # not the comment
        return x + 1

def tabs(x):
	if len(x):
		größe = "漢字";	y =	x.sum().item()  # wide
	return y

def lines(x):
    return torch.nonzero(x + len("# no comment"  # a comment
                                 ))

def long(x):
    return x + 1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 + 9 + 10 + 11 + 12 + 13 + 14 + 15 + 16 + 17 + 18 + 19 + x.sum().item() + 1
"""
FILE = "carets_of_a_program.py"
MARKED = {
    "locked": ("with LOCK:", "LOCK"),
    "tabs": ("x.sum().item()",),
    "lines": ('torch.nonzero(x + len("# no comment"',),
    "long": ("x.sum().item()",),
}


@pytest.fixture(scope="module")
def recordings() -> dict[str, Recording]:
    linecache.cache[FILE] = (len(PROGRAM), None, PROGRAM.splitlines(keepends=True), FILE)
    names: dict[str, object] = {}
    exec(compile(PROGRAM, FILE, "exec"), names)
    found = {}
    for name in MARKED:
        with Recorder() as recorder:
            armature.compile(names[name], backend="eager")(torch.ones(1))  # type: ignore[call-overload]
        found[name] = recorder.recording()
    return found


def place(recordings: dict[str, Recording], name: str) -> Place:
    found = recordings[name].breaks[-1].place
    assert found is not None
    return found


def printed(shown: Place, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(*place_lines(shown))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", MARKED)
def test_an_expression_is_marked_and_nothing_else(recordings: dict[str, Recording], name: str) -> None:
    shown = place(recordings, name)
    assert shown.text[shown.column : shown.end_column] in MARKED[name]
    assert f"<mark>{shown.text[shown.column : shown.end_column]}".replace('"', "&#34;") in page(recordings[name])


@pytest.mark.parametrize("name", MARKED)
@pytest.mark.parametrize("width", [60, 200])
def test_carets_stand_under_it_in_a_terminal(recordings: dict[str, Recording], name: str, width: int) -> None:
    _, text, marks = printed(place(recordings, name), width)
    assert len(marks) <= width
    columns = "".join(c * carets.width(c) for c in text)  # as many characters as columns are taken
    assert columns[marks.index("^") : len(marks)] in MARKED[name]
    assert set(marks) == {" ", "^"}


def test_tabs_stay_where_text_and_carets_stand_in_a_page() -> None:
    assert carets.caret_line("a\tb = c", 2, 3) == " \t^"
    assert carets.caret_line("漢 = b", 4, 5) == "     ^"
    assert carets.caret_line("x", -1, -1) == ""


@pytest.mark.parametrize(
    "text, code",
    [
        ("with a:  # b", "with a:"),
        ("f(\"#\", '#'  # b", "f(\"#\", '#'"),
        ("a + \\", "a + \\"),
        ('f("""# text', 'f("""# text'),
        ("a  ", "a"),
    ],
)
def test_code_ends_before_a_comment(text: str, code: str) -> None:
    assert carets.code_end(text, 0) == len(code)


def test_a_short_line_is_shown_whole_and_of_a_long_one_what_is_around_the_expression() -> None:
    assert carets.windowed("a + b", 4, 5, 20) == ("a + b", 4, 5)
    text, start, end = carets.windowed("a" * 50 + "(b)" + "c" * 50, 50, 53, 31)
    assert len(text) == 31 and text[start:end] == "(b)" and text.startswith("...a") and text.endswith("c...")
    text, start, end = carets.windowed("(" + "b" * 100 + ")", 0, 102, 20)
    assert text == f"({'b' * 13}..." and (start, end) == (0, 14)


def test_code_scanners_get_the_columns_of_the_file(recordings: dict[str, Recording]) -> None:
    region = sarif.log(recordings["long"])["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]
    line = PROGRAM.splitlines()[region["startLine"] - 1]
    assert line[region["startColumn"] - 1 : region["endColumn"] - 1] == "x.sum().item()"


def test_a_condition_is_told_without_the_rest_of_its_line() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x  # not this

    with Recorder() as recorder:
        armature.compile(program, backend="eager")(torch.ones(3))
    assert "`x.sum() > 0` is known only" in recorder.recording().breaks[0].explanation


def test_a_condition_of_several_lines_is_told_in_one() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        while bool(  # of the tensor
            x.sum() > x.max()  # ä
        ):
            x = x - 1
        return x

    with Recorder() as recorder:
        armature.compile(program, backend="eager")(torch.ones(3))
    (first, *_) = recorder.recording().breaks
    assert "`bool(x.sum() > x.max())` is known only" in first.explanation
    assert first.place is not None and first.place.text[first.place.column :].startswith("bool(")
    assert first.place.caret.strip() == "^" * len("bool(")
