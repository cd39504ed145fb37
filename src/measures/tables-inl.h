// Measures of tables: how much one variable tells about the other.

#if defined(ISENTROPIC_MEASURES_TABLES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MEASURES_TABLES_INL_H_
#undef ISENTROPIC_MEASURES_TABLES_INL_H_
#else
#define ISENTROPIC_MEASURES_TABLES_INL_H_
#endif

#include <algorithm>

#include "src/measures/gradient-inl.h"
#include "src/measures/kernels.h"
#include "src/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// The workspace for a table's measure.
struct TableMemory {
  double *x, *y, *lost;  // sums of the rows and of the columns, and the rounding errors of the latter
  double *line, *terms;  // a row or a column

  TableMemory(Arena& arena, TableShape shape)
      : x(arena.take<double>(shape.rows)),
        y(arena.take<double>(shape.cols)),
        lost(arena.take<double>(shape.cols)),
        line(arena.take<double>(std::max(shape.rows, shape.cols))),
        terms(arena.take<double>(std::max(shape.rows, shape.cols))) {}
};

// Sums of the rows, of the columns, and of the table.
struct Marginals {
  double *x = nullptr, *y = nullptr;
  double sum = 0;
  double value = 0, mean = 0, of_x = 0, of_y = 0;  // I / mean, the mean of both entropies, its derivatives in these
};

// The sums of columns keep the rounding error of each addition. They need it to recognise a table that is a product up to
// rounding.
inline Marginals MarginalsOf(const double* p, TableShape shape, const TableMemory& memory) {
  const D64 d;
  const size_t cols = shape.cols;
  Marginals of = {memory.x, memory.y};
  double* const lost = memory.lost;
  std::fill(of.y, of.y + cols, 0.0);
  std::fill(lost, lost + cols, 0.0);
  for (size_t r = 0; r < shape.rows; ++r) {
    const double* const row = p + r * cols;
    of.x[r] = SumRow(d, row, cols);
    ForEachVector(d, cols, [&](size_t i, size_t count) HWY_ATTR {
      const V64 a = LoadUpTo(d, of.y + i, count, 0.0), b = LoadUpTo(d, row + i, count, 0.0);
      const V64 sum = hn::Add(a, b), part = hn::Sub(sum, a);
      const V64 error = hn::Add(hn::Sub(a, hn::Sub(sum, part)), hn::Sub(b, part));
      StoreUpTo(sum, d, count, of.y + i);
      StoreUpTo(hn::Add(LoadUpTo(d, lost + i, count, 0.0), error), d, count, lost + i);
    });
  }
  for (size_t i = 0; i < cols; ++i) of.y[i] += lost[i];
  of.sum = SumRow(d, of.x, shape.rows);
  return of;
}

// sum_y p(x,y) log(p(x) / p(x,y)) of one row or column: p(x) times the entropy of p(y|x), from the scores log(p / max p), so
// that nearly certain rows keep their digits.
inline double ConditionalRow(const double* p, size_t n, double* scratch) {
  const D64 d;
  const double max = RowMax(d, p, n);
  if (!(max > 0)) return 0;
  const V64 top = hn::Set(d, max);
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    StoreUpTo(hn::Div(LoadUpTo(d, p + i, count, 0.0), top), d, count, scratch + i);
  });
  scratch[std::max_element(p, p + n) - p] = 0;
  const double log_sum = Log1pNumber(SumRow(d, scratch, n));
  const double rest = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const V64 pi = LoadUpTo(d, p + i, count, 0.0);
    return ZeroWhere(hn::Eq(pi, hn::Zero(d)), hn::Mul(pi, hn::Neg(LogOfRatio(d, pi, top))));
  });
  return SumRow(d, p, n) * log_sum + rest;
}

