"""docs/graph-break-names.md has an answer for each type of torch.compile, and what it says is so."""

from __future__ import annotations

import collections
import copy
import inspect
import json
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from armature.api import public as api
from armature.pipeline.session import session
from armature.plugins import manager
from armature.testing.handler_kit import Captured, difference_of_outcomes, outcome
from tests.docs import (
    programs_decided,
    programs_in_python,
    programs_in_torch,
    programs_of_libraries,
    programs_that_break,
    programs_that_break_too,
    programs_with_errors,
)

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "graph-break-names.md"
NAMES: Mapping[str, str] = json.loads((HERE / "graph_break_types.json").read_text())
TYPES = [row.value for row in manager().tables().registries.break_types.winners()]
SAME = {row.code: row.id for row in TYPES}
WIDER = {code: row.id for row in TYPES for code in row.also}


def programs_of(*modules: Any) -> dict[str, Callable[..., Any]]:
    """The programs of modules, by code."""
    return {name.upper(): fn for one in modules for name, fn in vars(one).items() if name.startswith("gb")}


WHOLE = programs_of(
    programs_in_python, programs_with_errors, programs_in_torch, programs_decided, programs_of_libraries.OneGraph
)
BROKEN = programs_of(programs_that_break, programs_that_break_too, programs_of_libraries.Broken)
WITHOUT_NUMPY = {"GB0106": "tensor-to-numpy", "GB0232": "array-as-tensor"}  # run in another process
SINCE_2_12 = {"GB1724", "GB5173"}  # dicts in autograd.grad; errors of fake tensors on several devices
OF_A_GROUP = {"GB1750", "GB2696", "GB3343", "GB9300", "GB9860"}  # they send tensors to other processes


@pytest.fixture
def surroundings(code: str) -> Iterator[None]:
    """What the program of a type needs."""
    if code in SINCE_2_12 and torch.__version__.startswith("2.11."):
        pytest.skip("torch 2.11 differs")
    if code in programs_of_libraries.NEEDED:
        pytest.importorskip(programs_of_libraries.NEEDED[code], reason="the program uses it")
    if code not in OF_A_GROUP:
        yield
        return
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    dist.destroy_process_group()


@pytest.fixture(autouse=True)
def scripts_are_called_as_for_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own helpers for tests, which other test files import, put Python code before each call of TorchScript."""
    if helpers := sys.modules.get("torch.testing._internal.common_utils"):
        monkeypatch.setattr(torch._C.ScriptMethod, "__call__", vars(helpers)["meth_call"])


def table() -> dict[str, list[str]]:
    """The rows of the page by code: its type, what holds here, and the rest."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| GB")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert len({row[0] for row in cells}) == len(cells)
    return {code: rest for code, *rest in cells}


TABLE = table()


def expected(code: str) -> list[str]:
    """What the page says of a type, as far as the catalogue and the programs tell: for "cannot happen" only that."""
    if code in SAME:
        return ["same", f"`{SAME[code]}`"]
    if code in WHOLE:
        return ["one graph", f"else `{WIDER[code]}`" if code in WIDER else ""]
    return ["covered", f"`{WIDER[code]}`"] if code in WIDER else ["cannot happen"]


@pytest.mark.parametrize("code", NAMES)
def test_each_type_has_an_answer(code: str) -> None:
    name, *said = TABLE[code]
    wanted = expected(code)
    assert (name, said[: len(wanted)]) == (NAMES[code].strip(), wanted)
    assert wanted != ["cannot happen"] or len(said[1]) > 20, "the page says why"


def test_the_page_and_the_programs_speak_of_types_that_there_are() -> None:
    assert TABLE.keys() == NAMES.keys()
    assert {row.code: row.torch_name or row.title for row in TYPES if row.code in NAMES}.items() <= NAMES.items()
    assert SAME.keys() - NAMES.keys() == {code for code in SAME if code.startswith("AB")}
    assert (WHOLE.keys() | BROKEN.keys() | WIDER.keys()) <= NAMES.keys()
    assert not WHOLE.keys() & (BROKEN.keys() | SAME.keys())
    covered = {code for code in NAMES if expected(code)[0] == "covered"}
    assert covered == BROKEN.keys() | WITHOUT_NUMPY.keys(), "each row is decided by a program"


def test_the_page_counts_its_rows() -> None:
    counts = collections.Counter(row[1] for row in TABLE.values())
    told = re.findall(r"^\| ([a-z ]+) \| .* \| (\d+) \|$", PAGE.read_text(), re.MULTILINE)
    assert {kind: int(count) for kind, count in told} == counts
    programs = f"""for each row that says "one graph"\n({counts["one graph"]}) or "covered" ({counts["covered"]})"""
    assert programs in PAGE.read_text()


def opened(result: Any) -> Any:
    """A result as it is compared: of functions and generators what they give."""
    if isinstance(result, tuple):
        return tuple(map(opened, result))
    if inspect.isfunction(result):
        return opened(result())
    return list(result) if inspect.isgenerator(result) else result


def broken_by(fn: Callable[..., Any]) -> tuple[list[str], int]:
    """What breaks the graph of a program, and how many graphs there are. Its outcome is compared with eager mode's."""
    given = torch.linspace(-1, 1, 6).reshape(2, 3)
    compiled = api.compile(fn, backend=Captured(), dynamic=getattr(fn, "dynamic", None))
    with session().recording() as records, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = [outcome(lambda x, run=run: opened(run(x)), (copy.deepcopy(given),)) for run in (fn, compiled)]
    difference_of_outcomes(*outcomes)
    return [event.type.id for event in records.breaks()], sum(c.module is not None for c in records.compilations)


@pytest.mark.usefixtures("surroundings")
@pytest.mark.parametrize("code", WHOLE)
def test_what_is_said_to_be_one_graph_is_one(code: str) -> None:
    found, graphs = broken_by(WHOLE[code])
    assert (found, graphs > 0) == ([], True)


@pytest.mark.usefixtures("surroundings")
@pytest.mark.parametrize("code", BROKEN)
def test_what_is_said_to_break_here_too_does(code: str) -> None:
    assert WIDER[code] in broken_by(BROKEN[code])[0]


PROGRAM_WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
import torch
import armature
from armature.pipeline.session import session

def gb0106(x):
    try:
        return x.numpy()
    except RuntimeError:
        return x + 1

def gb0232(x):
    try:
        return torch.from_numpy(x)
    except (RuntimeError, TypeError):
        return x + 1

for fn in (gb0106, gb0232):
    assert torch.equal(armature.compile(fn, backend="eager")(torch.ones(2)), torch.full((2,), 2.0))
print([event.type.id for record in session().compilations for event in record.breaks])
"""


def test_what_breaks_without_numpy() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM_WITHOUT_NUMPY], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str([*WITHOUT_NUMPY.values()])
    assert WITHOUT_NUMPY.items() <= WIDER.items()
