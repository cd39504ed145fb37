// entmax for every alpha.
//
// With b = alpha - 1, z = (x - max)/T <= 0 and c = p_max^b, all cases are p = (c + b z)^(1/b), 0 where the base is negative;
// c is the root of sum p = 1. There are three ways to it, each in a file: power_entmax-inl.h where c + b z has all its digits,
// bent_entmax-inl.h where b is small, and edge_entmax-inl.h for alpha > 2, where the power is infinitely steep at the edge of
// the support. alpha = 1 and alpha = 2 are softmax and sparsemax themselves.

#if defined(ISENTROPIC_MAPS_ENTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_ENTMAX_INL_H_
#undef ISENTROPIC_MAPS_ENTMAX_INL_H_
#else
#define ISENTROPIC_MAPS_ENTMAX_INL_H_
#endif

#include "isentropic/maps.h"
#include "src/maps/bent_entmax-inl.h"
#include "src/maps/contract-inl.h"
#include "src/maps/edge_entmax-inl.h"
#include "src/maps/power_entmax-inl.h"
#include "src/maps/softmax-inl.h"
#include "src/maps/sparsemax-inl.h"
#include "src/rows/entry-inl.h"
#include "src/rows/expm1-inl.h"
#include "src/rows/select-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// The longest rows that are computed several at once: longer ones gain nothing.
inline constexpr size_t kLongestOfSeveral = 4096;

// Below, b is so small that the rounding of c + u matters. For float32 UnitPower sets the limit.
template <class T>
inline constexpr double kLeastAlpha = sizeof(T) == 4 ? 1.2 : 1.25;

// Above, 1/b is too large for WholePowers and UnitPower, which float32 uses for alpha < 1.
inline constexpr double kMostHeavyAlpha = 0.8;

struct SeveralEntmaxRows {
  static constexpr size_t kMost = kSearches<float>;
  static HWY_INLINE size_t Count(const Entmax& op, size_t n) {
    return op.alpha >= kLeastAlpha<float> && op.alpha != 2 && n >= 256 && n <= kLongestOfSeveral ? kMost : 1;
  }
  static void Map(const Entmax& op, const float* const* x, size_t n, const float* max, float* const* p, size_t count,
                  Workspace workspace);
};

template <class T>
struct KernelsOf<Entmax, T> {
  static constexpr ScoreParams<Entmax> kScores = {.divisor = &Entmax::temperature};
  static void MapRow(const Entmax& op, const T* x, size_t n, T max, T* p, Workspace workspace);
  static void VjpRow(const Entmax& op, const T* x, const T* p, const T* g, size_t n, T* dx, ParamValues<Entmax>* slopes,
                     Workspace workspace);
  static constexpr NotOffered VjpFour = {}, MostInfinite = {};
  // The scores with mass of the rows that go together; of a gradient those of one, and a row in float64.
  static size_t Memory(size_t n) {
    return HWY_MAX((n <= kLongestOfSeveral ? kSearches<T> : 1) * room_of<Survivors<T>>(n),
                   room_of<Survivors<T>>(n) + Arena::room<T>(n) + Arena::room<double>(n));
  }
  struct Short {
    // Groups share what is computed of alpha.
    static constexpr size_t kGroups = sizeof(T) == 4 && hn::MaxLanes(RowTag<T>()) > 1 ? 4 : 1;
    static HWY_INLINE bool Takes(const Entmax& op) {
      return op.alpha == 1 || op.alpha == 1.5 || op.alpha == 2 ||
             (sizeof(T) == 4 && (op.alpha >= kLeastAlpha<T> || op.alpha <= kMostHeavyAlpha));
    }
    static void Map(const Entmax& op, const hn::Vec<RowTag<T>>* max, ShortRows<T>* group, T* const* p, size_t count);
    static HWY_INLINE bool TakesVjp(const Entmax& op);
    static void Vjp(const Entmax& op, ShortRows<T>* p, ShortRows<T>* g, T* const* dx, size_t count);
  };
  using Several = std::conditional_t<sizeof(T) == 4, SeveralEntmaxRows, NotOffered>;
};

