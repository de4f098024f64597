// Operations of the loop IR on vectors and scalars. float32 has vector code of its own, good to 2 to 5 units in the last
// place; float64 and the rare functions go lane by lane through the C library.
//
// The polynomials were fitted for this file: weighted least squares with Lawson's reweighting on Chebyshev points, the weight
// such that the relative error of the function is flat; the figure at each is that error before rounding.
#pragma once
#include "armature_vec.h"

namespace armature {

constexpr float INF = __builtin_inff();
constexpr float NOT_A_NUMBER = __builtin_nanf("");

template <class V> using mask = rebind<V, bool>;

// A constant in the type of `V`.
template <class V> INLINE V constant(elem<V> x) { return V(x); }

#define LIBM(NAME)                                                                              \
  template <class V> INLINE V lib_##NAME(const V& x) {                                          \
    if constexpr (is_float<V>) return each<float>([](float v) { return __builtin_##NAME##f(v); }, x); \
    else return each<double>([](double v) { return __builtin_##NAME(v); }, x);                  \
  }
#define LIBM2(NAME)                                                                             \
  template <class V> INLINE V lib_##NAME(const V& x, const V& y) {                              \
    if constexpr (is_float<V>) return each<float>([](float a, float b) { return __builtin_##NAME##f(a, b); }, x, y); \
    else return each<double>([](double a, double b) { return __builtin_##NAME(a, b); }, x, y);  \
  }
LIBM(exp) LIBM(exp2) LIBM(expm1) LIBM(log) LIBM(log2) LIBM(log10) LIBM(log1p) LIBM(sin) LIBM(cos) LIBM(tan) LIBM(asin)
LIBM(acos) LIBM(atan) LIBM(sinh) LIBM(cosh) LIBM(tanh) LIBM(asinh) LIBM(acosh) LIBM(atanh) LIBM(erf) LIBM(erfc) LIBM(lgamma)
LIBM(sqrt) LIBM(floor) LIBM(ceil) LIBM(trunc) LIBM(rint)
LIBM2(atan2) LIBM2(hypot) LIBM2(nextafter) LIBM2(fmod) LIBM2(pow) LIBM2(copysign)
#undef LIBM
#undef LIBM2

// ---- simple ----

template <class V> INLINE V fma(const V& a, const V& b, const V& c) { return a * b + c; }
template <class V> INLINE V sqrt(const V& x) { return lib_sqrt(x); }
template <class V> INLINE V floor(const V& x) { return lib_floor(x); }
template <class V> INLINE V ceil(const V& x) { return lib_ceil(x); }
template <class V> INLINE V trunc(const V& x) { return lib_trunc(x); }
template <class V> INLINE V round_even(const V& x) { return lib_rint(x); }
template <class V> INLINE V reciprocal(const V& x) { return constant<V>(1) / x; }
template <class V> INLINE V rsqrt(const V& x) { return constant<V>(1) / sqrt(x); }

template <class V> INLINE V abs(const V& x) {
  if constexpr (is_floating<V>) {
    using S = signed_of<elem<V>>;
    using B = rebind<V, S>;
    return bits_as<elem<V>>(bits_as<S>(x) & B(S(~(S(1) << (8 * sizeof(S) - 1)))));
  } else return where(x < constant<V>(0), V(-x), x);
}
template <class V> INLINE V copysign(const V& x, const V& y) {
  using S = signed_of<elem<V>>;
  using B = rebind<V, S>;
  const B top = B(S(S(1) << (8 * sizeof(S) - 1)));
  return bits_as<elem<V>>((bits_as<S>(x) & ~top) | (bits_as<S>(y) & top));
}
template <class V> INLINE mask<V> signbit(const V& x) {
  if constexpr (is_floating<V>) {
    using S = signed_of<elem<V>>;
    return bits_as<S>(x) < rebind<V, S>(S(0));
  } else return x < constant<V>(0);
}
template <class V> INLINE V sign(const V& x) {
  const V zero = constant<V>(0);
  return where(x > zero, constant<V>(1), where(x < zero, V(zero - constant<V>(1)), zero));
}
template <class V> INLINE mask<V> isnan(const V& x) { return x != x; }
template <class V> INLINE mask<V> isinf(const V& x) {
  if constexpr (is_floating<V>) return abs(x) == constant<V>(INF);
  else return mask<V>(false);
}

// ---- division, lane by lane for integers: a lane that is not used may hold a zero ----

template <class T> INLINE T trunc_one(T a, T b) { return b == 0 ? T(0) : b == T(-1) && T(-1) < T(0) ? T(0 - a) : T(a / b); }
template <class T> INLINE T rest_one(T a, T b) { return b == 0 || (b == T(-1) && T(-1) < T(0)) ? T(0) : T(a % b); }

template <class V> INLINE V fmod(const V& a, const V& b) {
  using T = elem<V>;
  if constexpr (is_floating<V>) return lib_fmod(a, b);
  else return each<T>([](T x, T y) { return rest_one(x, y); }, a, b);
}
template <class V> INLINE V mod(const V& a, const V& b) {
  using T = elem<V>;
  return each<T>([](T x, T y) {
    T r;
    if constexpr (same<T, float>) r = __builtin_fmodf(x, y);
    else if constexpr (same<T, double>) r = __builtin_fmod(x, y);
    else r = rest_one(x, y);
    return r != 0 && (y < 0) != (r < 0) ? T(r + y) : r;
  }, a, b);
}
template <class V> INLINE V truncdiv(const V& a, const V& b) {
  using T = elem<V>;
  if constexpr (is_floating<V>) return trunc(V(a / b));
  else return each<T>([](T x, T y) { return trunc_one(x, y); }, a, b);
}
template <class V> INLINE V floordiv(const V& a, const V& b) {
  using T = elem<V>;
  return each<T>([](T x, T y) -> T {
    if constexpr (same<T, float> || same<T, double>) {  // from the exact remainder, as eager does
      if (y == 0) return x / y;
      T r;
      if constexpr (same<T, float>) r = __builtin_fmodf(x, y);
      else r = __builtin_fmod(x, y);
      T q = (x - r) / y;
      if (r != 0 && (y < 0) != (r < 0)) q -= 1;
      if (q == 0) return T(__builtin_copysign(0.0, x / y));
      T down = T(__builtin_floor(q));
      return q - down > T(0.5) ? down + 1 : down;
    } else {
      T q = trunc_one(x, y), r = rest_one(x, y);
      return r != 0 && (r < 0) != (y < 0) ? T(q - 1) : q;
    }
  }, a, b);
}
template <class V> INLINE V shift_left(const V& a, const V& b) {
  const V bits = constant<V>(8 * sizeof(elem<V>)), zero = constant<V>(0);
  const auto off = (b < zero) | (b >= bits);
  return where(off, zero, V(shift_left_raw(a, where(off, zero, b))));
}
template <class V> INLINE V shift_right(const V& a, const V& b) {
  const V top = constant<V>(8 * sizeof(elem<V>) - 1), zero = constant<V>(0);
  return shift_right_raw(a, where((b < zero) | (b > top), top, b));
}

// ---- exponentials of float32 ----

// e**r - 1 for |r| <= ln(2) / 2; 3.4e-9
template <class V> INLINE V expm1_core(const V& r) {
  const V q = fma(fma(fma(fma(V(0.00139517186f), r, V(0.00836959854f)), r, V(0.0416661873f)), r, V(0.166665122f)), r, V(0.5f));
  return fma(r * r, q, r);
}
template <class V> INLINE V power_of_two(const V& n) { return bits_as<float>(shift_left_raw(cast<i32>(n) + rebind<V, i32>(127), rebind<V, i32>(23))); }

// y * 2**n, right also where 2**n is no normal number; 0 for n = ZERO<V>.
//
// A result that underflows takes the processor 25 times as long, even one that rounds to 0. So where the result is known to be
// 0, as that of a softmax at masked positions, the caller gives an n with which the product is exact.
#ifdef ARMATURE_AVX512
template <class V> constexpr float ZERO = lanes<V> == 16 ? -INF : -254.0f;
#else
template <class V> constexpr float ZERO = -254.0f;  // both powers of two below are 0
#endif
template <class V> INLINE V scale(const V& y, const V& n) {
#ifdef ARMATURE_AVX512
  if constexpr (lanes<V> == 16) {
    V z;
    z.r = __builtin_ia32_scalefps512_mask(y.r, n.r, raw<float, 16>{}, -1, 4);
    return z;
  }
#endif
  const V half = floor(n * V(0.5f));
  return y * power_of_two(half) * power_of_two(n - half);
}
template <class V> INLINE V between(const V& x, float low, float high) { return where(x < V(low), V(low), where(x > V(high), V(high), x)); }

// x - n * ln(2); n * the first part is exact
template <class V> INLINE V minus_ln2(const V& x, const V& n) { return (x - n * V(0.693359375f)) - n * V(-2.12194442e-4f); }

template <class V> INLINE V exp(const V& given) {
  if constexpr (!is_float<V>) return lib_exp(given);
  else {
    const V x = between(given, -104.0f, 89.0f);
    const V n = round_even(x * V(1.44269504f));
    return scale(V(expm1_core(minus_ln2(x, n)) + V(1.0f)), V(where(given < V(-104.0f), V(ZERO<V>), n)));
  }
}
template <class V> INLINE V exp2(const V& given) {
  if constexpr (!is_float<V>) return lib_exp2(given);
  else {
    const V x = between(given, -151.0f, 129.0f);
    const V n = round_even(x);
    return scale(V(expm1_core(V((x - n) * V(0.693147181f))) + V(1.0f)), V(where(given < V(-151.0f), V(ZERO<V>), n)));
  }
}
template <class V> INLINE V expm1(const V& given) {
  if constexpr (!is_float<V>) return lib_expm1(given);
  else {
    const V x = between(given, -80.0f, 89.0f);
    const V n = round_even(x * V(1.44269504f));
    const V half = power_of_two(n - V(1.0f));  // 2**128 is no float, and the result may still be one
    return V(2.0f) * fma(half, expm1_core(minus_ln2(x, n)), V(half - V(0.5f)));
  }
}
template <class V> INLINE V sigmoid(const V& x) { return constant<V>(1) / V(constant<V>(1) + exp(V(-x))); }
template <class V> INLINE V tanh(const V& x) {
  if constexpr (!is_float<V>) return lib_tanh(x);
  else {
    const V a = abs(x);
    const V e = expm1(V(V(2.0f) * where(a > V(9.2f), V(9.2f), a)));
    return copysign(V(e / V(e + V(2.0f))), x);
  }
}

// ---- logarithms of float32 ----

// x = 2**e * m with m between sqrt(1/2) and sqrt(2), for positive finite x
template <class V> struct Split { V e, m; };
template <class V> INLINE Split<V> split(const V& given) {
  using I = rebind<V, i32>;
  const auto small = given < V(1.17549435e-38f);
  const V x = where(small, given * V(8388608.0f), given);
  const I bits = bits_as<i32>(x);
  const I e = shift_right_raw(bits - I(0x3f3504f3), I(23));
  const V m = bits_as<float>(bits - shift_left_raw(e, I(23)));
  return {cast<float>(e) - where(small, V(23.0f), V(0.0f)), m};
}
// ln(1 + f) for 1 + f as above; 5.9e-9
template <class V> INLINE V log_core(const V& f) {
  V q = fma(V(-0.0763449296f), f, V(0.12761575f));
  q = fma(fma(fma(q, f, V(-0.131601825f)), f, V(0.142017588f)), f, V(-0.166233569f));
  q = fma(fma(fma(q, f, V(0.200012267f)), f, V(-0.250008196f)), f, V(0.333333313f));
  return fma(f * f, fma(f, q, V(-0.5f)), f);
}
template <class V> INLINE V log_ends(const V& x, const V& finite) {
  const V rest = where(x == V(0.0f), V(-INF), V(NOT_A_NUMBER));
  return where(x > V(0.0f), where(x == V(INF), x, finite), rest);
}
template <class V> INLINE V log(const V& x) {
  if constexpr (!is_float<V>) return lib_log(x);
  else {
    const auto s = split(x);
    return log_ends(x, V(fma(s.e, V(0.693359375f), V(fma(s.e, V(-2.12194442e-4f), log_core(V(s.m - V(1.0f))))))));
  }
}
template <class V> INLINE V log2(const V& x) {
  if constexpr (!is_float<V>) return lib_log2(x);
  else {
    const auto s = split(x);
    return log_ends(x, fma(log_core(V(s.m - V(1.0f))), V(1.44269504f), s.e));
  }
}
template <class V> INLINE V log10(const V& x) {
  if constexpr (!is_float<V>) return lib_log10(x);
  else {
    const auto s = split(x);
    const V l = log_core(V(s.m - V(1.0f))) * V(0.434294482f);
    return log_ends(x, V(fma(s.e, V(0.30078125f), V(fma(s.e, V(2.48745663e-4f), l)))));
  }
}
template <class V> INLINE V log1p(const V& x) {
  if constexpr (!is_float<V>) return lib_log1p(x);
  else {
    const V u = V(1.0f) + x;
    const V l = log(u);
    return where((u > V(0.0f)) & (u < V(INF)), V(l + V(x - (u - V(1.0f))) / u), l);
  }
}

// ---- trigonometry of float32 ----

// sin (SHIFT 0) and cos (SHIFT 1): the quadrant, then polynomials on |r| <= pi / 4; 5.4e-12 and 1.1e-10
template <int SHIFT, class V> INLINE V sine(const V& x) {
  using I = rebind<V, i32>;
  if (any(abs(x) > V(8192.0f))) return SHIFT ? lib_cos(x) : lib_sin(x);  // reduction needs more bits of pi
  const V n = round_even(x * V(0.636619772f));
  const V r = ((x - n * V(1.5703125f)) - n * V(4.83989716e-4f)) - n * V(-1.62920685e-7f);
  const V s = r * r;
  const V sin_r = fma(fma(fma(fma(V(2.71756448e-6f), s, V(-1.98392561e-4f)), s, V(0.00833332911f)), s, V(-0.166666672f)), s * r, r);
  const V cos_r = fma(fma(fma(V(2.44312032e-5f), s, V(-0.0013887306f)), s, V(0.0416666456f)), s * s, V(fma(V(-0.5f), s, V(1.0f))));
  const I k = cast<i32>(n) + I(SHIFT);
  const V y = where((k & I(1)) != I(0), cos_r, sin_r);
  return where((k & I(2)) != I(0), V(-y), y);
}
template <class V> INLINE V sin(const V& x) {
  if constexpr (!is_float<V>) return lib_sin(x);
  else return sine<0>(x);
}
template <class V> INLINE V cos(const V& x) {
  if constexpr (!is_float<V>) return lib_cos(x);
  else return sine<1>(x);
}

// The smaller of both numbers divided by the larger, t, has the angle t + t**3 * P(t**2); 2.6e-9
template <class V> INLINE V atan2(const V& y, const V& x) {
  if constexpr (!is_float<V>) return lib_atan2(y, x);
  else {
    const V a = abs(x), b = abs(y);
    const auto steep = b > a;
    const V large = where(steep, b, a), small = where(steep, a, b);
    const V t = where(small == large, where(large == V(0.0f), V(0.0f), V(1.0f)), V(small / large));  // not 0 / 0
    const V s = t * t;
    V p = fma(fma(fma(V(-0.00179362181f), s, V(0.010914606f)), s, V(-0.0311778467f)), s, V(0.0579575934f));
    p = fma(fma(fma(p, s, V(-0.0840345025f)), s, V(0.109521858f)), s, V(-0.142642424f));
    p = fma(fma(p, s, V(0.199985489f)), s, V(-0.333332986f));
    V r = fma(V(s * t), p, t);
    r = where(steep, V(V(1.57079637f) - r) + V(-4.37113883e-8f), r);
    r = where(signbit(x), V(V(3.14159274f) - r) + V(-8.74227766e-8f), r);
    return copysign(r, y);
  }
}
template <class V> INLINE V atan(const V& x) {
  if constexpr (!is_float<V>) return lib_atan(x);
  else return atan2(x, V(1.0f));
}

// ---- special functions ----

// x * P(u), u = x**2 brought to -1..1: well conditioned (the coefficients' magnitudes add up to 1.13); 1.9e-10
template <class V> INLINE V erf(const V& x) {
  if constexpr (!is_float<V>) return lib_erf(x);
  else {
    const V t = between(x, -3.925f, 3.925f);  // beyond, the nearest float is 1
    const V u = fma(t * t, V(0.129822714f), V(-1.0f));
    // Even and odd powers apart: a chain of half the length, which the processor would else wait for.
    const V w = u * u;
    V even = fma(fma(fma(V(5.59496693e-05f), w, V(0.000152002525f)), w, V(0.00103192683f)), w, V(0.00396684231f));
    even = fma(fma(fma(even, w, V(0.0125686089f)), w, V(0.0306893289f)), w, V(0.0583006516f));
    even = fma(fma(fma(even, w, V(0.0906029046f)), w, V(0.13393195f)), w, V(0.360277951f));
    V odd = fma(fma(fma(V(-0.000159908974f), w, V(-0.000282475317f)), w, V(-0.00223995303f)), w, V(-0.00717501715f));
    odd = fma(fma(fma(odd, w, V(-0.0203319937f)), w, V(-0.0435669683f)), w, V(-0.0740699619f));
    odd = fma(fma(odd, w, V(-0.109090567f)), w, V(-0.17988421f));
    const V p = fma(odd, u, even);
    return between(V(t * p), -1.0f, 1.0f);
  }
}
inline double erfinv_one(double x) {
  const double a = __builtin_fabs(x);
  if (!(a < 1)) return a == 1 ? __builtin_copysign(__builtin_inf(), x) : __builtin_nan("");
  const double l = __builtin_log1p(-a * a), h = 4.3307467507954585 + l / 2;  // 2 / (pi * 0.147)
  double y = __builtin_sqrt(__builtin_sqrt(h * h - l / 0.147) - h);
  for (int k = 0; k < 3; ++k) {  // Halley's steps, on erfc where erf is close to 1
    const double gap = a > 0.5 ? (1 - a) - __builtin_erfc(y) : __builtin_erf(y) - a;
    const double step = gap / (1.1283791670955126 * __builtin_exp(-y * y));
    y -= step / (1 + y * step);
  }
  return __builtin_copysign(y, x);
}
template <class V> INLINE V erfinv(const V& x) {
  using T = elem<V>;
  return each<T>([](T v) { return T(erfinv_one(double(v))); }, x);
}

// Without scaling, where squares neither overflow nor vanish beside each other.
template <class V> INLINE V hypot(const V& x, const V& y) {
  using T = elem<V>;
  constexpr T large = is_float<V> ? T(1e18) : T(1e150), small = is_float<V> ? T(1e-15) : T(1e-140);
  const V a = abs(x), b = abs(y), most = where(a > b, a, b);
  const auto tiny = (most < V(small)) & (most != V(T(0)));
  if (any((most >= V(large)) | (most != most) | tiny)) return lib_hypot(x, y);
  return sqrt(fma(a, a, V(b * b)));
}

#define OWN_OF_LIBRARY(NAME) \
  template <class V> INLINE V NAME(const V& x) { return lib_##NAME(x); }
#define OWN_OF_LIBRARY2(NAME) \
  template <class V> INLINE V NAME(const V& x, const V& y) { return lib_##NAME(x, y); }
OWN_OF_LIBRARY(tan) OWN_OF_LIBRARY(asin) OWN_OF_LIBRARY(acos) OWN_OF_LIBRARY(sinh) OWN_OF_LIBRARY(cosh)
OWN_OF_LIBRARY(asinh) OWN_OF_LIBRARY(acosh) OWN_OF_LIBRARY(atanh) OWN_OF_LIBRARY(erfc) OWN_OF_LIBRARY(lgamma)
OWN_OF_LIBRARY2(nextafter) OWN_OF_LIBRARY2(pow)
#undef OWN_OF_LIBRARY
#undef OWN_OF_LIBRARY2

// ---- powers of integers, places ----

template <class V> INLINE V power(const V& a, const V& b) {
  using T = elem<V>;
  return each<T>([](T x, T n) {
    if (n < 0) return T(x == 1 ? 1 : x == T(-1) && T(-1) < T(0) ? (n & 1 ? -1 : 1) : 0);
    T y = 1;
    for (; n; n = T(n >> 1), x = T(x * x)) y = n & 1 ? T(y * x) : y;
    return y;
  }, a, b);
}

// `at`; outside of 0..size-1 the flag is set and the place is 0.
template <class V> INLINE V check_index(const mask<V>& needed, const V& at, const V& size, bool* bad) {
  const auto outside = (at < constant<V>(0)) | (at >= size);
  if (any(outside & needed)) *bad = true;
  return where(outside, constant<V>(0), at);
}

}  // namespace armature
