// The search for the gamma of a row's entropy, which goes from kernel to kernel; and the kernels that search long rows on the
// few scores that represent them: the largest ones, the row's top, and a sample of the others.
#pragma once

#include "src/cuda/launch.h"
#include "src/cuda/resident-inl.h"
#include "src/maps/entropy_normalize-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {

// What a block finds of its part of a long row. `chosen`: how many scores are in the top.
struct PartOfRow {
  float max, least;
  unsigned finite, chosen;
};

// The workspace: for each row whether it is done; for each long row its search, its parts, and its top.
struct EntropyWork {
  std::uint8_t *done, *searches;
  PartOfRow* parts;
  float* tops;
};

}  // namespace cuda

namespace HWY_NAMESPACE {

// What a search asks of a row, by the first warp.
template <class S>
struct RowNear : SearchedRow {
  EntriesOf<S> entries;
  double scale = 1;  // of p, so that it sums to 1
  bool lost = false;

  HWY_INLINE RowNear(const cuda::Rows& rows, size_t r) : entries(rows, r) { memory = nullptr, survey = {}, few = {}; }

  HWY_INLINE void ScaleBy(size_t /*n*/, double factor) { scale = factor; }
  // A cluster has no room for the scores; then MapKernel takes the row.
  HWY_INLINE size_t Pack(size_t n, float least, size_t most) {
    lost = Team::Blocks() > 1;
    if (lost) return 0;
    return Team::PackRead(
        n, [&](size_t i) HWY_ATTR { return entries(i); }, [&](size_t, float x) HWY_ATTR { return x >= least; },
        [&](size_t place, size_t i) HWY_ATTR {
          if (place < most) memory[place] = entries(i) - survey.max;
        });
  }
};

// A search, which may go on in another kernel. Each block of a cluster does the same.
template <class S>
struct EntropySearch {
  using Rows = NarrowRows<RowNear<S>>;

  RowNear<S> row;
  Rows rows;
  EntropyTarget target = {};
  float least_of_top = 0;  // a long row's threshold of the top, and how many scores are in it
  unsigned top_count = 0;
  bool gathered = false;  // whether the top is that of all parts
  bool begun = false;
  Exchanges exchanges;

  HWY_INLINE EntropySearch(const cuda::Rows& in, size_t r, size_t n) : row(in, r), rows(&row, 1, n) {}
  // What another kernel has left, or this one leaves to it.
  HWY_INLINE void CopyFrom(const EntropySearch& other) {
    *this = other;
    rows = Rows(&row, rows);
    exchanges = Exchanges();
  }
  // Only what is known of the row, for threads that do not search.
  HWY_INLINE void CopyRowFrom(const EntropySearch& other) {
    row.survey = other.row.survey, least_of_top = other.least_of_top, top_count = other.top_count, gathered = other.gathered;
  }
};

// Calls visit(i, v) for each score v of a long row's sample, in one of the block's threads. A thread issues many loads before
// it uses the first; otherwise it would wait for each score. The sample has 512 scores or more.
template <class S, class Visit>
HWY_INLINE void ForSample(const EntriesOf<S>& entries, unsigned n, const Visit& visit) {
  constexpr unsigned kAtOnce = 8;
  const unsigned size = static_cast<unsigned>(SampleSize(n)), threads = Team::BlockThreads();
  for (unsigned first = Team::Thread(); first < size; first += kAtOnce * threads) {
    float read[kAtOnce];
    ISENTROPIC_UNROLL
    for (unsigned k = 0; k < kAtOnce; ++k) read[k] = entries(SampleIndex(HWY_MIN(first + k * threads, size - 1), size, n));
    ISENTROPIC_UNROLL
    for (unsigned k = 0; k < kAtOnce; ++k) {
      if (first + k * threads < size) visit(first + k * threads, read[k]);
    }
  }
}

// What the first warp asks the others for: `survey` and the sums of a search; or how its search ended. `few`: the scores that
// represent the row are to be asked first.
struct EntropyQuestion {
  enum Kind : int { begin, survey, moments, masses, met, few, lost } kind;
  float high, low;  // of gamma, see ExpOfGamma::Split
  float lowest;     // see NarrowMoments and NarrowMasses
  float inverse_s;  // what p is multiplied by: first 1 / s
  float scale;

