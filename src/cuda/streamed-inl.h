// Rows of a cluster, one after the other: while the team works on a row in registers, the next row is prefetched to shared
// memory.
//
// Each block of the cluster has a group of the row. Blocks exchange numbers twice, for the maximum and for the
// sum. A warp publishes the maximum of the next row before it waits for the sum of this one, so that both
// arrive in time; and no warp waits for another of its block, except the first, which adds. This keeps memory
// busy.
#pragma once

#include <atomic>

#include "src/cuda/resident-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// A number in shared memory for which threads wait: the arrivals of warps, or bytes that others send. It is used again and
// again, in phases with as many arrivals or bytes in each.
class Arrivals {
 public:
  // One thread begins, before Team::Begin. `arrivals` in a phase, those with bytes included.
  HWY_INLINE void Begin(unsigned arrivals) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(Address()), "r"(arrivals) : "memory");
#else
    (void)arrivals;
    __atomic_store_n(&bits_, 0ull, __ATOMIC_RELAXED);
#endif
  }
  // After the last Begin of a thread.
  static HWY_INLINE void BeginAll() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
  }

  // What the thread has read and written so far comes before.
  HWY_INLINE void Arrive() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(Address()) : "memory");
#elif !defined(__CUDACC__)
    isentropic_emulate::tell(&bits_);
    __atomic_fetch_add(&bits_, 1ull, __ATOMIC_RELAXED);
#endif
  }
  // One thread arrives, and says how many bytes come in this phase.
  HWY_INLINE void Expect(unsigned bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(Address()), "r"(bytes) : "memory");
#elif !defined(__CUDACC__)
    (void)bytes;
    isentropic_emulate::tell(&bits_);
#else
    (void)bytes;
#endif
  }
  // Sends a number to `place` in the memory of a block of the cluster. `this` and `place` are in this block's memory.
  template <class T>
  HWY_INLINE void Send(unsigned block, T* place, T value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if constexpr (sizeof(T) == 8) {
      asm volatile(
          "{\n"
          ".reg .b32 place, arrivals;\n"
          "mapa.shared::cluster.u32 place, %0, %2;\n"
          "mapa.shared::cluster.u32 arrivals, %1, %2;\n"
          "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [place], %3, [arrivals];\n"
          "}\n" ::"r"(Team::SharedAddress(place)),
          "r"(Address()), "r"(block), "l"(__double_as_longlong(value))
          : "memory");
    } else {
      asm volatile(
          "{\n"
          ".reg .b32 place, arrivals;\n"
          "mapa.shared::cluster.u32 place, %0, %2;\n"
          "mapa.shared::cluster.u32 arrivals, %1, %2;\n"
          "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [place], %3, [arrivals];\n"
          "}\n" ::"r"(Team::SharedAddress(place)),
          "r"(Address()), "r"(block), "r"(__float_as_uint(value))
          : "memory");
    }
#elif !defined(__CUDACC__)
    isentropic_emulate::send(Team::In(block, place), value, &Team::In(block, this)->bits_, sizeof(T));
#else
    (void)block, (void)place, (void)value;
#endif
  }
  // Starts a copy of `bytes` bytes, a multiple of 16, from memory. Both addresses are multiples of 16.
  HWY_INLINE void Fetch(void* to, const void* from, unsigned bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    // The block's reads of `to` come before the writes of the copy.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    Expect(bytes);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     Team::SharedAddress(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(Address())
                 : "memory");
#elif !defined(__CUDACC__)
    memcpy(to, from, bytes);
    isentropic_emulate::tell(&bits_);
    __atomic_fetch_add(&bits_, bytes, __ATOMIC_RELAXED);
#else
    (void)to, (void)from, (void)bytes;
