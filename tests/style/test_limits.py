"""Limits on shape that not all of the code keeps yet: the exceptions are listed, and may only get fewer.

Each list is checked both ways: what is not on it keeps the limit, and what is on it still needs to be.
"""

from __future__ import annotations

import ast
import collections
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.style.test_shape_of_the_code import PRODUCT, ROOT, dotted, imports_of, name_of, parse

Function = ast.FunctionDef | ast.AsyncFunctionDef

# Classes of more than 25 public methods.
LARGE_CLASSES: set[str] = set()

# Where code may ask which Python it runs on: the opcodes of each version, and the code that is emitted for it.
VERSION_BRANCHES = {
    "core/cli/app.py",  # prints it
    "core/torch_abi/versions.py",
    "core/trace/bytecode/versions.py",  # facts, which are asked for by name
    "core/trace/bytecode/emitter.py",
    "core/trace/opcodes/__init__.py",
}

# `type: ignore`: at most; of core without trace. Examples of plugins are programs that break, wrong ones among them.
IGNORED_TYPES = {"core/trace": 2, "core": 3, "plugins": 2}

# Where plugins may say `Any`, each with its reason. Nowhere else: `object`, a Protocol, or the type says more.
SAYS_ANY = {
    "plugins/aten_lowerings/armature_aten_lowerings/kernel_layouts.py": "arguments of an operator, as its schema says",
    "plugins/builtin_rules/armature_builtin_rules/polyfills/": "functions of Python that take any object whatever",
}

# Lines of core/trace, comments among them. What is known of a library of Python or torch goes to a plugin.
LINES_OF_TRACE = 14_000

# Words of devices and plugins. torch_abi adapts to torch, which has names of devices in it; the command line shows a
# machine to people, and errors say what to install.
DEVICE_WORDS = re.compile(
    r"(?<![a-z])(cuda|triton|cpp|xpu|mps|cpu_cpp|gpu_triton|aten_lowerings|torch_handlers)(?![a-z])", re.IGNORECASE
)

# The settings of a compiler that back ends may use.
NAMES_A_COMPILER = {"core/config.py"}

# Classes that plugins have rows for. The core does not name them where it traces and guards.
OF_PLUGINS = {
    "OrderedDict", "defaultdict", "deque", "Counter", "ChainMap", "SimpleNamespace", "no_grad", "ScriptFunction",
    "operator.itemgetter", "operator.attrgetter", "operator.methodcaller",
}  # fmt: skip
# Tools of the library that the core may use: it calls them, or decorates with them, but asks for none of them.
TOOLS = {"partial", "lru_cache", "cache", "wraps", "nullcontext", "islice", "chain", "pairwise"}
# Layers over a library. `torch_abi` adapts to torch, which has its own numpy; plugins get them from `plugin_api`, and the
# kit for tests compares arrays.
LAYERS = {"numpy", "armature.torch_abi.numpy", "armature.torch_abi.scripts"}
LAYERS_IN = {"core/plugin_api.py", "core/testing/differential.py"}

# Modules of core/trace whose functions and classes take the whole trace. Others take `Tracing`, or the parts that they
# need.
WHOLE_TRACE = {
    "core/trace/emit/value_writer.py",  # the code that it writes depends on every part
    "core/trace/frame_state.py",  # a frame has it, for opcode functions
    "core/trace/interpreter.py",  # begins and ends it
    "core/trace/inlining.py",  # makes frames
    "core/trace/tracer.py",  # extends it by its verbs
}

# The work that each of our back ends does for kernels: a module of the same name in both.
OF_EVERY_BACK_END = {
    "alternatives", "backend", "batch", "features", "kernel_printer", "launch", "loops", "ops", "plugin",
    "product_printer", "reduce", "scans", "source", "toolchain", "values",
}  # fmt: skip

# Names that explain nothing. Parts, of something composed, may be an attribute.
SAYS_NOTHING = {
    "again", "kept", "passed", "through", "outside", "places", "lives", "parts", "early", "doubts", "buried", "spoken",
    "together", "remembered",
}  # fmt: skip
# Nor do these, as names of functions, classes and their attributes. A method of the API is documented by that name.
PARTICIPLES = {"back", "found", "given", "gone", "held", "known", "made", "seen", "told"}
# Keys of the output of commands, which users read.
KEYS_OF_OUTPUT = {"core/cli/doctor.py found", "core/reports/record.py places"}

