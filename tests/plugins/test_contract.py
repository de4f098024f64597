"""Every hook of the contract is documented, typed, in the plugin guide, and called with what it promises."""

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import typer

import armature.backend_api
import armature.plugin_api
from armature import hookspecs
from armature.backend_api import FusionRule
from armature.breaks.types import BreakEvent
from armature.cli.app import add_plugin_commands
from armature.events import CompileEvent, EventKind
from armature.introspection import Subject
from armature.plugin_api import (
    BreakType,
    Call,
    Decision,
    Decomposition,
    Function,
    Handler,
    Lowering,
    Operator,
    Pass,
    Polyfill,
    Rule,
    RuleOrigin,
    Signature,
    Tracing,
    Value,
    ValueType,
    Verdict,
    hookimpl,
)
from armature.plugins import PluginManager
from armature.plugins.hook_check import hook_specs
from armature.trace import protocols
from armature.trace.effects import Effects
from armature.trace.guards import GuardRecorder

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "plugins.md"
OP = torch.ops.aten.hardtanh.default
EVENT = CompileEvent(EventKind.FINISH, 1, "f", "f.py", 3, seconds=0.5)
BREAK = BreakType("mylib-io", "Reading a file", "`{call}` reads a file.", ("Read it before the call.",))
BREAK_EVENT = BreakEvent(BREAK, {"call": "load()"}, ())
SUBJECT = Subject(math.sqrt, "math", "sqrt")
VERDICT = Verdict(Decision.IN_GRAPH, "computed", RuleOrigin("mine", __file__, 1))


def stand_in(*args: Any) -> None:
    return None


class Everything:
    """Implements every hook, and remembers what it was called with."""

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}
        self.backend = SimpleNamespace(name="mine")

    @hookimpl
    def armature_rules(self) -> list[Rule]:
        return [Rule("mylib", Decision.INLINE, "plain Python")]

    @hookimpl
    def armature_decide(self, subject: Subject) -> Verdict | None:
        self.seen["armature_decide"] = subject
        return VERDICT if subject.module == "math" else None

    @hookimpl
    def armature_handlers(self) -> list[Handler]:
        return [Handler((torch.numel,), stand_in)]

    @hookimpl
    def armature_value_types(self) -> list[ValueType]:
        return [ValueType(type(GUIDE), stand_in)]  # type: ignore[arg-type]

    @hookimpl
    def armature_polyfills(self) -> list[Polyfill]:
        return [Polyfill(math.sqrt, stand_in)]

    @hookimpl
    def armature_signatures(self) -> list[Signature]:
        return [Signature(math.sqrt, counts=(1, 1))]

    @hookimpl
    def armature_break_types(self) -> list[BreakType]:
        return [BREAK]

    @hookimpl
    def armature_graph_break(self, event: BreakEvent) -> None:
        self.seen["armature_graph_break"] = event

    @hookimpl
    def armature_extend_break(self, frame: Any, tracing: Any) -> set[int]:
        self.seen["armature_extend_break"] = (frame, tracing)
        return {1}

    @hookimpl
    def armature_decompositions(self) -> list[Decomposition]:
        return [Decomposition(OP, stand_in)]

    @hookimpl
    def armature_lowerings(self) -> list[Lowering]:
        return [Lowering(OP, stand_in)]

    @hookimpl
    def armature_operators(self) -> list[Operator]:
        return [Operator(OP, function=stand_in)]

    @hookimpl
    def armature_functions(self) -> list[Function]:
        return [Function(math.sqrt, same_as=stand_in)]

    @hookimpl
    def armature_passes(self) -> list[Pass]:
        return [Pass("mine", "joint", lambda program, ctx: program)]

    @hookimpl
    def armature_fusion_rules(self) -> list[FusionRule]:
        return [FusionRule("mine", allows=lambda pair: True)]

    @hookimpl
    def armature_device_backend(self, device_type: str) -> Any:
        self.seen["armature_device_backend"] = device_type
        return self.backend

    @hookimpl
    def armature_launch_recorder(self, device_type: str) -> Any:
        self.seen["armature_launch_recorder"] = device_type
        return self.backend

    @hookimpl
    def armature_graph_backends(self) -> dict[str, Any]:
        return {"mine": stand_in}

    @hookimpl
    def armature_compile_event(self, event: CompileEvent) -> None:
        self.seen["armature_compile_event"] = event

    @hookimpl
    def armature_cli(self, app: typer.Typer) -> None:
        app.command("mine")(lambda: None)


