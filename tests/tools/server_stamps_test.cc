// SPDX-License-Identifier: Apache-2.0
#include "tools/server_stamps.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace reprise::tools {
namespace {

using ::testing::ElementsAre;

// Points differ in their contexts; graphs have a size alone, and a server takes so many of them.
TEST(StartRequest, NamesEverySizeOnce) {
  ProfileOptions options;
  options.rows = {8, 1};
  options.contexts.clear();
  for (uint32_t context = 16; context < 400; context += 16) options.contexts.push_back(context);
  options.points.push_back({.rows = 2, .context = 40, .prompts = {5, 3}});
  options.points.push_back({.rows = 0, .context = 0, .prompts = {10}});
  const v1::StartProfileRequest request = StartRequestOf(options, 1 << 20);
  EXPECT_THAT(request.rows(), ElementsAre(1, 8));
  EXPECT_THAT(request.tokens(), ElementsAre(10));
  EXPECT_EQ(request.bandwidth_bytes(), 1u << 20);
  EXPECT_TRUE(request.products());
}

}  // namespace
}  // namespace reprise::tools
