// A server's loop without exceptions: compiled with -fno-exceptions -fno-rtti.
#include <isentropic/prepared.h>

#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  isentropic_limit_threads(1);  // of this thread's calls
  const isentropic::Prepared sampler("sampler_sample",
                                     R"({"steps": [{"name": "temperature", "temperature": 0.7}, {"name": "top_p", "p": 0.9}],
                                         "seed": 7, "stream": 0, "position": 0})");
  if (!sampler) return std::printf("%s\n", isentropic_last_error()), 1;

  std::vector<float> logits = {2.0f, 0.5f, 1.0f, -1.0f, 0.0f, 3.0f};  // two rows of three
  std::vector<std::int64_t> drawn(2);
  using isentropic::MatrixView, isentropic::named;
  const auto outcome = sampler.run({named("x", MatrixView<const float>(logits.data(), 2, 3)),
                                    named("indices", MatrixView<std::int64_t>(drawn.data(), 2, 1))});
  if (!outcome) return std::printf("%s\n", outcome.message), 1;
  std::printf("drawn  %d %d\n", static_cast<int>(drawn[0]), static_cast<int>(drawn[1]));

  const auto wrong = sampler.run({named("x", MatrixView<const float>(logits.data(), 2, 3))});
  std::printf("error  %s\n", wrong.message);
  std::printf("error  %s\n", isentropic::Prepared("softmax", R"({"temp": 1})").run({}).message);
}
