// SPDX-License-Identifier: Apache-2.0
#include "tools/suggestion.h"

#include "gtest/gtest.h"

namespace reprise::tools {
namespace {

const std::vector<std::string> kKnown = {"--prompt", "--prompt-tokens", "--max-new-tokens",
                                         "--model", "--json"};

TEST(Suggestion, FindsWhatWasMistyped) {
  EXPECT_EQ(Suggestion("--promt", kKnown), "--prompt");
  EXPECT_EQ(Suggestion("--pormpt", kKnown), "--prompt");  // swapped
  EXPECT_EQ(Suggestion("--prompt-token", kKnown), "--prompt-tokens");
  EXPECT_EQ(Suggestion("--max_new_tokens", kKnown), "--max-new-tokens");
  EXPECT_EQ(Suggestion("-json", kKnown), "--json");
}

TEST(Suggestion, FindsWhatWasBegun) {
  EXPECT_EQ(Suggestion("--max", kKnown), "--max-new-tokens");
  EXPECT_EQ(Suggestion("--mo", kKnown), "");
}

TEST(Suggestion, KeepsQuietWhereNothingIsNear) {
  EXPECT_EQ(Suggestion("--bogus", kKnown), "");
  EXPECT_EQ(Suggestion("", kKnown), "");
  EXPECT_EQ(Suggestion("--x", {}), "");
}

}  // namespace
}  // namespace reprise::tools
