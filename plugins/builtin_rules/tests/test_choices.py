"""What `min` and `max` choose among numbers and 0-d tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import armature


class Holder:
    """Something with an attribute."""

    scale: Any = None


def returned(x: Tensor, n: Tensor) -> Any:
    scale = min(2 / (n + 1e-6), 1.0)
    return x * scale, scale, [max(n, 0.5)], min([n, 1.0, 0.25])


def written_to(x: Tensor, n: Tensor) -> Any:
    scale = max(0.5, n)
    n.mul_(2)
    return x * scale, scale


def held(x: Tensor, n: Tensor) -> Any:
    holder = Holder()
    holder.scale = min(1.0, n)

    def scaled(y: Any) -> Any:
        return y * holder.scale

    return scaled(x), holder.scale, scaled(2.0) if x.dim() > 1 else None


def in_place(x: Tensor, n: Tensor) -> Tensor:
    scale = min(n, 0.5)
    scale *= 2
    return x * scale


def with_axes(x: Tensor, n: Tensor) -> Any:
    bound = n.view(1) * 2
    holder = Holder()
    holder.scale = max(0.75, min(bound, float("inf")))
    return x * n, holder.scale, 2.0 - min(bound.view(1, 1), 1.5), max(min(n, 1.0), bound)


# Programs that are one graph.
WHOLE: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "clipped": lambda x, n: x.mul_(min(1.0, 2 / (n + 1e-6))) is x,
    "quantized": lambda x, n: (x / max(x.abs().max(), 1e-8) * 127).round(),
    "several": lambda x, n: x * min(n, 1.0, 2.0, n * 2) - max(0.0, n, 3.0),
    "returned": returned,
    "written to": written_to,
    "held": held,
    "with axes": with_axes,
    "none": lambda x, n: x + 1 if min(n, 0.5) is None else x - 1,
    "number": lambda x, n: x * (min(1.0, n) * 3),
    "divided by": lambda x, n: x * -(1.01 / max(n / 2, 1.01)),
    "computed with": lambda x, n: (x - (2 - min(1, n) ** 2) % 0.7 // 0.1, 0.5 - max(n, 0.75)),
    "of choices": lambda x, n: (
        x * max(0.3, min(n * 0.1, 0.6)),
        max(0.3, min(n * 0.1, 0.6)),
        max(min(n, 2.0), n / 2, 0.5),
    ),
    "number of a call": lambda x, n: x.clone().add_(x, alpha=-0.1 * (1.01 / max(n / 2, 1.01))),
}
# Programs that ask which object it is.
ASKING: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "type": lambda x, n: (x + 1, isinstance(min(1.0, n), float)),
    "division by what may be zero": lambda x, n: x * (1 / max(0.0, n)),
    "another type": lambda x, n: x * (max(n, -2.0) ** 0.5 if n is None else min(n, -2.0) ** 0.5).real,
    "two": lambda x, n: x * (min(n, 0.5) * max(n, 0.5)),
    "in place": in_place,
    "branch": lambda x, n: x + 1 if min(1.0, n) < 1 else x - 1,
    "text": lambda x, n: (x + 1, len(f"{min(n, 0.5)}"), len(str(max(n, 0.5)))),
    "float": lambda x, n: x * float(min(n, 0.5)),
    "numbers that are equal in float32": lambda x, n: (
        x + 1,
        max(0.3, n * 0, 0.3 + 1e-12),
        max(min(n, 0.3), 0.3 + 1e-12),
    ),
    "shape": lambda x, n: (x * min(n.view(1), 0.5), x[0] * min(n.view(1), 0.5)),
    "attribute": lambda x, n: (x + 1, hasattr(min(n, 0.5), "shape")),
}


def compared(function: Callable[[Tensor, Tensor], Any], n: float, backend: str) -> None:
    torch.manual_seed(0)
    rows = []
    for run in (function, armature.compile(function, backend=backend)):
        torch.manual_seed(0)
        x, number = torch.randn(5), torch.tensor(n)
        rows.append((run(x, number), x, number))
    torch.testing.assert_close(rows[1], rows[0])


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("n", [0.25, 1.0, 7.0])
@pytest.mark.parametrize("name", WHOLE)
def test_a_choice_stays_in_the_graph(name: str, n: float, backend: str) -> None:
    """The program gets the number or the tensor itself."""
    compared(WHOLE[name], n, backend)
    assert armature.explain(WHOLE[name])(torch.randn(5), torch.tensor(n)).graph_break_count == 0


@pytest.mark.parametrize("n", [0.25, 7.0])
@pytest.mark.parametrize("name", ASKING)
def test_which_object_it_is_breaks_the_graph(name: str, n: float) -> None:
    compared(ASKING[name], n, "eager")
    armature.reset()
    found = armature.explain(ASKING[name])(torch.randn(5), torch.tensor(n))
    assert any("data-dependent-branch" in str(row.reason) for row in found.break_reasons)


def test_the_tensor_itself_is_returned() -> None:
    run = armature.compile(lambda x, n: (x + 1, min(n, 1.0)), backend="eager")
    small, large = torch.tensor(0.5), torch.tensor(2.0)
    assert run(torch.ones(2), small)[1] is small
    assert run(torch.ones(2), large)[1] == 1.0
    assert type(run(torch.ones(2), large)[1]) is float


@pytest.mark.parametrize("n", [0.25, 7.0])
def test_gradients_as_in_eager_mode(n: float) -> None:
    """A tensor that is not chosen gets no gradient, so the choice is made outside the graph."""
    grads = []
    for run in (lambda x, s: x * min(1.0, s * 2), armature.compile(lambda x, s: x * min(1.0, s * 2), backend="eager")):
        x, s = torch.ones(3, requires_grad=True), torch.tensor(n, requires_grad=True)
        run(x, s).sum().backward()
        grads.append((x.grad, s.grad))
    assert (grads[0][1] is None) == (grads[1][1] is None) == (n > 1)
    torch.testing.assert_close(grads[1][0], grads[0][0])


def part_within(x: Tensor, box: Tensor) -> Any:
    """Corners of a box, cut off at an image's border."""
    begin, end = max(box[0], 0), min(box[1] + 1, 5)
    return begin - box[0], (end - begin) if begin is not None else None, begin, end, [max(3, box[0], 1)]


