// SPDX-License-Identifier: Apache-2.0
// service/metrics: edges of histograms, and the text that scrapers read.
#include "service/metrics/histogram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

#include "service/metrics/exposition.h"

namespace reprise::service {
namespace {

using ::testing::HasSubstr;

TEST(Histogram, CountsATimeUpToTheEdgeInItsBucket) {
  EXPECT_EQ(Histogram::BucketOf(0), 0u);
  EXPECT_EQ(Histogram::BucketOf(1), 0u);
  for (size_t edge = 0; edge < Histogram::kNumEdges; ++edge) {
    const uint64_t ns = Histogram::EdgeNs(edge);
    EXPECT_EQ(Histogram::BucketOf(ns - 1), edge);
    EXPECT_EQ(Histogram::BucketOf(ns), edge);
    EXPECT_EQ(Histogram::BucketOf(ns + 1), edge + 1);
  }
  EXPECT_EQ(Histogram::BucketOf(~uint64_t{0}), Histogram::kNumEdges);
}

TEST(Histogram, ReachesFromTenMicrosecondsToAboutAHundredSeconds) {
  EXPECT_EQ(Histogram::EdgeNs(0), 10'000u);
  EXPECT_GT(Histogram::EdgeNs(Histogram::kNumEdges - 1), 80'000'000'000u);
  EXPECT_LT(Histogram::EdgeNs(Histogram::kNumEdges - 1), 100'000'000'000u);
}

TEST(Histogram, LosesNothingOfManyThreads) {
  Histogram histogram;
  std::vector<std::thread> threads;
  for (uint64_t t = 1; t <= 4; ++t) {
    threads.emplace_back([&histogram, t] {
      for (int i = 0; i < 1000; ++i) histogram.Observe(t * 20'000);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Histogram::Snapshot snapshot = histogram.Read();
  EXPECT_EQ(std::accumulate(snapshot.counts.begin(), snapshot.counts.end(), uint64_t{0}), 4000u);
  EXPECT_EQ(snapshot.counts[1], 1000u);  // 20 us
  EXPECT_EQ(snapshot.counts[2], 1000u);  // 40 us
  EXPECT_EQ(snapshot.counts[3], 2000u);  // 60 and 80 us
  EXPECT_EQ(snapshot.sum_ns, 1000u * (20'000 + 40'000 + 60'000 + 80'000));
}

TEST(Exposition, BeginsAMetricWithHelpAndType) {
  Exposition text;
  text.Family("reprise_x_total", "counter", "Back\\slash,\nline and \"quotes\"");
  text.Add({}, 12);
  EXPECT_EQ(text.text(),
            "# HELP reprise_x_total Back\\\\slash,\\nline and \"quotes\"\n"
            "# TYPE reprise_x_total counter\n"
            "reprise_x_total 12\n");
}

TEST(Exposition, EscapesValuesOfLabels) {
  Exposition text;
  text.Family("x", "gauge", "");
  text.Add({{"a", "\"\\\n"}, {"b", "plain"}}, 1);
  EXPECT_THAT(text.text(), HasSubstr("x{a=\"\\\"\\\\\\n\",b=\"plain\"} 1\n"));
}

TEST(Exposition, WritesWholeNumbersWhole) {
  Exposition text;
  text.Family("x", "gauge", "");
  text.Add({}, ~uint64_t{0});
  EXPECT_THAT(text.text(), HasSubstr("x 18446744073709551615\n"));
}

TEST(Exposition, WritesSecondsThatReadAsTheSameNumber) {
  for (const uint64_t ns : {uint64_t{0}, uint64_t{1}, uint64_t{1'234'567'891}, uint64_t{1} << 60}) {
    Exposition text;
    text.Family("x", "gauge", "");
    text.AddSeconds({}, ns);
    const std::string line = text.text().substr(text.text().rfind("\nx ") + 3);
    EXPECT_EQ(std::stod(line), static_cast<double>(ns) / 1e9) << line;
  }
}

TEST(Exposition, AddsUpTheBucketsOfAHistogram) {
  Histogram histogram;
  histogram.Observe(5'000);
  histogram.Observe(15'000);
  histogram.Observe(uint64_t{200} * 1'000'000'000);
  Exposition text;
  text.Family("x_seconds", "histogram", "");
  text.AddHistogram({{"graph", "decode/1"}}, histogram.Read());
  EXPECT_THAT(text.text(), HasSubstr("x_seconds_bucket{graph=\"decode/1\",le=\"1e-05\"} 1\n"));
  EXPECT_THAT(text.text(), HasSubstr("x_seconds_bucket{graph=\"decode/1\",le=\"2e-05\"} 2\n"));
  EXPECT_THAT(text.text(), HasSubstr("x_seconds_bucket{graph=\"decode/1\",le=\"83.88608\"} 2\n"));
  EXPECT_THAT(text.text(), HasSubstr("x_seconds_bucket{graph=\"decode/1\",le=\"+Inf\"} 3\n"));
  EXPECT_THAT(text.text(), HasSubstr("x_seconds_sum{graph=\"decode/1\"} 200.00002\n"));
  EXPECT_THAT(text.text(), HasSubstr("x_seconds_count{graph=\"decode/1\"} 3\n"));
}

}  // namespace
}  // namespace reprise::service
