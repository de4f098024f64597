// Products of matrices: blocks of sums in registers, R rows by C vectors of columns, or R rows by C columns with vectors
// along the inner loop. They write a tile of sums; the generated code around them computes factors and uses the sums.
//
// An element's sum is made in the same order in whatever block it lies, so results do not depend on how tiles are cut
// or which thread computes them.
#pragma once
#include "armature_cpu.h"

extern "C" {
void* aligned_alloc(unsigned long, unsigned long);
void free(void*);
}

namespace armature {

#define UNROLL _Pragma("GCC unroll 32")
constexpr i64 DEPTH = 256;  // points of the inner loop whose factors stay in the first cache for all rows of a tile
constexpr i64 DEPTH_DOTS = 2048;

// Memory of one thread, as long as it computes tiles.
template <class T> struct Scratch {
  T* at;
  explicit Scratch(i64 count) : at(static_cast<T*>(aligned_alloc(64, (count * sizeof(T) / 64 + 1) * 64))) {}
  ~Scratch() { free(at); }
};

// A matrix in memory: the elements between rows and between columns.
template <class T> struct Rows { const T* at; i64 down, along; };

template <int R, int C, class L, class T>
INLINE void sums_block(L last, const Rows<T>& a, const T* b, i64 down, i64 k, T* out, i64 width, bool more) {
  constexpr int N = L::N;
  Vec<T, N> sums[R][C];
  UNROLL for (int r = 0; r < R; ++r) UNROLL for (int c = 0; c < C; ++c) sums[r][c] = Vec<T, N>(T(0));
  for (i64 p = 0; p < k; ++p) {
    Vec<T, N> row[C];
    UNROLL for (int c = 0; c < C - 1; ++c) row[c] = load(Full<N>{}, b + p * down + c * N);
    row[C - 1] = load(last, b + p * down + (C - 1) * N);
    UNROLL for (int r = 0; r < R; ++r) {
      const Vec<T, N> x(a.at[r * a.down + p * a.along]);
      UNROLL for (int c = 0; c < C; ++c) sums[r][c] = x * row[c] + sums[r][c];
    }
  }
  UNROLL for (int r = 0; r < R; ++r) UNROLL for (int c = 0; c < C; ++c) {
    T* to = out + r * width + c * N;
    store(Full<N>{}, to, more ? load(Full<N>{}, to) + sums[r][c] : sums[r][c]);
  }
}

// All rows of a tile, R at once; what is left over in blocks of half as many.
template <int R, int C, class L, class T>
INLINE void sums_rows(L last, const Rows<T>& a, const T* b, i64 down, i64 m, i64 k, T* out, i64 width, bool more) {
  i64 i = 0;
  for (; i + R <= m; i += R) sums_block<R, C>(last, Rows<T>{a.at + i * a.down, a.down, a.along}, b, down, k, out + i * width, width, more);
  if constexpr (R > 1)
    if (i < m) sums_rows<R / 2, C>(last, Rows<T>{a.at + i * a.down, a.down, a.along}, b, down, m - i, k, out + i * width, width, more);
}

template <int N, int R, int C, class T>
INLINE void sums_columns(const Rows<T>& a, const T* b, i64 down, i64 m, i64 n, i64 k, T* out, i64 width, bool more) {
  i64 j = 0;
  for (; j + C * N <= n; j += C * N) sums_rows<R, C>(Full<N>{}, a, b + j, down, m, k, out + j, width, more);
  if (j < n) {
    if constexpr (C > 1) sums_columns<N, R, C / 2>(a, b + j, down, m, n - j, k, out + j, width, more);
    else sums_rows<R, 1>(Part<N>{n - j}, a, b + j, down, m, k, out + j, width, more);
  }
}

// The right factor lies in memory by rows.
template <int N, int R, int C, class T>
INLINE void sums_in_place(T* out, i64 width, Rows<T> a, Rows<T> b, i64 m, i64 n, i64 k) {
  i64 p = 0;
  do {
    const Rows<T> from{a.at + p * a.along, a.down, a.along};
    sums_columns<N, R, C>(from, b.at + p * b.down, b.down, m, n, least(DEPTH, k - p), out, width, p > 0);
    p += DEPTH;
  } while (p < k);
}

// The right factor was copied to panels of C vectors, [panel][k][C * N].
template <int N, int R, int C, class T>
INLINE void sums_of_panels(T* out, i64 width, Rows<T> a, const T* panels, i64 m, i64 n, i64 k) {
  i64 p = 0;
  do {
    const Rows<T> from{a.at + p * a.along, a.down, a.along};
    for (i64 j = 0; j < n; j += C * N)
      sums_rows<R, C>(Full<N>{}, from, panels + j * k + p * C * N, C * N, m, least(DEPTH, k - p), out + j, width, p > 0);
    p += DEPTH;
  } while (p < k);
}

// Both factors lie in memory along the inner loop.
template <int N, int R, int C, class T>
INLINE void dots_block(const T* a, i64 down, const T* b, i64 across, i64 k, T* out, i64 width, bool more) {
  Vec<T, N> sums[R][C];
  UNROLL for (int r = 0; r < R; ++r) UNROLL for (int c = 0; c < C; ++c) sums[r][c] = Vec<T, N>(T(0));
  vectors<N>(0, k, LANES(l, p) {
    Vec<T, N> column[C];
    UNROLL for (int c = 0; c < C; ++c) column[c] = load(l, b + c * across + p);
    UNROLL for (int r = 0; r < R; ++r) {
      const Vec<T, N> x = load(l, a + r * down + p);
      UNROLL for (int c = 0; c < C; ++c) sums[r][c] = x * column[c] + sums[r][c];
    }
  });
  UNROLL for (int r = 0; r < R; ++r) UNROLL for (int c = 0; c < C; ++c) {
    const T sum = across_sum(sums[r][c]);
    out[r * width + c] = more ? out[r * width + c] + sum : sum;
  }
}
template <int N, int R, int C, class T>
INLINE void dots_columns(const T* a, i64 down, const T* b, i64 across, i64 n, i64 k, T* out, i64 width, bool more) {
  i64 j = 0;
  for (; j + C <= n; j += C) dots_block<N, R, C>(a, down, b + j * across, across, k, out + j, width, more);
  if constexpr (C > 1)
    if (j < n) dots_columns<N, R, C / 2>(a, down, b + j * across, across, n - j, k, out + j, width, more);
}
template <int N, int R, int C, class T>
INLINE void dots_rows(const T* a, i64 down, const T* b, i64 across, i64 m, i64 n, i64 k, T* out, i64 width, bool more) {
  i64 i = 0;
  for (; i + R <= m; i += R) dots_columns<N, R, C>(a + i * down, down, b, across, n, k, out + i * width, width, more);
  if constexpr (R > 1)
    if (i < m) dots_rows<N, R / 2, C>(a + i * down, down, b, across, m - i, n, k, out + i * width, width, more);
}
template <int N, int R, int C, class T>
INLINE void sums_of_dots(T* out, i64 width, Rows<T> a, Rows<T> b, i64 m, i64 n, i64 k) {
  i64 p = 0;
  do {
    dots_rows<N, R, C>(a.at + p, a.down, b.at + p, b.along, m, n, least(DEPTH_DOTS, k - p), out, width, p > 0);
    p += DEPTH_DOTS;
  } while (p < k);
}

}  // namespace armature
