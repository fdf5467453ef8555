// SPDX-License-Identifier: Apache-2.0
// Connections beyond what the server allows, floods of frames on those that it has, and running
// out of file descriptors: whoever behaves goes on undisturbed, and the listener comes back.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "service/transport/file_descriptor.h"
#include "tests/service/http2_client.h"
#include "tests/service/served_model.h"
#include "tests/service/tls_client.h"

namespace reprise::service {
namespace {

using ::testing::HasSubstr;

constexpr char kDescribe[] = "Describe";

// Restores the process's limit of file descriptors.
class DescriptorLimit {
 public:
  DescriptorLimit() { getrlimit(RLIMIT_NOFILE, &before_); }
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
  void Set(rlim_t soft) {
    rlimit limit = before_;
    limit.rlim_cur = soft;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }

 private:
  rlimit before_{};
};

// What the server's operator was told.
class Reports {
 public:
  std::function<void(const std::string&)> Sink() {
    return [this](const std::string& text) {
      std::lock_guard lock(mutex_);
      all_ += text + "\n";
    };
  }
  std::string All() {
    std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  std::mutex mutex_;
  std::string all_;
};

ServedModel::Options Connections(uint32_t in_all, uint32_t per_peer) {
  ServedModel::Options options;
  options.server.connections.max_connections = in_all;
  options.server.connections.max_connections_per_peer = per_peer;
  return options;
}

// One that has said hello, unless the server was faster to refuse it.
std::unique_ptr<Http2Client> Connected(const ServedModel& served) {
  auto client = std::make_unique<Http2Client>(served.address());
  EXPECT_TRUE(client->connected());
  client->Send(Http2Opening());
  return client;
}

class EveryAddress : public ::testing::TestWithParam<std::string> {
 protected:
  ServedModel::Options Listening(ServedModel::Options options) const {
    if (GetParam() == "Tcp") options.server.listen = {"127.0.0.1:0"};
    return options;
  }
};

TEST_P(EveryAddress, OneConnectionTooManyIsToldSoAndTheOthersGoOn) {
  Reports reports;
  ServedModel::Options options = Listening(Connections(8, 3));
  options.server.report = reports.Sink();
  ServedModel served(options);
  StreamClient client(served.NewChannel());
  std::vector<uint32_t> tokens = {client.StartRow(kRow, kPrompt, kMaxContext)};
  const auto second = Connected(served);
  auto third = Connected(served);
  for (int i = 0; i < 3; ++i) {
    const auto refused = Connected(served);
    EXPECT_TRUE(refused->AwaitEnd());
    EXPECT_THAT(refused->received(), HasSubstr("got one more with 3 open, allowed 3"));
  }
  // gRPC's own clients say it too.
  const grpc::Status told = CallWithBytes(served.NewChannel(), kDescribe, "");
  EXPECT_EQ(told.error_code(), grpc::StatusCode::UNAVAILABLE);
  for (const uint32_t token : Continue(client, kRow, 5)) tokens.push_back(token);
  EXPECT_EQ(tokens, served.Reference(kPrompt, tokens.size()));
  third->Close();
  EXPECT_TRUE(Eventually([&] { return CallWithBytes(served.NewChannel(), kDescribe, "").ok(); }));
  EXPECT_TRUE(Eventually([&] { return !reports.All().empty(); }));
  EXPECT_THAT(reports.All(), HasSubstr("connections refused: "));
}

INSTANTIATE_TEST_SUITE_P(, EveryAddress, ::testing::Values("Unix", "Tcp"),
                         [](const auto& info) { return info.param; });

TEST(Connections, ThatComeAndGoTakeNothingFromThoseThatStay) {
  ServedModel::Options options;
  options.server.listen = {"127.0.0.1:0"};
  options.server.connections.max_connections = 20;
  ServedModel served(options);
  StreamClient client(served.NewChannel());
  std::vector<uint32_t> tokens = {client.StartRow(kRow, kPrompt, kMaxContext)};
  for (int i = 0; i < 200; ++i) Http2Client(served.address()).Close();
  for (const uint32_t token : Continue(client, kRow, 5)) tokens.push_back(token);
  EXPECT_EQ(tokens, served.Reference(kPrompt, tokens.size()));
  // Those that have gone are noticed a moment later.
  EXPECT_TRUE(Eventually([&] { return CallWithBytes(served.NewChannel(), kDescribe, "").ok(); }));
}

TEST(Connections, TheListenerComesBackWhenFileDescriptorsDo) {
  DescriptorLimit limit;
  limit.Set(400);
  ServedModel served;
  StreamClient client(served.NewChannel());
  std::vector<uint32_t> tokens = {client.StartRow(kRow, kPrompt, kMaxContext)};
  Http2Client late;
  late.MakeSocket(served.address());
  std::vector<FileDescriptor> taken;
  while (true) {
    FileDescriptor one(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!one.valid()) break;
    taken.push_back(std::move(one));
  }
  ASSERT_TRUE(late.Connect(served.address()));
  EXPECT_TRUE(late.AwaitEnd());
  for (const uint32_t token : Continue(client, kRow, 5)) tokens.push_back(token);
  taken.clear();
  EXPECT_THAT(late.received(), HasSubstr("Too many open files"));
  EXPECT_TRUE(CallWithBytes(served.NewChannel(), kDescribe, "").ok());
  for (const uint32_t token : Continue(client, kRow, 5)) tokens.push_back(token);
  EXPECT_EQ(tokens, served.Reference(kPrompt, tokens.size()));
}

TEST(Connections, MoreThanTheProcessMayHaveAreRefusedAtTheStart) {
  DescriptorLimit limit;
  limit.Set(400);
  testing::TemporaryDirectory directory;
  ServerOptions options;
  options.listen = {absl::StrCat("unix:", directory.path(), "/s")};
  options.connections.max_connections = 500;
  const auto server = Server::Start(options);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(server.status().message()),
              ::testing::AllOf(HasSubstr("got 500"), HasSubstr("400 file descriptors")));
}

TEST(Connections, LeaveRoomForTheFilesOfRecordedSessions) {
  DescriptorLimit limit;
  limit.Set(400);
  testing::TemporaryDirectory directory;
  ServerOptions options;
  options.listen = {absl::StrCat("unix:", directory.path(), "/s")};
  options.connections.max_connections = 200;
  options.max_sessions = 150;
  EXPECT_TRUE(Server::Start(options).ok());
  options.record.directory = directory.path();
  const auto server = Server::Start(options);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(server.status().message()),
              ::testing::AllOf(HasSubstr("got 200"), HasSubstr("400 file descriptors"),
                               HasSubstr("150 for files of recorded sessions")));
}

struct Flood {
  std::string name;
  // The i-th piece of it, sent after the connection's opening.
  std::function<std::string(uint32_t)> piece;
  std::string words;
  // gRPC itself ends a connection that pings without need or takes no heed of its windows, if it
  // comes to it before the meter does.
  bool grpc_may_be_first = false;
};

// Of a kind, in plain text or over TLS.
class Floods : public ::testing::TestWithParam<std::tuple<Flood, bool>> {};

// The rates of the test are the server's own: some thousands are beyond each, whatever the machine.
TEST_P(Floods, EndTheirOwnConnectionAndNoOther) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "gRPC is a shared library in this build, and its reads are not metered";
#endif
  const auto& [kind, over_tls] = GetParam();
  const TlsServerFiles files;
  Reports reports;
  ServedModel::Options options;
  options.server.listen = {absl::StrCat("unix:", files.directory(), "/s"), "127.0.0.1:0"};
  options.server.report = reports.Sink();
  if (over_tls) options.server.tls = files.files();
  ServedModel served(options);
  StreamClient client(served.NewChannel());
  std::vector<uint32_t> tokens = {client.StartRow(kRow, kPrompt, kMaxContext)};
  const std::string& address = served.server().addresses()[over_tls ? 1 : 0];
  const std::unique_ptr<Http2Client> flood =
      over_tls ? std::make_unique<TlsHttp2Client>(address) : std::make_unique<Http2Client>(address);
  ASSERT_TRUE(flood->Send(Http2Opening()));
  bool cut = false;
  constexpr uint32_t kPieces = 200000;
  for (uint32_t i = 0; i < kPieces && !cut; i += 100) {
    std::string bytes;
    for (uint32_t j = i; j < i + 100; ++j) bytes += kind.piece(j);
    cut = !flood->Send(bytes) || !flood->Drain();
  }
  // All of it may have gone into the system's buffers before the server came to read it.
  EXPECT_TRUE(cut || flood->AwaitEnd());
  for (const uint32_t token : Continue(client, kRow, 10)) tokens.push_back(token);
  EXPECT_EQ(tokens, served.Reference(kPrompt, tokens.size()));
  EXPECT_EQ(CheckHealth(served.NewChannel()), grpc::health::v1::HealthCheckResponse::SERVING);
  if (kind.grpc_may_be_first) return;
  EXPECT_TRUE(Eventually([&] { return !reports.All().empty(); }));
  EXPECT_THAT(reports.All(), ::testing::AllOf(HasSubstr("cut off: 1"), HasSubstr(kind.words)));
}

