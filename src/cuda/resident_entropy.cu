// Kernels of entropy_normalize and entropy_clip for rows that stay near their threads: in registers, or in shared memory.
//
// The first warp of a block searches for gamma, and asks the other warps, which have the row in shared memory, for the sums
// that the search needs. A long row is first solved on a few scores that represent it (entropy_search-inl.h), by a kernel of
// its own: so all rows are searched at once, while only some have room at a time. A long row is then read twice and written
// once.

#define ISENTROPIC_NARROW
#include "src/cuda/resident_entropy.h"

#include <algorithm>

#include "src/cuda/entropy_search-inl.h"
#include "src/cuda/lane_row-inl.h"
#include "src/cuda/launch.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

HWY_INLINE ExpOfGamma ExpOf(const EntropyQuestion& question) {
  const RowTag<float> d;
  return ExpOfGamma(hn::Set(d, question.high), hn::Set(d, question.low));
}

// Takes the answer to what was asked, and finds what to ask next; the numbers of the last masses, with which the row is
// written, stay in the question. The steps of the search have one place in the code: where they had several, the warp waited
// for their instructions after each question.
template <class S>
HWY_NOINLINE void AskNext(EntropySearch<S>& search, unsigned n, EntropyQuestion& question) {
  using Question = typename EntropySearch<S>::Rows::Question;
  using Kind = EntropyQuestion::Kind;
  auto& row = search.row;
  auto& rows = search.rows;
  const float max = row.survey.max;
  float least = max;
  bool answered = question.kind == Kind::moments || question.kind == Kind::masses;
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
  } else if (question.kind == Kind::masses) {
    double sums[2];
    CollectSums(n, sums, &least, search.exchanges);
    sums[1] *= rows.gamma(0);
    rows.TellMasses(0, sums);
  }
  if (!search.begun && !row.lost) {
    question.kind = Kind::survey;
    return;
  }
  ISENTROPIC_ROLLED
  for (;;) {
    if (answered) rows.Continue();
    if (row.lost || !rows.Ask()) break;
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
    answered = true;
  }
  question.kind = !row.lost && rows.IsMet(0) ? Kind::met : Kind::lost;
  question.scale = static_cast<float>(row.scale);
}

// All threads meet here: other blocks may still copy the search that is about to be replaced.
HWY_INLINE void AwaitCluster() {
  Team::Narrow(false);
  Team::Barrier();
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
  if (question.kind == Kind::few) AwaitCluster();
  if (Team::Thread() > 0 || Team::BlockRank() > 0) return;
  // Other blocks have looked at it before they answered a question.
  if (kept == nullptr || question.kind == Kind::met) *done = question.kind == Kind::met;
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
  if (question.kind == Kind::few) AwaitCluster();
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
    if (kept == nullptr && Team::Thread() == 0 && Team::BlockRank() == 0) work.done[r] = false;
    return;
  }
  searches ? SearchRow(call, r, max, kept, work.done + r) : AnswerForRow(row, max, call.out, r);
}

}  // namespace HWY_NAMESPACE

namespace cuda {

static bool is_long(std::size_t n) { return n >= HWY_NAMESPACE::kLongRow; }
static std::size_t room(std::size_t bytes) { return HWY_NAMESPACE::Arena::room<std::uint8_t>(bytes); }

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

// The shared memory of a block of ResidentEntropyKernel. After the row there is room for the scores that matter.
static std::size_t bytes_near(std::size_t n) {
  using namespace HWY_NAMESPACE;
  const Shape shape = resident_shape(n);
  const std::size_t few = shape.blocks == 1 ? SearchedRow::Room(n) * sizeof(float) : 0;
  return EntropyMemory::kRow + LaneRow<float>::Bytes(shape.threads + 32) + few;
}

template <class S, class Op>
static void launch_for(const Call<Op>& call, const EntropyWork& work, Stream stream) {
  using namespace HWY_NAMESPACE;
  static_assert(sizeof(EntropySearch<S>) == sizeof(EntropySearch<float>));
  const std::size_t n = call.cols;
  const Shape shape = resident_shape(n), with_search = {shape.blocks, shape.threads + 32, 1};
  const auto in_registers = [&] {
    launch_as(with_search, call.rows, bytes_near(n), ResidentEntropyKernel<S, Op>, call, stream, work);
  };
  const auto of_sample = [&] {
    const std::size_t bytes = EntropyMemory::kRow + SampleSize(n) * sizeof(float);
    launch_as({1, 256, 1}, call.rows, bytes, SampleSearchKernel<S, Op>, call, stream, work);
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
  if (n <= 1024 || call.op.input == Input::probs || bytes_near(n) > shared_memory_of(512)) return;
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
}  // namespace isentropic::inline ISENTROPIC_ABI
