"""Arguments of functions and methods of the standard library that `inspect.signature` can't tell."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections import OrderedDict, defaultdict, deque

from armature.plugin_api import Signature

ANY = ("**",)
ROWS = (
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
    # From Python 3.13 on they tell; the handler has the words for what they refuse.
    Signature(operator.attrgetter, counts=(0, math.inf)),
    Signature(operator.itemgetter, counts=(0, math.inf)),
    Signature(operator.methodcaller, ANY, (0, math.inf)),
)
