"""`str.format` on what is no constant: nested formats, numbering, and what Python itself refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import armature
from armature.testing.handler_kit import break_id


class Shown:
    wide = 9

    def __init__(self, name: str) -> None:
        self.name = name

    def __format__(self, form: str) -> str:
        return f"<{self.name}|{form}>"

    def __repr__(self) -> str:
        return f"Shown({self.name})"


SHOWN, OTHER = Shown("one"), Shown("two")


def nested(x: torch.Tensor) -> Any:
    return (
        x + 1,
        "{:>{}}|{!r:^{w}}|{:{}{}}".format(SHOWN, 4, OTHER, SHOWN, "a", "b", w=14),
        "{0:{1}{1}} {0:{2.wide}} {{{a:x{a}}}}".format(SHOWN, 3, SHOWN, a=OTHER),
        "{.name} {[k]} {.wide:>{}}".format(SHOWN, {"k": OTHER}, SHOWN, 3),
        "{:{w}} {:{w}}".format(SHOWN, x.shape[0], w=x.shape[0]),
    )


def test_nested_formats() -> None:
    compiled = armature.compile(nested, backend="eager", fullgraph=True)
    for size in (2, 3, 4, 5):
        x = torch.ones(size)
        assert str(compiled(x)) == str(nested(x))


REFUSED = {
    "format-arguments": ["{} {0}", "{0} {}", "{} {} {} {}", "{name}"],
    "format-nested": ["{:{:{}}}"],
    "format-template": ["{!x}", "{", "{0!}"],
}


@pytest.mark.parametrize(("form", "broken_by"), [(form, why) for why, forms in REFUSED.items() for form in forms])
def test_what_python_refuses_is_refused_by_python(form: str, broken_by: str) -> None:
    def program(x: torch.Tensor) -> Any:
        try:
            return x + 1, form.format(SHOWN, OTHER, 3)
        except (ValueError, IndexError, KeyError) as error:
            return x + 2, type(error), str(error)

    x = torch.ones(1)
    assert break_id(program, (x,)) == broken_by
    assert str(armature.compile(program, backend="eager")(x)) == str(program(x))


def test_a_format_that_only_a_run_tells_breaks() -> None:
    def function(x: torch.Tensor) -> str:
        return "{:{}}".format(SHOWN, x)

    assert break_id(function, (torch.ones(1),)) == "format-of-unknown"


class Name(str):
    """A text that can hold attributes."""


class Raw(bytes):
    pass


NAME = Name("name")


def texts_given_back(x: torch.Tensor, name: Name = NAME) -> Any:
    made, empty = Name("a"), Name("")
    made.tag = 3
    found = [
        *(name.format(), name.format(1), name.format(k=x), name % (), name % {}, name.format_map({})),
        *(name.partition("z"), name.rpartition("z"), name.partition("a"), str.partition(name, "z")),
        *(empty.format(), empty % (), empty.partition("z"), name.strip(), name[:], name + "", str(name), f"{name}"),
        *(Name("{}").format("{}"), Name("%%") % (), Raw(b"ab").partition(b"z"), Raw(b"ab") % (), Raw(b"") % ()),
    ]
    kinds = [[type(part).__name__ for part in item] if isinstance(item, tuple) else type(item) for item in found]
    own = [item is name or (isinstance(item, tuple) and any(part is name for part in item)) for item in found]
    return x + 1, found, kinds, own, made.format().tag, (made % ()).tag


def test_a_text_with_nothing_to_fill_in_is_given_back_itself() -> None:
    """Which of these objects are the text itself is up to C: the graph breaks."""
    x = torch.ones(2)
    assert break_id(texts_given_back, (x,)) == "copy-of-derived-class"
    assert break_id(lambda x: (x + 1, NAME % ()), (x,)) == "operator-method-order"
    got = armature.compile(texts_given_back, backend="eager")(x)
    assert str(got) == str(texts_given_back(x))
    assert any(got[3]) and not all(got[3])


def test_texts_of_tensors_are_joined_in_the_graph() -> None:
    x = torch.arange(3.0)

    def joined(x: torch.Tensor) -> Any:
        y = x * 2
        try:
            ", ".join(["a", x])
        except TypeError as error:
            return y, ", ".join(str(part) for part in (y.sum(), "b")), "-".join((f"{y[0]}",)), str(error)

    got, expected = armature.compile(joined, backend="eager", fullgraph=True)(x), joined(x)
    assert torch.equal(got[0], expected[0]) and got[1:] == expected[1:]
