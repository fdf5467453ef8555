// SPDX-License-Identifier: Apache-2.0
#include "kernels/page_walk/page_walk.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "tests/testing/cases/page_walk_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::PageWalkArgs;
using kernels::PageWalkCase;
using kernels::WalkedPage;

using PageWalkTest = KernelTest;
REPRISE_FOR_EVERY_DEVICE(PageWalkTest);

constexpr uint32_t kPattern = 5;

size_t WordsOfToken(const PageWalkCase& c) {
  return static_cast<size_t>(c.kv.head_dim) * runtime::SizeOf(c.kv.dtype) / 4;
}
size_t WordsOfRun(const PageWalkCase& c) {
  return WordsOfToken(c) * static_cast<size_t>(c.kv.block_size);
}
size_t RunsOfPage(const PageWalkCase& c) { return 2 * static_cast<size_t>(c.kv.num_kv_heads); }

// A list of pages that lie anywhere in a cache with some to spare: whole ones, and parts.
struct Walk {
  std::vector<uint32_t> cache;  // few different words, so that a group's often is the pattern
  std::vector<WalkedPage> pages;

  explicit Walk(const PageWalkCase& c) {
    Random random(c.num_pages * 131 + static_cast<uint64_t>(c.kv.head_dim));
    const uint32_t num_blocks = c.num_pages + 3;
    cache.resize(num_blocks * RunsOfPage(c) * WordsOfRun(c));
    for (uint32_t& word : cache) word = random.Below(8);
    const std::vector<uint32_t> block = random.Permutation(num_blocks);
    const auto size = static_cast<uint32_t>(c.kv.block_size);
    for (uint32_t i = 0; i < c.num_pages; ++i) {
      WalkedPage page{block[i], 0, size, 0};
      if (i % 3 == 1) page.end = 1 + random.Below(size);
      if (i % 3 == 2) page.begin = random.Below(page.end);
      pages.push_back(page);
    }
  }
};

// Word by word: whose group each live word belongs to.
std::vector<uint32_t> OracleMatches(const PageWalkCase& c, const Walk& walk, uint32_t grid) {
  std::vector<uint32_t> matches(grid, 0);
  const size_t vectors = WordsOfRun(c) / 4, groups = (vectors + 7) / 8;
  for (size_t p = 0; p < walk.pages.size(); ++p) {
    const WalkedPage& page = walk.pages[p];
    for (size_t run = 0; run < RunsOfPage(c); ++run) {
      std::vector<uint32_t> word(groups, 0);
      std::vector<bool> live(groups, false);
      const size_t base = (page.block * RunsOfPage(c) + run) * WordsOfRun(c);
      // Words of one token in a row: all of them, or 128 bytes of each panel.
      const size_t in_row = c.kv.swizzled ? 32 : WordsOfToken(c);
      for (size_t w = 0; w < WordsOfRun(c); ++w) {
        const size_t token = w / in_row % static_cast<size_t>(c.kv.block_size);
        if (token < page.begin || token >= page.end) continue;
        word[w / 4 % groups] ^= walk.cache[base + w];
        live[w / 4 % groups] = true;
      }
      for (size_t g = 0; g < groups; ++g)
        matches[(p * RunsOfPage(c) + run) % grid] += live[g] && word[g] == kPattern ? 1 : 0;
    }
  }
  return matches;
}

TEST_P(PageWalkTest, CountsTheWordsOfLiveTokensThatMatch) {
  const uint32_t grid = kernels::PageWalkGrid(device().properties());
  for (const PageWalkCase& c : kernels::kPageWalkCases) {
    SCOPED_TRACE(c.name);
    Walk walk(c);
    const std::vector<uint32_t> want = OracleMatches(c, walk, grid);
    if (c.num_pages > 20) {
      EXPECT_GT(std::accumulate(want.begin(), want.end(), 0u), 0u);
    }
    GuardedMemory memory(device(), stream());
    PageWalkArgs args;
    args.kv = c.kv;
    args.pattern = kPattern;
    args.kv_cache = memory.Constant(walk.cache);
    args.num_pages = memory.Constant(std::vector<uint32_t>{c.num_pages});
    walk.pages.push_back({0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu});  // not live
    args.pages = memory.Constant(walk.pages);
    args.matches = memory.Poisoned<uint32_t>(grid);
    ASSERT_OK(PageWalk(stream(), kernels(), args, c.num_pages + 1));
    memory.Check();
    EXPECT_EQ(memory.Read(args.matches), want);
  }
}

// A changed bit is seen where the token is live, and only there.
TEST_P(PageWalkTest, ReadsAllLiveTokensAndNoOthers) {
  const PageWalkCase c{"", {2, 64, 16, runtime::DType::kBf16}, 1};
  const uint32_t grid = kernels::PageWalkGrid(device().properties());
  const size_t token = WordsOfToken(c), run = WordsOfRun(c);
  Random random(11);
  for (int i = 0; i < 24; ++i) {
    std::vector<uint32_t> cache(2 * RunsOfPage(c) * run, 0);
    const uint32_t at = random.Below(static_cast<uint32_t>(RunsOfPage(c) * run));
    cache[RunsOfPage(c) * run + at] = 1u << random.Below(32);
    const size_t in_block = at % run / token;
    const bool live = in_block >= 3 && in_block < 13;
    GuardedMemory memory(device(), stream());
    PageWalkArgs args;
    args.kv = c.kv;
    args.kv_cache = memory.Constant(cache);
    args.num_pages = memory.Constant(std::vector<uint32_t>{1});
    args.pages = memory.Constant(std::vector<WalkedPage>{{1, 3, 13, 0}});
    args.matches = memory.Poisoned<uint32_t>(grid);
    ASSERT_OK(PageWalk(stream(), kernels(), args, 1));
    memory.Check();
    const std::vector<uint32_t> matches = memory.Read(args.matches);
    // 16 groups in each of 4 runs; all of them hold live tokens.
    EXPECT_EQ(std::accumulate(matches.begin(), matches.end(), 0u), live ? 63u : 64u) << at;
  }
}

TEST_P(PageWalkTest, RefusesImpossibleShapes) {
  const auto launch = [&](const kernels::KvLayout& kv, uint32_t max_pages) {
    PageWalkArgs args;
    args.kv = kv;
    return PageWalk(stream(), kernels(), args, max_pages);
  };
  constexpr runtime::DType kBf16 = runtime::DType::kBf16;
  EXPECT_THAT(launch({0, 64, 16, kBf16}, 1), StatusIs(kInvalid, "num_kv_heads is 0"));
  EXPECT_THAT(launch({1, 0, 16, kBf16}, 1), StatusIs(kInvalid, "head_dim is 0"));
  EXPECT_THAT(launch({1, 64, 0, kBf16}, 1), StatusIs(kInvalid, "block_size is 0"));
  EXPECT_THAT(launch({1, 20, 16, kBf16}, 1),
              StatusIs(kInvalid, "a head of a token has 40 bytes; allowed: multiples of 16"));
  EXPECT_THAT(launch({1, 256, 1 << 14, kBf16}, 1),
              StatusIs(kInvalid, "a head of a block has 8388608 bytes; allowed: at most 2097152"));
  EXPECT_THAT(launch({8, 64, 16, kBf16}, 1u << 28),
              StatusIs(kInvalid, "max_pages is 268435456; allowed: at most 134217727"));
}

}  // namespace
}  // namespace reprise::testing
