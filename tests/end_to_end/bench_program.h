// SPDX-License-Identifier: Apache-2.0
// What tests of `reprise bench` have in common: a run of the program, and its JSON.
#ifndef REPRISE_TESTS_END_TO_END_BENCH_PROGRAM_H_
#define REPRISE_TESTS_END_TO_END_BENCH_PROGRAM_H_

#include <chrono>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/program.h"
#include "tests/testing/source_dir.h"

namespace reprise::testing {

// docs/<name>.schema.json.
inline nlohmann::json SchemaNamed(const std::string& name) {
  return nlohmann::json::parse(
      ReadTextFile(testing::SourceDir() + "/docs/" + name + ".schema.json"));
}

class BenchProgramTest : public ::testing::Test {
 protected:
  // In a directory of the test's own.
  std::string File(const std::string& name) const { return directory_.path() + "/" + name; }
  // The record of a run that succeeds. text: its tables.
  nlohmann::json RunBench(std::vector<std::string> arguments, std::string* text = nullptr) {
    arguments.insert(arguments.end(), {"--json", File("bench.json")});
    Program program(arguments);
    EXPECT_EQ(program.Wait(std::chrono::seconds(120)), 0) << program.stderr_text();
    if (text != nullptr) *text = program.stdout_text();
    return nlohmann::json::parse(ReadTextFile(File("bench.json")), nullptr,
                                 /*allow_exceptions=*/false);
  }

  TemporaryDirectory directory_;
};

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_END_TO_END_BENCH_PROGRAM_H_
