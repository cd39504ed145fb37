// q^e for numbers q of [0, 1] in float32, with one exponent e of [0, 4] for all of them: half of the work of exp(e log q).
//
// q = 2^k (1 + f) with -1/4 <= f < 1/2, so q^e = (2^e)^k (1 + f)^e.
// - The second factor is 1 + f s(f), where s is a polynomial of degree 6 that UnitPower makes for its e:
//   the interpolation at the Chebyshev nodes.
//   It adds an error below 2^-24.2 of the power, for every e.
// - The first factor is a product of two numbers from tables of eight, those of k mod 8 and of floor(k / 8).
//
// The result never falls as q rises. Inside an octave only the rounding of s could be against the order, by less than 2.6
// halves of its last place, and |f| of this is less than what f s grows by from one q to the next. At the end of an octave the
// roundings of the tables and of their product may be against it, and that of f s: 2^-22 in all, and more as e and f s grow.
// So s is that of (1 + f)^e (1 - f t), which rises by 3 t/4 from the end of an octave to the beginning of the next.

#if defined(ISENTROPIC_ROWS_UNIT_POWER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ROWS_UNIT_POWER_INL_H_
#undef ISENTROPIC_ROWS_UNIT_POWER_INL_H_
#else
#define ISENTROPIC_ROWS_UNIT_POWER_INL_H_
#endif

#include "src/rows/exp_log-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
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
#if HWY_TARGET == HWY_SCALAR
    return parts_[static_cast<size_t>(hn::GetLane(index)) % 8];
