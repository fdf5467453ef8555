// SPDX-License-Identifier: Apache-2.0
// A server that is killed while it works, and started again where it was: what it left behind is in
// nobody's way, its clients are told, and the reference scheduler finishes every request with the
// tokens that it would have had.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/end_to_end/program.h"

namespace reprise::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class Restart : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model = WriteTinyModel({}, directory_.path() + "/tiny");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
  }
  std::string Path(const std::string& name) const { return directory_.path() + "/" + name; }
  std::string address() const { return "unix:" + Path("s"); }
  std::vector<std::string> Serve() const {
    return {"serve",         "--model",
            model_,          "--device",
            "host",          "--listen",
            address(),       "--record",
            Path("records"), "--allow-administration",
            "--kv-cache",    "1MiB",
            "--max-rows",    "8"};
  }
  std::vector<std::string> Sched(const std::string& requests) const {
    return {"sched",
            "--address",
            address(),
            "--prompt-lengths",
            "3..40",
            "--requests",
            requests,
            "--max-new-tokens",
            "30",
            "--ignore-eos",
            "--seed",
            "7",
            "--temperature",
            "0.8",
            "--quiet",
            "--json",
            Path("json"),
            "--resume-grace",
            "500ms"};
  }
  // Of every request of a run that ends well.
  json Tokens() const {
    Program sched(Sched("24"));
    EXPECT_EQ(sched.Wait(), 0) << sched.stderr_text();
    const json outcome = json::parse(ReadTextFile(Path("json")));
    json tokens;
    for (const json& request : outcome["requests"]) {
      EXPECT_EQ(request["tokens"].size(), 30u);
      tokens.push_back(request["tokens"]);
    }
    return tokens;
  }
  // Waits until some session has had that many requests answered.
  bool IsUnderLoad(uint64_t requests) const {
    for (int i = 0; i < 500; ++i) {
      Program list({"sessions", "list", "--address", address(), "--json", "-"});
      if (list.Wait() == 0) {
        const json listed = json::parse(list.stdout_text());
        for (const json& session : listed["sessions"])
          if (session["requests"] > requests) return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  TemporaryDirectory directory_;
  std::string model_;
};

TEST_F(Restart, AfterAKillUnderLoadEveryRequestIsFinished) {
  std::filesystem::create_directory(Path("records"));
  json expected;
  {
    Program serve(Serve());
    ASSERT_TRUE(serve.AwaitOutput("serving on")) << serve.stderr_text();
    expected = Tokens();
    ASSERT_EQ(expected.size(), 24u);
    serve.Signal(SIGTERM);
    ASSERT_EQ(serve.Wait(), 0);
  }
  for (const uint64_t requests : {1, 20, 200}) {
    SCOPED_TRACE(requests);
    Program serve(Serve());
    ASSERT_TRUE(serve.AwaitOutput("serving on")) << serve.stderr_text();
    Program sched(Sched("4000"));
    ASSERT_TRUE(IsUnderLoad(requests));
    serve.Signal(SIGKILL);
    EXPECT_EQ(serve.Wait(), 128 + SIGKILL);
    ASSERT_TRUE(std::filesystem::exists(Path("s")));  // what it left behind
    EXPECT_EQ(sched.Wait(), 1);
    EXPECT_THAT(sched.stderr_text(), HasSubstr("it was not resumed"));
    Program again(Serve());
    ASSERT_TRUE(again.AwaitOutput("serving on")) << again.stderr_text();
    EXPECT_EQ(Tokens(), expected);
    again.Signal(SIGTERM);
    EXPECT_EQ(again.Wait(), 0);
  }
}

}  // namespace
}  // namespace reprise::testing
