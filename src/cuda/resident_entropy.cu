// Kernels of entropy_normalize and entropy_clip for rows that stay near their threads: in registers, or in shared memory.
//
// The first warp of a block searches for gamma, and asks the other warps, which have the row in shared memory, for the sums
// that the search needs. A long row is first solved on a few scores that represent it. That is done between two kernels that
// have the row near, by a kernel of its own: so all rows are searched at once, while only some have room at a time. A long row
// is then read twice and written once.

#define ENTROPIC_NARROW
#include "src/cuda/resident_entropy.h"

#include <algorithm>

#include "src/cuda/lane_row-inl.h"
#include "src/cuda/launch.h"
#include "src/cuda/resident-inl.h"
#include "src/maps/entropy_normalize-inl.h"

namespace entropic::inline ENTROPIC_ABI {
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
  bool gathered = false, begun = false;  // the top from all parts
  Exchanges exchanges;

  HWY_INLINE EntropySearch(const cuda::Rows& in, size_t r, size_t n) : row(in, r), rows(&row, 1, n) {}
  // What another kernel has left, or this one leaves to it.
  HWY_INLINE void CopyFrom(const EntropySearch& other) {
    *this = other;
    rows = Rows(&row, rows);
    exchanges = Exchanges();
  }
};

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

HWY_INLINE ExpOfGamma ExpOf(const EntropyQuestion& question) {
  const RowTag<float> d;
  return ExpOfGamma(hn::Set(d, question.high), hn::Set(d, question.low));
}

// The shared memory of a block: partial sums, the question, scores that matter, or a sample, and in ResidentEntropyKernel the
// row before them.
struct EntropyMemory {
  static constexpr size_t kQuestion = offsetof(Team::Memory, partial) + 64 * 5 * 16 * sizeof(float);
  static constexpr size_t kRow = (kQuestion + sizeof(EntropyQuestion) + 127) / 128 * 128;
  static HWY_INLINE unsigned char* Begin() { return reinterpret_cast<unsigned char*>(&Team::Shared()); }
  static HWY_INLINE EntropyQuestion& Question() { return *reinterpret_cast<EntropyQuestion*>(Begin() + kQuestion); }
  static HWY_INLINE float* Row() { return reinterpret_cast<float*>(Begin() + kRow); }
};

// Takes the answer to what was asked, and finds what to ask next; the numbers of the last masses, with which the row is
// written, stay in the question.
template <class S>
HWY_NOINLINE void AskNext(EntropySearch<S>& search, unsigned n, EntropyQuestion& question) {
  using Question = typename EntropySearch<S>::Rows::Question;
  using Kind = EntropyQuestion::Kind;
  auto& row = search.row;
  auto& rows = search.rows;
  const float max = row.survey.max;
  float least = max;
  if (question.kind == Kind::survey) {
    least = LaneRow<S>::LeastTold();
    double sums[5];
    CollectSums(n, sums, &least, search.exchanges);
    row.survey = SurveySums<true, RowTag<float>>(max).Row(sums, least, n);
    rows.Begin(search.target);
    search.begun = true;
  } else if (question.kind == Kind::moments) {
    double gamma = rows.gamma(0), sums[4];
    CollectSums(n, sums, &least, search.exchanges);
    NarrowMoments<true>(max, gamma).Finish(gamma, sums);
    rows.TellMoments(0, gamma, sums);
    rows.Continue();
  } else if (question.kind == Kind::masses) {
    double sums[2];
    CollectSums(n, sums, &least, search.exchanges);
    sums[1] *= rows.gamma(0);
    rows.TellMasses(0, sums);
    rows.Continue();
  }
  if (!search.begun && !row.lost) {
    question.kind = Kind::survey;
    return;
  }
  while (!row.lost && rows.Ask()) {
    if (rows.AsksForSample(0)) {
      question.kind = Kind::few;
      return;
    }
    const Question next = rows.QuestionOf(0);
    if (row.lost) break;
    if (next != Question::few) {
      const double gamma = rows.gamma(0);
      const bool masses = next == Question::masses;
      question.kind = masses ? Kind::masses : Kind::moments;
      ExpOfGamma::Split(gamma, &question.high, &question.low);
      question.lowest = masses ? NarrowMasses<true>::LowestOf(gamma, rows.log_s(0)) : NarrowMoments<true>::LowestOf(gamma);
      question.inverse_s = static_cast<float>(rows.inverse_s(0));
      return;
    }
    double gamma = rows.gamma(0), sums[4];
    row.few.Moments(gamma, sums);
    rows.TellMoments(0, gamma, sums);
    rows.Continue();
  }
  question.kind = !row.lost && rows.IsMet(0) ? Kind::met : Kind::lost;
  question.scale = static_cast<float>(row.scale);
}