  HWY_INLINE bool AsksForSums() const { return kind == survey || kind == moments || kind == masses; }
};

// The shared memory of a block: partial sums, the question, scores that matter, or a sample, and in ResidentEntropyKernel the
// row before them.
struct EntropyMemory {
  static constexpr size_t kQuestion = offsetof(Team::Memory, partial) + 64 * 5 * 16 * sizeof(float);
  static constexpr size_t kRow = (kQuestion + sizeof(EntropyQuestion) + 127) / 128 * 128;
  static HWY_INLINE unsigned char* Begin() { return reinterpret_cast<unsigned char*>(&Team::Shared()); }
  static HWY_INLINE EntropyQuestion& Question() { return *reinterpret_cast<EntropyQuestion*>(Begin() + kQuestion); }
  static HWY_INLINE double& GammaOfSample() { return *reinterpret_cast<double*>(Begin() + kQuestion); }
  static HWY_INLINE float* Row() { return reinterpret_cast<float*>(Begin() + kRow); }
};

// The 8th largest of 16 numbers, as MiddleOf16 finds it. Lane l has number l mod 16.
HWY_INLINE float MiddleOfLanes(float own) {
  unsigned above = 0, equal = 0;
  for (unsigned lane = 0; lane < 16; ++lane) {
    const float other = Team::FromLane(own, lane);
    above += other > own, equal += other == own;
  }
  const unsigned middle = Team::Ballot(above < 8 && above + equal >= 8);
  return Team::FromLane(own, Team::Count((middle & (0 - middle)) - 1));
}

// The threshold of each long row's top, see Condense. A thread sees one of the sample's 16 columns.
template <class S>
__global__ void __launch_bounds__(256)
    ThresholdOfTopKernel(const __grid_constant__ cuda::Call<EntropyNormalize> call, cuda::EntropyWork work) {
  const unsigned n = static_cast<unsigned>(call.cols), lane = Team::Lane();
  const size_t r = Team::Number();
  float column = -kInfinity<float>;
  ForSample(EntriesOf<S>(call.in[0], r), n, [&](unsigned, float v) { column = fmaxf(v, column); });
  float* const columns = reinterpret_cast<float*>(Team::Shared().partial);
  column = fmaxf(column, Team::FromXor(column, 16));
  if (lane < 16) columns[Team::Thread() / 32 * 16 + lane] = column;
  Team::BlockBarrier();
  for (unsigned w = 0; w < Team::BlockThreads() / 32; ++w) column = fmaxf(columns[w * 16 + lane % 16], column);
  const float threshold = MiddleOfLanes(column);
  if (Team::Thread() > 0) return;
  EntropySearch<S> search(call.in[0], r, n);
  search.least_of_top = threshold;
  reinterpret_cast<EntropySearch<S>*>(work.searches)[r].CopyFrom(search);
  work.done[r] = false;
}

// The parts of a long row, one for each block, which does not know of the others. Each part has the same room for its scores in
// the top.
struct PartsOfRows {
  unsigned count, room;
  HWY_INLINE explicit PartsOfRows(unsigned n)
      : count((n + static_cast<unsigned>(cuda::kGroup) - 1) / static_cast<unsigned>(cuda::kGroup)),
        room(static_cast<unsigned>(MostOfTop(n)) / count) {}
};

// A part of a long row: its scores in the top, and what the survey of the row needs.
template <class S>
__global__ void __launch_bounds__(512, 2)
    TopOfPartsKernel(const __grid_constant__ cuda::Call<EntropyNormalize> call, cuda::EntropyWork work) {
  constexpr unsigned kSize = static_cast<unsigned>(cuda::kGroup);
  const unsigned n = static_cast<unsigned>(call.cols), warps = Team::BlockThreads() / 32, lane = Team::Lane();
  const PartsOfRows parts(n);
  const size_t number = Team::Number(), r = number / parts.count;
  const unsigned part = static_cast<unsigned>(number % parts.count);
  cuda::Rows rows = call.in[0];
  rows.data = static_cast<S*>(rows.data) + part * kSize;
  ResidentRow<S, 4> row(rows, HWY_MIN(n - part * kSize, kSize));
  const float threshold = reinterpret_cast<const EntropySearch<S>*>(work.searches)[r].least_of_top;
  row.Load(rows, r);
  float max = -kInfinity<float>, least = kInfinity<float>;
  unsigned finite = 0;
  row.ForOwn([&](unsigned, float v)
                 HWY_ATTR { max = fmaxf(v, max), least = fminf(v, least), finite += v != -kInfinity<float>; });
  const auto tell = [&] {
    max = MaxOfWarp(max), least = MinOfWarp(least);
    finite = FoldOfWarp(finite, [](unsigned a, unsigned b) { return a + b; });
  };
  tell();
  auto* const of_warps = reinterpret_cast<cuda::PartOfRow*>(Team::Shared().partial);
  if (lane == 0) of_warps[Team::Thread() / 32] = {max, least, finite, 0};
  const float bound = HWY_MAX(threshold, -std::numeric_limits<float>::max());
  const auto is_top = [&](float v) { return v >= bound; };
  const auto chosen = row.Choose(is_top);
  float* const top = work.tops + r * MostOfTop(n) + part * parts.room;
  row.PutChosen(chosen, is_top, [&](unsigned place, unsigned, float v) HWY_ATTR {
    if (place < parts.room) top[place] = v;
  });
  if (Team::Thread() >= 32) return;
  const cuda::PartOfRow of_warp = of_warps[lane < warps ? lane : 0];
  max = of_warp.max, least = of_warp.least, finite = lane < warps ? of_warp.finite : 0;
  tell();
  if (lane == 0) work.parts[number] = {max, least, finite, chosen.all};
}

// Puts the parts of a row together: its survey, and its top, which becomes relative to the maximum. All threads get the same
// in `search`. If a part has too many scores of the top but all parts together do not, the row is left to MapKernel.
template <class S>
HWY_INLINE void GatherParts(const cuda::PartOfRow* of_row, unsigned n, float* tops, EntropySearch<S>& search) {
  const PartsOfRows parts(n);
  RowSurvey<float>& survey = search.row.survey;
  float least = kInfinity<float>;
  unsigned finite = 0, count = 0;
  bool fits = true;
  survey.max = -kInfinity<float>;
  for (unsigned b = 0; b < parts.count; ++b) {
    survey.max = fmaxf(of_row[b].max, survey.max), least = fminf(of_row[b].least, least);
    finite += of_row[b].finite, count += of_row[b].chosen, fits &= of_row[b].chosen <= parts.room;
  }
  survey.least = fminf(least, survey.max), survey.finite = static_cast<double>(finite);
  search.top_count = count;
  search.gathered = true;
  if (count > MostOfTop(n)) return;
  if (!fits) survey.max = kNaN<float>;
  if (!IsFinite(survey.max)) return;
  // A score never moves to a higher place. So it is enough if the threads have read all scores of a round before they write.
  constexpr unsigned kAtOnce = 8;
  const unsigned threads = Team::BlockThreads();
  for (unsigned first = 0; first < count; first += kAtOnce * threads) {
    float read[kAtOnce];
    ISENTROPIC_UNROLL
    for (unsigned k = 0; k < kAtOnce; ++k) {
      const unsigned place = HWY_MIN(first + k * threads + Team::Thread(), count - 1);
      unsigned part = 0, before = 0;
      while (place >= before + of_row[part].chosen) before += of_row[part++].chosen;
      read[k] = tops[part * parts.room + place - before];
    }
    Team::BlockBarrier();
    ISENTROPIC_UNROLL
    for (unsigned k = 0; k < kAtOnce; ++k) {
      const unsigned place = first + k * threads + Team::Thread();
      if (place < count) tops[place] = read[k] - survey.max;
    }
    Team::BlockBarrier();
  }
}

// The search of long rows on the few scores that represent them, as far as it goes. The first warp searches; all of them have
// the scores.
template <class S, class Op>
__global__ void __launch_bounds__(256, 2)
    SampleSearchKernel(const __grid_constant__ cuda::Call<Op> call, cuda::EntropyWork work) {
  Team::Narrow(false);
  const unsigned n = static_cast<unsigned>(call.cols), size = static_cast<unsigned>(SampleSize(n));
  const size_t r = Team::Number();
  auto* const kept = reinterpret_cast<EntropySearch<S>*>(work.searches) + r;
  Op op = call.op;
  const bool good = AtRow(op, call.per_row, r);
  const bool searches = Team::Thread() < 32;
  EntropySearch<S> search(call.in[0], r, n);
  searches ? search.CopyFrom(*kept) : search.CopyRowFrom(*kept);
  if (work.done[r]) return;
  float* const tops = work.tops + r * MostOfTop(n);
  if (!search.gathered) {
    GatherParts(work.parts + r * PartsOfRows(n).count, n, tops, search);
    Team::BlockBarrier();  // a thread may still copy what another one has left
    if (Team::Rank() == 0) kept->CopyFrom(search);
  }
  if (!good || !IsFinite(search.row.survey.max) || search.top_count == 0) return;
  float* const sample = EntropyMemory::Row();
  ForSample(search.row.entries, n, [&](unsigned i, float v) { sample[i] = v; });
  Team::Barrier();
  RowSurvey<float> survey = search.row.survey;
  search.row.few = {tops, search.top_count, sample, size, 0};
  search.row.few = WeighSample(search.row.few, n, search.least_of_top, survey.max, &survey);
  if (search.row.few.top_count == 0) return;
  if (searches && !search.begun) {
    survey.finite = search.row.survey.finite;
    search.row.survey = survey;
    search.rows.Begin(TargetOf(op));
    search.begun = true;
  }
  double& asked = EntropyMemory::GammaOfSample();  // 0: no more
  for (;;) {
    if (searches) {
      const bool asks = search.rows.Ask() && search.rows.AsksForSample(0);
      if (asks) (void)search.rows.QuestionOf(0);
      if (Team::Thread() == 0) asked = asks ? search.rows.gamma(0) : 0;
    }
    Team::BlockBarrier();
    double gamma = asked, sums[4];
    if (gamma == 0) break;
    search.row.few.Moments(gamma, sums);
    if (searches) {
      search.rows.TellMoments(0, gamma, sums);
      search.rows.Continue();
    }
  }
  if (Team::Rank() == 0) kept->CopyFrom(search);
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();
