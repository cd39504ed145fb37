// Rows that are split over several parts, such as the processes of a cluster. A part says which question comes next, gives its
// answer as words, takes the joined words of all parts, and writes its share of the result. Nothing here communicates: the
// caller joins the words.
//
//   Part<float> part = part_of(Map{Softmax{}}, x, {first, n});
//   for (Question q = part.question(); q.join != Join::none; q = part.question()) {
//     std::vector<std::int64_t> words(x.rows * q.words);
//     part.answer(words);
//     part.take(joined);  // by q.join, of the words of all parts, in the order of the parts
//   }
//   part.write(y);
//
// All joined words are integers: sums are in fixed point, and exact in any order. The bits of the result do not depend on the
// number of parts, on where they are split, or on the order of sums. Every part asks the same questions, because its questions
// depend only on the joined words. A part may be empty.
#pragma once

#include "isentropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "isentropic/entropy_control.h"
#include "isentropic/export.h"
#include "isentropic/maps.h"
#include "isentropic/matrix_view.h"
#include "isentropic/sampling.h"

namespace isentropic::inline ISENTROPIC_ABI {

// How the words of all parts become one answer: the largest, the sum, or all of them, those of the first part first. none:
// there is no further question.
enum class Join { none, maximum, sum, gather };

// `words` is the number of words for each row.
struct Question {
  Join join;
  std::size_t words;
};

// The place of a part: its first entry is number `first` of a row of n.
struct Extent {
  std::uint64_t first, n;
};

// log_softmax, logsumexp, and the log-probability of a class: numbers that two questions give together.
struct RowStatistics {
  double temperature = 1;
  bool entropy = false;  // and the logarithm of the class's probability

  // The numbers of a row: its maximum, sum exp((x - max)/T), T log sum exp(x/T), log p of the class, the entropy, max p.
  static constexpr std::size_t kValues = 6;
};

// The exact sum of each row, rounded once or twice. Terms may have any size (two questions) or, if `bounded`, at most 2^40 with
// an error of 2^-100 allowed (one question).
struct RowSum {
  bool bounded = false;
  static constexpr std::size_t kValues = 1;
};

// A part of some rows, which it reads until the result is written. part_of throws std::invalid_argument; the members throw
// std::logic_error if the words do not fit the question.
template <class T>
class ISENTROPIC_API Part {
 public:
  class Work;

  explicit Part(std::unique_ptr<Work> work);
  Part(Part&& other) noexcept;
  Part& operator=(Part&& other) noexcept;
  ~Part();

  Question question() const;
  // words[r * question().words + w].
  void answer(std::span<std::int64_t> words);
  // Takes the joined words in this layout; for a gathering, all words of the first part come first.
  void take(std::span<const std::int64_t> joined);

  // After the last question: writes the part's share of the map; log_softmax for RowStatistics.
  void write(MatrixView<T> y) const;
  // The part's entries that the truncation of top_k, top_p, min_p or typical_p keeps.
  void keeps(std::span<std::uint8_t> kept) const;
  // Numbers of each row, values(r, i), the same in every part: for RowStatistics and RowSum their own numbers; for maps that
  // solve for an entropy gamma, the entropy and the GammaStatus.
  MatrixView<const double> values() const;
  // The draws, as indices in the whole row.
  std::span<const std::int64_t> indices() const;

 private:
  std::unique_ptr<Work> work_;
};

// For the maps Softmax, TopKSoftmax, TopPSoftmax, MinPSoftmax, Sparsemax, Entmax, EntropyNormalize and EntropyClip.
template <class T>
ISENTROPIC_API Part<T> part_of(const Map& map, MatrixView<const T> x, Extent extent);
template <class T>
ISENTROPIC_API Part<T> part_of(const GammaForEntropy& op, MatrixView<const T> x, Extent extent);
// `classes`: the class of each row as an index in the whole row, or empty; a negative class is ignored.
template <class T>
ISENTROPIC_API Part<T> part_of(const RowStatistics& op, MatrixView<const T> x, Extent extent,
                               std::span<const std::int64_t> classes = {});
// The truncation of softmax(x / temperature) by TypicalP.
template <class T>
ISENTROPIC_API Part<T> part_of(const step::TypicalP& op, double temperature, MatrixView<const T> x, Extent extent);
// `draws` draws from each row, at noise.position and the positions after it.
template <class T>
ISENTROPIC_API Part<T> part_of(const Sample& op, MatrixView<const T> x, Extent extent, const Noise& noise,
                               std::size_t draws = 1);
ISENTROPIC_API Part<double> part_of(const RowSum& op, MatrixView<const double> terms, Extent extent);

// p log(p/q) - p + q of each entry, from its logarithms. The Kullback-Leibler divergence is the sum of these terms.
ISENTROPIC_API void divergence_terms(std::span<const double> log_p, std::span<const double> log_q, std::span<double> terms);
// -p log p of each entry.
ISENTROPIC_API void entropy_terms(std::span<const double> log_p, std::span<double> terms);
// The logarithm of each entry, and the exponential of each entry.
ISENTROPIC_API void logarithms(std::span<const double> p, std::span<double> log_p);
ISENTROPIC_API void exponentials(std::span<const double> log_p, std::span<double> p);

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif
