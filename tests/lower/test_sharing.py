"""Which operators give parts of their arguments back, also where their schemas do not say so."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from armature.lower.data import ExternCall, View
from armature.lower.sharing import makes_memory, shared_memory

aten = torch.ops.aten


def call(target: Any, *args: Any, outputs: tuple[str, ...], name: str = "call") -> ExternCall:
    given = tuple(View(a, (4,), (1,)) if isinstance(a, str) else a for a in args)
    return ExternCall(name, target, given, {}, outputs)


def test_what_shares_memory() -> None:
    calls = [
        call(aten.as_strided.default, "a", (2,), (1,), outputs=("b",)),
        call(aten.mm.default, "b", "b", outputs=("c",)),
        call(aten.split.Tensor, "b", 2, outputs=("d", "e")),
        call(aten.unsafe_split.Tensor, "f", 2, outputs=("g", "h")),
    ]
    found = shared_memory(calls)
    assert set(found) == {"a", "b", "d", "e", "f", "g", "h"}
    assert len({found[name] for name in "abde"}) == 1 and len({found[name] for name in "fgh"}) == 1
    assert found["a"] != found["f"]


class SharesInSpiteOfItsSchema(TorchDispatchMode):
    """Notes the operators whose results lie in their arguments' memory while their schemas promise new memory."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[torch._ops.OpOverload] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if all(result.alias_info is None for result in func._schema.returns):
            given = {_memory(t) for t in tree_leaves((args, kwargs))} - {None}
            if any(_memory(t) in given for t in tree_leaves(made)):
                self.found.add(func)
        return made


def _memory(value: object) -> int | None:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    storage = value.untyped_storage()
    return storage._cdata if storage.nbytes() else None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_operators_whose_schemas_do_not_tell_are_known() -> None:
    torch.manual_seed(0)
    watch = SharesInSpiteOfItsSchema()
    for op in op_db:
        if torch.float32 not in op.dtypes:
            continue
        for _, sample in zip(range(3), op.sample_inputs("cpu", torch.float32), strict=False):
            with watch, contextlib.suppress(Exception):  # what an operator refuses shares nothing
                op(sample.input, *sample.args, **sample.kwargs)
    assert watch.found, "the sweep has seen none of those that are known"
    for target in watch.found:
        assert not makes_memory(call(target, outputs=("out",))), f"{target} may give its argument back"
