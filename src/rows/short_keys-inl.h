// Which scores of short float32 rows are the k largest, by keys of 8 bits: a search among keys takes a quarter of the time of
// one among scores.

#if defined(ISENTROPIC_ROWS_SHORT_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPIC_ROWS_SHORT_KEYS_INL_H_
#undef ISENTROPIC_ROWS_SHORT_KEYS_INL_H_
#else
#define ISENTROPIC_ROWS_SHORT_KEYS_INL_H_
#endif

#include <type_traits>

#include "src/rows/short-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// A score's key is (x - low) scale + offset, rounded to a whole number and limited to [0, 255]: it never falls as x rises. So
// if k keys reach a number, they are those of the k largest scores. The first keys are spread over the whole row; where more
// than k of them reach the last number that k reach, second keys spread over this one number. Rows that these do not separate,
// with scores that tie, are left to others.
class ShortKeys {
 public:
  using Rows = ShortRows<float>;
  using V = Rows::V;

  // The groups of rows that are searched together, because each step waits for its own result.
  static constexpr size_t kGroups = 4;

  // After Find: which rows are done, and in these which scores are kept.
  HWY_INLINE hn::Mask<RowTag<float>> Done(size_t g) const { return hn::Ne(hn::Load(d_, done_[g]), hn::Zero(d_)); }
  struct Keeper {
    V low, scale, offset, least;
    HWY_INLINE hn::Mask<RowTag<float>> Drops(V x) const { return hn::Lt(hn::MulAdd(hn::Sub(x, low), scale, offset), least); }
  };
  HWY_INLINE Keeper KeeperOf(size_t g) const {
    const Spread& of = keepers_[g];
    return {hn::Load(d_, of.low), hn::Load(d_, of.scale), hn::Load(d_, of.offset), hn::Load(d_, of.least)};
  }

  // `max` has the maximum of each row in its lanes; 1 <= k < n.
  HWY_INLINE void Find(const Rows* rows, const V* max, size_t groups, size_t k) {
    const V zero = hn::Zero(d_), one = hn::Set(d_, 1.0f), wanted = hn::Set(d_, static_cast<float>(k));
    for (size_t g = 0; g < groups; ++g) {
      const V low = Lowest(rows[g], max[g]), scale = hn::Div(hn::Set(d_, 254.0f), hn::Sub(max[g], low));
      // Not for equal scores, and for scores whose difference overflows.
      const auto usable = hn::And(hn::IsFinite(scale), hn::Gt(scale, zero));
      hn::Store(hn::IfThenElseZero(usable, one), d_, done_[g]);
      hn::Store(low, d_, keepers_[g].low);
      // The key 0 is that of scores of -inf.
      SetKeys<false>(rows[g], hn::IfThenElseZero(usable, scale), hn::Set(d_, kMagic + 1), g);
    }
    Search(rows[0].vectors(), groups, k);
    bool all = true;
    for (size_t g = 0; g < groups; ++g) {
      const V least = hn::Load(d_, keepers_[g].least);
      const auto usable = Done(g);
      // With fewer scores than k above -inf, all are kept.
      const auto everything = hn::Eq(least, hn::Set(d_, kMagic));
      const auto done = hn::Or(everything, hn::Eq(hn::Load(d_, reached_[g]), wanted));
      hn::Store(hn::IfThenElse(everything, hn::Set(d_, -kInfinity<float>), least), d_, keepers_[g].least);
      hn::Store(hn::IfThenElseZero(hn::And(usable, done), one), d_, done_[g]);
      all = all && hn::AllTrue(d_, hn::Or(done, hn::Not(usable)));
    }
    if (all) return;
    Spread first[kGroups];
    for (size_t g = 0; g < groups; ++g) {
      first[g] = keepers_[g];
      const V times = hn::Set(d_, 254.0f);
      // (x - low) scale + 1 - least, in [-1/2, 1/2], times 254, plus 127.
      const V number = hn::Sub(hn::Load(d_, first[g].least), hn::Set(d_, kMagic + 1));
      const V offset = hn::Add(hn::NegMulAdd(number, times, hn::Set(d_, 127.0f)), hn::Set(d_, kMagic));
      SetKeys<true>(rows[g], hn::Mul(hn::Load(d_, first[g].scale), times), offset, g);
    }
    Search(rows[0].vectors(), groups, k);
    for (size_t g = 0; g < groups; ++g) {
      const auto done = Done(g);
      for (auto part : {&Spread::scale, &Spread::offset, &Spread::least}) {
        hn::Store(hn::IfThenElse(done, hn::Load(d_, first[g].*part), hn::Load(d_, keepers_[g].*part)), d_, keepers_[g].*part);
      }
      hn::Store(hn::IfThenElseZero(hn::Or(done, hn::Eq(hn::Load(d_, reached_[g]), wanted)), one), d_, done_[g]);
    }
  }

