"""`armature.why` and the `why` command: modules, methods, builtins, objects, wrong names, lines of files; how to change."""

from __future__ import annotations

import functools
import io
import json
import operator
import re
import sys
from pathlib import Path
from types import MethodType
from typing import Any

import numpy
import pytest
import torch
from rich.console import Console
from torch import nn
from typer.testing import CliRunner

import armature
from armature import plugins
from armature.cli.app import make_app
from armature.cli.why import render_answer, render_line
from armature.errors import UnknownName
from armature.rules import Decision, Verdict
from armature.rules.errors import BadTarget, NotAFile, NothingCalled
from armature.rules.names import nearest, resolve
from armature.rules.provenance import Why, why
from armature.rules.why_line import as_place, why_line


def user_function(x: Any) -> Any:
    return x + 1


class Model(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2


class Caller:
    def __call__(self, x: Any) -> Any:
        return x


def test_it_is_a_verdict() -> None:
    found = armature.why(user_function)
    assert isinstance(found, Verdict)
    assert (found.decision, found.overruled) == (Decision.INLINE, ())
    assert armature.why is why


@pytest.mark.parametrize(
    ("target", "kind", "decision"),
    [
        (torch.sin, "function written in C", "in_graph"),
        ("torch.Tensor#add", "function written in C", "in_graph"),
        ("torch.ops.aten.add.Tensor", "object of torch._ops.OpOverload", "in_graph"),
        (len, "function written in C", "in_graph"),
        ("len", "function written in C", "in_graph"),
        ("print", "function written in C", "skip"),
        ("json.dumps", "function", "inline"),
        ("json.JSONEncoder#encode", "function", "inline"),
        ("json.JSONEncoder", "class", "inline"),
        (dict, "class written in C", "in_graph"),
        (functools.partial(user_function, 1), "object of functools.partial", "inline"),
        (Caller(), "object of", "inline"),
        ([], "object of builtins.list", "skip"),
        ("torch.nn.functional", "module", "inline"),
        (torch.distributed, "module", None),
        ("linecache", "module", "skip"),
        (operator, "module", None),
        ("torch.nn.Linear#forward", "function", "inline"),
    ],
)
def test_everything_has_a_kind_a_decision_a_reason_and_a_place(target: Any, kind: str, decision: str | None) -> None:
    found = armature.why(target)
    assert found.kind.startswith(kind)
    assert decision is None or found.decision.value == decision
    assert found.reason and found.origin.plugin and found.origin.file and found.meaning
    assert found.changes or found.notes
    assert json.dumps(found.as_data())


def test_an_object_of_a_module_is_answered_by_its_forward() -> None:
    found = armature.why(Model())
    assert found.name == "Model object" and found.file.startswith(__file__)
    assert "forward" in found.notes[0]
    assert found == armature.why(Model.forward)


def test_what_armature_made_is_looked_through() -> None:
    assert armature.why(armature.compile(user_function)) == armature.why(user_function)
    assert armature.why(armature.compile(Model())) == armature.why(Model.forward)


def test_a_handler_that_goes_first_is_told() -> None:
    found = armature.why("torch.numel")
    assert [s.kind for s in found.speakers] == ["handler"]
    assert any("handler first" in note for note in found.notes)
    with armature.rules.skip(torch.numel):
        assert any("goes before" in note for note in armature.why(torch.numel).notes)


def test_ways_to_change_it() -> None:
    changes = "\n".join(armature.why("json.dumps").changes)
    assert 'armature.rules.skip("json.dumps")' in changes and 'skip = ["json.dumps"]' in changes
    changes = "\n".join(armature.why("torch.sin").changes)
    assert "armature.rules.inline" not in changes and "@armature.substitute" in changes
    with armature.rules.skip("json.dumps"):
        (first, *_) = armature.why("json.dumps").changes
        assert first.startswith("your own rule decides") and f"{__file__}:" in first


def test_each_way_to_change_it_works() -> None:
    for name, say, decision in (
        ("json.dumps", armature.rules.skip, Decision.SKIP),
        ("json.dumps", armature.rules.in_graph, Decision.IN_GRAPH),
        ("linecache.getline", armature.rules.inline, Decision.INLINE),
        ("torch.sin", armature.rules.skip, Decision.SKIP),
    ):
        call = f'armature.rules.{decision.value}("{name}")'
        assert any(change.startswith(call) for change in armature.why(name).changes), (name, call)
        with say(name):
            assert armature.why(name).decision is decision


def test_no_way_is_told_that_would_be_refused() -> None:
    """A class of Python can't go in the graph, whether it is given or named."""
    for target in ("torch.nn.Linear", "json.JSONEncoder", Model, nn.Linear):
        changes = armature.why(target).changes
        assert changes and not any("in_graph" in change for change in changes)
    with pytest.raises(BadTarget, match="not objects of a class"):
        armature.rules.in_graph("json.JSONEncoder")


BY_HANDLER = ("the handler declines", "a handler says how")
BY_INTERPRETER = ("the interpreter can't trace it", "the interpreter traces a call of it")


@pytest.mark.parametrize(
    ("target", "declines", "tells"),
    [
        (functools.partial, *BY_HANDLER),
        ("object.__init__", *BY_HANDLER),
        ("object#__eq__", *BY_HANDLER),
        (torch.autograd.Function.apply, *BY_HANDLER),
    ],
)
def test_the_decision_is_told_to_count_where_someone_is_asked_first(target: Any, declines: str, tells: str) -> None:
    found = armature.why(target)
    if isinstance(target, MethodType):  # `apply` is written in C in newer torch
        assert found.decision is Decision.INLINE
    else:
        assert found.meaning == f"left alone where {declines}"
        assert tells in found.reason
    with armature.rules.skip(target):
        assert armature.why(target).meaning.startswith("not traced")


@pytest.mark.parametrize("name", ["str.join", "dict#get", "object.__init__", "len"])
def test_builtins_need_no_module(name: str) -> None:
    assert armature.why(name) == armature.why(f"builtins.{name}")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("torch.nn.functional.gelo", "torch.nn.functional.gelu"),
        ("torch.nn.fuctional.gelu", "torch.nn.functional.gelu"),
        ("torch.Tensor#ad", "torch.Tensor#add"),
        ("json.JSONEncoder#encod", "json.JSONEncoder#encode"),
        ("gelu", "torch.nn.functional.gelu"),
        ("torhc.sin", "torch"),
        ("jsn", "json"),
        ("xml.etre", "xml.etree"),
    ],
)
def test_a_wrong_name_is_told_the_nearest(name: str, near: str) -> None:
    assert nearest(name) == near
    with pytest.raises(UnknownName, match=f"Did you mean {near}"):
        armature.why(name)


