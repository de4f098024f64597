"""The import contracts of `.importlinter` and `.importlinter-annotations`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.style.test_shape_of_the_code import ROOT

CONTRACTS = sorted(ROOT.glob(".importlinter*"))
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(sys.argv[1], no_cache=True))"


def test_the_contracts_are_found() -> None:
    assert [path.name for path in CONTRACTS] == [".importlinter", ".importlinter-annotations"]


@pytest.mark.parametrize("contracts", CONTRACTS, ids=lambda path: path.name)
def test_imports_keep_their_contracts(contracts) -> None:  # type: ignore[no-untyped-def]
    done = subprocess.run(
        [sys.executable, "-c", LINT, str(contracts)],
        capture_output=True, text=True, check=False, cwd=ROOT, env=os.environ | {"PYTHONPATH": "src", "COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
