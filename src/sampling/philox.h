// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, SC 2011: it makes 128 bits from a counter and a
// key.
#pragma once

#include <array>
#include <cstdint>

#include "isentropic/version.h"

namespace isentropic::inline ISENTROPIC_ABI {

struct Philox {
  static constexpr std::uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  static constexpr std::uint32_t kBump0 = 0x9E3779B9, kBump1 = 0xBB67AE85;
  static constexpr int kRounds = 10;
  using Counter = std::array<std::uint32_t, 4>;
  using Key = std::array<std::uint32_t, 2>;

  static constexpr Counter Bits(Counter c, Key k) {
    for (int round = 0; round < kRounds; ++round) {
      const std::uint64_t p0 = std::uint64_t{kMultiplier0} * c[0], p1 = std::uint64_t{kMultiplier1} * c[2];
      c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(p1),
           static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(p0)};
      k = {k[0] + kBump0, k[1] + kBump1};
    }
    return c;
  }
};

// The noise of one draw: a function of each index, and of each block of 64 indices.
//
// A key and a counter have no room for (seed, stream, position) beside an index. So one call of the generator turns them into
// the key and the upper half of the counters of this draw.
struct NoiseKey {
  Philox::Key key;
  std::uint32_t upper0, upper1;

  static constexpr NoiseKey Of(std::uint64_t seed, std::uint64_t stream, std::uint64_t position) {
    const auto low = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
    const auto high = [](std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32); };
    const Philox::Counter bits =
        Philox::Bits({low(position), high(position), low(stream), high(stream)}, {low(seed), high(seed)});
    return {{bits[0], bits[1]}, bits[2], bits[3]};
  }
};

}  // namespace isentropic::inline ISENTROPIC_ABI
