"""The stack that generated code needs, compared with what CPython's compiler computes for its own code."""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import dataclasses
import inspect
import json.decoder
import subprocess
import tarfile
import typing
from collections.abc import Iterator
from types import CodeType, ModuleType

import pytest
from bytecode import Bytecode

from armature.frame.stack_size import SPARE, stack_size

MODULES = (argparse, ast, collections, contextlib, dataclasses, inspect, json.decoder, subprocess, tarfile, typing)


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """A code object and those nested in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_no_less_than_the_compiler_gives_and_hardly_more(module: ModuleType) -> None:
    whole = compile(inspect.getsource(module), module.__name__, "exec")
    found = [(code, stack_size(Bytecode.from_code(code))) for code in codes_in(whole)]
    assert not [code.co_qualname for code, size in found if size < code.co_stacksize]
    assert not [code.co_qualname for code, size in found if size > code.co_stacksize + SPARE]
