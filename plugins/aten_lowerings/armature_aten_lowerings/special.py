"""erfcx, ndtri, the Airy function and orthogonal polynomials, with the edges of torch's kernels.

The coefficients of ndtri and of the Airy function are those of the Cephes library (Stephen L. Moshier), as torch has
them; the series of erfcx was fitted for this file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from armature.backend_api import Builder, Node, ScalarValue, TensorValue
from armature.plugin_api import Lowering, overload
from armature_aten_lowerings.bessel import chebyshev, pointwise, polynomial

Operand = TensorValue | ScalarValue | int | float
Step = Callable[[Builder, int, Node, Node, Node], Node]
Start = Callable[[Builder, Node], Node]

# erfcx(x) * (x + 1/2) for x >= 0, in t = 1 - 7.5 / (x + 3.75); the error is below 1e-18.
SCALED_ERFC = (
    -1.093671472151508832e-18, -1.118528329717999799e-18, 2.534074452398055658e-17, 3.709117628312021732e-17,
    -6.253975265344323543e-16, -9.322814402096565508e-16, 1.673905974143402694e-14, 1.626274074074369921e-14,
    -4.827348374216719453e-13, 9.727934272888673615e-14, 1.434397505465334949e-11, -3.159044170443342247e-11,
    -3.877200104415675553e-10, 2.260979905609143449e-9, 5.382499732835455189e-9, -1.094320052461719783e-7,
    3.870191533099245334e-7, 2.069513993036505084e-6, -0.00003458486651250603184, 0.0002453879182629043161,
    -0.001206581770208804095, 0.004537498835352632547, -0.01332933421765287614, 0.02960496999909594525,
    -0.04212456668325895779, -0.002295027290323238665, 1.177578934567401754,
)  # fmt: skip
NORMAL: Mapping[str, tuple[float, ...]] = {
    "middle over": (
        -59.9633501014107895267, 98.0010754185999661536, -56.6762857469070293439, 13.9312609387279679503,
        -1.23916583867381258016,
    ),
    "middle under": (
        1.0, 1.95448858338141759834, 4.67627912898881538453, 86.3602421390890590575, -225.462687854119370527,
        200.260212380060660359, -82.0372256168333339912, 15.9056225126211695515, -1.18331621121330003142,
    ),
    "tail over": (
        4.05544892305962419923, 31.5251094599893866154, 57.1628192246421288162, 44.0805073893200834700,
        14.6849561928858024014, 2.18663306850790267539, -0.140256079171354495875, -0.0350424626827848203418,
        -8.57456785154685413611e-4,
    ),
    "tail under": (
        1.0, 15.7799883256466749731, 45.3907635128879210584, 41.3172038254672030440, 15.0425385692907503408,
        2.50464946208309415979, -0.142182922854787788574, -0.0380806407691578277194, -9.33259480895457427372e-4,
    ),
    "end over": (
        3.23774891776946035970, 6.91522889068984211695, 3.93881025292474443415, 1.33303460815807542389,
        0.201485389549179081538, 0.0123716634817820021358, 3.01581553508235416007e-4, 2.65806974686737550832e-6,
        6.23974539184983293730e-9,
    ),
    "end under": (
        1.0, 6.02427039364742014255, 3.67983563856160859403, 1.37702099489081330271, 0.216236993594496635890,
        0.0134204006088543189037, 3.28014464682127739104e-4, 2.89247864745380683936e-6, 6.79019408009981274425e-9,
    ),
}  # fmt: skip
AIRY: Mapping[str, tuple[float, ...]] = {
    "falling over": (
        0.346538101525629032477, 12.0075952739645805542, 76.2796053615234516538, 168.089224934630576269,
        159.756391350164413639, 70.5360906840444183113, 14.0264691163389668864, 0.999999999999999995305,
    ),
    "falling under": (
        0.567594532638770212846, 14.7562562584847203173, 84.5138970141474626562, 177.318088145400459522,
        164.234692871529701831, 71.4778400825575695274, 14.0959135607834029598, 1.0,
    ),
    "sine over": (
        -0.131696323418331795333, -0.626456544431912369773, -0.693158036036933542233, -0.279779981545119124951,
        -0.0491900132609500318020, -0.00406265923594885404393, -1.59276496239262096340e-4, -2.77649108155232920844e-6,
        -1.67787698489114633780e-8,
    ),
    "sine under": (
        13.3560420706553243746, 32.6825032795224613948, 26.7367040941499554804, 9.18707402907259625840,
        1.47529146771666414581, 0.115687173795188044134, 0.00440291641615211203805, 7.54720348287414296618e-5,
        4.51850092970580378464e-7,
    ),
    "cosine over": (
        0.0197339932091685679179, 0.391103029615688277255, 1.06579897599595591108, 0.939169229816650230044,
        0.351465656105547619242, 0.0633888919628925490927, 0.00585804113048388458567, 2.82851600836737019778e-4,
        6.98793669997260967291e-6, 8.11789239554389293311e-8, 3.41551784765923618484e-10,
    ),
    "cosine under": (
        9.30892908077441974853, 19.8352928718312140417, 15.5646628932864612953, 5.47686069422975497931,
        0.954293611618961883998, 0.0864580826352392193095, 0.00412656523824222607191, 1.01259085116509135510e-4,
        1.17166733214413521882e-6, 4.91834570062930015649e-9,
    ),
}  # fmt: skip
AIRY_AT_0 = 0.355028053887817239260  # the value, and minus the derivative
AIRY_SLOPE = 0.258819403792806798405
AIRY_TERMS = 14  # of the power series, which is used up to 2.09
MOST_STEPS = 32
"""Polynomials of a larger degree are no expressions, because kernels would grow."""


def _ratio(b: Builder, x: Node, table: Mapping[str, tuple[float, ...]], name: str) -> Node:
    return b.op("div", polynomial(b, x, table[f"{name} over"]), polynomial(b, x, table[f"{name} under"]))


def erfcx(b: Builder, x: Node) -> Node:
    """exp(x**2) * erfc(x): a series for the size of x, and by reflection below 0."""
    size, half = b.op("abs", x), b.const(0.5, x.dtype)
    place = b.op("div", b.const(15, x.dtype), b.op("add", size, b.const(3.75, x.dtype)))
    series = chebyshev(b, b.op("sub", b.const(2, x.dtype), place), SCALED_ERFC)
    found = b.op("div", series, b.op("add", size, half))
    growing = b.op("exp", b.op("mul", x, x))
    reflected = b.op("sub", b.op("add", growing, growing), found)
    return b.where(b.op("lt", x, b.const(0, x.dtype)), reflected, found)


def ndtri(b: Builder, x: Node) -> Node:
    """The quantile of the normal distribution: near the median, and two tails that mirror each other."""
    kind, edge = x.dtype, math.exp(-2)
    one, zero = b.const(1, kind), b.const(0, kind)
    upper = b.op("gt", x, b.const(1 - edge, kind))
    y = b.where(upper, b.op("sub", one, x), x)
    centred = b.op("sub", y, b.const(0.5, kind))
    square = b.op("mul", centred, centred)
    bent = b.op("mul", b.op("mul", centred, square), _ratio(b, square, NORMAL, "middle"))
    middle = b.op("mul", b.op("add", centred, bent), b.const(math.sqrt(2 * math.pi), kind))
    far = b.op("sqrt", b.op("mul", b.const(-2, kind), b.op("log", y)))
    inverse = b.op("reciprocal", far)
    near_end = b.op("lt", far, b.const(8, kind))
    series = b.where(near_end, _ratio(b, inverse, NORMAL, "tail"), _ratio(b, inverse, NORMAL, "end"))
    first = b.op("sub", far, b.op("mul", b.op("log", far), inverse))
    tail = b.op("sub", first, b.op("mul", inverse, series))
    tail = b.where(b.op("eq", y, zero), b.const(math.inf, kind), tail)
    tail = b.where(upper, tail, b.op("neg", tail))
    return b.where(b.op("gt", y, b.const(edge, kind)), middle, tail)


def _airy_series(b: Builder, x: Node) -> Node:
    """The power series, in the cube of x."""
    values, slopes = [AIRY_AT_0], [-AIRY_SLOPE]
    for k in range(AIRY_TERMS - 1):
        values.append(values[-1] / ((3 * k + 2) * (3 * k + 3)))
        slopes.append(slopes[-1] / ((3 * k + 3) * (3 * k + 4)))
    cube = b.op("mul", b.op("mul", x, x), x)
    return b.op("add", polynomial(b, cube, values[::-1]), b.op("mul", x, polynomial(b, cube, slopes[::-1])))


def airy(b: Builder, x: Node) -> Node:
    """Ai: waves below -2.09, a power series, and from 2.09 on a falling exponential."""
    kind, size = x.dtype, b.op("abs", x)
    root = b.op("sqrt", size)
    steep = b.op("div", b.op("mul", b.op("mul", b.const(2, kind), size), root), b.const(3, kind))
    inverse, fourth = b.op("reciprocal", steep), b.op("sqrt", root)
    square = b.op("mul", inverse, inverse)
    angle = b.op("add", steep, b.const(math.pi / 4, kind))
    along = b.op("add", b.const(1, kind), b.op("mul", square, _ratio(b, square, AIRY, "sine")))
    across = b.op("mul", inverse, _ratio(b, square, AIRY, "cosine"))
    waves = b.op("sub", b.op("mul", b.op("sin", angle), along), b.op("mul", b.op("cos", angle), across))
    height = b.const(1 / math.sqrt(math.pi), kind)
    waves = b.op("mul", b.op("div", height, fourth), waves)
    falling = b.op("mul", height, _ratio(b, inverse, AIRY, "falling"))
    falling = b.op("div", falling, b.op("mul", b.op("mul", b.const(2, kind), fourth), b.op("exp", steep)))
    falling = b.where(b.op("gt", x, b.const(103.892, kind)), b.const(0, kind), falling)
    found = b.where(b.op("lt", x, b.const(-2.09, kind)), waves, _airy_series(b, x))
    found = b.where(b.op("ge", x, b.const(2.09, kind)), falling, found)
    return b.where(b.op("isinf", x), b.const(math.nan, kind), found)


def _by(b: Builder, factor: float, x: Node) -> Node:
    return b.op("mul", b.const(factor, x.dtype), x)


def _chebyshev_step(b: Builder, k: int, x: Node, last: Node, older: Node) -> Node:
    return b.op("sub", b.op("mul", b.op("add", x, x), last), older)


def _hermite_step(b: Builder, k: int, x: Node, last: Node, older: Node) -> Node:
    return b.op("sub", b.op("mul", b.op("add", x, x), last), _by(b, 2 * k, older))


def _hermite_e_step(b: Builder, k: int, x: Node, last: Node, older: Node) -> Node:
    return b.op("sub", b.op("mul", x, last), _by(b, k, older))


def _laguerre_step(b: Builder, k: int, x: Node, last: Node, older: Node) -> Node:
    factor = b.op("add", b.const(2 * k, x.dtype), b.op("sub", b.const(1, x.dtype), x))
    return b.op("div", b.op("sub", b.op("mul", factor, last), _by(b, k, older)), b.const(k + 1, x.dtype))


def _legendre_step(b: Builder, k: int, x: Node, last: Node, older: Node) -> Node:
    grown = b.op("mul", _by(b, 2 * k + 1, x), last)
    return b.op("div", b.op("sub", grown, _by(b, k, older)), b.const(k + 1, x.dtype))


def _plus(factor: int, addend: int) -> Start:
    """A polynomial of degree 1: `factor * x + addend`."""

    def start(b: Builder, x: Node) -> Node:
        scaled = b.op("add", x, x) if factor == 2 else x if factor == 1 else b.op("neg", x)
        return b.op("add", scaled, b.const(addend, x.dtype)) if addend else scaled

    return start


# The polynomial of degree 1, and the one of degree k + 1 from those of degree k and k - 1.
RECURRENCES: Mapping[str, tuple[Start, Step]] = {
    "chebyshev_polynomial_t": (_plus(1, 0), _chebyshev_step),
    "chebyshev_polynomial_u": (_plus(2, 0), _chebyshev_step),
    "chebyshev_polynomial_v": (_plus(2, -1), _chebyshev_step),
    "chebyshev_polynomial_w": (_plus(2, 1), _chebyshev_step),
    "hermite_polynomial_h": (_plus(2, 0), _hermite_step),
    "hermite_polynomial_he": (_plus(1, 0), _hermite_e_step),
    "laguerre_polynomial_l": (_plus(-1, 1), _laguerre_step),
    "legendre_polynomial_p": (_plus(1, 0), _legendre_step),
}
SHIFTED = "shifted_"
NAMES = (*RECURRENCES, *(SHIFTED + name for name in RECURRENCES if name.startswith("chebyshev")))


def _of_degree(b: Builder, name: str, degree: int, x: Node) -> Node:
    """The polynomial of a degree that is known."""
    if degree <= 0:
        return b.const(0 if degree else 1, x.dtype)
    start, step = RECURRENCES[name]
    older: Node = b.const(1, x.dtype)
    last = start(b, x)
    for k in range(1, degree):
        older, last = last, step(b, k, x, last, older)
    return last


def orthogonal(name: str) -> Callable[[Builder, Operand, Operand], TensorValue]:
    """The lowering of an orthogonal polynomial: an expression for a degree that is known and small, an operation of
    loops for others."""
    plain = name.removeprefix(SHIFTED)

    def placed(b: Builder, x: Node) -> Node:
        return x if plain == name else b.op("sub", b.op("add", x, x), b.const(1, x.dtype))

    def lowering(b: Builder, x: Operand, n: Operand) -> TensorValue:
        dtype = b.spec().dtype
        if isinstance(n, (int, float)) and abs(n) <= MOST_STEPS:
            return b.pointwise(lambda value: _of_degree(b, plain, int(n), placed(b, value)), x, dtype=dtype)
        return b.pointwise(lambda value, degree: b.op(plain, placed(b, value), degree), x, n, dtype=dtype)

    return lowering


def _rows() -> list[Lowering]:
    unary = {"special_erfcx": erfcx, "special_ndtri": ndtri, "special_airy_ai": airy}
    named: dict[str, Callable[..., TensorValue]] = {name: pointwise(fn) for name, fn in unary.items()}
    for name in NAMES:
        named |= {f"special_{name}{form}": orthogonal(name) for form in ("", ".n_scalar", ".x_scalar")}
    return [Lowering(op, fn) for name, fn in named.items() if (op := overload(name)) is not None]


LOWERINGS = _rows()
