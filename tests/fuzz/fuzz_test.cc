// SPDX-License-Identifier: Apache-2.0
// Every target on what it takes and on random changes of it: bytes that are flipped, cut off, put
// in, repeated, or from another seed. Blind, and the same in every run.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/targets.h"
#include "tests/testing/number.h"

namespace reprise::fuzz {
namespace {

using std::string_view_literals::operator""sv;

constexpr int kMinRuns = 50;  // however slow the machine is
constexpr int kMaxRuns = 3000;
constexpr std::chrono::milliseconds kMaxTime(500);

class Mutator {
 public:
  Mutator(uint64_t seed, const std::vector<std::string>& seeds) : random_(seed), seeds_(seeds) {}

  std::string Next() {
    std::string bytes = AnySeed();
    const uint32_t changes = 1 + random_.Below(4);
    for (uint32_t i = 0; i < changes; ++i) Change(&bytes);
    return bytes;
  }

 private:
  const std::string& AnySeed() { return seeds_[Below(seeds_.size())]; }
  size_t Below(size_t n) { return random_.Below(static_cast<uint32_t>(n)); }
  char AnyByte() {
    constexpr std::string_view kTelling = "\0\xff\x7f\x80\"{}[]:,-0123456789e\n"sv;
    return random_.Below(2) == 0 ? static_cast<char>(random_.Below(256))
                                 : kTelling[Below(kTelling.size())];
  }
  void Change(std::string* bytes) {
    const size_t at = Below(bytes->size() + 1);
    const size_t count = Below(std::min<size_t>(bytes->size() - at, 64) + 1);
    switch (random_.Below(5)) {
      case 0:
        if (at < bytes->size()) (*bytes)[at] = AnyByte();
        return;
      case 1:
        bytes->insert(at, 1 + random_.Below(8), AnyByte());
        return;
      case 2:
        bytes->erase(at, count);
        return;
      case 3:
        bytes->insert(at, bytes->substr(at, count));
        return;
      default: {
        const std::string& other = AnySeed();
        bytes->resize(at);
        bytes->append(other, Below(other.size() + 1), std::string::npos);
      }
    }
  }

  testing::Random random_;
  const std::vector<std::string>& seeds_;
};

class EveryParser : public ::testing::TestWithParam<Target> {};

TEST_P(EveryParser, TakesItsSeeds) {
  for (const std::string& seed : GetParam().seeds()) EXPECT_TRUE(GetParam().take(seed)) << seed;
}

TEST_P(EveryParser, SurvivesWhatIsAlmostRight) {
  const std::vector<std::string> seeds = GetParam().seeds();
  Mutator mutator(5, seeds);
  const auto end = std::chrono::steady_clock::now() + kMaxTime;
  int refused = 0;
  GetParam().take("");
  for (int i = 0; i < kMinRuns || (i < kMaxRuns && std::chrono::steady_clock::now() < end); ++i)
    refused += GetParam().take(mutator.Next()) ? 0 : 1;
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Each, EveryParser, ::testing::ValuesIn(Targets().begin(), Targets().end()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace reprise::fuzz
