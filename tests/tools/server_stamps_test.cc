// SPDX-License-Identifier: Apache-2.0
#include "tools/server_stamps.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace reprise::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Points differ in their contexts; graphs have a size alone, and a server takes so many of them.
TEST(StartRequest, NamesEverySizeOnce) {
  ProfileOptions options;
  options.rows = {8, 1};
  options.contexts.clear();
  for (uint32_t context = 16; context < 400; context += 16) options.contexts.push_back(context);
  options.points.push_back({.rows = 2, .context = 40, .prompts = {5, 3}});
  options.points.push_back({.rows = 0, .context = 0, .prompts = {10}});
  const v1::StartProfileRequest request = StartRequestOf(options, 1 << 20, {});
  EXPECT_THAT(request.rows(), ElementsAre(1, 8));
  EXPECT_THAT(request.tokens(), ElementsAre(10));
  EXPECT_EQ(request.bandwidth_bytes(), 1u << 20);
  EXPECT_TRUE(request.products());
  EXPECT_THAT(request.unpadded_rows(), IsEmpty());
}

TEST(StartRequest, NamesSizesThatNoBucketHasWherePaddingIsAskedFor) {
  v1::DescribeResponse server;
  const auto add = [&server](const char* kind, uint32_t capacity) {
    v1::Bucket* bucket = server.add_buckets();
    bucket->set_kind(kind);
    bucket->set_capacity(capacity);
  };
  for (const uint32_t rows : {1, 4, 8}) add("decode", rows);
  add("mixed", 16);
  ProfileOptions options;
  options.rows = {8, 3, 1};
  options.contexts = {40, 80};
  options.points.push_back({.rows = 2, .context = 40, .prompts = {5, 3}});
  options.points.push_back({.rows = 0, .context = 0, .prompts = {16}});
  EXPECT_THAT(StartRequestOf(options, 0, server).unpadded_rows(), IsEmpty());
  options.padding = true;
  const v1::StartProfileRequest request = StartRequestOf(options, 0, server);
  EXPECT_THAT(request.rows(), ElementsAre(1, 3, 8));
  EXPECT_THAT(request.unpadded_rows(), ElementsAre(3));
  EXPECT_THAT(request.unpadded_tokens(), ElementsAre(10));
}

TEST(WhyNoPadding, NamesGraphsThatAnOlderServerKnowsNothingOf) {
  v1::StartProfileRequest request;
  v1::StartProfileResponse response;
  EXPECT_EQ(WhyNoPadding(request, response), "");
  request.add_unpadded_rows(3);
  request.add_unpadded_tokens(10);
  EXPECT_EQ(WhyNoPadding(request, response),
            "the server captured 0 of 2 graphs without padding: an older one knows of none");
  response.add_unpadded_graphs();
  response.add_unpadded_graphs();
  EXPECT_EQ(WhyNoPadding(request, response), "");
}

}  // namespace
}  // namespace reprise::tools
