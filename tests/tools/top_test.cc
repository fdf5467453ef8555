// SPDX-License-Identifier: Apache-2.0
// tools/top: metrics as text to numbers, and two looks at a server to what it did between them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "service/transport/listen_address.h"
#include "service/transport/listening_socket.h"
#include "tools/text_width.h"
#include "tools/top/http_get.h"
#include "tools/top/metrics_text.h"
#include "tools/top/top_figures.h"

namespace reprise::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

MetricsText Parsed(const std::string& text) {
  auto metrics = MetricsText::Parse(text);
  EXPECT_TRUE(metrics.ok()) << metrics.status();
  return metrics.ok() ? *std::move(metrics) : MetricsText();
}

// ---- text ----

TEST(MetricsText, ReadsNamesLabelsAndValues) {
  const MetricsText metrics = Parsed(
      "# HELP a_total Help.\n# TYPE a_total counter\na_total 3\n"
      "b{x=\"1\",y=\"two\"} 4.5\nb{x=\"2\",} -1e3 1395066363000\nc +Inf\n\n");
  EXPECT_EQ(metrics.Value("a_total"), 3);
  EXPECT_EQ(metrics.Value("b", {{"x", "1"}, {"y", "two"}}), 4.5);
  EXPECT_EQ(metrics.Value("b", {{"x", "2"}}), -1000);
  EXPECT_EQ(metrics.Value("b", {{"x", "3"}}), 0);
  EXPECT_EQ(metrics.Sum("b"), -995.5);
  EXPECT_TRUE(std::isinf(metrics.Value("c")));
  EXPECT_FALSE(metrics.Has("d"));
  EXPECT_THAT(metrics.LabelsOf("b", "x"), ElementsAre("1", "2"));
}

TEST(MetricsText, UnescapesLabels) {
  const MetricsText metrics = Parsed("a{x=\"\\\\ \\\" \\n }\"} 1\n");
  EXPECT_EQ(metrics.Value("a", {{"x", "\\ \" \n }"}}), 1);
}