# Programs with whole numbers that are one graph.
OF_INTS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "corner": lambda x, box: (x * max(box[0], 0), max(box[0], 0)),
    "computed with": lambda x, box: (x + (7 - max(box[0], 2) * 2) % 3 // 2, min(box[1], 4) / 2),
    "of Booleans": lambda x, box: x + max(box[0], True),
    "power": lambda x, box: x * max(box[0], 2) ** 2,
}


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("corner", [-3, 0, 2, 9])
@pytest.mark.parametrize("name", OF_INTS)
def test_a_choice_of_ints_stays_in_the_graph(name: str, corner: int, backend: str) -> None:
    function, x, box = OF_INTS[name], torch.randn(5), torch.tensor([corner, corner + 3])
    found, expected = armature.compile(function, backend=backend)(x, box), function(x, box)
    torch.testing.assert_close(found, expected)
    assert not isinstance(expected, tuple) or list(map(type, found)) == list(map(type, expected))
    assert armature.explain(function)(x, box).graph_break_count == 0


@pytest.mark.parametrize("corner", [-3, 0, 2, 9])
def test_a_choice_of_ints_where_it_matters_which(corner: int) -> None:
    """Arithmetic on two choices, ints that are no int64, dtypes that differ, and slices."""
    programs: tuple[Callable[[Tensor, Tensor], Any], ...] = (
        part_within,
        lambda x, box: x + max(box[0], (1 << 63) - 1, box[1]),
        lambda x, box: x + max(box[0].int(), 1),
        lambda x, box: x + max(box[0], 0.5),
        lambda x, box: (x[max(box[0], 0) :], x[: min(box[1], 4)]),
        lambda x, box: x.new_zeros(max(box[0], 1)),
        lambda x, box: [x + n for n in range(max(box[0], 0))],
    )
    for program in programs:
        armature.reset()
        x, box = torch.randn(5), torch.tensor([corner, corner + 3])
        torch.testing.assert_close(armature.compile(program, backend="eager")(x, box), program(x, box))
