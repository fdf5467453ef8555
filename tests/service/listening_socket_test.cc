// SPDX-License-Identifier: Apache-2.0
// Addresses as text, and telling a busy address from a stale one.
#include "service/transport/listening_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "service/transport/listen_address.h"
#include "tests/testing/tiny_model.h"

namespace reprise::service {
namespace {

using ::testing::HasSubstr;

// Binds, and listens if asked; leaves a socket file behind as a killed server does.
class UnixListener {
 public:
  UnixListener(const std::string& path, bool listening) : fd_(socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    if (listening) {
      EXPECT_EQ(listen(fd_, 1), 0);
    }
  }
  ~UnixListener() { close(fd_); }

 private:
  const int fd_;
};

TEST(ParseListenAddress, ReadsUnixAndTcp) {
  const auto unix_address = ParseListenAddress("unix:/run/reprise.sock");
  ASSERT_TRUE(unix_address.ok());
  EXPECT_TRUE(unix_address->is_unix());
  EXPECT_EQ(unix_address->unix_path, "/run/reprise.sock");
  const auto tcp = ParseListenAddress("127.0.0.1:50051");
  ASSERT_TRUE(tcp.ok());
  EXPECT_FALSE(tcp->is_unix());
  EXPECT_EQ(tcp->host, "127.0.0.1");
  EXPECT_EQ(tcp->port, 50051);
  const auto v6 = ParseListenAddress("[::1]:0");
  ASSERT_TRUE(v6.ok());
  EXPECT_EQ(v6->host, "::1");
  EXPECT_EQ(v6->port, 0);
}

TEST(ParseListenAddress, RefusesWhatIsNeither) {
  for (const std::string text :
       {"", "localhost", "localhost:", "localhost:x", "localhost:65536", "localhost:-1", ":50051",
        "::1:50051", "unix:", "unix:/tmp/a b", "unix:/tmp/a%20b", "unix:/tmp/a?b"}) {
    const auto address = ParseListenAddress(text);
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(address.status().message()), HasSubstr(absl::StrCat("\"", text, "\"")));
  }
  const auto long_path = ParseListenAddress("unix:/" + std::string(200, 'x'));
  EXPECT_EQ(long_path.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(long_path.status().message()), HasSubstr("201"));
}

absl::StatusOr<std::vector<ListeningSocket>> ListenOn(const std::string& text) {
  const auto address = ParseListenAddress(text);
  EXPECT_TRUE(address.ok()) << address.status();
  return Listen(*address);
}

TEST(Listen, SocketThatSomeoneListensOnIsInUse) {
  testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/s";
  UnixListener other(path, /*listening=*/true);
  const absl::Status status = ListenOn("unix:" + path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr("in use"));
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(Listen, StaleSocketIsReplaced) {
  testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/s";
  { UnixListener dead(path, /*listening=*/true); }
  ASSERT_TRUE(std::filesystem::exists(path));
  const auto sockets = ListenOn("unix:" + path);
  ASSERT_TRUE(sockets.ok()) << sockets.status();
  EXPECT_EQ(ListenOn("unix:" + path).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST(Listen, FileThatIsNoSocketIsLeftAlone) {
  testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/s";
  std::ofstream(path) << "precious";
  EXPECT_EQ(ListenOn("unix:" + path).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(Listen, MissingDirectoryIsNotFound) {
  testing::TemporaryDirectory directory;
  const absl::Status status = ListenOn("unix:" + directory.path() + "/none/s").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/none"));
}

// Not even root may make a file there.
TEST(Listen, DirectoryThatTakesNoFileSaysTheSystemsReason) {
  const absl::Status status = ListenOn("unix:/sys/s").status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()),
              ::testing::ContainsRegex("^cannot listen on unix:/sys/s: [A-Z][a-z ]+$"));
}

TEST(Listen, FreePortIsTheSameOnEachAddressOfTheHost) {
  const auto sockets = ListenOn("localhost:0");
  ASSERT_TRUE(sockets.ok()) << sockets.status();
  ASSERT_FALSE(sockets->empty());
  for (const ListeningSocket& socket : *sockets) {
    EXPECT_EQ(socket.address, sockets->front().address);
    EXPECT_THAT(socket.address, ::testing::MatchesRegex("localhost:[1-9][0-9]*"));
  }
}

TEST(Listen, PortThatSomeoneListensOnIsInUse) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  socklen_t length = sizeof(address);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  const std::string text = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  const absl::Status status = ListenOn(text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  close(fd);
  EXPECT_TRUE(ListenOn(text).ok());
}

TEST(Listen, HostThatDoesNotResolveIsInvalid) {
  const absl::Status status = ListenOn("no-such-host.invalid:1").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("host"));
}

TEST(RemoveSocketFile, LeavesTheSocketOfItsSuccessor) {
  testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/s";
  auto first = std::make_unique<UnixListener>(path, /*listening=*/true);
  const auto file = StatSocketFile(path);
  ASSERT_TRUE(file.ok());
  const std::string moved = path + ".old";  // keeps the inode taken
  ASSERT_EQ(rename(path.c_str(), moved.c_str()), 0);
  UnixListener second(path, /*listening=*/true);
  RemoveSocketFile(*file);
  EXPECT_TRUE(std::filesystem::exists(path));
  const auto second_file = StatSocketFile(path);
  ASSERT_TRUE(second_file.ok());
  RemoveSocketFile(*second_file);
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace reprise::service
