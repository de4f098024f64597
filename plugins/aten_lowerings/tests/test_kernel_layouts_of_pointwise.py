"""Every operator that works number by number says the layout that its kernel gives, however its operands lie."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import armature
from armature.plugins import manager
from armature.torch_abi.fake import FakeWorld

Overload = torch._ops.OpOverload
NUMBERS = {"number": 2, "int": 2, "float": 1.5, "bool": True, "Optional[number]": 2}
TEXTS = {"rounding_mode": "floor"}
DTYPES = (torch.float32, torch.int64, torch.bool)  # an operator is asked in the first that its kernel takes
# Made of others, which copy their operands first: strides along axes of size 1 are not known.
COMPOSED = frozenset((torch.ops.aten.float_power.Tensor_Tensor,))
LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "row-major": lambda: torch.rand(2, 4, 3, 5),
    "transposed": lambda: torch.rand(2, 4, 5, 3).mT,
    "channels last": lambda: torch.rand(2, 4, 3, 5).contiguous(memory_format=torch.channels_last),
    "permuted": lambda: torch.rand(4, 3, 5, 2).permute(3, 0, 1, 2),
    "every second": lambda: torch.rand(2, 4, 3, 10)[..., ::2],
    "expanded": lambda: torch.rand(1, 4, 3, 5).expand(2, 4, 3, 5),
    "to be expanded": lambda: torch.rand(2, 1, 3, 1),
    "a transposed matrix": lambda: torch.rand(5, 3).T,
    "one of a batch": lambda: torch.rand(60).as_strided((1, 4, 3, 5), (7, 15, 5, 1)),
    "one of a batch, transposed": lambda: torch.rand(1, 15, 4).transpose(1, 2).reshape(1, 4, 3, 5),
    "one channel": lambda: torch.rand(30).as_strided((2, 1, 3, 5), (15, 1, 5, 1)),
}
FEW = ("row-major", "transposed", "to be expanded", "one of a batch, transposed")  # of three operands


def pointwise() -> Iterator[Overload]:
    """The public functional ones of ATen, with single tensors as operands."""
    names = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    for name in sorted(name.removeprefix("aten::") for name in names if re.match("aten::[a-z]", name)):
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads():
            op = getattr(packet, overload)
            kinds = {str(argument.type) for argument in op._schema.arguments}
            gives = {str(returned.type) for returned in op._schema.returns}
            plain = not op._schema.is_mutable and "List[Tensor]" not in kinds and gives == {"Tensor"}
            if torch.Tag.pointwise in op.tags and plain:
                yield op


def operands(op: Overload) -> list[int]:
    return [k for k, argument in enumerate(op._schema.arguments) if str(argument.type) == "Tensor"]


def arguments(op: Overload, layouts: tuple[str, ...], dtype: torch.dtype) -> tuple[list[Any], dict[str, Any]]:
    """Tensors in these layouts, and a number or the default for each other argument."""
    args: list[Any] = []
    named: dict[str, Any] = {}
    given = iter(layouts)
    for argument in op._schema.arguments:
        kind = str(argument.type)
        if kind == "Tensor":
            value: Any = LAYOUTS[next(given)]()
            value = torch.empty(0, dtype=dtype).set_(
                (value.as_strided((value.untyped_storage().nbytes() // 4,), (1,)) * 3 + 0.2).to(dtype).untyped_storage(),
                0, value.shape, value.stride(),
            )  # fmt: skip
        elif argument.name in TEXTS:
            value = TEXTS[argument.name]
        else:
            value = argument.default_value if argument.has_default_value() else NUMBERS.get(kind)
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            args.append(value)
    return args, named


def strides(op: Overload, tensor: Tensor) -> list[int]:
    return [step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size != 1 or op not in COMPOSED]


def disagreements(op: Overload, dtype: torch.dtype) -> tuple[int, list[str]]:
    """How many calls the kernel takes, and those whose result lies otherwise than its fake says."""
    count = len(operands(op))
    ran, found = 0, []
    for layouts in itertools.product(LAYOUTS if count < 3 else FEW, repeat=count):
        args, named = arguments(op, layouts, dtype)
        try:
            real = op(*args, **named)
        except (RuntimeError, NotImplementedError):  # not of this dtype, or these sizes do not go together
            continue
        ran += 1
        world = FakeWorld(rules=manager().tables().fake_rules)
        fakes = pytree.tree_map_only(torch.Tensor, world.of, (args, named))
        with world.mode:
            told = op(*fakes[0], **fakes[1])
        for one, fake in zip(pytree.tree_leaves(real), pytree.tree_leaves(told), strict=True):
            if (one.shape, one.dtype, strides(op, one)) != (fake.shape, fake.dtype, strides(op, fake)):
                found.append(f"{layouts}: {one.dtype} {one.stride()}, not {fake.dtype} {fake.stride()}")
    return ran, found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (1, 2, 3))])
def test_layouts_are_those_of_the_kernels(part: int) -> None:
    wrong, never = {}, []
    for op in list(pointwise())[part::4]:
        for dtype in DTYPES:
            ran, found = disagreements(op, dtype)
            if found:
                wrong[str(op), dtype] = found[:3]
            if ran:
                break
        else:
            never.append(str(op))
    assert not wrong
    assert len(never) <= 4, never


LIKE: dict[str, Callable[[Tensor], Tensor]] = {
    "empty_like": torch.empty_like,
    "zeros_like": torch.zeros_like,
    "full_like": lambda x: torch.full_like(x, 2),
    "randint_like": lambda x: torch.randint_like(x, 9),
    "rand_like": torch.rand_like,
    "row-major": lambda x: torch.zeros_like(x, memory_format=torch.contiguous_format),
    "channels last": lambda x: torch.zeros_like(x, memory_format=torch.channels_last) if x.dim() == 4 else x.clone(),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1, 0),
    "hardtanh": torch.nn.functional.hardtanh,
    "frexp": lambda x: torch.frexp(x).mantissa,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", LIKE)
def test_what_is_made_like_a_tensor_lies_as_it_does(name: str, layout: str) -> None:
    x, world = LAYOUTS[layout](), FakeWorld(rules=manager().tables().fake_rules)
    fake = world.of(x)
    with world.mode:
        told = LIKE[name](fake)
    assert told.stride() == LIKE[name](x).stride()


PROGRAMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "heaviside": torch.heaviside,
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
    "logical_xor": torch.logical_xor,
    "ldexp": torch.ldexp,
    "xlogy": torch.xlogy,
    "xlog1py": torch.special.xlog1py,
    "binary_cross_entropy": lambda x, y: torch.nn.functional.binary_cross_entropy(x, y, reduction="none"),
    "roll": lambda x, y: x.roll((1, 1), (0, 1)),
}


NO_DERIVATIVE = frozenset(("heaviside",))


@pytest.mark.parametrize("first, second", [("row-major", "permuted"), ("permuted", "row-major")])
@pytest.mark.parametrize(
    "name, learning",
    [(name, way) for name in PROGRAMS for way in (False, True) if not way or name not in NO_DERIVATIVE],
)
def test_compiled_results_lie_so_too(name: str, first: str, second: str, learning: bool) -> None:
    program = PROGRAMS[name]
    compiled = armature.compile(lambda x, y: program(x, y))
    x, y = LAYOUTS[first]().requires_grad_(learning), LAYOUTS[second]()
    expected, found = program(x, y), compiled(x, y)
    torch.testing.assert_close(found, expected)
    assert found.stride() == expected.stride()
    if expected.requires_grad:
        gradient = torch.rand_like(expected)
        wanted, given = (torch.autograd.grad(result, x, gradient)[0] for result in (expected, found))
        torch.testing.assert_close(given, wanted)
        assert given.stride() == wanted.stride()


@pytest.mark.parametrize("name", ["logaddexp", "xlogy"])
def test_compiled_results_of_changing_sizes_lie_so_too(name: str) -> None:
    program = PROGRAMS[name]
    compiled = armature.compile(lambda x, y: program(x, y), dynamic=True)
    for size in (3, 4, 7):
        x, y = torch.rand(size, 6, 5).mT + 0.1, torch.rand(size, 5, 6) + 0.1
        expected, found = program(x, y), compiled(x, y)
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()
