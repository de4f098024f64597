"""Loads a built library: its kernels as Python callables."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch

from armature.plugin_api import BackendError
from armature_cpu_cpp.source import ENTRY

# The slot in DLPack's table of exchange functions (version 1) of the function that fills a non-owning view of a tensor:
# after two 32-bit version numbers, a pointer to an older table, and three owning functions.
DLPACK_MAJOR, VIEW_SLOT = 1, 5


def view_function() -> int | None:
    """Address of the function from tensor to DLPack view; None if this torch has none (then data_ptr is called)."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    try:
        table = get_pointer(capsule, b"dlpack_exchange_api")
    except ValueError:
        return None
    if not table or ctypes.c_uint32.from_address(table).value != DLPACK_MAJOR:
        return None
    return ctypes.c_void_p.from_address(table + VIEW_SLOT * ctypes.sizeof(ctypes.c_void_p)).value


def load(path: Path, names: Iterable[str]) -> Mapping[str, Callable[..., None]]:
    """The library's kernels by name, in the order of its text. Errors: BackendError if it can't be loaded."""
    try:
        library = ctypes.PyDLL(str(path))
        entry = getattr(library, ENTRY)
    except (OSError, AttributeError) as error:
        fix = "It was built for this process: check that the compiler and the libraries it links are this machine's."
        raise BackendError(backend="cpu_cpp", what=str(path), message=str(error), fix=fix) from error
    entry.restype, entry.argtypes = ctypes.py_object, [ctypes.c_void_p]
    return dict(zip(names, entry(view_function()), strict=True))
