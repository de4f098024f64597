"""The fast paths. They are functions of Python's C library, which a compiler of Python can't look into."""

from __future__ import annotations

import ctypes

# width(sequence) -> int: the number of columns.
width = ctypes.PYFUNCTYPE(ctypes.c_ssize_t, ctypes.py_object)(("PyObject_Size", ctypes.pythonapi))

# joined(first, second) -> sequence: the columns of both, in order.
joined = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object)(
    ("PySequence_Concat", ctypes.pythonapi)
)