#endif
  }

  // Whether phase `phase`, with `each` arrivals or bytes, is over, which all threads of a warp ask. Then Await does not wait.
  // Both acquire what is in the block, as Exchanges do.
  HWY_INLINE bool Over(unsigned phase, unsigned each) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    (void)each;
    unsigned over;
    asm volatile(
        "{\n"
        ".reg .pred over;\n"
        "mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 over, [%1], %2;\n"
        "selp.u32 %0, 1, 0, over;\n"
        "}\n"
        : "=r"(over)
        : "r"(Address()), "r"(phase % 2)
        : "memory");
    return Team::Ballot(over == 0) == 0;
#elif !defined(__CUDACC__)
    const bool over = __atomic_load_n(&bits_, __ATOMIC_RELAXED) >= (uint64_t{phase} + 1) * each;
    if (Team::Ballot(!over || isentropic_emulate::device.last_first) != 0) return false;
    isentropic_emulate::know(&bits_);
    return true;
#else
    return phase == each;
#endif
  }
  HWY_INLINE void Await(unsigned phase, unsigned each) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    (void)each;
    unsigned over = 0;
    while (over == 0) {
      asm volatile(
          "{\n"
          ".reg .pred over;\n"
          "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 over, [%1], %2;\n"
          "selp.u32 %0, 1, 0, over;\n"
          "}\n"
          : "=r"(over)
          : "r"(Address()), "r"(phase % 2)
          : "memory");
    }
#elif !defined(__CUDACC__)
    isentropic_emulate::wait_for(&bits_, (uint64_t{phase} + 1) * each);
#else
    (void)phase, (void)each;
#endif
  }

 private:
#if defined(__CUDA_ARCH__)
  HWY_INLINE unsigned Address() const { return Team::SharedAddress(&bits_); }
#endif

  unsigned long long bits_;
};

// The shared memory of a block for StreamedRow, after that of ResidentRow. A maximum or a sum is told at most two rows before
// it is read by all: a block tells one when it knows the one before, which it gets only after all warps of the cluster have
// read the one before that. A warp has a barrier before one of its threads tells what others have read.
struct StreamMemory {
  static constexpr unsigned kMostBlocks = cuda::kMostGroups, kWarps = 16;
  Arrivals here, added, maxima_told[2], sums_told[2];
  unsigned taken;  // by how many warps
  alignas(16) float maxima[2][kMostBlocks * kWarps];
  double sums[2][kMostBlocks];
  alignas(16) unsigned char kept[1024];  // what a kernel keeps of its last rows

  static constexpr size_t kBegin = (cuda::kResidentBytes + 127) / 128 * 128;
  static HWY_INLINE StreamMemory& Of() {
    return *reinterpret_cast<StreamMemory*>(reinterpret_cast<unsigned char*>(&Team::Shared()) + kBegin);
  }
};
inline constexpr size_t kStreamedBytes = (StreamMemory::kBegin + sizeof(StreamMemory) + 127) / 128 * 128;

// As ResidentRow, for the rows of a cluster. Each block has 512 threads, and each warp 1024 numbers.
template <class S>
class StreamedRow : public ResidentRow<S, 4> {
  using Base = ResidentRow<S, 4>;
  using Base::n_, Base::values_, Base::begin_, Base::whole_;

 public:
  HWY_INLINE StreamedRow(const cuda::Rows& rows, size_t count, size_t n)
      : Base(rows, static_cast<unsigned>(n)),
        rows_(rows),
        next_(static_cast<unsigned>(Team::Number())),
        count_(static_cast<unsigned>(count)) {
    if (Team::Thread() > 0) return;
    StreamMemory& memory = StreamMemory::Of();
    memory.here.Begin(1), memory.added.Begin(StreamMemory::kWarps);
    for (unsigned k = 0; k < 2; ++k) memory.maxima_told[k].Begin(1), memory.sums_told[k].Begin(1);
    memory.taken = 0;
    Arrivals::BeginAll();
  }

  // After Team::Begin: asks for the team's first row.
  HWY_INLINE void Begin() {
    if (Team::Thread() == 0 && next_ < count_) Ask();
    next_ += static_cast<unsigned>(Team::Teams());
  }