#else
    const D d;
    const hn::RebindToSigned<D> di;
    // x86 takes an index mod the number of lanes, but Highway asserts that it is below.
    constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
    constexpr bool kWraps = HWY_ARCH_X86 && kLanes >= 8 && !HWY_IS_DEBUG_BUILD;
    const auto at = hn::IndicesFromVec(d, kWraps ? index : hn::And(index, hn::Set(di, HWY_MIN(kLanes, 8) - 1)));
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

  // Whether the power may not fall as q rises. That costs up to 3 eps of the power, 1.5 if e is small.
  enum class Order { rising, any };
  HWY_INLINE explicit UnitPower(double e, Order order = Order::rising) : UnitPower(Numbers(e, order)) {}

  // What stands for every q below, with the power 0. Numbers up to 2^-48.4 have it too.
  static constexpr float kLeast = 0x1p-56f;
  // From here on the error is relative.
  static constexpr float kLeastExact = 0x1p-48f;

  // The powers of q in [kLeast, 1]; NaN gives some number.
  HWY_INLINE V operator()(V q) const {
    const D d;
    const hn::RebindToSigned<D> di;
    const auto bits = hn::BitCast(di, q);
    const auto k = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f400000)));  // from 0.75 on
    const auto one = hn::Set(d, 1.0f);
    const auto f = hn::Sub(hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(k))), one);
    const V scale = hn::Mul(low_(k), high_(hn::ShiftRight<3>(k)));
    V s = coefficients_[kDegree];
    for (size_t j = kDegree; j-- > 0;) s = hn::MulAdd(s, f, coefficients_[j]);
    return hn::MulAdd(hn::Mul(s, f), scale, scale);
  }

 private:
  static constexpr size_t kDegree = 6;

  // What a power needs of its exponent, as numbers.
  struct Numbers {
    HWY_INLINE Numbers(double e, Order order) {
      constexpr double kLn2 = 0x1.62e42fefa39efp-1;
      // log(1 + f) and 1/f at the nodes f = 1/8 + 3 cos(pi (j + 1/2)/7)/8, and the inverse of the matrix of their powers:
      // column j is the polynomial that is 1 at node j and 0 at the others. Computed at 60 digits.
      HWY_ALIGN static constexpr double kLogs[8] = {
          0.39917735962995227,   0.34937915844969408,  0.25286265307143757,  0.11778303565638346,
          -0.038435679628595329, -0.18414738972352146, -0.27522395416429413, 0};
      HWY_ALIGN static constexpr double kInverses[8] = {2.0383288703294178,  2.391275826569534,   3.4757655459203254,  8,
                                                        -26.520695226125444, -5.9457696131222884, -4.1563110951665134, 0};
      HWY_ALIGN static constexpr double kInterpolation[7][8] = {
          {-0.016787809748849351, -0.3820189425209024, 2.685630403841516, 24.269078719164437, -77.954556407242194,
           -281.22302630674466, 731.58568949771143, 0},
          {0.055183334164961753, 1.2752140943285475, -8.3381726195190691, -81.719662729695642, 223.43857380228877,
           936.40197498608211, -2049.8575503784391, 0},
          {-0.11590686717475325, -2.8041546851627461, 14.171806520982495, 179.02201980885295, -257.51833314510594,
           -1739.639975284063, 2962.1299835536652, 0},
          {0.29610033313737016, 8.5032333921222811, 6.9229864785420343, -276.11679404271996, 38.527924750146973,
           2465.7871840094062, -3287.716245345875, 0},
          {0.88438954191391195, -5.1323685730372057, -46.387495966079818, 240.10567802827211, 344.92855733137617,
           -2703.5550000464345, 2962.1299835536652, 0},
          {-0.1372101820221624, -2.0268188750923777, 40.365513258156156, -86.389660945632244, -527.80041094489513,
           2138.3843505815762, -2049.8575503784391, 0},
          {0.034231649729521134, 0.5669135893624041, -9.4202680759233086, 0.82934116175836747, 256.37824461343138,
           -816.15550793982243, 731.58568949771143, 0}};
      // The t above. With a smaller e it would make the power fall. q^e q differs from q by less than 0.37 e, 4 eps.
      double tilt = order == Order::any ? 0 : 0x1.6p-22 + 0x1.8p-24 * e;
      if (e < 2 * tilt) e = tilt = 0;
      const D64 d;
      HWY_ALIGN double s[8], polynomial[8], powers[16];
      for (size_t j = 0; j < 8; j += hn::Lanes(d)) {
        const auto grown = hn::Sub(Exp(d, hn::Mul(hn::Load(d, kLogs + j), hn::Set(d, e))), hn::Set(d, 1.0));
        const auto tilted = hn::MulAdd(grown, hn::Load(d, kInverses + j), hn::Set(d, -tilt));
        hn::Store(hn::NegMulAdd(grown, hn::Set(d, tilt), tilted), d, s + j);
      }
      for (size_t k = 0; k < 8; k += hn::Lanes(d)) {
        auto sum = hn::Zero(d);
        for (size_t j = 0; j <= kDegree; ++j) sum = hn::MulAdd(hn::Load(d, kInterpolation[j] + k), hn::Set(d, s[j]), sum);
        hn::Store(sum, d, polynomial + k);
      }
      for (size_t k = 0; k <= kDegree; ++k) coefficients[k] = static_cast<float>(polynomial[k]);
      // 2^(e i) for i = k mod 8, and 2^(8 e a) for a = floor(k/8) = 0, -7, -6, ... -1. The last octaves are 0, and so is what
      // would be near the end of the range of float32, where digits are lost.
      HWY_ALIGN static constexpr double kOctaves[16] = {0, 1, 2, 3, 4, 5, 6, 7, 0, -56, -48, -40, -32, -24, -16, -8};
      for (size_t i = 0; i < 16; i += hn::Lanes(d)) {
        hn::Store(Exp(d, hn::Mul(hn::Load(d, kOctaves + i), hn::Set(d, kLn2 * e))), d, powers + i);
      }
      for (size_t i = 0; i < 8; ++i) {
        low[i] = static_cast<float>(powers[i]);
        high[i] = i == 1 || powers[8 + i] < 0x1p-96 ? 0.0f : static_cast<float>(powers[8 + i]);
      }
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
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ROWS_UNIT_POWER_INL_H_