// b = alpha - 1. Nearer to 0 than 2^-26 (2^-55) entmax differs from softmax by less than a tenth of eps, and b/T is a normal
// number for every T that PrepareRow lets through. Beyond 2^26 (2^60) only scores that share the maximum's last bits have mass.
template <class T>
HWY_INLINE double EntmaxPower(const Entmax& op) {
  const double b = op.alpha - 1;
  if (std::abs(b) <= (sizeof(T) == 4 ? 0x1p-26 : 0x1p-55)) return 0;
  return HWY_MIN(b, sizeof(T) == 4 ? 0x1p26 : 0x1p60);
}

// Rows of alpha from kLeastAlpha on, but not 2.
template <class T>
HWY_NOINLINE void MapRowsWithEdge(const Entmax& op, const T* const* x, size_t n, const T* max, T* const* p, size_t rows,
                                  Workspace workspace) {
  const double b = EntmaxPower<T>(op);
  if (b > 1) {
    MapRowsByEdge(b, op.temperature, x, n, max, p, rows, workspace);
  } else if (b == 0.5) {
    MapRowsByPowers<Bend::square>(b, op.temperature, x, n, max, p, rows, workspace);
  } else {
    MapRowsByPowers<Bend::rising>(b, op.temperature, x, n, max, p, rows, workspace);
  }
}

template <class T>
HWY_INLINE void KernelsOf<Entmax, T>::MapRow(const Entmax& op, const T* x, size_t n, T max, T* p, Workspace workspace) {
  const RowTag<T> d;
  const double b = EntmaxPower<T>(op);
  if (b == 0) return KernelsOf<Softmax, T>::MapRow({.temperature = op.temperature}, x, n, max, p, workspace);
  if (b == 1) return KernelsOf<Sparsemax, T>::MapRow({.temperature = op.temperature}, x, n, max, p, workspace);
  if constexpr (sizeof(T) == 4) {
    if (op.alpha <= kMostHeavyAlpha) return MapHeavyRow(b, op.temperature, x, n, max, p, workspace);
  }
  if (op.alpha < kLeastAlpha<T>) return MapRowNearSoftmax(d, b, op.temperature, x, n, max, p, workspace);
  MapRowsWithEdge(op, &x, n, &max, &p, 1, workspace);
}

HWY_INLINE void SeveralEntmaxRows::Map(const Entmax& op, const float* const* x, size_t n, const float* max, float* const* p,
                                       size_t count, Workspace workspace) {
  MapRowsWithEdge(op, x, n, max, p, count, workspace);
}

template <class T>
HWY_INLINE void KernelsOf<Entmax, T>::Short::Map(const Entmax& op, const hn::Vec<RowTag<T>>* max, ShortRows<T>* group,
                                                 T* const* p, size_t count) {
  if constexpr (sizeof(T) == 4) {
    if (op.alpha > 2) return ShortByEdge(EntmaxPower<T>(op), op.temperature, max, group, p, count);
    if (op.alpha < 1) return ShortByPowers<Bend::falling, T>(op.alpha - 1, op.temperature, max, group, p, count);
    if (op.alpha != 1 && op.alpha != 1.5 && op.alpha != 2) {
      return ShortByPowers<Bend::rising, T>(op.alpha - 1, op.temperature, max, group, p, count);
    }
  }
  if (op.alpha == 1.5) return ShortByPowers<Bend::square, T>(0.5, op.temperature, max, group, p, count);
  constexpr size_t kRows = ShortRows<T>::kRows;
  for (size_t g = 0; g * kRows < count; ++g) {
    T* const* const out = p + g * kRows;
    const size_t rows = HWY_MIN(kRows, count - g * kRows);
    if (op.alpha == 1) {
      KernelsOf<Softmax, T>::Short::Map({.temperature = op.temperature}, max + g, group + g, out, rows);
    } else {
      KernelsOf<Sparsemax, T>::Short::Map({.temperature = op.temperature}, max + g, group + g, out, rows);
    }
  }
}

// The entries of a row that a gradient reads. If at most half of the row has mass, only those with mass are packed, with their
// places; otherwise it is the row itself. An entry costs powers and logarithms, and to pack it a fraction of their time.
template <class T>
struct Support {
  const T *p, *g;
  size_t n;
  // Only of packed entries: their places in the row, and memory for their gradient, which may be g.
  const hwy::MakeSigned<T>* places = nullptr;
  T* dx = nullptr;
};

