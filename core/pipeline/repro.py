"""Writes a captured graph as a standalone script that reproduces a failed compilation."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import re
import shutil
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

import torch
from torch import fx

from armature.pipeline.session import Compilation

SCRIPT = "repro.py"
INPUTS = "inputs.pt"
ERROR = "error.txt"
KINDS = ("error", "wrong", "slow")

HEAD = '''"""Shows what goes wrong when armature compiles this graph: status 1 if it does. Made by armature."""

import torch
from torch import device, inf, nan
{imports}

'''
BODY = '''

BACKEND = {backend!r}


def inputs():
    """The arguments of a call."""
    torch.manual_seed(0)
    return {inputs}


if __name__ == "__main__":
    from armature.reports.minify import shows

    raise SystemExit(shows(Graph(), inputs(), BACKEND, {kind!r}))
'''
OF_A_PROGRAM = '''"""Runs the program whose frame {function} ({where}) could not be compiled: the error comes out."""

import os
import runpy
import sys

os.environ["ARMATURE_STRICT"] = "1"
sys.argv = {argv!r}
sys.path.insert(0, {folder!r})
runpy.run_path(sys.argv[0], run_name="__main__")
'''


class CannotWrite(Exception):
    """The graph holds an object that a script can't name."""


def leave(parent: Path, record: Compilation, error: BaseException) -> Path | None:
    """Make a folder with a reproduction of the failure. None if it can't be made: a report must not fail a run."""
    try:
        folder = record.script_folder or new_folder(parent, record.function)
        raised = "".join(traceback.format_exception(error))
        (folder / ERROR).write_text(raised, encoding="utf-8", errors="backslashreplace")
        (folder / "about.json").write_text(json.dumps(about(record, error), indent=1), encoding="utf-8")
        (folder / SCRIPT).write_text(text_of(record), encoding="utf-8", errors="backslashreplace")
    except Exception:
        return None
    return folder


def begin(parent: Path, record: Compilation) -> None:
    """Write the script of a graph before it is compiled. It is deleted when the process ends normally, so it remains
    where compiling or running the graph kills the process."""
    with contextlib.suppress(Exception):  # as in `leave`
        record.script_folder = write_graph(parent, record, "error")
        atexit.register(forget, record.script_folder, os.getpid())


def write_graph(parent: Path, record: Compilation, kind: str) -> Path:
    """Make a folder with the script of a graph that may be at fault. Errors: CannotWrite, OSError."""
    folder = new_folder(parent, record.function)
    (folder / "about.json").write_text(json.dumps(about(record, None), indent=1), encoding="utf-8")
    (folder / SCRIPT).write_text(text_of(record, kind), encoding="utf-8", errors="backslashreplace")
    return folder


def forget(folder: Path, process: int) -> None:
    """Delete a folder unless its graph has failed, in the process that made it."""
    if os.getpid() == process and not (folder / ERROR).exists():
        shutil.rmtree(folder, ignore_errors=True)


def new_folder(parent: Path, function: str) -> Path:
    """Make a folder with a new name."""
    name = re.sub(r"\W+", "-", function).strip("-") or "frame"
    for number in itertools.count():
        folder = parent / f"{name}-{number}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise OSError("no folder can be made")


def about(record: Compilation, error: BaseException | None) -> dict[str, object]:
    """The failure and its location, as data."""
    return {
        "function": record.function,
        "where": record.where,
        "backend": record.backend,
        "error": "the process has not ended normally" if error is None else f"{type(error).__name__}: {error}",
        "torch": torch.__version__,
        "python": sys.version,
    }


def text_of(record: Compilation, kind: str = "error") -> str:
    """The script: the captured graph with inputs like those of the call; if there is no graph, the program."""
    if record.module is not None:
        try:
            return script(record.module, fake_inputs(record.module), record.backend, kind)
        except CannotWrite as reason:
            return f"# The graph can't be written by itself: {reason}\n{of_program(record)}"
    return of_program(record)


def of_program(record: Compilation) -> str:
    """A script that runs the program again, without catching errors."""
    path = Path(sys.argv[0])
    argv = [str(path.absolute()), *sys.argv[1:]]
    return OF_A_PROGRAM.format(
        function=record.function, where=record.where, argv=argv, folder=str(path.absolute().parent)
    )


def fake_inputs(module: fx.GraphModule) -> list[object]:
    """The example value of each input."""
    return [node.meta.get("example_value") for node in module.graph.nodes if node.op == "placeholder"]


def script(module: fx.GraphModule, examples: Sequence[object], backend: str, kind: str, saved: bool = False) -> str:
    """The graph as a script. saved: inputs are read from a file next to it. Errors: CannotWrite."""
    held = {node.target: attribute(module, str(node.target)) for node in module.graph.nodes if node.op == "get_attr"}
    code = module.graph.python_code("self")
    lines = ["class Graph(torch.nn.Module):", '    """The graph."""', ""]
    if held:
        lines += ["    def __init__(self):", "        super().__init__()"]
        lines += [f"        self.{name} = {made_like(value)}" for name, value in held.items()]
        lines.append("")
    lines += [f"    {line}".rstrip() for line in code.src.strip().splitlines()]
    given = f"({''.join(f'{made_like(example)}, ' for example in examples)})"
    if saved:
        given = f'torch.load(__file__.replace("{SCRIPT}", "{INPUTS}"), weights_only=True)'
    head = HEAD.format(imports="\n".join(imports(code.globals, code.src)))
    return head + "\n".join(lines) + "\n" + BODY.format(inputs=given, backend=backend, kind=kind)


def attribute(module: fx.GraphModule, name: str) -> object:
    """The graph's attribute of this name. Errors: CannotWrite for a name with dots."""
    if "." in name:
        raise CannotWrite(f"it holds {name}")
    return getattr(module, name)


def imports(names: dict[str, object], text: str) -> Iterator[str]:
    """Import lines for the names that the code uses. Errors: CannotWrite for an object that can't be imported."""
    for name, value in names.items():
        if name in ("torch", "device", "inf", "nan", "NoneType") or not re.search(rf"\b{re.escape(name)}\b", text):
            continue
        if isinstance(value, ModuleType):
            yield f"import {value.__name__}" if name in value.__name__ else f"import {value.__name__} as {name}"
            continue
        home, path = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        found = sys.modules.get(home) if isinstance(home, str) else None
        if found is None or not path.isidentifier() or getattr(found, path, None) is not value:
            raise CannotWrite(f"it uses {value!r:.80}, which has no name to import")
        yield f"from {home} import {path} as {name}"


def made_like(value: object) -> str:
    """An expression that makes a similar value: a tensor of the same kind with other elements."""
    if isinstance(value, torch.SymInt):
        return str(value.node.hint)
    if not isinstance(value, torch.Tensor):
        if value is None or type(value) in (bool, int, float, str):
            return repr(value)
        raise CannotWrite(f"an input is {type(value).__name__}")
    sizes, strides = numbers(value.shape), numbers(value.stride())
    kind = f"dtype={value.dtype}, device={str(value.device)!r}"
    full = value.dtype.is_floating_point or value.dtype.is_complex
    made = f"torch.empty_strided({sizes}, {strides}, {kind})"
    made += ".normal_()" if full else ".zero_()"
    return f"{made}.requires_grad_()" if value.requires_grad and full else made


def numbers(sizes: Iterable[int | torch.SymInt]) -> tuple[int, ...]:
    """Sizes as numbers; symbols by their values in the call."""
    return tuple(size.node.hint if isinstance(size, torch.SymInt) else int(size) for size in sizes)
