"""All settings: one frozen class, from which environment variables, checks and documentation are derived.

`current()` returns the settings in force; `patch(strict=True)` changes them for the body of a `with` in this thread,
`update(threads=4)` for the whole process from now on. The environment is read once, on first use.
"""

from __future__ import annotations

import difflib
import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import platformdirs
import torch
from attrs import Attribute

from armature.errors import BadSetting, UnknownSetting

Parse = Callable[[str], object]
COMPILERS = ("c++", "g++", "clang++")
MAX_WORKERS = 16
STAGES = ("fx", "aten", "loops", "plan", "kernels", "wrapper")  # stages that can be printed
TOPICS = ("frame", "guards", "recompiles", "graph", "kernels")  # topics that can be logged


def parse_bool(text: str) -> bool:
    """Parse a switch from an environment variable. Raises ValueError for unknown text."""
    lowered = text.strip().lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("", "0", "false", "no", "off"):
        return False
    raise ValueError("expected 1 or 0")


def parse_names(text: str) -> tuple[str, ...]:
    """Parse names separated by commas or spaces, in order."""
    return tuple(text.replace(",", " ").split())


PARSERS: Mapping[type, Parse] = {
    bool: parse_bool,
    int: int,
    str: str,
    frozenset: lambda text: frozenset(parse_names(text)),
    tuple: lambda text: tuple(shlex.split(text)),
    Path: lambda text: Path(text).expanduser(),
}


def checked(kind: type[Any], minimum: int, choices: tuple[str, ...] = ()) -> Callable[[Any, Attribute[Any], Any], None]:
    """A validator: the value has type `kind`, is at least `minimum` if it is a number, and one of `choices` if
    given."""

    def check(_: object, attribute: Attribute[Any], value: Any) -> None:
        if type(value) is not kind and not (kind is Path and isinstance(value, Path)):
            raise BadSetting(name=attribute.name, value=value, problem=f"expected a value of type {kind.__name__}")
        if isinstance(value, int) and value < minimum:
            raise BadSetting(name=attribute.name, value=value, problem=f"expected {minimum} or more")
        unknown = sorted(set(value) - set(choices), key=str) if choices else []
        if unknown:
            problem = f"there is no {unknown[0]!r} among {', '.join(choices)}"
            raise BadSetting(name=attribute.name, value=value, problem=problem)

    return check


def as_collection(kind: type) -> Callable[[Any], Any]:
    """A converter: any collection of strings becomes a tuple or set of them. Other values are left for the
    validator."""
    return lambda value: kind(value) if isinstance(value, Iterable) and not isinstance(value, str) else value


def setting(
    default: object,
    *,
    env: str,
    help: str,
    parse: Parse | None = None,
    minimum: int = 0,
    choices: tuple[str, ...] = (),
    of_process: bool = False,
) -> Any:  # Any, as for attrs.field: it is assigned to fields of every type
    """Declare a setting. `default` is a value, or a function that computes it when settings are first read. of_process:
    it can't be set for a single function."""
    value = default() if callable(default) else default
    kind = Path if isinstance(value, Path) else type(value)
    return attrs.field(
        default=attrs.Factory(default) if callable(default) else default,
        kw_only=True,
        converter=as_collection(kind) if kind in (tuple, frozenset) else None,
        validator=checked(kind, minimum, choices),
        metadata={"env": env, "help": help, "parse": parse or PARSERS[kind], "of_process": of_process},
    )


