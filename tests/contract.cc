// A map's kernels, as MapContract requires them or with the one mistake that is defined; no mistake may compile.
// tests/CMakeLists.txt has the mistakes and the compiler's messages.

#include "src/maps/contract-inl.h"

namespace isentropic {

struct Toy {};
template <>
struct Described<Toy> {
  static constexpr auto kParams = Params{};
};

namespace HWY_NAMESPACE {

template <class T>
struct KernelsOf<Toy, T> {
  static constexpr ScoreParams<Toy> kScores = {};
  static void MapRow(const Toy& op, const T* x, size_t n, T max, T* p, Workspace workspace);
  static void VjpRow(const Toy& op, const T* x, const T* p, const T* g, size_t n, T* dx, ParamValues<Toy>* slopes,
                     Workspace workspace);
#if defined(WRONG_UNIT)
  static double Memory(size_t n);
#elif defined(WRONG_NAME)
  static size_t Memmory(size_t n);
#else
  static size_t Memory(size_t n);
#endif
#if defined(WRONG_RESULT)
  static int MostInfinite(const Toy& op, size_t infinite);
#else
  static size_t MostInfinite(const Toy& op, size_t infinite);
#endif
  static constexpr NotOffered VjpFour = {};
#if defined(MISSING)
#elif defined(WRONG_NAME_IN_SHORT)
  struct Short {
    static constexpr size_t kGroup = 1;
    static bool Takes(const Toy& op);
    static void Map(const Toy& op, const hn::Vec<RowTag<T>>* max, ShortRows<T>* group, T* const* p, size_t count);
  };
#else
  struct Short {
    static constexpr size_t kGroups = 1;
    static bool Takes(const Toy& op);
    static void Map(const Toy& op, const hn::Vec<RowTag<T>>* max, ShortRows<T>* group, T* const* p, size_t count);
  };
#endif
#if defined(WRONG_SIGNATURE)
  struct Several {
    static constexpr size_t kMost = 8;
    static size_t Count(const Toy& op, size_t n);
    static void Map(const Toy& op, const T* const* x, size_t n, T max, T* const* p, size_t count, Workspace workspace);
  };
#else
  using Several = NotOffered;
#endif
};

using Contract = MapContract<Toy, float>;
static_assert(Contract::kHasMemory && Contract::kHasMostInfinite && Contract::kHasShort && !Contract::kHasSeveral);

}  // namespace HWY_NAMESPACE
}  // namespace isentropic
