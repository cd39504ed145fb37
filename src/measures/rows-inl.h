// The loops over rows that call the measures' kernels.

#if defined(ISENTROPIC_MEASURES_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MEASURES_ROWS_INL_H_
#undef ISENTROPIC_MEASURES_ROWS_INL_H_
#else
#define ISENTROPIC_MEASURES_ROWS_INL_H_
#endif

#include "src/measures/all-inl.h"
#include "src/measures/kernels.h"
#include "src/measures/lanes-inl.h"
#include "src/measures/row-inl.h"
#include "src/measures/stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
void SumRows(Input input, bool normalize, MatrixView<const T> p, double* sums) {
  for (size_t r = 0; r < p.rows; ++r) sums[r] = GivenSum(input, normalize, p.row(r), p.cols);
}

// The sum of row r of x.
template <class Op, class T>
double SumOfRow(const Op& op, MatrixView<const T> x, GivenSums given, size_t r) {
  if (given.sums == nullptr) return 1;
  if (!given.known) given.sums[r] = GivenSum(op.input, op.normalize, x.row(r), x.cols);
  return given.sums[r];
}

// Whether these rows are measured side by side: short rows of probabilities. Their sums are not known yet if only values are
// wanted, and of several rows.
template <class Op, class T>
bool InLanes(const Op& op, MatrixView<const T> x, GivenSums given) {
  if constexpr (requires { op.smoothing; }) {
    if (op.smoothing > 0) return false;
  }
  return op.input == Input::probs && !op.normalize && x.cols <= RowsInLanes::kLongest && given.sums != nullptr && !given.known;
}

template <class T>
void OneRows(const Measure& measure, MatrixView<const T> p, GivenSums given, double* value, MatrixView<T> dp,
             RowsOf<PerRow> per_row, RowsOf<ParamGradient> gradients, Arena memory) {
  const size_t n = p.cols;
  double *const own = memory.take<double>(n), *const logs = memory.take<double>(n);
  std::visit(
      [&]<class Op>(const Op& common) {
        if constexpr (sizeof(T) == 8 && (std::is_same_v<Op, Entropy> || std::is_same_v<Op, Perplexity>)) {
          if (InLanes(common, p, given)) {
            MeasureInLanes(common, p, given.sums, value);
            for (size_t r = 0; r < p.rows; ++r) {
              if constexpr (std::is_same_v<Op, Perplexity>) {
                value[r] = ExpNumber(value[r]);
              } else {
                value[r] = InUnit(value[r], common);
              }
            }
            return;
          }
        }
        for (size_t r = 0; r < p.rows; ++r) {
          const Op op = at_row(common, per_row, r);
          const double sum = SumOfRow(op, p, given, r);
          if (const double nats = dp.data == nullptr ? EntropyInFloat(op, p.row(r), n) : 0; nats > 0) {
            value[r] = InUnit(nats, op);
            continue;
          }
          double slope = 0;
          OneRow(op, DistributionOf(op.input, op.normalize, p.row(r), n, sum, Logs::inaccurate, own, logs), value + r,
                 dp.data == nullptr ? nullptr : GradientOut(dp.row(r)), gradients.empty() ? nullptr : &slope);
          for (const ParamGradient& gradient : gradients) gradient.values[r] = slope;  // alpha's, the only one
        }
      },
      measure);
}

