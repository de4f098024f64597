"""A small library of named tensor columns. It knows nothing of armature."""

from tinyframe.files import load
from tinyframe.frame import Frame
from tinyframe.native import joined, width
from tinyframe.operations import finite, standardize, total
from tinyframe.options import Options, option

__all__ = ["Frame", "Options", "finite", "joined", "load", "option", "standardize", "total", "width"]