// The search of a row in registers, by the first warp. `kept` is what another kernel has left of it, and gets what is left to
// another, or null.
template <class S, class Op>
HWY_NOINLINE void SearchRow(const cuda::Call<Op>& call, size_t r, float max, EntropySearch<S>* kept, std::uint8_t* done) {
  using Kind = EntropyQuestion::Kind;
  EntropySearch<S> search(call.in[0], r, call.cols);
  if (kept != nullptr && kept->begun) search.CopyFrom(*kept);
  Op op = call.op;
  search.row.lost = !AtRow(op, call.per_row, r);
  search.row.memory = EntropyMemory::Row() + LaneRow<S>::Bytes(Team::BlockThreads()) / sizeof(float);
  search.row.survey.max = max;
  search.target = TargetOf(op);
  EntropyQuestion question = {};
  for (;;) {
    AskNext(search, static_cast<unsigned>(call.cols), question);
    if (Team::Thread() == 0) EntropyMemory::Question() = question;
    Team::BlockBarrier();
    if (!question.AsksForSums()) break;
    Team::BlockBarrier();
  }
  if (Team::Thread() > 0 || Team::BlockRank() > 0) return;
  // Other threads may still read it. It changes only for a row that is met, and thus after barriers.
  *done = question.kind == Kind::met;
  if (kept != nullptr && question.kind == Kind::few) kept->CopyFrom(search);
}

// The other warps have the row, answer, and write.
template <class S>
HWY_INLINE void AnswerForRow(const LaneRow<S>& row, float max, const cuda::Rows& out, size_t r) {
  using Kind = EntropyQuestion::Kind;
  using V = hn::Vec<RowTag<float>>;
  const RowTag<float> d;
  const EntropyQuestion& question = EntropyMemory::Question();
  for (;;) {
    Team::BlockBarrier();
    const Kind asked = question.kind;
    Team::Forget(max);
    if (asked == Kind::survey) {
      const SurveySums<true, RowTag<float>> survey(max);
      V least = hn::Set(d, max);
      row.template AddRoughly<5>([&](V x, V* acc) HWY_ATTR { survey(x, acc, &least); });
      row.TellLeast(hn::GetLane(least));
    } else if (asked == Kind::moments) {
      const NarrowMoments<true> moments(max, ExpOf(question), question.lowest);
      row.template AddRoughly<4>([&](V x, V* acc) HWY_ATTR { moments(x, acc); });
    } else if (asked == Kind::masses) {
      const NarrowMasses<true> masses(max, ExpOf(question), question.lowest);
      row.template AddTerms<2>([&](V x, V* terms) HWY_ATTR { masses(x, terms); });
    } else {
      break;
    }
    Team::BlockBarrier();
  }
  if (question.kind != Kind::met) return;
  const NarrowMasses<true> masses(max, ExpOf(question), question.lowest);
  const V inverse = hn::Set(d, question.inverse_s), scale = hn::Set(d, question.scale);
  row.Write(out, r, [&](V x) HWY_ATTR {
    V terms[2];
    masses(x, terms);
    return hn::Mul(hn::Mul(terms[0], inverse), scale);
  });
}

// The rows that are not done.
template <class S, class Op>
__global__ void __launch_bounds__(544, 2)
    ResidentEntropyKernel(const __grid_constant__ cuda::Call<Op> call, cuda::EntropyWork work) {
  const unsigned n = static_cast<unsigned>(call.cols);
  const bool searches = Team::Thread() < 32;
  Exchanges::Begin();
  Team::Narrow(false);
  Team::Begin();
  Team::Narrow(true);
  const size_t r = Team::Number();
  auto* const kept = n < kLongRow ? nullptr : reinterpret_cast<EntropySearch<S>*>(work.searches) + r;
  if (kept != nullptr && work.done[r]) return;
  LaneRow<S> row(n, Team::Thread() / 32 - 1, EntropyMemory::Row());
  if (!searches) row.Load(call.in[0], r);
  float max;
  if (kept != nullptr) {
    max = kept->row.survey.max;
  } else {
    if (!searches) row.TellMax();
    Team::BlockBarrier();
    max = LaneRow<S>::MaxTold();
  }
  if (!IsFinite(max)) {
    if (Team::Thread() == 0 && Team::BlockRank() == 0) work.done[r] = false;
    return;
  }
  searches ? SearchRow(call, r, max, kept, work.done + r) : AnswerForRow(row, max, call.out, r);
}

