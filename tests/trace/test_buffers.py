"""bytearray and memoryview: made, read and changed in the frame, and given by the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from armature.errors import Unsupported
from armature.testing.differential import difference

T = torch.linspace(0, 1, 5)


def made(t):
    b = bytearray(b"abc")
    b[0] = 7
    b.append(9)
    b += b"xy"
    b.extend([1, 2])
    b[1:3] = b"qqq"
    del b[0]
    taken = b.pop(), b.pop(0), b.find(b"x"), b.upper(), b.split(b"x"), b.partition(b"x"), b.hex()
    return t * b[0], b, len(b), bytes(b), taken, 113 in b, list(b), b == b"qq", bool(bytearray()), b * 2, 2 * b


def text(t):
    b = bytearray("abc", "ascii")
    shown = f"{b!r} {b}"
    b[0] = 1
    return t + len(b), shown, b.decode(), str(b), b"<" + b + b">", bytearray(3), bytearray([1, 2]), b % ()


def views(t):
    b = bytearray(b"abcdef")
    v = memoryview(b)
    w = v[1:5][::2]
    w[0] = 65
    v[4:] = b"zz"
    read = bytes(w), w.tolist(), v.nbytes, v.readonly, v.format, v.shape, v.contiguous, w.strides, v[0], sum(v)
    return t * v[1], b, read, w.obj is b, memoryview(b"xyz")[1:].tobytes(), bytes(v.cast("H")), w == b"Ae"


def shared_inside(t):
    b = bytearray(b"abc")
    v = memoryview(b)[1:]
    held = [b, b, v]
    b[1] = 5
    return t * v[0], held, v


def errors(t):
    found = []
    for act in (
        lambda: bytearray(b"ab")[7],
        lambda: bytearray([300]),
        lambda: bytearray(b"a").append(256),
        lambda: memoryview(b"ab").__setitem__(0, 1),
        lambda: bytearray(b"a").remove(5),
    ):
        try:
            act()
        except (IndexError, ValueError, TypeError) as error:
            found.append((type(error).__name__, str(error)))
    return t + len(found), found


def plain(value: Any) -> Any:
    """With bytes in the place of views, of which the class is kept."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return (type(value).__name__, bytes(value)) if isinstance(value, (bytearray, memoryview)) else value


@pytest.mark.parametrize("fn", [made, text, views, shared_inside, errors])
def test_made_in_the_frame(fn: Callable[..., Any]) -> None:
    compiled = armature.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        found = compiled(T)
        assert difference(plain(fn(T)), plain(found)) == 0.0
    if fn is shared_inside:
        assert found[1][0] is found[1][1]
        assert found[1][2] is found[2]
        found[1][0][1] = 33
        assert found[2][0] == 33


def changes(t, b):
    first = b[0]
    b[0] = (first + 1) % 256
    b[1:] = bytes(reversed(b[1:]))
    return t * first, b, bytes(b)


def grows(t, b):
    y = t * b[0]
    b.append(5)
    return y + len(b)


def reads(t, b):
    return t * b[1] + len(b), sum(b), bytes(b[1:])


@pytest.mark.parametrize("fn", [changes, grows, reads])
def test_of_the_caller(fn: Callable[..., Any]) -> None:
    compiled = armature.compile(fn, backend="eager", fullgraph=fn is reads)
    for content in (b"abc", b"abc", b"xyzw"):
        mine, theirs = bytearray(content), bytearray(content)
        assert difference(plain(fn(T, theirs)), plain(compiled(T, mine))) == 0.0
        assert mine == theirs
        if fn is changes:
            assert compiled(T, mine)[1] is mine
    if fn is reads:
        for view in (memoryview(b"abc"), memoryview(b"abcd"), memoryview(b"xyzw")):
            assert difference(fn(T, view), compiled(T, view)) == 0.0
        with pytest.raises(Unsupported):
            compiled(T, memoryview(bytearray(b"abc")))


def writes_below_a_tensor(t, b, over):
    b[0] = 9
    return t * b[0], over * 2


def reads_after_a_tensor(t, b, over):
    over.add_(1)
    return t * b[0], bytes(b), sum(b), f"{b}"


@pytest.mark.parametrize("fn", [writes_below_a_tensor, reads_after_a_tensor])
def test_a_tensor_over_the_bytes(fn: Callable[..., Any]) -> None:
    compiled = armature.compile(fn, backend="eager")
    for together in (False, True, True, False):
        results = []
        for run in (fn, compiled):
            b = bytearray(b"abcd")
            over = torch.frombuffer(b if together else bytearray(b"abcd"), dtype=torch.uint8)
            results.append((run(T, b, over), bytes(b), over.clone()))
        assert difference(*results) == 0.0
