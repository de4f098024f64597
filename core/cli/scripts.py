"""Runs a user's program with its compile calls redirected."""

from __future__ import annotations

import runpy
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import armature
from armature.api.options import MODES
from armature.errors import ArmatureError, ArmatureWarning

Compile = Callable[..., Any]
INTERRUPTED = 130  # exit status after Ctrl-C


class ScriptNotFound(ArmatureError):
    """The program to run does not exist."""

    code = "A226"
    text = "there is no file {path}"
    hint = "Give the path of a Python program, and its arguments after it."


def as_torch_compile(compile: Compile) -> Compile:
    """A function with torch.compile's signature that calls ours. Backend names become "auto"."""

    def torch_compile(
        model: Any = None,
        *,
        fullgraph: bool = False,
        dynamic: bool | None = None,
        backend: str | Callable[..., Any] = "inductor",
        mode: str | None = None,
        options: Any = None,
        disable: bool = False,
    ) -> Any:
        if model is None:
            return lambda fn: torch_compile(
                fn, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, disable=disable
            )
        if disable:
            return model
        # Options belong to another compiler, and would be misunderstood here.
        ours = "auto" if isinstance(backend, str) else backend
        chosen = {"mode": mode} if mode in MODES else {}
        if mode is not None and not chosen:
            text = f"the mode {mode!r} is not there in armature: the program is compiled as without it"
            warnings.warn(text, ArmatureWarning, stacklevel=2)
        return compile(model, fullgraph=fullgraph, dynamic=dynamic, backend=ours, **chosen)

    return torch_compile


@contextmanager
def modules_of_the_folder() -> Iterator[None]:
    """In this context modules of the current folder can be imported, as under `python -m`."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


@contextmanager
def redirected(compile: Compile) -> Iterator[None]:
    """In this context torch.compile and armature.compile call the given function."""
    theirs, ours = torch.compile, armature.compile
    torch.compile = as_torch_compile(compile)
    armature.compile = compile
    try:
        yield
    finally:
        torch.compile = theirs
        armature.compile = ours


def found_script(path: Path) -> Path:
    """The path of an existing program. Errors: ScriptNotFound."""
    if not path.is_file():
        raise ScriptNotFound(path=path)
    return path


def run_script(path: Path, arguments: list[str], compile: Compile) -> int:
    """Run a program as `python PATH ARGUMENTS` would, and return its exit status. Errors: ScriptNotFound, and the
    program's."""
    found_script(path)
    argv, search = sys.argv, list(sys.path)
    sys.argv = [str(path), *arguments]
    sys.path[0] = str(path.resolve().parent)
    try:
        with redirected(compile):
            runpy.run_path(str(path.absolute()), run_name="__main__")
    except SystemExit as leaving:
        return _status(leaving.code)
    finally:
        sys.argv, sys.path[:] = argv, search
    return 0


def _status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)
    return 1
