"""A plugin for pytest: `@pytest.mark.fullgraph`, `--armature-report DIR`, and the fixture `armature_watch`.

It is loaded by every run of pytest where armature is installed, so it imports nothing of torch until a test asks.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from armature.reports.of_tests import Watch

MARKER = "fullgraph: fails if a graph breaks, a frame falls back to eager, or nothing is compiled (armature)"
OPTION = "armature_report"
PROBLEM = "armature_report_problem"  # property of a test whose report could not be written
OF_INDEX = pytest.StashKey[list[str]]()


def tools() -> Any:
    """The module that has the rest; it imports torch."""
    return importlib.import_module("armature.reports.of_tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option."""
    help = "write a report of what armature compiled in each test to this folder"
    parser.getgroup("armature").addoption("--armature-report", dest=OPTION, metavar="DIR", default=None, help=help)


def pytest_configure(config: pytest.Config) -> None:
    """The marker; and the folder, which has to be one that can be written."""
    config.addinivalue_line("markers", MARKER)
    folder = config.getoption(OPTION)
    if folder is None:
        return
    try:
        probe = Path(folder) / ".writable"
        probe.parent.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        problem = error.strerror or error
        raise pytest.UsageError(f"--armature-report: {folder} can't be written: {problem}") from error


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Record a test that is marked, or all where reports are asked for."""
    marked, folder = item.get_closest_marker("fullgraph") is not None, item.config.getoption(OPTION)
    if not (marked or folder):
        return (yield)
    watch: Watch = tools().Watch.begin(item.nodeid, forget=marked)
    try:
        with watch.recorder:
            result = yield
    finally:
        if folder and (trouble := tools().written(watch, Path(folder), file_name(item.nodeid))):
            item.user_properties.append((PROBLEM, trouble))  # as what it is, so that the test ends as it would have
    if marked and (problem := watch.no_full_graph()):
        pytest.fail(problem, pytrace=False)
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A page that lists the reports; with pytest-xdist the process that waits for the others writes it."""
    folder = session.config.getoption(OPTION)
    if folder and not hasattr(session.config, "workerinput"):
        session.config.stash[OF_INDEX] = tools().indexed(Path(folder))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What could not be written or read, if anything: no test fails for it."""
    reports = [one for found in terminalreporter.stats.values() for one in found if isinstance(one, pytest.TestReport)]
    properties = ((one.nodeid, dict(one.user_properties)) for one in reports if one.when == "call")
    lines = [f"{test}: {told[PROBLEM]}" for test, told in properties if PROBLEM in told]
    of_index: list[str] | None = config.stash.get(OF_INDEX, None)
    lines += of_index or []
    if lines:
        terminalreporter.section("armature reports")
        for line in lines:
            terminalreporter.line(line)


def file_name(nodeid: str) -> str:
    """A name for the files of a test. A digest of its whole id tells apart what is spelled alike."""
    digest = hashlib.sha256(nodeid.encode(errors="backslashreplace")).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_.]+', '-', nodeid)[-120:]}-{digest}"


@pytest.fixture
def armature_watch(request: pytest.FixtureRequest) -> Iterator[Watch]:
    """What armature compiles in this test, from nothing: `armature_watch.expect(graphs=1, breaks=0, kernels=2)`."""
    watch: Watch = tools().Watch.begin(request.node.nodeid, forget=True)
    with watch.recorder:
        yield watch
