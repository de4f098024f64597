"""Methods written in C that decide which class their result has, for an object of a derived class.

Special dicts call the class of the object to make a copy. A text that has nothing to change may return itself.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict

from armature.plugin_api import Function

METHODS: dict[type, tuple[str, ...]] = {
    OrderedDict: ("copy", "__copy__", "__or__", "__ror__"),
    defaultdict: ("copy", "__copy__", "__or__", "__ror__"),
    str: ("format", "format_map", "partition", "rpartition", "__mod__"),
    bytes: ("partition", "rpartition", "__mod__"),
}
ROWS = tuple(
    Function(getattr(kind, name), chooses_class=True)
    for kind, names in METHODS.items()
    for name in names
    if hasattr(kind, name)
)
