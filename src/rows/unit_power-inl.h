// q^e for numbers q of [0, 1] in float32, with one exponent e of [0, 4] for all of them: less than half of the work of exp(e log q).
//
// q = 2^-k (1 + f) with 0 <= f < 1, so q^e = (2^-e)^k (1 + f)^e.
// - The second factor is 1 + f s(f), where s is a polynomial of degree 6 that UnitPower makes for its e: the interpolation at the
//   Chebyshev nodes of [0, 1]. Its error is below 2^-23.4 of the power for every e, by an experiment over e and f.
// - The first factor is a product of two numbers from tables of eight, those of k mod 8 and of k / 8.
//
// The result never falls as q rises, if it is multiplied by q. Inside an octave the last rounding is that of 1 + f s(f): from one
// q to the next f s grows by more than the rounding of s. From the end of an octave to the next the tables' roundings may be
// against the order, by 2^-22.4 at most together. So s is that of (1 + f)^e (1 - f kTilt), which ends lower by more than this.

#if defined(ENTROPIC_ROWS_UNIT_POWER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENTROPIC_ROWS_UNIT_POWER_INL_H_
#undef ENTROPIC_ROWS_UNIT_POWER_INL_H_
#else
#define ENTROPIC_ROWS_UNIT_POWER_INL_H_
#endif

#include "src/rows/exp_log-inl.h"

HWY_BEFORE_NAMESPACE();
namespace entropic::inline ENTROPIC_ABI {
namespace HWY_NAMESPACE {

// A table of eight numbers.
class TableOf8 {
 public:
  using D = RowTag<float>;
  using Index = hn::Vec<hn::RebindToSigned<D>>;

  HWY_INLINE explicit TableOf8(const float* numbers) {
    HWY_ALIGN float repeated[kNumbers];
    for (size_t i = 0; i < kNumbers; ++i) repeated[i] = numbers[i % 8];
    for (size_t i = 0; i < kParts; ++i) parts_[i] = hn::Load(D(), repeated + i * hn::MaxLanes(D()));
  }

  // The number at index mod 8, in each lane.
  HWY_INLINE hn::Vec<D> operator()(Index index) const {
    const D d;
#if HWY_TARGET == HWY_SCALAR
    return parts_[static_cast<size_t>(hn::GetLane(index)) % 8];
#else
    const hn::RebindToSigned<D> di;
    constexpr int kLanes = static_cast<int>(HWY_MIN(hn::MaxLanes(D()), 8));
    const auto at = hn::IndicesFromVec(d, hn::And(index, hn::Set(di, kLanes - 1)));
    const auto first = hn::TableLookupLanes(parts_[0], at);
    if constexpr (kParts == 1) return first;
    const auto later = hn::RebindMask(d, hn::TestBit(index, hn::Set(di, 4)));
    return hn::IfThenElse(later, hn::TableLookupLanes(parts_[kParts - 1], at), first);
#endif
  }

 private:
  static constexpr size_t kNumbers = HWY_MAX(hn::MaxLanes(D()), 8), kParts = kNumbers / hn::MaxLanes(D());
  hn::Vec<D> parts_[kParts];
};

class UnitPower {
 public:
  using D = RowTag<float>;
  using V = hn::Vec<D>;

  HWY_INLINE explicit UnitPower(double e) : UnitPower(Numbers(e)) {}

  // Of any q in [0, 1], and of numbers below 0 as of 0: below 2^-55 it is 0. NaN gives some number.
  HWY_INLINE V operator()(V q) const {
    const D d;
    const hn::RebindToSigned<D> di;
    const auto bits = hn::BitCast(di, hn::Max(q, hn::Set(d, 0x1p-63f)));
    // 127 - k: the tables are turned round.
    const auto exponent = hn::ShiftRight<23>(bits);
    const auto one = hn::Set(d, 1.0f);
    const auto f = hn::Sub(hn::BitCast(d, hn::Or(hn::And(bits, hn::Set(di, 0x7fffff)), hn::BitCast(di, one))), one);
    const V scale = hn::Mul(low_(exponent), high_(hn::ShiftRight<3>(exponent)));
    V s = coefficients_[kDegree];
    for (size_t k = kDegree; k-- > 0;) s = hn::MulAdd(s, f, coefficients_[k]);
    return hn::Mul(hn::MulAdd(s, f, one), scale);
  }

 private:
  static constexpr size_t kDegree = 6;
  static constexpr double kTilt = 0x1p-22;

