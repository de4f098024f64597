"""Programs that tests run, each in a process of its own that need not import torch and armature first.

Importing them takes seconds, most programs do not. A server imports them once, makes nothing, and forks for each program:
the child has its own environment, folder and arguments, and no part of armature has read them before.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Among them what torch imports for the first graph.
MODULES = ("armature.api.explain", "armature.cli.app", "armature.pipeline.compiler", "torch.fx.experimental.validator")


def run(
    arguments: Sequence[str | Path], cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program: the path of a script, or a name of `console_scripts`, and what it is given.

    The environment has these variables besides those of this process. What it prints is captured.
    """
    words = [str(word) for word in arguments]
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "out", Path(folder) / "err"
        variables = {**os.environ, **(environment or {})}
        job = {"words": words, "cwd": str(cwd or Path.cwd()), "environment": variables, "told": [str(t) for t in told]}
        code = _server().ask(job)
        return subprocess.CompletedProcess(words, code, *(path.read_text() for path in told))


class _Server:
    """The process that forks; it ends with its input, which ends with this process."""

    def __init__(self) -> None:
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forked"],
            env=environment,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, job: Mapping[str, object]) -> int:
        """The exit status of a program."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@functools.cache
def _server() -> _Server:
    return _Server()


def _import_all() -> None:
    """The modules of armature and of its plugins; no plugin is asked for anything yet."""
    gc.disable()
    for name in MODULES:
        importlib.import_module(name)
    for entry in metadata.entry_points(group="armature"):
        entry.load()
    gc.freeze()  # a child need not look through all of this, neither at work nor at its end
    gc.enable()


def _serve() -> None:
    """Answer until the input ends. A child returns from here when its program has run, and ends as any process."""
    _import_all()
    answers = os.fdopen(os.dup(1), "w")
    for line in iter(sys.stdin.readline, ""):
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            answers.close()
            _be(job["words"], Path(job["cwd"]), job["environment"], job["told"])
            return
        answers.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        answers.flush()


def _be(words: list[str], cwd: Path, environment: Mapping[str, str], told: Sequence[str]) -> None:
    """Run the program as this process."""
    for descriptor, path in enumerate([os.devnull, *told]):
        opened = os.open(path, os.O_CREAT | (os.O_WRONLY if descriptor else os.O_RDONLY))
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = words
    scripts = {script.name: script for script in metadata.entry_points(group="console_scripts")}
    if words[0] in scripts:
        sys.exit(scripts[words[0]].load()())
    sys.path[0] = str(Path(words[0]).absolute().parent)
    runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    _serve()
