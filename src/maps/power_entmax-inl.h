// entmax of rows by powers, for b = alpha - 1 in [1/5, 1) and, of float32, also for b at most -1/5.
//
// p = q^(1/b) with q = c + u and u = b (x - max)/T. A power costs as much as the rest of a softmax, and Newton's iteration
// needs one of every score in each step. So the search starts near the root, by whole powers, which are a few multiplications;
// then two evaluations are enough for most rows, and the last of them also gives the masses.
//
// For b > 0 the scores above a bound of -c are packed, c is solved on those, and their masses are put in their places in a row
// of zeros. If they are few, they stay in registers. Rows of at most ShortRows::kLongest go side by side.

#if defined(ISENTROPIC_MAPS_POWER_ENTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_MAPS_POWER_ENTMAX_INL_H_
#undef ISENTROPIC_MAPS_POWER_ENTMAX_INL_H_
#else
#define ISENTROPIC_MAPS_POWER_ENTMAX_INL_H_
#endif

#include "src/maps/threshold_start-inl.h"
#include "src/rows/short-inl.h"
#include "src/rows/unit_power-inl.h"
#include "src/search/search-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// What is raised to a power: q = c + u for b > 0, and 1/q for b < 0, where q >= 1 and so 1/q <= 1 as well. `least` stands for
// all below it.
template <bool kRising, class D, class V = hn::Vec<D>>
HWY_INLINE V EntmaxBase(D d, V u, V c, hn::TFromD<D> least) {
  const V q = hn::Add(u, c);
  return MaxKeepNaN(hn::Set(d, least), kRising ? q : hn::Div(hn::Set(d, hn::TFromD<D>(1)), q));
}

// Newton's iteration on the norm of NormSearch, near enough for a start. As a function of e = 1/|b| the logarithm of the sum of
// masses is smooth (the cumulants of log q are its derivatives), and the cubic through its values at four whole e is off by
// less than a hundredth for 1 < e <= 5, in most rows by a thousandth. At a whole e it is exact.
class WholePowers {
 public:
  using D = RowTag<float>;
  using V = hn::Vec<D>;
  static constexpr size_t kPowers = 4;

  // 1/5 <= |b| < 1.
  HWY_INLINE explicit WholePowers(double b) : b_(b) {
    const double e = 1 / std::abs(b);
    first_ = e <= 3 ? 1 : e <= 4 || b > 0 ? 2 : 3;
    Interpolate(e, masses_);
    Interpolate(b > 0 ? e - 1 : e + 1, slopes_);
  }

  // The terms whose sums over a row Next() takes, of q >= 0 or 1/q.
  template <class W>
  HWY_INLINE void Terms(W q, W* terms) const {
    terms[0] = first_ == 1 ? q : hn::Mul(q, q);
    if (first_ == 3) terms[0] = hn::Mul(terms[0], q);
    for (size_t k = 1; k < kPowers; ++k) terms[k] = hn::Mul(terms[k - 1], q);
  }

  // The next c. Whatever the cubic says, it is on the root's side of 1, and not at its end.
  HWY_INLINE V Next(V c, const V (&sums)[kPowers]) const {
    const D d;
    V sum = hn::Zero(d), slope = hn::Zero(d);  // logarithms
    for (size_t k = 0; k < kPowers; ++k) {
      const V log = RoughLog2(sums[k]);
      sum = hn::MulAdd(log, masses_[k], sum);
      slope = hn::MulAdd(log, slopes_[k], slope);
    }
    const V one = hn::Set(d, 1.0f), inverse_norm = Exp2(hn::Mul(sum, hn::Set(d, static_cast<float>(-b_))));
    const V next = hn::NegMulAdd(hn::Sub(one, inverse_norm), Exp2(hn::Sub(sum, slope)), c);
    const V far = hn::Mul(c, hn::Set(d, b_ > 0 ? 0.125f : 8.0f)), low = b_ > 0 ? far : one, high = b_ > 0 ? one : far;
    return hn::IfThenElse(hn::Gt(next, high), high, MaxKeepNaN(low, next));
  }

 private:
  // The factors of four values of a cubic in its value at `at`.
  HWY_INLINE void Interpolate(double at, V* factors) const {
    for (size_t i = 0; i < kPowers; ++i) {
      double factor = 1;
      for (size_t j = 0; j < kPowers; ++j) {
        if (j != i) factor *= (at - Node(j)) / (Node(i) - Node(j));
      }
      factors[i] = hn::Set(D(), static_cast<float>(factor));
    }
  }
  HWY_INLINE double Node(size_t i) const { return static_cast<double>(first_ + i); }