template <class T>
HWY_NOINLINE Support<T> SupportOf(const T* p, const T* g, size_t n, Arena& memory) {
  const RowTag<T> d;
  const auto one = hn::Set(d, T(1));
  const double zeros = Sum(d, n, [&](size_t i, size_t count) HWY_ATTR {
    return hn::IfThenElseZero(hn::Eq(LoadUpTo(d, p + i, count, T(1)), hn::Zero(d)), one);
  });
  if (2 * zeros < static_cast<double>(n)) return {p, g, n};
  const Survivors<T> with_mass(memory, n);
  const size_t kept = FilterAbove<true>(
      d, [](auto pi) HWY_ATTR { return pi; }, p, n, T(0), with_mass);
  T* const packed_g = memory.take<T>(n);
  ForEachVector(d, kept, [&](size_t i, size_t count) HWY_ATTR {
    for (size_t k = i; k < i + count; ++k) packed_g[k] = g[with_mass.places[k]];
  });
  return {with_mass.z, packed_g, kept, with_mass.places, packed_g};
}

// Writes the gradient that write(dx, stream) gives for the support to its places, and 0 elsewhere.
template <class T, class Write>
HWY_INLINE void WriteOnSupport(const Support<T>& support, size_t n, T* dx, bool stream, const Write& write) {
  const RowTag<T> d;
  if (support.places == nullptr) return write(dx, stream);
  write(support.dx, false);
  QuickWriteRow(d, stream, n, dx, [&](size_t /*i*/, size_t /*count*/) HWY_ATTR { return hn::Zero(d); });
  ForEachVector(d, support.n, [&](size_t i, size_t count) HWY_ATTR {
    for (size_t k = i; k < i + count; ++k) dx[support.places[k]] = support.dx[k];
  });
}

// <g, dp/d alpha>. With L = log p, h = -p L, y = -b L and r = 2 p L^2 phi_2(y), phi_2(y) = (e^y - 1 - y)/y^2, the formula of
// Correia, Niculae and Martins, which divides differences by b and b^2, is without any rest
//   dp/d alpha = (p R - r + b (h R - r H)) / (2 sum s),   R = sum r, H = sum h, s = p e^y = p^(2 - alpha):
// nothing cancels as alpha goes through 1.
struct AlphaSums {
  double s, h, r, gp, gh, gr;
  HWY_INLINE double Slope(double b) const { return (r * (gp + b * gh) - gr * (1 + b * h)) / (2 * s); }
};

// p e^y, h, r, g p, g h and g r.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void AlphaTerms(D d, V p, V g, V log_p, V y, V exp_y, V* terms) {
  terms[0] = hn::Mul(p, exp_y);
  terms[1] = hn::Neg(hn::Mul(p, log_p));
  terms[2] = hn::Neg(hn::Mul(hn::Add(terms[1], terms[1]), hn::Mul(log_p, Phi2(d, y, exp_y))));
  terms[3] = hn::Mul(g, p);
  terms[4] = hn::Mul(g, terms[1]);
  terms[5] = hn::Mul(g, terms[2]);
}

template <class D, class T>
HWY_NOINLINE HWY_FLATTEN AlphaSums SumForAlpha(D d, double b, const T* p, const T* g, size_t n) {
  using W = hn::TFromD<D>;
  using V = hn::Vec<D>;
  const V minus_b = hn::Set(d, static_cast<W>(-b)), zero = hn::Zero(d);
  // e^600 and its sums are finite; where y is larger, alpha has no effect that remains.
  const V most = hn::Set(d, W(sizeof(W) == 4 ? 80 : 600));
  double sums[6];
  Sums(d, n, sums, [&](size_t i, size_t count, V* terms) HWY_ATTR {
    V pi, gi;
    if constexpr (sizeof(W) == sizeof(T)) {
      pi = LoadUpTo(d, p + i, count, T(0)), gi = LoadUpTo(d, g + i, count, T(0));
    } else {
      pi = LoadWide(d, p + i, count, T(0)), gi = LoadWide(d, g + i, count, T(0));
    }
    const auto out = hn::Eq(pi, zero);
    for (size_t k = 0; k < 6; ++k) terms[k] = zero;
    if (hn::AllTrue(d, out)) return;
    const V log_p = Log(d, pi), y = hn::Min(hn::Mul(log_p, minus_b), most);
    V values[6];
    AlphaTerms(d, pi, gi, log_p, y, Exp(d, y), values);
    for (size_t k = 0; k < 6; ++k) terms[k] = hn::IfThenZeroElse(out, values[k]);
  });
  return {sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]};
}

