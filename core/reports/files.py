"""The files of a report: the format of each, and a check that they can be written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from armature.errors import ArmatureError
from armature.reports import chrome_trace, html, sarif, schema
from armature.reports.record import Recording

UNREADABLE = "backslashreplace"  # file names may contain bytes that are not valid text


class CannotWriteReport(ArmatureError):
    """The file of a report can't be written."""

    code = "A241"
    text = "the report can't be written to {path}: {problem}"
    hint = "Name a file in a folder of yours that has room."


class CannotReadRecord(ArmatureError):
    """The file of a record can't be read."""

    code = "A242"
    text = "the record {path} can't be read: {problem}"
    hint = "Make it with `armature explain SCRIPT --json {path}`."


def write_text(path: Path, text: str) -> None:
    """Write a text of a report, which may contain file names that are not valid text. Errors: OSError."""
    path.write_text(text, encoding="utf-8", errors=UNREADABLE)


def absolute(path: Path | None) -> Path | None:
    """The path from the root of the file system."""
    return None if path is None else path.absolute()


@attrs.frozen
class Reports:
    """The files to write, by format; None: not wanted. Paths are absolute, so the program may change its working
    folder."""

    html: Path | None = attrs.field(default=None, converter=absolute)
    json: Path | None = attrs.field(default=None, converter=absolute)
    sarif: Path | None = attrs.field(default=None, converter=absolute)
    trace: Path | None = attrs.field(default=None, converter=absolute)

    def _formats(self) -> Iterator[tuple[Path, Callable[[Recording], str]]]:
        forms: tuple[tuple[Path | None, Callable[[Recording], str]], ...] = (
            (self.html, html.page),
            (self.json, schema.as_json),
            (self.sarif, sarif.as_sarif),
            (self.trace, chrome_trace.as_trace),
        )
        yield from ((path, form) for path, form in forms if path is not None)

    def check(self) -> None:
        """Create the folders before the program runs, so that an error is reported early. Errors: CannotWriteReport."""
        for path, _ in self._formats():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise CannotWriteReport(path=path, problem=error.strerror or error) from error
            if path.is_dir():
                raise CannotWriteReport(path=path, problem="it is a folder")
            if not os.access(path if path.exists() else path.parent, os.W_OK):
                raise CannotWriteReport(path=path, problem="there is no permission to write there")

    def write(self, recording: Recording, on_written: Callable[[Path], None]) -> CannotWriteReport | None:
        """Write every file that can be written, then raise the first error if there was one. on_written: called with
        each path that was written."""
        problem = None
        for path, form in self._formats():
            try:
                write_text(path, form(recording))
                on_written(path)
            except OSError as error:
                problem = problem or CannotWriteReport(path=path, problem=error.strerror or error)
            except Exception as error:  # the other formats are written even if one fails
                problem = problem or CannotWriteReport(path=path, problem=f"{type(error).__name__}: {error}")
        return problem


def read(path: Path) -> Recording:
    """The record in a file. Errors: CannotReadRecord, NotARecord."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CannotReadRecord(path=path, problem=error) from error
    return schema.from_json(text, path)
