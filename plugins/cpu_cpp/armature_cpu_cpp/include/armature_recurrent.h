// Layers of recurrent networks as one loop over time, forward and backward: each step is a product of the state and the
// weights by blocks of sums in registers, followed by the gates, while the sums are in the first cache.
//
// Threads share the rows of the batch, which are independent of one another, so they need not wait for one another.
#pragma once
#include "armature_products.h"

namespace armature {
namespace recurrent {

#ifdef ARMATURE_AVX512
constexpr int BLOCK_ROWS = 8, BLOCK_VECTORS = 3;
#else
constexpr int BLOCK_ROWS = 6, BLOCK_VECTORS = 2;
#endif
constexpr i64 MOST_ROWS = 32;  // of the batch, whose sums stay in the cache

template <class T> constexpr int LANES_OF = REGISTER / int(sizeof(T));
template <class T> constexpr i64 PANEL_WIDTH = BLOCK_VECTORS * LANES_OF<T>;
template <class T> INLINE i64 in_panels(i64 columns) { return (columns + PANEL_WIDTH<T> - 1) / PANEL_WIDTH<T> * PANEL_WIDTH<T>; }

#if defined(__clang__) || __GNUC__ >= 12
// Of the blocks of S lanes of two vectors: the first of each pair, or the second.
template <int S, bool SECOND, class R, int... P> INLINE R exchanged(const R& one, const R& other, Places<P...>) {
  constexpr int N = sizeof...(P);
  return __builtin_shufflevector(one, other, (SECOND ? (P & S ? N + P : P + S) : (P & S ? N + P - S : P))...);
}
#endif
// N rows of N elements, exchanged with their columns: blocks of S columns at a time.
template <int S, class T, int N> INLINE void transpose(Vec<T, N> (&rows)[N]) {
#if defined(__clang__) || __GNUC__ >= 12
  if constexpr (S < N) {
    UNROLL for (int r = 0; r < N; ++r) if (!(r & S)) {
      const auto one = rows[r].r, other = rows[r + S].r;
      rows[r].r = exchanged<S, false>(one, other, typename Run<0, N>::type{});
      rows[r + S].r = exchanged<S, true>(one, other, typename Run<0, N>::type{});
    }
    transpose<2 * S>(rows);
  }
#else
  alignas(64) T from[N][N], to[N];
  for (int r = 0; r < N; ++r) store(Full<N>{}, from[r], rows[r]);
  for (int c = 0; c < N; ++c) {
    for (int r = 0; r < N; ++r) to[r] = from[r][c];
    rows[c] = load(Full<N>{}, to);
  }
#endif
}

// A matrix of [depth, columns], copied to panels as `sums_of_panels` reads them.
template <class T> struct Panels {
  i64 depth, width;
  Scratch<T> copy;

  Panels(Rows<T> from, i64 depth, i64 columns) : depth(depth), width(in_panels<T>(columns)), copy(depth * width) {
    constexpr i64 WIDE = PANEL_WIDTH<T>;
    constexpr int N = LANES_OF<T>;
    parallel(width / N, [&](i64 begin, i64 end) {
      for (i64 at = begin * N; at < end * N; at += N) {
        T* const to = copy.at + at / WIDE * WIDE * depth + at % WIDE;
        i64 k = 0;
        if (from.down == 1 && at + N <= columns)
          for (; k + N <= depth; k += N) {
            Vec<T, N> rows[N];
            UNROLL for (int r = 0; r < N; ++r) rows[r] = load(Full<N>{}, from.at + (at + r) * from.along + k);
            transpose<1>(rows);
            UNROLL for (int r = 0; r < N; ++r) store(Full<N>{}, to + (k + r) * WIDE, rows[r]);
          }
        for (; k < depth; ++k)
          for (i64 j = 0; j < N; ++j) to[k * WIDE + j] = at + j < columns ? from.at[k * from.down + (at + j) * from.along] : T(0);
      }
    });
  }
  INLINE void product(T* sums, const T* left, i64 rows) const {
    sums_of_panels<LANES_OF<T>, BLOCK_ROWS, BLOCK_VECTORS>(sums, width, Rows<T>{left, depth, 1}, copy.at, rows, width, depth);
  }
};

// What is the same in all cells. Sequences are [steps, batch, ...]; all memory is contiguous.
struct Sizes {
  i64 steps, batch, width;
  bool reverse;