// Up to this b no s or r is far above 1, and terms in float serve; a gradient near the type's end would still be too much.
inline constexpr double kMostInOwnType = 0.75;

// The slope in alpha.
template <class T>
HWY_INLINE double AlphaSlope(double b, const T* p, const T* g, size_t n) {
  if (b <= kMostInOwnType) {
    const AlphaSums own = SumForAlpha(RowTag<T>(), b, p, g, n);
    if (std::isfinite(own.gp + own.gh + own.gr)) return own.Slope(b);
  }
  return SumForAlpha(D64(), b, p, g, n).Slope(b);
}

// dx = s (g - mean) / T; 0 where s is.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void WriteCentred(D d, double temperature, const T* s, const T* g, double mean_g, size_t n, T* dx, bool stream) {
  const auto mean = hn::Set(d, static_cast<T>(mean_g));
  const DividedBy<D> divided(temperature);
  QuickWriteRow(d, stream, n, dx, [&](size_t i, size_t count) HWY_ATTR {
    const auto si = LoadUpTo(d, s + i, count, T(0));
    const auto v = divided(hn::Mul(si, hn::Sub(LoadUpTo(d, g + i, count, T(0)), mean)));
    return hn::IfThenZeroElse(hn::Eq(si, hn::Zero(d)), v);
  });
}

// s (g - <s,g> / sum s) / T with s = slope(p) in [0, 1]: nothing is lost in the row's own type. 0 where p is.
template <bool kQuick, class D, class Slope, class T = hn::TFromD<D>>
HWY_INLINE void VjpRowBySlope(D d, double temperature, const T* p, const T* g, size_t n, T* dx, Workspace workspace,
                              const Slope& slope) {
  T* const s = workspace.memory.take<T>(n);
  double sums[2];
  const auto visit = [&](size_t i, size_t count, hn::Vec<D>* terms) HWY_ATTR {
    const auto pi = LoadUpTo(d, p + i, count, T(0));
    const auto out = hn::Eq(pi, hn::Zero(d));
    terms[0] = terms[1] = hn::Zero(d);
    if (!hn::AllTrue(d, out)) {
      terms[0] = hn::IfThenZeroElse(out, slope(pi));
      terms[1] = hn::IfThenZeroElse(out, hn::Mul(terms[0], LoadUpTo(d, g + i, count, T(0))));
    }
    StoreUpTo(terms[0], d, count, s + i);
  };
  kQuick ? QuickSums(d, n, sums, visit) : Sums(d, n, sums, visit);
  WriteCentred(d, temperature, s, g, sums[1] / sums[0], n, dx, workspace.stream);
}

// s = p^(1 - b) of masses p, for b < 1; of 0 it is some number.
class SlopePower {
 public:
  using V = hn::Vec<RowTag<float>>;
  HWY_INLINE explicit SlopePower(double b)
      : power_(1 - b, UnitPower::Order::any), exponent_(hn::Set(RowTag<float>(), static_cast<float>(1 - b))) {}
  HWY_INLINE V operator()(V p) const {
    const RowTag<float> d;
    const V least = hn::Set(d, UnitPower::kLeastExact), s = power_(hn::Max(p, least));
    const auto small = hn::Lt(p, least);
    if (HWY_LIKELY(hn::AllFalse(d, hn::And(small, hn::Gt(p, hn::Zero(d)))))) return s;
    return hn::IfThenElse(small, Exp(d, hn::Mul(exponent_, Log(d, p))), s);
  }

 private:
  UnitPower power_;
  V exponent_;
};

// dx for b < 1.
HWY_NOINLINE HWY_FLATTEN inline void ShortEntmaxVjp(double b, double temperature, ShortRows<float>* p, ShortRows<float>* g,
                                                    float* const* dx, size_t count) {
  const SlopePower power(b);
  ShortVjpBySlope(temperature, p, g, dx, count, [&](auto pi) HWY_ATTR { return power(pi); });
}

// SlopePower in float64.
template <class T>
class SlopePowerByExp {
 public:
  HWY_INLINE explicit SlopePowerByExp(double b) : exponent_(hn::Set(RowTag<T>(), static_cast<T>(1 - b))) {}
  HWY_INLINE hn::Vec<RowTag<T>> operator()(hn::Vec<RowTag<T>> p) const {
    const RowTag<T> d;
    return Exp(d, hn::Mul(exponent_, Log(d, p)));
  }

