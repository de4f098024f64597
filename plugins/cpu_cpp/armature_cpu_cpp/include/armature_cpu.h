// What a generated kernel needs besides vectors: loops over vectors, threads, reductions across lanes, and calls from Python.
#pragma once
#include "armature_math.h"
#include "armature_memory.h"

// ---- Python: the few functions of its stable ABI that are used, declared here, so that no Python header is needed ----

extern "C" {
struct PyObject;
typedef long Py_ssize_t;
typedef PyObject* (*FastFunction)(PyObject*, PyObject* const*, Py_ssize_t);
struct PyMethodDef { const char* name; FastFunction function; int flags; const char* doc; };
PyObject* PyCFunction_NewEx(PyMethodDef*, PyObject*, PyObject*);
PyObject* PyTuple_New(Py_ssize_t);
int PyTuple_SetItem(PyObject*, Py_ssize_t, PyObject*);
long long PyLong_AsLongLong(PyObject*);
void* PyLong_AsVoidPtr(PyObject*);
PyObject* PyErr_Occurred(void);
PyObject* PyErr_Format(PyObject*, const char*, ...);
PyObject* PyObject_CallMethodObjArgs(PyObject*, PyObject*, ...);
PyObject* PyUnicode_InternFromString(const char*);
void* PyEval_SaveThread(void);
void PyEval_RestoreThread(void*);
void Py_IncRef(PyObject*);
void Py_DecRef(PyObject*);
extern PyObject _Py_NoneStruct;
extern PyObject *PyExc_IndexError, *PyExc_TypeError;
#ifdef _OPENMP
int omp_get_thread_num(void);
int omp_get_num_threads(void);
#endif
}

namespace armature {

constexpr int METH_FASTCALL = 0x80;
#define EXPORTED extern "C" __attribute__((visibility("default")))

// A tensor seen through DLPack's exchange functions, which PyTorch offers for its tensors; only the address is read.
struct TensorView { void* data; i32 device[2]; i32 ndim; u8 dtype[4]; i64* shape; i64* strides; u64 byte_offset; };
typedef int (*ViewFunction)(void*, TensorView*);
static ViewFunction view_of = nullptr;  // null: the tensor's data_ptr method is called instead
static PyObject* data_ptr_name = nullptr;

struct Arguments {
  PyObject* const* args;
  bool failed;

