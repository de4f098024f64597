"""What users install: wheels of every distribution, alone and together, where nothing is known of the sources.

A fresh environment borrows the third-party packages of this one, torch above all, by links: what it has of armature is
what a test installs from a wheel, and nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ("aten_lowerings", "builtin_rules", "cpu_cpp", "gpu_triton", "torch_handlers")
EXAMPLE = "examples/third_party_plugin"
BACK_END = "examples/vendor_backend"
OURS = ("armature", "torch_armature", "__editable__")
CORE = "torch-armature"
NAMES = tuple(f"armature-{name.replace('_', '-')}" for name in PLUGINS)
SOURCES = ("core", "plugins", "examples", "pyproject.toml", "README.md", "LICENSE")
ENVIRONMENT = {name: text for name, text in os.environ.items() if not name.startswith(("ARMATURE_", "PYTHON"))}

ADDS = """
import torch
import armature

@armature.compile
def add(x, y):
    return (x + y).relu()

x, y = torch.randn(8), torch.randn(8)
torch.testing.assert_close(add(x, y), (x + y).relu())
print("right")
"""

SAYS_PLUGINS = """
from armature.plugins import manager

for plugin in manager().plugins:
    print(f"{plugin.distribution}: {len(manager().problems)} problems")
"""


def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    """Run a command to its end with the variables of armature and Python unset; text is captured."""
    settings: dict[str, object] = {"env": ENVIRONMENT, "capture_output": True, "text": True, "check": False}
    return subprocess.run(command, **settings | options)  # type: ignore[call-overload, no-any-return]


def checked(command: list[str]) -> str:
    """What a command prints. Fails with all of its output when it fails."""
    done = run(command)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@attrs.frozen
class Environment:
    """A virtual environment with this test session's third-party packages, and of armature only what was installed."""

    folder: Path
    wheels: dict[str, Path]

    @property
    def python(self) -> str:
        """The interpreter."""
        return str(self.folder / "bin" / "python")

    @property
    def packages(self) -> Path:
        """The folder that wheels are installed in."""
        return next(self.folder.glob("lib/python*/site-packages"))

    def install(self, *distributions: str) -> None:
        """Install wheels, nothing else."""
        wheels = [str(self.wheels[name]) for name in distributions]
        options = ["--no-deps", "--no-index", "--quiet", "--disable-pip-version-check"]
        checked([sys.executable, "-m", "pip", "--python", self.python, "install", *options, *wheels])

    def uninstall(self, *distributions: str) -> None:
        """Take distributions away again."""
        options = ["--yes", "--quiet", "--disable-pip-version-check"]
        checked([sys.executable, "-m", "pip", "--python", self.python, "uninstall", *options, *distributions])

    def armature(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the `armature` script, away from the sources."""
        return run([str(self.folder / "bin" / "armature"), *arguments], cwd=self.folder)

    def run(self, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a program, written to a file so that its functions have sources, away from the sources of armature."""
        file = self.folder / "program.py"
        file.write_text(script)
        return run([self.python, str(file)], cwd=self.folder, env=ENVIRONMENT | variables)


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Distribution names to wheels, all built in one go."""
    sources, built = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheels")
    litter = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", ".*")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, sources / name, ignore=litter)
        else:
            shutil.copy(ROOT / name, sources / name)
    folders = [sources, *(sources / "plugins" / name for name in PLUGINS), sources / EXAMPLE, sources / BACK_END]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check"]
    checked([sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(built), *map(str, folders)])
    return {wheel.name.split("-")[0].replace("_", "-"): wheel for wheel in built.glob("*.whl")}


def borrow(target: Path) -> None:
    """Link every package of this environment into a folder, except those of armature."""
    target.mkdir()
    for folder in map(Path, sys.path):
        if folder.name not in ("site-packages", "dist-packages") or not folder.is_dir():
            continue
        for entry in folder.iterdir():
            if not entry.name.startswith(OURS) and not (target / entry.name).exists():
                (target / entry.name).symlink_to(entry)


@pytest.fixture(scope="session")
def new_environment(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Environment]:
    """Makes fresh environments."""
    borrowed = tmp_path_factory.mktemp("borrowed") / "packages"
    borrow(borrowed)

    def make() -> Environment:
        folder = tmp_path_factory.mktemp("environment")
        venv.create(folder, with_pip=False, symlinks=True)
        environment = Environment(folder, wheels)
        (environment.packages / "borrowed.pth").write_text(f"{borrowed}\n")
        return environment

    return make


@pytest.fixture(scope="module")
def core_only(new_environment: Callable[[], Environment]) -> Environment:
    environment = new_environment()
    environment.install(CORE)
    return environment


@pytest.fixture(scope="module")
def whole(new_environment: Callable[[], Environment]) -> Environment:
    environment = new_environment()
    environment.install(CORE, *NAMES)
    return environment


def listed(environment: Environment) -> dict[str, dict[str, object]]:
    """What `armature plugins --json` says, by distribution."""
    done = environment.armature("plugins", "--json")
    assert done.returncode == 0, done.stderr
    return {row["distribution"]: row for row in json.loads(done.stdout)}


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_all_wheels_are_built(wheels: dict[str, Path]) -> None:
    assert set(wheels) == {CORE, *NAMES, "armature-numpy", "armature-tinyframe"}


def test_the_core_has_all_its_files(wheels: dict[str, Path]) -> None:
    there = contents(wheels[CORE])
    wanted = [path for suffix in ("*.py", "*.j2", "py.typed") for path in (ROOT / "core").rglob(suffix)]
    names = {f"armature/{path.relative_to(ROOT / 'core')}" for path in wanted}
    assert names - there == set(), "list the package in pyproject.toml"
    assert any(name.startswith("armature/example_models/") for name in there)


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_has_all_its_files(name: str, wheels: dict[str, Path]) -> None:
    folder = ROOT / "plugins" / name
    paths = (path for path in (folder / f"armature_{name}").rglob("*") if path.is_file())
    names = {str(path.relative_to(folder)) for path in paths if path.suffix not in (".pyc", ".so")}
    assert names - contents(wheels[f"armature-{name.replace('_', '-')}"]) == set(), "list it as package-data"


@pytest.mark.parametrize("name", [CORE, *NAMES])
def test_no_tests_or_strays_are_shipped(name: str, wheels: dict[str, Path]) -> None:
    tops = {entry.split("/")[0] for entry in contents(wheels[name])}
    package = "armature" if name == CORE else name.replace("-", "_")
    assert {top for top in tops if not top.endswith(".dist-info")} == {package}


def test_the_core_alone_says_none(core_only: Environment) -> None:
    done = core_only.armature("plugins")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("none")
    assert "pip install" in done.stdout


def test_the_core_alone_runs_eagerly_and_says_what_to_install(core_only: Environment) -> None:
    done = core_only.run(ADDS)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "right\n"
    assert 'pip install "torch-armature[cpu]"' in done.stderr
    assert done.stderr.count("pip install") <= 2, "said once"


def test_the_core_alone_is_not_silent_in_strict_mode(core_only: Environment) -> None:
    done = core_only.run(ADDS, ARMATURE_STRICT="1")
    assert done.returncode != 0
    assert "torch-armature[cpu]" in done.stderr


def test_the_core_comes_from_the_wheel(core_only: Environment) -> None:
    done = core_only.run("import armature; print(armature.__file__)")
    assert done.stdout.startswith(str(core_only.packages)), done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_a_plugin_alone_next_to_the_core(name: str, core_only: Environment) -> None:
    core_only.install(name)
    try:
        done = core_only.run(ADDS + SAYS_PLUGINS)
        assert done.stdout.splitlines() == ["right", f"{name}: 0 problems"], done.stdout + done.stderr
    finally:
        core_only.uninstall(name)


def test_all_together(whole: Environment) -> None:
    assert set(listed(whole)) == set(NAMES)
    doctor = whole.armature("plugins", "doctor")
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    done = whole.run(ADDS.replace("@armature.compile", "@armature.compile(fullgraph=True)"), ARMATURE_STRICT="1")
    assert done.stdout == "right\n", done.stderr


def digest(folder: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()


def test_a_third_party_plugin_is_picked_up(whole: Environment, tmp_path: Path) -> None:
    before = digest(whole.packages / "armature")
    whole.install("armature-tinyframe")
    try:
        row = listed(whole)["armature-tinyframe"]
        assert row["version"] == "0.3.0"
        given = {"rules", "handlers", "value_types", "polyfills", "break_types", "passes"}
        assert set(row["rows"]) == given  # type: ignore[call-overload]
        assert whole.armature("tinyframe").stdout.startswith("tinyframe has")
        assert "armature-tinyframe" in whole.armature("why", "tinyframe.finite").stdout
        assert whole.armature("plugins", "doctor").returncode == 0
        assert "skipped" not in its_own_tests_pass(whole, EXAMPLE, tmp_path)
    finally:
        whole.uninstall("armature-tinyframe")
    assert digest(whole.packages / "armature") == before
    assert "armature-tinyframe" not in listed(whole)


def test_a_vendors_back_end_is_picked_up(whole: Environment, tmp_path: Path) -> None:
    before = digest(whole.packages / "armature")
    whole.install("armature-numpy")
    try:
        assert listed(whole)["armature-numpy"]["version"] == "0.1.0"
        assert whole.armature("plugins", "doctor").returncode == 0
        its_own_tests_pass(whole, BACK_END, tmp_path)
    finally:
        whole.uninstall("armature-numpy")
    assert digest(whole.packages / "armature") == before


def its_own_tests_pass(environment: Environment, example: str, folder: Path) -> str:
    """Run an example's tests against what is installed: they are copied away from its sources. Gives what they print."""
    shutil.copytree(ROOT / example / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    script = f"import pytest, sys; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', {str(folder / 'tests')!r}]))"
    done = environment.run(script, ARMATURE_STRICT="1")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