 private:
  hn::Vec<RowTag<T>> exponent_;
};
template <class T>
using SlopeOfMass = std::conditional_t<sizeof(T) == 4, SlopePower, SlopePowerByExp<T>>;

// s = p^(2 - alpha) for alpha > 2. Its range may exceed float64's, and rightly so does that of the gradient. So, in float64, s
// enters the mean relative to its largest, each entry by the two halves of its own, and g as its difference to g at the
// largest. Where that entry outweighs the rest, it gets all that the others lose.
template <class T>
HWY_NOINLINE HWY_FLATTEN void VjpRowByPowers(double b, double temperature, const T* p, const T* g, size_t n, T* dx,
                                             Workspace workspace) {
  const RowTag<T> d;
  const D64 d64;
  auto least = hn::Set(d, kInfinity<T>);
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto pi = LoadUpTo(d, p + i, count, T(0));
    least = hn::Min(hn::IfThenElse(hn::Gt(pi, hn::Zero(d)), pi, least), least);
  });
  const T smallest = MinLane(d, least);
  const size_t pivot = smallest < kInfinity<T> ? EndOfFirst(d, p, n, smallest, 1) - 1 : 0;
  const V64 log_pivot = Log(d64, hn::Set(d64, static_cast<double>(p[pivot]))), power = hn::Set(d64, 1 - b);
  const V64 pivot_g = hn::Set(d64, static_cast<double>(g[pivot]));
  double* const dx64 = workspace.memory.take<double>(n);
  double sums[2];
  Sums(d64, n, sums, [&](size_t i, size_t count, V64* terms) HWY_ATTR {
    const V64 pi = LoadWide(d64, p + i, count, T(0));
    const auto out = hn::Eq(pi, hn::Zero(d64));
    terms[0] = terms[1] = hn::Zero(d64);
    V64 log_p = terms[0];
    if (!hn::AllTrue(d64, out)) {
      log_p = Log(d64, pi);
      terms[0] = hn::IfThenZeroElse(out, Exp(d64, hn::Mul(power, hn::Sub(log_p, log_pivot))));
      const V64 difference = hn::Sub(LoadWide(d64, g + i, count, T(0)), pivot_g);
      terms[1] = hn::IfThenZeroElse(out, hn::Mul(terms[0], difference));
    }
    StoreUpTo(log_p, d64, count, dx64 + i);
  });
  const V64 mean = hn::Set(d64, sums[1] / sums[0]);
  const DividedBy<D64> divided(temperature);
  const bool dominates = sums[0] < 2;
  const double others = Sum(d64, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto out = hn::Eq(LoadWide(d64, p + i, count, T(0)), hn::Zero(d64));
    V64 v = hn::Zero(d64);
    if (!hn::AllTrue(d64, out)) {
      const V64 half = Exp(d64, hn::Mul(hn::Set(d64, 0.5 * (1 - b)), LoadUpTo(d64, dx64 + i, count, 0.0)));
      const V64 difference = hn::Sub(LoadWide(d64, g + i, count, T(0)), pivot_g);
      // s may be infinite; 0 times infinity counts as 0.
      const V64 centred = hn::Sub(difference, mean);
      v = hn::IfThenZeroElse(hn::Or(out, hn::Eq(centred, hn::Zero(d64))), divided(hn::Mul(hn::Mul(centred, half), half)));
      if (dominates) {
        const V64 index = hn::Iota(d64, static_cast<double>(i));
        v = hn::IfThenZeroElse(hn::Eq(index, hn::Set(d64, static_cast<double>(pivot))), v);
      }
    }
    StoreUpTo(v, d64, count, dx64 + i);
    return v;
  });
  ForEachVector(d64, n,
                [&](size_t i, size_t count) HWY_ATTR { StoreNarrow(LoadUpTo(d64, dx64 + i, count, 0.0), d64, count, dx + i); });
  if (!dominates) return;
  // `others` is NaN if its terms are infinite with both signs. They count less than the part that the largest s has in the
  // mean.
  const double own = sums[1] == 0 ? 0 : -sums[1] * kInfinity<double>;
  SetEntry(dx, pivot, static_cast<T>(others == others ? -others : own));
}

