"""Verdicts on a line of a file: on the function that contains it, and on its calls. The file is read, not run."""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import attrs
import torch

from armature.errors import UnknownName
from armature.introspection import MISSING, class_member
from armature.rules.errors import NotAFile, NothingCalled
from armature.rules.names import importable, resolve
from armature.rules.provenance import Why, why, why_call, why_frame

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
PLACE = re.compile(r"(?P<file>.+\.pyi?|.*[/\\].+):(?P<line>\d+)")


@attrs.frozen
class LineAnswer:
    """Verdicts on a line. unresolved: calls whose target is only known at run time."""

    place: str
    text: str
    answers: tuple[Why, ...]
    unresolved: tuple[str, ...]

    def as_data(self) -> dict[str, object]:
        """The answer for `--json`."""
        return {
            "place": self.place,
            "text": self.text,
            "answers": [answer.as_data() for answer in self.answers],
            "unresolved": list(self.unresolved),
        }


def as_place(text: str) -> tuple[Path, int] | None:
    """The file and line of "model.py:41", None for another text."""
    found = PLACE.fullmatch(text)
    return (Path(found["file"]), int(found["line"])) if found else None


def why_line(path: Path, line: int) -> LineAnswer:
    """The verdicts on a line. Raises NotAFile and NothingCalled."""
    program = Program.read(path)
    place = f"{path}:{line}"
    lines = program.text.splitlines()
    if not 1 <= line <= len(lines):
        raise NothingCalled(place=place, fix=f"The file has {len(lines)} lines.")
    calls = [call.func for call in program.calls(line)]
    found = [program.answer(func) for func in calls]
    answers = [*program.frames(line), *(answer for answer in found if isinstance(answer, Why))]
    if not answers and not found:
        raise NothingCalled(place=place, fix="Give a line inside a function, or one with a call.")
    unresolved = tuple(dict.fromkeys(answer for answer in found if isinstance(answer, str)))
    return LineAnswer(
        place,
        lines[line - 1].strip(),
        tuple({(answer.name, answer.kind): answer for answer in reversed(answers)}.values())[::-1],
        unresolved,
    )