def test_no_name_is_near() -> None:
    assert nearest("zzzzzzzzzz.y") == ""
    with pytest.raises(LookupError, match="full name"):
        armature.why("zzzzzzzzzz.y")


def test_a_module_that_fails_as_it_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_for_the_test.py").write_text("raise ValueError('no')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnknownName, match="ValueError: no"):
        armature.why("broken_for_the_test.fn")


def test_members_that_a_module_makes_at_first_use() -> None:
    assert resolve("armature.compile") is armature.compile
    assert numpy.sin is resolve("numpy.sin")


PROGRAM = """
import json
import torch
import torch.nn.functional as F
from torch import nn
from os import path as p


def helper(x):
    return F.gelu(x) + x.sin()


class Net(nn.Module):
    def forward(self, x):
        print("here")
        return self.scale(helper(x))

    def scale(self, x):
        return x.no_such_method() + self.linear(x)


def numbers(x):
    yield x


print(json.dumps(1), p.join("a", "b"))
y = 3
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    return file


def at(text: str) -> int:
    return next(number for number, line in enumerate(PROGRAM.splitlines(), 1) if text in line)


def test_a_line_gives_the_frame_and_the_calls(program: Path) -> None:
    found = why_line(program, at("F.gelu"))
    frame, gelu, sin = found.answers
    assert frame.name == "program.helper" and frame.decision is Decision.INLINE and "frame" in frame.kind
    assert frame.file == f"{program}:{at('def helper')}"
    assert gelu == armature.why(F_GELU) and gelu.name == F_GELU
    assert sin.name == "torch.Tensor#sin" and "if x is a tensor" in sin.notes[0]
    assert found.unresolved == ()


F_GELU = "torch.nn.functional.gelu"


def test_builtins_functions_of_the_file_and_methods_of_self(program: Path) -> None:
    assert [a.name for a in why_line(program, at('print("here")')).answers] == ["program.Net.forward", "builtins.print"]
    names = [a.name for a in why_line(program, at("self.scale(")).answers]
    assert names == ["program.Net.forward", "program.Net.scale", "program.helper"]
    found = why_line(program, at("no_such_method"))
    assert [a.name for a in found.answers] == ["program.Net.scale"]
    assert found.unresolved == ("x.no_such_method", "self.linear")


def test_what_a_line_calls_is_answered_as_a_call(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that puts a function in the graph is for calls of it, and says nothing about its frame."""
    with armature.rules.in_graph("program.helper", reason="one node"):
        assert why_line(program, at("F.gelu")).answers[0].decision is Decision.INLINE
        called = why_line(program, at("self.scale(")).answers[-1]
        assert (called.decision, called.reason) == (Decision.IN_GRAPH, "one node")
    package = program.parent / "a_package_of_why"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "part.py").write_text(PROGRAM.replace("def helper", "@__import__('functools').lru_cache\ndef helper"))
    monkeypatch.syspath_prepend(program.parent)
    with armature.rules.in_graph("a_package_of_why.part.helper", reason="one node"):
        called = why_line(package / "part.py", at("self.scale(") + 1).answers[-1]
        assert (called.name, called.reason) == ("a_package_of_why.part.helper", "one node")


