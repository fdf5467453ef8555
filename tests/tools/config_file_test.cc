// SPDX-License-Identifier: Apache-2.0
#include "tools/config_file.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/tiny_model.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A command with an option of each kind.
class ConfigFile : public ::testing::Test {
 protected:
  void SetUp() override {
    app_ = root_.add_subcommand("serve", "");
    AddOption(
        app_, "--rows", &rows_, [](std::string_view text) { return ParseUnsigned(text, 1, 99); },
        "N", "7", "");
    app_->add_option("--listen", listen_, "")->allow_extra_args(false)->type_name("ADDRESS");
    app_->add_option("--model", model_, "")->type_name("DIR");
    app_->add_flag("--poison", poison_, "");
    app_->add_option("--config", config_, "")->configurable(false);
  }
  void Parse(std::vector<std::string> arguments) {
    std::reverse(arguments.begin(), arguments.end());
    arguments.emplace_back("serve");
    root_.parse(std::move(arguments));
  }
  absl::Status Apply(const std::string& text) {
    std::ofstream(path_, std::ios::trunc) << text;
    return ApplyConfigFile(path_, app_);
  }
  testing::TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/serve.toml";
  CLI::App root_;
  CLI::App* app_ = nullptr;
  uint32_t rows_ = 7;
  std::vector<std::string> listen_;
  std::string model_, config_;
  bool poison_ = false;
};

TEST_F(ConfigFile, SetsWhatTheCommandLineDidNot) {
  Parse({"--rows", "3", "--listen", "c"});
  const absl::Status status = Apply(
      "# comment\n\nrows = 9 # another\n  model='/a \\b'\r\nlisten = [\"a\", 'b,c']\npoison = "
      "true");
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(rows_, 3u);
  EXPECT_THAT(listen_, ElementsAre("c"));
  EXPECT_EQ(model_, "/a \\b");
  EXPECT_TRUE(poison_);
}

TEST_F(ConfigFile, TakesListsNumbersAndFalse) {
  Parse({});
  const absl::Status status =
      Apply("rows = \"9\"\nlisten = [\"a\", 'b,c']\npoison = false\nmodel = 12\n");
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(rows_, 9u);
  EXPECT_THAT(listen_, ElementsAre("a", "b,c"));
  EXPECT_EQ(model_, "12");
  EXPECT_FALSE(poison_);
}

TEST_F(ConfigFile, AFlagOfTheCommandLineStaysBesideAFalse) {
  Parse({"--poison"});
  ASSERT_TRUE(Apply("poison = false\n").ok());
  EXPECT_TRUE(poison_);
}

TEST_F(ConfigFile, IsRefusedByLineAndKey) {
  Parse({"--rows", "3"});
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"row = 3", ":1: unknown key \"row\"; did you mean \"rows\"? (keys are options of serve"},
      {"config = \"a\"", ":1: unknown key \"config\""},
      {"help = true", ":1: unknown key \"help\""},
      {"serve.rows = 3", ":1: unknown key \"serve.rows\""},
      {"model = \"a\"\n\nmodel = \"b\"", ":3: model: got it again, first in line 1"},
      // Also where the command line has another.
      {"rows = \"x\"", ":1: rows: got \"x\", allowed: a whole number from 1 to 99"},
      {"\nrows = 100", ":2: rows: got \"100\""},
      {"rows = true", ":1: rows: got true, allowed: a text or a number (N)"},
      {"rows = [1, 2]", ":1: rows: got an array, allowed: one value"},
      {"listen = []", ":1: listen: got an array of nothing"},
      {"listen = [\"a\",", ":1: listen: got an array that does not end here"},
      {"poison = 1", ":1: poison: got no true and no false"},
      {"poison = \"true\"", ":1: poison: got no true and no false"},
      {"[serve]", ":1: got the section [serve], allowed: KEY = VALUE alone"},
      {"rows", ":1: got rows, allowed: KEY = VALUE"},
      {"rows =", ":1: got rows =, allowed: KEY = VALUE"},
      {"= 3", ":1: got = 3, allowed: KEY = VALUE"},
      {"model = a", ":1: model: got a, allowed: a text between quotes, a number, true, false"},
      {"model = \"a\" \"b\"", ":1: model: got more behind a value"},
      {"model = \"a", ":1: model: got a quote that nothing ends"},
      {"model = \"a\\b\"", ":1: model: got a backslash between \"\""},
      {"model = \"a\\", ":1: model: got a backslash between \"\""},
      {"model = # a", ":1: got model = # a, allowed: KEY = VALUE"},
      {"listen = [\"a\" 'b']", ":1: listen: got two values of an array without a comma"},
      {"listen = [\"a\"] 3", ":1: listen: got more behind a value"},
      {"listen = [true]", ":1: listen: got true in an array, allowed: texts and numbers"},
      {"listen = [,]", ":1: listen: got no value, allowed: a text between quotes"},
      {"model = inf", ":1: model: got inf, allowed: a text between quotes"},
      {"listen = [a]", ":1: listen: got a, allowed: a text between quotes"},
  };
  for (const auto& [text, says] : cases) {
    const absl::Status status = Apply(text);
    EXPECT_TRUE(IsUsageError(status)) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_ + says));
  }
  EXPECT_EQ(ApplyConfigFile("/no/such", app_).message(), "config: cannot read \"/no/such\"");
  EXPECT_EQ(ApplyConfigFile("/", app_).message(),
            "config: cannot read \"/\": got a directory, allowed: a file");
}

