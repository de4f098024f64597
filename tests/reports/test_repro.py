"""`armature repro` and `armature minify`: scripts that show a failure by themselves, and the smallest graph that does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from torch import fx, nn
from typer.testing import CliRunner

import armature
from armature import config
from armature.cli import repro
from armature.pipeline.repro import SCRIPT, script, text_of
from armature.pipeline.session import Compilation
from armature.plugin_api import hookimpl
from armature.plugins import manager
from armature.reports import minify
from tests.support import forked

ROOT = Path(__file__).parents[2]
PROGRAM = """
import torch, armature

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

    def forward(self, x, scale):
        for layer in self.layers:
            x = torch.relu(layer(x)) * scale
        return torch.cumsum(x, 0).tanh() + x.sum()

with armature.config.patch(strict=False, fallback_warning=False):
    print(armature.compile(Net(), backend="faulty")(torch.randn(3, 4), 2.0).shape)
"""

Invoke = Callable[..., Any]


def has(module: fx.GraphModule, name: str) -> bool:
    return any(name in str(node.target) for node in module.graph.nodes)


def fails_at_cumsum(module: fx.GraphModule, inputs: Any) -> Any:
    if has(module, "cumsum"):
        raise NotImplementedError("cumsum is <not> there")
    return module.forward


def wrong_at_tanh(module: fx.GraphModule, inputs: Any) -> Any:
    return (lambda *args: tuple(r + 1 for r in module.forward(*args))) if has(module, "tanh") else module.forward


INSTALLED = """
from tests.reports.test_repro import Faulty
armature_graph_backends = Faulty().armature_graph_backends
"""


class Faulty:
    """A plugin with backends that fail."""

    @hookimpl
    def armature_graph_backends(self) -> Mapping[str, Any]:
        return {"faulty": fails_at_cumsum, "wrong": wrong_at_tanh}


CRASHES = """
import os
from armature.plugin_api import hookimpl

def crashes_at_cumsum(module, inputs):
    print("compiling")  # what a graph prints is no answer
    if any("cumsum" in str(node.target) for node in module.graph.nodes):
        os.abort()
    return module.forward

