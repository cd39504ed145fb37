// jsd_loss and its gradient for rows that stay in shared memory. The first warp of a block adds sums and decides; the other
// warps have the scores, each thread its own.

#include "src/cuda/resident_jsd.h"

#include <type_traits>

#include "src/cuda/lane_row-inl.h"
#include "src/losses/divergence-inl.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// The rows of student and teacher, as LaneRow has one: a thread has the 16 numbers of a lane of a block of 256, and a warp 1024
// numbers. Each number has both scores as they are stored; a float for the teacher's term e^(x - max x), and for log(s/m) when
// that term is no longer needed; and if scores have 16 bits, one for the student's term. With float32 scores that one has no
// room, and is calculated again.
template <class S>
class LanePair {
 public:
  using D = RowTag<float>;
  using V = hn::Vec<D>;
  static constexpr bool kKeepsStudent = sizeof(S) == 2;
  static constexpr unsigned kOfWarp = 1024, kBytesOfWarp = 12 * kOfWarp;

  // `warp`: this warp's number among those that have the rows. `memory`: its own bytes.
  HWY_INLINE LanePair(unsigned n, unsigned warp, unsigned char* memory)
      : warp_(warp), n_(n), first_(Team::BlockRank() * kGroup + warp * kOfWarp + Team::Lane() / 16 * 256 + Team::Lane() % 16) {
    const unsigned begin = first_ - Team::Lane() / 16 * 256 - Team::Lane() % 16;
    whole_ = begin + kOfWarp <= n;
    halves_ = begin >= n ? 0 : HWY_MIN((n - begin + 511) / 512, 2u);
    pairs_ = reinterpret_cast<Neighbours<S>*>(memory) + Team::Lane();
    floats_ = reinterpret_cast<float*>(memory + kOfWarp * sizeof(Neighbours<S>)) + Team::Lane();
  }

  // Returns the largest scores of this thread, without NaN. Scores beyond the end are -inf, so that their terms are 0.
  HWY_INLINE Neighbours<S> Load(const cuda::Rows& x_rows, const cuda::Rows& target_rows, size_t r) const {
    const S absent = static_cast<S>(-kInfinity<float>);
    Neighbours<S> max = {{absent, absent}};
    ForHalves([&](unsigned j, auto whole) HWY_ATTR {
      const unsigned first = first_ + 512 * j;
      const auto x = EntriesOf<S>(x_rows, r).From(first), target = EntriesOf<S>(target_rows, r).From(first);
      Neighbours<S> read[16];
      ISENTROPIC_UNROLL
      for (unsigned m = 0; m < 16; ++m) {
        const bool exists = whole() || first + 16 * m < n_;
        read[m] = {{exists ? x.AsStored(16 * m) : absent, exists ? target.AsStored(16 * m) : absent}};
      }
      ISENTROPIC_UNROLL
      for (unsigned m = 0; m < 16; ++m) max = EntriesOf<S>::LargerOf(read[m], max), pairs_[32 * (16 * j + m)] = read[m];
    });
    return max;
  }

  // Number k of 32 of this thread.
  struct Scores {
    V x, target;
  };
  HWY_INLINE Scores ScoresAt(unsigned k) const {
    const Neighbours<S> both = pairs_[32 * k];
    return {hn::Set(D(), EntriesOf<S>::Widened(both.of[0])), hn::Set(D(), EntriesOf<S>::Widened(both.of[1]))};
  }
  HWY_INLINE float& TeacherTerm(unsigned k) const { return floats_[32 * k]; }
  HWY_INLINE float& LogRatio(unsigned k) const { return floats_[32 * k]; }
  HWY_INLINE float& StudentTerm(unsigned k) const { return floats_[kOfWarp + 32 * k]; }