def commands(manager: PluginManager) -> list[str | None]:
    app = typer.Typer()
    add_plugin_commands(app, manager)
    return [command.name for command in app.registered_commands]


# What asks each hook, and what it must answer, given the manager and the plugin.
CALLS: dict[str, Any] = {
    "armature_rules": lambda m, p: [rule.target for rule, _ in m.tables().rules] == ["mylib"],
    "armature_decide": lambda m, p: m.tables().decide(SUBJECT) is VERDICT and p.seen["armature_decide"] is SUBJECT,
    "armature_handlers": lambda m, p: m.tables().handler(torch.numel).fn is stand_in,
    "armature_value_types": lambda m, p: next(m.tables().value_types(GUIDE)).build is stand_in,
    "armature_polyfills": lambda m, p: m.tables().polyfill(math.sqrt).replacement is stand_in,
    "armature_signatures": lambda m, p: m.tables().signature(math.sqrt).counts == (1, 1),
    "armature_break_types": lambda m, p: m.tables().break_type("mylib-io") is BREAK,
    "armature_graph_break": lambda m, p: m.tables().observe_break(BREAK_EVENT) or p.seen["armature_graph_break"],
    "armature_extend_break": lambda m, p: (
        m.tables().extend_break(GUIDE, OP) == {1} and p.seen["armature_extend_break"] == (GUIDE, OP)
    ),
    "armature_decompositions": lambda m, p: m.tables().decompositions[OP].fn is stand_in,
    "armature_lowerings": lambda m, p: m.tables().lowerings[OP].fn is stand_in,
    "armature_operators": lambda m, p: m.tables().operators[OP].function is stand_in,
    "armature_functions": lambda m, p: m.tables().functions.same[math.sqrt] is stand_in,
    "armature_passes": lambda m, p: [found.name for found in m.tables().passes("joint")] == ["mine"],
    "armature_fusion_rules": lambda m, p: [rule.name for rule in m.tables().fusion_rules] == ["mine"],
    "armature_device_backend": lambda m, p: m.tables().device_backend("mydev") is p.backend,
    "armature_launch_recorder": lambda m, p: m.tables().launch_recorder("mydev") is p.backend,
    "armature_graph_backends": lambda m, p: m.tables().graph_backends["mine"] is stand_in,
    "armature_compile_event": lambda m, p: m.tables().observe_compile(EVENT) or p.seen["armature_compile_event"],
    "armature_cli": lambda m, p: commands(m) == ["mine"],
}
HOOKS = sorted(hook_specs())


def test_the_design_has_these_hooks() -> None:
    assert len(HOOKS) == 20
    assert CALLS.keys() == set(HOOKS)


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_is_called_and_its_answer_used(hook: str, manager: PluginManager) -> None:
    plugin = Everything()
    manager.register(plugin, "mine")
    assert hook in manager.plugins[0].hooks
    assert CALLS[hook](manager, plugin)
    assert manager.problems == ()


def test_observers_get_the_event_itself(manager: PluginManager) -> None:
    plugin = Everything()
    manager.register(plugin, "mine")
    manager.tables().observe_break(BREAK_EVENT)
    manager.tables().observe_compile(EVENT)
    assert plugin.seen == {"armature_graph_break": BREAK_EVENT, "armature_compile_event": EVENT}


def test_no_answer_hook_is_asked_while_tables_are_built(manager: PluginManager) -> None:
    plugin = Everything()
    manager.register(plugin, "mine")
    manager.tables()
    assert plugin.seen == {}


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_is_documented_with_an_example(hook: str) -> None:
    text = inspect.getdoc(hook_specs()[hook]) or ""
    first, _, rest = text.partition("\n")
    assert first.endswith(".") or "." in first
    assert "alled" in text or "Observe" in text, "says who calls it and when"
    assert any(sign in rest for sign in "({["), "has an example"


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_is_typed(hook: str) -> None:
    signature = inspect.signature(hook_specs()[hook])
    assert signature.return_annotation is not signature.empty
    assert all(parameter.annotation is not signature.empty for parameter in signature.parameters.values())


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_is_in_the_guide(hook: str) -> None:
    parameters = ", ".join(inspect.signature(hook_specs()[hook]).parameters)
    assert f"`{hook}({parameters})`" in GUIDE.read_text()


