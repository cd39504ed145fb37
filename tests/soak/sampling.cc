// Sampling.

#include "tests/soak/soak.h"

namespace isentropic {
namespace {

template <class T>
void soak_draws(Random& random, Report& report, std::size_t wanted) {
  while (report.rows() < wanted) {
    const Rows<T> x = rows_of_scores<T>(random, 100000);
    const std::size_t rows = x.rows, cols = x.cols, count = 1 + random.below(3);
    std::vector<Step> steps;
    for (std::size_t k = random.below(5); k-- > 0;) {
      const Step step = support::random_of<Step>(random, random.below(std::variant_size_v<Step>), cols);
      if (!description_of(step).drawn) steps.push_back(step);  // the distribution of others is of one draw
    }
    Rows<std::int64_t> text(rows, random.below(40));
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::int64_t& token : text.row(r))
        token = random.integer(-1, static_cast<std::int64_t>(random.chance(0.5) ? std::min<std::size_t>(5, cols) : cols) - 1);
    }
    const bool reads = std::ranges::any_of(steps, [](const Step& step) { return reads_text(description_of(step)); });
    const auto texts_of = [&](MatrixView<const std::int64_t> tokens) { return reads ? Texts{.tokens = tokens} : Texts{}; };
    const Texts texts = texts_of(text);
    const Noise noise = {random.bits(), random.bits(), random.bits()};
    const Sampler sampler(steps, noise.seed);
    const Sample plain = random_op<Sample>(random, cols);
    GumbelSoftmax relaxed = random_op<GumbelSoftmax>(random, cols);
    relaxed.hard = random.chance(0.3);
    report.next(rows, cols, [&](std::size_t r) {
      std::string text;
      for (const Step& step : steps) text += text_of(step) + " ";
      return fmt::format("seed {} stream {} position {}, {}, {}, {}{}", noise.seed, noise.stream + r, noise.position,
                         text_of(plain), text_of(relaxed), text, text_of(x.row(r)));
    });
    Rows<T> p(rows, cols), q(rows, cols);
    Rows<std::int64_t> chain(rows, count), direct(rows, count);
    sampler.probs<T>(x, p, texts);
    sampler.sample<T>(MatrixView<const T>(x), chain, noise, texts);
    sample<T>(plain, MatrixView<const T>(x), direct, noise);
    gumbel_softmax<T>(relaxed, x, q, noise);
    // If a step makes scores equal, the next one truncates by index; only a single step keeps the order.
    const bool ordered = steps.size() < 2 && std::none_of(steps.begin(), steps.end(), [](const Step& step) {
                           return std::holds_alternative<step::TypicalP>(step) || reads_text(description_of(step));
                         });
    Laws law = Described<TopKSoftmax>::kLaws;
    law.order = ordered;
    for (std::size_t r = 0; r < rows; ++r) {
      if (!check_distribution(report, x.row(r), std::as_const(p).row(r), r)) continue;
      check_order(report, law, x.row(r), std::as_const(p).row(r), r);
      check_distribution(report, x.row(r), std::as_const(q).row(r), r);
      for (const std::int64_t index : chain.row(r)) {
        const bool valid = index >= 0 && index < static_cast<std::int64_t>(cols);
        if (report.expect(valid, r, "drew no index", static_cast<double>(index)))
          report.expect(p.row(r)[static_cast<std::size_t>(index)] > 0, r, "drew what has no mass", static_cast<double>(index));
      }
      const T most = std::ranges::max(x.row(r));
      const auto possible = static_cast<std::size_t>(
          std::ranges::count_if(x.row(r), [&](T score) { return most == kInf ? score == most : score > -kInf; }));
      for (std::size_t c = 0; c < count; ++c) {
        const std::int64_t index = direct.row(r)[c];
        if (!plain.replace && c >= possible) {
          report.expect(index == -1, r, "drew one index twice", static_cast<double>(index));
          continue;
        }
        const bool valid = index >= 0 && index < static_cast<std::int64_t>(cols);
        if (report.expect(valid, r, "drew no index", static_cast<double>(index)))
          report.expect(x.row(r)[static_cast<std::size_t>(index)] > -kInf, r, "drew -inf", static_cast<double>(index));
      }
      if (relaxed.hard) report.expect(largest_of(std::as_const(q).row(r)) == 1, r, "hard, and no 1");
    }
    const std::size_t r = random.below(rows);
    Rows<std::int64_t> one(1, count);
    Rows<T> alone(1, cols);
    Noise own = noise;
    own.stream += r;
    sampler.sample<T>(x.one(r), one, own, texts_of(text.one(r)));
    report.expect(std::ranges::equal(one.row(0), chain.row(r)), r, "other draws in a batch");
    sampler.probs<T>(x.one(r), alone, texts_of(text.one(r)));
    report.expect(same_bits(std::as_const(alone).row(0), std::as_const(p).row(r)), r, "other bits in a batch");
    gumbel_softmax<T>(relaxed, x.one(r), alone, own);
    report.expect(same_bits(std::as_const(alone).row(0), std::as_const(q).row(r)), r, "other relaxed draw in a batch");
  }
}

}  // namespace

void soak_sampling(Soak& soak) {
  soak.run<float, double>("sampling",
                          [&]<class T>(T, Random& random, Report& report) { soak_draws<T>(random, report, soak.rows()); });
}

}  // namespace isentropic