// The 8th largest of 16 numbers, of which lane l has that of l mod 16, as MiddleOf16 finds it.
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
  const unsigned n = static_cast<unsigned>(call.cols), size = static_cast<unsigned>(SampleSize(n)), lane = Team::Lane();
  const size_t r = Team::Number();
  const EntriesOf<S> entries(call.in[0], r);
  constexpr unsigned kAtOnce = 8;  // read before the first is looked at
  float column = -kInfinity<float>;
  for (unsigned first = Team::Thread(); first < size; first += kAtOnce * Team::BlockThreads()) {
    float read[kAtOnce];
    ENTROPIC_UNROLL
    for (unsigned k = 0; k < kAtOnce; ++k) {
      const unsigned i = first + k * Team::BlockThreads();
      read[k] = entries(SampleIndex(i < size ? i : first, size, n));
    }
    ENTROPIC_UNROLL
    for (unsigned k = 0; k < kAtOnce; ++k) column = fmaxf(read[k], column);
  }
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

// The parts of a long row, one for each block, which does not know of the others. The scores of a part that are in the top have
// as much room as in all other parts.
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
    max = FoldOfWarp(max, [](float a, float b) { return fmaxf(a, b); });
    least = FoldOfWarp(least, [](float a, float b) { return fminf(a, b); });
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
// in `search`. If a part has too many scores of the top and all parts together have not, the row is left to MapKernel.
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
  // A score's place falls or stays. So it is enough that the threads have read all before they write.
  constexpr unsigned kAtOnce = 8;
  const unsigned threads = Team::BlockThreads();
  for (unsigned first = 0; first < count; first += kAtOnce * threads) {
    float read[kAtOnce];
    ENTROPIC_UNROLL
    for (unsigned k = 0; k < kAtOnce; ++k) {
      const unsigned place = HWY_MIN(first + k * threads + Team::Thread(), count - 1);
      unsigned part = 0, before = 0;
      while (place >= before + of_row[part].chosen) before += of_row[part++].chosen;
      read[k] = tops[part * parts.room + place - before];
    }
    Team::BlockBarrier();
    ENTROPIC_UNROLL
    for (unsigned k = 0; k < kAtOnce; ++k) {
      const unsigned place = first + k * threads + Team::Thread();
      if (place < count) tops[place] = read[k] - survey.max;
    }
    Team::BlockBarrier();
  }
}

// The search of long rows on the few scores that represent them, as far as it goes.
template <class S, class Op>
__global__ void __launch_bounds__(64, 4)
    SampleSearchKernel(const __grid_constant__ cuda::Call<Op> call, cuda::EntropyWork work) {
  Team::Narrow(false);
  const unsigned n = static_cast<unsigned>(call.cols), size = static_cast<unsigned>(SampleSize(n));
  const size_t r = Team::Number();
  auto* const kept = reinterpret_cast<EntropySearch<S>*>(work.searches) + r;
  Op op = call.op;
  const bool good = AtRow(op, call.per_row, r);
  EntropySearch<S> search(call.in[0], r, n);
  search.CopyFrom(*kept);
  if (work.done[r]) return;
  float* const tops = work.tops + r * MostOfTop(n);
  if (!search.gathered) {
    GatherParts(work.parts + r * PartsOfRows(n).count, n, tops, search);
    Team::BlockBarrier();  // a thread may still copy what another one has left
    if (Team::Rank() == 0) kept->CopyFrom(search);
  }
  if (!good || !IsFinite(search.row.survey.max) || search.top_count == 0) return;
  float* const sample = EntropyMemory::Row();
  // A thread reads much before it writes: otherwise it would wait for each score. The sample has 512 scores or more.
  constexpr unsigned kAtOnce = 8;
  for (unsigned first = Team::Thread(); first < size; first += kAtOnce * Team::BlockThreads()) {
    float read[kAtOnce];
    ENTROPIC_UNROLL
    for (unsigned k = 0; k < kAtOnce; ++k) {
      const unsigned i = HWY_MIN(first + k * Team::BlockThreads(), size - 1);
      read[k] = search.row.entries(SampleIndex(i, size, n));
    }
    ENTROPIC_UNROLL
    for (unsigned k = 0; k < kAtOnce; ++k) {
      if (first + k * Team::BlockThreads() < size) sample[first + k * Team::BlockThreads()] = read[k];
    }
  }
  Team::Barrier();
  RowSurvey<float> survey = search.row.survey;
  search.row.few = {tops, search.top_count, sample, size, 0};
  search.row.few = WeighSample(search.row.few, n, search.least_of_top, survey.max, &survey);
  if (search.row.few.top_count == 0) return;
  if (!search.begun) {
    survey.finite = search.row.survey.finite;
    search.row.survey = survey;
    search.rows.Begin(TargetOf(op));
    search.begun = true;
  }
  while (search.rows.Ask() && search.rows.AsksForSample(0)) {
    double gamma = search.rows.gamma(0), sums[4];
    (void)search.rows.QuestionOf(0);
    search.row.few.Moments(gamma, sums);
    search.rows.TellMoments(0, gamma, sums);
    search.rows.Continue();
  }
  if (Team::Rank() == 0) kept->CopyFrom(search);
}

}  // namespace HWY_NAMESPACE

