// Operations of the loop IR that are loops themselves, lane by lane: sums and fractions until they converge, and recurrences
// as long as the degree of a polynomial. Included only by kernels that use one.
#pragma once
#include "armature_math.h"

namespace armature {

#define OUTLINE static __attribute__((noinline))  // the code of a kernel would grow with each lane

constexpr double LAST_DIGIT = 1.1102230246251565e-16;
template <class T> constexpr double DIGIT = same<T, float> ? 1e-9 : LAST_DIGIT;  // terms below do not show in the result

// ---- Hurwitz's zeta function: the terms up to a base of 9, then Euler and Maclaurin's formula ----

// (2 k)! / B(2 k), by which the terms of the formula are divided
constexpr double ZETA_DIVISORS[] = {
    12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9, 7.47242496e10, -2.950130727918164224e12,
    1.1646782814350067249e14, -4.5979787224074726105e15, 1.8152105401943546773e17, -7.1661652561756670113e18};

OUTLINE double zeta_one(double s, double q) {
  if (s == 1) return __builtin_inf();
  if (s < 1) return __builtin_nan("");
  if (q <= 0) {
    if (q == __builtin_floor(q)) return __builtin_inf();
    if (s != __builtin_floor(s)) return __builtin_nan("");
  }
  double sum = __builtin_pow(q, -s), base = q, term = 0;
  for (int k = 0; k < 9 || base <= 9; ++k) {
    base += 1;
    term = __builtin_pow(base, -s);
    sum += term;
    if (__builtin_fabs(term) < LAST_DIGIT * sum) return sum;
  }
  sum += term * base / (s - 1) - 0.5 * term;
  double factor = 1;
  for (int k = 0; k < 12; ++k) {
    factor *= s + 2 * k;
    term /= base;
    const double more = factor * term / ZETA_DIVISORS[k];
    sum += more;
    if (__builtin_fabs(more) < LAST_DIGIT * __builtin_fabs(sum)) break;
    factor *= s + (2 * k + 1);
    term /= base;
  }
  return sum;
}

// ---- incomplete gamma functions, in double precision ----
//
// From a = 50 on and with x within 30 % of it, Temme's uniform expansion (SIAM J. Math. Anal. 10, 1979; DLMF 8.12): a row for
// each power of 1 / a, the highest power of eta first. The coefficients follow from DLMF 8.12.11-13; what is left out is
// below 3e-18.

constexpr int TEMME_ROWS = 9, TEMME_COUNTS[] = {15, 15, 13, 12, 10, 8, 6, 4, 2};
constexpr double TEMME[][15] = {
    {9.14769958223679023e-10, -4.38203601845335319e-9, 1.0261809784240308e-8, 6.70785354340149858e-9,
     -1.76659527368260793e-7, 8.29671134095308601e-7, -1.85406221071515996e-6, -2.18544851067999216e-6,
     0.0000391926317852243778, -0.000178755144032921811, 0.0003527336860670194, 0.00115740740740740741,
     -0.0148148148148148148, 0.0833333333333333333, -0.333333333333333333},
    {-1.00915437106004126e-9, -1.75432417197476476e-11, 1.19516285997781473e-8, -5.75254560351770496e-8,
     1.37863344691572096e-7, 4.64712780280743434e-9, -1.6120900894563446e-6, 7.64916091608111008e-6,
     -0.0000180985503344899778, -4.01877572016460905e-7, 0.000205761316872427984, -0.000990226337448559671,
     0.0026455026455026455, -0.00347222222222222222, -0.00185185185185185185},
    {-1.40925299108675211e-8, -2.0477098421990866e-10, 1.42806142060642418e-7, -6.29899213838005502e-7,
     1.37219573090629332e-6, 3.42357873409613807e-8, -0.0000127606351886187277, 0.0000529234488291201254,
     -0.000107366532263651605, 2.00938786008230453e-6, 0.000771604938271604938, -0.00268132716049382716,
     0.0041335978835978836},
    {8.09946490538808236e-8, -1.69584040919302773e-7, -2.78610802915281422e-11, 1.42309007324358839e-6,
     -5.67495282699159657e-6, 0.0000110826541153473024, -2.39650511386729665e-7, -0.0000756180167188397641,
     0.000267720632062838853, -0.000469189494395255712, 0.000229472093621399177, 0.000649434156378600823},
    {8.90750753220530969e-7, -1.6954149536558306e-6, 2.5074972262375328e-10, 0.0000113757269706784191,
     -0.0000396836504717943466, 0.0000664149821546512219, -1.46384525788434182e-6, -0.00029907248030319018,
     0.000784039221720066627, -0.000861888290916711699},
    {8.01847025633420154e-6, -0.0000135940481897686933, 1.41906292064396701e-7, 0.0000679778047793720784,
     -0.000199325705161888477, 0.000277275324495939208, -0.0000697281375836585777, -0.00033679855336635815},
    {0.0000561168275310624965, -0.0000815396936756196875, 7.90235323266032787e-7, 0.000270878209671804483,
     -0.000592166437353693883, 0.000531307936463992223},
    {0.000281269515476323702, -0.000334931610811422363, 0.0000517179090826059219, 0.000344367606892377671},
    {0.00083949872067208728, -0.000652623918595309419},
};

// u - log(1 + u) for u = x / a - 1
inline double log_gap(double a, double x) {
  const double u = (x - a) / a;
  if (!(__builtin_fabs(u) < 0.5)) return u - __builtin_log(x / a);
  const double r = u / (2 + u), square = r * r;  // log(1 + u) = 2 atanh(r)
  double sum = 0, power = r * square;
  for (int k = 3; k < 41; k += 2, power *= square) sum += power / k;
  return r * u - 2 * sum;
}
// x**a * exp(-x) / gamma(a + 1)
inline double gamma_density(double a, double x) {
  if (a < 20) return __builtin_exp(a * __builtin_log(x) - x - __builtin_lgamma(a + 1));
  const double i = 1 / a, j = i * i;  // Stirling's series
  const double rest = i * (1 / 12.0 - j * (1 / 360.0 - j * (1 / 1260.0 - j * (1 / 1680.0 - j / 1188.0))));
  return __builtin_exp(-a * log_gap(a, x) - rest) / __builtin_sqrt(6.283185307179586477 * a);
}
inline double lower_series(double a, double x, double least) {
  double term = gamma_density(a, x), sum = term;
  for (int k = 1; k < 2000 && term > least * sum; ++k) sum += term *= x / (a + k);
  return sum;
}
// A continued fraction, by the recurrence of its numerators and denominators (DLMF 8.9.2)
inline double upper_fraction(double a, double x, double least) {
  const double density = gamma_density(a, x) * a;
  if (density == 0) return 0;
  double b = x + 1 - a, older = 0, over = 1, before = 1, under = b, found = over / under;
  for (int k = 1; k < 2000; ++k) {
    const double factor = k * (a - k);
    b += 2;
    const double next_over = b * over + factor * older, next_under = b * under + factor * before;
    older = over, over = next_over, before = under, under = next_under;
    if (under == 0) continue;
    const double last = found;
    found = over / under;
    if (__builtin_fabs(found - last) <= least * __builtin_fabs(found)) break;
    if (__builtin_fabs(under) > 1e150) older *= 1e-150, over *= 1e-150, before *= 1e-150, under *= 1e-150;
  }
  return density * found;
}
// The upper part for small x and a, where the lower part is close to 1
inline double upper_series(double a, double x, double least) {
  const double logarithm = a * __builtin_log(x), gamma = __builtin_lgamma(a + 1);
  double factor = 1, sum = 0;
  for (int k = 1; k < 2000; ++k) {
    factor *= -x / k;
    const double term = factor / (a + k);
    sum += term;
    if (__builtin_fabs(term) <= least * __builtin_fabs(sum)) break;
  }
  return -__builtin_expm1(logarithm - gamma) - a * __builtin_exp(logarithm - gamma) * sum;
}
inline double temme(double a, double x, bool upper) {
  const double gap = log_gap(a, x), eta = __builtin_copysign(__builtin_sqrt(2 * gap), x - a), way = upper ? 1 : -1;
  double sum = 0;
  for (int k = TEMME_ROWS; k-- > 0;) {
    double row = 0;
    for (int n = 0; n < TEMME_COUNTS[k]; ++n) row = row * eta + TEMME[k][n];
    sum = sum / a + row;
  }
  const double rest = __builtin_exp(-a * gap) / __builtin_sqrt(6.283185307179586477 * a) * sum;
  return 0.5 * __builtin_erfc(way * eta * __builtin_sqrt(a / 2)) + way * rest;
}
// Q(a, x), or P(a, x) = 1 - Q(a, x); terms are added until one is smaller than `least` of the sum
OUTLINE double gamma_part(double a, double x, bool upper, double least) {
  const double inf = __builtin_inf();
  if (a < 0 || x < 0 || (a == 0 && !(x > 0)) || (a == inf && x == inf)) return __builtin_nan("");
  if (x == 0 || a == inf) return upper;
  if (a == 0 || x == inf) return !upper;
  if (a != a || x != x) return __builtin_nan("");
  if (a >= 50 && __builtin_fabs(x - a) < 0.3 * a) return temme(a, x, upper);
  if (x > 1.1) {
    const bool above = x >= a;
    const double part = above ? upper_fraction(a, x, least) : lower_series(a, x, least);
    return above == upper ? part : 1 - part;
  }
  if (!upper) return lower_series(a, x, least);
  const bool well_below = x <= 0.5 ? a > -0.4 / __builtin_log(x) : a > 1.1 * x;
  return well_below ? 1 - lower_series(a, x, least) : upper_series(a, x, least);
}

#define IN_DOUBLE(NAME, CALL)                                                                   \
  template <class V> INLINE V NAME(const V& x, const V& y) {                                    \
    using T = elem<V>;                                                                          \
    return each<T>([](T given_a, T given_b) { const double a = given_a, b = given_b; return T(CALL); }, x, y); \
  }
IN_DOUBLE(zeta, zeta_one(a, b))
IN_DOUBLE(igamma, gamma_part(a, b, false, DIGIT<T>))
IN_DOUBLE(igammac, gamma_part(a, b, true, DIGIT<T>))
#undef IN_DOUBLE

// ---- orthogonal polynomials, of degrees that only the kernel knows ----

constexpr i64 LONG = 32;  // from here on, Chebyshev's polynomials between -1 and 1 are computed by their angles

// From the polynomials of degrees 1 and 0; `step` makes the one of degree k + 1 from those of degrees k and k - 1.
template <class T, class F> INLINE T recurrence(T first, i64 degree, F step) {
  T older = 1, last = first, number = 1;
  for (i64 k = 1; k < degree && last == last; ++k, number += 1) {
    const T next = step(number, last, older);
    older = last;
    last = next;
  }
  return last;
}
// The degree without its fraction; -1, of which all polynomials are 0, if it is no number that can be one.
template <class T> INLINE i64 degree_of(T n) { return n > T(-1) && n < T(9e18) ? i64(n) : -1; }

#define POLYNOMIAL(NAME, FIRST, STEP, ELSE)                                                     \
  template <class T> OUTLINE T NAME##_one(T x, T n) {                                           \
    const i64 degree = degree_of(n);                                                            \
    if (degree <= 0) return T(degree + 1);                                                      \
    ELSE;                                                                                       \
    return recurrence(T(FIRST), degree, [x](T k, T last, T older) { return T(STEP); });         \
  }                                                                                             \
  template <class V> INLINE V NAME(const V& x, const V& n) {                                    \
    return each<elem<V>>([](elem<V> v, elem<V> d) { return NAME##_one<elem<V>>(v, d); }, x, n);  \
  }
#define BY_ANGLE(AT_1, AT_MINUS_1, OVER, UNDER)                                                 \
  if (degree > LONG && x >= -1 && x <= 1) {                                                     \
    if (x == 1) return T(AT_1);                                                                 \
    if (x == -1) return degree % 2 ? -T(AT_MINUS_1) : T(AT_MINUS_1);                            \
    const double angle = __builtin_acos(double(x));                                             \
    return T((OVER) / (UNDER));                                                                 \
  }
#define LIMITED if (degree > (same<T, float> ? 128 : 512)) return T(NOT_A_NUMBER)  // as in eager mode
POLYNOMIAL(chebyshev_polynomial_t, x, (x + x) * last - older, BY_ANGLE(1, 1, __builtin_cos(degree * angle), 1))
POLYNOMIAL(chebyshev_polynomial_u, x + x, (x + x) * last - older,
           BY_ANGLE(degree + 1, degree + 1, __builtin_sin((degree + 1.0) * angle), __builtin_sin(angle)))
POLYNOMIAL(chebyshev_polynomial_v, x + x - 1, (x + x) * last - older,
           BY_ANGLE(1, degree + degree + 1, __builtin_cos((degree + 0.5) * angle), __builtin_cos(angle / 2)))
POLYNOMIAL(chebyshev_polynomial_w, x + x + 1, (x + x) * last - older,
           BY_ANGLE(degree + degree + 1, 1, __builtin_sin((degree + 0.5) * angle), __builtin_sin(angle / 2)))
POLYNOMIAL(hermite_polynomial_h, x + x, (x + x) * last - (k + k) * older, LIMITED)
POLYNOMIAL(hermite_polynomial_he, x, x * last - k * older, LIMITED)
POLYNOMIAL(laguerre_polynomial_l, T(1) - x, ((k + k + (T(1) - x)) * last - k * older) / (k + 1), )
POLYNOMIAL(legendre_polynomial_p, x, ((k + k + 1) * x * last - k * older) / (k + 1), )
#undef POLYNOMIAL
#undef BY_ANGLE
#undef LIMITED
#undef OUTLINE

}  // namespace armature
