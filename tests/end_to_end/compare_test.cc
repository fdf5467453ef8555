// SPDX-License-Identifier: Apache-2.0
// `reprise compare` as users run it, over profiles that were just measured: exit codes, tables, and
// JSON against the schema.
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/bench_program.h"
#include "tests/end_to_end/program.h"
#include "tests/testing/json_schema.h"

namespace reprise::testing {
namespace {

using ::nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CompareProgram : public BenchProgramTest {
 protected:
  json Measured() {
    const auto model = WriteTinyModel({}, directory_.path() + "/tiny");
    EXPECT_TRUE(model.ok()) << model.status();
    return RunBench({"profile", "--model",         *model, "--device",
                     "host",    "--block-size",    "4",    "--rows",
                     "1,2",     "--contexts",      "40",   "--max-rows",
                     "8",       "--mixed-buckets", "16",   "--iterations",
                     "30",      "--warmup",        "2",    "--bandwidth-bytes",
                     "1MiB"});
  }
  std::string Write(const std::string& name, const json& value) {
    std::ofstream(File(name)) << value.dump();
    return File(name);
  }
};

// The same steps, each of which takes `us` and up to 1 % more, as on a machine that nobody else
// uses.
json Steady(json profile, int64_t us) {
  for (json& point : profile["points"]) {
    for (json& series : point["samples_ns"]) {
      for (json& round : series) {
        for (size_t i = 0; i < round.size(); ++i)
          round[i] = us * 1000 + static_cast<int64_t>(i % 6) * us * 2;
      }
    }
  }
  return profile;
}

TEST_F(CompareProgram, TellsARegressionByItsExitCode) {
  const json measured = Measured();
  const std::string before = Write("before.json", Steady(measured, 100));
  const std::string after = Write("after.json", Steady(measured, 150));
  Program same({"compare", before, before, "--json", File("same.json")});
  EXPECT_EQ(same.Wait(), 0) << same.stderr_text();
  EXPECT_THAT(same.stdout_text(), HasSubstr("no difference shown"));
  EXPECT_THAT(same.stdout_text(), HasSubstr("kernels: no difference shown"));
  Program slower({"compare", before, after, "--json", File("slower.json")});
  EXPECT_EQ(slower.Wait(), 3);
  EXPECT_THAT(slower.stderr_text(), HasSubstr("reprise compare: 1@40: replay is slower by 50.0 %"));
  EXPECT_EQ(RunProgram({"compare", before, after, "--threshold", "60%"}), 0);
  EXPECT_EQ(RunProgram({"compare", after, before}), 0);
  for (const char* name : {"same.json", "slower.json"}) {
    const json written = json::parse(ReadTextFile(File(name)));
    EXPECT_THAT(SchemaErrors(SchemaNamed("compare"), written), IsEmpty()) << name;
    EXPECT_EQ(written["points"].size(), 2u);
    EXPECT_EQ(written["regressions"].empty(), std::string(name) == "same.json");
  }
}

TEST_F(CompareProgram, RefusesWhatItCannotCompare) {
  const std::string before = Write("before.json", Measured());
  const std::string other = Write("other.json", {{"schema", "reprise.run/1"}});
  struct Refusal {
    std::vector<std::string> arguments;
    int exit_code;
    std::string says;
  };
  const std::vector<Refusal> refusals = {
      {{before}, 2, "B is required"},
      {{before, "/no/such/file"}, 1, "/no/such/file"},
      {{before, directory_.path()}, 1, directory_.path()},
      {{before, other}, 1, "other.json: schema: got \"reprise.run/1\", allowed reprise.profile/1"},
      {{before, before, "--threshold", "2"}, 2, "--threshold: got \"2\", allowed: 0% to 1000%"},
      {{before, before, "--threshold", "-1%"}, 2, "--threshold: got \"-1%\""},
      {{before, before, "--confidence", "1"}, 2, "--confidence: got \"1\""},
      {{before, before, "--json", "/no/such/dir/a.json"}, 1, "cannot write"},
      {{before, other, "--json", other},
       2,
       "other.json\", which is read (B), allowed: another file"},
  };
  for (const Refusal& refusal : refusals) {
    std::vector<std::string> arguments = {"compare"};
    arguments.insert(arguments.end(), refusal.arguments.begin(), refusal.arguments.end());
    Program program(arguments);
    EXPECT_EQ(program.Wait(), refusal.exit_code) << refusal.says;
    EXPECT_THAT(program.stderr_text(), HasSubstr(refusal.says));
    EXPECT_THAT(program.stdout_text(), IsEmpty());
  }
}

}  // namespace
}  // namespace reprise::testing
