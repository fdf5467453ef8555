// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/result_lines.h"

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/tiny_model.h"

namespace reprise::tools {
namespace {

using ::testing::ElementsAre;

TEST(ResultLines, HasWhatFinishedInThatOrderAndTheRestAtTheEnd) {
  testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/results.jsonl";
  Console console;
  auto file = RecordLines::Open(path, &console);
  ASSERT_TRUE(file.ok()) << file.status();
  ResultLines lines(*std::move(file), /*byte_tokens=*/true);
  std::vector<Request> requests(3);
  for (uint32_t i = 0; i < 3; ++i) requests[i].id = i + 1;
  requests[2].finish = FinishReason::kLength;
  requests[2].tokens = {'a', 'b'};
  requests[2].arrival_ns = 1'000'000;
  requests[2].token_times_ns = {3'000'000, 8'000'000};
  lines.Add(requests[2]);
  requests[0].finish = FinishReason::kNoCandidate;
  requests[0].error = "why";
  lines.Add(requests[0]);
  ASSERT_TRUE(lines.Close(requests).ok());

  std::vector<uint32_t> ids;
  std::vector<std::string> finishes;
  std::ifstream written(path);
  for (std::string line; std::getline(written, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(json.is_object()) << line;
    ids.push_back(json["id"]);
    finishes.push_back(json["finish"]);
    if (json["id"] != 3) continue;
    EXPECT_EQ(json["text"], "ab");
    EXPECT_DOUBLE_EQ(json["ttft_ms"], 2.0);
    EXPECT_DOUBLE_EQ(json["latency_ms"], 7.0);
  }
  EXPECT_THAT(ids, ElementsAre(3, 1, 2));
  EXPECT_THAT(finishes, ElementsAre("length", "error", "none"));
}

}  // namespace
}  // namespace reprise::tools