  // What a power needs of its exponent, as numbers.
  struct Numbers {
    HWY_INLINE explicit Numbers(double e) {
      constexpr double kLn2 = 0x1.62e42fefa39efp-1;
      // log(1 + f) and 1/f at the nodes f = 1/2 + cos(pi (j + 1/2)/7)/2, and the inverse of the matrix of their powers: column j
      // is the polynomial that is 1 at node j and 0 at the others. Computed at 60 digits.
      HWY_ALIGN static constexpr double kLogs[8] = {0.68685943208173317, 0.63706123090147504, 0.54054472552321853,
                                                    0.40546510810816438, 0.24924639282318559, 0.10353468272825948,
                                                    0.01245811828748679, 0};
      HWY_ALIGN static constexpr double kInverses[8] = {1.0126951913857341, 1.1224406009651278, 1.3948132233027775, 2,
                                                        3.5328432306156885, 9.1672255127595204, 79.769982240971146, 0};
      HWY_ALIGN static constexpr double kColumns[7][8] = {
          {0.016096134271444434, -1.5611206808249638, 23.65779913098061, -127.47429180703558, 303.57148687813964,
           -327.148612514116, 130.20653506929483, 0},
          {-0.04998787627813895, 4.8427034533670126, -72.945343029628702, 388.40912535694741, -907.70794227038334,
           951.87378616656144, -364.8306040590532, 0},
          {0.089763092195316252, -8.6715802871824188, 128.65329371076214, -665.04385608430823, 1485.2199536674384,
           -1467.2157158196662, 527.19549756118693, 0},
          {-0.14285714285714285, 13.714285714285714, -196.57142857142858, 950.85714285714289, -1938.2857142857142,
           1755.4285714285713, -585.14285714285711, 0},
          {0.22735584042603871, -21.477659819961723, 280.61675268361034, -1147.5887516125224, 2057.0738379869117,
           -1695.9572695474556, 527.19549756118693, 0},
          {-0.40826225846748293, 36.26706913809339, -307.68681980126996, 1020.2968632400356, -1620.7980723233743,
           1237.1098381877578, -364.8306040590532, 0},
          {1.2678922107099653, -23.113697517777016, 144.27574587697413, -419.45623195025962, 620.92645034698216,
           -454.09059790165298, 130.20653506929483, 0}};
      const D64 d;
      HWY_ALIGN double s[8], polynomial[8], powers[16];
      for (size_t j = 0; j < 8; j += hn::Lanes(d)) {
        const auto grown = hn::Sub(Exp(d, hn::Mul(hn::Load(d, kLogs + j), hn::Set(d, e))), hn::Set(d, 1.0));
        const auto tilted = hn::MulAdd(grown, hn::Load(d, kInverses + j), hn::Set(d, -kTilt));
        hn::Store(hn::NegMulAdd(grown, hn::Set(d, kTilt), tilted), d, s + j);
      }
      for (size_t k = 0; k < 8; k += hn::Lanes(d)) {
        auto sum = hn::Zero(d);
        for (size_t j = 0; j <= kDegree; ++j) sum = hn::MulAdd(hn::Load(d, kColumns[j] + k), hn::Set(d, s[j]), sum);
        hn::Store(sum, d, polynomial + k);
      }
      for (size_t k = 0; k <= kDegree; ++k) coefficients[k] = static_cast<float>(polynomial[k]);
      // 127 - k = i + 8 j: 2^-e (7 - i) and 2^-8 e (15 - j), where j mod 8 = 7 is 15 and 0 is 8.
      HWY_ALIGN static constexpr double kOctaves[16] = {7, 6, 5, 4, 3, 2, 1, 0, 56, 48, 40, 32, 24, 16, 8, 0};
      for (size_t i = 0; i < 16; i += hn::Lanes(d)) {
        hn::Store(Exp(d, hn::Mul(hn::Load(d, kOctaves + i), hn::Set(d, -kLn2 * e))), d, powers + i);
      }
      for (size_t i = 0; i < 8; ++i) low[i] = static_cast<float>(powers[i]), high[i] = static_cast<float>(powers[8 + i]);
      high[0] = 0;
    }
    float coefficients[kDegree + 1], low[8], high[8];
  };

  HWY_INLINE explicit UnitPower(const Numbers& numbers) : low_(numbers.low), high_(numbers.high) {
    for (size_t k = 0; k <= kDegree; ++k) coefficients_[k] = hn::Set(D(), numbers.coefficients[k]);
  }

  V coefficients_[kDegree + 1];
  TableOf8 low_, high_;
};

}  // namespace HWY_NAMESPACE
}  // namespace entropic::inline ENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ENTROPIC_ROWS_UNIT_POWER_INL_H_
