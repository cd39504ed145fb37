// Attention.

#include "tests/soak/soak.h"

namespace isentropic {
namespace {

template <class T>
struct Heads {
  std::vector<T> data;
  HeadsView<T> view;

  Heads(std::size_t batch, std::size_t heads, std::size_t rows, std::size_t cols)
      : data(batch * heads * rows * cols, T(-7)), view(data.data(), batch, heads, rows, cols) {}
  Heads(const Heads&) = delete;
  Heads& operator=(const Heads&) = delete;
  void fill(Random& random, double scale) {
    for (T& entry : data) entry = static_cast<T>(scale * random.normal());
  }
  bool finite() const {
    return std::all_of(data.begin(), data.end(), [](T entry) { return std::isfinite(entry); });
  }
};

template <class T>
void soak_heads(Random& random, Report& report, std::size_t wanted, bool linear) {
  while (report.rows() < wanted) {
    const std::size_t batch = 1 + random.below(2), kv_heads = 1 + random.below(2), heads = kv_heads * (1 + random.below(2));
    const std::size_t n = 1 + random.below(random.chance(0.1) ? 300 : 40), d = 1 + random.below(20), dv = 1 + random.below(20);
    const bool causal = random.chance(0.4);
    const std::size_t m = 1 + random.below(causal ? n : 40);
    Heads<T> q(batch, heads, m, d), k(batch, kv_heads, n, d), v(batch, kv_heads, n, dv), out(batch, heads, m, dv),
        g(batch, heads, m, dv);
    Heads<T> dq(batch, heads, m, d), dk(batch, kv_heads, n, d), dvalue(batch, kv_heads, n, dv), weights(batch, heads, m, n);
    const double scale = random.power_of_10(-3, linear ? 1 : 2);
    q.fill(random, scale), k.fill(random, random.power_of_10(-3, 1)), v.fill(random, 1), g.fill(random, 1);
    std::size_t map_index = random.below(std::variant_size_v<Map>);
    if (std::holds_alternative<PerturbMax>(support::random_of<Map>(random, map_index, 1)) && !random.chance(0.1)) map_index = 0;
    Attention op = random_op<Attention>(random, n);
    op.map = support::random_of<Map>(random, map_index, n);
    op.causal = causal;
    if (std::abs(op.number) > 10) op.number = 10;
    if (op.kappa && *op.kappa > 1e3) op.kappa = 1;
    if (!op.check().empty()) op.kappa = {};
    // Gradients of maps that are steep are large.
    const double steep = unit_of_gradient(op.map, std::vector<double>(1, 0.0), {});
    if (steep > 1e3 || steep < 1e-6) continue;
    LinearAttention simple = {.scale = {}, .causal = causal};
    std::vector<char> visible(n);
    for (char& seen : visible) seen = random.chance(0.8);
    const bool masked = !linear && random.chance(0.4);
    AttentionMask<T> mask;
    if (masked) mask.visible = {reinterpret_cast<const bool*>(visible.data()), 0, 0, 0, 1};
    report.next(batch * heads * m, m * n, [&](std::size_t) {
      return fmt::format("batch {}, heads {} of {}, queries {}, keys {}, d {}, dv {}, causal {}, masked {}, scale {}: {}",
                         batch, heads, kv_heads, m, n, d, dv, causal, masked, scale, linear ? "" : text_of(op));
    });
    std::vector<T> h(batch * heads * m), sinks(!linear && random.chance(0.3) ? h.size() : 0), dsinks(sinks.size());
    for (T& sink : sinks) sink = static_cast<T>(2 * random.normal());
    if (linear) {
      linear_attention<T>(simple, q.view, k.view, v.view, out.view);
      linear_attention_vjp<T>(simple, q.view, k.view, v.view, g.view, dq.view, dk.view, dvalue.view);
    } else {
      attention<T>(op, q.view, k.view, v.view, out.view, mask, {}, {weights.view, h}, sinks);
      attention_vjp<T>(op, q.view, k.view, v.view, g.view, dq.view, dk.view, dvalue.view, mask, {}, {}, {}, sinks, dsinks);
    }
    report.expect(out.finite(), 0, "not finite");
    const bool steep_map = !linear && std::visit(
                                          []<class M>(const M& o) {
                                            if constexpr (requires { o.alpha; }) return o.alpha > 2;
                                            return Described<M>::kLaws.entropy_target;
                                          },
                                          op.map);
    const auto numbers = [](const Heads<T>& of) {
      return std::none_of(of.data.begin(), of.data.end(), [](T entry) { return std::isnan(entry); });
    };
    report.expect(steep_map ? numbers(dq) && numbers(dk) && numbers(dvalue) : dq.finite() && dk.finite() && dvalue.finite(), 0,
                  "gradient is not finite");
    for (std::size_t b = 0; b < batch; ++b) {
      for (std::size_t head = 0; head < heads; ++head) {
        for (std::size_t i = 0; i < m; ++i) {
          const std::size_t at = (b * heads + head) * m + i, seen_up_to = causal ? i + n - m + 1 : n,
                            kv = head / (heads / kv_heads);
          std::size_t seen = 0;
          for (std::size_t j = 0; j < seen_up_to; ++j) seen += !masked || visible[j];
          for (std::size_t c = 0; c < dv; ++c) {            // between the least and the largest value that is seen
            const bool zero = seen == 0 || !sinks.empty();  // the value of a sink
            double low = zero ? 0 : kInf, high = zero ? 0 : -kInf;
            for (std::size_t j = 0; j < seen_up_to; ++j) {
              if (masked && !visible[j]) continue;
              low = std::min<double>(low, v.view.row(b, kv, j)[c]), high = std::max<double>(high, v.view.row(b, kv, j)[c]);
            }
            const double got = out.view.row(b, head, i)[c],
                         slack = seen == 0 ? 0 : 6 * (sum_bound<T>(n) + 64 * kEps<T>)*(linear ? 1e3 : 1);
            report.expect(got >= low - slack && got <= high + slack, 0, "out of the range of values", got);
          }
          if (linear) continue;
          const std::span<const T> row(weights.view.row(b, head, i), n);
          const double sum = sum_of(row);
          if (seen > 0) report.sum(std::max(sum - 1, sinks.empty() ? 1 - sum : 0), sum_bound<T>(n), 0);
          if (seen == 0) report.expect(sum == 0 && h[at] == 0, 0, "a query that sees nothing has weights", sum);
          report.expect(
              h[at] >= 0 && h[at] <= std::log(static_cast<double>(std::max<std::size_t>(seen + (sinks.empty() ? 0 : 1), 1))) *
                                             (1 + 1e-5) +
                                         (kWide<T> ? 1e-12 : 1e-6),
              0, "entropy out of range", h[at]);
        }
      }
    }
  }
}

}  // namespace

void soak_attention(Soak& soak) {
  soak.run<float, double>(
      "attention", [&]<class T>(T, Random& random, Report& report) { soak_heads<T>(random, report, soak.rows(), false); });
  soak.run<float, double>("linear_attention", [&]<class T>(T, Random& random, Report& report) {
    soak_heads<T>(random, report, soak.rows(), true);
  });
}

}  // namespace isentropic