@attrs.define(eq=False)
class Program:
    """A file as text, syntax tree and code, and what its names refer to, as far as that is known without running it."""

    path: Path
    text: str
    tree: ast.Module
    code: CodeType
    module: str
    names: dict[str, str] = attrs.field(factory=dict)

    @classmethod
    def read(cls, path: Path) -> Program:
        """The program of a file. Raises NotAFile."""
        try:
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text, str(path))
            code = compile(tree, str(path), "exec", dont_inherit=True)
        except (OSError, SyntaxError, ValueError) as error:
            raise NotAFile(file=path, problem=error) from error
        made = cls(path, text, tree, code, module_of(path))
        made.names |= dict(made._imports())
        return made

    def calls(self, line: int) -> Iterator[ast.Call]:
        """The calls on a line, from left to right."""
        found = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        here = [node for node in found if line in (node.lineno, node.func.end_lineno)]
        return iter(sorted(here, key=lambda node: (node.func.end_lineno or 0, node.func.end_col_offset or 0)))

    def frames(self, line: int) -> Iterator[Why]:
        """The verdicts on frames of the innermost function around a line, and of lambdas that begin on it."""
        around = [node for node in ast.walk(self.tree) if isinstance(node, FUNCTIONS) and covers(node, line)]
        on_it = [node for node in around if isinstance(node, ast.Lambda) and node.lineno == line]
        wider = [node for node in around if node not in on_it]
        for node in ([max(wider, key=first_line)] if wider else []) + on_it:
            yield self._of_frame(node)

    def answer(self, func: ast.expr) -> Why | str:
        """The verdict on the callee; a text if it is only known at run time."""
        text = ast.unparse(func)
        root, _, rest = text.partition(".")
        if not all(part.isidentifier() for part in text.split(".")):
            return self._method(func, text)
        own = self._own(func, text)
        if own is not None:
            return self._of_call(own)
        dotted = self.names.get(root) or (f"builtins.{root}" if hasattr(builtins, root) else "")
        try:
            return why(f"{dotted}.{rest}" if rest else dotted) if dotted else self._method(func, text)
        except UnknownName:
            return self._method(func, text)

    def _method(self, func: ast.expr, text: str) -> Why | str:
        """A method of an object that is only known at run time: the tensor method, if there is one of that name."""
        if not isinstance(func, ast.Attribute) or class_member(torch.Tensor, func.attr) is MISSING:
            return text
        found = why(f"torch.Tensor#{func.attr}")
        note = f"if {ast.unparse(func.value)} is a tensor, which reading the file does not tell"
        return attrs.evolve(found, notes=(note, *found.notes))

    def _own(self, func: ast.expr, text: str) -> Definition | None:
        """The called function of the file: by its name, or as a method of `self`."""
        wanted = text.removeprefix("self.")
        classes = [n for n in ast.walk(self.tree) if isinstance(n, ast.ClassDef) and covers(n, func.lineno)]
        place = max(classes, key=first_line, default=None) if wanted != text else self.tree
        inside = place.body if place is not None else []
        return next((n for n in inside if isinstance(n, FUNCTIONS[:2]) and n.name == wanted), None)

    def _of_frame(self, node: Definition) -> Why:
        name, spelled, code = self._named(node)
        real = getattr(self._imported(name), "__code__", None)
        if isinstance(real, CodeType) and Path(real.co_filename).resolve() == self.path.resolve():
            return why_frame(name, real, self.module)
        return why_frame(name, code, self.module, spelled=spelled)

    def _of_call(self, node: Definition) -> Why:
        name, spelled, code = self._named(node)
        return why_call(name, code, self.module, spelled) if self._imported(name) is MISSING else why(name)

    def _named(self, node: Definition) -> tuple[str, str, CodeType]:
        """The full name of a definition, how its own module can refer to it, and its code."""
        code = next(code for code in nested(self.code) if fits(code, node))
        return f"{self.module}.{code.co_qualname}", "fn" if "<" in code.co_qualname else code.co_qualname, code

    def _imported(self, name: str) -> object:
        """The name's value in the imported module, to which rules for the very function apply; or MISSING.

        Only modules of packages are imported, because a standalone file may be a program.
        """
        if "." not in self.module or "<" in name or not importable(self.module.partition(".")[0]):
            return MISSING
        try:
            found = resolve(name)
        except UnknownName:
            return MISSING
        file = getattr(sys.modules.get(self.module), "__file__", None) or ""
        return found if Path(file).resolve() == self.path.resolve() else MISSING

    def _imports(self) -> Iterator[tuple[str, str]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield (
                        alias.asname or alias.name.partition(".")[0],
                        alias.name if alias.asname else alias.name.partition(".")[0],
                    )
            elif isinstance(node, ast.ImportFrom):
                package = self.module.split(".")[: -node.level] if node.level else []
                base = ".".join([*package, *([node.module] if node.module else [])])
                yield from ((alias.asname or alias.name, f"{base}.{alias.name}") for alias in node.names)


def module_of(path: Path) -> str:
    """The dotted name under which a file is imported, as far as its folders tell."""
    path = path.resolve()
    parts = [] if path.stem == "__init__" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts)


def first_line(node: Definition) -> int:
    """The first line of a definition, its decorators included."""
    decorators = [] if isinstance(node, ast.Lambda) else [d.lineno for d in node.decorator_list]
    return min([node.lineno, *decorators])


def covers(node: Definition, line: int) -> bool:
    """Whether a line is within a definition."""
    return first_line(node) <= line <= (node.end_lineno or node.lineno)


def nested(code: CodeType) -> Iterator[CodeType]:
    """The code and all code within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested(constant)


def fits(code: CodeType, node: Definition) -> bool:
    """Whether a code object is the compiled form of a definition."""
    return code.co_name == getattr(node, "name", "<lambda>") and code.co_firstlineno == first_line(node)
