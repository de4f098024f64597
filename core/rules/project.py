"""Rules of a project: `[tool.armature.rules]` in the nearest pyproject.toml that has it, from a folder upwards.

[tool.armature.rules]
skip = ["mylib.io", "mylib.report.Report#save"]
inline = [{ name = "mylib.fast", reason = "plain Python over torch functions", requires = "mylib>=2" }]
in_graph = ["mylib.ops.fused"]
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import attrs
from packaging.requirements import InvalidRequirement, Requirement

from armature.rules.data import PROJECT_FIRST, Decision, Rule, RuleOrigin
from armature.rules.errors import BadProjectRule
from armature.rules.targets import USER, is_dotted

FILE = "pyproject.toml"
SECTION = "tool.armature.rules"
DECISIONS = {decision.value: decision for decision in Decision}
FIELDS = ("name", "reason", "requires")
ENTRY = 'Write a name, "pkg.mod.fn", or { name = "pkg.mod.fn", reason = "why" }.'
# A string or a comment; a quote inside a comment does not start a string.
TOKEN = re.compile(r"\"\"\".*?\"\"\"|'''.*?'''|\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'|#[^\n]*", re.DOTALL)


def project_rules(folder: Path) -> tuple[Rule, ...]:
    """The rules of the project that contains the folder; none without a project. Raises BadProjectRule."""
    for place in (folder, *folder.parents):
        path = place / FILE
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if "armature" in text and (rules := Reader(path, text).rules()) is not None:
            return rules
    return ()


@attrs.frozen
class Reader:
    """Reads one file, and finds the lines of its values."""

    path: Path
    text: str

    def rules(self) -> tuple[Rule, ...] | None:
        """The rules of the file, None if it has no section for them. Raises BadProjectRule."""
        section = self._section()
        if section is None:
            return None
        found = tuple(self._all(section))
        seen: dict[str, Rule] = {}
        for rule in found:
            first = seen.setdefault(f"{rule.target} {rule.requires}", rule)
            if first is not rule:
                self._twice(first, rule)
        return found

    def _section(self) -> Mapping[str, Any] | None:
        try:
            section: Mapping[str, Any] = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            if "tool.armature" not in self.text:
                return None  # for another tool to report
            where = re.search(r"line (\d+)", str(error))
            line = int(where[1]) if where else self.text.rstrip().count("\n") + 1
            self._wrong(line, f"the file is not TOML: {error}", "Mend the file.")
        for name in SECTION.split("."):
            if name not in section:
                return None
            if not isinstance(section[name], Mapping):
                self._wrong(self._line_of_key(name), f"{name} is not a table", f"Write a table [{SECTION}].")
            section = section[name]
        return section

    def _all(self, section: Mapping[str, Any]) -> Iterator[Rule]:
        strings = Strings(self.text, self._start())
        for key, entries in section.items():
            if key not in DECISIONS:
                near = difflib.get_close_matches(key, DECISIONS, n=1, cutoff=0.4)
                known = ", ".join(DECISIONS)
                fix = f"Did you mean {near[0]}? It may have: {known}." if near else f"It may have: {known}."
                self._wrong(self._line_of_key(key), f"there is no {key!r}", fix)
            if not isinstance(entries, list):
                self._wrong(self._line_of_key(key), f"{key} is {entries!r}, not a list", f'Write {key} = ["pkg.mod"].')
            for entry in entries:
                yield self._rule(DECISIONS[key], key, entry, strings)

    def _rule(self, decision: Decision, key: str, entry: object, strings: Strings) -> Rule:
        fields = {"name": entry} if isinstance(entry, str) else entry
        if not isinstance(fields, Mapping):
            self._wrong(self._line_of_key(key), f"{key} has the entry {entry!r}", ENTRY)
        written = [value for value in fields.values() if isinstance(value, str)]
        line = strings.line_of(written) or self._line_of_key(key)
        for name, value in fields.items():
            if name not in FIELDS:
                self._wrong(line, f"an entry has no {name!r}", f"It may have: {', '.join(FIELDS)}.")
            if not isinstance(value, str) or not value:
                self._wrong(line, f"{name} is {value!r}, not a string", ENTRY)
        if "name" not in fields:
            self._wrong(line, f"an entry of {key} has no name", ENTRY)
        if not is_dotted(fields["name"]):
            self._wrong(line, f"{fields['name']!r} is not a dotted name", ENTRY)
        requires = fields.get("requires", "")
        self._check_requirement(line, requires)
        reason = fields.get("reason", f"[{SECTION}] of {FILE} says so")
        origin = RuleOrigin(USER, str(self.path), line)
        return Rule(fields["name"], decision, reason, PROJECT_FIRST, requires, origin)

    def _check_requirement(self, line: int, requires: str) -> None:
        try:
            _ = requires and Requirement(requires)
        except InvalidRequirement as error:
            self._wrong(line, f"requires is {requires!r}: {error}", 'Write a distribution and versions: "mylib>=2,<3".')

    def _twice(self, first: Rule, second: Rule) -> None:
        line = first.origin.line if first.origin else 0
        problem = (
            f"{second.target} stands here and in line {line}, as {second.decision.value} and {first.decision.value}"
        )
        self._wrong(second.origin.line if second.origin else 0, problem, "Keep one of them.")

    def _start(self) -> int:
        """The line where the section probably begins."""
        found = re.search(rf"^\s*\[\s*{re.escape(SECTION)}\s*\]", self.text, re.MULTILINE)
        return found.start() if found else max(self.text.find("armature"), 0)

    def _line_of_key(self, key: str) -> int:
        pattern = re.compile(rf"^[^\n#]*\b{re.escape(key)}\b", re.MULTILINE)
        found = pattern.search(self.text, self._start()) or pattern.search(self.text)
        return self.text.count("\n", 0, found.end()) + 1 if found else 0

    def _wrong(self, line: int, problem: str, fix: str) -> NoReturn:
        raise BadProjectRule(where=f"{self.path}:{line}" if line else str(self.path), problem=problem, fix=fix)


@attrs.define(eq=False)
class Strings:
    """The strings of a file in order, from a position on, because tomllib does not tell where a value is."""

    text: str
    at: int

    def line_of(self, values: Iterable[str]) -> int:
        """The line of the first of the next strings with these values, 0 if they are not found."""
        first = 0
        for value in values:
            for token in TOKEN.finditer(self.text, self.at):
                if not token[0].startswith("#") and tomllib.loads(f"v = {token[0]}")["v"] == value:
                    first = first or self.text.count("\n", 0, token.start()) + 1
                    self.at = token.end()
                    break
        return first