  // The binary logarithm of a normal number above 0, within 2^-17: the polynomial interpolates at Chebyshev nodes.
  static HWY_INLINE V RoughLog2(V x) {
    const D d;
    const hn::RebindToSigned<D> di;
    using C = LogConstants<float>;
    const auto moved = hn::Sub(hn::BitCast(di, x), hn::Set(di, C::kSqrtHalfBits));
    const auto m = hn::Add(hn::And(moved, hn::Set(di, C::kMantissaMask)), hn::Set(di, C::kSqrtHalfBits));
    const auto magic = hn::Set(d, ExpConstants<float>::kMagic);
    const V k = hn::Sub(hn::BitCast(d, hn::Add(hn::ShiftRight<23>(moved), hn::BitCast(di, magic))), magic);
    const V f = hn::Sub(hn::BitCast(d, m), hn::Set(d, 1.0f));
    V y = hn::MulAdd(hn::Set(d, -0x1.9e49d6p-3f), f, hn::Set(d, 0x1.4480f6p-2f));
    for (const float coefficient : {-0x1.77bb64p-2f, 0x1.eb719cp-2f, -0x1.714092p-1f, 0x1.7154d0p+0f}) {
      y = hn::MulAdd(y, f, hn::Set(d, coefficient));
    }
    return hn::MulAdd(y, f, k);
  }

  // 2^x for |x| < 126.
  static HWY_INLINE V Exp2(V x) {
    using C = ExpConstants<float>;
    const D d;
    const hn::RebindToSigned<D> di;
    const auto magic = hn::Set(d, C::kMagic + C::kBias);
    const V t = hn::Add(x, magic);
    const V power = hn::BitCast(d, hn::ShiftLeft<C::kMantissaBits>(hn::BitCast(di, t)));
    return hn::Mul(Exp2Reduced(d, hn::Sub(x, hn::Sub(t, magic))), power);
  }

  size_t first_;
  double b_;
  V masses_[kPowers], slopes_[kPowers];
};

// What a mass is: the square of q (b = 1/2), a power of q (b > 0), or a power of 1/q, which is at most 1 (b < 0).
enum class Bend { square, rising, falling };

// The masses of scores from u and c, in two steps, since the second reads what the first has found.
template <Bend kBend, class D, class T = hn::TFromD<D>>
class EntryMass {
 public:
  using V = hn::Vec<D>;

  HWY_INLINE explicit EntryMass(double b) : power_(1 / std::abs(b) - 1) {}

  // The base y, and y^(1/|b| - 1), so that the mass is their product.
  HWY_INLINE V Base(V u, V c) const {
    constexpr bool kByTable = kBend != Bend::square && sizeof(T) == 4;
    return EntmaxBase<kBend != Bend::falling>(D(), u, c, kByTable ? T(UnitPower::kLeast) : T(0));
  }
  HWY_INLINE V Power(V y) const { return power_(y); }
  // The mass and b times its slope in c, whose sums NormSearch takes.
  HWY_INLINE void Terms(V y, V power, V* terms) const {
    terms[0] = hn::Mul(power, y);
    terms[1] = kBend == Bend::falling ? hn::Mul(terms[0], y) : power;
  }
  // The mass when c falls by b `part`, but for the square of that. As y rises, so does the product, also after rounding.
  HWY_INLINE V After(V y, V power, V part) const {
    const D d;
    if constexpr (kBend == Bend::falling) return hn::Mul(power, hn::NegMulAdd(hn::Mul(part, y), y, y));
    if constexpr (kBend == Bend::rising) return hn::Mul(power, MaxKeepNaN(hn::Zero(d), hn::Sub(y, part)));
    // What had no mass gets none, though c may rise; 0 times a part of NaN carries it to all.
    const V root = MaxKeepNaN(hn::Zero(d), hn::NegMulAdd(hn::Set(d, T(0.5)), part, y));
    return hn::IfThenElse(hn::Eq(y, hn::Zero(d)), hn::MulAdd(y, part, y), hn::Mul(root, root));
  }

 private:
  struct Itself {
    HWY_INLINE explicit Itself(double /*e*/) {}
    HWY_INLINE V operator()(V y) const { return y; }
  };
  struct ByLogarithm : RootOf<D> {
    HWY_INLINE explicit ByLogarithm(double e) : RootOf<D>(D(), 1 / e) {}
    HWY_INLINE V operator()(V y) const { return RootOf<D>::operator()(D(), y); }
  };
  std::conditional_t<kBend == Bend::square, Itself, std::conditional_t<sizeof(T) == 4, UnitPower, ByLogarithm>> power_;
};

