"""Device functions for generated kernels: operations that the Triton language lacks, with ATen's semantics.

`interpreted.py` has the same names for the interpreter; a test checks that the two lists agree. Values are blocks of
any rank.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"
# Triton reads the annotations of a device function as its own, so values have none here.

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

ALL = tl.constexpr(tl.PropagateNan.ALL)
BITS = tl.constexpr(63)
ROUNDS = tl.constexpr(10)  # of Philox, as its multipliers and the steps of its key
FIRST, SECOND = tl.constexpr(0xD2511F53), tl.constexpr(0xCD9E8D57)
FIRST_STEP, SECOND_STEP = tl.constexpr(0x9E3779B9), tl.constexpr(0xBB67AE85)


@triton.jit
def to_bfloat16(x):
    """Round to nearest even."""
    return x.to(tl.bfloat16)


@triton.jit
def from_bfloat16(x):
    """Widen to float32, exact."""
    return x.to(tl.float32)


@triton.jit
def maximum(a, b):
    """The larger; NaN where either is NaN."""
    return tl.maximum(a, b, propagate_nan=ALL)


@triton.jit
def minimum(a, b):
    """The smaller; NaN where either is NaN."""
    return tl.minimum(a, b, propagate_nan=ALL)


@triton.jit
def fmax(a, b):
    """The larger; NaN only where both are NaN."""
    return tl.maximum(a, b)


@triton.jit
def fmin(a, b):
    """The smaller; NaN only where both are NaN."""
    return tl.minimum(a, b)


@triton.jit
def sign(x):
    """-1, 0 or 1 in the type of `x`; 0 for NaN."""
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def floordiv_int(a, b):
    """Quotient of signed integers, rounded towards minus infinity."""
    quotient = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), quotient - 1, quotient)


@triton.jit
def mod_int(a, b):
    """Remainder of signed integers with the sign of `b`."""
    remainder = a % b
    return tl.where((remainder != 0) & ((remainder < 0) != (b < 0)), remainder + b, remainder)


@triton.jit
def floordiv_float(a, b):
    """Quotient rounded towards minus infinity, computed from the exact remainder as ATen does."""
    remainder = libdevice.fmod(a, b)
    quotient = (a - remainder) / b
    quotient = tl.where((remainder != 0) & ((b < 0) != (remainder < 0)), quotient - 1.0, quotient)
    whole = tl.floor(quotient)
    whole = tl.where(quotient - whole > 0.5, whole + 1.0, whole)
    whole = tl.where(quotient == 0.0, libdevice.copysign(quotient, a / b), whole)
    return tl.where(b == 0.0, a / b, whole)


@triton.jit
def mod_float(a, b):
    """Remainder with the sign of `b`."""
    remainder = libdevice.fmod(a, b)
    return tl.where((remainder != 0) & ((b < 0) != (remainder < 0)), remainder + b, remainder)


@triton.jit
def pow_int(base, exponent):
    """Integer power by squaring, wrapping; a negative exponent gives 0, except for a base of 1 or -1."""
    result = tl.full(base.shape, 1, base.dtype) + tl.zeros_like(exponent)
    factor = base + tl.zeros_like(exponent)
    left = exponent + tl.zeros_like(base)
    for _ in range(BITS):
        result = tl.where((left & 1) != 0, result * factor, result)
        factor = factor * factor
        left = tl.where(left > 0, left >> 1, 0)
    odd = (exponent & 1) != 0
    inverse = tl.where(base == 1, 1, tl.where(base == -1, tl.where(odd, -1, 1), 0)).to(result.dtype)
    return tl.where(exponent < 0, inverse, result)


@triton.jit
def shift_left(a, b, width: tl.constexpr):
    """`a << b`; 0 if `b` is negative or not below `width`."""
    inside = (b >= 0) & (b < width)
    return tl.where(inside, a << tl.where(inside, b, 0), 0)


@triton.jit
def shift_right(a, b, width: tl.constexpr):
    """`a >> b`, arithmetic; all bits become the sign if `b` is negative or not below `width`."""
    inside = (b >= 0) & (b < width)
    return a >> tl.where(inside, b, width - 1)


@triton.jit
def one_plus_erf(x):
    """1 + erf(x) of float32 for a result that is rounded to 16 bits: relative error below 1e-5 for all x.

    erfc(a) is exp(-a * a) times a polynomial in 1 / (1 + 0.44 * a), fitted for the smallest relative error. It takes
    half the instructions of libdevice's erf, which would make GELU in bfloat16 compute bound.
    """
    a = tl.abs(x)
    t = libdevice.fast_dividef(1.0, 1.0 + 0.44 * a)
    q = -0.1461024 * t + 0.35064318
    q = q * t + 0.04074119
    q = q * t + 0.26358119
    q = q * t + 0.24257078
    q = q * t + 0.24856091
    q = q * t * tl.exp2(-1.4426950408889634 * a * a)
    return tl.where(x < 0, q, 2.0 - q)


@triton.jit
def one_plus_tanh(x):
    """1 + tanh(x) of float32 for a result that is rounded to 16 bits, in a fifth of the instructions of libdevice's."""
    return libdevice.fast_dividef(2.0, 1.0 + tl.exp2(-2.8853900817779268 * x))