  // Where the values of the step lie that is computed after `s` others.
  INLINE i64 place(i64 s) const { return (reverse ? steps - 1 - s : s) * batch * width; }
  // f(first row, rows) for blocks of rows of the batch.
  template <class F> void blocks(F f) const {
    parallel(batch, [&](i64 begin, i64 end) {
      for (i64 row = begin; row < end; row += MOST_ROWS) f(row, least(MOST_ROWS, end - row));
    });
  }
  // f(lanes, row, unit) for the vectors of a block.
  template <int N, class F> INLINE void elements(i64 first, i64 rows, F f) const {
    for (i64 row = first; row < first + rows; ++row) vectors<N>(0, width, LANES(l, unit) { f(l, row, unit); });
  }
};

// The gates of an element, side by side.
template <class L, class T, class... V> INLINE void store_gates(L l, T* to, i64 width, const V&... gates) {
  i64 k = 0;
  (store(l, to + width * k++, gates), ...);
}
// Rows of a block.
template <class T> INLINE void copy_rows(T* to, const T* from, i64 first, i64 rows, i64 width) {
  for (i64 at = first * width; at < (first + rows) * width; ++at) to[at] = from[at];
}

// ---- LSTM: gates in, forget, cell, out ----

// x: [steps, batch, 4 * width], the inputs' part of the gates; w: [4 * width, width]; h, c: [batch, width], the states
// before the first step, last_h, last_c: after the last. out, cells: [steps, batch, width]; gates: as x. Cells and gates
// are for backward, and are written if `save` is set.
template <class T>
void lstm_forward(Sizes z, const T* x, const T* w, const T* h, const T* c, T* out, T* last_h, T* last_c, T* cells, T* gates, bool save) {
  constexpr int N = LANES_OF<T>;
  using V = Vec<T, N>;
  const Panels<T> weights(Rows<T>{w, 1, z.width}, z.width, 4 * z.width);
  z.blocks([&](i64 first, i64 rows) {
    Scratch<T> sums(rows * weights.width);
    const T *state = h, *cell = c;
    for (i64 s = 0; s < z.steps; ++s) {
      const i64 here = z.place(s);
      T* const next = save ? cells + here : last_c;
      weights.product(sums.at, state + first * z.width, rows);
      z.template elements<N>(first, rows, [&](auto l, i64 row, i64 unit) __attribute__((always_inline)) {
        const i64 place = row * z.width + unit, gate = 4 * (here + row * z.width) + unit;
        const T* const sum = sums.at + (row - first) * weights.width + unit;
        const auto part = [&](int k) __attribute__((always_inline)) { return V(load(l, x + gate + k * z.width) + load(l, sum + k * z.width)); };
        const V i = sigmoid(part(0)), f = sigmoid(part(1)), g = tanh(part(2)), o = sigmoid(part(3));
        const V held = f * load(l, cell + place) + i * g;
        store(l, next + place, held);
        store(l, out + here + place, V(o * tanh(held)));
        if (save) store_gates(l, gates + gate, z.width, i, f, g, o);
      });
      state = out + here;
      cell = next;
    }
    copy_rows(last_h, state, first, rows, z.width);
    if (save) copy_rows(last_c, cell, first, rows, z.width);
  });
}

// Gradients d_...: of the results, then of x and of the states before the first step.
template <class T>
void lstm_backward(Sizes z, const T* w, const T* c, const T* cells, const T* gates, const T* d_out, const T* d_last_h, const T* d_last_c, T* d_x, T* d_h, T* d_c) {
  constexpr int N = LANES_OF<T>;
  using V = Vec<T, N>;
  const Panels<T> weights(Rows<T>{w, z.width, 1}, 4 * z.width, z.width);
  z.blocks([&](i64 first, i64 rows) {
    Scratch<T> sums(rows * weights.width);
    copy_rows(d_h, d_last_h, first, rows, z.width);
    copy_rows(d_c, d_last_c, first, rows, z.width);
    for (i64 s = z.steps - 1; s >= 0; --s) {
      const i64 here = z.place(s);
      const T* const before = s > 0 ? cells + z.place(s - 1) : c;
      z.template elements<N>(first, rows, [&](auto l, i64 row, i64 unit) __attribute__((always_inline)) {
        const i64 place = row * z.width + unit, gate = 4 * (here + row * z.width) + unit;
        const T* const saved = gates + gate;
        const V i = load(l, saved), f = load(l, saved + z.width), g = load(l, saved + 2 * z.width), o = load(l, saved + 3 * z.width);
        const V one = V(T(1)), held = tanh(load(l, cells + here + place));
        const V dh = load(l, d_out + here + place) + load(l, d_h + place);
        const V dc = load(l, d_c + place) + dh * o * (one - held * held);
        store_gates(l, d_x + gate, z.width, V(dc * g * i * (one - i)), V(dc * load(l, before + place) * f * (one - f)), V(dc * i * (one - g * g)), V(dh * held * o * (one - o)));
        store(l, d_c + place, V(dc * f));
      });
      weights.product(sums.at, d_x + 4 * (here + first * z.width), rows);
      for (i64 row = 0; row < rows; ++row) copy_rows(d_h + (first + row) * z.width, sums.at + row * weights.width, 0, 1, z.width);
    }
  });
}

// ---- GRU: gates reset, update, new ----

// x: [steps, batch, 3 * width], the inputs' part of the gates; w: [3 * width, width], b: [3 * width], for the state's
// part. gates: [steps, batch, 4 * width], the gates and the state's part of the last. Otherwise as for LSTM.
template <class T>
void gru_forward(Sizes z, const T* x, const T* w, const T* b, const T* h, T* out, T* last_h, T* gates, bool save) {
  constexpr int N = LANES_OF<T>;
  using V = Vec<T, N>;
  const Panels<T> weights(Rows<T>{w, 1, z.width}, z.width, 3 * z.width);
  z.blocks([&](i64 first, i64 rows) {
    Scratch<T> sums(rows * weights.width);
    const T* state = h;
    for (i64 s = 0; s < z.steps; ++s) {
      const i64 here = z.place(s);
      weights.product(sums.at, state + first * z.width, rows);
      z.template elements<N>(first, rows, [&](auto l, i64 row, i64 unit) __attribute__((always_inline)) {
        const i64 at = here + row * z.width;
        const T *const given = x + 3 * at + unit, *const sum = sums.at + (row - first) * weights.width + unit;
        const auto part = [&](int k) __attribute__((always_inline)) { return V(load(l, sum + k * z.width) + load(l, b + k * z.width + unit)); };
        const V r = sigmoid(V(load(l, given) + part(0))), u = sigmoid(V(load(l, given + z.width) + part(1)));
        const V last = part(2), n = tanh(V(load(l, given + 2 * z.width) + r * last));
        store(l, out + at + unit, V(n + u * (load(l, state + row * z.width + unit) - n)));
        if (save) store_gates(l, gates + 4 * at + unit, z.width, r, u, n, last);
      });
      state = out + here;
    }
    copy_rows(last_h, state, first, rows, z.width);
  });
}

// d_x, d_s: of the inputs' and of the state's part of the gates.
template <class T>
void gru_backward(Sizes z, const T* w, const T* h, const T* out, const T* gates, const T* d_out, const T* d_last_h, T* d_x, T* d_s, T* d_h) {
  constexpr int N = LANES_OF<T>;
  using V = Vec<T, N>;
  const Panels<T> weights(Rows<T>{w, z.width, 1}, 3 * z.width, z.width);
  z.blocks([&](i64 first, i64 rows) {
    Scratch<T> sums(rows * weights.width);
    copy_rows(d_h, d_last_h, first, rows, z.width);
    for (i64 s = z.steps - 1; s >= 0; --s) {
      const i64 here = z.place(s);
      const T* const before = s > 0 ? out + z.place(s - 1) : h;
      z.template elements<N>(first, rows, [&](auto l, i64 row, i64 unit) __attribute__((always_inline)) {
        const i64 place = row * z.width + unit, gate = 3 * (here + row * z.width) + unit;
        const T* const saved = gates + 4 * (here + row * z.width) + unit;
        const V r = load(l, saved), u = load(l, saved + z.width), n = load(l, saved + 2 * z.width);
        const V one = V(T(1)), dh = load(l, d_out + here + place) + load(l, d_h + place);
        const V dn = dh * (one - u) * (one - n * n);
        const V dr = dn * load(l, saved + 3 * z.width) * r * (one - r);
        const V du = dh * (load(l, before + place) - n) * u * (one - u);
        store_gates(l, d_x + gate, z.width, dr, du, dn);
        store_gates(l, d_s + gate, z.width, dr, du, V(dn * r));
        store(l, d_h + place, V(dh * u));
      });
      weights.product(sums.at, d_s + 3 * (here + first * z.width), rows);
      z.template elements<N>(first, rows, [&](auto l, i64 row, i64 unit) __attribute__((always_inline)) {
        T* const to = d_h + row * z.width + unit;
        store(l, to, V(load(l, to) + load(l, sums.at + (row - first) * weights.width + unit)));
      });
    }
  });
}

// ---- called from Python: the tensors in the order of the functions above, then steps, batch, width, reverse, save ----

template <int TENSORS, int SWITCHES, class T, class F> static inline PyObject* called(const char* name, PyObject* const* args, Py_ssize_t count, F run) {
  Arguments given(name, args, count, TENSORS + 3 + SWITCHES);
  T* at[TENSORS];
  for (int k = 0; k < TENSORS; ++k) at[k] = given.tensor<T>(k);
  const Sizes sizes{given.integer(TENSORS), given.integer(TENSORS + 1), given.integer(TENSORS + 2), given.integer(TENSORS + 3) != 0};
  const bool save = SWITCHES > 1 && given.integer(TENSORS + 4) != 0;
  if (given.failed) return nullptr;
  {
    Released others;
    run(sizes, at, save);
  }
  return done(name, false);
}
#define RECURRENT(NAME, TENSORS, SWITCHES, ...)                                                          \
  template <class T> static PyObject* call_##NAME(PyObject*, PyObject* const* args, Py_ssize_t count) {  \
    return called<TENSORS, SWITCHES, T>(#NAME, args, count, [](Sizes z, T** t, bool save) { NAME<T>(z, __VA_ARGS__); }); \
  }
RECURRENT(lstm_forward, 9, 2, t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], save)
RECURRENT(lstm_backward, 10, 1, t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9])
RECURRENT(gru_forward, 7, 2, t[0], t[1], t[2], t[3], t[4], t[5], t[6], save)
RECURRENT(gru_backward, 9, 1, t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8])
#undef RECURRENT

}  // namespace recurrent
}  // namespace armature
