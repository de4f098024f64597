"""What is remembered of a frame's inputs."""

from __future__ import annotations

from armature.frame.history import History


def test_strides_that_differ_from_earlier_ones() -> None:
    history = History()
    assert history.changed_strides("x", (12, None)) == frozenset()
    assert history.changed_strides("x", (12, None)) == frozenset()
    assert history.changed_strides("x", (None, 5)) == frozenset()  # the first one along each axis
    assert history.changed_strides("x", (17, 5)) == {0}
    assert history.changed_strides("x", (12, 6)) == {0, 1}  # changed once
    assert history.changed_strides("x", (None, 6)) == {1}
    assert history.changed_strides("y", (17, 5)) == frozenset()
    assert history.changed_strides("x", (17, 5, 1)) == frozenset()  # another number of axes
    assert history.changed_strides("x", (12, 6)) == {0, 1}  # remembered beside it


def test_sizes_are_remembered_for_each_number_of_axes() -> None:
    history = History()
    assert [history.changed_axes("x", sizes) for sizes in ((3,), (4, 2), (5,), (4, 3), (5,))] == [
        set(), set(), {0}, {1}, {0},
    ]  # fmt: skip
    history.mark_changed("x", 2, (0,))
    assert history.changed_axes("x", (4, 3)) == {0, 1}
    assert history.changed_axes("x", (5,)) == {0}