TEST(MetricsText, NamesTheLineThatIsWrong) {
  for (const char* line : {"{} 1", "a", "a x", "a{x} 1", "a{x=\"1} 1", "a{x=\"\\", "<html>"}) {
    const auto metrics = MetricsText::Parse(absl::StrCat("ok 1\n", line, "\n"));
    EXPECT_EQ(metrics.status().code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(std::string(metrics.status().message()), HasSubstr("line 2")) << line;
  }
}

TEST(MetricsText, ReadsAHistogramInTheOrderOfItsEdges) {
  const MetricHistogram histogram =
      Parsed(
          "h_bucket{g=\"a\",le=\"+Inf\"} 10\nh_bucket{g=\"a\",le=\"1\"} 4\n"
          "h_bucket{g=\"a\",le=\"2\"} 6\nh_bucket{g=\"b\",le=\"1\"} 99\n")
          .Histogram("h", {{"g", "a"}});
  EXPECT_THAT(histogram.counts, ElementsAre(4, 2, 4));
  EXPECT_EQ(histogram.count(), 10);
}

TEST(MetricHistogram, TakesBucketsAsFilledEvenly) {
  const double inf = std::numeric_limits<double>::infinity();
  const MetricHistogram histogram = {.edges = {1, 2, 4, inf}, .counts = {4, 0, 4, 2}};
  EXPECT_DOUBLE_EQ(histogram.Quantile(0.2), 0.5);
  EXPECT_DOUBLE_EQ(histogram.Quantile(0.4), 1);
  EXPECT_DOUBLE_EQ(histogram.Quantile(0.5), 2.5);
  EXPECT_DOUBLE_EQ(histogram.Quantile(0.8), 4);
  // Beyond the last edge nothing is known but that.
  EXPECT_DOUBLE_EQ(histogram.Quantile(0.99), 4);
  EXPECT_TRUE(std::isnan(MetricHistogram().Quantile(0.5)));
}

// ---- figures ----

// A server that has run so many steps of one graph since it started.
std::string ServerText(double start, double uptime, int steps) {
  return absl::StrCat(
      "reprise_build_info{version=\"0.1.0\",commit=\"\"} 1\nreprise_serving 1\n",
      "reprise_start_time_seconds ", start, "\nreprise_uptime_seconds ", uptime,
      "\nreprise_pool_blocks 100\nreprise_pool_free_blocks 75\n",
      "reprise_requests_refused_total{code=\"NOT_FOUND\"} ", steps,
      "\nreprise_requests_refused_total{code=\"ABORTED\"} 0\n",
      "reprise_steps_total{graph=\"decode/1\"} ", steps,
      "\nreprise_steps_total{graph=\"decode/2\"} 0\n",
      "reprise_step_rows_total{graph=\"decode/1\"} ", 2 * steps,
      "\nreprise_step_tokens_total{graph=\"decode/1\"} ", 3 * steps,
      "\nreprise_step_padding_tokens_total{graph=\"decode/1\"} ", steps,
      "\nreprise_sampled_tokens_total ", 2 * steps,
      "\nreprise_step_device_seconds_sum{graph=\"decode/1\"} ", 0.01 * steps,
      "\nreprise_step_device_seconds_bucket{graph=\"decode/1\",le=\"0.01\"} ", steps,
      "\nreprise_step_device_seconds_bucket{graph=\"decode/1\",le=\"+Inf\"} ", steps, "\n");
}

TEST(TopFigures, AreOfTheTimeBetweenTwoLooks) {
  const TopFigures figures =
      FiguresOf(Parsed(ServerText(1000, 10, 100)), Parsed(ServerText(1000, 12, 160)));
  EXPECT_FALSE(figures.restarted);
  EXPECT_TRUE(figures.serving);
  EXPECT_DOUBLE_EQ(figures.seconds, 2);
  EXPECT_DOUBLE_EQ(figures.steps_per_second, 30);
  EXPECT_DOUBLE_EQ(figures.sampled_tokens_per_second, 60);
  EXPECT_NEAR(figures.device_busy, 0.3, 1e-9);
  ASSERT_EQ(figures.graphs.size(), 1u) << "those that ran";
  EXPECT_EQ(figures.graphs[0].name, "decode/1");
  EXPECT_DOUBLE_EQ(figures.graphs[0].rows_per_step, 2);
  EXPECT_DOUBLE_EQ(figures.graphs[0].padding, 0.25);
  EXPECT_DOUBLE_EQ(figures.graphs[0].device.p50, 0.005);
  ASSERT_EQ(figures.refused.size(), 1u);
  EXPECT_EQ(figures.refused[0].first, "NOT_FOUND");
  EXPECT_EQ(figures.refused[0].second.now, 60);
  EXPECT_EQ(figures.refused[0].second.total, 160);
}

TEST(TopFigures, AreSinceTheStartWhereTheServerWasRestarted) {
  const TopFigures figures =
      FiguresOf(Parsed(ServerText(1000, 10, 100)), Parsed(ServerText(2000, 4, 20)));
  EXPECT_TRUE(figures.restarted);
  EXPECT_DOUBLE_EQ(figures.seconds, 4);
  EXPECT_DOUBLE_EQ(figures.steps_per_second, 5);
  EXPECT_EQ(figures.refused[0].second.now, 20);
  EXPECT_THAT(TopText(figures, "here:1", kNoWidth), HasSubstr("The server was restarted"));
}

TEST(TopFigures, AreNeverNegative) {
  const TopFigures figures =
      FiguresOf(Parsed(ServerText(1000, 10, 100)), Parsed(ServerText(1000, 11, 20)));
  EXPECT_EQ(figures.steps_per_second, 0);
  EXPECT_EQ(figures.device_busy, 0);
}

TEST(TopFigures, AreNoneOfAnotherProgramsMetrics) {
  const absl::Status status = CheckMetrics(Parsed("go_goroutines 8\n"), "here:1");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("here:1 answers with metrics of another"));
  EXPECT_TRUE(CheckMetrics(Parsed(ServerText(1, 1, 1)), "here:1").ok());
}

TEST(TopText, SaysWhatIsThere) {
  const TopFigures figures =
      FiguresOf(Parsed(ServerText(1000, 10, 100)), Parsed(ServerText(1000, 12, 160)));
  const std::string text = TopText(figures, "here:1", kNoWidth);
  EXPECT_THAT(text, HasSubstr("here:1: SERVING, up 12.0 s, reprise 0.1.0"));
  EXPECT_THAT(text, HasSubstr("device busy 30.0 %"));
  EXPECT_THAT(text, HasSubstr("decode/1"));
  EXPECT_THAT(text, Not(HasSubstr("decode/2")));
  EXPECT_THAT(text, HasSubstr("25 of 100"));
  EXPECT_THAT(text, HasSubstr("NOT_FOUND"));
}