TEST_F(ConfigFile, PrintsAFlagAsTheFileHasIt) {
  for (const char* flag : {"--poison", "--poison=1", "--poison=on", "--poison=yes"}) {
    root_.clear();
    Parse({flag});
    EXPECT_THAT(ConfigText(*app_), HasSubstr("poison = true\n")) << flag;
  }
  root_.clear();
  Parse({"--poison=0"});
  EXPECT_THAT(ConfigText(*app_), HasSubstr("poison = false\n"));
}

TEST_F(ConfigFile, MayBeginWithAByteOrderMark) {
  Parse({});
  ASSERT_TRUE(Apply("\xef\xbb\xbfrows = 3\n").ok());
  EXPECT_EQ(rows_, 3u);
}

TEST_F(ConfigFile, MayBeATextThatIsInNoFileYet) {
  Parse({});
  ASSERT_TRUE(ApplyConfigText("new.toml", "# ours\nrows = 3\n", app_).ok());
  EXPECT_EQ(rows_, 3u);
  const absl::Status status = ApplyConfigText("new.toml", "\nrow = 3\n", app_);
  EXPECT_TRUE(IsUsageError(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("new.toml:2: unknown key \"row\""));
}

TEST_F(ConfigFile, HasCommentsBehindAndHashesInValues) {
  Parse({});
  const absl::Status status =
      Apply("model = \"a # b\" # \"c\"\nlisten = [ 'x#\"', \"\\\\y\\\"\", ] # z\n  # rows = 3\n");
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(model_, "a # b");
  EXPECT_THAT(listen_, ElementsAre("x#\"", "\\y\""));
  EXPECT_EQ(rows_, 7u);
}

TEST(WithSettings, ReplacesWhereAKeyIsAndKeepsTheRest) {
  const std::string text =
      "# Ours.\nmodel = \"a\"\ndecode-buckets = \"1,2\" # of last week\n\nmax-rows = 8\n";
  const auto changed =
      WithSettings("serve.toml", text, {{"decode-buckets", "1,3,8"}, {"mixed-buckets", "16,64"}});
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_EQ(*changed,
            "# Ours.\nmodel = \"a\"\ndecode-buckets = \"1,3,8\"  # of last week\n\nmax-rows = 8\n"
            "mixed-buckets = \"16,64\"\n");
  // Once more changes nothing.
  EXPECT_EQ(*WithSettings("serve.toml", *changed, {{"mixed-buckets", "16,64"}}), *changed);
  EXPECT_EQ(*WithSettings("serve.toml", "", {{"a", "1"}}), "a = \"1\"\n");
  // A last line without an end gets one.
  EXPECT_EQ(*WithSettings("serve.toml", "b = 2", {{"a", "1"}}), "b = 2\na = \"1\"\n");
}

TEST(WithSettings, KeepsAByteOrderMark) {
  const std::string mark = "\xef\xbb\xbf";
  EXPECT_EQ(*WithSettings("serve.toml", mark + "a = 1 # x\nb = 2\n", {{"a", "3"}}),
            mark + "a = \"3\"  # x\nb = 2\n");
  EXPECT_EQ(*WithSettings("serve.toml", mark + "# ours\n", {{"a", "3"}}),
            mark + "# ours\na = \"3\"\n");
}

TEST(WithSettings, RefusesWhatServeWouldNotRead) {
  for (const auto& [text, says] : std::vector<std::pair<std::string, std::string>>{
           {"a = 1\na = 2\n", "serve.toml:2: a: got it again, first in line 1"},
           {"[serve]\n", "serve.toml:1: got the section [serve]"},
           {"\nrows\n", "serve.toml:2: got rows, allowed: KEY = VALUE"}}) {
    const auto changed = WithSettings("serve.toml", text, {{"a", "1"}});
    EXPECT_TRUE(IsUsageError(changed.status())) << text;
    EXPECT_THAT(std::string(changed.status().message()), HasSubstr(says));
  }
}

TEST_F(ConfigFile, WhatIsPrintedSaysTheSameWhenItIsRead) {
  Parse({"--listen", "a", "--listen", "b c", "--poison"});
  const std::string text = ConfigText(*app_);
  EXPECT_EQ(text, "rows = 7\nlisten = [\"a\", \"b c\"]\n# model = DIR\npoison = true\n");
  root_.clear();
  Parse({});
  const absl::Status status = Apply(text);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(listen_, ElementsAre("a", "b c"));
  EXPECT_EQ(ConfigText(*app_), text);
}

TEST_F(ConfigFile, WhatIsPrintedSaysTheSameOfAnyText) {
  for (const std::string model : {"a#b", "a\\b", "it's", "true", "12", "1.5", "1.2.3", ".", "1.",
                                  ".5", "inf", "a, [b] = c", "it's \"a\\b\" # c", " "}) {
    root_.clear();
    Parse({"--model", model});
    const std::string text = ConfigText(*app_);
    root_.clear();
    Parse({});
    const absl::Status status = Apply(text);
    ASSERT_TRUE(status.ok()) << status << "\n" << text;
    EXPECT_EQ(model_, model) << text;
  }
}

}  // namespace
}  // namespace reprise::tools
