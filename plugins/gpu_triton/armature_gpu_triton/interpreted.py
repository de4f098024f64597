"""The device functions of `helpers` and `libdevice` for Triton's interpreter: the same names, computed by torch.

The interpreter holds a block as a NumPy array (bfloat16 as its bits in uint16), has no libdevice, and runs any
reduction that it does not know element by element; and its own maximum ignores NaN.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable

import numpy
import torch
import triton.language as tl
from triton.language import tensor as Block
from triton.runtime.interpreter import InterpretedFunction, TensorHandle

from armature.backend_api import OPS, philox
from armature_gpu_triton.ops import LIBDEVICE
from armature_gpu_triton.toolchain import python_function

DTYPES = {
    tl.int1: torch.bool,
    tl.int8: torch.int8,
    tl.int16: torch.int16,
    tl.int32: torch.int32,
    tl.int64: torch.int64,
    tl.uint8: torch.uint8,
    tl.uint16: torch.uint16,
    tl.uint32: torch.uint32,
    tl.uint64: torch.uint64,
    tl.float16: torch.float16,
    tl.float32: torch.float32,
    tl.float64: torch.float64,
}
TYPES = {torch_type: triton_type for triton_type, torch_type in DTYPES.items()}


def read(block: Block) -> torch.Tensor:
    """The block as a tensor; a Python number as a 0-d tensor."""
    if not isinstance(block, tl.tensor):
        return torch.tensor(block.value if isinstance(block, tl.constexpr) else block)
    return torch.from_numpy(numpy.array(block.handle.data)).reshape(tuple(int(s) for s in block.shape))


def block_of(value: torch.Tensor, dtype: object = None) -> Block:
    """A tensor as a block of Triton's `dtype` (by default the tensor's own)."""
    kind = dtype or TYPES[value.dtype]
    data = value.contiguous().numpy()
    shape = list(value.shape)
    return tl.tensor(
        TensorHandle(data if shape else data.reshape(1), kind), tl.block_type(kind, shape) if shape else kind
    )


def elementwise(function: Callable[..., torch.Tensor]) -> Callable[..., Block]:
    """A torch function over blocks of one dtype; the result has the dtype of the first block."""

    def apply(*blocks: Block) -> Block:
        first = next(b for b in blocks if isinstance(b, tl.tensor))
        dtype = DTYPES[first.dtype]
        values = [read(b) if isinstance(b, tl.tensor) else read(b).to(dtype) for b in blocks]
        return block_of(function(*values).to(dtype))

    return apply


def meaning_of(name: str) -> Callable[..., torch.Tensor]:
    """What an operation computes, as a function of tensors."""
    meaning = OPS[name].meaning
    if meaning is None:
        raise KeyError(name)
    return meaning


def count(start: int, stop: Block, step: int = 1) -> range:
    """Python's range; its end may be a symbolic size."""
    return range(start, int(read(stop).reshape(-1)[0]), step)


def to_bfloat16(x: Block) -> Block:
    """Round to nearest even; the bits are in uint16."""
    bits = read(x).to(torch.bfloat16).view(torch.uint16)
    return block_of(bits, tl.bfloat16)


def from_bfloat16(x: Block) -> Block:
    """Widen to float32, exact."""
    return block_of(read(x).view(torch.bfloat16).float())


def nonzero(x: Block) -> Block:
    """`x != 0` as a bool; NaN is true."""
    return block_of(read(x) != 0)


def check_index(index: Block, size: Block, mask: Block) -> Block:
    """`index`. Errors: IndexError if `mask` holds and it is out of range."""
    i, n = read(index), read(size)
    bad = ((i < 0) | (i >= n)) & read(mask)
    if bool(bad.any()):
        wrong = i.broadcast_to(bad.shape)[bad][0]
        raise IndexError(f"index {int(wrong)} is out of range for a size of {int(n.reshape(-1)[0])}")
    return index


def uniform(seed: Block, offset: Block, element: Block, vector: int, threads: int) -> Block:
    """The number that eager's dropout draws for an element."""
    ways = (torch.tensor(vector), torch.tensor(threads))
    return block_of(philox.uniform(read(seed), read(offset), read(element).long(), *ways))


def uniform_fours(seed: Block, offset: Block, first: Block, vector: int, threads: int) -> Block:
    """The same for each of `first` and its three successors."""
    every = (read(first).long().unsqueeze(-1) + torch.arange(4)).flatten(-2)
    return uniform(seed, offset, block_of(every), vector, threads)


def draws_below(seed: Block, offset: Block, element: Block, vector: int, threads: int, limit: int) -> Block:
    """Whether the generator's word for an element is less than `limit`, the first that makes a number of that size."""
    first = torch.tensor(limit).to(torch.float32) * 0.5**32 + 0.5**33
    return block_of(read(uniform(seed, offset, element, vector, threads)) < first)


def draws_below_fours(seed: Block, offset: Block, first: Block, vector: int, threads: int, limit: int) -> Block:
    """The same for each of `first` and its three successors."""
    every = (read(first).long().unsqueeze(-1) + torch.arange(4)).flatten(-2)
    return draws_below(seed, offset, block_of(every), vector, threads, limit)


def shift_left(a: Block, b: Block, width: int) -> Block:
    """`a << b`; 0 if `b` is negative or not below `width`."""
    return elementwise(torch.bitwise_left_shift)(a, b)


