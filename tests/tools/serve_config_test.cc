// SPDX-License-Identifier: Apache-2.0
// What `reprise serve --config` would say of a file that another command is about to write.
#include "tools/serve_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/testing/status_matchers.h"
#include "tests/testing/tiny_model.h"
#include "tools/cli.h"

namespace reprise::tools {
namespace {

using ::reprise::testing::StatusIs;

absl::Status Check(const std::string& text) {
  return CheckServeConfig("serve.toml", text).status();
}

TEST(CheckServeConfig, TakesWhatAServerStartsWith) {
  for (const char* text :
       {"", "decode-buckets = \"1,256\"\nmixed-buckets = \"65536\"\n",
        "max-rows = 8 # few\ndecode-buckets = \"1,3,8\"\nlisten = [\"unix:/a\", \"127.0.0.1:0\"]\n",
        "preset = \"llama-3.1-8b\"\nmax-context = 4096\ndevice = \"cuda\"\n",
        // On the machine of the server.
        "model = \"/no/such/model\"\nmax-context = 4096\n",
        // What the command line may complete.
        "device = \"sim\"\n", "tls-key = \"a\"\n", "export-space = \"1MiB\"\n"}) {
    EXPECT_OK(Check(text)) << text;
  }
}

TEST(CheckServeConfig, TellsHowManyRowsTheServerHas) {
  ASSERT_OK_AND_ASSIGN(const ServeConfig few, CheckServeConfig("serve.toml", "max-rows = 12\n"));
  EXPECT_EQ(few.max_rows, 12u);
  EXPECT_TRUE(few.has_max_rows);
  ASSERT_OK_AND_ASSIGN(const ServeConfig defaults, CheckServeConfig("serve.toml", ""));
  EXPECT_EQ(defaults.max_rows, 256u);
  EXPECT_FALSE(defaults.has_max_rows);
}

TEST(CheckServeConfig, RefusesBucketsByTheFilesOwnSettings) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"max-rows = 8\ndecode-buckets = \"1,9\"\n",
       "serve.toml: decode-buckets: decode bucket is 9; allowed: 1 to 8, which is its max-rows"},
      {"decode-buckets = \"257\"\n",
       "serve.toml: decode-buckets: decode bucket is 257; allowed: 1 to 256, as long as it sets no "
       "max-rows"},
      {"mixed-buckets = \"64,65537\"\n",
       "serve.toml: mixed-buckets: mixed bucket is 65537; allowed: 1 to 65536"}};
  for (const auto& [text, says] : cases)
    EXPECT_THAT(Check(text), StatusIs(absl::StatusCode::kFailedPrecondition, says)) << text;
}

TEST(CheckServeConfig, RefusesWhatAServerRefuses) {
  const testing::TemporaryDirectory directory;
  const auto model = testing::WriteTinyModel({}, directory.path() + "/tiny");
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\nmax-row = 8\n", "serve.toml:2: unknown key \"max-row\"; did you mean \"max-rows\"?"},
      {"max-rows = 0\n", "serve.toml:1: max-rows: got \"0\", allowed: a whole number from 1"},
      {"max-rows = 8\nmax-rows = 8\n", "serve.toml:2: max-rows: got it again, first in line 1"},
      {"config = \"a\"\n", "serve.toml:1: unknown key \"config\""},
      {"model = \"a\"\npreset = \"llama-3.1-8b\"\n",
       "serve.toml: model: got both --model and --preset"},
      {"preset = \"llama-3.1-8b\"\nmax-context = 1000000000\n",
       "serve.toml: max_context_length is 1000000000; allowed: 1 to "},
      {"model = \"" + *model + "\"\nmax-context = 1000000000\n",
       "serve.toml: max_context_length is 1000000000; allowed: 1 to "}};
  for (const auto& [text, says] : cases) {
    const absl::Status status = Check(text);
    EXPECT_TRUE(IsUsageError(status)) << text;
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, says)) << text;
  }
}

}  // namespace
}  // namespace reprise::tools