def test_the_public_api_exports_what_the_contract_names() -> None:
    named = {"Call", "Rule", "Verdict", "Decision", "BreakType", "BreakEvent", "Pass", "Lowering"}
    named |= {"CompileEvent", "API_VERSION", "hookimpl", "Handler", "Polyfill", "ValueType", "Decomposition", "Subject"}
    assert named <= set(armature.plugin_api.__all__)
    assert armature.plugin_api.API_VERSION == hookspecs.API_VERSION
    assert all(hasattr(armature.plugin_api, name) for name in armature.plugin_api.__all__)


@pytest.mark.parametrize("module", [armature.plugin_api, armature.backend_api], ids=lambda module: module.__name__)
def test_the_guide_has_every_name_that_a_plugin_may_import(module: ModuleType) -> None:
    section = GUIDE.read_text().partition(f"## Everything in `{module.__name__}`\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE)
    told = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(told) == sorted(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)


def verbs_of(cls: type) -> dict[str, str]:
    """Public functions of a class, each as the guide writes a call of it."""
    found = {name: obj for name, obj in vars(cls).items() if inspect.isfunction(obj) and not name.startswith("_")}
    return {
        name: ", ".join(map(written, list(inspect.signature(obj).parameters.values())[1:]))
        for name, obj in found.items()
    }


def written(parameter: inspect.Parameter) -> str:
    return {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "") + parameter.name


@pytest.mark.parametrize(
    ("what", "protocol"),
    [
        ("Tracing", Tracing),
        ("Tracing.graph", protocols.GraphVerbs),
        ("Tracing.guards", GuardRecorder),
        ("Tracing.effects", Effects),
        ("Tracing.overrides", protocols.OverridingNow),
        ("Tracing.sizes", protocols.SymbolicSizes),
        ("Tracing.python", protocols.PythonVerbs),
        ("Tracing.calls", protocols.CallVerbs),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_the_guide_has_all_verbs_of_the_trace(what: str, protocol: type) -> None:
    table = GUIDE.read_text().partition(f"| verb of `{what}` |")[2].partition("\n\n")[0]
    told = re.findall(r"`(\w+)\(([^)]*)\)`", "\n".join(line.split(" | ")[0] for line in table.splitlines()))
    assert sorted(told) == sorted(verbs_of(protocol).items())


def test_the_guide_has_all_parts_of_the_trace() -> None:
    table = GUIDE.read_text().partition("| part of `Tracing` |")[2].partition("\n\n")[0]
    told = re.findall(r"`(\w+)`", "\n".join(line.split(" | ")[0] for line in table.splitlines()))
    properties = [name for name, held in vars(Tracing).items() if isinstance(held, property)]
    assert sorted(told) == sorted([*Tracing.__annotations__, *properties])


def test_the_guide_has_all_of_a_frame() -> None:
    table = GUIDE.read_text().partition("| part of `FrameView` |")[2].partition("\n\n")[0]
    told = re.findall(r"`(\w+(?:\([^)]*\))?)`", "\n".join(line.split(" | ")[0] for line in table.splitlines()))
    frame = protocols.FrameView
    properties = [name for name, held in vars(frame).items() if isinstance(held, property)]
    verbs = [f"{name}({given})" for name, given in verbs_of(frame).items()]
    assert sorted(told) == sorted([*frame.__annotations__, *properties, *verbs])


def test_the_guide_has_all_of_a_value() -> None:
    section = GUIDE.read_text().partition("| slots | verb of `Value` |")[2].partition("\n### ")[0]
    of_slots, _, others = section.partition("| attribute or verb of `Value` |")
    verbs = "\n".join(line.split(" | ")[1] for line in of_slots.partition("\n\n")[0].splitlines() if " | " in line)
    names = "\n".join(line.split(" | ")[0] for line in others.partition("\n\n")[0].splitlines())
    told = dict(re.findall(r"`(\w+)(\([^)]*\))?`", f"{verbs}\n{names}"))
    held = [cls for cls in Value.__mro__ if cls is not object]
    signatures = {name: f"({given})" for cls in reversed(held) for name, given in verbs_of(cls).items()}
    public = {name for cls in held for name in vars(cls) if not name.startswith("_")}
    assert told.keys() == public
    assert {name for name, given in told.items() if given and given != signatures.get(name)} == set()


def test_the_guide_has_all_verbs_of_a_call() -> None:
    told = re.findall(
        r"^\| `(\w+)\((.*?)\)` \|", GUIDE.read_text().partition("The verbs of `Call`")[2].partition("###")[0], re.M
    )
    assert sorted(told) == sorted(verbs_of(Call).items())
