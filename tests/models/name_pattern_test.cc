// SPDX-License-Identifier: Apache-2.0
// Regular expressions as Python's re.match reads them, and wildcards as its fnmatch does.
#include "models/config/name_pattern.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"

namespace reprise::models {
namespace {

using ::reprise::testing::StatusIs;

bool Matches(std::string_view expression, std::string_view name) {
  const auto pattern = NamePattern::Expression(expression);
  EXPECT_OK(pattern.status());
  return pattern.ok() && pattern->Matches(name);
}

TEST(NamePattern, ExpressionsMatchFromTheBeginOn) {
  constexpr std::string_view kName = "model.layers.10.self_attn.q_proj";
  for (const char* expression : {".*self_attn.*",
                                 ".*self_attn",
                                 "model",
                                 "",
                                 "^model\\.layers",
                                 ".*q_proj$",
                                 ".*\\.layers\\.10\\..*",
                                 ".*layers\\.(8|9|10)\\.",
                                 ".*layers.[0-9]+.self_attn",
                                 ".*layers\\.\\d{2}\\.",
                                 ".*layers\\.\\d{1,}\\.",
                                 ".*layers\\.1\\d{0,1}\\.",
                                 ".*(q|k|v)_proj",
                                 ".*[qkv]_proj",
                                 ".*[^a-p]_proj$",
                                 ".*?q_proj",
                                 "(?:model|lm)\\.",
                                 "(?P<first>\\w+)\\.layers",
                                 "(model\\.)+layers",
                                 "(a*)*model",
                                 "model(\\.\\w+)*$",
                                 "|never",
                                 "(|x)model",
                                 ".*self_attn\\.(?:q_proj|k_proj|v_proj)$",
                                 "[a-z]{5}\\.",
                                 ".*layers[.]10[.]"})
    EXPECT_TRUE(Matches(expression, kName)) << expression;
  for (const char* expression :
       {"layers", ".*layers\\.1\\.", "model$", ".*layers\\.\\d{3}", "Model", ".*k_proj", "x|y",
        ".*[^qkv]_proj", "(a+)+b", "model\\.$", "$", ".*\\s", "m{2}", ".*layers\\.10{2}",
        "modelx?y", "model.layers.10.self_attn.q_proj."})
    EXPECT_FALSE(Matches(expression, kName)) << expression;
}

TEST(NamePattern, BracesThatCountNothingAreCharacters) {
  EXPECT_TRUE(Matches("a{b}", "a{b}"));
  EXPECT_TRUE(Matches("a{}", "a{}"));
  EXPECT_TRUE(Matches("a{1", "a{1"));
  EXPECT_TRUE(Matches("a{,2}$", "aa"));
  EXPECT_FALSE(Matches("a{,2}$", "aaa"));
  EXPECT_TRUE(Matches("a{0}b", "b"));
  EXPECT_TRUE(Matches("[]a]+$", "a]"));
  EXPECT_TRUE(Matches("[a-]+$", "a-"));
  EXPECT_TRUE(Matches("[\\d_-]+$", "1_-"));
}

TEST(NamePattern, WhatIsNotKnownIsRefused) {
  const std::pair<const char*, const char*> refused[] = {{"(?!x)", "'(?'"},
                                                         {"(?=x)", "'(?'"},
                                                         {"(?i)x", "'(?'"},
                                                         {"(?P=a)", "'(?'"},
                                                         {"(?P<a", "its name"},
                                                         {"(a", "without a ')'"},
                                                         {"a)", "without a '('"},
                                                         {"[a", "without a ']'"},
                                                         {"[", "without a ']'"},
                                                         {"a\\", "nothing behind"},
                                                         {"\\b", "'\\b'"},
                                                         {"\\1", "'\\1'"},
                                                         {"*a", "nothing to repeat"},
                                                         {"a**", "of a repeat"},
                                                         {"a|{2}", "nothing to repeat"},
                                                         {"a{2}{3}", "nothing to repeat"},
                                                         {"a*+", "of a repeat"},
                                                         {"[z-a]", "before it begins"},
                                                         {"[a-\\d]", "two ends"},
                                                         {"a{3,2}", "fewer at most"},
                                                         {"a{1001}", "1000 repeats"},
                                                         {"(a{100}){100}", "more than 4000"}};
  for (const auto& [expression, why] : refused)
    EXPECT_THAT(NamePattern::Expression(expression).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, why))
        << expression;
  EXPECT_THAT(NamePattern::Expression(std::string(100, '(')).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "nested deeper"));
  EXPECT_FALSE(NamePattern::Expression(std::string(100000, 'a')).ok());
  EXPECT_FALSE(NamePattern::Expression(std::string(100000, '|')).ok());
}

// Programs that go back and try again take years for these.
TEST(NamePattern, NoExpressionTakesLong) {
  const std::string name(200, 'a');
  for (const char* expression :
       {"(a*)*b", "(a+)+b", "(a|a)*b", "(.*)(.*)(.*)(.*)(.*)b", "((a{0,30}){0,30})b"})
    EXPECT_FALSE(Matches(expression, name)) << expression;
}

TEST(NamePattern, WildcardsMatchWholeNames) {
  const auto matches = [](std::string_view wildcards, std::string_view name) {
    return NamePattern::Wildcards(wildcards).Matches(name);
  };
  for (const char* wildcards :
       {"model.layers.0.self_attn*", "*", "*q_proj", "model.*.q_proj",
        "model.layers.?.self_attn.q_proj", "*.[0-3].*", "*.[!1-9].*", "*[q]_proj", "**q_proj"})
    EXPECT_TRUE(matches(wildcards, "model.layers.0.self_attn.q_proj")) << wildcards;
  for (const char* wildcards :
       {"model.layers.0.self_attn", "self_attn*", "*self_attn", "",
        "model.layers.??.self_attn.q_proj", "*.[1-9].*", "*.[!0].*", "modelxlayers*"})
    EXPECT_FALSE(matches(wildcards, "model.layers.0.self_attn.q_proj")) << wildcards;
  EXPECT_TRUE(matches("a[b", "a[b"));
  EXPECT_TRUE(matches("a[]]", "a]"));
  EXPECT_TRUE(matches("a[!]]", "ab"));
  EXPECT_TRUE(matches("a[!", "a[!"));
  EXPECT_TRUE(matches("", ""));
}

}  // namespace
}  // namespace reprise::models
