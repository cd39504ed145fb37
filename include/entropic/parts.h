// Rows that are split over several parts, such as the processes of a cluster: what each part tells the others, what is asked
// next, and the part's share of the result. Nothing here communicates: whoever has the parts joins their words.
//
//   Part<float> part = part_of(Map{Softmax{}}, x, {first, n});
//   for (Question q = part.question(); q.join != Join::none; q = part.question()) {
//     std::vector<std::int64_t> words(x.rows * q.words);
//     part.answer(words);
//     part.take(joined);  // by q.join, of the words of all parts, in the order of the parts
//   }
//   part.write(y);
//
// All that is joined is an integer: sums are of fixed point, and exact in any order. The bits of the result depend neither on
// how many parts there are nor on where they are cut nor on how they are added. Every part asks the same questions, since what
// it asks depends on what was joined alone. A part may be empty.
#pragma once

#include "entropic/version.h"

#if __cplusplus >= 202002L  // else version.h has said it

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "entropic/entropy_control.h"
#include "entropic/export.h"
#include "entropic/maps.h"
#include "entropic/matrix_view.h"
#include "entropic/sampling.h"

namespace entropic::inline ENTROPIC_ABI {

// How the words of all parts become one answer: the largest, the sum, or all of them, those of the first part first. None:
// nothing is asked any more.
enum class Join { none, maximum, sum, gather };

// `words` of each row.
struct Question {
  Join join;
  std::size_t words;
};

// Where a part lies: its first entry is number `first` of a row of n.
struct Extent {
  std::uint64_t first, n;
};

// log_softmax, logsumexp, and what a class has of a row: nothing but numbers that two questions give together.
struct RowStatistics {
  double temperature = 1;
  bool entropy = false;  // and the logarithm of the class's probability

  // The numbers of a row: its maximum, sum exp((x - max)/T), T log sum exp(x/T), log p of the class, the entropy, max p.
  static constexpr std::size_t kValues = 6;
};

// The exact sum of each row, rounded once or twice: of terms of any size (two questions), or, if `bounded`, of terms that are
// at most 2^40 and of which 2^-100 does not matter (one).
struct RowSum {
  bool bounded = false;
  static constexpr std::size_t kValues = 1;
};

// A part of some rows, which it reads until the result is written. Thrown are std::invalid_argument of part_of, and
// std::logic_error where the words are not those of the question.
template <class T>
class ENTROPIC_API Part {
 public:
  class Work;

  explicit Part(std::unique_ptr<Work> work);
  Part(Part&& other) noexcept;
  Part& operator=(Part&& other) noexcept;
  ~Part();

  Question question() const;
  // words[r * question().words + w].
  void answer(std::span<std::int64_t> words);
  // The same of what was joined; of a gathering all words of the first part come first.
  void take(std::span<const std::int64_t> joined);

  // When nothing is asked: the part's share of the map, log_softmax for RowStatistics.
  void write(MatrixView<T> y) const;
  // The part's entries that a cut keeps: of top_k, top_p, min_p and typical_p.
  void keeps(std::span<std::uint8_t> kept) const;
  // Numbers of each row, values(r, i), the same in every part: of RowStatistics and RowSum those they name; of maps that solve
  // for an entropy gamma, the entropy and the GammaStatus.
  MatrixView<const double> values() const;
  // Draws: indices of the whole row.
  std::span<const std::int64_t> indices() const;

 private:
  std::unique_ptr<Work> work_;
};

// Softmax, TopKSoftmax, TopPSoftmax, MinPSoftmax, Sparsemax, Entmax, EntropyNormalize and EntropyClip.
template <class T>
ENTROPIC_API Part<T> part_of(const Map& map, MatrixView<const T> x, Extent extent);
template <class T>
ENTROPIC_API Part<T> part_of(const GammaForEntropy& op, MatrixView<const T> x, Extent extent);
// The class of each row, in the whole row, or none of them; one that is negative is ignored.
template <class T>
ENTROPIC_API Part<T> part_of(const RowStatistics& op, MatrixView<const T> x, Extent extent,
                             std::span<const std::int64_t> classes = {});
// A cut of softmax(x / temperature) as TypicalP makes it.
template <class T>
ENTROPIC_API Part<T> part_of(const step::TypicalP& op, double temperature, MatrixView<const T> x, Extent extent);
// `draws` from each row, at noise.position and those after it.
template <class T>
ENTROPIC_API Part<T> part_of(const Sample& op, MatrixView<const T> x, Extent extent, const Noise& noise, std::size_t draws = 1);
ENTROPIC_API Part<double> part_of(const RowSum& op, MatrixView<const double> terms, Extent extent);

// p log(p/q) - p + q of each entry, from its logarithms: what sums up to the Kullback-Leibler divergence.
ENTROPIC_API void divergence_terms(std::span<const double> log_p, std::span<const double> log_q, std::span<double> terms);
// -p log p of each entry.
ENTROPIC_API void entropy_terms(std::span<const double> log_p, std::span<double> terms);
// The logarithm of each entry, and e to its power.
ENTROPIC_API void logarithms(std::span<const double> p, std::span<double> log_p);
ENTROPIC_API void exponentials(std::span<const double> log_p, std::span<double> p);

}  // namespace entropic::inline ENTROPIC_ABI

#endif
