// SPDX-License-Identifier: Apache-2.0
// A server whose wall clock jumps: leases, grace times, deadlines and steps go by a clock that does
// not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "tests/end_to_end/program.h"
#include "tests/service/served_model.h"

namespace reprise::testing {
namespace {

using service::Eventually;
using service::OpenWithGrace;
using service::ResumeOf;
using service::StreamClient;
using std::chrono::milliseconds;

constexpr int64_t kYear = 365 * 24 * 3600;
constexpr uint32_t kRow = 1;
const std::vector<uint32_t> kPrompt = {5, 80, 33, 12, 96};

class ClockJumps : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model = WriteTinyModel({}, directory_.path() + "/tiny");
    ASSERT_TRUE(model.ok()) << model.status();
    Jump(0);
    setenv("REPRISE_CLOCK_OFFSET_FILE", OffsetFile().c_str(), 1);
    setenv("LD_PRELOAD", REPRISE_CLOCK_JUMPS, 1);
    served_ = std::make_unique<ServedProgram>(
        *model, std::vector<std::string>{"--block-size", "4", "--idle-timeout", "1h",
                                         "--allow-administration", "--access-log",
                                         directory_.path() + "/log"});
    unsetenv("LD_PRELOAD");
    unsetenv("REPRISE_CLOCK_OFFSET_FILE");
    ASSERT_TRUE(served_->ready());
  }
  std::string OffsetFile() const { return directory_.path() + "/offset"; }
  // In place: the server has the file mapped.
  void Jump(int64_t seconds) {
    std::ofstream file(OffsetFile(), std::ios::binary | std::ios::in | std::ios::out);
    if (!file) file.open(OffsetFile(), std::ios::binary | std::ios::out);
    file.write(reinterpret_cast<const char*>(&seconds), sizeof(seconds));
  }
  std::shared_ptr<grpc::Channel> NewChannel() const {
    return grpc::CreateChannel(served_->address(), grpc::InsecureChannelCredentials());
  }
  grpc::Status Step(StreamClient& client, uint64_t sequence) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    v1::StepRequest step;
    step.set_session(client.session());
    step.set_sequence(sequence);
    step.set_continue_all(true);
    v1::StepResponse response;
    return client.stub().Step(&context, step, &response);
  }
  TemporaryDirectory directory_;
  std::unique_ptr<ServedProgram> served_;
};

TEST_F(ClockJumps, SessionsAndStepsDoNotNotice) {
  auto client = std::make_unique<StreamClient>(NewChannel(), OpenWithGrace(20000));
  client->StartRow(kRow, kPrompt, 64);
  const std::string session = client->session();
  uint64_t sequence = 1;
  for (const int64_t jump : {kYear, -10 * kYear, 10 * kYear, int64_t{0}, -kYear}) {
    SCOPED_TRACE(jump);
    Jump(jump);
    service::Continue(*client, kRow, 2);
    sequence += 2;
    // With a deadline, which is a time of the wall clock to gRPC's users.
    const grpc::Status stepped = Step(*client, ++sequence);
    EXPECT_TRUE(stepped.ok()) << stepped.error_message();
    // Lost, detached for a while in which the clock jumps, and found again.
    client->Cancel();
    Jump(-jump);
    std::this_thread::sleep_for(milliseconds(300));
    client = std::make_unique<StreamClient>(NewChannel(), ResumeOf(session, sequence - 1));
    ASSERT_TRUE(client->opened());
    client->SetNextSequence(sequence + 1);
  }
  // It is the server's clock that has jumped.
  std::string log = ReadTextFile(directory_.path() + "/log");
  const std::string year = std::to_string(1970 +
                                          std::chrono::duration_cast<std::chrono::hours>(
                                              std::chrono::system_clock::now().time_since_epoch())
                                                  .count() /
                                              24 / 365 +
                                          9);
  EXPECT_NE(log.find("\"" + year.substr(0, 3)), std::string::npos);
  EXPECT_TRUE(client->Finish().ok());
  served_->program().Signal(SIGTERM);
  EXPECT_EQ(served_->program().Wait(), 0);
}

TEST_F(ClockJumps, AGraceTimeEndsWhereTheClockIsSetBack) {
  StreamClient client(NewChannel(), OpenWithGrace(300));
  ASSERT_TRUE(client.opened());
  client.Cancel();
  Jump(-kYear);
  const auto begin = std::chrono::steady_clock::now();
  const auto stub = v1::StepService::NewStub(NewChannel());
  EXPECT_TRUE(Eventually([&] {
    grpc::ClientContext context;
    v1::ListSessionsResponse listed;
    return stub->ListSessions(&context, {}, &listed).ok() && listed.sessions().empty();
  }));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

}  // namespace
}  // namespace reprise::testing