template <class T>
void TwoRows(const Divergence& divergence, MatrixView<const T> p, MatrixView<const T> q, GivenSums of_p, GivenSums of_q,
             double* value, MatrixView<T> dp, MatrixView<T> dq, RowsOf<PerRow> per_row, RowsOf<ParamGradient> gradients,
             Arena memory) {
  const size_t n = p.cols;
  struct Place {
    double *p, *z;
  };
  const auto place = [&]() -> Place {
    double* const own = memory.take<double>(n);
    return {own, memory.take<double>(n)};
  };
  const Place p_place = place(), q_place = place();
  double *const ratios = memory.take<double>(n), *const p_smooth = memory.take<double>(n),
                *const q_smooth = memory.take<double>(n);
  double *const slopes = memory.take<double>(n), *const weights = memory.take<double>(n);
  const Partials partials = {slopes, weights};
  const bool writes = dp.data != nullptr || dq.data != nullptr;
  std::visit(
      [&]<class Op>(const Op& common) {
        if constexpr (kHasLanes<decltype(Rooted(common))>) {
          if (InLanes(common, p, of_p) && InLanes(common, q, of_q)) {
            MeasureInLanes(Rooted(common), p, q, of_p.sums, of_q.sums, value);
            for (size_t r = 0; r < p.rows; ++r) value[r] = OfNats(common, value[r]);
            return;
          }
        }
        const auto distribution = [&](MatrixView<const T> x, size_t r, double sum, Place to, Logs logs = kLogsOf<Op>) {
          const Distribution row = DistributionOf(common.input, common.normalize, x.row(r), n, sum, logs, to.p, to.z);
          return writes ? Apart(row, to.p) : row;
        };
        Distribution second = {};
        double second_sum = 1;
        bool has_second = false;
        double slope = 0;
        double* const to_slope = gradients.empty() ? nullptr : &slope;
        const auto keep_slope = [&](size_t r) {
          for (const ParamGradient& gradient : gradients) gradient.values[r] = slope;  // alpha's, the only one
        };
        for (size_t r = 0; r < p.rows; ++r) {
          const Op op = at_row(common, per_row, r);
          const size_t r_of_q = q.rows > 1 ? r : 0;
          T *const dp_row = dp.data == nullptr ? nullptr : dp.row(r), *const dq_row = dq.data == nullptr ? nullptr : dq.row(r);
          const double first_sum = SumOfRow(op, p, of_p, r);
          if (r_of_q == r) second_sum = SumOfRow(op, q, of_q, r);
          if constexpr (requires { op.smoothing; }) {
            if (op.smoothing > 0) {
              const Compared first = SmoothedOf(op, p.row(r), n, first_sum, p_place.p, p_place.z, p_smooth);
              const Compared other = SmoothedOf(op, q.row(r_of_q), n, second_sum, q_place.p, q_place.z, q_smooth);
              StoredTwoRow(op, first, other, nullptr, value + r, dp_row, dq_row, to_slope, partials);
              keep_slope(r);
              continue;
            }
          }
          // A row that all others are compared with is not written over, should dq be q.
          const bool keeps_q = dq_row == nullptr || q.rows == p.rows || dq.data != q.data;
          const double nats = keeps_q ? KlInFloat(op, p.row(r), q.row(r_of_q), n, dp_row, dq_row, p_place.p, p_place.z) : 0;
          if (nats > 0) {
            value[r] = InUnit(nats, op);
            continue;
          }
          Distribution first = distribution(p, r, first_sum, p_place);
          if (r_of_q == r || !has_second) second = distribution(q, r_of_q, second_sum, q_place);
          has_second = !NeedLogs(first, second);
          if (!has_second) {
            first = distribution(p, r, first_sum, p_place, Logs::all);
            second = distribution(q, r_of_q, second_sum, q_place, Logs::all);
          }
          Pair rows = {first, second};
          if (kLogsOf<Op> == Logs::none && IsNearSoftmax(rows, p.row(r), q.row(r_of_q), ratios)) rows.ratios = ratios;
          if constexpr (kIsStored<Op>) {
            StoredTwoRow(op, {first, first}, {second, second}, rows.ratios, value + r, dp_row, dq_row, to_slope, partials);
            keep_slope(r);
          } else {
            TwoRow(op, rows, value + r, dp_row, dq_row);
          }
        }
      },
      divergence);
}

template <class Op>
HWY_NOINLINE double OneTable(const Op& op, const Distribution& all, TableShape shape, const TableMemory& memory,
                             GradientOut dp) {
  double value = kNaN<double>;
  if constexpr (std::is_same_v<Op, JointEntropy>) {
    OneRow(Entropy{op.base, op.input, op.normalize}, all, &value, dp);
  } else {
    Marginals marginals;
    if (all.exists) value = ValueOf(op, all, shape, memory, &marginals);
    value = InUnit(value, op);
    if (dp.wanted()) {
      WriteGradient(
          ThroughOf(op.input, op.normalize), all, 1 / LogBaseOf(op), 0,
          [&](size_t i, size_t count) HWY_ATTR { return PartialOf(op, all, shape, marginals, i, count); }, dp);
    }
  }
  return value;
}

template <class T>
double TableOf(const TableMeasure& measure, const T* pxy, TableShape shape, double sum, Arena memory, T* dp) {
  const size_t n = shape.rows * shape.cols;
  double *const own = memory.take<double>(n), *const logs = memory.take<double>(n);
  const TableMemory rest(memory, shape);
  return std::visit(
      [&]<class Op>(const Op& op) {
        const Logs needed = std::is_same_v<Op, JointEntropy> ? Logs::inaccurate : Logs::none;
        return OneTable(op, DistributionOf(op.input, op.normalize, pxy, n, sum, needed, own, logs), shape, rest, dp);
      },
      measure);
}

inline size_t TableRoom(TableShape shape) {
  return 2 * Arena::room<double>(shape.rows * shape.cols) + room_of<TableMemory>(shape);
}

template <class T>
void EntryRows(const EntryMeasure& measure, MatrixView<const T> p, GivenSums given, MatrixView<T> value, MatrixView<T> dp,
               Arena memory) {
  const size_t n = p.cols;
  std::visit(
      [&](const auto& op) {
        for (size_t r = 0; r < p.rows; ++r) {
          EntryRow(op, p.row(r), n, given.sums == nullptr ? 1 : given.sums[r], op.base ? LogNumber(*op.base) : 1, value.row(r),
                   dp.data == nullptr ? nullptr : dp.row(r), memory);
        }
      },
      measure);
}

template <class T>
MeasureKernels<T> MakeMeasures() {
  return {SumRows<T>, OneRows<T>, TwoRows<T>, TableOf<T>, TableRoom, EntryRows<T>};
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MEASURES_ROWS_INL_H_