INSTANTIATE_TEST_SUITE_P(
    Each, Floods,
    ::testing::Combine(
        ::testing::Values(
            Flood{"RapidReset",
                  [](uint32_t i) {
                    return CallHeaders(2 * i + 1, "/reprise.v1.StepService/StepStream") +
                           Reset(2 * i + 1);
                  },
                  "RST_STREAM"},
            Flood{"Ping", [](uint32_t) { return Frame(FrameType::kPing, 0, 0, "12345678"); },
                  "PING", true},
            Flood{"PingAnswers", [](uint32_t) { return Frame(FrameType::kPing, 1, 0, "12345678"); },
                  "PING"},
            Flood{"Settings", [](uint32_t) { return Frame(FrameType::kSettings, 0, 0, ""); },
                  "SETTINGS"},
            Flood{"MessageWithoutEnd",
                  [](uint32_t i) {
                    const std::string data(16000, 'x');
                    if (i > 0) return Frame(FrameType::kData, 0, 1, data);
                    return CallHeaders(1, "/reprise.v1.StepService/Step") +
                           Frame(FrameType::kData, 0, 1, std::string_view("\0\xff\xff\xff\xff", 5));
                  },
                  "messages that have not come whole", true},
            Flood{"SmallPieces",
                  [](uint32_t i) {
                    if (i > 0) return Frame(FrameType::kData, 0, 1, "x");
                    return CallHeaders(1, "/reprise.v1.StepService/Step") +
                           Frame(FrameType::kData, 0, 1, std::string_view("\0\0\x20\0\0", 5));
                  },
                  "small pieces of messages", true},
            Flood{"HeadersWithoutEnd",
                  [](uint32_t i) {
                    const std::string part(1000, 'x');
                    if (i > 0) return Frame(static_cast<FrameType>(9), 0, 1, part);
                    return Frame(FrameType::kHeaders, 0, 1, LongHeader() + part);
                  },
                  "headers of a call"},
            Flood{"WindowUpdates",
                  [](uint32_t) {
                    return Frame(FrameType::kWindowUpdate, 0, 0, std::string_view("\0\0\0\1", 4));
                  },
                  "frames without a message"}),
        ::testing::Bool()),
    [](const auto& info) {
      return std::get<0>(info.param).name + (std::get<1>(info.param) ? "OverTls" : "");
    });

}  // namespace
}  // namespace reprise::service