 private:
  using DI = hn::RebindToSigned<RowTag<float>>;
  using DU = hn::RebindToUnsigned<RowTag<float>>;
  using D8 = hn::Repartition<int8_t, RowTag<float>>;
  static constexpr size_t kLanes = Rows::kLanes;
  static constexpr float kMagic = 0x1p23f;  // a number from here on is rounded to a whole one, in its low bits

  // A Keeper in memory.
  struct Spread {
    HWY_ALIGN float low[kLanes], scale[kLanes], offset[kLanes], least[kLanes];
  };

  HWY_INLINE V Lowest(const Rows& rows, V max) const {
    V low = rows.Vector(0);
    for (size_t v = 1; v < rows.vectors(); ++v) low = hn::Min(low, rows.Vector(v));
    low = Rows::SpreadMin(low);
    const V absent = hn::Set(d_, -kInfinity<float>);
    if (HWY_LIKELY(hn::AllFalse(d_, hn::Eq(low, absent)))) return low;
    low = max;
    for (size_t v = 0; v < rows.vectors(); ++v) {
      const V x = rows.Vector(v);
      low = hn::Min(low, hn::IfThenElse(hn::Eq(x, absent), max, x));
    }
    return Rows::SpreadMin(low);
  }

  template <bool kClampHigh>
  HWY_INLINE void SetKeys(const Rows& rows, V scale, V offset, size_t g) {
    const DI di;
    const V low = hn::Load(d_, keepers_[g].low), least = hn::Set(d_, kMagic), most = hn::Set(d_, kMagic + 255);
    hn::Store(scale, d_, keepers_[g].scale);
    hn::Store(offset, d_, keepers_[g].offset);
    const auto key = [&](size_t v) HWY_ATTR {
      V y = hn::Max(hn::MulAdd(hn::Sub(rows.Vector(v), low), scale, offset), least);
      if constexpr (kClampHigh) y = hn::Min(y, most);
      return hn::BitCast(di, y);
    };
    // The upper bits are those of kMagic.
    const auto bias = hn::Set(di, static_cast<int32_t>(0x4B000000u ^ 0x80808080u));
    for (size_t v = 0; v < rows.vectors(); v += 4) {
      const auto low_half = hn::Xor(key(v), hn::ShiftLeft<8>(key(v + 1)));
      const auto high_half = hn::Xor(hn::ShiftLeft<16>(key(v + 2)), hn::ShiftLeft<24>(key(v + 3)));
      hn::Store(hn::Xor(hn::Xor(low_half, high_half), bias), di, bytes_[g] + v / 4 * kLanes);
    }
  }