  // Adds terms in the order of Sums: terms_of(k, terms) finds those of number k. After a barrier the first warp collects the
  // sums. kShort: the terms take few instructions, so that many copies of them do no harm. Otherwise there are two numbers at a
  // time, those of accumulators 0 and 1, then those of 2 and 3: a long kernel would wait for its instructions.
  template <size_t K, bool kShort, class T, class TermsOf>
  HWY_INLINE void Add(const TermsOf& terms_of) const {
    ISENTROPIC_ROLLED
    for (unsigned j = 0; j < halves_; ++j) {
      T acc[2][K] = {}, before[2][K];
      ISENTROPIC_ROLLED
      for (unsigned first = 16 * j; first < 16 * j + 4; first += 2) {
        ISENTROPIC_UNROLL
        for (unsigned e = 0; e < 2; ++e) {
          for (size_t k = 0; k < K; ++k) before[e][k] = acc[e][k], acc[e][k] = 0;
        }
        const auto two = [&](unsigned at) HWY_ATTR {
          hn::V1<T> terms[2][K];
          ISENTROPIC_UNROLL
          for (unsigned e = 0; e < 2; ++e) terms_of(at + e, terms[e]);
          ISENTROPIC_UNROLL
          for (unsigned e = 0; e < 2; ++e) {
            for (size_t k = 0; k < K; ++k) acc[e][k] = acc[e][k] + hn::GetLane(terms[e][k]);
          }
        };
        if constexpr (kShort) {
          ISENTROPIC_UNROLL
          for (unsigned m = 0; m < 16; m += 4) two(first + m);
        } else {
          ISENTROPIC_ROLLED
          for (unsigned m = 0; m < 16; m += 4) two(first + m);
        }
      }
      const unsigned block = warp_ * 4 + 2 * j + Team::Lane() / 16;
      T* const partial = reinterpret_cast<T*>(Team::Shared().partial) + Team::Lane() % 16;
      for (size_t k = 0; k < K; ++k) {
        partial[(block * K + k) * 16] = (before[0][k] + acc[0][k]) + (before[1][k] + acc[1][k]);
      }
    }
  }

  // Writes of(k) for each number k.
  template <class Of>
  HWY_INLINE void Write(const cuda::Rows& rows, size_t r, const Of& of) const {
    ForHalves([&](unsigned j, auto whole) HWY_ATTR {
      const unsigned first = first_ + 512 * j;
      const auto row = EntriesOf<S>(rows, r).From(first);
      ISENTROPIC_UNROLL
      for (unsigned m = 0; m < 16; ++m) {
        if (whole() || first + 16 * m < n_) row.Put(16 * m, hn::GetLane(of(16 * j + m)));
      }
    });
  }

 private:
  static constexpr unsigned kGroup = static_cast<unsigned>(cuda::kGroup);

  // Calls visit(j, whole) for each half. whole() is a constant: no number of the warp is beyond the end.
  template <class Visit>
  HWY_INLINE void ForHalves(const Visit& visit) const {
    if (whole_) {
      ISENTROPIC_ROLLED
      for (unsigned j = 0; j < 2; ++j) visit(j, std::true_type());
    } else {
      ISENTROPIC_ROLLED
      for (unsigned j = 0; j < halves_; ++j) visit(j, std::false_type());
    }
  }

  unsigned warp_, n_, first_, halves_;  // halves_: how many of the warp's two pairs of blocks there are
  bool whole_;                          // no number of the warp is beyond the end
  Neighbours<S>* pairs_;
  float* floats_;
};

// y = log s - log t, as StudentAndTeacher has it at T = 1.
struct JsdRatio {
  bool near;               // the rows are nearly equal
  double of_x, of_target;  // the maxima, or if they are near the two parts of the maxima's difference
  double level;

  // NaN where both scores are absent. Where one is, y is infinite, and not a number that is infinite only as a float.
  template <bool kNear>
  HWY_INLINE V64 Of(hn::Vec<RowTag<float>> narrow_x, hn::Vec<RowTag<float>> narrow_target) const {
    const D64 d;
    const V64 x = hn::PromoteTo(d, narrow_x), target = hn::PromoteTo(d, narrow_target);
    const V64 a = hn::Set(d, of_x), b = hn::Set(d, of_target);
    const V64 apart = kNear ? NearSoftmaxTerms{a, b}.Relative(x, target) : hn::Sub(hn::Sub(x, a), hn::Sub(target, b));
    return hn::Sub(apart, hn::Set(d, level));
  }
  // y of both absent.
  HWY_INLINE V64 OfAbsent() const { return hn::Sub(hn::Zero(D64()), hn::Set(D64(), level)); }

  template <class Scores>
  HWY_INLINE V64 Wide(const Scores& scores) const {
    const V64 y = near ? Of<true>(scores.x, scores.target) : Of<false>(scores.x, scores.target);
    return hn::IfThenElse(hn::IsNaN(y), OfAbsent(), y);
  }
  template <bool kNear, class Scores>
  HWY_INLINE hn::Vec<RowTag<float>> Narrow(const Scores& scores) const {
    const RowTag<float> d;
    const auto y = hn::DemoteTo(d, Of<kNear>(scores.x, scores.target));
    return hn::IfThenElse(hn::IsNaN(y), hn::DemoteTo(d, OfAbsent()), y);
  }
};

