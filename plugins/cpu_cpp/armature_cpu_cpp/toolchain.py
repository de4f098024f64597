"""The C++ compiler: finds it, chooses its flags, and builds a shared library from a source."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import attrs

from armature.plugin_api import BackendError
from armature_cpu_cpp.isa import Isa

INCLUDE = Path(__file__).parent / "include"
NAMES = ("c++", "g++", "clang++")
INSTALL = "Install a C++ compiler (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++), or name one in CXX."
# No -ffast-math: NaN and infinities behave as in eager. Products and sums are contracted to fused operations, which
# only changes the last bits. Integers wrap, as in eager.
FLAGS = (
    "-std=c++17", "-O2", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fwrapv",
    "-fno-exceptions", "-fno-rtti", "-fno-asynchronous-unwind-tables", "-fvisibility=hidden", "-fno-plt", "-w",
)  # fmt: skip


@attrs.frozen
class Compiler:
    """A compiler that was found: its command and the first line of its version text."""

    command: tuple[str, ...]
    version: str


@cache
def probe(command: str) -> Compiler | None:
    """The compiler behind a command line, None if it can't be run."""
    parts = tuple(shlex.split(command))
    if not parts or shutil.which(parts[0]) is None:
        return None
    try:
        said = subprocess.run([*parts, "--version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return Compiler(parts, said.stdout.splitlines()[0] if said.stdout else "")


def find(asked: str) -> Compiler:
    """The requested compiler, or without a request the first that works. Errors: BackendError with the fix."""
    for name in (asked,) if asked else NAMES:
        found = probe(name)
        if found is not None:
            return found
    message = f"the C++ compiler {asked!r} does not run" if asked else "there is no C++ compiler"
    raise BackendError(backend="cpu_cpp", what="kernels", message=message, fix=INSTALL)


@cache
def header_digest() -> str:
    """Changes when one of our headers does."""
    found = hashlib.sha256()
    for path in sorted(INCLUDE.glob("*.h")):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


@cache
def loaded_openmp() -> str:
    """The OpenMP runtime that torch has loaded into this process, "" if unknown.

    Kernels must share it: a second runtime has threads of its own, and both sets would spin on the same cores.
    """
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return ""
    paths = dict.fromkeys(line.split(maxsplit=5)[5] for line in maps.splitlines() if line.count("/") > 1)
    runtimes = [p for p in paths if Path(p).name.startswith(("libgomp", "libiomp5", "libomp"))]
    return next(iter(sorted(runtimes, key=lambda p: "torch" not in p)), "")


def flags(isa: Isa, openmp: bool, more: Iterable[str]) -> tuple[str, ...]:
    """All compiler arguments except file names."""
    return (*FLAGS, *isa.flags, *(("-fopenmp",) if openmp else ()), *more)


def libraries(openmp: bool) -> tuple[str, ...]:
    """Libraries to link: only what kernels call; Python's symbols come from the running interpreter."""
    runtime = loaded_openmp() if openmp else ""
    named = (runtime,) if runtime else ("-lgomp",) if openmp else ()
    return ("-nostdlib", *named, "-lm", "-lgcc")


def build(compiler: Compiler, options: Iterable[str], openmp: bool, source: Path, made: Path) -> None:
    """Compile `source` into the shared library `made`. Errors: BackendError with the compiler's first error.

    The compiler's temporary files are in the same folder, so only one folder needs room, and it is always removed.
    """

    def command(read: Path, written: Path) -> list[str]:
        return [*compiler.command, *options, f"-I{INCLUDE}", str(read), "-o", str(written), *libraries(openmp)]

    try:
        environment = os.environ | {"TMPDIR": str(made.parent)}
        ran = subprocess.run(command(source, made), capture_output=True, text=True, check=False, env=environment)
    except OSError as error:
        raise BackendError(backend="cpu_cpp", what=str(source), message=str(error), fix=INSTALL) from error
    if ran.returncode:
        said = next((line for line in ran.stderr.splitlines() if "error" in line), ran.stderr.strip()[-500:])
        stays = copied(source)
        fix = f"See all it says with: {shlex.join(command(stays, stays.with_suffix(made.suffix)))}"
        raise BackendError(backend="cpu_cpp", what=str(stays), message=f"{compiler.command[0]}: {said}", fix=fix)


def copied(source: Path) -> Path:
    """A copy that outlives the build folder; the source itself if there is no room for one."""
    try:
        return Path(shutil.copy(source, tempfile.mkdtemp(prefix="armature-not-built-")))
    except OSError:
        return source
