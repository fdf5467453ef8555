// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/ngram_guess.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace reprise::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Tokens = std::vector<uint32_t>;

TEST(GuessByNgram, IsWhatFollowedTheLastTokensWhereTheyCameBefore) {
  EXPECT_THAT(GuessByNgram(Tokens{1, 2, 3, 4, 5, 6}, Tokens{9, 2, 3}, 2, 3), ElementsAre(4, 5, 6));
  // Across the end of the prompt, and behind it.
  EXPECT_THAT(GuessByNgram(Tokens{1, 2}, Tokens{3, 4, 9, 2, 3}, 2, 2), ElementsAre(4, 9));
  EXPECT_THAT(GuessByNgram(Tokens{1, 2, 3, 4}, Tokens{}, 2, 3), IsEmpty());
  EXPECT_THAT(GuessByNgram(Tokens{1}, Tokens{}, 3, 3), IsEmpty());
  EXPECT_THAT(GuessByNgram(Tokens{1, 2, 3, 1}, Tokens{}, 1, 0), IsEmpty());
}

TEST(GuessByNgram, TakesTheLatestPlace) {
  EXPECT_THAT(GuessByNgram(Tokens{1, 2, 7, 1, 2, 8, 1, 2}, Tokens{}, 2, 1), ElementsAre(8));
}

TEST(GuessByNgram, GoesOnWithItselfWhereThereIsNoMore) {
  EXPECT_THAT(GuessByNgram(Tokens{5, 6, 5, 6}, Tokens{}, 2, 5), ElementsAre(5, 6, 5, 6, 5));
}

TEST(ParseDraft, TakesNgramWithNumbersOrWithout) {
  EXPECT_EQ(NameOf(ParseDraft("ngram").value()), "ngram:3,4");
  EXPECT_EQ(NameOf(ParseDraft("ngram:6,8").value()), "ngram:6,8");
  for (const char* bad : {"", "model", "ngram:", "ngram:3", "ngram:0,4", "ngram:3,65",
                          "ngram:3,4,5", "ngrams", "ngram:a,b"}) {
    const auto parsed = ParseDraft(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_THAT(std::string(parsed.status().message()),
                HasSubstr(std::string("draft: got \"") + bad + "\", allowed: ngram"));
  }
}

}  // namespace
}  // namespace reprise::tools