// The error of a sum of masses that are rounded to T.
template <class T>
inline constexpr double kSumError = sizeof(T) == 4 ? 0x1p-24 : 0x1p-52;

// When the search on n scores ends, if their sums may be off by `eps`. For b < 0 a mass changes by less than the part
// e (e + 1)/2 of the square of a step's part of c.
template <Bend kBend>
HWY_INLINE double EnoughOf(double b, size_t n, double eps) {
  if (kBend != Bend::falling) return SmallStep(b, static_cast<double>(n), eps);
  const double e = -1 / b;
  return std::sqrt(2 * eps / (e * (e + 1)));
}

// A start near the root from c, which is not below it for b > 0. u has n numbers and then 64 that have no mass. If there are
// many, steps on a sample of them come first.
template <bool kRising, class T>
HWY_NOINLINE HWY_FLATTEN T StartByWholePowers(double b, T c, const T* u, size_t n) {
  const RowTag<T> d;
  const RowTag<float> df;
  const WholePowers whole_powers(b);
  constexpr size_t kSample = 128;
  HWY_ALIGN T sample[kSample];
  const bool samples = n >= 4 * kSample;
  for (size_t k = 0; samples && k < kSample; ++k) sample[k] = u[k * (n / kSample)];
  for (bool of_all = !samples;; of_all = true) {
    const T* const from = of_all ? u : sample;
    const size_t count = of_all ? n : kSample;
    for (int steps = 0; steps < 6; ++steps) {
      const auto at = hn::Set(d, c);
      double sums[WholePowers::kPowers];
      Sums(d, count, sums, [&](size_t i, size_t, hn::Vec<RowTag<T>>* terms) HWY_ATTR {
        whole_powers.Terms(EntmaxBase<kRising>(d, hn::LoadU(d, from + i), at, 0), terms);
      });
      if (sums[WholePowers::kPowers - 1] == 0) break;  // a sample without mass
      const double weight = static_cast<double>(n) / static_cast<double>(count);
      hn::Vec<RowTag<float>> rounded[WholePowers::kPowers];
      for (size_t k = 0; k < WholePowers::kPowers; ++k) rounded[k] = hn::Set(df, static_cast<float>(weight * sums[k]));
      const T last = c;
      c = static_cast<T>(hn::GetLane(whole_powers.Next(hn::Set(df, static_cast<float>(c)), rounded)));
      // A step is followed by an error of about its square.
      if (!(std::abs(c - last) > last / 32)) break;
    }
    if (of_all) return c;
  }
}

// For rows of at most kCount survivors: u becomes the mass, and their sum, 1 but for rounding, is left in `sums`. While others
// go on, a row whose c is found is summed again: no row's depends on another's. c is rounded to T, and many masses together may
// move by more than one of them may be off: so each makes the last step, which is smaller than c's rounding, along its own
// slope. To divide all by their sum instead would take from the large ones what the many small ones have too much.
template <Bend kBend, size_t kCount, class T>
HWY_NOINLINE HWY_FLATTEN void FewMasses(double b, const Filtered<T>* filtered, size_t rows, T* sums) {
  const RowTag<T> d;
  const EntryMass<kBend, RowTag<T>> mass(b);
  HWY_ALIGN T powers[kSearches<T>][kCount];
  constexpr T kEnough = T(sizeof(T) == 4 ? 0x1p-22 : 0x1p-51);
  NormSearch<T, BoundNorm, UntilSum<T>> search[kSearches<T>];
  for (size_t r = 0; r < rows; ++r) search[r].Begin(b, -filtered[r].least, {kEnough});
  for (bool far = true; far;) {
    far = false;
    for (size_t r = 0; r < rows; ++r) {
      const T* const u = filtered[r].survivors.z;
      T* const row = powers[r];
      const auto c = hn::Set(d, search[r].c());
      T both[2];
      PowerSumsOf<kCount>(
          d,
          [&](size_t i, hn::Vec<RowTag<T>>* terms) HWY_ATTR {
            const auto y = mass.Base(hn::LoadU(d, u + i), c), power = mass.Power(y);
            hn::Store(power, d, row + i);
            mass.Terms(y, power, terms);
          },
          both);
      search[r].Take(both[0], both[1]);
      sums[r] = both[0] - search[r].step() / static_cast<T>(b) * both[1];
      far |= search[r].asks();
    }
  }
  AwaitReaders();
  for (size_t r = 0; r < rows; ++r) {
    T* const u = filtered[r].survivors.z;
    const auto c = hn::Set(d, search[r].c()), part = hn::Set(d, search[r].step() / static_cast<T>(b));
    ForEachVector(d, kCount, [&](size_t i, size_t count) HWY_ATTR {
      const auto y = mass.Base(LoadUpTo(d, u + i, count, -kInfinity<T>), c);
      StoreUpTo(mass.After(y, hn::LoadU(d, powers[r] + i), part), d, count, u + i);
    });
  }
}