  // Loads the team's next row into registers and prefetches the one after it. Returns the largest number; NaN is left out.
  HWY_INLINE float Take() {
    StreamMemory& memory = StreamMemory::Of();
    if (!told_) {
      memory.here.Await(taken_, BytesOfBlock());
      TellMax();
    }
    told_ = false;
    if (whole_) {
      this->LoadPairs([&](unsigned j, unsigned m) HWY_ATTR { return Pairs()[Team::Lane() + 128 * j + 32 * m]; });
    } else {
      this->ForAll([&](unsigned j, unsigned m) HWY_ATTR {
        const unsigned at = 256 * j + Base::Offset(m);
        values_[j][m] = begin_ + at < n_ ? EntriesOf<S>::Widened(Numbers()[2 * Team::Lane() + at]) : -kInfinity<float>;
      });
    }
    Team::WarpBarrier();
    if (Team::Lane() == 0 && Team::CountTo(&memory.taken, StreamMemory::kWarps) && next_ < count_) Ask();
    next_ += static_cast<unsigned>(Team::Teams());
    const unsigned turn = taken_ % 2, blocks = Team::Blocks();
    memory.maxima_told[turn].Await(taken_ / 2, blocks * StreamMemory::kWarps * sizeof(float));
    ++taken_;
    float max = -kInfinity<float>;
    for (unsigned at = Team::Lane(); at < blocks * StreamMemory::kWarps; at += 32) max = fmaxf(memory.maxima[turn][at], max);
    return MaxOfWarp(max);
  }

  // As in ResidentRow. It also publishes the maximum of the next row, if that has arrived.
  template <class Term>
  HWY_INLINE double Sum(const Term& term) {
    StreamMemory& memory = StreamMemory::Of();
    const unsigned lane = Team::Lane() % 16, blocks = Team::Blocks(), turn = summed_ % 2;
    float found[4][2];
    this->SumBlocks(term, found);
    this->StorePartial(found);
    Team::WarpBarrier();
    if (Team::Lane() == 0) memory.added.Arrive();
    if (Team::Thread() < 32) {
      memory.added.Await(summed_, StreamMemory::kWarps);
      double total = 0;
      const unsigned parts = (NumbersOfBlock() + 255) / 256;
      for (unsigned b = 0; b < parts; ++b) total += static_cast<double>(Base::Partial()[b * 16 + lane]);
      total = Team::FoldHalfWarp(total);
      Team::WarpBarrier();
      if (Team::Thread() == 0) memory.sums_told[turn].Expect(blocks * sizeof(double));
      if (Team::Thread() < blocks) memory.sums_told[turn].Send(Team::Thread(), &memory.sums[turn][Team::BlockRank()], total);
    }
    // next_ is the row after the next one.
    told_ = next_ - static_cast<unsigned>(Team::Teams()) < count_ && memory.here.Over(taken_, BytesOfBlock());
    if (told_) TellMax();
    memory.sums_told[turn].Await(summed_ / 2, blocks * sizeof(double));
    ++summed_;
    return Team::FoldHalfWarp(lane < blocks ? memory.sums[turn][lane] : 0.0);
  }

 private:
  HWY_INLINE unsigned FirstOfBlock() const { return Team::BlockRank() * Base::kGroupSize; }
  HWY_INLINE unsigned NumbersOfBlock() const { return HWY_MIN(n_ - FirstOfBlock(), Base::kGroupSize); }
  HWY_INLINE unsigned BytesOfBlock() const { return NumbersOfBlock() * static_cast<unsigned>(sizeof(S)); }
  static HWY_INLINE unsigned char* Begun() { return reinterpret_cast<unsigned char*>(&Team::Shared()) + kStreamedBytes; }
  // The warp's numbers in shared memory.
  static HWY_INLINE const S* Numbers() { return reinterpret_cast<const S*>(Begun()) + Team::Thread() / 32 * 1024; }
  static HWY_INLINE const Neighbours<S>* Pairs() { return reinterpret_cast<const Neighbours<S>*>(Numbers()); }

  HWY_INLINE void Ask() {
    const S* const row = static_cast<const S*>(rows_.data) + size_t{next_} * rows_.stride;
    StreamMemory::Of().here.Fetch(Begun(), row + FirstOfBlock(), BytesOfBlock());
  }

