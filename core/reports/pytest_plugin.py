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
PROBLEM = "armature_report_problem"  # user property of a test whose report could not be written
OF_INDEX = pytest.StashKey[list[str]]()


def tools() -> Any:
    """The module with the rest of the plugin, imported late because it imports torch."""
    return importlib.import_module("armature.reports.of_tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option."""
    help = "write a report of what armature compiled in each test to this folder"
    parser.getgroup("armature").addoption("--armature-report", dest=OPTION, metavar="DIR", default=None, help=help)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and check that the folder of reports can be written."""
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
    """Record a test if it is marked, or every test if reports are wanted."""
    marked, folder = item.get_closest_marker("fullgraph") is not None, item.config.getoption(OPTION)
    if not (marked or folder):
        return (yield)
    watch: Watch = tools().Watch.begin(item.nodeid, forget=marked)
    try:
        with watch.recorder:
            result = yield
    finally:
        if folder and (trouble := tools().written(watch, Path(folder), file_name(item.nodeid))):
            # re-raise the original error, so that the test ends as it would have without the plugin
            item.user_properties.append((PROBLEM, trouble))
    if marked and (problem := watch.no_full_graph()):
        pytest.fail(problem, pytrace=False)
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the page that lists the reports. With pytest-xdist only the controller writes it."""
    folder = session.config.getoption(OPTION)
    if folder and not hasattr(session.config, "workerinput"):
        session.config.stash[OF_INDEX] = tools().indexed(Path(folder))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Report what could not be written or read. No test fails because of it."""
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
    """A file name for a test's reports. A digest of the test's full id keeps similar names apart."""
    digest = hashlib.sha256(nodeid.encode(errors="backslashreplace")).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_.]+', '-', nodeid)[-120:]}-{digest}"


@pytest.fixture
def armature_watch(request: pytest.FixtureRequest) -> Iterator[Watch]:
    """A `Watch` of what armature compiles in this test, starting without cached code: `armature_watch.expect(graphs=1,
    breaks=0, kernels=2)`."""
    watch: Watch = tools().Watch.begin(request.node.nodeid, forget=True)
    with watch.recorder:
        yield watch
