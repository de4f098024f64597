// Packed data: Vec<T, N> holds N values of T in registers; a scalar stands for itself.
//
// Every function below takes vectors and scalars alike, so generated code prints a body once. A Vec that is wider than a
// register is two halves. No header of the C or C++ library is read: parsing them costs more than compiling a kernel.
// Vector extensions of GCC and Clang do the arithmetic; a few intrinsics, each with a portable twin, do masked moves.
#pragma once

namespace armature {

using i8 = signed char;
using u8 = unsigned char;
using i16 = short;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;
struct bf16 { u16 bits; };  // storage only: computed in float
struct f16 { u16 bits; };

#define INLINE inline __attribute__((always_inline))

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define ARMATURE_AVX512 1
constexpr int REGISTER = 64;
#elif defined(__AVX2__)
constexpr int REGISTER = 32;
#else
constexpr int REGISTER = 16;
#endif

// ---- types ----

template <class A, class B> constexpr bool same = false;
template <class A> constexpr bool same<A, A> = true;
template <bool C, class A, class B> struct Pick { using type = A; };
template <class A, class B> struct Pick<false, A, B> { using type = B; };
template <bool C, class T = void> struct If {};
template <class T> struct If<true, T> { using type = T; };

// What a lane of T is stored as: a mask lane is 0 or -1.
template <class T> struct Lane { using type = T; };
template <> struct Lane<bool> { using type = i32; };
template <> struct Lane<bf16> { using type = u16; };
template <> struct Lane<f16> { using type = u16; };
template <class T> using lane = typename Lane<T>::type;

template <int BYTES> struct Signed;
template <> struct Signed<1> { using type = i8; };
template <> struct Signed<2> { using type = i16; };
template <> struct Signed<4> { using type = i32; };
template <> struct Signed<8> { using type = i64; };
template <class T> using signed_of = typename Signed<sizeof(T)>::type;

template <class S, int N> struct Raw { typedef S type __attribute__((vector_size(N * sizeof(S)))); };
template <class S, int N> using raw = typename Raw<S, N>::type;

template <class T, int N> constexpr bool fits = N * int(sizeof(lane<T>)) <= REGISTER;

template <class T, int N> struct Vec;
template <class T, int N, bool FITS = fits<T, N>> struct Held { raw<lane<T>, N> r; };
template <class T, int N> struct Held<T, N, false> { Vec<T, N / 2> lo, hi; };

template <class V> struct Shape { using elem = V; static constexpr int lanes = 1; };
template <class T, int N> struct Shape<Vec<T, N>> { using elem = T; static constexpr int lanes = N; };
template <class V> using elem = typename Shape<V>::elem;
template <class V> constexpr int lanes = Shape<V>::lanes;
template <class V, class U> struct Rebind { using type = U; };
template <class T, int N, class U> struct Rebind<Vec<T, N>, U> { using type = Vec<U, N>; };
template <class V, class U> using rebind = typename Rebind<V, U>::type;
template <class V> constexpr bool is_vec = false;
template <class T, int N> constexpr bool is_vec<Vec<T, N>> = true;
template <class V> constexpr bool is_float = same<elem<V>, float>;
template <class V> constexpr bool is_floating = is_float<V> || same<elem<V>, double>;

template <class To, class From> INLINE To reinterpret(const From& x) {
  static_assert(sizeof(To) == sizeof(From), "same width");
  To y;
  __builtin_memcpy(&y, &x, sizeof y);
  return y;
}

// ---- halves ----

template <int... K> struct Places {};
template <int FIRST, int COUNT, int... K> struct Run : Run<FIRST, COUNT - 1, FIRST + COUNT - 1, K...> {};
template <int FIRST, int... K> struct Run<FIRST, 0, K...> { using type = Places<K...>; };
#if defined(__clang__) || __GNUC__ >= 12
template <class R, class S, int... K> INLINE R shuffled(const S& x, Places<K...>) { return __builtin_shufflevector(x, x, K...); }
template <class R, class S, int... K> INLINE R put_together(const S& a, const S& b, Places<K...>) { return __builtin_shufflevector(a, b, K...); }
#endif
// Lanes FIRST..FIRST+COUNT-1 of a register; through memory where the compiler has no shuffle.
template <int COUNT, int FIRST, class R, class S> INLINE R part_of(const S& x) {
#if defined(__clang__) || __GNUC__ >= 12
  return shuffled<R>(x, typename Run<FIRST, COUNT>::type{});
#else
  R h;
  __builtin_memcpy(&h, reinterpret_cast<const char*>(&x) + (FIRST ? sizeof h : 0), sizeof h);
  return h;
#endif
}
template <class T, int N> INLINE Vec<T, N / 2> low(const Vec<T, N>& x) {
  if constexpr (!fits<T, N>) return x.lo;
  else { Vec<T, N / 2> h; h.r = part_of<N / 2, 0, raw<lane<T>, N / 2>>(x.r); return h; }
}
template <class T, int N> INLINE Vec<T, N / 2> high(const Vec<T, N>& x) {
  if constexpr (!fits<T, N>) return x.hi;
  else { Vec<T, N / 2> h; h.r = part_of<N / 2, N / 2, raw<lane<T>, N / 2>>(x.r); return h; }
}
template <class T, int M> INLINE Vec<T, 2 * M> join(const Vec<T, M>& a, const Vec<T, M>& b) {
  Vec<T, 2 * M> x;
  if constexpr (!fits<T, 2 * M>) { x.lo = a; x.hi = b; }
  else {
#if defined(__clang__) || __GNUC__ >= 12
    x.r = put_together<decltype(x.r)>(a.r, b.r, typename Run<0, 2 * M>::type{});  // in memory, the read would wait for both stores
#else
    __builtin_memcpy(&x.r, &a.r, sizeof a.r);
    __builtin_memcpy(reinterpret_cast<char*>(&x.r) + sizeof a.r, &b.r, sizeof b.r);
#endif
  }
  return x;
}

template <class U, class T, int N> Vec<U, N> cast(const Vec<T, N>& x);
template <class To, class From, int N> raw<To, N> convert(raw<From, N> x);

// The result of comparing lanes of S, as a mask.
template <class S, int N> INLINE Vec<bool, N> mask_of(raw<S, N> compared) {
  if constexpr (sizeof(S) == 4) { Vec<bool, N> m; m.r = compared; return m; }
  else if constexpr (fits<bool, N>) {
    Vec<bool, N> m;
    m.r = convert<i32, S, N>(compared);
    return m;
  } else {
    Vec<S, N> whole;
    whole.r = compared;
    return join(mask_of<S, N / 2>(low(whole).r), mask_of<S, N / 2>(high(whole).r));
  }
}

// A mask as lanes as wide as T: what a selection of T takes.
template <class T, int N> INLINE raw<signed_of<lane<T>>, N> select_of(const Vec<bool, N>& m) {
  using S = signed_of<lane<T>>;
  if constexpr (fits<bool, N>) {
    if constexpr (sizeof(S) == 4) return m.r;
    else return convert<S, i32, N>(m.r);
  } else {
    Vec<S, N / 2> a, b;
    a.r = select_of<T, N / 2>(m.lo);
    b.r = select_of<T, N / 2>(m.hi);
    return join(a, b).r;
  }
}

// ---- the vector ----

#define BINARY(NAME, EXPR)                                                          \
  friend INLINE Vec NAME(const Vec& a, const Vec& b) {                             \
    Vec c;                                                                         \
    if constexpr (native) c.r = EXPR;                                              \
    else { c.lo = NAME(a.lo, b.lo); c.hi = NAME(a.hi, b.hi); }                     \
    return c;                                                                      \
  }
#define COMPARE(NAME, EXPR)                                                         \
  friend INLINE Vec<bool, N> NAME(const Vec& a, const Vec& b) {                    \
    if constexpr (native) return mask_of<signed_of<lane<T>>, N>(EXPR);             \
    else return join(NAME(a.lo, b.lo), NAME(a.hi, b.hi));                          \
  }

template <class T, int N> struct Vec : Held<T, N> {
  static constexpr bool native = fits<T, N>;
  using Raw = raw<lane<T>, native ? N : 1>;

  Vec() = default;
  template <class U, class = typename If<same<U, T>>::type> INLINE Vec(U x) {
    if constexpr (!native) { this->lo = Vec<T, N / 2>(x); this->hi = Vec<T, N / 2>(x); }
    else if constexpr (same<T, bool>) this->r = Raw{} - i32(x);
    else if constexpr (same<T, bf16> || same<T, f16>) this->r = Raw{} + x.bits;
    else this->r = x - Raw{};  // not 0 + x, which would lose the sign of -0.0
  }

  BINARY(operator+, a.r + b.r)
  BINARY(operator-, a.r - b.r)
  BINARY(operator*, a.r * b.r)
  BINARY(operator&, a.r & b.r)
  BINARY(operator|, a.r | b.r)
  BINARY(operator^, a.r ^ b.r)
  BINARY(operator/, a.r / b.r)  // of floats; integers are divided lane by lane
  COMPARE(operator<, a.r < b.r)
  COMPARE(operator<=, a.r <= b.r)
  COMPARE(operator>, a.r > b.r)
  COMPARE(operator>=, a.r >= b.r)
  COMPARE(operator==, a.r == b.r)
  COMPARE(operator!=, a.r != b.r)
  BINARY(maximum, a.r != a.r ? a.r + a.r : (a.r > b.r ? a.r : b.r))  // NaN goes on; written so that the inner choice stays one instruction
  BINARY(minimum, a.r != a.r ? a.r + a.r : (a.r < b.r ? a.r : b.r))
  BINARY(fmax, (a.r > b.r) | (b.r != b.r) ? a.r : b.r)
  BINARY(fmin, (a.r < b.r) | (b.r != b.r) ? a.r : b.r)
  BINARY(shift_left_raw, a.r << b.r)
  BINARY(shift_right_raw, a.r >> b.r)

  friend INLINE Vec operator~(const Vec& a) {
    Vec c;
    if constexpr (native) c.r = ~a.r;
    else { c.lo = ~a.lo; c.hi = ~a.hi; }
    return c;
  }
  friend INLINE Vec operator-(const Vec& a) {
    Vec c;
    if constexpr (native) c.r = -a.r;
    else { c.lo = -a.lo; c.hi = -a.hi; }
    return c;
  }
  friend INLINE Vec where(const Vec<bool, N>& m, const Vec& a, const Vec& b) {
    Vec c;
    if constexpr (same<T, bool>) { c = (m & a) | (~m & b); }
    else if constexpr (native) c.r = select_of<T, N>(m) ? a.r : b.r;
    else { c.lo = where(low(m), a.lo, b.lo); c.hi = where(high(m), a.hi, b.hi); }
    return c;
  }
};
#undef BINARY
#undef COMPARE

// Lanes in memory, for what is done one by one.
template <class T, int N> struct Spilled { lane<T> at[N]; };
template <class T, int N> INLINE Spilled<T, N> spill(const Vec<T, N>& x) {
  static_assert(sizeof(Spilled<T, N>) == sizeof x, "a vector is its lanes");
  return reinterpret<Spilled<T, N>>(x);
}
template <class T, int N> INLINE Vec<T, N> gathered(const Spilled<T, N>& x) { return reinterpret<Vec<T, N>>(x); }

// `f` of each lane, or of the scalars themselves. Results have the lane type of R.
template <class R, class F, class A> INLINE auto each(F f, const A& a) {
  if constexpr (!is_vec<A>) return R(f(a));
  else {
    auto x = spill(a);
    Spilled<R, lanes<A>> y;
    for (int k = 0; k < lanes<A>; ++k) y.at[k] = lane<R>(f(x.at[k]));
    return gathered<R, lanes<A>>(y);
  }
}
template <class R, class F, class A> INLINE auto each(F f, const A& a, const A& b) {
  if constexpr (!is_vec<A>) return R(f(a, b));
  else {
    auto x = spill(a);
    auto z = spill(b);
    Spilled<R, lanes<A>> y;
    for (int k = 0; k < lanes<A>; ++k) y.at[k] = lane<R>(f(x.at[k], z.at[k]));
    return gathered<R, lanes<A>>(y);
  }
}

// ---- scalars answer to the same names ----

template <class T> using scalar = typename If<!is_vec<T>, T>::type;
template <class T> INLINE scalar<T> maximum(T a, T b) {
  const T more = a > b ? a : b;  // one instruction: only a NaN is a reason to branch
  return a != a ? a : more;
}
template <class T> INLINE scalar<T> minimum(T a, T b) {
  const T less = a < b ? a : b;
  return a != a ? a : less;
}
template <class T> INLINE scalar<T> fmax(T a, T b) { return a > b || b != b ? a : b; }
template <class T> INLINE scalar<T> fmin(T a, T b) { return a < b || b != b ? a : b; }
template <class T> INLINE scalar<T> where(bool m, T a, T b) { return m ? a : b; }
template <class T> INLINE scalar<T> shift_left_raw(T a, T b) { return T(a << b); }
template <class T> INLINE scalar<T> shift_right_raw(T a, T b) { return T(a >> b); }

INLINE bool logical_not(bool a) { return !a; }
template <int N> INLINE Vec<bool, N> logical_not(const Vec<bool, N>& a) { return ~a; }

INLINE bool any(bool m) { return m; }
INLINE bool all(bool m) { return m; }
template <int N> INLINE bool any(const Vec<bool, N>& m) {
  if constexpr (!fits<bool, N>) return any(m.lo | m.hi);
  else {
#ifdef ARMATURE_AVX512
    if constexpr (N == 16) return __builtin_ia32_cvtd2mask512(m.r) != 0;
#endif
    auto x = spill(m);
    i32 found = 0;
    for (int k = 0; k < N; ++k) found |= x.at[k];
    return found != 0;
  }
}
template <int N> INLINE bool all(const Vec<bool, N>& m) { return !any(~m); }

// ---- conversions ----

INLINE float float_of(bf16 x) { return reinterpret<float>(u32(x.bits) << 16); }
INLINE bf16 bf16_of(float x) {
  u32 u = reinterpret<u32>(x);
  if (x != x) return {u16(0x7fc0)};
  return {u16((u + 0x7fff + ((u >> 16) & 1)) >> 16)};  // to nearest, ties to even
}
#ifdef __F16C__
INLINE float float_of(f16 x) { return __builtin_ia32_vcvtph2ps(raw<i16, 8>{i16(x.bits)})[0]; }
INLINE f16 f16_of(float x) { return {u16(__builtin_ia32_vcvtps2ph(raw<float, 4>{x}, 0)[0])}; }  // 0: to nearest
#else
INLINE float float_of(f16 x) {
  u32 magic = 113u << 23, shifted = 0x7c00u << 13;
  u32 u = u32(x.bits & 0x7fff) << 13, exponent = shifted & u;
  u += (127u - 15u) << 23;
  if (exponent == shifted) u += (128u - 16u) << 23;                                      // infinities, NaN
  else if (exponent == 0) u = reinterpret<u32>(reinterpret<float>(u + (1u << 23)) - reinterpret<float>(magic));
  return reinterpret<float>(u | u32(x.bits & 0x8000) << 16);
}
INLINE f16 f16_of(float x) {
  u32 u = reinterpret<u32>(x), sign = u & 0x80000000u, out;
  u ^= sign;
  if (u >= (143u << 23)) out = u > 0x7f800000u ? 0x7e00 : 0x7c00;                        // NaN; overflow
  else if (u < (113u << 23)) out = reinterpret<u32>(reinterpret<float>(u) + 0.5f) - 0x3f000000u;  // subnormal
  else out = (u + 0xc8000fffu + ((u >> 13) & 1)) >> 13;
  return {u16(out | sign >> 16)};
}
#endif

template <class U, class T> INLINE scalar<U> cast(T x) {
  if constexpr (same<U, T>) return x;
  else if constexpr (same<T, bf16> || same<T, f16>) return cast<U>(float_of(x));
  else if constexpr (same<U, bf16>) return bf16_of(cast<float>(x));
  else if constexpr (same<U, f16>) return f16_of(cast<float>(x));
  else if constexpr (same<U, bool>) return x != T(0);
  else if constexpr (is_floating<T> && sizeof(U) < 4) return U(i32(x));
  else return U(x);
}

// Numbers of other widths with one instruction, where GCC's own conversion takes several shuffles of halves.
#if defined(ARMATURE_AVX512) && !defined(__clang__) && defined(__GNUC__)
template <class T> constexpr bool is_integer = !same<T, float> && !same<T, double>;
template <class To, class From, int N> constexpr bool doubles = N == 8 && same<To, double> && (same<From, float> || same<From, i32>);
template <class To, class From, int N> constexpr bool resizes = doubles<To, From, N> || is_integer<To> && is_integer<From> &&
    ((N == 16 && (sizeof(To) == 4) != (sizeof(From) == 4) && sizeof(To) <= 4 && sizeof(From) <= 4) ||
     (N == 8 && ((sizeof(To) == 4 && (sizeof(From) == 2 || sizeof(From) == 8)) || (sizeof(From) == 4 && (sizeof(To) == 2 || sizeof(To) == 8)))));
#define RESIZE(NAME, S, W, ALL) reinterpret<raw<To, N>>(__builtin_ia32_##NAME##_mask(reinterpret<raw<S, N>>(x), raw<W, N>{}, ALL))
#define WIDEN(NAME, S, W, ALL) (From(-1) < From(0) ? RESIZE(pmovsx##NAME, S, W, ALL) : RESIZE(pmovzx##NAME, S, W, ALL))
template <class To, class From, int N> INLINE raw<To, N> resized(raw<From, N> x) {
  constexpr int from = sizeof(From), to = sizeof(To);
  if constexpr (doubles<To, From, N>) {
    if constexpr (same<From, float>) return __builtin_ia32_cvtps2pd512_mask(x, raw<double, 8>{}, 0xff, 4);
    else return __builtin_ia32_cvtdq2pd512_mask(x, raw<double, 8>{}, 0xff);
  } else if constexpr (N == 16 && from == 1) return WIDEN(bd512, char, i32, 0xffff);
  else if constexpr (N == 16 && from == 2) return WIDEN(wd512, i16, i32, 0xffff);
  else if constexpr (N == 16 && to == 1) return RESIZE(pmovdb512, i32, char, 0xffff);
  else if constexpr (N == 16) return RESIZE(pmovdw512, i32, i16, 0xffff);
  else if constexpr (from == 2) return WIDEN(wd256, i16, i32, 0xff);
  else if constexpr (to == 2) return RESIZE(pmovdw256, i32, i16, 0xff);
  else if constexpr (from == 4) return WIDEN(dq512, i32, i64, 0xff);
  else return RESIZE(pmovqd512, i64, i32, 0xff);
}
#undef WIDEN
#undef RESIZE
#else
template <class To, class From, int N> constexpr bool resizes = false;
template <class To, class From, int N> INLINE raw<To, N> resized(raw<From, N> x) { return __builtin_convertvector(x, raw<To, N>); }
#endif

// Convert between native vectors; a step changes the width at most twofold, else GCC goes lane by lane.
template <class To, class From, int N> INLINE raw<To, N> convert(raw<From, N> x) {
  constexpr bool from_float = same<From, float> || same<From, double>, to_float = same<To, float> || same<To, double>;
  if constexpr (same<To, From>) return x;
  else if constexpr (resizes<To, From, N>) return resized<To, From, N>(x);
  else if constexpr (from_float && sizeof(To) < 4) return convert<To, i32, N>(convert<i32, From, N>(x));
  else if constexpr (to_float && sizeof(From) < 4) return convert<To, i32, N>(convert<i32, From, N>(x));
  else if constexpr (sizeof(From) == 1 && sizeof(To) > 2)
    return convert<To, typename Pick<From(-1) < From(0), i16, u16>::type, N>(convert<typename Pick<From(-1) < From(0), i16, u16>::type, From, N>(x));
  else if constexpr (sizeof(From) == 2 && sizeof(To) > 4)
    return convert<To, typename Pick<From(-1) < From(0), i32, u32>::type, N>(convert<typename Pick<From(-1) < From(0), i32, u32>::type, From, N>(x));
  else if constexpr (sizeof(From) > 4 && sizeof(To) < 4) return convert<To, i32, N>(convert<i32, From, N>(x));
  else if constexpr (sizeof(From) == 4 && sizeof(To) == 1) return convert<To, i16, N>(convert<i16, From, N>(x));
  else return __builtin_convertvector(x, raw<To, N>);
}

template <int N> INLINE raw<float, N> floats_of_f16(raw<u16, N> h) {
#ifdef ARMATURE_AVX512
  if constexpr (N == 16) return __builtin_ia32_vcvtph2ps512_mask(reinterpret<raw<i16, 16>>(h), raw<float, 16>{}, -1, 4);
#endif
#ifdef __F16C__
  if constexpr (N == 8) return __builtin_ia32_vcvtph2ps256(reinterpret<raw<i16, 8>>(h));
#endif
  Vec<u16, N> x;
  x.r = h;
  return each<float>([](u16 v) { return float_of(f16{v}); }, x).r;
}
template <int N> INLINE raw<u16, N> f16_of_floats(raw<float, N> x) {
#ifdef ARMATURE_AVX512
  if constexpr (N == 16) return reinterpret<raw<u16, 16>>(__builtin_ia32_vcvtps2ph512_mask(x, 0, raw<i16, 16>{}, -1));
#endif
#ifdef __F16C__
  if constexpr (N == 8) return reinterpret<raw<u16, 8>>(__builtin_ia32_vcvtps2ph256(x, 0));
#endif
  Vec<float, N> v;
  v.r = x;
  return each<u16>([](float f) { return f16_of(f).bits; }, v).r;
}
template <int N> INLINE raw<u16, N> bf16_of_floats(raw<float, N> x) {
  auto u = reinterpret<raw<u32, N>>(x);
  auto rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  return convert<u16, u32, N>(x != x ? raw<u32, N>{} + 0x7fc0 : rounded);
}

template <class U, class T, int N> INLINE Vec<U, N> cast(const Vec<T, N>& x) {
  if constexpr (same<U, T>) return x;
  else if constexpr (same<U, bool>) {
    if constexpr (same<T, bf16> || same<T, f16>) return cast<bool>(cast<float>(x));
    else return x != Vec<T, N>(T(0));
  } else if constexpr (same<T, bool>) {
    if constexpr (same<U, bf16> || same<U, f16>) return where(x, Vec<U, N>(cast<U>(1.0f)), Vec<U, N>(cast<U>(0.0f)));
    else return where(x, Vec<U, N>(U(1)), Vec<U, N>(U(0)));
  } else if constexpr (!(fits<T, N> && fits<U, N>)) return join(cast<U>(low(x)), cast<U>(high(x)));
  else {
    Vec<U, N> y;
    if constexpr (same<T, bf16>) {
      if constexpr (same<U, float>) y.r = reinterpret<raw<float, N>>(convert<u32, u16, N>(x.r) << 16);
      else y = cast<U>(cast<float>(x));
    } else if constexpr (same<T, f16>) {
      if constexpr (same<U, float>) y.r = floats_of_f16<N>(x.r);
      else y = cast<U>(cast<float>(x));
    } else if constexpr (same<U, bf16>) {
      if constexpr (same<T, float>) y.r = bf16_of_floats<N>(x.r);
      else y = cast<U>(cast<float>(x));
    } else if constexpr (same<U, f16>) {
      if constexpr (same<T, float>) y.r = f16_of_floats<N>(x.r);
      else y = cast<U>(cast<float>(x));
    } else y.r = convert<U, T, N>(x.r);
    return y;
  }
}

// Quotient and remainder of numbers that are not negative by a constant: exact, because that far from a whole number
// doubles are close enough. Processors have no vector division of integers.
template <int BY, class V> INLINE V quotient(const V& x) {
  if constexpr (!is_vec<V>) return x / BY;
  else if constexpr ((BY & (BY - 1)) == 0) return shift_right_raw(x, V(i32(__builtin_ctz(BY))));
  else {
    using D = rebind<V, double>;
    return cast<i32>((cast<double>(x) + D(0.5)) * D(1.0 / BY));
  }
}
template <int BY, class V> INLINE V remainder(const V& x) { return x - quotient<BY>(x) * V(i32(BY)); }

// The same bits as another type of the same width.
template <class U, class T> INLINE auto bits_as(const T& x) { return reinterpret<rebind<T, U>>(x); }

// ---- which lanes are there ----
// Full<N>: all lanes are there. Part<N>: the first `count` are; the others are neither read nor written.

template <int LANES> struct Full { static constexpr int N = LANES; static constexpr bool full = true; static constexpr i64 count = LANES; };
template <int LANES> struct Part { static constexpr int N = LANES; static constexpr bool full = false; i64 count; };

// 0, 1, 2 ... as a constant; put together in memory, it would be stored and read back in each round of a loop.
template <class T, int... K> INLINE raw<lane<T>, int(sizeof...(K))> counted(Places<K...>) { return raw<lane<T>, int(sizeof...(K))>{lane<T>(K)...}; }
template <class T, int N, int FIRST = 0> INLINE Vec<T, N> iota() {
  if constexpr (!fits<T, N>) return join(iota<T, N / 2, FIRST>(), iota<T, N / 2, FIRST + N / 2>());
  else { Vec<T, N> x; x.r = counted<T>(typename Run<FIRST, N>::type{}); return x; }
}
// The lanes before number `count`, and those from it on.
template <class L> INLINE Vec<bool, L::N> lanes_below(L, i32 count) { return iota<i32, L::N>() < Vec<i32, L::N>(count); }
template <class L> INLINE Vec<bool, L::N> lanes_from(L, i32 count) { return iota<i32, L::N>() >= Vec<i32, L::N>(count); }
template <class L> INLINE Vec<bool, L::N> active(L l) {
  if constexpr (L::full) return Vec<bool, L::N>(true);
  else return iota<i32, L::N>() < Vec<i32, L::N>(i32(l.count));
}

// A value computed lane by lane from an index: T(place(k)).
template <class T, class L, class F> INLINE Vec<T, L::N> index_lanes(L, F place) {
  Spilled<T, L::N> x;
  for (int k = 0; k < L::N; ++k) x.at[k] = lane<T>(place(k));
  return gathered<T, L::N>(x);
}
// first, first + step, first + 2 * step ...
template <class T, class L> INLINE Vec<T, L::N> index_steps(L, i64 first, i64 step) {
  if constexpr (same<T, i64>) return Vec<i64, L::N>(first) + iota<i64, L::N>() * Vec<i64, L::N>(step);
  else return cast<T>(Vec<i64, L::N>(first) + iota<i64, L::N>() * Vec<i64, L::N>(step));
}

}  // namespace armature