// The gradient for alpha > 2 of groups of rows of at most ShortRows::kLongest.
HWY_NOINLINE HWY_FLATTEN inline void ShortVjpAboveTwo(double b, double temperature, ShortRows<float>* p, ShortRows<float>* g,
                                                      float* const* dx, size_t count) {
  using V = hn::Vec<RowTag<float>>;
  const RowTag<float> d;
  const auto alone = [&](size_t group, size_t r, float* to) HWY_ATTR {
    HWY_ALIGN float p_row[ShortRows<float>::kLongest], g_row[ShortRows<float>::kLongest];
    HWY_ALIGN uint8_t memory[8 * ShortRows<float>::kLongest];
    const size_t n = p[group].size();
    for (size_t i = 0; i < n; ++i) p_row[i] = p[group].At(r, i), g_row[i] = g[group].At(r, i);
    VjpRowByPowers(b, temperature, p_row, g_row, n, to, {Arena(memory, sizeof(memory)), false});
  };
  if (b == 2) {
    const auto relative = [](V pi, V lowest) HWY_ATTR { return hn::Div(lowest, pi); };
    return ShortVjpByPivot(b, temperature, p, g, dx, count, relative, alone);
  }
  const V power = hn::Set(d, static_cast<float>(b - 1));
  const auto relative = [&](V pi, V lowest) HWY_ATTR {
    if (hn::AllTrue(d, hn::Eq(pi, hn::Zero(d)))) return pi;
    return Exp(d, hn::Mul(power, Log(d, hn::Div(lowest, pi))));
  };
  ShortVjpByPivot(b, temperature, p, g, dx, count, relative, alone);
}

template <class T>
HWY_INLINE bool KernelsOf<Entmax, T>::Short::TakesVjp(const Entmax& op) {
  const double b = EntmaxPower<T>(op);
  return b == 0.5 || b == 1 || (sizeof(T) == 4 && b != 0);
}

template <class T>
HWY_INLINE void KernelsOf<Entmax, T>::Short::Vjp(const Entmax& op, ShortRows<T>* p, ShortRows<T>* g, T* const* dx,
                                                 size_t count) {
  const double b = EntmaxPower<T>(op);
  if (b == 1) return KernelsOf<Sparsemax, T>::Short::Vjp({.temperature = op.temperature}, p, g, dx, count);
  if (b == 0.5) {
    return ShortVjpBySlope(op.temperature, p, g, dx, count, [](auto pi) HWY_ATTR { return hn::Sqrt(pi); });
  }
  if constexpr (sizeof(T) == 4) {
    return b > 1 ? ShortVjpAboveTwo(b, op.temperature, p, g, dx, count) : ShortEntmaxVjp(b, op.temperature, p, g, dx, count);
  }
}

template <class T>
HWY_INLINE void KernelsOf<Entmax, T>::VjpRow(const Entmax& op, const T* x, const T* p, const T* g, size_t n, T* dx,
                                             ParamValues<Entmax>* slopes, Workspace workspace) {
  const RowTag<T> d;
  const double b = EntmaxPower<T>(op);
  const bool is_quick = b == 0 || b == 0.5 || b == 1;
  Arena memory = workspace.memory;
  const Support<T> support = is_quick && slopes == nullptr ? Support<T>{p, g, n} : SupportOf(p, g, n, memory);
  if (slopes != nullptr) (*slopes)[0] = AlphaSlope(op.alpha - 1, support.p, support.g, support.n);
  if (dx == nullptr) return;
  if (b == 0) return KernelsOf<Softmax, T>::VjpRow({.temperature = op.temperature}, x, p, g, n, dx, nullptr, workspace);
  if (b == 1) return KernelsOf<Sparsemax, T>::VjpRow({.temperature = op.temperature}, x, p, g, n, dx, nullptr, workspace);
  if (b == 0.5) {
    return VjpRowBySlope<true>(d, op.temperature, p, g, n, dx, workspace, [](auto pi) HWY_ATTR { return hn::Sqrt(pi); });
  }
  WriteOnSupport(support, n, dx, workspace.stream, [&](T* to, bool stream) HWY_ATTR {
    const Workspace rest = {memory, stream};
    if (b > 1) return VjpRowByPowers(b, op.temperature, support.p, support.g, support.n, to, rest);
    const SlopeOfMass<T> slope(b);
    // 0 p carries a NaN row into the slope.
    VjpRowBySlope<false>(d, op.temperature, support.p, support.g, support.n, to, rest,
                         [&](auto pi) HWY_ATTR { return hn::MulAdd(pi, hn::Zero(d), slope(pi)); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_ENTMAX_INL_H_
