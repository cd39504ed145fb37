// Measures of short rows of probabilities, a row in each lane: a row of ten by itself would spend most of its time in sums
// across lanes, and in lanes without an entry. Every bit is that of the row by itself.

#if defined(ISENTROPIC_MEASURES_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MEASURES_LANES_INL_H_
#undef ISENTROPIC_MEASURES_LANES_INL_H_
#else
#define ISENTROPIC_MEASURES_LANES_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "src/measures/entropies-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// As many rows as there are lanes, column after column.
class RowsInLanes {
 public:
  static constexpr size_t kRows = hn::MaxLanes(D64());
  static constexpr size_t kLongest = 32;

  // Rows from `first` on; after the last one, the last one again.
  template <class T>
  HWY_INLINE void Load(MatrixView<const T> x, size_t first) {
    for (size_t r = 0; r < kRows; ++r) {
      const T* const row = x.row(HWY_MIN(first + r, x.rows - 1));
      for (size_t i = 0; i < x.cols; ++i) columns_[i * kRows + r] = row[i];
    }
  }

  HWY_INLINE V64 Column(size_t i) const { return hn::Load(D64(), columns_ + i * kRows); }

 private:
  HWY_ALIGN double columns_[kLongest * kRows];
};

// sums[k] = the sum over n columns of term k, in each lane that of its row, in the order of reduce-inl.h. visit(i, terms)
// computes the K terms of column i.
template <size_t K, class Visit>
HWY_INLINE void SumsInLanes(size_t n, V64 (&sums)[K], Visit&& visit) {
  const D64 d;
  V64 lanes[16][K];
  for (size_t l = 0; l < 16; ++l) {
    V64 acc[2][K];
    for (size_t a = 0; a < 2; ++a) {
      for (size_t k = 0; k < K; ++k) acc[a][k] = hn::Zero(d);
      if (l + 16 * a < n) visit(l + 16 * a, acc[a]);
    }
    for (size_t k = 0; k < K; ++k) lanes[l][k] = hn::Add(acc[0][k], acc[1][k]);
  }
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t l = 0; l < half; ++l) {
      for (size_t k = 0; k < K; ++k) lanes[l][k] = hn::Add(lanes[l][k], lanes[l + half][k]);
    }
  }
  for (size_t k = 0; k < K; ++k) sums[k] = hn::Add(lanes[0][k], hn::Zero(d));  // 0, not -0
}

// The terms that measures of probabilities sum.
HWY_INLINE V64 TermOf(const Entropy& /*op*/, V64 p) { return Surprise(D64(), p); }
HWY_INLINE V64 TermOf(const Perplexity& /*op*/, V64 p) { return Surprise(D64(), p); }

HWY_INLINE V64 TermOf(const CrossEntropy& /*op*/, V64 p, V64 q) {
  const D64 d;
  return ZeroWhere(hn::Eq(p, hn::Zero(d)), hn::Mul(p, hn::Sub(hn::Zero(d), Log(d, q))));
}
HWY_INLINE V64 TermOf(const KlDivergence& /*op*/, V64 p, V64 q) { return QuotientOf(D64(), p, q).term; }
HWY_INLINE V64 TermOf(const JsDivergence& /*op*/, V64 p, V64 q) {
  const D64 d;
  return JensenShannonTerm(d, Contrast(d, p, q), hn::Add(p, q));
}

template <class Op>
inline constexpr bool kHasLanes = requires(V64 v) {
  TermOf(Op{}, v, v);
};

// p, or NaN if it is not a probability.
HWY_INLINE V64 Checked(V64 p) {
  const D64 d;
  const auto valid = hn::And(hn::Ge(p, hn::Zero(d)), hn::Le(p, hn::Set(d, std::numeric_limits<double>::max())));
  return hn::IfThenElse(valid, p, hn::Set(d, kNaN<double>));
}

// The sums of rows and the measure in nats of each: the kernels of `Op` with Input::probs.
template <class Op, class T>
HWY_NOINLINE void MeasureInLanes(const Op& op, MatrixView<const T> p, double* p_sums, double* nats) {
  const D64 d;
  RowsInLanes p_rows;
  HWY_ALIGN double found[2][RowsInLanes::kRows];
  for (size_t first = 0; first < p.rows; first += RowsInLanes::kRows) {
    p_rows.Load(p, first);
    V64 sums[2];
    SumsInLanes(p.cols, sums, [&](size_t i, V64* terms) HWY_ATTR {
      const V64 pi = p_rows.Column(i);
      terms[0] = Checked(pi);
      terms[1] = TermOf(op, pi);
    });
    for (size_t k = 0; k < 2; ++k) hn::Store(sums[k], d, found[k]);
    const size_t count = HWY_MIN(RowsInLanes::kRows, p.rows - first);
    std::copy_n(found[0], count, p_sums + first);
    std::copy_n(found[1], count, nats + first);
  }
}

// For each pair of rows, the sums of both and the divergence in nats.
template <class Op, class T>
HWY_NOINLINE void MeasureInLanes(const Op& op, MatrixView<const T> p, MatrixView<const T> q, double* p_sums, double* q_sums,
                                 double* nats) {
  const D64 d;
  RowsInLanes p_rows, q_rows;
  HWY_ALIGN double found[3][RowsInLanes::kRows];
  for (size_t first = 0; first < p.rows; first += RowsInLanes::kRows) {
    p_rows.Load(p, first);
    q_rows.Load(q, first);
    V64 sums[3];
    SumsInLanes(p.cols, sums, [&](size_t i, V64* terms) HWY_ATTR {
      const V64 pi = p_rows.Column(i), qi = q_rows.Column(i);
      terms[0] = Checked(pi);
      terms[1] = Checked(qi);
      terms[2] = TermOf(op, pi, qi);
    });
    for (size_t k = 0; k < 3; ++k) hn::Store(sums[k], d, found[k]);
    const size_t count = HWY_MIN(RowsInLanes::kRows, p.rows - first);
    std::copy_n(found[0], count, p_sums + first);
    std::copy_n(found[1], count, q_sums + first);
    std::copy_n(found[2], count, nats + first);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MEASURES_LANES_INL_H_
