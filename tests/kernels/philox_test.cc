// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 against the known-answer vectors that its authors publish with Random123. The
// device's own copy is covered by the fills and by sampling, which are checked against the
// oracle's.
#include "kernels/device/philox.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "tests/testing/oracle.h"

namespace reprise::testing {
namespace {

using kernels::on_host::Philox;
using kernels::on_host::Random4;
using kernels::on_host::UniformFloat;

struct KnownAnswer {
  std::array<uint32_t, 4> counter;
  std::array<uint32_t, 2> key;
  std::array<uint32_t, 4> value;
};
constexpr KnownAnswer kKnownAnswers[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

TEST(Philox, KernelsAgreeWithThePublishedVectors) {
  for (const KnownAnswer& k : kKnownAnswers) {
    const auto join = [](uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; };
    const Random4 got = Philox(join(k.key[0], k.key[1]), join(k.counter[0], k.counter[1]),
                               join(k.counter[2], k.counter[3]));
    EXPECT_EQ(std::to_array(got.v), k.value);
  }
}

TEST(Philox, OracleAgreesWithThePublishedVectors) {
  for (const KnownAnswer& k : kKnownAnswers) EXPECT_EQ(OraclePhilox(k.counter, k.key), k.value);
}

TEST(Philox, UniformNumbersLieStrictlyBetweenZeroAndOne) {
  for (const uint32_t word : {0u, 1u, 0x7fffffffu, 0x80000000u, 0xfffffeffu, 0xffffffffu}) {
    EXPECT_GT(UniformFloat(word), 0.0f) << word;
    EXPECT_LT(UniformFloat(word), 1.0f) << word;
    EXPECT_EQ(static_cast<double>(UniformFloat(word)), OracleUniform(word)) << word;
  }
}

}  // namespace
}  // namespace reprise::testing