@hookimpl
def armature_graph_backends():
    return {"crashes": crashes_at_cumsum}
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Installs a plugin, a name and its code, for the processes that are started."""

    def made(name: str, code: str) -> None:
        info = tmp_path / "installed" / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[armature]\n{name} = {name}_plugin\n")
        (tmp_path / "installed" / f"{name}_plugin.py").write_text(code)
        folders = [str(tmp_path / "installed"), str(ROOT), os.environ.get("PYTHONPATH")]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, folders)))

    return made


def test_a_graph_that_ends_the_process_is_made_small(invoke: Invoke, tmp_path: Path, install: Any) -> None:
    install("crashing", CRASHES)
    graph = fx.symbolic_trace(lambda x: torch.cumsum(torch.relu(x.sin()), 0).tanh() * 2)
    (tmp_path / SCRIPT).write_text(script(graph, [torch.ones(3)], "crashes", "error"))
    result = invoke("minify", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "1 operators" in result.output and "ended by SIGABRT" in result.output
    small = (tmp_path / "minified" / SCRIPT).read_text()
    assert "torch.cumsum" in small and "torch.relu" not in small and "tanh" not in small


@pytest.fixture(autouse=True)
def faulty() -> Iterator[None]:
    with manager().registered(Faulty(), "faulty"):
        yield


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    repro.register(app)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def test_a_failure_leaves_a_folder_that_minify_makes_small(invoke: Invoke, tmp_path: Path, install: Any) -> None:
    install("faulty", INSTALLED)
    Path("program.py").write_text(PROGRAM)
    result = invoke("repro", "program.py", "--out", "kept")
    assert result.exit_code == 0 and "torch.Size([3, 4])" in result.output, result.output
    (folder,) = (tmp_path / "kept").iterdir()
    assert "NotImplementedError: cumsum is <not> there" in (folder / "error.txt").read_text()
    about = json.loads((folder / "about.json").read_text())
    assert about["function"] == "Net.forward" and about["backend"] == "faulty"
    result = invoke("minify", "kept/Net-forward-0")
    assert result.exit_code == 0 and "1 operators" in result.output, result.output
    small = (folder / "minified" / SCRIPT).read_text()
    assert small.count("cumsum") >= 1 and "relu" not in small and "tanh" not in small
    namespace = __import__("runpy").run_path(str(folder / "minified" / SCRIPT))
    assert "cumsum is <not> there" in minify.fault(namespace["Graph"](), namespace["inputs"](), "faulty", "error")


def test_graphs_with_other_values_than_eager_mode_are_found_and_the_others_forgotten(
    invoke: Invoke, tmp_path: Path, install: Any
) -> None:
    install("faulty", INSTALLED)
    Path("program.py").write_text(
        "import torch, armature\n"
        "for fn in (torch.tanh, torch.relu):\n"
        "    armature.compile(lambda x: fn(x) + 1, backend='wrong')(torch.ones(3))\n"
    )
    result = invoke("repro", "program.py", "--out", "kept", "--kind", "wrong")
    assert result.exit_code == 0 and "not close" in result.output and "--kind wrong" in result.output, result.output
    (folder,) = (tmp_path / "kept").iterdir()
    assert "tanh" in (folder / SCRIPT).read_text() and "not close" in (folder / "error.txt").read_text()


def test_a_graph_that_ends_the_program_leaves_its_script(tmp_path: Path, install: Any) -> None:
    install("crashing", CRASHES)
    text = "import torch, armature\narmature.compile(torch.{}, backend='crashes')(torch.ones(3, 2){})\nprint('well')\n"
    for name, more in (("relu", ""), ("cumsum", ", 0")):
        (tmp_path / "program.py").write_text(text.format(name, more))
        environment = os.environ | {"ARMATURE_REPRO_DIR": str(tmp_path / "kept"), "ARMATURE_STRICT": "0"}
        run = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=environment, capture_output=True)
        assert run.returncode == (0 if name == "relu" else -signal.SIGABRT), run.stderr.decode()
    (folder,) = (tmp_path / "kept").iterdir()
    assert "cumsum" in (folder / SCRIPT).read_text() and "not ended" in (folder / "about.json").read_text()


def test_the_script_stands_alone(tmp_path: Path) -> None:
    """In a process without the plugin there is no such backend: that is the error that it shows."""
    graph = fx.symbolic_trace(lambda x: torch.relu(x) * 2)
    for backend, status in (("eager", 0), ("faulty", 1)):
        (tmp_path / SCRIPT).write_text(script(graph, [torch.ones(3)], backend, "error"))
        found = forked.run([tmp_path / SCRIPT])
        assert found.returncode == status, found.stderr
        assert ("all is well" in found.stdout) == (status == 0)


def net(x: Any, y: Any) -> Any:
    a = torch.sin(x) + y
    b = torch.cos(a) * 2
    c = torch.tanh(b) - a
    d = torch.exp(c).sum(0)
    return torch.sigmoid(d) + 1


def test_wrong_values_are_traced_to_the_operator() -> None:
    graph = fx.symbolic_trace(net)
    found = minify.Minifier("wrong", "wrong")
    small, given = found.smallest(graph, [torch.randn(3, 4), torch.randn(3, 4)])
    assert [node.target for node in small.graph.nodes if node.op.startswith("call_")] == [torch.tanh]
    assert len(given) == 1 and "Tensor-likes are not close" in found.fault and found.tries < 60


def test_slowness_is_measured_beside_eager_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"run": 0.003, "model": 0.001}
    monkeypatch.setattr(minify, "seconds", lambda run, inputs: times["model" if isinstance(run, nn.Module) else "run"])
    graph = fx.symbolic_trace(net)
    inputs = [torch.randn(3, 4), torch.randn(3, 4)]
    assert minify.fault(graph, inputs, "eager", "slow").startswith("3.0 times")
    times |= {"run": 0.0003, "model": 0.0001}
    assert minify.fault(graph, inputs, "eager", "slow") == "", "that is what a call costs"
    times |= {"run": 0.001, "model": 0.001}
    assert minify.fault(graph, inputs, "eager", "slow") == ""


def test_a_graph_that_is_well_is_refused(invoke: Invoke, tmp_path: Path) -> None:
    graph = fx.symbolic_trace(lambda x: torch.relu(x) * 2)
    (tmp_path / SCRIPT).write_text(script(graph, [torch.ones(3)], "eager", "error"))
    for kind in ("error", "wrong"):
        result = invoke("minify", str(tmp_path), "--kind", kind)
        assert result.exit_code == 2 and "[A244]" in result.output
    (tmp_path / SCRIPT).write_text("def (")
    assert "[A247]" in invoke("minify", str(tmp_path)).output
    assert "[A247]" in invoke("minify", "nowhere").output


def test_a_folder_for_the_smaller_graph_that_cannot_be_made(invoke: Invoke, tmp_path: Path) -> None:
    graph = fx.symbolic_trace(lambda x: torch.cumsum(x, 0))
    (tmp_path / SCRIPT).write_text(script(graph, [torch.ones(3)], "faulty", "error"))
    (tmp_path / "minified").write_text("")
    result = invoke("minify", str(tmp_path))
    assert result.exit_code == 2 and "[A241]" in result.output


def test_a_program_that_is_not_there_leaves_no_folder(invoke: Invoke) -> None:
    result = invoke("repro", "nowhere.py", "--out", "kept")
    assert result.exit_code == 2 and "[A226]" in result.output and not Path("kept").exists()


def test_a_program_that_is_stopped_tells_what_it_has_left(invoke: Invoke) -> None:
    Path("program.py").write_text(f"{PROGRAM}\nraise KeyboardInterrupt\n")
    result = invoke("repro", "program.py", "--out", "kept")
    assert result.exit_code == 130 and "Net-forward-0" in result.output


def test_each_failure_has_a_folder_and_a_script_that_is_python(tmp_path: Path) -> None:
    options = {"repro_dir": str(tmp_path)}
    with config.patch(strict=False, fallback_warning=False):
        armature.compile(lambda x: torch.cumsum(x, 0), backend="faulty", options=options)(torch.ones(3))
        armature.compile(lambda x: torch.cumsum(x, 0) + 1, backend="faulty", options=options)(torch.ones(4))
    assert len(list(tmp_path.iterdir())) == 2
    for folder in tmp_path.iterdir():
        compile((folder / SCRIPT).read_text(), SCRIPT, "exec")


def test_what_no_script_can_name_leaves_one_that_runs_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/src/program.py", "--size", "3"])

    def local(x: Any) -> Any:
        return x

    record = Compilation(0, "Net.forward", "/src/program.py", 4)
    record.module = fx.symbolic_trace(lambda x: x + 1)
    node = next(node for node in record.module.graph.nodes if node.op == "call_function")
    node.target = local
    text = text_of(record)
    assert "which has no name to import" in text and "['/src/program.py', '--size', '3']" in text
    compile(text, SCRIPT, "exec")
    record.module = None
    assert "Net.forward (/src/program.py:4) could not be compiled" in text_of(record)


def test_a_folder_that_cannot_be_written_does_not_fail_the_program(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with config.patch(strict=False, fallback_warning=False, repro_dir=str(tmp_path / "file")):
        compiled = armature.compile(lambda x: torch.cumsum(x, 0), backend="faulty")
        assert compiled(torch.ones(2)).tolist() == [1, 2]


def test_nothing_fails(invoke: Invoke) -> None:
    Path("program.py").write_text("print('all')")
    result = invoke("repro", "program.py")
    assert result.exit_code == 0 and "Nothing failed to compile." in result.output


OWN_BACKEND = """
import armature, torch

def mine(module, inputs):
    raise NotImplementedError("not today")

try:
    armature.compile(lambda x: x + 1, backend=mine)(torch.ones(2))
except Exception as error:
    print("caught", type(error).__name__)
"""


def test_a_backend_of_the_program_that_fails_is_told_though_no_script_can_show_it(invoke: Invoke) -> None:
    armature.reset()
    Path("program.py").write_text(OWN_BACKEND)
    result = invoke("repro", "program.py", "--out", "kept")
    assert result.exit_code == 0 and "caught" in result.output, result.output
    assert "program.py:8 <lambda>: " in result.output and "not today" in result.output
    assert "Nothing failed" not in result.output
