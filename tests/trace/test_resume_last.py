"""What a function still does after its last break is no graph if it only reads and sets items: it runs as it is."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from armature.testing.differential import difference
from tests.support.resuming import compiled, resumes


def x() -> torch.Tensor:
    return torch.tensor([1.0, 0.0, 3.0, 2.0])


def takes(t):
    return torch.where(t + 1 > 1)[0]


def takes_rows(t):
    found = torch.where(t * 2 > 1)
    places = found[0][1:]
    return t[places], places


def sets(t):
    out = t * 0
    low = t.argmin()
    high = low + 2
    part = t[low:high]  # of an unknown length
    out[low:high] = part
    return out


def sets_in_a_dict(t, into):
    found = torch.where(t * 2 > 1)
    into["found"] = found[0]


def computes(t):
    found = torch.where(t * 2 > 1)
    return t[found[0]] * 2


class Rows:
    """Its items are computed."""

    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, place):
        return self.rows * 2 + place[0]


def computes_in_a_method(t):
    rows = Rows(t + 1)
    places = torch.where(t > -1)
    return rows[places]


CASES = [
    (takes, (), 1),
    (takes_rows, (), 1),
    (sets, (), 1),
    (sets_in_a_dict, ({},), 1),
    (computes, (), 2),
]


@pytest.mark.parametrize(("fn", "more", "graphs"), CASES)
def test_items_are_no_graph(fn: Any, more: tuple[Any, ...], graphs: int) -> None:
    found = resumes(fn, lambda: (x(), *[dict(each) for each in more]))
    assert len(found.graphs) == graphs


def test_a_method_that_computes_items_is_compiled() -> None:
    assert len(resumes(computes_in_a_method, lambda: (x(),)).graphs) == 2


def outside(t):
    found = torch.where(t * 2 > 1)
    return found[7]


def handled(t):
    found = torch.where(t * 2 > 1)
    try:
        return found[7]
    except IndexError:
        return t * 3


@pytest.mark.parametrize("fn", [outside, handled])
def test_an_error_of_the_last_items_is_raised_at_its_line(fn: Any) -> None:
    resumes(fn, lambda: (x(),))


def test_the_kinds_of_numbers_that_choose_items_are_no_reason_to_compile() -> None:
    """`max(t, 0)` gives the program a tensor or an int, so four bounds are of sixteen kinds."""

    def pasted(image, box):
        out = image * 0
        left, right = max(box[0], 0), min(box[2], 5)
        top, bottom = max(box[1], 0), min(box[3], 5)
        out[top:bottom, left:right] = image[top - box[1] : bottom - box[1], left - box[0] : right - box[0]]
        return out

    mine, records = compiled(pasted)
    image = torch.arange(25.0).reshape(5, 5)
    for number in range(16):
        low = [-1 if number >> bit & 1 else 1 for bit in (0, 1)]
        high = [7 if number >> bit & 1 else 3 for bit in (2, 3)]
        box = torch.tensor([*low, *high])
        try:
            expected = pasted(image, box)
        except RuntimeError as error:  # the image ends before the box
            with pytest.raises(RuntimeError, match=str(error)[:20]):
                mine(image, box)
        else:
            assert difference(expected, mine(image, box)) == 0.0
    assert len(records.compilations) == 1