inline double ValueOf(const ConditionalEntropy& op, const Distribution& all, TableShape shape, const TableMemory& memory,
                      Marginals* marginals) {
  *marginals = MarginalsOf(all.p, shape, memory);
  double value = 0;
  if (op.given == Given::x) {
    for (size_t r = 0; r < shape.rows; ++r) value += ConditionalRow(all.p + r * shape.cols, shape.cols, memory.terms);
    return value;
  }
  for (size_t c = 0; c < shape.cols; ++c) {
    for (size_t r = 0; r < shape.rows; ++r) memory.line[r] = all.p[r * shape.cols + c];
    value += ConditionalRow(memory.line, shape.rows, memory.terms);
  }
  return value;
}

// Calls write(k, x, y) for the entries i + k.
template <class Write>
HWY_INLINE void ForEntries(TableShape shape, size_t i, size_t count, Write&& write) {
  size_t x = i / shape.cols, y = i % shape.cols;
  for (size_t k = 0; k < count; ++k) {
    write(k, x, y);
    if (++y == shape.cols) ++x, y = 0;
  }
}

// p(x) p(y) / sum for the entries i .. i + count - 1 of the table: p(x,y) for independent variables. The entries of a vector
// may belong to several rows.
inline V64 ProductOf(const Marginals& m, TableShape shape, size_t i, size_t count) {
  const D64 d;
  HWY_ALIGN double values[16] = {};
  ForEntries(shape, i, HWY_MIN(count, hn::Lanes(d)),
             [&](size_t k, size_t x, size_t y) { values[k] = m.x[x] * (m.y[y] / m.sum); });
  return hn::Load(d, values);
}

// log(p(x,y) sum / (p(x) p(y))) if the product is too small for a double.
inline V64 LogInformation(const Distribution& all, const Marginals& m, TableShape shape, size_t i, size_t count) {
  const D64 d;
  HWY_ALIGN double x_values[16] = {}, y_values[16] = {};
  ForEntries(shape, i, HWY_MIN(count, hn::Lanes(d)), [&](size_t k, size_t x, size_t y) {
    x_values[k] = m.x[x];
    y_values[k] = m.y[y] / m.sum;
  });
  return hn::Sub(hn::Sub(Log(d, all.P(d, i, count)), Log(d, hn::Load(d, x_values))), Log(d, hn::Load(d, y_values)));
}

inline Quotient InformationOf(const Distribution& all, const Marginals& m, TableShape shape, size_t i, size_t count) {
  const D64 d;
  const V64 p = all.P(d, i, count), q = ProductOf(m, shape, i, count);
  Quotient of = QuotientOf(d, p, q);
  const auto tiny = hn::And(hn::Lt(q, hn::Set(d, 0x1p-960)), hn::Gt(p, hn::Zero(d)));
  if (HWY_UNLIKELY(!hn::AllFalse(d, tiny))) {
    const V64 log = hn::Neg(LogInformation(all, m, shape, i, count));
    of.log = hn::IfThenElse(tiny, log, of.log);
    of.term = hn::IfThenElse(tiny, hn::Max(hn::Zero(d), hn::NegMulAdd(p, log, hn::Sub(q, p))), of.term);
  }
  return of;
}

inline double ValueOf(const MutualInformation&, const Distribution& all, TableShape shape, const TableMemory& memory,
                      Marginals* marginals) {
  *marginals = MarginalsOf(all.p, shape, memory);
  return Sum(D64(), all.n,
             [&](size_t i, size_t count) HWY_ATTR { return InformationOf(all, *marginals, shape, i, count).term; });
}

inline Partial PartialOf(const MutualInformation&, const Distribution& all, TableShape shape, const Marginals& m, size_t i,
                         size_t count) {
  const D64 d;
  const V64 p = all.P(d, i, count);
  return WeightedPartial(d, p, hn::Sub(hn::Zero(d), InformationOf(all, m, shape, i, count).log));
}

