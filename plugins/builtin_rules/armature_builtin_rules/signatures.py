"""Parameters of functions and methods of Python and its standard library for which `inspect.signature` fails."""

from __future__ import annotations

import builtins
import functools
import importlib
import itertools
import math
import operator
import types
from collections import OrderedDict, defaultdict, deque

from armature.plugin_api import Signature

ANY = ("**",)
MANY = (0, math.inf)
# The arguments of what they have in C are checked.
MODULES = (
    "builtins", "itertools", "_heapq", "_bisect",
    "_functools", "functools", "_operator", "operator", "math", "_collections", "collections",
)  # fmt: skip
ROWS = (
    *(Signature(importlib.import_module(name)) for name in MODULES),
    Signature(int, ("base",), MANY),
    Signature(bytes, ("source", "encoding", "errors"), MANY),
    Signature(str, ("object", "encoding", "errors"), MANY),
    Signature(str.format, ANY, MANY),
    Signature(bytes.hex, ("sep", "bytes_per_sep"), MANY),
    Signature(type, ANY, MANY),
    Signature(super, counts=(0, 2)),
    Signature(builtins.__build_class__, ANY, MANY),
    Signature(builtins.__import__, ("name", "globals", "locals", "fromlist", "level"), (1, 5)),
    # from 3.13 on it has a signature, and is called with its class
    Signature(vars(object)["__init_subclass__"], counts=MANY),
    Signature(list.__init__, (), (1, 2)),
    Signature(set.__init__, (), (1, 2)),
    *(Signature(method, counts=(2, 2)) for method in (set.symmetric_difference, frozenset.symmetric_difference)),
    Signature(set.symmetric_difference_update, counts=(2, 2)),
    Signature(dict, ANY, (0, 1)),
    Signature(dict.__init__, counts=(1, 2)),
    Signature(dict.update, ANY, (1, 2)),
    *(Signature(method, counts=(1, 1)) for method in (dict.items, dict.keys, dict.values)),
    Signature(types.MappingProxyType, ("mapping",), MANY),
    Signature(zip, ("strict",), MANY),
    *(Signature(choice, ("key", "default"), MANY) for choice in (min, max)),
    *(Signature(error, ("name", "path"), MANY) for error in (ImportError, ModuleNotFoundError)),
    Signature(NameError, ("name",), MANY),
    Signature(AttributeError, ("name", "obj"), MANY),
    *(Signature(method, counts=(2, 2)) for method in (BaseException.with_traceback, BaseException.add_note)),
    Signature(types.GeneratorType.close, counts=(1, 1)),
    Signature(types.GeneratorType.send, counts=(2, 2)),
    Signature(types.GeneratorType.throw, counts=(2, 4)),
    Signature(OrderedDict, ANY, (0, 1)),
    Signature(OrderedDict.__init__, counts=(1, 2)),
    Signature(OrderedDict.update, ANY, (1, 2)),
    Signature(OrderedDict.pop, ("key", "default")),
    Signature(OrderedDict.items, counts=(1, 1)),
    Signature(OrderedDict.keys, counts=(1, 1)),
    Signature(OrderedDict.values, counts=(1, 1)),
    Signature(defaultdict, ANY),
    Signature(deque, ("iterable", "maxlen")),
    Signature(functools.partial, ANY),
    Signature(functools.cmp_to_key, ("mycmp",)),
    Signature(itertools.islice, counts=(2, 4)),
    Signature(itertools.product, ("repeat",)),
    Signature(itertools.repeat, ("object", "times")),
    Signature(itertools.zip_longest, ("fillvalue",)),
    # From Python 3.13 on they have signatures; the handler words the errors.
    Signature(operator.attrgetter, counts=MANY),
    Signature(operator.itemgetter, counts=MANY),
    Signature(operator.methodcaller, ANY, MANY),
)
