// SPDX-License-Identifier: Apache-2.0
// `reprise tree` as operators see it: the tree of a running server is shown and replaced, and what
// is refused leaves the one in force.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/end_to_end/program.h"

namespace reprise::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kTwoLeaves[] = R"({"schema": "reprise-attention-tree/1",
    "rows": {"leaf": "default"},
    "batch": {"ask": "batch_rows", "below": 2, "then": {"leaf": "one", "leaf_overhead": 0},
              "else": {"leaf": "more"}}})";
constexpr char kOtherRows[] = R"({"schema": "reprise-attention-tree/1",
    "rows": {"leaf": "default", "min_split_tokens": 64}, "batch": {"leaf": "all"}})";
constexpr char kWrongLeaf[] = R"({"schema": "reprise-attention-tree/1",
    "rows": {"leaf": "default"}, "batch": {"leaf": "all", "leaf_overhead": 7}})";

class TreeOfTheProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model = WriteTinyModel({}, directory_.path() + "/tiny");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
  }
  std::string Write(const std::string& name, const std::string& text) const {
    const std::string path = directory_.path() + "/" + name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  static json Shown(const ServedProgram& served) {
    Program show({"tree", "show", "--address", served.address(), "--json", "-"});
    EXPECT_EQ(show.Wait(), 0) << show.stderr_text();
    return json::parse(show.stdout_text(), nullptr, /*allow_exceptions=*/false);
  }
  static void ExpectRefused(const std::vector<std::string>& arguments, int exit_code,
                            const std::string& says) {
    Program program(arguments);
    EXPECT_EQ(program.Wait(), exit_code) << says;
    EXPECT_THAT(program.stdout_text(), IsEmpty());
    EXPECT_THAT(program.stderr_text(), HasSubstr(says));
  }
  TemporaryDirectory directory_;
  std::string model_;
};

TEST_F(TreeOfTheProgram, IsShownAndReplaced) {
  ServedProgram served(model_, {"--max-rows", "4", "--allow-attention-trees"});
  ASSERT_TRUE(served.ready());
  Program first({"tree", "show", "--address", served.address()});
  EXPECT_EQ(first.Wait(), 0) << first.stderr_text();
  EXPECT_THAT(first.stdout_text(), HasSubstr("version 1, batch invariant\n"));
  EXPECT_THAT(first.stdout_text(), HasSubstr("leaves of batch: 0 \"default\"\n"));
  EXPECT_THAT(first.stdout_text(), HasSubstr("\"schema\": \"reprise-attention-tree/1\""));
  const json before = Shown(served);
  EXPECT_EQ(before["command"], "tree show");
  EXPECT_EQ(before["version"], 1);

  Program set({"tree", "set", Write("two.json", kTwoLeaves), "--address", served.address()});
  EXPECT_EQ(set.Wait(), 0) << set.stderr_text();
  EXPECT_EQ(set.stdout_text(),
            "version 2 of the attention tree is in force, in place of version 1\n");
  const json tree = Shown(served);
  EXPECT_EQ(tree["version"], 2);
  EXPECT_EQ(tree["batch_invariant"], true);
  EXPECT_EQ(tree["row_leaves"], json::array({"default"}));
  EXPECT_EQ(tree["batch_leaves"], json::array({"one", "more"}));

  // What is shown may be set again.
  Program again({"tree", "set", Write("before.json", before["text"].get<std::string>()),
                 "--address", served.address(), "--json", "-"});
  EXPECT_EQ(again.Wait(), 0) << again.stderr_text();
  const json done = json::parse(again.stdout_text(), nullptr, /*allow_exceptions=*/false);
  EXPECT_EQ(done["command"], "tree set");
  EXPECT_EQ(done["version"], 3);
  EXPECT_EQ(done["version_before"], 2);
  EXPECT_EQ(Shown(served)["text"], before["text"]);
}

TEST_F(TreeOfTheProgram, ThatIsWrongIsRefusedWithItsPlace) {
  ServedProgram served(model_, {"--max-rows", "4", "--allow-attention-trees"});
  ASSERT_TRUE(served.ready());
  const json before = Shown(served);
  const auto refused = [&](const std::string& file, const std::string& says) {
    ExpectRefused({"tree", "set", file, "--address", served.address()}, 1, says);
  };
  refused(Write("wrong.json", kWrongLeaf),
          "SetAttentionTree: attention tree: batch: leaf \"all\": leaf_overhead is 7; allowed: ");
  refused(Write("rows.json", kOtherRows), "its part about rows is another than that in force");
  refused(Write("empty.json", "{}"), "attention tree: schema: got nothing");
  refused(Write("bytes.json", "{\"\xff\": 1}"), "bytes.json: got bytes that are no UTF-8");
  refused(Write("large.json", std::string(100 << 10, ' ')),
          "large.json: got 102400 bytes, allowed: at most 65536");
  refused("/no/such/tree.json", "attention tree: cannot read \"/no/such/tree.json\"");
  const json after = Shown(served);
  EXPECT_EQ(after["version"], 1);
  EXPECT_EQ(after["text"], before["text"]);
}

// Whoever may administer a server without identities otherwise may not do this.
TEST_F(TreeOfTheProgram, IsForServersThatAllowIt) {
  ServedProgram served(model_, {"--max-rows", "4", "--allow-administration"});
  ASSERT_TRUE(served.ready());
  const std::string file = Write("two.json", kTwoLeaves);
  ExpectRefused({"tree", "set", file, "--address", served.address()}, 1, "--allow-attention-trees");
  EXPECT_EQ(Shown(served)["version"], 1);
}

TEST_F(TreeOfTheProgram, IsRefusedForWrongUsage) {
  const std::string file = Write("two.json", kTwoLeaves);
  ExpectRefused({"tree", "set"}, 2, "FILE");
  ExpectRefused({"tree", "set", ""}, 2, "FILE: got \"\", allowed: its name");
  ExpectRefused({"tree", "set", file, "another.json"}, 2, "unknown argument \"another.json\"");
  ExpectRefused({"tree", "set", file, "--json", file}, 2, "which is read (FILE)");
  ExpectRefused({"tree", "put", file}, 2, "reprise tree: unknown command \"put\"");
  ExpectRefused({"tree", "show", "--addres", "unix:/a"}, 2, "did you mean \"--address\"?");
  ExpectRefused({"tree", "show", "--address", "nowhere"}, 2, "--address: got \"nowhere\"");
  ExpectRefused({"tree", "show", "--address", "unix:" + directory_.path() + "/none"}, 1,
                "cannot connect to");
}

}  // namespace
}  // namespace reprise::testing
