// SPDX-License-Identifier: Apache-2.0
// `reprise health --json`: what it says of a server that is ready, and of none.
#include <string>

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
using ::testing::Not;

TEST(HealthJson, SaysThatAServerIsReady) {
  ServedProgram served(ShippedModel());
  ASSERT_TRUE(served.ready());
  Program health({"health", "--address", served.address(), "--json", "-"});
  EXPECT_EQ(health.Wait(), 0);
  const json answer = json::parse(health.stdout_text(), nullptr, false);
  EXPECT_THAT(SchemaErrors(SchemaNamed("health"), answer), IsEmpty());
  EXPECT_EQ(answer["status"], "SERVING");
  EXPECT_EQ(answer["address"], served.address());
  EXPECT_EQ(answer["error"], nullptr);
  EXPECT_THAT(health.stderr_text(), HasSubstr("SERVING on "));
}

TEST(HealthJson, SaysThatNobodyAnswers) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() + "/a.json";
  Program health(
      {"health", "--address", "unix:" + directory.path() + "/none.sock", "--json", file});
  EXPECT_EQ(health.Wait(), 1);
  const json answer = json::parse(ReadTextFile(file), nullptr, false);
  EXPECT_THAT(SchemaErrors(SchemaNamed("health"), answer), IsEmpty());
  EXPECT_THAT(SchemaErrors(SchemaNamed("health"), json::object()), Not(IsEmpty()));
  EXPECT_EQ(answer["status"], "UNREACHABLE");
  EXPECT_THAT(answer["error"].get<std::string>(), HasSubstr("none.sock"));
}

}  // namespace
}  // namespace reprise::testing
