// Exponential noise, a function of (seed, stream, position, index), which is calculated by blocks of 64 indices: first the
// smallest, and only if that could win, the others.
//
// The minimum of 64 independent Exp(1) is Exp(1)/64, and its place is uniform and independent of it. The others exceed it by
// independent Exp(1), because the exponential distribution has no memory. So
//   E_i = M at i = J, M + F_i elsewhere,   M ~ Exp(1)/64, J uniform in the block, F_i ~ Exp(1)
// are 64 independent Exp(1). They do not depend on which of them are calculated, and M bounds them all.

#if defined(ISENTROPIC_SAMPLING_NOISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_SAMPLING_NOISE_INL_H_
#undef ISENTROPIC_SAMPLING_NOISE_INL_H_
#else
#define ISENTROPIC_SAMPLING_NOISE_INL_H_
#endif

#include "src/rows/exp_log-inl.h"
#include "src/rows/reduce-inl.h"
#include "src/sampling/philox.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

inline constexpr size_t kNoiseBlock = 64;
HWY_INLINE size_t NoiseBlocks(size_t n) { return (n + kNoiseBlock - 1) / kNoiseBlock; }

class DrawNoise {
 public:
  using D = D64;
  using U = hn::RebindToUnsigned<D>;
  using V = hn::Vec<D>;
  using VU = hn::Vec<U>;

  HWY_INLINE explicit DrawNoise(NoiseKey key) : key_(key) {}

  // The M of these blocks, and where in its block each is.
  HWY_INLINE V SmallestOf(VU blocks, VU* place) const {
    VU bits;
    Bits(hn::Or(blocks, hn::Set(U(), kBlocks)), &bits, place);
    *place = hn::ShiftRight<58>(*place);
    return Smallest(bits);
  }

  HWY_INLINE V SmallestOf(VU blocks) const {
    VU place;
    return SmallestOf(blocks, &place);
  }

  // The E of these indices.
  HWY_INLINE V Of(VU index) const {
    const D d;
    const U u;
    VU bits, place, even, odd;
    Bits(hn::Or(hn::ShiftRight<6>(index), hn::Set(u, kBlocks)), &bits, &place);
    Bits(hn::ShiftRight<1>(index), &even, &odd);
    const auto is_odd = hn::Ne(hn::And(index, hn::Set(u, 1)), hn::Zero(u));
    const V smallest = Smallest(bits), rest = Exponential(hn::IfThenElse(is_odd, odd, even));
    const auto is_place = hn::Eq(hn::ShiftRight<58>(place), hn::And(index, hn::Set(u, kNoiseBlock - 1)));
    return hn::IfThenElse(hn::RebindMask(d, is_place), smallest, hn::Add(smallest, rest));
  }

 private:
  // Counters of blocks have this bit; counters of pairs of indices do not.
  static constexpr uint64_t kBlocks = uint64_t{1} << 63;

  static HWY_INLINE V Smallest(VU bits) { return hn::Mul(Exponential(bits), hn::Set(D(), 1.0 / kNoiseBlock)); }

  // -log(1 - w) for w = (bits + 1/2) 2^-64 rounded to 53 bits. Near 0, where draws are decided, it has all its digits, down to
  // 2^-65.
  static HWY_INLINE V Exponential(VU bits) {
    const D d;
    const U u;
    // A number below 2^32 in the low bits of 2^52.
    const auto magic = hn::Set(d, 0x1p52);
    const auto number = [&](VU v) HWY_ATTR { return hn::Sub(hn::BitCast(d, hn::Or(v, hn::BitCast(u, magic))), magic); };
    const V high = number(hn::ShiftRight<32>(bits)), low = number(hn::And(bits, hn::Set(u, 0xffffffff)));
    const V w = hn::Add(hn::Mul(high, hn::Set(d, 0x1p-32)), hn::Mul(hn::Add(low, hn::Set(d, 0.5)), hn::Set(d, 0x1p-64)));
    return hn::Neg(Log1p(d, hn::Neg(hn::Min(w, hn::Set(d, 1 - 0x1p-53)))));
  }