// The u of n scores become their masses, from a c that is not below the root for b > 0; returns the masses' sum, 1 but for
// rounding. u is followed by 64 numbers without mass; `powers` has room for n. The steps are taken in T, sums in float64.
template <Bend kBend, class T>
HWY_NOINLINE HWY_FLATTEN double ManyMasses(double b, T start, T* u, size_t n, T* powers) {
  const RowTag<T> d;
  const EntryMass<kBend, RowTag<T>> mass(b);
  constexpr bool kIsSquare = kBend == Bend::square;
  using Until = std::conditional_t<kBend == Bend::falling, UntilPart<double>, UntilStep>;
  NormSearch<double, std::conditional_t<kIsSquare, QuickSquareNorm, PowerNorm>, Until, T> search;
  // With squares a step of the search is as cheap as one of whole powers.
  if constexpr (!kIsSquare) start = StartByWholePowers<kBend == Bend::rising>(b, start, u, n);
  search.Begin(b, start, {EnoughOf<kBend>(b, n, kSumError<T>)});
  double sums[2] = {};
  while (search.asks()) {
    const auto c = hn::Set(d, search.c());
    MassSums<kIsSquare>(d, n, sums, [&](size_t i, size_t count, hn::Vec<RowTag<T>>* terms) HWY_ATTR {
      const auto y = mass.Base(hn::LoadU(d, u + i), c), power = mass.Power(y);
      if constexpr (!kIsSquare) StoreUpTo(power, d, count, powers + i);
      mass.Terms(y, power, terms);
    });
    search.Take(sums[0], sums[1]);
  }
  const auto c = hn::Set(d, search.c()), part = hn::Set(d, static_cast<T>(search.step() / b));
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto y = mass.Base(LoadUpTo(d, u + i, count, T(0)), c);
    StoreUpTo(mass.After(y, kIsSquare ? y : LoadUpTo(d, powers + i, count, T(0)), part), d, count, u + i);
  });
  return sums[0] - search.step() / b * sums[1];
}

// The survivors' u become their masses, but for the factor 1/sum; returns the sum. `powers` has room for as many numbers.
template <Bend kBend, class T>
HWY_INLINE double SurvivorMasses(double b, const Filtered<T>& row, T* powers) {
  if (row.kept > 64) return ManyMasses<kBend>(b, -row.least, row.survivors.z, row.kept, powers);
  T sum;
  if (row.kept <= 32) {
    FewMasses<kBend, 32>(b, &row, 1, &sum);
  } else {
    FewMasses<kBend, 64>(b, &row, 1, &sum);
  }
  return static_cast<double>(sum);
}

// b > 0.
template <Bend kBend, class T>
HWY_NOINLINE HWY_FLATTEN void MapRowsByPowers(double b, double temperature, const T* const* x, size_t n, const T* max,
                                              T* const* p, size_t rows, Workspace workspace) {
  Filtered<T> filtered[kSearches<T>] = {};
  FilterRows<true>(b, temperature, x, n, max, rows, workspace.memory, filtered);
  if (MostKept(filtered, rows) <= 32) {
    T sums[kSearches<T>];
    FewMasses<kBend, 32>(b, filtered, rows, sums);
    for (size_t r = 0; r < rows; ++r) WriteFew(filtered[r], sums[r], n, p[r], workspace.stream);
    return;
  }
  for (size_t r = 0; r < rows; ++r) {
    // So many of p are free until it is written.
    const double sum = SurvivorMasses<kBend>(b, filtered[r], p[r]);
    WriteFew(filtered[r], static_cast<T>(sum), n, p[r], workspace.stream);
  }
}

