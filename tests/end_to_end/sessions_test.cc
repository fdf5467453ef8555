// SPDX-License-Identifier: Apache-2.0
// `reprise sessions` as administrators see it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/end_to_end/program.h"

namespace reprise::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class SessionsOfTheProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model = WriteTinyModel({}, directory_.path() + "/tiny");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
  }
  static json List(const ServedProgram& served) {
    Program list({"sessions", "list", "--address", served.address(), "--json", "-"});
    EXPECT_EQ(list.Wait(), 0) << list.stderr_text();
    return json::parse(list.stdout_text())["sessions"];
  }
  TemporaryDirectory directory_;
  std::string model_;
};

TEST_F(SessionsOfTheProgram, AreListedAndEvicted) {
  ServedProgram served(model_, {"--max-rows", "4", "--allow-administration"});
  ASSERT_TRUE(served.ready());
  Program none({"sessions", "list", "--address", served.address()});
  EXPECT_EQ(none.Wait(), 0);
  EXPECT_EQ(none.stdout_text(), "no sessions are open\n");
  EXPECT_TRUE(List(served).empty());
  // More requests than it will live to see answered.
  Program client({"sched", "--address", served.address(), "--random-prompts", "8", "--requests",
                  "100000", "--max-new-tokens", "8", "--ignore-eos"});
  json sessions;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (sessions.empty() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    sessions = List(served);
  }
  ASSERT_EQ(sessions.size(), 1u) << client.stderr_text();
  EXPECT_EQ(sessions[0]["attached"], true);
  EXPECT_EQ(sessions[0]["identity"], "");
  const std::string id = sessions[0]["id"].dump();
  Program shown({"sessions", "list", "--address", served.address()});
  EXPECT_EQ(shown.Wait(), 0);
  EXPECT_THAT(shown.stdout_text(), HasSubstr("attached"));
  Program evict(
      {"sessions", "evict", id, "--reason", "maintenance at noon", "--address", served.address()});
  EXPECT_EQ(evict.Wait(), 0) << evict.stderr_text();
  EXPECT_EQ(evict.stdout_text(), "session " + id + " is evicted\n");
  EXPECT_EQ(client.Wait(), 1);
  EXPECT_THAT(client.stderr_text(), HasSubstr("maintenance at noon"));
  EXPECT_TRUE(List(served).empty());
  Program again({"sessions", "evict", id, "--address", served.address()});
  EXPECT_EQ(again.Wait(), 1);
  EXPECT_THAT(again.stderr_text(), HasSubstr("none that is open"));
}

TEST_F(SessionsOfTheProgram, AreForAdministrators) {
  ServedProgram served(model_, {"--max-rows", "4"});
  ASSERT_TRUE(served.ready());
  Program list({"sessions", "list", "--address", served.address()});
  EXPECT_EQ(list.Wait(), 1);
  EXPECT_THAT(list.stderr_text(), HasSubstr("--allow-administration"));
  Program nobody({"sessions", "evict", "--address", served.address()});
  EXPECT_EQ(nobody.Wait(), 2);
}

}  // namespace
}  // namespace reprise::testing