  // The largest number that at least k keys of each row reach.
  HWY_INLINE void Search(size_t vectors, size_t groups, size_t k) {
    const auto search = [&]<size_t kVectors>(std::integral_constant<size_t, kVectors>) HWY_ATTR {
      if (groups == kGroups) return SearchBits<kVectors, kGroups>(0, k);
      for (size_t g = 0; g < groups; ++g) SearchBits<kVectors, 1>(g, k);
    };
    constexpr size_t kChunk = Rows::kSpans;  // vectors of keys of 16 columns
    switch (vectors / 4 / kChunk) {
      case 1:
        return search(std::integral_constant<size_t, kChunk>());
      case 2:
        return search(std::integral_constant<size_t, 2 * kChunk>());
      case 3:
        return search(std::integral_constant<size_t, 3 * kChunk>());
      default:
        return search(std::integral_constant<size_t, 4 * kChunk>());
    }
  }

  // Bit by bit. A row has as many keys as kVectors have lanes; those of no column are the lowest.
  template <size_t kVectors, size_t kTogether>
  HWY_NOINLINE void SearchBits(size_t first, size_t k) {
    const DI di;
    const DU du;
    const D8 d8;
    constexpr size_t kTotal = kVectors * kLanes;
    const auto most_below = hn::Set(di, static_cast<int32_t>(kTotal - k)), low_byte = hn::Set(di, 0xff);
    hn::Vec<DI> least[kTogether], below[kTogether];
    for (size_t g = 0; g < kTogether; ++g) {
      least[g] = hn::Set(di, static_cast<int32_t>(0x80808080u));
      below[g] = hn::Zero(di);
    }
    for (uint32_t bit = 0x80808080u; bit != 0; bit = bit >> 1 & 0x7f7f7f7fu) {
      const auto add = hn::BitCast(d8, hn::Set(du, bit));
      for (size_t g = 0; g < kTogether; ++g) {
        const auto tried = hn::Add(hn::BitCast(d8, least[g]), add);
        auto sum = hn::Zero(d8);
        for (size_t v = 0; v < kVectors; ++v) {
          const auto keys = hn::BitCast(d8, hn::Load(di, bytes_[first + g] + v * kLanes));
          sum = hn::Sub(sum, hn::VecFromMask(d8, hn::Lt(keys, tried)));
        }
        // The sum over all 32-bit lanes of a row, then over the four bytes; no byte overflows.
        auto lanes = hn::BitCast(du, sum);
        if constexpr (kLanes >= 16) lanes = hn::Add(lanes, hn::ConcatLowerUpper(du, lanes, lanes));
        if constexpr (kLanes >= 8) lanes = hn::Add(lanes, hn::SwapAdjacentBlocks(lanes));
        lanes = hn::Add(lanes, hn::ShiftRight<16>(lanes));
        lanes = hn::Add(lanes, hn::ShiftRight<8>(lanes));
        const auto count = hn::And(hn::BitCast(di, lanes), low_byte);
        const auto few = hn::Gt(count, most_below);
        least[g] = hn::IfThenElse(few, least[g], hn::BitCast(di, tried));
        below[g] = hn::IfThenElse(few, below[g], count);
      }
    }
    for (size_t g = 0; g < kTogether; ++g) {
      const auto number = hn::And(hn::Xor(least[g], hn::Set(di, 0x80)), low_byte);
      hn::Store(hn::Add(hn::ConvertTo(d_, number), hn::Set(d_, kMagic)), d_, keepers_[first + g].least);
      hn::Store(hn::Sub(hn::Set(d_, static_cast<float>(kTotal)), hn::ConvertTo(d_, below[g])), d_, reached_[first + g]);
    }
  }

  RowTag<float> d_;
  Spread keepers_[kGroups];
  // How many keys reach keepers_[g].least; 1 if the row is done.
  HWY_ALIGN float reached_[kGroups][kLanes], done_[kGroups][kLanes];
  // A 32-bit lane has the keys of four columns of one row, biased to signed.
  HWY_ALIGN int32_t bytes_[kGroups][Rows::kLongest * Rows::kRows / 4];
};

#endif

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // ISENTROPIC_ROWS_SHORT_KEYS_INL_H_
