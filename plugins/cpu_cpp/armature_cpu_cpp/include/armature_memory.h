// Packed data in memory: loads and stores of some lanes or all, at steps, at places of their own.
#pragma once
#include "armature_vec.h"

namespace armature {

// How a value lies in memory.
template <class T> struct Memory { using type = lane<T>; };
template <> struct Memory<bool> { using type = u8; };

template <class T, int N> INLINE Vec<T, N> unpack(const raw<typename Memory<T>::type, N>& x) {
  Vec<T, N> y;
  if constexpr (same<T, bool>) { Vec<u8, N> m; m.r = x; y = m != Vec<u8, N>(u8(0)); }
  else y.r = x;
  return y;
}
template <class T, int N> INLINE raw<typename Memory<T>::type, N> pack(const Vec<T, N>& x) {
  if constexpr (same<T, bool>) return cast<u8>(x).r;
  else return x.r;
}

// A bit for each of the first `count` lanes; a count below 0 is none, one above N all.
template <int N> INLINE u32 bits_below(i64 count) { return count >= N ? u32((u64(1) << N) - 1) : count <= 0 ? 0 : (1u << count) - 1; }

#ifdef ARMATURE_AVX512
// A bit for each lane of a mask.
template <int N> INLINE u32 bits_of(const Vec<bool, N>& m) {
  if constexpr (N == 16) return __builtin_ia32_cvtd2mask512(m.r);
  else if constexpr (N == 8) return __builtin_ia32_cvtd2mask256(m.r);
  else return bits_of(low(m)) | bits_of(high(m)) << N / 2;
}
struct Address {  // of whatever type the instruction's function takes
  const void* at;
  template <class T> INLINE operator T*() const { return (T*)at; }
};
// Whether there are instructions that move some of N lanes of M: registers of 16, 32 and 64 bytes, and 8 bytes as half of one.
template <class M, int N> constexpr bool moves = (N == 16 || N == 8) && N * sizeof(M) <= 64;
template <class M, int N> INLINE raw<M, N> load_bits_of(const M* p, u32 bits) {
  const Address a{p};
  if constexpr (sizeof(M) == 8) return reinterpret<raw<M, N>>(__builtin_ia32_loadupd512_mask(a, raw<double, 8>{}, bits));
  else if constexpr (sizeof(M) == 4 && N == 16) return reinterpret<raw<M, N>>(__builtin_ia32_loadups512_mask(a, raw<float, 16>{}, bits));
  else if constexpr (sizeof(M) == 4) return reinterpret<raw<M, N>>(__builtin_ia32_loadups256_mask(a, raw<float, 8>{}, bits));
  else if constexpr (sizeof(M) == 2 && N == 16) return reinterpret<raw<M, N>>(__builtin_ia32_loaddquhi256_mask(a, raw<short, 16>{}, bits));
  else if constexpr (sizeof(M) == 2) return reinterpret<raw<M, N>>(__builtin_ia32_loaddquhi128_mask(a, raw<short, 8>{}, bits));
  else {
    const auto x = __builtin_ia32_loaddquqi128_mask(a, raw<char, 16>{}, bits);
    if constexpr (N == 16) return reinterpret<raw<M, N>>(x);
    else return part_of<8, 0, raw<M, 8>>(reinterpret<raw<M, 16>>(x));
  }
}
template <class M, int N> INLINE void store_bits_of(M* p, const raw<M, N>& x, u32 bits) {
  const Address a{p};
  if constexpr (sizeof(M) == 8) __builtin_ia32_storeupd512_mask(a, reinterpret<raw<double, 8>>(x), bits);
  else if constexpr (sizeof(M) == 4 && N == 16) __builtin_ia32_storeups512_mask(a, reinterpret<raw<float, 16>>(x), bits);
  else if constexpr (sizeof(M) == 4) __builtin_ia32_storeups256_mask(a, reinterpret<raw<float, 8>>(x), bits);
  else if constexpr (sizeof(M) == 2 && N == 16) __builtin_ia32_storedquhi256_mask(a, reinterpret<raw<short, 16>>(x), bits);
  else if constexpr (sizeof(M) == 2) __builtin_ia32_storedquhi128_mask(a, reinterpret<raw<short, 8>>(x), bits);
  else {
    raw<char, 16> y = {};
    __builtin_memcpy(&y, &x, sizeof x);
    __builtin_ia32_storedquqi128_mask(a, y, bits);
  }
}
#else
template <class M, int N> constexpr bool moves = false;
template <int N> u32 bits_of(const Vec<bool, N>& m);  // named below, never called
template <class M, int N> raw<M, N> load_bits_of(const M* p, u32 bits);
template <class M, int N> void store_bits_of(M* p, const raw<M, N>& x, u32 bits);
#endif

// f of the lanes of each half of `l`, joined.
template <int FIRST> struct Side {
  static constexpr int first = FIRST;
  template <class T, int N> INLINE Vec<T, N / 2> of(const Vec<T, N>& x) const {
    if constexpr (FIRST) return high(x);
    else return low(x);
  }
};
#define HALF(h, side) [&](auto h, auto side) __attribute__((always_inline))
template <class L, class F> INLINE auto halves(L l, F f) {
  constexpr int H = L::N / 2;
  if constexpr (L::full) return join(f(Full<H>{}, Side<0>{}), f(Full<H>{}, Side<H>{}));
  else {
    const i64 first = l.count < H ? l.count : H;
    return join(f(Part<H>{first}, Side<0>{}), f(Part<H>{l.count - first}, Side<H>{}));
  }
}

template <class L, class T> INLINE Vec<T, L::N> load(L l, const T* p) {
  constexpr int N = L::N;
  using M = typename Memory<T>::type;
  if constexpr (!fits<T, N>) return halves(l, HALF(h, side) { return load(h, p + side.first); });
  else {
    raw<M, N> x;
    if constexpr (L::full) __builtin_memcpy(&x, p, sizeof x);
    else if constexpr (moves<M, N>) x = load_bits_of<M, N>((const M*)p, bits_below<N>(l.count));
    else {
      M lanes[N] = {};
      if (l.count > 0) __builtin_memcpy(lanes, p, l.count * sizeof(M));
      __builtin_memcpy(&x, lanes, sizeof x);
    }
    return unpack<T, N>(x);
  }
}

template <class L, class T> INLINE void store(L l, T* p, const Vec<T, L::N>& x) {
  constexpr int N = L::N;
  using M = typename Memory<T>::type;
  if constexpr (!fits<T, N>) {
    if constexpr (L::full) { store(Full<N / 2>{}, p, x.lo); store(Full<N / 2>{}, p + N / 2, x.hi); }
    else {
      const i64 half = N / 2, first = l.count < half ? l.count : half;
      store(Part<N / 2>{first}, p, x.lo);
      store(Part<N / 2>{l.count - first}, p + half, x.hi);
    }
  } else {
    raw<M, N> y = pack<T, N>(x);
    if constexpr (L::full) __builtin_memcpy(p, &y, sizeof y);
    else if constexpr (moves<M, N>) store_bits_of<M, N>((M*)p, y, bits_below<N>(l.count));
    else if (l.count > 0) __builtin_memcpy(p, &y, l.count * sizeof(M));
  }
}

// The lanes of `m` only; 0 elsewhere. What lies outside of `m` is not touched.
template <class L, class T> INLINE Vec<T, L::N> load_where(L l, const Vec<bool, L::N>& m, const T* p) {
  constexpr int N = L::N;
  using M = typename Memory<T>::type;
  if constexpr (!fits<T, N>) return halves(l, HALF(h, side) { return load_where(h, side.of(m), p + side.first); });
  else if constexpr (moves<M, N>) return unpack<T, N>(load_bits_of<M, N>((const M*)p, bits_of(m) & bits_below<N>(l.count)));
  else {
    auto keep = spill(m);
    Spilled<T, N> x = {};
    for (int k = 0; k < l.count; ++k)
      if (keep.at[k]) {
        if constexpr (same<T, bool>) x.at[k] = -lane<T>(p[k]);
        else __builtin_memcpy(&x.at[k], p + k, sizeof(T));
      }
    return gathered<T, N>(x);
  }
}

// Lane k comes from p[place(k)].
template <class L, class T, class F> INLINE Vec<T, L::N> gather(L l, const T* p, F place) {
  Spilled<T, L::N> x = {};
  for (int k = 0; k < l.count; ++k) {
    if constexpr (same<T, bool>) x.at[k] = -lane<T>(p[place(k)]);
    else __builtin_memcpy(&x.at[k], p + place(k), sizeof(T));
  }
  return gathered<T, L::N>(x);
}
template <class L, class T, class F> INLINE Vec<T, L::N> gather_where(L l, const Vec<bool, L::N>& m, const T* p, F place) {
  auto keep = spill(m);
  Spilled<T, L::N> x = {};
  for (int k = 0; k < l.count; ++k)
    if (keep.at[k]) {
      if constexpr (same<T, bool>) x.at[k] = -lane<T>(p[place(k)]);
      else __builtin_memcpy(&x.at[k], p + place(k), sizeof(T));
    }
  return gathered<T, L::N>(x);
}
// Lane k comes from p[places[k]]: with the processor's own gathers, where they are known to be faster than lane by lane.
#if defined(ARMATURE_AVX512) && defined(ARMATURE_GATHER)
template <class T, int N> INLINE Vec<T, N> gather_bits(const T* p, const Vec<i64, N>& places, u32 bits) {
  Vec<T, N> x;
  if constexpr (sizeof(T) == 4) x.r = reinterpret<raw<lane<T>, N>>(__builtin_ia32_gatherdiv16sf(raw<float, 8>{}, p, places.r, bits, 4));
  else x.r = reinterpret<raw<lane<T>, N>>(__builtin_ia32_gatherdiv8df(raw<double, 8>{}, p, places.r, bits, 8));
  return x;
}
template <class T, int N> INLINE Vec<T, N> gather_bits(const T* p, const Vec<i32, N>& places, u32 bits) {
  Vec<T, N> x;
  if constexpr (N == 16) x.r = reinterpret<raw<lane<T>, N>>(__builtin_ia32_gathersiv16sf(raw<float, 16>{}, p, places.r, bits, 4));
  else if constexpr (sizeof(T) == 4) x.r = reinterpret<raw<lane<T>, N>>(__builtin_ia32_gather3siv8sf(raw<float, 8>{}, p, places.r, bits, 4));
  else x.r = reinterpret<raw<lane<T>, N>>(__builtin_ia32_gathersiv8df(raw<double, 8>{}, p, places.r, bits, 8));
  return x;
}
template <class T, int N> constexpr bool gathers = !same<T, bool> && (sizeof(T) == 4 || sizeof(T) == 8) && N >= 8;
#else
template <class T, int N> constexpr bool gathers = false;
template <class T, int N, class I> Vec<T, N> gather_bits(const T* p, const Vec<I, N>& places, u32 bits);
#endif
template <class L, class T, class I> INLINE Vec<T, L::N> gather_at(L l, const T* p, const Vec<I, L::N>& places) {
  constexpr int N = L::N;
  if constexpr (!gathers<T, N>) {
    const auto at = spill(places);
    return gather(l, p, [&](i64 k) { return i64(at.at[k]); });
  } else if constexpr (!fits<T, N> || !fits<I, N>) return halves(l, HALF(h, side) { return gather_at(h, p, side.of(places)); });
  else return gather_bits<T, N>(p, places, bits_below<N>(l.count));
}
template <class L, class T, class I> INLINE Vec<T, L::N> gather_at_where(L l, const Vec<bool, L::N>& m, const T* p, const Vec<I, L::N>& places) {
  constexpr int N = L::N;
  if constexpr (!gathers<T, N>) {
    const auto at = spill(places);
    return gather_where(l, m, p, [&](i64 k) { return i64(at.at[k]); });
  } else if constexpr (!fits<T, N> || !fits<I, N>) return halves(l, HALF(h, side) { return gather_at_where(h, side.of(m), p, side.of(places)); });
  else return gather_bits<T, N>(p, places, bits_of(m) & bits_below<N>(l.count));
}
// Lane k comes from p[STEP * k]: the registers from p to the last lane's element, and not beyond, are loaded and shuffled,
// several times as fast as lane by lane.
template <int STEP, int N> constexpr int begin_of(int number) { return number < STEP - 1 ? number * N : STEP * (N - 1) + 1 - N; }
template <int STEP, int N> constexpr int source_of(int number, int lane) {
  int past = STEP * lane - begin_of<STEP, N>(number);
  if (past >= 0 && past < N) return N + past;                    // of the register that is added
  return number > 1 ? lane : STEP * lane < N ? STEP * lane : 0;  // of what was found before: at first the raw register
}
#if defined(__clang__) || __GNUC__ >= 12
#define ARMATURE_SHUFFLES 1
template <int STEP, int NUMBER, class R, int... K> INLINE R with_register(const R& found, const R& next, Places<K...>) {
  return __builtin_shufflevector(found, next, source_of<STEP, int(sizeof...(K))>(NUMBER, K)...);
}
template <int STEP, int N, int NUMBER = 1, class R, class F> INLINE R every(const R& found, F read) {
  if constexpr (NUMBER == STEP) return found;
  else return every<STEP, N, NUMBER + 1>(with_register<STEP, NUMBER>(found, read(begin_of<STEP, N>(NUMBER)), typename Run<0, N>::type{}), read);
}
#endif
#if defined(ARMATURE_AVX512) && defined(ARMATURE_SHUFFLES)
template <int STEP> INLINE Vec<float, 16> load_bits(const float* p, u32 lanes) {
  constexpr u64 every_step = STEP == 2 ? 0x5555555555555555 : STEP == 3 ? 0x9249249249249249 : 0x1111111111111111;
  const u64 bits = __builtin_ia32_pdep_di(lanes, every_step);
  auto read = [&](int begin) { return __builtin_ia32_loadups512_mask(p + begin, raw<float, 16>{}, u16(bits >> begin)); };
  Vec<float, 16> x;
  x.r = every<STEP, 16>(read(0), read);
  return x;
}
#endif
template <int STEP, class L, class T> INLINE Vec<T, L::N> load_steps(L l, const T* p) {
  constexpr int N = L::N;
  if constexpr (L::full && !fits<T, N>)
    return join(load_steps<STEP>(Full<N / 2>{}, p), load_steps<STEP>(Full<N / 2>{}, p + STEP * (N / 2)));
#ifdef ARMATURE_SHUFFLES
  else if constexpr (L::full) {
    using R = raw<typename Memory<T>::type, N>;
    auto read = [&](int begin) { R x; __builtin_memcpy(&x, p + begin, sizeof x); return x; };
    return unpack<T, N>(every<STEP, N>(read(0), read));
  }
#ifdef ARMATURE_AVX512
  else if constexpr (same<T, float> && N == 16) return load_bits<STEP>(p, bits_below<16>(l.count));
#endif
#endif
  else return gather(l, p, [](i64 k) { return STEP * k; });
}
template <int STEP, class L, class T> INLINE Vec<T, L::N> load_steps_where(L l, const Vec<bool, L::N>& m, const T* p) {
#if defined(ARMATURE_AVX512) && defined(ARMATURE_SHUFFLES)
  if constexpr (same<T, float> && L::N == 16) return load_bits<STEP>(p, bits_of(m) & bits_below<16>(l.count));
  else
#endif
  return gather_where(l, m, p, [](i64 k) { return STEP * k; });
}
// The same for steps that would take too many shuffles.
template <int STEP, class L> INLINE auto places_of(L) {
  using I = typename Pick<(STEP < 1 << 24 && STEP > -(1 << 24)), i32, i64>::type;
  return iota<I, L::N>() * Vec<I, L::N>(I(STEP));
}
template <int STEP, class L, class T> INLINE Vec<T, L::N> gather_steps(L l, const T* p) {
  if constexpr (gathers<T, L::N>) return gather_at(l, p, places_of<STEP>(l));
  else return gather(l, p, [](i64 k) { return STEP * k; });
}
template <int STEP, class L, class T> INLINE Vec<T, L::N> gather_steps_where(L l, const Vec<bool, L::N>& m, const T* p) {
  if constexpr (gathers<T, L::N>) return gather_at_where(l, m, p, places_of<STEP>(l));
  else return gather_where(l, m, p, [](i64 k) { return STEP * k; });
}
template <class T> INLINE T in_memory(lane<T> x) {
  if constexpr (same<T, bool>) return x != 0;
  else return reinterpret<T>(x);
}
// Lane k goes to p[place(k)].
template <class L, class T, class F> INLINE void scatter(L l, T* p, F place, const Vec<T, L::N>& value) {
  auto x = spill(value);
  for (int k = 0; k < l.count; ++k) p[place(k)] = in_memory<T>(x.at[k]);
}
// Lane k goes to p[2 * k], and the lane of the second vector to the element behind it.
#ifdef ARMATURE_SHUFFLES
template <int N, int FIRST, class R, int... K> INLINE R alternating(const R& a, const R& b, Places<K...>) {
  return __builtin_shufflevector(a, b, (FIRST + K / 2 + (K % 2 ? N : 0))...);
}
#endif
template <class L, class T> INLINE void store_pairs(L l, T* p, const Vec<T, L::N>& a, const Vec<T, L::N>& b) {
  constexpr int N = L::N;
  using M = typename Memory<T>::type;
  if constexpr (L::full && !fits<T, N>) {
    store_pairs(Full<N / 2>{}, p, a.lo, b.lo);
    store_pairs(Full<N / 2>{}, p + N, a.hi, b.hi);
  }
#ifdef ARMATURE_SHUFFLES
  else if constexpr (fits<T, N> && (L::full || moves<M, N>)) {
    const auto x = pack<T, N>(a), y = pack<T, N>(b);
    const auto low = alternating<N, 0>(x, y, typename Run<0, N>::type{}), high = alternating<N, N / 2>(x, y, typename Run<0, N>::type{});
    if constexpr (L::full) {
      __builtin_memcpy(p, &low, sizeof low);
      __builtin_memcpy(p + N, &high, sizeof high);
    } else {
      store_bits_of<M, N>((M*)p, low, bits_below<N>(2 * l.count));
      store_bits_of<M, N>((M*)p + N, high, bits_below<N>(2 * l.count - N));
    }
  }
#endif
  else {
    const auto x = spill(a), y = spill(b);
    for (int k = 0; k < l.count; ++k) { p[2 * k] = in_memory<T>(x.at[k]); p[2 * k + 1] = in_memory<T>(y.at[k]); }
  }
}
// What is there is combined with the value, lane by lane: several may go to the same place.
template <class L, class T, class F, class C> INLINE void scatter_into(L l, T* p, F place, const Vec<T, L::N>& value, C combine) {
  auto x = spill(value);
  _Pragma("GCC unroll 16")
  for (int k = 0; k < l.count; ++k) p[place(k)] = cast<T>(combine(p[place(k)], in_memory<T>(x.at[k])));
}

}  // namespace armature
