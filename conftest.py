"""Every test runs in strict mode: a fault inside the compiler fails the test instead of falling back to eager.

With ARMATURE_STRICT=0 (`make test-lenient`) the suite runs as programs run: a crash or a wrong value after a fallback,
where strict mode has only its error, then shows. A test of strict mode itself switches it on.
"""

from __future__ import annotations

import collections
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Tests start some two hundred Python processes. Where bytecode may not stand beside the sources (as containers often
# have it) each would compile all of armature, which takes longer than what most of them do: it stands elsewhere.
if sys.dont_write_bytecode and "PYTHONPYCACHEPREFIX" not in os.environ:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(Path(__file__).parent / ".pytest_cache" / "bytecode")
    sys.dont_write_bytecode = False
os.environ.setdefault("ARMATURE_STRICT", "1")
# Test processes run side by side: one thread each, unless asked otherwise.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # after the settings, which it reads

# The same examples in each run: what fails then is what was changed. `make fuzz` draws others.
# How long they take to draw says more of the machine than of the test.
LOADED = [HealthCheck.too_slow]
settings.register_profile("fixed", derandomize=True, print_blob=True, suppress_health_check=LOADED)
settings.register_profile("random", derandomize=False, print_blob=True, suppress_health_check=LOADED)
settings.load_profile("fixed")

pytest_plugins = ("pytester",)  # for tests of the conformance kits


def pytest_report_header() -> str:
    return f"armature: ARMATURE_STRICT={os.environ['ARMATURE_STRICT']}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu") is not None:
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many random programs the sweeps ran, of all processes."""
    counts: collections.Counter[str] = collections.Counter()
    for report in [*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())]:
        counts.update({name: value for name, value in report.user_properties if name.startswith("programs")})
    if counts["programs"]:
        failed = sum("programs" in dict(report.user_properties) for report in terminalreporter.stats.get("failed", ()))
        terminalreporter.write_line(
            f"random programs: {counts['programs']} ran, {counts['programs compiled']} compiled at least in part; "
            f"{failed} sweeps ended at a mismatch"
        )
