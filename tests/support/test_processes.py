"""What a test of several processes says when one of them dies."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support import processes

ABORTS = """
import os, time
if os.environ["RANK"] == "1":
    os.abort()
time.sleep(100)
"""


def test_a_crash_of_any_process_is_noticed_at_once_and_says_where(tmp_path: Path) -> None:
    script = tmp_path / "aborts.py"
    script.write_text(ABORTS)
    began = time.monotonic()
    with pytest.raises(
        RuntimeError, match=r"(?s)by rank: \[None, -6\].*Fatal Python error: Aborted.*aborts.py.*line 4"
    ):
        processes.run(script, seconds=60)
    assert time.monotonic() - began < 30
