"""Output of the commands: a rich console that also works in logs, and printing of errors and data."""

from __future__ import annotations

import io
import json
import os
import sys
from typing import NoReturn

from rich.console import Console

from armature.errors import ArmatureError

LOG_WIDTH = 140  # a pipe or log has no window width: don't squeeze tables into 80 columns


def console(stderr: bool = False) -> Console:
    """A console for standard output or error. Without a terminal: no colours, no animation, wide lines."""
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        # a file name may have undecodable bytes, or characters that the terminal's encoding lacks
        stream.reconfigure(errors="backslashreplace")
    wide = not stream.isatty() and "COLUMNS" not in os.environ
    return Console(stderr=stderr, highlight=False, width=LOG_WIDTH if wide else None)


def print_data(data: object) -> None:
    """Print data as JSON."""
    print(json.dumps(data, indent=1))


def fail(error: ArmatureError) -> NoReturn:
    """Print an error and exit with status 2."""
    console(stderr=True).print(str(error), style="red", markup=False, soft_wrap=True)
    raise SystemExit(2)
