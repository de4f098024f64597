"""`armature doctor`: what is installed on this machine, what is missing, and the command that installs it."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import attrs
import torch
import typer
from rich.console import Console
from rich.table import Table

from armature import config, plugins
from armature.cli.cache import readable
from armature.cli.terminal import console, print_data
from armature.config import Config
from armature.plugins.tables import Tables
from armature.run.cache import Cache
from armature.torch_abi import versions

INSTALLERS = {
    "apt-get": "sudo apt-get install -y g++ python3-dev",
    "dnf": "sudo dnf install -y gcc-c++ python3-devel",
    "apk": "sudo apk add g++ python3-dev",
    "pacman": "sudo pacman -S gcc",
    "zypper": "sudo zypper install -y gcc-c++ python3-devel",
    "conda": "conda install -c conda-forge cxx-compiler",
}
STYLES = {"ok": "green", "absent": "yellow", "missing": "red"}
# The distributions of the core's extras, and the consequence if one is missing.
DISTRIBUTIONS = {
    "armature-builtin-rules": "functions are traced by default rules only, and graph breaks have no names",
    "armature-torch-handlers": "torch functions whose result is no tensor break the graph",
    "armature-aten-lowerings": "no operator is fused",
    "armature-cpu-cpp": "nothing is compiled for the CPU",
    "armature-gpu-triton": "nothing is compiled for a GPU",
}
NEEDED = ("armature-builtin-rules", "armature-torch-handlers", "armature-aten-lowerings")


class State(Enum):
    """The result of a check. ABSENT: not installed, and not needed."""

    OK = "ok"
    ABSENT = "absent"
    MISSING = "missing"


@attrs.frozen
class Check:
    """One check: what was found, and how to install it if it is missing."""

    name: str
    state: State
    found: str
    fix: str = ""


def check_python() -> Iterator[Check]:
    """This Python, and its headers, which building kernels needs."""
    seen = versions.of_process()
    state = State.OK if seen.python_supported else State.MISSING
    fix = "" if seen.python_supported else "install Python 3.11, 3.12 or 3.13"
    yield Check("Python", state, f"{platform.python_version()} at {sys.executable}", fix)
    header = Path(sysconfig.get_paths()["include"], "Python.h")
    state = State.OK if header.exists() else State.MISSING
    yield Check("Python headers", state, str(header) if header.exists() else "no Python.h", install_compiler(state))


def check_torch() -> Iterator[Check]:
    """The torch that is installed."""
    seen = versions.of_process()
    fits = seen.torch_supported
    low, high = versions.TORCH_RANGE
    fix = "" if fits else f"pip install 'torch>={low},<{high.removesuffix('.dev0')}'"
    yield Check("torch", State.OK if fits else State.MISSING, str(seen.torch), fix)


def install_compiler(state: State) -> str:
    """The command that installs a C++ compiler and headers here, "" if nothing is missing."""
    if state is State.OK:
        return ""
    if sys.platform == "darwin":
        return "xcode-select --install"
    return next((command for tool, command in INSTALLERS.items() if shutil.which(tool)), "install g++ or clang++")


def output_of(command: list[str]) -> str:
    """The first line of a command's output, "" if it fails or does not exist."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = done.stdout.splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else ""


def check_compiler(settings: Config) -> Iterator[Check]:
    """The C++ compiler of the settings."""
    path = shutil.which(settings.cpp_compiler)
    line = output_of([path, "--version"]) if path else ""
    state = State.OK if line else State.MISSING
    found = f"{path}: {line}" if line else f"{settings.cpp_compiler} does not run"
    yield Check("C++ compiler", state, found, install_compiler(state))


def check_gpu() -> Iterator[Check]:
    """CUDA devices, and Triton when there are some."""
    if not torch.cuda.is_available():
        build = torch.version.cuda or "none"
        yield Check("GPU", State.ABSENT, f"no CUDA device (torch is built for CUDA: {build})")
    for index in range(torch.cuda.device_count()):
        major, minor = torch.cuda.get_device_capability(index)
        yield Check(f"GPU {index}", State.OK, f"{torch.cuda.get_device_name(index)}, sm_{major}{minor}")
    if importlib.util.find_spec("triton"):
        yield Check("Triton", State.OK, metadata.version("triton"))
    else:
        state = State.MISSING if torch.cuda.is_available() else State.ABSENT
        yield Check("Triton", state, "not installed", "pip install triton" if state is State.MISSING else "")


def check_plugins(tables: Tables) -> Iterator[Check]:
    """The distributions that armature consists of; `armature plugins` lists others."""
    here = {plugin.distribution: plugin.version for plugin in tables.plugins}
    devices = {"armature-cpu-cpp"} if not torch.cuda.is_available() else {"armature-cpu-cpp", "armature-gpu-triton"}
    for name, without in DISTRIBUTIONS.items():
        if name in here:
            yield Check(name, State.OK, here[name])
        else:
            state = State.MISSING if name in NEEDED or name in devices else State.ABSENT
            fix = f"pip install {name}" if state is State.MISSING else ""
            yield Check(name, state, f"not at work: {without}", fix)
    problems = plugins.manager().problems
    if problems:
        yield Check("plugin problems", State.MISSING, f"{len(problems)}", "armature plugins doctor")


