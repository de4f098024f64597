"""json in a compiled function: it runs in eager mode, after a graph break."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

import armature
from armature.testing.handler_kit import break_id


class Text(str):
    pass


def both(x: torch.Tensor) -> Any:
    data = {"a": [1, 2.5, None, True], "b": {"c": ("d", "\u00e9")}, 3: {}}
    texts = json.dumps(data), json.dumps(data, indent=2, ensure_ascii=False), json.dumps([2, 1], separators=(",", ":"))
    made = json.loads(texts[0])
    made["a"].append(x)
    return texts, made, json.loads(b"[1e3, -1, NaN, null]"), json.dumps({"b": 1, "a": x.shape[0]}, sort_keys=True)


def test_as_in_eager_mode() -> None:
    x, compiled = torch.ones(2), armature.compile(both, backend="eager")
    assert break_id(both, (x,))
    for _ in range(2):
        assert str(compiled(x)) == str(both(x))


def given(x: torch.Tensor, data: Any, text: str) -> Any:
    return x + len(json.dumps(data)), json.dumps(data), json.loads(text)


def test_data_that_is_given() -> None:
    x, compiled = torch.ones(2), armature.compile(given, backend="eager")
    for arguments in (({"a": [1]}, "1"), ({"a": [2]}, "1"), ({"b": [2]}, "[]"), ([True], "{}"), ([1], "{}"), (3, "3")):
        assert str(compiled(x, *arguments)) == str(given(x, *arguments))


def test_what_is_loaded_is_new_each_time() -> None:
    compiled = armature.compile(lambda x: (x + 1, json.loads("[[]]")), backend="eager")
    first, second = compiled(torch.ones(1))[1], compiled(torch.ones(1))[1]
    first[0].append(1)
    assert second == [[]]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: json.dumps([x.shape, x]),
        lambda x: json.dumps({(1, 2): 3}),
        lambda x: json.dumps(object()),
        lambda x: json.dumps([float("nan")], allow_nan=False),
        lambda x: json.loads("{"),
        lambda x: json.loads("1", parse_int=lambda text: 7),
        lambda x: json.dumps({1}, default=list),
        lambda x: json.dumps(Text("a")),
    ],
)
def test_what_is_not_known_is_left_to_python(function: Any) -> None:
    x = torch.ones(1)
    assert break_id(function, (x,))
    outcomes = []
    for run in (function, armature.compile(function, backend="eager")):
        try:
            outcomes.append(run(x))
        except (TypeError, ValueError) as error:
            outcomes.append((type(error), str(error)))
    assert outcomes[0] == outcomes[1]
