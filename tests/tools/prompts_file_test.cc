// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/prompts_file.h"

#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/tiny_model.h"

namespace reprise::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

using Tokens = std::vector<uint32_t>;

class PromptsFile : public ::testing::Test {
 protected:
  absl::StatusOr<std::vector<FilePrompt>> Read(const std::string& text,
                                               PlainLines plain = PlainLines::kText) {
    std::ofstream(path_, std::ios::trunc) << text;
    return ReadPromptsFile(path_, plain);
  }
  testing::TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/prompts";
};

TEST_F(PromptsFile, HasATextInEachLine) {
  const auto prompts = Read("one\r\n\n two {\n");
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  ASSERT_THAT(*prompts, SizeIs(2));
  EXPECT_EQ(std::get<std::string>((*prompts)[0].prompt), "one");
  EXPECT_EQ(std::get<std::string>((*prompts)[1].prompt), " two {");
}

TEST_F(PromptsFile, HasTokensInEachLine) {
  const auto prompts = Read("1,2\n4294967295", PlainLines::kTokens);
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  ASSERT_THAT(*prompts, SizeIs(2));
  EXPECT_EQ(std::get<Tokens>((*prompts)[0].prompt), (Tokens{1, 2}));
  EXPECT_EQ(std::get<Tokens>((*prompts)[1].prompt), Tokens{4294967295});
}

TEST_F(PromptsFile, HasLinesOfJsonForEitherOption) {
  for (const PlainLines plain : {PlainLines::kText, PlainLines::kTokens}) {
    const auto prompts =
        Read("\n{\"prompt\": \"a\\nb\", \"max_new_tokens\": 7}\n{\"tokens\": [5, 0]}\n", plain);
    ASSERT_TRUE(prompts.ok()) << prompts.status();
    ASSERT_THAT(*prompts, SizeIs(2));
    EXPECT_EQ(std::get<std::string>((*prompts)[0].prompt), "a\nb");
    EXPECT_EQ((*prompts)[0].max_new_tokens, 7u);
    EXPECT_EQ(std::get<Tokens>((*prompts)[1].prompt), (Tokens{5, 0}));
    EXPECT_EQ((*prompts)[1].max_new_tokens, 0u);
  }
}

TEST_F(PromptsFile, MayBeginWithAByteOrderMark) {
  const auto json = Read("\xEF\xBB\xBF{\"prompt\": \"a\"}\n");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(std::get<std::string>((*json)[0].prompt), "a");
  const auto text = Read("\xEF\xBB\xBFone\n\xEF\xBB\xBFtwo\n");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(std::get<std::string>((*text)[0].prompt), "one");
  EXPECT_EQ(std::get<std::string>((*text)[1].prompt), "\xEF\xBB\xBFtwo");
}

TEST_F(PromptsFile, IsStdinForADash) {
  std::istringstream text("a\n{\n");
  std::streambuf* const before = std::cin.rdbuf(text.rdbuf());
  const auto prompts = ReadPromptsFile("-", PlainLines::kText);
  std::cin.rdbuf(before);
  std::cin.clear();
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  ASSERT_THAT(*prompts, SizeIs(2));
  EXPECT_EQ(std::get<std::string>((*prompts)[1].prompt), "{");
}

TEST_F(PromptsFile, IsRefusedByLineAndField) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", ": got no prompt, allowed: a text or JSON"},
      {"\n\n", ": got no prompt"},
      {"{\"prompt\": \"a\"}\nplain", ":2: got no JSON object"},
      {"{\"prompt\": \"a\"", ":1: got no JSON object"},
      {"{\"prompt\": \"\"}", ":1: prompt: got \"\", allowed: a text of at least one byte"},
      {"{\"prompt\": 3}", ":1: prompt: got 3"},
      {"{\"tokens\": []}", ":1: tokens: got [], allowed: a list of token ids"},
      {"{\"tokens\": [1, -1]}", ":1: tokens: got -1"},
      {"{\"tokens\": [1.5]}", ":1: tokens: got 1.5"},
      {"{\"tokens\": [4294967296]}", ":1: tokens: got 4294967296"},
      {"{\"tokens\": \"" + std::string(100, 'x') + "\"}", "xxx..., allowed"},
      {"{\"prompt\": \"a\", \"tokens\": [1]}", ":1: got both of prompt and tokens"},
      {"{\"max_new_tokens\": 3}", ":1: got neither of prompt and tokens"},
      {"{\"prompt\": \"a\", \"max_new_tokens\": 0}", ":1: max_new_tokens: got 0, allowed: a whole"},
      {"{\"prompt\": \"a\", \"top_k\": 1}",
       ":1: got the field \"top_k\", allowed: prompt, tokens"}};
  for (const auto& [text, says] : cases) {
    const auto prompts = Read(text);
    EXPECT_EQ(prompts.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(prompts.status().message()), HasSubstr(path_ + ":")) << text;
    EXPECT_THAT(std::string(prompts.status().message()), HasSubstr(says)) << text;
  }
  EXPECT_THAT(std::string(Read("1,2\n1,x", PlainLines::kTokens).status().message()),
              HasSubstr(":2: number: got \"x\""));
  const auto directory = ReadPromptsFile(directory_.path(), PlainLines::kText);
  EXPECT_EQ(directory.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(directory.status().message()),
              HasSubstr(directory_.path() + "\": got a directory, allowed: a file"));
  const auto missing = ReadPromptsFile(path_ + ".not", PlainLines::kText);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr(path_ + ".not"));
}

}  // namespace
}  // namespace reprise::tools
