// SPDX-License-Identifier: Apache-2.0
// The HTTP side of metrics: what is answered, and clients that mean no good.
#include "service/metrics/metrics_endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/service/http2_client.h"
#include "tests/service/scrape.h"
#include "tests/testing/tiny_model.h"

namespace reprise::service {
namespace {

using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kGet[] = "GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n";
constexpr char kText[] = "reprise_x 1\n";

std::unique_ptr<MetricsEndpoint> Serve(MetricsEndpointOptions options = {}) {
  if (options.listen.empty()) options.listen = "127.0.0.1:0";
  if (!options.render) options.render = [] { return std::string(kText); };
  auto endpoint = MetricsEndpoint::Start(options);
  EXPECT_TRUE(endpoint.ok()) << endpoint.status();
  return *std::move(endpoint);
}

std::string Ask(const MetricsEndpoint& endpoint, const std::string& request) {
  return HttpExchange(endpoint.address(), request);
}

TEST(MetricsEndpoint, AnswersAGetAndEndsTheConnection) {
  const auto endpoint = Serve();
  EXPECT_THAT(Ask(*endpoint, kGet),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"),
                    HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"),
                    HasSubstr("Connection: close\r\n"), HasSubstr("Content-Length: 12\r\n"),
                    EndsWith(absl::StrCat("\r\n\r\n", kText))));
  EXPECT_THAT(Ask(*endpoint, "GET /metrics?name=x HTTP/1.0\r\n\r\n"), EndsWith(kText));
}

TEST(MetricsEndpoint, ListensOnAUnixSocketAndRemovesIt) {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/metrics.sock";
  auto endpoint = Serve({.listen = "unix:" + path, .render = {}});
  EXPECT_EQ(endpoint->address(), "unix:" + path);
  EXPECT_THAT(Ask(*endpoint, kGet), EndsWith(kText));
  EXPECT_EQ(::access(path.c_str(), F_OK), 0);
  endpoint.reset();
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
}

TEST(MetricsEndpoint, KnowsOnePathAndOneMethod) {
  const auto endpoint = Serve();
  for (const char* path : {"/", "/metrics/", "/metricsx", "/../metrics", "/%6detrics"})
    EXPECT_THAT(Ask(*endpoint, absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: test\r\n\r\n")),
                StartsWith("HTTP/1.1 404 "))
        << path;
  for (const char* method : {"HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"})
    EXPECT_THAT(Ask(*endpoint, absl::StrCat(method, " /metrics HTTP/1.1\r\nHost: test\r\n\r\n")),
                AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("Allow: GET\r\n")))
        << method;
  EXPECT_THAT(Ask(*endpoint, "POST /metrics HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nabc"),
              StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Ask(*endpoint, "BREW /metrics HTTP/1.1\r\nHost: test\r\n\r\n"),
              StartsWith("HTTP/1.1 501 "));
}

TEST(MetricsEndpoint, RefusesAnAddressThatIsTaken) {
  const auto endpoint = Serve();
  const auto second =
      MetricsEndpoint::Start({.listen = endpoint->address(), .render = [] { return ""; }});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists) << second.status();
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(endpoint->address()));
}

TEST(MetricsEndpoint, EndsWhatIsNoHttp) {
  const auto endpoint = Serve();
  const std::string none = Ask(*endpoint, "\x16\x03\x01\x02 how are you?\r\n\r\n\r\n");
  EXPECT_THAT(none, ::testing::Not(HasSubstr(kText)));
  EXPECT_THAT(Ask(*endpoint, kGet), EndsWith(kText));
}

TEST(MetricsEndpoint, RefusesHugeHeadersLinesAndBodies) {
  const auto endpoint = Serve();
  const std::string huge(1 << 20, 'x');
  for (const std::string& request :
       {absl::StrCat("GET /metrics HTTP/1.1\r\nHost: ", huge, "\r\n\r\n"),
        absl::StrCat("GET /", huge, " HTTP/1.1\r\nHost: test\r\n\r\n"),
        absl::StrCat("GET /metrics HTTP/1.1\r\nContent-Length: 1048576\r\n\r\n", huge)}) {
    Http2Client client(endpoint->address());
    client.Send(request);  // which may be cut off
    EXPECT_TRUE(client.AwaitEnd());
    EXPECT_THAT(client.received(), ::testing::Not(HasSubstr(kText))) << request.substr(0, 60);
  }
  EXPECT_THAT(Ask(*endpoint, kGet), EndsWith(kText));
}

// A byte now and then, for ever: its time is bounded from the first one on.
TEST(MetricsEndpoint, EndsAConnectionThatTakesTooLong) {
  const auto endpoint = Serve({.listen = {}, .render = {}, .max_connection_ms = 300});
  Http2Client slow(endpoint->address());
  const auto begin = steady_clock::now();
  size_t sent = 0;
  while (sent < sizeof(kGet) && slow.Drain() && slow.Send(std::string_view(&kGet[sent], 1))) {
    ++sent;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_LT(sent, 20u);
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(5));
  Http2Client silent(endpoint->address());
  EXPECT_TRUE(silent.AwaitEnd());
}

// Whoever reads nothing of a long answer does not keep it for long.
TEST(MetricsEndpoint, EndsAConnectionThatReadsNothing) {
  const auto endpoint = Serve({.listen = {},
                               .render = [] { return std::string(64 << 20, 'x'); },
                               .max_connection_ms = 300});
  Http2Client client(endpoint->address());
  ASSERT_TRUE(client.Send(kGet));
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  EXPECT_TRUE(client.AwaitEnd());
  EXPECT_LT(client.received().size(), 64u << 20);
}

// More connections than it keeps: the oldest go, and a scraper among them is answered.
TEST(MetricsEndpoint, AnswersAmongManyThatSayNothing) {
  const auto endpoint = Serve({.listen = {}, .render = {}, .max_connections = 4});
  std::vector<std::unique_ptr<Http2Client>> idle;
  for (int i = 0; i < 40; ++i) idle.push_back(std::make_unique<Http2Client>(endpoint->address()));
  EXPECT_THAT(Ask(*endpoint, kGet), EndsWith(kText));
  for (int i = 0; i < 30; ++i) EXPECT_TRUE(idle[static_cast<size_t>(i)]->AwaitEnd());
}

TEST(MetricsEndpoint, AcceptsNoMoreThanItsShareOfATime) {
  const auto endpoint = Serve({.listen = {}, .render = {}, .max_accepts = 2});
  const auto begin = steady_clock::now();
  for (int i = 0; i < 12; ++i) EXPECT_THAT(Ask(*endpoint, kGet), EndsWith(kText));
  EXPECT_GE(steady_clock::now() - begin, std::chrono::milliseconds(400));
}

TEST(MetricsEndpoint, OutlivesClientsThatVanish) {
  const auto endpoint = Serve({.listen = {}, .render = [] { return std::string(1 << 20, 'x'); }});
  for (int i = 0; i < 20; ++i) {
    Http2Client client(endpoint->address());
    client.Send(i % 2 == 0 ? std::string(kGet) : std::string(kGet, 10));
    client.Close();
  }
  EXPECT_THAT(Ask(*endpoint, kGet), StartsWith("HTTP/1.1 200 "));
}

}  // namespace
}  // namespace reprise::service
