// SPDX-License-Identifier: Apache-2.0
#include "tools/outputs.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/tiny_model.h"
#include "tools/cli.h"

namespace reprise::tools {
namespace {

using ::testing::IsEmpty;
using ::testing::StrEq;

// "" where they are taken.
std::string RefusalOf(const std::vector<NamedFile>& outputs,
                      const std::vector<NamedFile>& inputs = {}) {
  const absl::Status status = CheckOutputs(outputs, inputs);
  EXPECT_EQ(IsUsageError(status), !status.ok());
  return std::string(status.message());
}

class Outputs : public ::testing::Test {
 protected:
  std::string File(const std::string& name) const { return directory_.path() + "/" + name; }

  testing::TemporaryDirectory directory_;
};

TEST_F(Outputs, OfOneFileAreRefusedByTheNamesOfBoth) {
  EXPECT_THAT(RefusalOf({{"--json", "o"}, {"--svg", "p"}, {"--csv", "o"}}),
              StrEq("--csv: got \"o\", and so does --json, allowed: another file"));
  EXPECT_THAT(RefusalOf({{"--csv", "q"}}, {{"A", "p"}, {"B", "q"}}),
              StrEq("--csv: got \"q\", which is read (B), allowed: another file"));
  EXPECT_THAT(RefusalOf({{"--json", "o"}, {"--csv", "p"}}, {{"A", "q"}, {"B", "q"}}), IsEmpty());
  EXPECT_THAT(RefusalOf({{"--json", ""}, {"--csv", ""}}, {{"A", ""}}), IsEmpty());
}

TEST_F(Outputs, AreOneFileByAnyPath) {
  std::filesystem::create_directory(File("a"));
  std::filesystem::create_directory_symlink(File("a"), File("b"));
  for (const std::string& other : {File("./o"), File("a/../o"), File("a/../a//../o")})
    EXPECT_NE(RefusalOf({{"--json", File("o")}, {"--csv", other}}), "") << other;
  EXPECT_NE(RefusalOf({{"--json", File("a/o")}, {"--csv", File("b/o")}}), "");
  EXPECT_NE(RefusalOf({{"--json", "o"}, {"--csv", std::filesystem::absolute("o")}}), "");
  EXPECT_EQ(RefusalOf({{"--json", File("a/o")}, {"--csv", File("o")}}), "");
}

TEST_F(Outputs, AreOneFileByLinks) {
  std::ofstream(File("q")) << "x";
  std::ofstream(File("r")) << "x";
  std::filesystem::create_symlink(File("q"), File("symbolic"));
  std::filesystem::create_hard_link(File("q"), File("hard"));
  for (const char* name : {"symbolic", "hard"}) {
    EXPECT_NE(RefusalOf({{"--json", File(name)}}, {{"PROFILE", File("q")}}), "") << name;
    EXPECT_NE(RefusalOf({{"--json", File("q")}, {"--csv", File(name)}}), "") << name;
    EXPECT_EQ(RefusalOf({{"--json", File(name)}}, {{"PROFILE", File("r")}}), "") << name;
  }
}

TEST_F(Outputs, MayLieInAModelsDirectoryButAreNoPartOfIt) {
  std::filesystem::create_directory(File("m"));
  std::filesystem::create_directory(File("blobs"));
  std::ofstream(File("m/config.json")) << "{}";
  std::ofstream(File("m/hf_quant_config.json")) << "{}";
  std::ofstream(File("blobs/w")) << "x";
  std::filesystem::create_symlink(File("blobs/w"), File("m/model.safetensors"));
  const std::vector<NamedFile> model = {{"--model", File("m")}};
  for (const char* name : {"m/config.json", "m/../m/config.json", "m/hf_quant_config.json",
                           "m/model.safetensors", "blobs/w"})
    EXPECT_THAT(RefusalOf({{"--json", File(name)}}, model),
                ::testing::HasSubstr("which is read (--model), allowed: another file"))
        << name;
  for (int run = 0; run < 2; ++run) {
    EXPECT_THAT(RefusalOf({{"--json", File("m/result.json")}}, model), IsEmpty());
    std::ofstream(File("m/result.json")) << "{}";
  }
  EXPECT_THAT(RefusalOf({{"--json", File("blobs/new")}}, {{"--model", File("none")}}), IsEmpty());
}

TEST_F(Outputs, AreStdoutOnceAndNeverTheStdinThatIsRead) {
  EXPECT_THAT(RefusalOf({{"--json", "-"}, {"--csv", "-"}}),
              StrEq("--csv: got \"-\", and so does --json, allowed: one of them"));
  EXPECT_THAT(RefusalOf({{"--json", "-"}, {"--csv", "./-"}}, {{"--prompts-file", "-"}}), IsEmpty());
}

TEST_F(Outputs, OfADeviceAreTaken) {
  EXPECT_THAT(RefusalOf({{"--json", "/dev/null"}, {"--csv", "/dev/null"}}, {{"A", "/dev/null"}}),
              IsEmpty());
}

TEST_F(Outputs, OfAnAppAreThoseOfItsOptionsAndArguments) {
  const auto refusal = [](const std::string& line) {
    CLI::App app;
    std::string unused;
    std::vector<std::string> files;
    app.add_option("PROFILE", unused)->type_name("");
    for (const char* name : {"--model", "MODEL_DIR"})
      app.add_option(name, unused)->type_name("DIR");
    app.add_option("--recorded", files)->type_name("FILE,...")->delimiter(',');
    app.add_option("--prompt", unused)->type_name("TEXT");
    for (const char* name : {"--json", "--csv"}) app.add_option(name, unused)->type_name("FILE");
    app.parse(line);
    return std::string(CheckOutputsOf(app).message());
  };
  EXPECT_THAT(refusal("a --json o --csv o"),
              StrEq("--csv: got \"o\", and so does --json, allowed: another file"));
  EXPECT_THAT(refusal("a --csv a"),
              StrEq("--csv: got \"a\", which is read (PROFILE), allowed: another file"));
  EXPECT_THAT(refusal("a --recorded b,c --json c"),
              StrEq("--json: got \"c\", which is read (--recorded), allowed: another file"));
  EXPECT_THAT(refusal("a --model o --json o"),
              StrEq("--json: got \"o\", which is read (--model), allowed: another file"));
  EXPECT_THAT(refusal("a o --json o"),
              StrEq("--json: got \"o\", which is read (MODEL_DIR), allowed: another file"));
  EXPECT_THAT(refusal("a --prompt o --json o --csv p"), IsEmpty());
}

}  // namespace
}  // namespace reprise::tools