  // A warp sends all blocks the largest of its numbers of the row that has arrived.
  HWY_INLINE void TellMax() {
    StreamMemory& memory = StreamMemory::Of();
    const unsigned lane = Team::Lane(), blocks = Team::Blocks(), turn = taken_ % 2;
    float max = -kInfinity<float>;
    if (whole_) {
      Neighbours<S> of_pairs = Pairs()[lane];
      ISENTROPIC_UNROLL
      for (unsigned k = 1; k < 16; ++k) of_pairs = EntriesOf<S>::LargerOf(of_pairs, Pairs()[lane + 32 * k]);
      max = fmaxf(fmaxf(EntriesOf<S>::Widened(of_pairs.of[0]), max), EntriesOf<S>::Widened(of_pairs.of[1]));
    } else {
      for (unsigned at = lane; at < 1024 && begin_ - 2 * lane + at < n_; at += 32) {
        max = fmaxf(EntriesOf<S>::Widened(Numbers()[at]), max);
      }
    }
    max = MaxOfWarp(max);
    Team::WarpBarrier();
    if (Team::Thread() == 0) {
      memory.maxima_told[turn].Expect(blocks * StreamMemory::kWarps * static_cast<unsigned>(sizeof(float)));
    }
    float* const place = &memory.maxima[turn][Team::BlockRank() * StreamMemory::kWarps + Team::Thread() / 32];
    if (lane < blocks) memory.maxima_told[turn].Send(lane, place, max);
  }

  const cuda::Rows& rows_;
  unsigned next_, count_;  // the row to prefetch next, and the number of rows
  unsigned taken_ = 0, summed_ = 0;
  bool told_ = false;  // the maximum of the row that has arrived
};

}  // namespace HWY_NAMESPACE

namespace cuda {

// How many clusters the device runs at once.
template <auto kKernel>
std::size_t clusters_at_once(const Shape& shape, std::size_t shared) {
#ifdef __CUDACC__
  // The query takes longer than a launch, so its answer is kept: 0 before it is known.
  constexpr int kDevices = 32;
  static std::atomic<int> known[kDevices][kMostGroups + 1];
  int device = 0, most = 0;
  check_launch(cudaGetDevice(&device));
  if (device < kDevices) most = known[device][shape.blocks].load(std::memory_order_relaxed);
  if (most > 0) return static_cast<std::size_t>(most);
  check_launch(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    attribute_of_device(cudaDevAttrMaxSharedMemoryPerBlockOptin)));
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(shape.blocks);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shared;
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = shape.blocks, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  config.attrs = &cluster, config.numAttrs = 1;
  check_launch(cudaOccupancyMaxActiveClusters(&most, kKernel, &config));
  if (device < kDevices) known[device][shape.blocks].store(most, std::memory_order_relaxed);
  return static_cast<std::size_t>(most);
#else
  (void)shared;
  return threads_at_once / (shape.blocks * shape.threads);
#endif
}

// Launches a kernel of streamed rows if a cluster has several of them. Returns false if not, or if a row does not begin and end
// at multiples of 16 bytes.
template <class S, auto kKernel, class AnyCall>
bool launch_streamed(const AnyCall& call, Stream stream) {
  const Shape shape = resident_shape(call.cols);
  const Rows& rows = call.in[0];
  if (shape.blocks == 1 || reinterpret_cast<std::uintptr_t>(rows.data) % 16 != 0 || rows.stride * sizeof(S) % 16 != 0 ||
      call.cols * sizeof(S) % 16 != 0) {
    return false;
  }
  const std::size_t shared = HWY_NAMESPACE::kStreamedBytes + kGroup * sizeof(S);
  const std::size_t teams = clusters_at_once<kKernel>(shape, shared);
  if (teams == 0 || call.rows <= teams || call.rows > 0xffffffff - teams) return false;
  launch_as(shape, teams, shared, kKernel, call, stream);
  return true;
}

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();