def test_a_lambda_on_a_line_is_not_the_function_around_it(tmp_path: Path) -> None:
    file = tmp_path / "lambdas.py"
    file.write_text("def outer(x):\n    return sorted(x, key=lambda y: y)\n")
    names = [answer.name for answer in why_line(file, 2).answers]
    assert names == ["lambdas.outer", "lambdas.outer.<locals>.<lambda>", "builtins.sorted"]
    assert any("armature.rules.skip(outer)" in change for change in why_line(file, 2).answers[0].changes)


def test_a_line_outside_functions_and_a_generator(program: Path) -> None:
    names = [a.name for a in why_line(program, at("json.dumps(1)")).answers]
    assert set(names) == {"builtins.print", "json.dumps", "os.path.join"}
    (frame,) = why_line(program, at("yield x")).answers
    assert frame.decision is Decision.SKIP and "generator" in frame.reason and frame.origin.file


def test_a_line_of_an_installed_package_knows_rules_for_the_very_function() -> None:
    file = Path(json.__file__)
    line = json.dumps.__code__.co_firstlineno + 1
    with armature.rules.skip("json.dumps"):
        assert why_line(file, line).answers[0].name == "json.dumps"


@pytest.mark.parametrize(("line", "hint"), [(0, "lines"), (10_000, "lines"), (2, "with a call")])
def test_lines_with_nothing(program: Path, line: int, hint: str) -> None:
    with pytest.raises(NothingCalled, match=hint):
        why_line(program, line)


def test_what_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def :")
    for name in ("bad.py", "none.py"):
        with pytest.raises(NotAFile):
            why_line(tmp_path / name, 1)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("model.py:41", (Path("model.py"), 41)),
        ("./a/model:3", (Path("a/model"), 3)),
        ("torch.sin", None),
        ("torch.Tensor#add", None),
    ],
)
def test_what_counts_as_a_place(text: str, place: Any) -> None:
    assert as_place(text) == place