  // The 128 bits of each counter, as two numbers.
  HWY_INLINE void Bits(VU counter, VU* first, VU* second) const {
    const U u;
#if HWY_TARGET == HWY_SCALAR
    const uint64_t c = hn::GetLane(counter);
    const Philox::Counter bits =
        Philox::Bits({static_cast<uint32_t>(c), static_cast<uint32_t>(c >> 32), key_.upper0, key_.upper1}, key_.key);
    *first = hn::Set(u, bits[0] | uint64_t{bits[1]} << 32);
    *second = hn::Set(u, bits[2] | uint64_t{bits[3]} << 32);
#else
    // A word in the lower half of each lane; the products ignore the upper halves.
    const hn::Repartition<uint32_t, U> half;
    const VU low = hn::Set(u, 0xffffffff);
    VU c0 = counter, c1 = hn::ShiftRight<32>(counter), c2 = hn::Set(u, key_.upper0), c3 = hn::Set(u, key_.upper1);
    uint32_t k0 = key_.key[0], k1 = key_.key[1];
    const auto m0 = hn::Set(half, Philox::kMultiplier0), m1 = hn::Set(half, Philox::kMultiplier1);
    for (int round = 0; round < Philox::kRounds; ++round) {
      const VU p0 = hn::MulEven(hn::BitCast(half, c0), m0), p1 = hn::MulEven(hn::BitCast(half, c2), m1);
      c0 = hn::Xor(hn::ShiftRight<32>(p1), hn::Xor(c1, hn::Set(u, k0)));
      c2 = hn::Xor(hn::ShiftRight<32>(p0), hn::Xor(c3, hn::Set(u, k1)));
      c1 = p1;
      c3 = p0;
      k0 += Philox::kBump0, k1 += Philox::kBump1;
    }
    *first = hn::Or(hn::And(c0, low), hn::ShiftLeft<32>(c1));
    *second = hn::Or(hn::And(c2, low), hn::ShiftLeft<32>(c3));
#endif
  }

  NoiseKey key_;
};

// y = x - max x + G, with G = -log E; a row without a finite maximum gets scores for its distribution. x may be null for only
// G.
template <class T>
HWY_NOINLINE void AddNoiseRow(const T* x, size_t n, NoiseKey key, T* y) {
  const D64 d;
  const DrawNoise noise(key);
  const T max = x == nullptr ? T(0) : RowMax(RowTag<T>(), x, n);
  if (!IsFinite(max)) {
    // A row without a distribution becomes all -inf or NaN; otherwise +inf scores are equally likely, and the others
    // impossible.
    const bool nan = FindNonFinite(x, n).nan;
    const RowTag<T> narrow;
    const auto top = hn::Set(narrow, kInfinity<T>), none = hn::Set(narrow, nan ? kNaN<T> : -kInfinity<T>);
    ForEachVector(narrow, n, [&](size_t i, size_t count) HWY_ATTR {
      const auto is_top = hn::Eq(LoadUpTo(narrow, x + i, count, T(0)), top);
      StoreUpTo(nan ? none : hn::IfThenZeroElse(is_top, none), narrow, count, y + i);
    });
    if (nan || max < 0) return;
    x = y;
  }
  const auto shift = hn::Set(d, IsFinite(max) ? static_cast<double>(max) : 0);
  ForEachVector(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto gumbel = hn::Neg(Log(d, noise.Of(hn::Iota(hn::RebindToUnsigned<D64>(), i))));
    const auto z = x == nullptr ? hn::Zero(d) : hn::Sub(LoadWide(d, x + i, count, T(0)), shift);
    StoreNarrow(hn::Add(z, gumbel), d, count, y + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_SAMPLING_NOISE_INL_H_