namespace cuda {

static bool is_long(std::size_t n) { return n >= HWY_NAMESPACE::kLongRow; }
static std::size_t room(std::size_t bytes) { return (bytes + 127) / 128 * 128; }

// Long rows whose searches have memory at the same time: enough to keep a device busy.
constexpr std::size_t kRowsSearched = 1024;
static std::size_t bytes_of_searches(std::size_t rows) {
  return room(std::min(rows, kRowsSearched) * sizeof(HWY_NAMESPACE::EntropySearch<float>));
}
static std::size_t bytes_of_parts(std::size_t rows, std::size_t n) {
  const unsigned parts = HWY_NAMESPACE::PartsOfRows(static_cast<unsigned>(n)).count;
  return room(std::min(rows, kRowsSearched) * parts * sizeof(PartOfRow));
}
static std::size_t bytes_of_tops(std::size_t rows, std::size_t n) {
  return room(std::min(rows, kRowsSearched) * HWY_NAMESPACE::MostOfTop(n) * sizeof(float));
}

std::size_t memory_of_entropy(std::size_t rows, std::size_t n) {
  if (n <= 1024 || n > kGroup * kMostGroups) return 0;
  return room(rows) + (is_long(n) ? bytes_of_searches(rows) + bytes_of_parts(rows, n) + bytes_of_tops(rows, n) : 0);
}

template <class S, class Op>
static void launch_for(const Call<Op>& call, const EntropyWork& work, Stream stream) {
  using namespace HWY_NAMESPACE;
  static_assert(sizeof(EntropySearch<S>) == sizeof(EntropySearch<float>));
  const std::size_t n = call.cols;
  const Shape shape = resident_shape(n), with_search = {shape.blocks, shape.threads + 32, 1};
  const std::size_t few = shape.blocks == 1 ? SearchedRow::Room(n) * sizeof(float) : 0;
  const auto in_registers = [&] {
    const std::size_t bytes = EntropyMemory::kRow + LaneRow<S>::Bytes(with_search.threads) + few;
    launch_as(with_search, call.rows, bytes, ResidentEntropyKernel<S, Op>, call, stream, work);
  };
  const auto of_sample = [&] {
    // Every thread has the search on its stack. More threads than these would have no room for that in the first level of
    // cache.
    constexpr unsigned kThreads = 64;
    const std::size_t bytes = EntropyMemory::kRow + SampleSize(n) * sizeof(float);
    launch_as({1, kThreads, 1}, call.rows, bytes, SampleSearchKernel<S, Op>, call, stream, work);
  };
  if (is_long(n)) {
    Call<EntropyNormalize> plain = {};
    plain.rows = call.rows, plain.cols = n, plain.in[0] = call.in[0];
    launch_as({1, 256, 1}, call.rows, kResidentBytes, ThresholdOfTopKernel<S>, plain, stream, work);
    launch_as({1, shape.threads, 1}, call.rows * shape.blocks, kResidentBytes, TopOfPartsKernel<S>, plain, stream, work);
    // An entropy in the interval is found by the first pass over the row; only without it the search begins.
    if constexpr (std::is_same_v<Op, EntropyClip>) of_sample(), in_registers();
    of_sample();
  }
  in_registers();
}

template <class Op>
static void launch_in_registers(Call<Op>& call, Stream stream) {
  const std::size_t n = call.cols, rows = call.rows;
  if (n <= 1024 || call.op.input == Input::probs) return;
  use_resident(call, [&](auto entry, auto) {
    EntropyWork work = {};
    work.done = call.memory, call.memory += room(rows);
    call.done = work.done;
    if (!is_long(n)) return launch_for<decltype(entry)>(call, work, stream);
    work.searches = call.memory, call.memory += bytes_of_searches(rows);
    work.parts = reinterpret_cast<PartOfRow*>(call.memory), call.memory += bytes_of_parts(rows, n);
    work.tops = reinterpret_cast<float*>(call.memory), call.memory += bytes_of_tops(rows, n);
    for (std::size_t first = 0; first < rows; first += kRowsSearched, work.done += kRowsSearched) {
      launch_for<decltype(entry)>(some_rows(call, first, std::min(kRowsSearched, rows - first)), work, stream);
    }
  });
}

void launch_entropy(Call<EntropyNormalize>& call, Stream stream) { launch_in_registers(call, stream); }
void launch_entropy(Call<EntropyClip>& call, Stream stream) { launch_in_registers(call, stream); }

}  // namespace cuda
}  // namespace entropic::inline ENTROPIC_ABI
