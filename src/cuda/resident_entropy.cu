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

// The workspace: for each row whether it is done; for each long row its search, and its top.
struct EntropyWork {
  std::uint8_t *done, *searches;
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
  bool begun = false;
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

// A long row's top: the row's largest scores, and where their threshold comes from, see Condense.
template <class S>
__global__ void __launch_bounds__(512, 2)
    TopOfRowsKernel(const __grid_constant__ cuda::Call<EntropyNormalize> call, cuda::EntropyWork work) {
  const unsigned n = static_cast<unsigned>(call.cols), warps = Team::BlockThreads() / 32, lane = Team::Lane();
  ResidentRow<S, 4> row(call.in[0], n);
  Team::Narrow(false);
  Team::Begin();
  const size_t r = Team::Number();
  const EntriesOf<S> entries(call.in[0], r);
  const unsigned size = static_cast<unsigned>(SampleSize(n));
  float column = -kInfinity<float>;
  for (unsigned i = Team::Thread(); i < size; i += Team::BlockThreads())
    column = fmaxf(entries(SampleIndex(i, size, n)), column);
  row.Load(call.in[0], r);
  // Every block finds the threshold of the row. A thread has seen one of the sample's 16 columns.
  float* const columns = reinterpret_cast<float*>(Team::Shared().partial);
  column = fmaxf(column, Team::FromXor(column, 16));
  if (lane < 16) columns[Team::Thread() / 32 * 16 + lane] = column;
  const float max = row.Max();
  EntropySearch<S>& kept = reinterpret_cast<EntropySearch<S>*>(work.searches)[r];
  if (Team::Rank() == 0) {
    work.done[r] = false;
    kept.CopyFrom(EntropySearch<S>(call.in[0], r, n));
    kept.row.survey.max = max;
  }
  if (!IsFinite(max)) return;
  for (unsigned w = 0; w < warps; ++w) column = fmaxf(columns[w * 16 + lane % 16], column);
  const float threshold = MiddleOfLanes(column);
  const float bound = HWY_MAX(threshold, -std::numeric_limits<float>::max());
  const auto is_top = [&](float v) { return v >= bound; };
  auto chosen = row.Choose(is_top);
  float least = max;
  unsigned finite = 0;
  row.ForOwn([&](unsigned, float v) HWY_ATTR { least = fminf(v, least), finite += v != -kInfinity<float>; });
  least = FoldOfWarp(least, [](float a, float b) { return fminf(a, b); });
  finite = FoldOfWarp(finite, [](unsigned a, unsigned b) { return a + b; });
  float* const leasts = columns + 16 * warps;
  unsigned* const finites = reinterpret_cast<unsigned*>(leasts + warps);
  if (lane == 0) leasts[Team::Thread() / 32] = least, finites[Team::Thread() / 32] = finite;
  Team::BlockBarrier();
  least = max, finite = 0;
  for (unsigned w = 0; w < warps; ++w) least = fminf(least, leasts[w]), finite += finites[w];
  if (const unsigned blocks = Team::Blocks(); blocks > 1) {
    const double own[] = {static_cast<double>(chosen.all), static_cast<double>(least), static_cast<double>(finite)};
    const double* const all = row.Exchange(own);
    chosen.all = finite = 0;
    for (unsigned b = 0; b < blocks; ++b) {
      const unsigned of_block = static_cast<unsigned>(all[b]);
      chosen.all += of_block;
      chosen.before += b < Team::BlockRank() ? of_block : 0;
      least = fminf(least, static_cast<float>(all[blocks + b]));
      finite += static_cast<unsigned>(all[2 * blocks + b]);
    }
  }
  const size_t most = MostOfTop(n);
  float* const top = work.tops + r * most;
  row.PutChosen(chosen, is_top, [&](unsigned place, unsigned, float v) HWY_ATTR {
    if (place < most) top[place] = v - max;
  });
  if (Team::Rank() != 0) return;
  kept.row.survey.least = least, kept.row.survey.finite = static_cast<double>(finite);
  kept.least_of_top = threshold, kept.top_count = chosen.all;
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
  if (!good || !IsFinite(search.row.survey.max) || work.done[r] || search.top_count == 0) return;
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
  search.row.few = {work.tops + r * MostOfTop(n), search.top_count, sample, size, 0};
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
static std::size_t bytes_of_tops(std::size_t rows, std::size_t n) {
  return room(std::min(rows, kRowsSearched) * HWY_NAMESPACE::MostOfTop(n) * sizeof(float));
}

std::size_t memory_of_entropy(std::size_t rows, std::size_t n) {
  if (n <= 1024 || n > kGroup * kMostGroups) return 0;
  return room(rows) + (is_long(n) ? bytes_of_searches(rows) + bytes_of_tops(rows, n) : 0);
}

// The call of `count` rows from `first` on.
template <class AnyCall>
static AnyCall some_rows(const AnyCall& call, std::size_t first, std::size_t count) {
  AnyCall part = call;
  part.rows = count;
  for (Rows* rows : {&part.in[0], &part.out}) {
    const std::size_t bytes = rows->stored == Stored::as_worked_on ? sizeof(float) : sizeof(float16);
    rows->data = static_cast<std::uint8_t*>(rows->data) + first * rows->stride * bytes;
  }
  for (const double*& values : part.per_row.of) values += values == nullptr ? 0 : first;
  return part;
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
    launch_as(shape, call.rows, kResidentBytes, TopOfRowsKernel<S>, plain, stream, work);
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
