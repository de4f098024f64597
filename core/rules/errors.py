"""Errors in the user's rules: in calls, as decorators, and in pyproject.toml."""

from __future__ import annotations

from armature.errors import ArmatureError


class BadTarget(ArmatureError):
    """The target can't have such a rule, or can't be used in this way."""

    code = "A220"
    text = "{call} was given {target}: {problem}"
    hint = "{fix}"


class BadProjectRule(ArmatureError):
    """An entry of [tool.armature.rules] is wrong."""

    code = "A221"
    text = "[tool.armature.rules]: {problem}"
    hint = "{fix}"


class SignatureMismatch(ArmatureError):
    """A polyfill's parameters differ from those of the function that it replaces."""

    code = "A222"
    text = "{replacement}{given} can't stand for {original}{wanted}: {problem}"
    hint = "Write it as def {name}{wanted}, or pass check_signature=False if every call that you make fits both."


class NothingCalled(ArmatureError):
    """A line of a file with nothing to give a verdict on."""

    code = "A223"
    text = "there is no function and no call at {place}"
    hint = "{fix}"


class NotAFile(ArmatureError):
    """A FILE:LINE whose file can't be read, or is not a Python program."""

    code = "A224"
    text = "{file} can't be read as a Python program: {problem}"
    hint = "Give a path to a .py file and a line, as in model.py:41."