// -log(p(x,y) / p(x)).
inline Partial PartialOf(const ConditionalEntropy& op, const Distribution& all, TableShape shape, const Marginals& m, size_t i,
                         size_t count) {
  const D64 d;
  HWY_ALIGN double values[16] = {};
  ForEntries(shape, i, HWY_MIN(count, hn::Lanes(d)),
             [&](size_t k, size_t x, size_t y) { values[k] = op.given == Given::x ? m.x[x] : m.y[y]; });
  const V64 p = all.P(d, i, count), marginal = hn::Load(d, values);
  const V64 g =
      hn::IfThenElse(hn::Eq(marginal, hn::Zero(d)), hn::Zero(d), hn::Sub(hn::Zero(d), QuotientOf(d, marginal, p).log));
  return WeightedPartial(d, p, g);
}

inline double ValueOf(const VariationOfInformation&, const Distribution& all, TableShape shape, const TableMemory& memory,
                      Marginals* marginals) {
  return ValueOf(ConditionalEntropy{.given = Given::x}, all, shape, memory, marginals) +
         ValueOf(ConditionalEntropy{.given = Given::y}, all, shape, memory, marginals);
}

inline Partial PartialOf(const VariationOfInformation&, const Distribution& all, TableShape shape, const Marginals& m, size_t i,
                         size_t count) {
  const Partial x = PartialOf(ConditionalEntropy{.given = Given::x}, all, shape, m, i, count);
  const Partial y = PartialOf(ConditionalEntropy{.given = Given::y}, all, shape, m, i, count);
  return {hn::Add(x.g, y.g), hn::Add(x.weight, y.weight)};
}

// -sum p log p, which keeps its digits where one of them is nearly all.
inline double EntropyOf(const double* p, size_t n, double* scratch) {
  const double sum = SumRow(D64(), p, n);
  return ConditionalRow(p, n, scratch) - (sum > 0 ? sum * LogNumber(sum) : 0);
}

inline double ValueOf(const NormalizedMutualInformation& op, const Distribution& all, TableShape shape,
                      const TableMemory& memory, Marginals* marginals) {
  const double information = ValueOf(MutualInformation{}, all, shape, memory, marginals);
  Marginals& m = *marginals;
  const double x = EntropyOf(m.x, shape.rows, memory.terms), y = EntropyOf(m.y, shape.cols, memory.terms);
  if (op.average == Average::arithmetic) {
    m.mean = (x + y) / 2, m.of_x = m.of_y = 0.5;
  } else if (op.average == Average::geometric) {
    m.mean = std::sqrt(x * y), m.of_x = std::sqrt(y / x) / 2, m.of_y = std::sqrt(x / y) / 2;
  } else {
    const bool is_x = (x < y) == (op.average == Average::min);
    m.mean = is_x ? x : y, m.of_x = x == y ? 0.5 : is_x, m.of_y = 1 - m.of_x;
  }
  m.value = m.mean > 0 ? std::min(information / m.mean, 1.0) : 0;
  return m.value;
}

inline Partial PartialOf(const NormalizedMutualInformation&, const Distribution& all, TableShape shape, const Marginals& m,
                         size_t i, size_t count) {
  const D64 d;
  if (!(m.mean > 0)) return {hn::Zero(d), hn::Zero(d)};
  HWY_ALIGN double slopes[16] = {};
  ForEntries(shape, i, HWY_MIN(count, hn::Lanes(d)), [&](size_t k, size_t x, size_t y) {
    const double log_x = m.x[x] > 0 ? LogNumber(m.x[x]) : 0, log_y = m.y[y] > 0 ? LogNumber(m.y[y]) : 0;
    slopes[k] = m.of_x * (log_x + 1) + m.of_y * (log_y + 1);
  });
  const Partial information = PartialOf(MutualInformation{}, all, shape, m, i, count);
  const V64 g = hn::MulAdd(hn::Load(d, slopes), hn::Set(d, m.value), information.g);
  return WeightedPartial(d, all.P(d, i, count), hn::Div(g, hn::Set(d, m.mean)));
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MEASURES_TABLES_INL_H_