def invoke(*arguments: str) -> str:
    done = CliRunner().invoke(make_app(plugins.manager()), list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command(program: Path) -> None:
    text = invoke("why", "torch.nn.functional.gelu")
    for caption in ("decision", "because", "says", "to change"):
        assert f"\n  {caption} " in text
    found = json.loads(invoke("why", "torch.nn.functional.gelu", "--json"))
    assert found["decision"] == "in_graph" and found["origin"]["line"] and found["change"]
    line = json.loads(invoke("why", f"{program}:{at('F.gelu')}", "--json"))
    assert [a["name"] for a in line["answers"]] == ["program.helper", F_GELU, "torch.Tensor#sin"]
    assert "self.linear  (what this is depends on the run" in invoke("why", f"{program}:{at('no_such_method')}")


def test_a_dumb_terminal_gets_plain_ascii(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    out = io.StringIO()
    screen = Console(file=out, force_terminal=True, highlight=False)
    render_answer(screen, armature.why("json"))
    render_line(screen, why_line(program, at("F.gelu")))
    assert out.getvalue().isascii() and "\x1b" not in out.getvalue()


def test_two_answers_are_equal_when_their_verdicts_are() -> None:
    one, other = armature.why(torch.sin), armature.why("torch.sin")
    assert isinstance(one, Why) and one == other
    assert one != armature.why(torch.cos.__self__)


class Hostile:
    """Everything that can be asked of it raises."""

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise AssertionError("__dict__ was asked for")

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise AssertionError("__class__ was asked for")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked for")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("it was compared")

    def __hash__(self) -> int:
        raise AssertionError("it was hashed")

    def __repr__(self) -> str:
        raise AssertionError("it was printed")

    def __call__(self, x: Any) -> Any:
        raise AssertionError("it was called")


def test_no_code_of_the_object_is_run() -> None:
    found = armature.why(Hostile())
    assert found.kind == f"object of {__name__}.Hostile" and found.decision is Decision.INLINE
    assert "Hostile.__call__" in str(found)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("torch.nn.zzzqqq", "torch.nn is there, but nothing in it is called zzzqqq"),
        ("json.JSONEncoder#zzzqqq", "json.JSONEncoder is there, but nothing in it is called zzzqqq"),
        ("qqqzzz.fn", "There is no module qqqzzz on the path"),
        ("model.py", "say the line too"),
        ("model.py:x", "say the line too"),
    ],
)
def test_how_far_a_wrong_name_leads(name: str, advice: str) -> None:
    with pytest.raises(UnknownName, match=re.escape(advice)):
        why(name)


def test_an_instance_without_python_code_can_not_be_inlined_nor_named() -> None:
    changes = " ".join(why(operator.itemgetter(1)).changes)
    assert "inline" not in changes
    assert "operator.itemgetter" not in changes
    assert "armature.rules.in_graph(fn)" in changes
    assert 'armature.rules.in_graph("operator.itemgetter")' in " ".join(why("operator.itemgetter").changes)


def test_the_command_finds_modules_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "beside_me.py").write_text("def fn(x):\n    return x\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    done = CliRunner().invoke(make_app(plugins.manager()), ["why", "beside_me.fn"])
    assert done.exit_code == 0, done.output
    assert "beside_me.fn" in done.output
    assert sys.path == before


def test_a_name_is_told_only_where_it_leads_back() -> None:
    """A rule by the name of an inner function, or of what an instance runs, would be about nothing or too much."""
    for obj in (
        torch.func.grad(user_function),
        torch.ops.aten.add.Tensor,
        functools.partial(user_function, 1),
        Caller(),
    ):
        changes = "\n".join(armature.why(obj).changes)
        assert "armature.rules.skip(fn)" in changes and "pyproject" not in changes
    assert f'"{__name__}.user_function"' in armature.why(user_function).changes[0]
    assert '"torch._C.TensorBase.add"' in armature.why(torch.ones(1).add).changes[0]


def test_what_a_class_has_from_object_is_told_by_that_name() -> None:
    found = armature.why("torch.nn.Identity#__eq__")
    assert found == armature.why("object#__eq__")
    with armature.rules.skip("torch.nn.Identity#__eq__"):
        assert armature.why(object.__eq__) == found
    assert found.changes and not any("Identity" in change for change in found.changes)