// What the first warp has found of a row, for all.
struct JsdFound {
  float max[2], inverse[2];  // of student and teacher
  bool lost;                 // the row is left to LossKernel
  bool maybe_near, relative;
  double sums_apart;
  JsdRatio ratio;
  float constant, mean;
  double y_0;
  float w, rest;
};

// The shared memory of a block: partial sums, what has been found, and the rows.
struct JsdMemory {
  static constexpr unsigned kPartial = offsetof(Team::Memory, partial), kPartialOfWarp = 4 * 4 * 16 * sizeof(float);
  static constexpr unsigned kFound = (sizeof(JsdFound) + 127) / 128 * 128;
  static constexpr HWY_INLINE size_t Bytes(unsigned warps) {
    return kPartial + kFound + warps * (kPartialOfWarp + LanePair<float>::kBytesOfWarp);
  }
  static HWY_INLINE unsigned char* Partial() { return reinterpret_cast<unsigned char*>(Team::Shared().partial); }
  static HWY_INLINE JsdFound& Found(unsigned warps) { return *reinterpret_cast<JsdFound*>(Partial() + warps * kPartialOfWarp); }
  static HWY_INLINE unsigned char* OfWarp(unsigned warps, unsigned warp) {
    return Partial() + warps * kPartialOfWarp + kFound + warp * LanePair<float>::kBytesOfWarp;
  }
};

// What the first warp does. Each function takes the sums that have been added, and finds what follows from them.
class JsdFinder {
 public:
  HWY_INLINE JsdFinder(unsigned n, double beta, JsdFound& found) : n_(n), beta_(beta), found_(found) {}

  HWY_NOINLINE void TakeMaxima() {
    const unsigned lane = Team::Lane(), warps = Team::BlockThreads() / 32 - 1;
    const float* const told = reinterpret_cast<const float*>(Team::Shared().folds);
    double own[2];
    float max[2];
    for (unsigned e = 0; e < 2; ++e) {
      max[e] = MaxOfWarp(lane < warps ? told[2 * lane + e] : -kInfinity<float>);
      own[e] = static_cast<double>(max[e]);
    }
    if (Team::Blocks() > 1) {
      const double* const all = exchanges_.ExchangeInWarp(own);
      for (unsigned e = 0; e < 2; ++e) {
        const float of_block = lane < Team::Blocks() ? static_cast<float>(all[e * Team::Blocks() + lane]) : -kInfinity<float>;
        max[e] = MaxOfWarp(of_block);
      }
    }
    if (Team::Thread() > 0) return;
    for (unsigned e = 0; e < 2; ++e) found_.max[e] = max[e];
    found_.lost = !IsFinite(max[0]) || !IsFinite(max[1]);
  }

  // As SoftmaxRowOf.
  HWY_NOINLINE void TakeSums() {
    const D64 d;
    double sums[2];
    Collect<float>(sums);
    const double apart = LogNumber(sums[0]) - LogNumber(sums[1]);
    if (Team::Thread() > 0) return;
    for (unsigned e = 0; e < 2; ++e) found_.inverse[e] = static_cast<float>(1 / sums[e]);
    found_.sums_apart = apart;
    found_.lost = apart != apart;
    found_.maybe_near = std::abs(apart) < 0.0625;
    found_.ratio = {false, static_cast<double>(found_.max[0]), static_cast<double>(found_.max[1]), apart};
    if (!found_.maybe_near) return;
    const ExactDifference of_maxima(hn::Set(d, found_.ratio.of_x), hn::Set(d, found_.ratio.of_target));
    found_.ratio = {true, hn::GetLane(of_maxima.high), hn::GetLane(of_maxima.low), 0};
  }

  // As LogRatiosOfNearSoftmax.
  HWY_NOINLINE void TakeExcess() {
    double sums[1];
    Collect<double>(sums);
    if (Team::Thread() > 0) return;
    if (std::abs(sums[0]) <= 0.5) {
      found_.ratio.level = Log1pNumber(sums[0]);
    } else {
      found_.ratio = {false, static_cast<double>(found_.max[0]), static_cast<double>(found_.max[1]), found_.sums_apart};
    }
  }

  // The value.
  HWY_NOINLINE double TakeLoss() {
    double sums[4];
    Collect<float>(sums);
    apart_ = sums[3];
    if (Team::Thread() == 0) found_.constant = static_cast<float>(sums[1] / sums[2]);
    return sums[0];
  }

