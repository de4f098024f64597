"""torch's kernels refuse to write where memory overlaps; whether they do is told from sizes and strides alone."""

from __future__ import annotations

import pytest
import torch

from armature.torch_abi import overlaps


def base() -> torch.Tensor:
    return torch.arange(12.0)


PAIRS = {
    "itself": lambda x: (x, x),
    "the same place": lambda x: (x[:4], x[:4]),
    "shifted by one": lambda x: (x[1:5], x[:4]),
    "apart": lambda x: (x[:4], x[4:8]),
    "the same place, turned": lambda x: (x[:9].view(3, 3), x[:9].view(3, 3).t()),
    "with gaps": lambda x: (x[::3], x[:4]),
    "written twice": lambda x: (x[:1].expand(4), torch.ones(4)),
    "of other memory": lambda x: (x[:4], torch.ones(4)),
    "of size one": lambda x: (x[:1].expand(1), x[:1]),
}


@pytest.mark.parametrize("name", PAIRS)
def test_what_a_kernel_refuses_is_told(name: str) -> None:
    written, read = PAIRS[name](base())
    try:
        written.add_(read)
        raised = False
    except RuntimeError:
        raised = True
    assert overlaps.writes_numbers("add_", written)
    assert overlaps.refuses(written, overlaps.sharing(written, [read])) is raised


def test_changes_of_layout_are_no_writes() -> None:
    x = base()[:1].expand(4)
    x.t_()  # no error
    assert not overlaps.writes_numbers("t_", x)
    assert not overlaps.writes_numbers("add_", base().to_sparse())