  Arguments(const char* kernel, PyObject* const* given, Py_ssize_t count, Py_ssize_t expected) : args(given), failed(count != expected) {
    if (failed) PyErr_Format(PyExc_TypeError, "kernel %s takes %zd arguments, got %zd", kernel, expected, count);
  }
  template <class T> T* tensor(int at) {
    if (failed) return nullptr;
    if (view_of) {
      TensorView view;
      failed = view_of(args[at], &view) != 0;
      return failed ? nullptr : reinterpret_cast<T*>(static_cast<char*>(view.data) + view.byte_offset);
    }
    PyObject* address = PyObject_CallMethodObjArgs(args[at], data_ptr_name, static_cast<PyObject*>(nullptr));
    failed = address == nullptr;
    if (failed) return nullptr;
    void* data = PyLong_AsVoidPtr(address);
    Py_DecRef(address);
    failed = data == nullptr && PyErr_Occurred();
    return static_cast<T*>(data);
  }
  i64 integer(int at) {
    if (failed) return 0;
    const i64 value = PyLong_AsLongLong(args[at]);
    failed = value == -1 && PyErr_Occurred();
    return value;
  }
};

// Other Python threads run while a large kernel does.
struct Released {
  void* state = PyEval_SaveThread();
  ~Released() { PyEval_RestoreThread(state); }
};

static inline PyObject* done(const char* kernel, bool bad) {
  if (bad) return PyErr_Format(PyExc_IndexError, "index out of range in kernel %s", kernel);
  Py_IncRef(&_Py_NoneStruct);
  return &_Py_NoneStruct;
}

template <int COUNT> static PyObject* functions(PyMethodDef (&rows)[COUNT], void* view) {
  view_of = reinterpret_cast<ViewFunction>(view);
  data_ptr_name = PyUnicode_InternFromString("data_ptr");
  PyObject* all = PyTuple_New(COUNT);
  for (int k = 0; all && k < COUNT; ++k) PyTuple_SetItem(all, k, PyCFunction_NewEx(&rows[k], nullptr, nullptr));
  return all;
}

// ---- loops ----

#define LANES(l, index) [&](auto l, i64 index) __attribute__((always_inline))

INLINE i64 least(i64 a, i64 b) { return a < b ? a : b; }
INLINE i64 most(i64 a, i64 b) { return a > b ? a : b; }

template <class T> INLINE void clear(T* p, i64 count) { __builtin_memset(p, 0, count * sizeof(T)); }

// Points begin..end-1 in vectors of N, the last of them partial.
template <int N, class F> INLINE void vectors(i64 begin, i64 end, F body) {
  i64 i = begin;
  for (; i + N <= end; i += N) body(Full<N>{}, i);
  if (i < end) body(Part<N>{end - i}, i);
}
// The same where the length is known to be a multiple of N,
template <int N, class F> INLINE void full_vectors(i64 begin, i64 end, F body) {
  for (i64 i = begin; i < end; i += N) body(Full<N>{}, i);
}
// and where it is known to be less than N.
template <int N, class F> INLINE void part_vector(i64 begin, i64 end, F body) {
  if (begin < end) body(Part<N>{end - begin}, begin);
}

// WAYS vectors in turn, each with its own number `way`: what comes after does not wait for what was just begun.
enum Tail { NONE, WHOLE, ALL };  // what may be left over: nothing, whole vectors, a partial one too
template <int WAY> struct Way { constexpr operator int() const { return WAY; } };
#define LANES_OF(l, index) [&](auto way, auto l, i64 index) __attribute__((always_inline))
template <int N, int WAYS, Tail TAIL, class F> INLINE void interleaved(i64 begin, i64 end, F body) {
  i64 i = begin;
  for (; i + WAYS * N <= end; i += WAYS * N) {
    body(Way<0>{}, Full<N>{}, i);
    body(Way<1>{}, Full<N>{}, i + N);
    if constexpr (WAYS > 2) body(Way<2>{}, Full<N>{}, i + 2 * N);
    if constexpr (WAYS > 3) body(Way<3>{}, Full<N>{}, i + 3 * N);
  }
  if constexpr (TAIL != NONE)
    for (; i + N <= end; i += N) body(Way<0>{}, Full<N>{}, i);
  if constexpr (TAIL == ALL)
    if (i < end) body(Way<1>{}, Part<N>{end - i}, i);
}
template <class V, int COUNT> struct Several {
  V at[COUNT];
  template <class U> INLINE explicit Several(U x) { for (auto& v : at) v = V(x); }
  INLINE V& operator[](int k) { return at[k]; }
  template <class F> INLINE V joined(F f) const {
    if constexpr (COUNT == 2) return f(at[0], at[1]);
    else if constexpr (COUNT == 3) return f(f(at[0], at[1]), at[2]);
    else return f(f(at[0], at[1]), f(at[2], at[3]));
  }
};

// f(begin, end) on each thread's share of 0..n-1.
template <class F> static inline void parallel(i64 n, F f) {
#ifdef _OPENMP
#pragma omp parallel
  {
    const i64 threads = omp_get_num_threads(), me = omp_get_thread_num();
    const i64 begin = n * me / threads, end = n * (me + 1) / threads;
    if (begin < end) f(begin, end);
  }
#else
  if (n > 0) f(0, n);
#endif
}
// f(k, begin, end) on each thread's share of the units of all members in a row, cut where a member ends.
template <int MEMBERS, class U, class F> static inline void over_members(U units, F f) {
  i64 start[MEMBERS + 1] = {0};
  for (int k = 0; k < MEMBERS; ++k) start[k + 1] = start[k] + units(k);
  parallel(start[MEMBERS], [&](i64 begin, i64 end) {
    for (int k = 0; k < MEMBERS; ++k) {
      const i64 from = most(begin, start[k]), to = least(end, start[k + 1]);
      if (from < to) f(k, from - start[k], to - start[k]);
    }
  });
}
// The same with an accumulator for each thread, combined in the order of the threads.
template <class A, class F, class C> static inline A parallel_reduce(i64 n, const A& start, F f, C combine) {
  constexpr int MOST = 128;
  A all[MOST];
  int used = 1;
  all[0] = start;
#ifdef _OPENMP
#pragma omp parallel
  {
    const i64 threads = omp_get_num_threads() < MOST ? omp_get_num_threads() : MOST, me = omp_get_thread_num();
    if (me == 0) used = int(threads);
    if (me < threads) {
      A mine = start;
      const i64 begin = n * me / threads, end = n * (me + 1) / threads;
      if (begin < end) f(mine, begin, end);
      all[me] = mine;
    }
  }
#else
  f(all[0], 0, n);
#endif
  for (int k = 1; k < used; ++k) combine(all[0], all[k]);
  return all[0];
}

// ---- reductions ----

// The new value where the lane is there, else the old one.
template <class L, class V> INLINE V keep(L l, const V& next, const V& old) {
  if constexpr (L::full) return next;
  else return where(active(l), next, old);
}

#define ACROSS(NAME, EXPR)                                                     \
  template <class V> INLINE elem<V> NAME(const V& x) {                         \
    if constexpr (!is_vec<V>) return x;                                        \
    else if constexpr (lanes<V> == 2) {                                        \
      const auto s = spill(x);                                                 \
      const elem<V> a = in_memory<elem<V>>(s.at[0]), b = in_memory<elem<V>>(s.at[1]); \
      return elem<V>(EXPR);                                                    \
    } else {                                                                   \
      const auto a = low(x), b = high(x);                                      \
      return NAME(rebind_half<V>(EXPR));                                       \
    }                                                                          \
  }
template <class V> struct Half;
template <class T, int N> struct Half<Vec<T, N>> { using type = Vec<T, N / 2>; };
template <class V> using rebind_half = typename Half<V>::type;
ACROSS(across_sum, a + b)
ACROSS(across_product, a * b)
ACROSS(across_maximum, maximum(a, b))
ACROSS(across_minimum, minimum(a, b))
ACROSS(across_xor, a ^ b)
#undef ACROSS

// ---- scans ----

// Lane k is lane k - K of x; the first K lanes are `first`.
#if defined(__clang__) || __GNUC__ >= 12
template <int K, class S, int... P> INLINE S moved_up(const S& first, const S& x, Places<P...>) {
  return __builtin_shufflevector(first, x, (P < K ? P : int(sizeof...(P)) + P - K)...);
}
#endif
template <int K, class T, int N> INLINE Vec<T, N> moved(const Vec<T, N>& x, T first) {
#if defined(__clang__) || __GNUC__ >= 12
  Vec<T, N> y;
  y.r = moved_up<K>(Vec<T, N>(first).r, x.r, typename Run<0, N>::type{});
  return y;
#else
  const auto from = spill(x);
  auto to = spill(Vec<T, N>(first));
  for (int k = K; k < N; ++k) to.at[k] = from.at[k - K];
  return gathered<T, N>(to);
#endif
}
template <class T, int N> INLINE T last_lane(const Vec<T, N>& x) {
  if constexpr (!Vec<T, N>::native) return last_lane(x.hi);
  else return T(x.r[N - 1]);
}
// Each lane combined with those before it, in log2(N) steps.
template <int K, class F, class T, int N> INLINE Vec<T, N> scan_lanes(F f, const Vec<T, N>& x, T neutral) {
  if constexpr (!Vec<T, N>::native) {
    const auto a = scan_lanes<K>(f, x.lo, neutral), b = scan_lanes<K>(f, x.hi, neutral);
    return join(a, f(Vec<T, N / 2>(last_lane(a)), b));
  } else if constexpr (K >= N) return x;
  else return scan_lanes<2 * K>(f, f(moved<K>(x, neutral), x), neutral);
}
// The same along a loop: `so_far` holds all that came before the vector, and takes it in. Only this one operation waits
// for the vector before.
template <class L, class F, class T, int N> INLINE Vec<T, N> scan(L l, F f, T& so_far, const Vec<T, N>& x, T neutral) {
  const auto within = scan_lanes<1>(f, keep(l, x, Vec<T, N>(neutral)), neutral);
  const auto all = f(Vec<T, N>(so_far), within);
  so_far = T(f(so_far, last_lane(within)));
  return all;
}

// Whether (x, p) stands before (y, q): better, or equal and earlier. NaN is best.
template <bool LARGEST, class V, class P> INLINE mask<V> before(const V& x, const P& p, const V& y, const P& q) {
  mask<V> better = LARGEST ? x > y : x < y, equal = x == y;
  if constexpr (is_floating<V>) {
    better = better | (isnan(x) & (y == y));
    equal = equal | (isnan(x) & isnan(y));
  }
  return better | (equal & (p < q));
}
template <bool LARGEST, class L, class V, class P> INLINE void keep_best(L l, V& best, P& place, const V& x, const P& p) {
  mask<V> take = before<LARGEST>(x, p, best, place);
  if constexpr (is_vec<V>) take = take & active(l);
  best = where(take, x, best);
  place = where(take, p, place);
}
template <bool LARGEST, class V, class P> INLINE i64 best_place(const V& best, const P& place) {
  if constexpr (!is_vec<V>) return place;
  else {
    const auto x = spill(best);
    const auto p = spill(place);
    int k = 0;
    for (int n = 1; n < lanes<V>; ++n)
      if (before<LARGEST>(x.at[n], p.at[n], x.at[k], p.at[k])) k = n;
    return p.at[k];
  }
}
template <bool LARGEST, class V, class P> INLINE void join_best(V& best, P& place, const V& x, const P& p) {
  const mask<V> take = before<LARGEST>(x, p, best, place);
  best = where(take, x, best);
  place = where(take, p, place);
}
constexpr i64 NOWHERE = 0x7fffffffffffffff;

}  // namespace armature