# Where code asks whether a value has a builtin part: elsewhere `derives` and `native` say so.
ASKS_FOR_BASE: set[str] = {"core/trace/values/derived.py"}


def functions() -> Iterator[tuple[str, Function]]:
    for path in PRODUCT:
        for node in ast.walk(parse(path)):
            if isinstance(node, Function):
                yield f"{name_of(path)} {node.name}", node


def same(found: set[str], allowed: set[str], what: str) -> None:
    assert not found - allowed, f"{what}: {sorted(found - allowed)}"
    assert not allowed - found, f"no longer needed in the list of exceptions: {sorted(allowed - found)}"


def public_methods(node: ast.ClassDef) -> int:
    return sum(isinstance(part, Function) and not part.name.startswith("_") for part in node.body)


def declares(node: ast.ClassDef) -> bool:
    """Whether a class is a Protocol: it says what others have."""
    return any("Protocol" in ast.unparse(base) for base in node.bases)


def test_classes_have_at_most_25_public_methods() -> None:
    classes = ((path, node) for path in PRODUCT for node in ast.walk(parse(path)) if isinstance(node, ast.ClassDef))
    found = {
        f"{name_of(path)} {node.name}" for path, node in classes if public_methods(node) > 25 and not declares(node)
    }
    same(found, LARGE_CLASSES, "more than 25 public methods")


