"""Where the commands print: a rich console that also does well in logs, and the printing of errors and data."""

from __future__ import annotations

import io
import json
import os
import sys
from typing import NoReturn

from rich.console import Console

from armature.errors import ArmatureError

LOG_WIDTH = 140  # in a pipe or a log nobody sees a window: tables need not be squeezed into 80 columns


def console(stderr: bool = False) -> Console:
    """A console for standard output or error. Without a terminal: no colours, no animation, wide lines."""
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")  # a name of a file may be no text, the terminal's encoding small
    wide = not stream.isatty() and "COLUMNS" not in os.environ
    return Console(stderr=stderr, highlight=False, width=LOG_WIDTH if wide else None)


def print_data(data: object) -> None:
    """Print data as JSON."""
    print(json.dumps(data, indent=1))


def fail(error: ArmatureError) -> NoReturn:
    """Print an error and leave with status 2."""
    console(stderr=True).print(str(error), style="red", markup=False, soft_wrap=True)
    raise SystemExit(2)