  HWY_NOINLINE void TakeMean() {
    double sums[1];
    Collect<float>(sums);
    if (Team::Thread() > 0) return;
    found_.mean = static_cast<float>(sums[0]);
    found_.relative = JsdCancels(static_cast<double>(found_.constant), apart_, sums[0]);
  }

  // As RelativeLogRatios.
  HWY_NOINLINE void TakeReference() {
    double sums[2];
    Collect<double>(sums);
    const JsdReference<float> reference(beta_, sums);
    if (Team::Thread() == 0) found_.y_0 = reference.y_0, found_.w = reference.w, found_.rest = reference.rest;
  }
  HWY_NOINLINE void TakeRelativeMean() {
    double sums[1];
    Collect<float>(sums);
    if (Team::Thread() == 0) found_.mean = static_cast<float>(sums[0]), found_.constant = 0;
  }

 private:
  template <class T, size_t K>
  HWY_INLINE void Collect(double (&sums)[K]) {
    float none = 0;
    CollectSums<T>(n_, sums, &none, exchanges_);
  }

  unsigned n_;
  double beta_, apart_ = 0;
  JsdFound& found_;
  Exchanges exchanges_;
};

// The kernel of one row. dx may be x: a thread reads its scores first and writes its entries last.
template <class S>
__global__ void __launch_bounds__(544, 1)
    ResidentJsdKernel(const __grid_constant__ cuda::LossCall<JsdLoss> call, std::uint8_t* done) {
  using V = hn::Vec<RowTag<float>>;
  using Pair = LanePair<S>;
  const RowTag<float> d;
  const D64 wide;
  const unsigned n = static_cast<unsigned>(call.cols), warps = Team::BlockThreads() / 32 - 1;
  const bool finds = Team::Thread() < 32;
  Exchanges::Begin();
  Team::Begin();
  const size_t r = Team::Number();
  const bool writes = Team::Thread() == 0 && Team::BlockRank() == 0;
  if (writes) done[r] = false;
  JsdLoss op = call.op;
  if (!AtRow(op, call.per_row, r) || !FitsFloat(op)) return;

  JsdFound& found = JsdMemory::Found(warps);
  JsdFinder finder(n, op.beta, found);
  const unsigned warp = finds ? 0 : Team::Thread() / 32 - 1;
  const Pair pair(n, warp, JsdMemory::OfWarp(warps, warp));
  // The warps with the rows add; when all have, the first warp takes the sums; when it has, all go on.
  const auto step = [&](const auto& add, const auto& take) HWY_ATTR {
    if (!finds) add();
    Team::BlockBarrier();
    if (finds) take();
    Team::BlockBarrier();
  };

  step(
      [&] {
        const Neighbours<S> max = pair.Load(call.in[0], call.in[1], r);
        for (unsigned e = 0; e < 2; ++e) {
          const float of_warp = MaxOfWarp(EntriesOf<S>::Widened(max.of[e]));
          if (Team::Lane() == 0) reinterpret_cast<float*>(Team::Shared().folds)[2 * warp + e] = of_warp;
        }
      },
      [&] { finder.TakeMaxima(); });
  if (found.lost) return;

  const ExpScaled<RowTag<float>> exp(d, 1);
  const V max[2] = {hn::Set(d, found.max[0]), hn::Set(d, found.max[1])};
  const auto student_term = [&](unsigned k) HWY_ATTR {
    if constexpr (Pair::kKeepsStudent) return hn::Set(d, pair.StudentTerm(k));
    return exp(d, hn::Sub(pair.ScoresAt(k).x, max[0]));
  };
  step(
      [&] {
        pair.template Add<2, true, float>([&](unsigned k, V* terms) HWY_ATTR {
          const auto scores = pair.ScoresAt(k);
          terms[0] = exp(d, hn::Sub(scores.x, max[0])), terms[1] = exp(d, hn::Sub(scores.target, max[1]));
          if constexpr (Pair::kKeepsStudent) pair.StudentTerm(k) = hn::GetLane(terms[0]);
          pair.TeacherTerm(k) = hn::GetLane(terms[1]);
        });
      },
      [&] { finder.TakeSums(); });
  if (found.lost) return;

  const V inverse_s = hn::Set(d, found.inverse[0]), inverse_t = hn::Set(d, found.inverse[1]);
  if (found.maybe_near) {
    step(
        [&] {
          const V64 level = hn::Set(wide, ExpNumber(found.sums_apart));
          const JsdRatio ratio = found.ratio;
          pair.template Add<1, false, double>([&](unsigned k, V64* terms) HWY_ATTR {
            const V64 s = hn::Mul(hn::PromoteTo(wide, student_term(k)), hn::PromoteTo(wide, inverse_s));
            const V64 t = hn::Mul(hn::Set(wide, pair.TeacherTerm(k)), hn::PromoteTo(wide, inverse_t));
            terms[0] = NearSoftmaxTerms::Excess(ratio.Wide(pair.ScoresAt(k)), s, t, level);
          });
        },
        [&] { finder.TakeExcess(); });
  }

  const JsdRatio ratio = found.ratio;
  const auto add_losses = [&](auto near) HWY_ATTR {
    pair.template Add<4, false, float>([&](unsigned k, V* terms) HWY_ATTR {
      const V y = ratio.Narrow<near()>(pair.ScoresAt(k));
      const V student = student_term(k), t = hn::Mul(hn::Set(d, pair.TeacherTerm(k)), inverse_t);
      pair.LogRatio(k) = hn::GetLane(AddJsd(d, op.beta, student, hn::Mul(student, inverse_s), t, y, terms));
    });
  };
  step([&] { ratio.near ? add_losses(std::true_type()) : add_losses(std::false_type()); },
       [&] {
         const double value = finder.TakeLoss();
         if (writes) call.value[r] = value, done[r] = true;
       });
  if (call.out.data == nullptr) return;

  step(
      [&] {
        const V constant = hn::Set(d, found.constant);
        pair.template Add<1, true, float>([&](unsigned k, V* terms) HWY_ATTR {
          const V l = hn::Sub(hn::Set(d, pair.LogRatio(k)), constant);
          terms[0] = hn::Mul(hn::Mul(student_term(k), inverse_s), l);
        });
      },
      [&] { finder.TakeMean(); });
  if (found.relative) {
    step(
        [&] {
          pair.template Add<2, false, double>([&](unsigned k, V64* terms) HWY_ATTR {
            JsdReference<float>::Add(hn::PromoteTo(wide, student_term(k)), ratio.Wide(pair.ScoresAt(k)), terms);
          });
        },
        [&] { finder.TakeReference(); });
    step(
        [&] {
          const V w = hn::Set(d, found.w), rest = hn::Set(d, found.rest);
          const V64 y_0 = hn::Set(wide, found.y_0);
          pair.template Add<1, false, float>([&](unsigned k, V* terms) HWY_ATTR {
            const V z = hn::DemoteTo(d, hn::Sub(y_0, ratio.Wide(pair.ScoresAt(k))));
            const V l = hn::Neg(LogOfMixture(d, w, rest, z));
            pair.LogRatio(k) = hn::GetLane(l);
            terms[0] = hn::Mul(hn::Mul(student_term(k), inverse_s), l);
          });
        },
        [&] { finder.TakeRelativeMean(); });
  }
  if (finds) return;
  const V bs = hn::Set(d, static_cast<float>(1 - op.beta)), level = hn::Set(d, found.constant), rest = hn::Set(d, found.mean);
  pair.Write(call.out, r, [&](unsigned k) HWY_ATTR {
    const V s = hn::Mul(bs, hn::Mul(student_term(k), inverse_s)), l = hn::Sub(hn::Set(d, pair.LogRatio(k)), level);
    return hn::Mul(s, hn::Sub(l, rest));
  });
}

}  // namespace HWY_NAMESPACE

namespace cuda {

std::size_t memory_of_jsd(std::size_t rows, std::size_t n) {
  return n <= 1024 || n > kGroup * kMostGroups ? 0 : HWY_NAMESPACE::Arena::room<std::uint8_t>(rows);
}

void launch_jsd(LossCall<JsdLoss>& call, Stream stream) {
  using namespace HWY_NAMESPACE;
  if (call.cols <= 1024 || call.slopes.of[0] != nullptr || call.in[1].stored != call.in[0].stored) return;
  const Shape of_rows = resident_shape(call.cols), shape = {of_rows.blocks, of_rows.threads + 32, 1};
  const std::size_t bytes = JsdMemory::Bytes(of_rows.threads / 32);
  if (bytes > shared_memory_of(512)) return;
  use_resident(call, [&](auto entry, auto) {
    std::uint8_t* const done = call.memory;
    call.done = done, call.memory += memory_of_jsd(call.rows, call.cols);
    launch_as(shape, call.rows, bytes, ResidentJsdKernel<decltype(entry)>, call, stream, done);
  });
}

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI
