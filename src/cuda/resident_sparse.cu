// Kernels of sparsemax and entmax for rows that stay in registers until their survivors are found, the few scores that can have
// mass. The others are 0, which is written before the survivors' masses are known. The first warp finds these, while the other
// warps read the next row. If that takes longer than to read a row, another kernel finds them, with a warp for each row: so all
// rows are searched at once, and not only those that are in registers.

#define ISENTROPIC_NARROW
#include "src/cuda/resident_sparse.h"

#include "src/cuda/launch.h"
#include "src/cuda/resident-inl.h"
#include "src/maps/entmax-inl.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {

// Rows whose survivors another kernel gets: how many each has, and the threshold that they are above. Of other rows `kept` is
// kMostApart + 1.
struct SparseWork {
  struct Row {
    unsigned kept;
    float least;
  } * rows;
  float* z;
  std::int32_t* places;
};
inline constexpr unsigned kMostApart = 512;

}  // namespace cuda

namespace HWY_NAMESPACE {

// How a map finds the masses of a row's survivors: Masses calls use(mass, factor) for each survivor, whose mass is
// mass times factor. It returns false if one is NaN. kApart: by another kernel.
struct BySimplex {
  static constexpr bool kApart = false;
  template <class Op>
  static HWY_INLINE double Power(const Op& /*op*/) {
    return 1;
  }
  template <class Use>
  static HWY_INLINE bool Masses(double /*b*/, const Filtered<float>& row, float* /*slopes*/, const Use& use) {
    const RowTag<float> d;
    const Threshold tau = SimplexThreshold(row.survivors.z, row.kept, row.least);
    if (tau.low != tau.low) return false;
    const AboveThreshold<RowTag<float>> mass(d, tau);
    use([&](auto u) HWY_ATTR { return mass(d, u); }, 1);
    return true;
  }
};
template <Bend kBend>
struct ByPowers {
  static constexpr bool kApart = kBend == Bend::rising;
  static HWY_INLINE double Power(const Entmax& op) { return op.alpha - 1; }
  template <class Use>
  static HWY_INLINE bool Masses(double b, const Filtered<float>& row, float* powers, const Use& use) {
    const double sum = SurvivorMasses<kBend>(b, row, powers);
    if (sum != sum) return false;
    use([](auto mass) { return mass; }, static_cast<float>(1 / sum));
    return true;
  }
};

// Where a block of threads has its arrays in shared memory: the largest of each 64th number of a row, and `near` survivors.
struct SparseMemory {
  unsigned maxima, survivors, end;
  HWY_INLINE SparseMemory(unsigned threads, unsigned near)
      : maxima(static_cast<unsigned>(offsetof(Team::Memory, partial) + Team::PartialBytes(threads / 32))),
        survivors(maxima + 64 * sizeof(int)),
        end(survivors + (3 * near + 64) * sizeof(float)) {}
};

// The blocks of 256 of a warp. A thread has 64 numbers and as many registers for the rest, with which nothing is kept in memory
// but by a search: with half of both, what a thousand threads keep has no room in the first level of cache.
inline constexpr unsigned kSparseEach = 8;

template <class S, class Way, class Op>
__global__ void __launch_bounds__(512, 1)
    ResidentSparseKernel(const __grid_constant__ cuda::Call<Op> call, unsigned near, cuda::SparseWork work) {
  using O = Ordered<float>;
  constexpr unsigned kFew = cuda::kMostApart;  // up to this number of survivors a warp alone is faster than a block
  const RowTag<float> d;
  const unsigned n = static_cast<unsigned>(call.cols), thread = Team::Thread(), threads = Team::BlockThreads();
  const SparseMemory places(threads, near);
  unsigned char* const shared = reinterpret_cast<unsigned char*>(&Team::Shared());
  int* const maxima = reinterpret_cast<int*>(shared + places.maxima);
  float* const z_near = reinterpret_cast<float*>(shared + places.survivors);
  const auto clear = [&] {
    if (thread < 64) maxima[thread] = O::From(-kInfinity<float>);
  };
  ResidentRow<S, kSparseEach> row(call.in[0], n, places.end);
  clear();
  Team::Narrow(true);
  for (size_t r = Team::Number(); r < call.rows; r += Team::Teams()) {
    row.LoadAhead(call.in[0], r, r + Team::Teams(), call.rows);
    // A thread's numbers at even places are all in one of the 64 parts of PartMaxima, those at odd places in the next.
    float own[2];
    row.OwnMaxima(own);
    for (unsigned e = 0; e < 2; ++e) Team::RaiseTo(maxima + 2 * Team::Lane() + e, O::From(own[e]));
    // Nearly all masses are 0. They are written now, while memory is idle, before the others are known.
    row.Write(call.out, r, [](float, unsigned) { return 0.0f; });
    Team::BlockBarrier();
    if (Way::kApart && thread == 0) work.rows[r].kept = kFew + 1;
    float max = fmaxf(O::To(maxima[Team::Lane()]), O::To(maxima[Team::Lane() + 32]));
    max = MaxOfWarp(max);
    if (!IsFinite(max)) {
      Team::Narrow(false);
      clear();
      row.WriteNonFinite(call.out, r);
      Team::Narrow(true);
      continue;
    }
    const double b = Way::Power(call.op);
    const auto relative = Bent(b, call.op.temperature, max);
    Filtered<float> found;
    found.least = LeastThresholdOf64(d, b, [&](size_t i) HWY_ATTR { return relative(hn::Set(d, O::To(maxima[i]))); });
    row.Replace([&](float v) HWY_ATTR { return hn::GetLane(relative(hn::Set(d, v))); });
    const auto survives = [&](float u) { return !(u <= found.least); };
    const auto chosen = row.Choose(survives);
    clear();
    found.kept = chosen.all;
    if constexpr (Way::kApart) {
      if (chosen.all <= kFew) {
        row.PutChosen(chosen, survives, [&](unsigned place, unsigned i, float u) HWY_ATTR {
          work.z[r * kFew + place] = u, work.places[r * kFew + place] = static_cast<int32_t>(i);
        });
        if (thread == 0) work.rows[r] = {chosen.all, found.least};
        Team::BlockBarrier();
        continue;
      }
    }
    Arena memory(call.memory + Team::Number() * call.memory_of_team, call.memory_of_team);
    float* slopes = z_near + 2 * near + 64;
    found.survivors.z = z_near, found.survivors.places = reinterpret_cast<int32_t*>(z_near + near + 64);
    if (chosen.all > near) found.survivors = Survivors<float>(memory, n), slopes = memory.take<float>(n);
    float* const z = found.survivors.z;
    row.PutChosen(chosen, survives, [&](unsigned place, unsigned i, float u) HWY_ATTR {
      z[place] = u, found.survivors.places[place] = static_cast<int32_t>(i);
    });
    if (thread < 64) z[chosen.all + thread] = -kInfinity<float>;
    const EntriesOf<S> out(call.out, r);
    const auto fill_with_nan = [&](unsigned first, unsigned step) HWY_ATTR {
      for (unsigned i = first; i < n; i += step) out.Put(i, kNaN<float>);
    };
    const auto put_masses = [&](unsigned first, unsigned step) HWY_ATTR {
      const bool good = Way::Masses(b, found, slopes, [&](const auto& mass, float factor) HWY_ATTR {
        for (unsigned k = first; k < chosen.all; k += step) {
          out.Put(static_cast<size_t>(found.survivors.places[k]), hn::GetLane(mass(hn::LoadU(d, z + k))) * factor);
        }
      });
      if (!good) fill_with_nan(first, step);
    };
    if (!Way::kApart && chosen.all <= kFew) {
      Team::BlockBarrier();
      if (thread < 32) put_masses(thread, 32);
    } else {
      Team::Narrow(false);
      put_masses(thread, threads);
      Team::Narrow(true);
    }
  }
}

// Shared memory of a warp that searches: survivors, followed by 64 times -inf; and room for as many numbers.
inline constexpr unsigned kApartRoom = cuda::kMostApart + 64;

// The masses of the survivors of rows that ResidentSparseKernel has left. A warp has a row.
template <class S, class Way, class Op>
__global__ void __launch_bounds__(32) SparseSearchKernel(const __grid_constant__ cuda::Call<Op> call, cuda::SparseWork work) {
  const RowTag<float> d;
  const size_t r = Team::Number();
  const unsigned kept = work.rows[r].kept;  // no structured binding: clang captures none in a lambda
  const float least = work.rows[r].least;
  if (kept > cuda::kMostApart) return;
  float* const z = reinterpret_cast<float*>(Team::Shared().partial);
  Filtered<float> found;
  found.survivors.z = z, found.survivors.places = work.places + r * cuda::kMostApart;
  found.kept = kept, found.least = least;
  for (unsigned k = Team::Lane(); k < kept + 64; k += 32)
    z[k] = k < kept ? work.z[r * cuda::kMostApart + k] : -kInfinity<float>;
  Team::WarpBarrier();
  const EntriesOf<S> out(call.out, r);
  const bool good = Way::Masses(Way::Power(call.op), found, z + kApartRoom, [&](const auto& mass, float factor) HWY_ATTR {
    for (unsigned k = Team::Lane(); k < kept; k += 32) {
      out.Put(static_cast<size_t>(found.survivors.places[k]), hn::GetLane(mass(hn::LoadU(d, z + k))) * factor);
    }
  });
  if (good) return;
  for (size_t i = Team::Lane(); i < call.cols; i += 32) out.Put(i, kNaN<float>);
}

}  // namespace HWY_NAMESPACE

namespace cuda {

static constexpr std::size_t of_warp = 256 * HWY_NAMESPACE::kSparseEach;
// At least two warps, because the first one searches while the others go on.
static Shape sparse_shape(std::size_t n) {
  return {1, static_cast<unsigned>(32 * std::max((n + of_warp - 1) / of_warp, std::size_t{2})), 1};
}

static std::size_t teams_of_sparse(std::size_t rows, std::size_t n) {
  constexpr std::size_t kLongest = 32768;  // of 512 threads, which have all registers
#ifndef __CUDACC__
  if (forced_shape.threads > 0) return 0;
#endif
  return n <= 1024 || n > kLongest ? 0 : std::min(rows, threads_at_once / 2 / sparse_shape(n).threads);
}

// Bytes for `each` numbers of type T of every row that is left to the other kernel at once.
template <class T>
static std::size_t bytes_apart(std::size_t rows, std::size_t each) {
  return HWY_NAMESPACE::Arena::room<T>(std::min(rows, rows_apart) * each);
}

std::size_t memory_of_sparse(std::size_t rows, std::size_t n, std::size_t of_team) {
  const std::size_t teams = teams_of_sparse(rows, n);
  if (teams == 0) return 0;
  return teams * of_team + bytes_apart<SparseWork::Row>(rows, 1) + 2 * bytes_apart<float>(rows, kMostApart);
}

template <class S, class Way, class Op>
static void launch_rows(const Call<Op>& call, const SparseWork& work, Stream stream) {
  using namespace HWY_NAMESPACE;
  const std::size_t n = call.cols, teams = teams_of_sparse(call.rows, n);
  const Shape shape = sparse_shape(n);
  // More shared memory would leave too little L1 cache for the threads' local memory.
  const unsigned near = static_cast<unsigned>(std::max(n / 32, std::size_t{256}) / 32 * 32);
  const std::size_t own = SparseMemory(shape.threads, near).end, ahead = of_warp * sizeof(S) * (shape.threads / 32);
  const bool asks_ahead = call.rows > teams && own + ahead <= shared_memory_of(512);
  launch_as(shape, teams, asks_ahead ? own + ahead : own, ResidentSparseKernel<S, Way, Op>, call, stream, near, work);
  if constexpr (Way::kApart) {
    const std::size_t bytes = offsetof(Team::Memory, partial) + 2 * kApartRoom * sizeof(float);
    launch_as({1, 32, 1}, call.rows, bytes, SparseSearchKernel<S, Way, Op>, call, stream, work);
  }
}

template <class Way, class Op>
static bool launch_by(const Call<Op>& call, Stream stream) {
  const std::size_t n = call.cols, rows = call.rows, teams = teams_of_sparse(rows, n);
  bool plain =
      teams > 0 && call.out.stored == call.in[0].stored && !HWY_NAMESPACE::IsExtremeTemperature<float>(call.op.temperature);
  for (const double* const values : call.per_row.of) plain &= values == nullptr;
  if (!plain) return false;
  SparseWork work = {};
  std::uint8_t* const apart = call.memory + teams * call.memory_of_team;
  std::uint8_t* const of_z = apart + bytes_apart<SparseWork::Row>(rows, 1);
  work.rows = reinterpret_cast<SparseWork::Row*>(apart), work.z = reinterpret_cast<float*>(of_z);
  work.places = reinterpret_cast<std::int32_t*>(of_z + bytes_apart<float>(rows, kMostApart));
  const std::size_t at_once = Way::kApart ? rows_apart : rows;
  for (std::size_t first = 0; first < rows; first += at_once) {
    const Call<Op> part = some_rows(call, first, std::min(at_once, rows - first));
    const Stored stored = call.in[0].stored;
    if (stored == Stored::as_worked_on) launch_rows<float, Way>(part, work, stream);
    if (stored == Stored::float16) launch_rows<float16, Way>(part, work, stream);
    if (stored == Stored::bfloat16) launch_rows<bfloat16, Way>(part, work, stream);
  }
  return true;
}

bool launch_sparse(const Call<Sparsemax>& call, Stream stream) { return launch_by<HWY_NAMESPACE::BySimplex>(call, stream); }
bool launch_sparse(const Call<Entmax>& call, Stream stream) {
  using namespace HWY_NAMESPACE;
  const double alpha = call.op.alpha;
  if (alpha == 2) return launch_by<BySimplex>(call, stream);
  if (alpha == 1.5) return launch_by<ByPowers<Bend::square>>(call, stream);
  return alpha >= kLeastAlpha<float> && alpha < 2 && launch_by<ByPowers<Bend::rising>>(call, stream);
}

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI
