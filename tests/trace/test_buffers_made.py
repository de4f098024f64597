"""`nn.Buffer`: tensors with a mark, which modules keep as buffers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import armature


class Keeping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kept = nn.Buffer(torch.ones(3))
        self.plain = torch.ones(3)


def facts(module: nn.Module) -> Any:
    return list(dict(module.named_buffers())), list(module.state_dict()), sorted(module._non_persistent_buffers_set)


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("name", ["new", "kept"])
def test_a_module_keeps_it(name: str, persistent: bool) -> None:
    armature.reset()

    def assigned(module: nn.Module, x: Tensor) -> Tensor:
        setattr(module, name, nn.Buffer(x + 1, persistent=persistent))
        return getattr(module, name) * 2

    quick = armature.compile(assigned, backend="eager", fullgraph=True)
    ours, theirs = Keeping(), Keeping()
    for size in (3, 3, 4):
        x = torch.randn(size)
        torch.testing.assert_close(quick(ours, x), assigned(theirs, x), rtol=0, atol=0)
        assert facts(ours) == facts(theirs)
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), rtol=0, atol=0)
        assert isinstance(getattr(ours, name), nn.Buffer)


def test_in_the_place_of_something_else() -> None:
    armature.reset()

    def assigned(module: nn.Module, x: Tensor) -> Tensor:
        module.plain = nn.Buffer(x + 1)
        return module.plain * 2

    for fn in (armature.compile(assigned, backend="eager"), assigned):
        module = Keeping()
        with pytest.raises(KeyError, match="attribute 'plain' already exists"):
            fn(module, torch.ones(3))
        assert facts(module) == facts(Keeping())


def test_what_is_one() -> None:
    """By its mark, which is looked for again."""
    armature.reset()
    quick = armature.compile(
        lambda m, x: (isinstance(x, nn.Buffer), isinstance(m.kept, (nn.Buffer, int)), x + 1),
        backend="eager",
        fullgraph=True,
    )
    x = torch.ones(3)
    assert quick(Keeping(), x)[:2] == (False, True)
    x._is_buffer = True
    assert quick(Keeping(), x)[:2] == (True, True)
    assert quick(Keeping(), torch.ones(3))[:2] == (False, True)


def test_memory_is_shared() -> None:
    armature.reset()

    def written(x: Tensor) -> Any:
        y = nn.Buffer(x)
        y.add_(1)
        return y, isinstance(y, nn.Buffer), y is x

    ours, theirs = torch.ones(3), torch.ones(3)
    made, other = armature.compile(written, backend="eager", fullgraph=True)(ours), written(theirs)
    assert made[1:] == other[1:]
    torch.testing.assert_close([ours, made[0]], [theirs, other[0]], rtol=0, atol=0)
    assert made[0].data_ptr() == ours.data_ptr()
