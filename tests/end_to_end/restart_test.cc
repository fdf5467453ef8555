// SPDX-License-Identifier: Apache-2.0
// A server that is killed while it works, and started again where it was: what it left behind is in
// nobody's way, and the reference scheduler finishes every request over the next server with the
// tokens that it would have had.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/program.h"
#include "tests/service/served_model.h"

namespace reprise::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// Thousands of steps, so that a server is gone long before the last one.
constexpr int kRequests = 800;

class Restart : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model = WriteTinyModel({}, directory_.path() + "/tiny");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
  }
  std::string Path(const std::string& name) const { return directory_.path() + "/" + name; }
  std::string address() const { return "unix:" + Path("s"); }
  std::vector<std::string> Serve(const std::string& kv_cache = "1MiB") const {
    return {"serve",         "--model",
            model_,          "--device",
            "host",          "--listen",
            address(),       "--record",
            Path("records"), "--allow-administration",
            "--kv-cache",    kv_cache,
            "--max-rows",    "8"};
  }
  std::vector<std::string> Sched(const std::string& reopen, int requests = kRequests) const {
    return {"sched",
            "--address",
            address(),
            "--prompt-lengths",
            "3..40",
            "--requests",
            std::to_string(requests),
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
            "500ms",
            "--reopen",
            reopen};
  }
  // Of every request of a run that ends well.
  json TokensOf(Program* sched) const {
    EXPECT_EQ(sched->Wait(), 0) << sched->stderr_text();
    const json outcome = json::parse(ReadTextFile(Path("json")), nullptr, false);
    json tokens;
    EXPECT_EQ(outcome["requests"].size(), size_t{kRequests});
    for (const json& request : outcome["requests"]) {
      EXPECT_EQ(request["tokens"].size(), 30u);
      tokens.push_back(request["tokens"]);
    }
    return tokens;
  }
  // Waits until the session has had that many requests answered, and says its id; "": it has not.
  std::string IdUnderLoad(uint64_t requests) const {
    const auto stub = v1::StepService::NewStub(
        grpc::CreateChannel(address(), grpc::InsecureChannelCredentials()));
    std::string id;
    service::Eventually([&] {
      grpc::ClientContext context;
      v1::ListSessionsResponse listed;
      if (!stub->ListSessions(&context, {}, &listed).ok()) return false;
      for (const v1::SessionStatus& session : listed.sessions())
        if (session.requests() > requests) id = std::to_string(session.id());
      return !id.empty();
    });
    return id;
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
    Program sched(Sched("0"));
    expected = TokensOf(&sched);
    serve.Signal(SIGTERM);
    ASSERT_EQ(serve.Wait(), 0);
  }
  for (const uint64_t requests : {1, 20, 200}) {
    SCOPED_TRACE(requests);
    Program serve(Serve());
    ASSERT_TRUE(serve.AwaitOutput("serving on")) << serve.stderr_text();
    Program sched(Sched("30s"));
    ASSERT_NE(IdUnderLoad(requests), "");
    serve.Signal(SIGKILL);
    EXPECT_EQ(serve.Wait(), 128 + SIGKILL);
    ASSERT_TRUE(std::filesystem::exists(Path("s")));  // what it left behind
    Program again(Serve());
    ASSERT_TRUE(again.AwaitOutput("serving on")) << again.stderr_text();
    EXPECT_EQ(TokensOf(&sched), expected);
    EXPECT_THAT(sched.stderr_text(), HasSubstr("opened another session"));
    again.Signal(SIGTERM);
    EXPECT_EQ(again.Wait(), 0);
  }
}

// A server that stops says so, and the one behind it is asked.
TEST_F(Restart, AfterAStopUnderLoadEveryRequestIsFinished) {
  std::filesystem::create_directory(Path("records"));
  Program serve(Serve());
  ASSERT_TRUE(serve.AwaitOutput("serving on")) << serve.stderr_text();
  Program straight(Sched("0"));
  const json expected = TokensOf(&straight);
  Program sched(Sched("30s"));
  ASSERT_NE(IdUnderLoad(20), "");
  serve.Signal(SIGTERM);
  EXPECT_EQ(serve.Wait(), 0);
  Program again(Serve());
  ASSERT_TRUE(again.AwaitOutput("serving on")) << again.stderr_text();
  EXPECT_EQ(TokensOf(&sched), expected);
  EXPECT_THAT(sched.stderr_text(), HasSubstr("opened another session"));
}

class NotReopened : public Restart {
 protected:
  void SetUp() override {
    Restart::SetUp();
    std::filesystem::create_directory(Path("records"));
    serve_ = std::make_unique<Program>(Serve());
    ASSERT_TRUE(serve_->AwaitOutput("serving on")) << serve_->stderr_text();
  }
  void Kill() {
    serve_->Signal(SIGKILL);
    EXPECT_EQ(serve_->Wait(), 128 + SIGKILL);
  }
  void ExpectFails(Program* sched, const std::string& why) {
    EXPECT_EQ(sched->Wait(), 1);
    EXPECT_THAT(sched->stderr_text(), HasSubstr(why));
    EXPECT_THAT(sched->stderr_text(), Not(HasSubstr("opened another session")));
    const json outcome = json::parse(ReadTextFile(Path("json")), nullptr, false);
    EXPECT_GT(outcome["requests"][0]["tokens"].size(), 0u) << "what it had";
  }
  std::unique_ptr<Program> serve_;
};

TEST_F(NotReopened, ASessionThatAnAdministratorEvicts) {
  Program sched(Sched("30s", 4000));
  const std::string id = IdUnderLoad(20);
  Program evict({"sessions", "evict", id, "--address", address()});
  EXPECT_EQ(evict.Wait(), 0) << evict.stderr_text();
  ExpectFails(&sched, "ended the session");
}

TEST_F(NotReopened, ASessionOfASchedulerThatIsToldNotTo) {
  Program sched(Sched("0", 4000));
  ASSERT_NE(IdUnderLoad(20), "");
  Kill();
  ExpectFails(&sched, "it was not resumed");
}

TEST_F(NotReopened, ASessionWhoseServerStaysAway) {
  Program sched(Sched("800ms", 4000));
  ASSERT_NE(IdUnderLoad(20), "");
  Kill();
  ExpectFails(&sched, "no other session was opened");
}

TEST_F(NotReopened, ASessionWhereAnotherServerComesBack) {
  Program sched(Sched("30s", 4000));
  ASSERT_NE(IdUnderLoad(20), "");
  Kill();
  Program other(Serve("512KiB"));
  ASSERT_TRUE(other.AwaitOutput("serving on")) << other.stderr_text();
  ExpectFails(&sched, "differs in pool.num_blocks");
}

}  // namespace
}  // namespace reprise::testing