def available_cores() -> int:
    """Cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def default_workers() -> int:
    """The default number of parallel kernel builds."""
    return min(available_cores(), MAX_WORKERS)


def first_compiler() -> str:
    """The first C++ compiler on PATH, "c++" if there is none: a back end then reports what is missing."""
    return next((name for name in COMPILERS if shutil.which(name)), COMPILERS[0])


def default_cache_dir() -> Path:
    """The default folder of built kernels."""
    return Path(platformdirs.user_cache_dir("armature"))


PLUGIN_SETTINGS = frozenset({"disabled_plugins", "plugin_order"})
"""Settings whose values are names of plugins."""
PASS_SETTINGS = frozenset({"disabled_passes", "pass_order"})
"""Settings whose values are names of passes."""


@attrs.frozen
class Config:
    """The settings. Each field names its variable and describes itself; docs and `armature doctor` print that."""

    strict: bool = setting(False, env="ARMATURE_STRICT", help="Raise where armature would fall back to eager.")
    disabled_plugins: frozenset[str] = setting(
        frozenset(), env="ARMATURE_DISABLE_PLUGINS", help="Plugins or distributions to leave out."
    )
    plugin_order: tuple[str, ...] = setting(
        (), env="ARMATURE_PLUGIN_ORDER", parse=parse_names, help="Plugins that go before all others, first one first."
    )
    show: frozenset[str] = setting(
        frozenset(), env="ARMATURE_SHOW", choices=STAGES, help=f"What to print while compiling: {', '.join(STAGES)}."
    )
    log: frozenset[str] = setting(
        frozenset(),
        env="ARMATURE_LOG",
        of_process=True,
        choices=TOPICS,
        help=f"What to tell through Python's logging: {', '.join(TOPICS)}.",
    )
    repro_dir: str = setting(
        "", env="ARMATURE_REPRO_DIR", help="Folder in which a compilation that fails leaves a script; empty: none."
    )
    fallback_warning: bool = setting(
        True, env="ARMATURE_FALLBACK_WARNING", help="Warn once when a frame falls back to eager."
    )
    eager_on_interrupt: bool = setting(
        False,
        env="ARMATURE_EAGER_ON_INTERRUPT",
        of_process=True,
        help="Ctrl-C while compiling lets the program go on eagerly; the second one stops it.",
    )
    recompile_limit: int = setting(
        8, env="ARMATURE_RECOMPILE_LIMIT", minimum=1, help="Compilations of one function before it is left to eager."
    )
    cache_dir: Path = setting(  # noqa: RUF009 (a field specifier, which ruff takes for a call because of Path)
        default_cache_dir, env="ARMATURE_CACHE_DIR", help="Folder of built kernels."
    )
    threads: int = setting(
        default_workers,
        env="ARMATURE_THREADS",
        minimum=1,
        help="Kernels built side by side.",
    )
    cpp_compiler: str = setting(first_compiler, env="CXX", help="C++ compiler.")
    cpp_flags: tuple[str, ...] = setting((), env="ARMATURE_CPP_FLAGS", help="More flags for the C++ compiler.")
    cpu_threads: int = setting(
        torch.get_num_threads, env="ARMATURE_CPU_THREADS", minimum=1, help="Threads of a CPU kernel."
    )
    capture_scalar_outputs: bool = setting(
        False,
        env="ARMATURE_CAPTURE_SCALAR_OUTPUTS",
        help="Keep the number that .item() or .tolist() gives in the graph, where it would break it.",
    )
    capture_dynamic_output_shape_ops: bool = setting(
        False,
        env="ARMATURE_CAPTURE_DYNAMIC_OUTPUT_SHAPE_OPS",
        help="Keep operators in the graph whose result's size depends on numbers: nonzero, boolean masks.",
    )
    disabled_passes: frozenset[str] = setting(
        frozenset(), env="ARMATURE_DISABLE_PASSES", help="Passes to leave out; `armature plugins passes` lists them."
    )
    pass_order: tuple[str, ...] = setting(
        (),
        env="ARMATURE_PASS_ORDER",
        parse=parse_names,
        help="Passes that go before the others of their stage, first one first, where their own order allows it.",
    )
    keep_passes: bool = setting(
        False, env="ARMATURE_KEEP_PASSES", help="Keep what each pass found and left, for armature code --passes."
    )
    fuse: bool = setting(True, env="ARMATURE_FUSE", help="Fuse operators into common kernels.")
    record_launches: bool = setting(
        False,
        env="ARMATURE_RECORD_LAUNCHES",
        help="Record what a graph launches on a device that can, and launch it as one (mode reduce-overhead).",
    )
    autotune: bool = setting(
        False,
        env="ARMATURE_AUTOTUNE",
        help="Choose among several kernels by measuring them on the device (mode max-autotune).",
    )
    measure: bool = setting(
        True,
        env="ARMATURE_MEASURE",
        help="Measure where no choice is kept yet; off: kept choices are used, and rules for what has none.",
    )
    choices_dir: str = setting(
        "", env="ARMATURE_CHOICES_DIR", help="Folder of measured choices, to be shared; empty: beside built kernels."
    )
    own_products: bool = setting(
        True,
        env="ARMATURE_OWN_PRODUCTS",
        help="Compute products of matrices and recurrent layers by own kernels where a back end's rules say that the "
        "library's are slower.",
    )
    frozen: bool = setting(
        False,
        env="ARMATURE_FROZEN",
        help="In inference, compute what depends on parameters and buffers alone once, and again after a write to one.",
    )
    max_kernel_nodes: int = setting(
        400, env="ARMATURE_MAX_KERNEL_NODES", minimum=1, help="Most operations fused into one kernel."
    )

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Config:
        """Settings from an environment, with defaults for the rest. Raises BadSetting naming the variable."""
        values: dict[str, Any] = {}
        for field in attrs.fields(cls):
            env = field.metadata["env"]
            if env not in environ:
                continue
            try:
                values[field.name] = field.metadata["parse"](environ[env])
            except ValueError as error:
                raise BadSetting(name=env, value=environ[env], problem=str(error)) from error
        return cls(**values)

    def changed(self, changes: Mapping[str, Any]) -> Config:
        """A copy with changes. Raises UnknownSetting, with the most similar name, and BadSetting."""
        names = [field.name for field in attrs.fields(type(self))]
        for name in changes:
            if name not in names:
                nearest = difflib.get_close_matches(name, names, n=1)
                raise UnknownSetting(name=name, nearest=nearest[0] if nearest else ", ".join(names))
        return attrs.evolve(self, **changes)


@attrs.define
class Settings:
    """Holds the settings of this process, and those of a `patch` in this thread."""

    base: Config
    patched: ContextVar[Config | None] = attrs.field(factory=lambda: ContextVar("armature_config", default=None))


@cache
def settings() -> Settings:
    """The process's holder of settings, initialised from the environment on first use."""
    return Settings(Config.from_env(os.environ))


def current() -> Config:
    """The settings in force."""
    held = settings()
    return held.patched.get() or held.base


@contextmanager
def patch(**changes: object) -> Iterator[Config]:
    """Change settings for the body of the `with`, in this thread only."""
    held = settings()
    config = current().changed(changes)
    token = held.patched.set(config)
    try:
        yield config
    finally:
        held.patched.reset(token)


def update(**changes: object) -> Config:
    """Change settings for the whole process, from now on. An open `patch` keeps its own values."""
    held = settings()
    held.base = held.base.changed(changes)
    return held.base