def shift_right(a: Block, b: Block, width: int) -> Block:
    """`a >> b`, arithmetic; all bits become the sign if `b` is negative or not below `width`."""
    return elementwise(torch.bitwise_right_shift)(a, b)


def _xor_all(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(numpy.bitwise_xor.reduce(x.numpy(), axis=1, keepdims=True))


def reduction(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Block], Block]:
    """A reduction over the last axis of a two-dimensional block, which is kept with extent 1; or a scan along it."""
    return lambda x: block_of(function(read(x)).to(DTYPES[x.dtype]))


def arg_reduction(largest: bool) -> Callable[[Block, Block], Block]:
    """Position of the largest (smallest) value; NaN first, then the smallest position."""

    def apply(x: Block, position: Block) -> Block:
        values = read(x)
        positions = read(position).expand(values.shape)
        best = values.amax(1, keepdim=True) if largest else values.amin(1, keepdim=True)
        hit = (values == best) | (values.isnan() & best.isnan())
        worst = torch.iinfo(positions.dtype).max
        return block_of(torch.where(hit, positions, worst).amin(1, keepdim=True))

    return apply


def _before(larger: Callable[..., torch.Tensor]) -> Callable[..., Block]:
    def apply(a: Block, i: Block, b: Block, j: Block) -> Block:
        av, iv, bv, jv = read(a), read(i), read(b), read(j)
        nan_a, nan_b = av != av, bv != bv
        equal = (av == bv) | (nan_a & nan_b)
        return block_of(torch.where(equal, iv < jv, nan_a | larger(av, bv)))

    return apply


before_max = _before(torch.gt)
before_min = _before(torch.lt)
reduce_sum = reduction(lambda x: x.sum(1, keepdim=True))
sum_of_rows = reduction(lambda x: x.sum(0, keepdim=True))
reduce_prod = reduction(lambda x: x.prod(1, keepdim=True))
reduce_max = reduction(lambda x: x.amax(1, keepdim=True))
reduce_min = reduction(lambda x: x.amin(1, keepdim=True))
reduce_any = reduction(lambda x: x.bool().any(1, keepdim=True))
reduce_all = reduction(lambda x: x.bool().all(1, keepdim=True))
reduce_xor = reduction(_xor_all)
scan_sum = reduction(lambda x: x.cumsum(1))
scan_prod = reduction(lambda x: x.cumprod(1))
reduce_logsumexp = reduction(lambda x: x.logsumexp(1, keepdim=True))
scan_logsumexp = reduction(lambda x: x.logcumsumexp(1))
reduce_argmax = arg_reduction(largest=True)
reduce_argmin = arg_reduction(largest=False)


def online_softmax(largest: Block, total: Block, x: Block, width: int) -> tuple[Block, Block]:
    """A step of a softmax that finds the maximum and the sum in one loop."""
    lanes, before = read(x).unflatten(1, (-1, width)), read(largest)
    both = torch.maximum(before, lanes.amax(2))
    found = (lanes - both.unsqueeze(2)).exp().sum(2)
    return block_of(both), block_of(read(total) * (before - both).exp() + found)


def dot(a: Block, b: Block, total: Block, precision: str) -> Block:
    """`total` plus the product of two blocks, exact products in float32 or int32."""
    dtype = DTYPES[total.dtype]
    left, right = (
        read(x).view(torch.bfloat16).to(dtype) if x.dtype == tl.bfloat16 else read(x).to(dtype) for x in (a, b)
    )
    return block_of(read(total) + left @ right)


logaddexp = elementwise(torch.logaddexp)
maximum = elementwise(torch.maximum)
minimum = elementwise(torch.minimum)
fmax = elementwise(torch.fmax)
fmin = elementwise(torch.fmin)
sigmoid = rough_sigmoid = elementwise(torch.sigmoid)
reciprocal = elementwise(torch.reciprocal)
sign = elementwise(torch.sign)
floordiv_int = elementwise(lambda a, b: torch.div(a, torch.where(b == 0, 1, b), rounding_mode="floor"))
mod_int = elementwise(lambda a, b: torch.remainder(a, torch.where(b == 0, 1, b)))
floordiv_float = elementwise(lambda a, b: torch.div(a, b, rounding_mode="floor"))
mod_float = elementwise(torch.remainder)
pow_int = elementwise(torch.pow)

one_plus_erf = elementwise(lambda x: torch.erfc(-x))
one_plus_tanh = elementwise(lambda x: 2 * torch.sigmoid(2 * x))

# Most functions of libdevice are operations, and mean what the row of the operation says.
libdevice = types.SimpleNamespace(
    **{name: elementwise(meaning_of(name)) for name in LIBDEVICE},
    fmod=elementwise(torch.fmod),
    pow=elementwise(torch.pow),
    rint=elementwise(torch.round),
    trunc=elementwise(torch.trunc),
)


def interpret(function: object) -> InterpretedFunction[object]:
    """The kernel for Triton's interpreter, on CPU tensors, with the device functions of this module."""
    plain = python_function(function)
    swapped = types.FunctionType(
        plain.__code__,
        plain.__globals__ | {"helpers": sys.modules[__name__], "libdevice": libdevice, "range": count},
        plain.__name__,
        plain.__defaults__,
        plain.__closure__,
    )
    swapped.__annotations__ = plain.__annotations__
    swapped.__module__ = plain.__module__
    return InterpretedFunction(swapped)