// b < 0, where every score has mass. p may be x.
HWY_NOINLINE HWY_FLATTEN inline void MapHeavyRow(double b, double temperature, const float* x, size_t n, float max, float* p,
                                                 Workspace workspace) {
  const RowTag<float> d;
  float* const u = workspace.memory.take<float>(n + 64);
  const auto relative = Bent(b, temperature, max);
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    StoreUpTo(relative(LoadUpTo(d, x + i, count, -kInfinity<float>)), d, count, u + i);
  });
  FillRow(d, kInfinity<float>, 64, u + n);
  const auto factor = hn::Set(d, static_cast<float>(1 / ManyMasses<Bend::falling>(b, 1.0f, u, n, p)));
  WriteRow(d, workspace.stream, n, p,
           [&](size_t i, size_t count) HWY_ATTR { return hn::Mul(LoadUpTo(d, u + i, count, 0.0f), factor); });
}

// Groups of rows of at most ShortRows::kLongest. The entries of the groups are the scores.
template <Bend kBend, class T>
HWY_NOINLINE HWY_FLATTEN void ShortByPowers(double b, double temperature, const hn::Vec<RowTag<T>>* max, ShortRows<T>* group,
                                            T* const* p, size_t count) {
  using D = RowTag<T>;
  using V = hn::Vec<D>;
  using L = Lanes<D>;
  constexpr bool kIsSquare = kBend == Bend::square;
  constexpr size_t kRows = ShortRows<T>::kRows;
  const D d;
  const EntryMass<kBend, D> mass(b);
  [[maybe_unused]] const WholePowers whole_powers(b);
  ShortRows<T> powers(group->size());
  for (size_t g = 0; g * kRows < count; ++g) {
    ShortRows<T>& u = group[g];
    const RelativeScores<D> relative(max[g], temperature / b);
    u.Transform([&](V x) HWY_ATTR { return relative(x); });
    V start = hn::Set(d, T(1));
    if constexpr (!kIsSquare) {
      for (int i = 0; i < (kBend == Bend::rising && b <= 0.5 ? 2 : 3); ++i) {
        V sums[WholePowers::kPowers];
        u.FusedSums(sums, [&](V ui, V* acc) HWY_ATTR {
          V terms[WholePowers::kPowers];
          whole_powers.Terms(EntmaxBase<kBend == Bend::rising>(d, ui, start, 0), terms);
          for (size_t k = 0; k < WholePowers::kPowers; ++k) acc[k] = hn::Add(acc[k], terms[k]);
        });
        start = whole_powers.Next(start, sums);
      }
    }
    // 64 squares of what a search by squares leaves are below the error of the sum.
    using Until = std::conditional_t<kIsSquare, UntilPart<L>, UntilStep>;
    NormSearch<L, std::conditional_t<kIsSquare, QuickSquareNorm, BoundNorm>, Until> search;
    if constexpr (kIsSquare) {
      search.Begin(b, start, {T(sizeof(T) == 4 ? 0x1p-14 : 0x1p-29)});
    } else {
      search.Begin(b, start, {EnoughOf<kBend>(b, u.size(), kSumError<T>)});
    }
    while (!AllFalse(search.asks())) {
      V sums[2];
      const V c = search.c().v;
      const auto add = [&](V ui, V* acc) HWY_ATTR {
        const V y = mass.Base(ui, c), power = mass.Power(y);
        if constexpr (kBend == Bend::falling) {
          const V one = hn::Mul(power, y);
          acc[0] = hn::Add(one, acc[0]), acc[1] = hn::MulAdd(one, y, acc[1]);
        } else {
          acc[0] = hn::MulAdd(power, y, acc[0]), acc[1] = hn::Add(power, acc[1]);
        }
        return power;
      };
      if constexpr (kIsSquare) {
        u.FusedSums(sums, add);
      } else {
        u.SumsInto(powers, sums, add);
      }
      search.Take(sums[0], sums[1]);
    }
    const V c = search.c().v, part = hn::Mul(search.step().v, hn::Set(d, static_cast<T>(1 / b)));
    T* const* const out = p + g * kRows;
    const size_t rows = HWY_MIN(kRows, count - g * kRows);
    if constexpr (kIsSquare) {
      u.Store(out, rows, [&](V ui) HWY_ATTR { return mass.After(mass.Base(ui, c), c, part); });
    } else {
      u.Store(out, rows, powers, [&](V ui, V power) HWY_ATTR { return mass.After(mass.Base(ui, c), power, part); });
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_MAPS_POWER_ENTMAX_INL_H_