TEST(TopText, TellsDetachedSessionsFromThoseThatAStreamHas) {
  const auto figures_of = [](int detached) {
    const std::string text =
        ServerText(1000, 10, 100) + "reprise_sessions_open 3\nreprise_sessions_limit 64\n";
    const MetricsText now =
        Parsed(absl::StrCat(text, "reprise_sessions_detached ", detached, "\n"));
    return FiguresOf(now, now);
  };
  EXPECT_THAT(TopText(figures_of(2), "here:1", kNoWidth), HasSubstr("3 of 64, 2 detached"));
  EXPECT_EQ(TopJson(figures_of(2))["detached_sessions"], 2);
  EXPECT_THAT(TopText(figures_of(0), "here:1", kNoWidth), Not(HasSubstr("detached")));
}

TEST(TopText, OfALoadingServerIsOneLine) {
  const MetricsText now = Parsed(
      "reprise_build_info{version=\"0.1.0\",commit=\"\"} 1\nreprise_serving 0\n"
      "reprise_start_time_seconds 7\nreprise_uptime_seconds 1\n");
  EXPECT_EQ(TopText(FiguresOf(now, now), "here:1", kNoWidth),
            "here:1: NOT SERVING: loading, up 1.00 s, reprise 0.1.0\n");
}

// ---- HTTP ----

TEST(HttpGet, SaysThatNobodyAnswers) {
  const auto missing = HttpGet("unix:/no/such/socket", "/metrics", std::chrono::seconds(1));
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(missing.status().message()),
              HasSubstr("cannot connect to unix:/no/such/socket: No such file"));
}

// A server that answers each connection with the same bytes.
class FakeServer {
 public:
  explicit FakeServer(std::string answer) : answer_(std::move(answer)) {
    auto sockets = service::Listen(*service::ParseListenAddress("127.0.0.1:0"));
    EXPECT_TRUE(sockets.ok()) << sockets.status();
    socket_ = std::move(sockets->front());
    thread_ = std::thread([this] { Run(); });
  }
  ~FakeServer() {
    stop_ = true;
    thread_.join();
  }
  const std::string& address() const { return socket_.address; }

 private:
  void Run() {
    while (!stop_) {
      pollfd ready = {.fd = socket_.fd.get(), .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, 10) != 1) continue;
      const service::FileDescriptor client(::accept(socket_.fd.get(), nullptr, nullptr));
      char request[4096];
      EXPECT_GT(::recv(client.get(), request, sizeof(request), 0), 0);
      ::send(client.get(), answer_.data(), answer_.size(), MSG_NOSIGNAL);
      if (answer_.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
  }
  const std::string answer_;
  service::ListeningSocket socket_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

absl::StatusOr<std::string> Get(const std::string& answer,
                                std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
  const FakeServer server(answer);
  return HttpGet(server.address(), "/metrics", timeout);
}

TEST(HttpGet, ReturnsTheBody) {
  EXPECT_EQ(*Get("HTTP/1.0 200 OK\r\ncontent-LENGTH: 3\r\n\r\na 1"), "a 1");
  EXPECT_EQ(*Get("HTTP/1.1 200 OK\r\n\r\n"), "");
}

TEST(HttpGet, RefusesWhatIsNoAnswer) {
  EXPECT_THAT(std::string(Get("SSH-2.0-OpenSSH\r\n").status().message()),
              HasSubstr("got an answer that is no HTTP"));
  EXPECT_THAT(std::string(Get("HTTP/1.1 404 Not Found\r\n\r\n").status().message()),
              HasSubstr("got \"404 Not Found\", allowed \"200 OK\""));
  EXPECT_THAT(
      std::string(Get("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc").status().message()),
      HasSubstr("got 3 bytes of 9"));
  const absl::Status silent = Get("", std::chrono::milliseconds(200)).status();
  EXPECT_EQ(silent.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(silent.message()), HasSubstr("within 200 ms"));
}

}  // namespace
}  // namespace reprise::tools
