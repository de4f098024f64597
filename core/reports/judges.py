"""Tests graphs in a separate process, so that a graph that crashes its process does not end the minifier."""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self, cast

import attrs
import torch
from torch import fx

from armature.pipeline.repro import INPUTS, SCRIPT, script
from armature.reports.minify import eager, fault

ENDED = "ProcessEnded"


@attrs.define(eq=False)
class Judges:
    """Test graphs in a subprocess for the body of a `with`. A new one is started when the previous one has crashed."""

    _process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def fault(self, graph: fx.GraphModule, inputs: Sequence[object], backend: str, kind: str) -> str:
        """The fault that appears when the graph is compiled; "" if there is none, or if eager mode fails too. Errors:
        CannotWrite."""
        with tempfile.TemporaryDirectory(prefix="armature-minify-") as folder:
            path = Path(folder) / SCRIPT
            path.write_text(script(graph, inputs, backend, kind, saved=True), encoding="utf-8")
            torch.save(list(inputs), path.with_name(INPUTS))
            return self.of_script(path, backend, kind)

    def of_script(self, path: Path, backend: str, kind: str) -> str:
        """Like `fault`, for the graph in a script."""
        return self._answer(json.dumps([str(path), backend, kind]))

    def _answer(self, question: str) -> str:
        if self._process is None:
            command = [sys.executable, "-m", __spec__.name]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        process = self._process
        answers = cast(IO[str], process.stdout)
        with contextlib.suppress(BrokenPipeError):  # the process is gone; reading its answer shows that
            print(question, file=process.stdin, flush=True)
        in_eager, found = answers.readline(), answers.readline()
        if found:
            return str(json.loads(found))
        self._process = None
        status = process.wait()
        process.communicate()
        return f"{ENDED}: {exit_text(status)}" if in_eager else ""


def exit_text(status: int) -> str:
    """Describe how a process ended."""
    if status >= 0:
        return f"the process ended with status {status}"
    return f"the process was ended by {signal.Signals(-status).name}"


def write_line(answers: int, text: str) -> None:
    """Write a line for the process that asks."""
    os.write(answers, f"{json.dumps(text)}\n".encode())


def serve(answers: int) -> None:
    """Answer the questions on standard input until it ends. Each gets two lines, the first as soon as eager mode has
    finished.

    answers: the file descriptor for the answers.
    """
    for line in sys.stdin:
        path, backend, kind = json.loads(line)
        found = ""
        try:
            names = runpy.run_path(path)
            model, inputs = names["Graph"](), list(names["inputs"]())
            eager(model, inputs)
        except Exception:
            write_line(answers, "eager mode refuses it")
        else:
            write_line(answers, "eager mode is well")
            with contextlib.suppress(Exception):
                found = fault(model, inputs, backend, kind)
        write_line(answers, found)


if __name__ == "__main__":
    channel = os.dup(1)
    os.dup2(2, 1)  # keep what a graph prints apart from the answers
    serve(channel)