@triton.jit
def rough_sigmoid(x):
    """1 / (1 + exp(-x)) of float32 for a result that is rounded to 16 bits: a division that is correctly rounded takes
    more instructions than all the rest."""
    return libdevice.fast_dividef(1.0, 1.0 + tl.exp2(-1.4426950408889634 * x))


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)) of float32."""
    return tl.div_rn(tl.full(x.shape, 1.0, tl.float32), 1.0 + tl.exp(-x))


@triton.jit
def reciprocal(x):
    """1 / x of float32, correctly rounded."""
    return tl.div_rn(tl.full(x.shape, 1.0, tl.float32), x)


@triton.jit
def _words(a, b, c, d, low, high):
    """Philox4x32-10 of four words and a key, all uint32.

    A product is one of 64 bits, which is one instruction: `tl.philox` takes two, for its low and its high half.
    """
    for _ in tl.static_range(ROUNDS):
        first = a.to(tl.uint64) * FIRST
        second = c.to(tl.uint64) * SECOND
        a, b, c, d = (
            (second >> 32).to(tl.uint32) ^ b ^ low,
            second.to(tl.uint32),
            (first >> 32).to(tl.uint32) ^ d ^ high,
            first.to(tl.uint32),
        )
        low += FIRST_STEP
        high += SECOND_STEP
    return a, b, c, d


@triton.jit
def _philox(seed, offset, element, VECTOR: tl.constexpr, THREADS: tl.constexpr):
    """The four words of the counter that is for `element`, of uint32 or uint64."""
    if VECTOR == 1:
        step = element // (4 * THREADS)
        stream = element % THREADS
    else:
        step = element // (VECTOR * THREADS)
        stream = element // VECTOR % THREADS
    if VECTOR > 4:
        step = step * (VECTOR // 4) + element % VECTOR // 4
    counter = (offset // 4).to(tl.uint64) + step.to(tl.uint64)
    low = counter.to(tl.uint32)
    key = seed.to(tl.uint64)
    return _words(
        low,
        (counter >> 32).to(tl.uint32),
        stream.to(tl.uint32),
        tl.zeros_like(low),
        key.to(tl.uint32),
        (key >> 32).to(tl.uint32),
    )


@triton.jit
def _as_uniform(word):
    return word.to(tl.float32) * (0.5**32) + 0.5**33


@triton.jit
def _draw(seed, offset, element, VECTOR: tl.constexpr, THREADS: tl.constexpr):
    """The word of `element`, which is of uint32 or uint64."""
    a, b, c, d = _philox(seed, offset, element, VECTOR, THREADS)
    if VECTOR == 1:
        word = element // THREADS % 4
    else:
        word = element % VECTOR % 4
    return tl.where(word < 2, tl.where(word == 0, a, b), tl.where(word == 2, c, d))


@triton.jit
def _draw_fours(seed, offset, first, VECTOR: tl.constexpr, THREADS: tl.constexpr):
    """The same for each of `first` and its three successors, along the last axis, which becomes four times as long.

    `first` are multiples of 4, and so is VECTOR.
    """
    a, b, c, d = _philox(seed, offset, first, VECTOR, THREADS)
    words = tl.join(tl.join(a, c), tl.join(b, d))
    if len(first.shape) == 1:
        return tl.reshape(words, [4 * first.shape[0]])
    else:
        return tl.reshape(words, [first.shape[0], 4 * first.shape[1]])


@triton.jit
def uniform(seed, offset, element, VECTOR: tl.constexpr, THREADS: tl.constexpr):
    """`armature.lower.philox.uniform`; `element` is of uint32 or uint64."""
    return _as_uniform(_draw(seed, offset, element, VECTOR, THREADS))


@triton.jit
def uniform_fours(seed, offset, first, VECTOR: tl.constexpr, THREADS: tl.constexpr):
    """The same for each of `first` and its three successors, see `_draw_fours`."""
    return _as_uniform(_draw_fours(seed, offset, first, VECTOR, THREADS))


@triton.jit
def draws_below(seed, offset, element, VECTOR: tl.constexpr, THREADS: tl.constexpr, LIMIT: tl.constexpr):
    """Whether the word of `element` is less than LIMIT."""
    return _draw(seed, offset, element, VECTOR, THREADS) < LIMIT


@triton.jit
def draws_below_fours(seed, offset, first, VECTOR: tl.constexpr, THREADS: tl.constexpr, LIMIT: tl.constexpr):
    """The same for each of `first` and its three successors, see `_draw_fours`."""
    return _draw_fours(seed, offset, first, VECTOR, THREADS) < LIMIT


@triton.jit
def nonzero(x):
    """`x != 0` as a bool; NaN is true."""
    return x != 0


@triton.jit
def check_index(index, size, mask):
    """`index`. Traps if `mask` holds and it is not in 0..size-1."""
    tl.device_assert(((index >= 0) & (index < size)) | ~mask, "index out of range")  # no mask= before Triton 3.5
    return index


@triton.jit
def _add(a, b):
    return a + b


@triton.jit
def _mul(a, b):
    return a * b


@triton.jit
def _or(a, b):
    return a | b


@triton.jit
def _and(a, b):
    return a & b


@triton.jit
def _xor(a, b):
    return a ^ b


@triton.jit
def reduce_sum(x):
    """Sum over the last axis, which is kept with extent 1; likewise for the others."""
    return tl.reduce(x, 1, _add, keep_dims=True)


@triton.jit
def sum_of_rows(x):
    """Sum over the first axis, which is kept with extent 1."""
    return tl.reduce(x, 0, _add, keep_dims=True)


@triton.jit
def online_softmax(largest, total, x, WIDTH: tl.constexpr):
    """Update the largest value of each lane and its sum of `exp(v - largest)` with `x`.

    A lane is WIDTH neighbours of `x`, [rows, columns]: `largest` and `total` are [rows, columns / WIDTH]. A sum is at
    least 1, so that terms below float32's normal numbers, which `tl.exp` takes three more instructions for, are
    nothing beside it.
    """
    lanes = tl.reshape(x, [x.shape[0], x.shape[1] // WIDTH, WIDTH])
    both = tl.maximum(largest, tl.reduce(lanes, 2, maximum), propagate_nan=ALL)
    found = tl.reduce(libdevice.fast_expf(lanes - tl.expand_dims(both, 2)), 2, _add)
    return both, total * libdevice.fast_expf(largest - both) + found


@triton.jit
def logaddexp(a, b):
    """`log(exp(a) + exp(b))`, which is the larger one if that is infinite."""
    larger = maximum(a, b)
    return tl.where(tl.abs(larger) == float("inf"), larger, larger + libdevice.log1p(tl.exp(minimum(a, b) - larger)))


@triton.jit
def reduce_logsumexp(x):
    """The logarithm of the sum of exponentials over the last axis."""
    return tl.reduce(x, 1, logaddexp, keep_dims=True)


@triton.jit
def scan_logsumexp(x):
    """The same of each element with all before it."""
    return tl.associative_scan(x, 1, logaddexp)


@triton.jit
def reduce_prod(x):
    """Product over the last axis."""
    return tl.reduce(x, 1, _mul, keep_dims=True)


@triton.jit
def scan_sum(x):
    """Sums along the last axis, each element with all before it."""
    return tl.associative_scan(x, 1, _add)


@triton.jit
def scan_prod(x):
    """Products along the last axis, each element with all before it."""
    return tl.associative_scan(x, 1, _mul)


@triton.jit
def reduce_max(x):
    """Largest over the last axis; NaN if there is one."""
    return tl.reduce(x, 1, maximum, keep_dims=True)


@triton.jit
def reduce_min(x):
    """Smallest over the last axis; NaN if there is one."""
    return tl.reduce(x, 1, minimum, keep_dims=True)


@triton.jit
def reduce_any(x):
    """Logical or over the last axis."""
    return tl.reduce(x.to(tl.int32), 1, _or, keep_dims=True) != 0


@triton.jit
def reduce_all(x):
    """Logical and over the last axis."""
    return tl.reduce(x.to(tl.int32), 1, _and, keep_dims=True) != 0


@triton.jit
def reduce_xor(x):
    """Bitwise exclusive or over the last axis."""
    return tl.reduce(x, 1, _xor, keep_dims=True)


@triton.jit
def before_max(a, i, b, j):
    """True where (a, i) comes before (b, j) for argmax: NaN first, then the larger, then the smaller position."""
    a_nan = a != a
    b_nan = b != b
    equal = (a == b) | (a_nan & b_nan)
    return tl.where(equal, i < j, a_nan | ((a > b) & (b == b)))


@triton.jit
def before_min(a, i, b, j):
    """True where (a, i) comes before (b, j) for argmin."""
    a_nan = a != a
    b_nan = b != b
    equal = (a == b) | (a_nan & b_nan)
    return tl.where(equal, i < j, a_nan | ((a < b) & (b == b)))


@triton.jit
def _argmax(a, i, b, j):
    first = before_max(a, i, b, j)
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit
def _argmin(a, i, b, j):
    first = before_min(a, i, b, j)
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit
def reduce_argmax(x, position):
    """Position of the largest value over the last axis, the smallest position of equals; NaN before all."""
    _, found = tl.reduce((x, position), 1, _argmax, keep_dims=True)
    return found


@triton.jit
def reduce_argmin(x, position):
    """Position of the smallest value over the last axis, the smallest position of equals; NaN before all."""
    _, found = tl.reduce((x, position), 1, _argmin, keep_dims=True)
    return found


@triton.jit
def dot(a, b, total, precision: tl.constexpr):
    """`total` plus the product of two blocks. precision: how float32 is rounded, "ieee" (not at all) or "tf32"."""
    return tl.dot(a, b, total, input_precision=precision, out_dtype=total.dtype)