def check_backends(tables: Tables) -> Iterator[Check]:
    """Whether the back ends of the available devices work."""
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    for device in devices:
        backend = tables.device_backend(device)
        if backend is not None:
            missing = backend.missing()
            yield Check(f"back end of {device}", State.MISSING if missing else State.OK, missing or backend.name)


def check_cache(settings: Config) -> Iterator[Check]:
    """The folder of built kernels, and whether they can be written and loaded there."""
    cache = Cache(settings.cache_dir)
    problem = cache.problem()
    if problem is None:
        yield Check("cache", State.OK, f"{cache.folder}, {readable(cache.size())} in {len(cache.files())} files")
    else:
        found = f"{cache.folder} can't be used: {problem}"
        yield Check("cache", State.MISSING, found, "export ARMATURE_CACHE_DIR=/a/folder")


def check_operators(tables: Tables) -> Iterator[Check]:
    """The number of operators that plugins lower. A report lists those that a program's graphs still call, and why."""
    lowered = {row.subject for row in tables.registries.lowerings.winners()}
    decomposed = set(tables.decompositions) - lowered
    libraries = {op for op, row in tables.operators.items() if row.library} - lowered - decomposed
    counts = f"{len(lowered)} lowered, {len(decomposed)} decomposed, {len(libraries)} left to libraries"
    state = State.OK if lowered else State.ABSENT
    yield Check("operators", state, f"{counts}; `armature explain` tells what a program calls besides, and why")


def guarded(name: str, check: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    """The checks of one kind. If one raises, that is reported as a check, and the other kinds still run."""
    try:
        yield from check()
    except Exception as error:
        yield Check(name, State.MISSING, f"{type(error).__name__}: {error}", "report this with the output above")


def examine() -> list[Check]:
    """Run all checks."""
    settings = config.current()
    with config.patch(strict=False):
        tables = plugins.manager().tables()
    kinds: dict[str, Callable[[], Iterator[Check]]] = {
        "Python": check_python,
        "torch": check_torch,
        "C++ compiler": lambda: check_compiler(settings),
        "GPU": check_gpu,
        "plugins": lambda: check_plugins(tables),
        "operators": lambda: check_operators(tables),
        "back ends": lambda: check_backends(tables),
        "cache": lambda: check_cache(settings),
    }
    return [found for name, check in kinds.items() for found in guarded(name, check)]


def as_text(value: object) -> str:
    """A setting's value as its variable would be written."""
    if isinstance(value, (frozenset, tuple)):
        return " ".join(sorted(value) if isinstance(value, frozenset) else value)
    return str(value)


def settings_data() -> list[dict[str, Any]]:
    """All settings: name, variable, value, whether it differs from the default, and description."""
    current, default = config.current(), Config()
    rows = []
    for field in attrs.fields(Config):
        value = getattr(current, field.name)
        facts = {"name": field.name, "variable": field.metadata["env"], "help": field.metadata["help"]}
        rows.append(facts | {"value": as_text(value), "changed": value != getattr(default, field.name)})
    return rows


def print_checks(out: Console, checks: list[Check]) -> None:
    """Print the checks as a table, followed by the commands that install what is missing."""
    table = Table("", "state", "found", box=None, pad_edge=False, header_style="bold")
    for check in checks:
        style = STYLES[check.state.value]
        table.add_row(check.name, f"[{style}]{check.state.value}[/{style}]", check.found)
    out.print(table)
    fixes = [check for check in checks if check.fix]
    if fixes:
        out.print("\nto do:", style="bold")
        for check in fixes:
            out.print(f"  {check.name}: {check.fix}", markup=False, soft_wrap=True)


def print_settings(out: Console) -> None:
    """Print all settings, with changed ones marked."""
    table = Table("setting", "variable", "value", "", box=None, pad_edge=False, header_style="bold")
    for row in settings_data():
        table.add_row(row["name"], row["variable"], row["value"] + (" *" if row["changed"] else ""), row["help"])
    out.print()
    out.print(table)


def doctor(as_json: Annotated[bool, typer.Option("--json", help="print it as data")] = False) -> None:
    """Show what is installed, what is missing, and how to install it. Status 1 if something is missing."""
    checks = examine()
    if as_json:
        data = [attrs.asdict(check) | {"state": check.state.value} for check in checks]
        print_data({"checks": data, "settings": settings_data()})
    else:
        print_checks(console(), checks)
        print_settings(console())
    if any(check.state is State.MISSING for check in checks):
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)