def test_functions_have_a_branch_complexity_of_at_most_15() -> None:
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "C901", "--output-format", "concise"]
    settings = ["--config", "lint.mccabe.max-complexity=15", "--line-length", "120"]
    done = subprocess.run([*command, *settings, *map(str, PRODUCT)], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    pattern = re.compile(r"^(.+?):\d+:\d+: C901 `(\w+)` is too complex", re.MULTILINE)
    found = {f"{name.removeprefix(f'{ROOT}/')} {function}" for name, function in pattern.findall(done.stdout)}
    same(found, set(), "too complex")


def test_functions_over_25_lines_say_what_they_do() -> None:
    long = ((name, node) for name, node in functions() if (node.end_lineno or node.lineno) - node.lineno >= 25)
    same({name for name, node in long if not ast.get_docstring(node)}, set(), "no docstring")


def asks_for_kind(test: ast.expr) -> bool:
    """Whether a condition asks what kind of value or object it has."""
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            return True
        if isinstance(node, ast.Attribute) and node.attr in ("base", "is_tensor", "is_constant", "is_symbolic"):
            return True
        if isinstance(node, ast.Compare) and re.match(r"type\(\w", ast.unparse(node.left)):
            return True
    return False


def test_functions_ask_at_most_four_times_for_the_kind_of_a_value() -> None:
    """A longer chain is a table of rows, or a method of the classes of values."""
    folders = ("core/trace/", "plugins/torch_handlers/", "plugins/builtin_rules/")
    asks = collections.Counter(
        name
        for name, function in functions()
        if name.startswith(folders)
        for node in ast.walk(function)
        if isinstance(node, ast.If | ast.IfExp) and asks_for_kind(node.test)
    )
    same({name for name, count in asks.items() if count > 4}, set(), "asks for kinds more than four times")


def test_versions_of_python_are_asked_for_in_few_places() -> None:
    asks = re.compile(
        r"\bsys\.version_info\b|^from armature\.trace\.bytecode\.versions import .*\bVERSION\b", re.MULTILINE
    )
    found = {name_of(path) for path in PRODUCT if asks.search(path.read_text())}
    same(found, VERSION_BRANCHES, "asks for Python's version")


def test_branches_on_a_version_are_in_opcodes_and_the_emitter() -> None:
    """Also those on a fact of `versions.py` that is true for some versions only."""
    tests = (ast.If, ast.IfExp)
    inside = [path for path in PRODUCT if name_of(path).startswith("core/")]
    conditions = ((path, node.test) for path in inside for node in ast.walk(parse(path)) if isinstance(node, tests))
    found = {
        name_of(path)
        for path, test in conditions
        if re.search(r"\b(NULL_FIRST|SEND_KEEPS_\w+|VERSION)\b", ast.unparse(test))
    }
    allowed = {"core/trace/bytecode/emitter.py", "core/trace/bytecode/versions.py"}
    same({name for name in found if not name.startswith("core/trace/opcodes/")}, allowed, "branches on a version")


@pytest.mark.parametrize(("folder", "most"), IGNORED_TYPES.items())
def test_types_are_seldom_ignored(folder: str, most: int) -> None:
    others = ROOT / "core/trace" if folder == "core" else None
    inside = [p for p in PRODUCT if p.is_relative_to(ROOT / folder) and not (others and p.is_relative_to(others))]
    inside = [p for p in inside if "examples" not in p.parts]
    found = [name_of(path) for path in inside for line in path.read_text().splitlines() if "# type: ignore" in line]
    assert len(found) <= most, found
    assert most == len(found), f"there are {len(found)}: lower the limit of {folder}"


def any_types(path: Path) -> int:
    """How often a file says `Any`: 1 if it only does so in texts, for which it has to import it."""
    said = sum("Any" in (getattr(node, "id", ""), getattr(node, "attr", "")) for node in ast.walk(parse(path)))
    return said or sum(name == "typing.Any" for _, name in imports_of(parse(path)))


def test_plugins_say_any_only_where_it_is_listed() -> None:
    """Examples may: they are programs of people."""
    inside = [path for path in PRODUCT if path.is_relative_to(ROOT / "plugins")]
    own = [path for path in inside if "examples" not in path.parts and path.stem != "examples"]
    found = {name_of(path): count for path in own if (count := any_types(path))}
    used = {place for place in SAYS_ANY if any(name.startswith(place) for name in found)}
    same(used, set(SAYS_ANY), "says Any")
    others = {name: count for name, count in found.items() if not name.startswith(tuple(SAYS_ANY))}
    assert not others, f"say object, a Protocol, or the type: {others}"


def test_tracing_keeps_to_its_number_of_lines() -> None:
    inside = [path for path in PRODUCT if path.is_relative_to(ROOT / "core/trace")]
    lines = sum(path.read_text().count("\n") for path in inside)
    assert lines <= LINES_OF_TRACE, f"core/trace has {lines} lines"


def test_the_core_names_no_device_and_no_plugin() -> None:
    free = ("core/torch_abi/", "core/cli/")
    inside = [p for p in PRODUCT if name_of(p).startswith("core/") and not name_of(p).startswith(free)]
    named = (path for path in inside if DEVICE_WORDS.search(path.read_text()))
    found = {name_of(path) for path in named if DEVICE_WORDS.search(without_docstrings(path))}
    same(found, NAMES_A_COMPILER, "names a device or a plugin")


def test_the_core_has_no_device_as_a_text() -> None:
    free = ("core/torch_abi/", "core/cli/", "core/testing/")
    inside = [p for p in PRODUCT if name_of(p).startswith("core/") and not name_of(p).startswith(free)]
    texts = ((path, node.value) for path in inside for node in ast.walk(parse(path)) if isinstance(node, ast.Constant))
    assert {(name_of(path), text) for path, text in texts if text in ("cpu", "cuda", "mps", "xpu")} == set()


def test_tracing_in_the_core_names_no_class_that_plugins_have_rows_for() -> None:
    inside = [path for path in PRODUCT if name_of(path).startswith(("core/trace/", "core/frame/guards/"))]
    found = {f"{name_of(path)} {name}" for path in inside for name in names_of_plugins(path)}
    same(found, set(), "names what a plugin has rows for")


def names_of_plugins(path: Path) -> Iterator[str]:
    """Classes that plugins have rows for, and tools that are neither called nor decorate anything."""
    tree = parse(path)
    used = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    used += [one for node in ast.walk(tree) if isinstance(node, Function) for one in node.decorator_list]
    allowed = {id(node) for node in used}
    for node in ast.walk(tree):
        name = dotted(node)
        last = name.rpartition(".")[2]
        if last in OF_PLUGINS or name in OF_PLUGINS or (last in TOOLS and id(node) not in allowed):
            yield name


def test_layers_over_libraries_are_for_plugins() -> None:
    core = [path for path in PRODUCT if name_of(path).startswith("core/") and "torch_abi" not in path.parts]
    found = {name_of(path) for path in core if any(name in LAYERS for _, name in imports_of(parse(path)))}
    same(found, LAYERS_IN, "imports a layer over a library")


def test_modules_of_tracing_take_the_parts_that_they_need() -> None:
    inside = [path for path in PRODUCT if name_of(path).startswith("core/trace/")]
    takes = {name_of(path) for path in inside for node in ast.walk(parse(path)) if takes_whole_trace(node)}
    same(takes, WHOLE_TRACE, "takes the whole trace")


def takes_whole_trace(node: ast.AST) -> bool:
    """Whether a parameter, attribute or base class is the trace itself."""
    kind = node.annotation if isinstance(node, ast.arg | ast.AnnAssign) else None
    bases = node.bases if isinstance(node, ast.ClassDef) else []
    return any(re.search(r"\b(Trace|Tracer)\b", ast.unparse(one)) for one in (kind, *bases) if one is not None)


def test_one_module_asks_whether_a_value_has_a_builtin_part() -> None:
    inside = [path for path in PRODUCT if name_of(path).startswith(("core/trace/", "plugins/"))]
    asks = re.compile(r"(?<!row)\.base is (not )?None\b")
    same({name_of(path) for path in inside if asks.search(path.read_text())}, ASKS_FOR_BASE, "asks for `.base`")


def test_one_module_knows_the_kinds_of_guards() -> None:
    """What others ask of a guard is an attribute of `Guard`, so that a new kind is one class in one file."""
    home = ROOT / "core/frame/guards/kinds.py"
    kinds = {node.name for node in parse(home).body if isinstance(node, ast.ClassDef) and node.name.endswith("Guard")}
    assert len(kinds) > 10
    others = [path for path in PRODUCT if name_of(path).startswith("core/") and path != home]
    found = {f"{name_of(path)}:{node.lineno}" for path in others for node in asked_kinds(parse(path), kinds)}
    assert not found, f"asks for the kind of a guard: {sorted(found)}"


def asked_kinds(tree: ast.AST, kinds: set[str]) -> Iterator[ast.expr]:
    """The classes among `kinds` that objects are asked for: by `isinstance`, a class pattern or a comparison."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name("isinstance" | "issubclass"), args=[_, asked]) | ast.MatchClass(cls=asked):
                where = [asked]
            case ast.Compare(comparators=where):
                pass
            case _:
                continue
        names = (one for asked in where for one in ast.walk(asked) if isinstance(one, ast.Name | ast.Attribute))
        yield from (one for one in names if dotted(one).rpartition(".")[2] in kinds)


def test_the_same_work_has_the_same_file_name_in_both_back_ends() -> None:
    folders = (ROOT / "plugins/cpu_cpp/armature_cpu_cpp", ROOT / "plugins/gpu_triton/armature_gpu_triton")
    cpu, gpu = ({path.stem for path in folder.glob("*.py")} - {"__init__"} for folder in folders)
    assert cpu & gpu == OF_EVERY_BACK_END


def without_docstrings(path) -> str:  # type: ignore[no-untyped-def]
    """The code of a module without comments, and without the strings that stand alone."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [part for part in body if not is_text(part)] or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.unparse(tree)


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def named_in(path: Path) -> Iterator[str]:
    """The names of a module, its functions, classes and constants."""
    yield path.stem
    tree = parse(path)
    yield from (node.name for node in ast.walk(tree) if isinstance(node, Function | ast.ClassDef))
    made = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    names = (one for node in made for one in ast.walk(node) if isinstance(one, ast.Name))
    yield from (one.id for one in names if isinstance(one.ctx, ast.Store))


def explained() -> Iterator[Path]:
    """The modules whose names have to explain something: all but examples, which are programs of people."""
    inside = (path for path in PRODUCT if name_of(path).startswith(("core/", "plugins/")))
    yield from (path for path in inside if "examples" not in path.parts)


def test_names_explain_something() -> None:
    found = {
        f"{name_of(path)} {name}"
        for path in explained()
        for name in named_in(path)
        if name.strip("_").lower() in SAYS_NOTHING
    }
    assert not found


def attributes_of_classes(path: Path) -> Iterator[str]:
    """The attributes that classes declare, and those that methods set on `self`."""
    tree = parse(path)
    bodies = (node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    for part in (part for body in bodies for part in body):
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            yield part.target.id
    stored = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    yield from (node.attr for node in stored if isinstance(node.value, ast.Name) and node.value.id == "self")


def test_names_of_functions_and_attributes_explain_something() -> None:
    found = {
        f"{name_of(path)} {name}"
        for path in explained()
        for name in (*named_in(path), *attributes_of_classes(path))
        if name.strip("_").lower() in PARTICIPLES | SAYS_NOTHING - {"parts"}
    }
    same(found, KEYS_OF_OUTPUT, "explains nothing")
