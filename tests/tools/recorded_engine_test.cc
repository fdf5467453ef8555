// SPDX-License-Identifier: Apache-2.0
// Which engine repeats a recorded session, and which one is refused: whether it rounds activations.
#include "tools/replay/recorded_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "tests/testing/status_matchers.h"

namespace reprise::tools {
namespace {

using ::reprise::testing::StatusIs;

v1::DescribeResponse ServerOf(const std::string& weight_dtype) {
  v1::DescribeResponse server;
  server.mutable_model()->set_dtype("bf16");
  server.mutable_model()->set_kv_dtype("bf16");
  server.mutable_model()->set_weight_dtype(weight_dtype);
  server.set_linear_policy("packed");
  server.mutable_pool()->set_block_size(16);
  return server;
}

TEST(RecordedEngine, RoundsActivationsWhereTheServerDid) {
  for (const bool rounds : {false, true}) {
    v1::RecordHeader header;
    header.set_preset("llama-3.1-8b-fp8");
    *header.mutable_server() = ServerOf(rounds ? "fp8_e4m3_rounded" : "fp8_e4m3");
    EngineFlags flags;
    flags.engine.round_activations = !rounds;
    EXPECT_OK(ApplyRecordedSettings(header, {.blocks = 3}, &flags));
    EXPECT_EQ(flags.engine.round_activations, rounds);
    EXPECT_EQ(flags.engine.linear, engine::LinearPolicy::kPacked);
  }
}

TEST(RecordedEngine, HasThePoolAndTheSwapSpaceThatTheSessionHad) {
  constexpr uint64_t kBlockBytes = 1000;
  constexpr uint64_t kStateBytes = 5000;
  v1::RecordHeader header;
  header.set_preset("llama-3.1-8b-fp8");
  *header.mutable_server() = ServerOf("fp8_e4m3");
  header.mutable_server()->mutable_pool()->set_num_blocks(50);
  header.mutable_server()->mutable_pool()->set_bytes(50 * kBlockBytes);
  const auto applied = [&header](const ReplayNeeds& needs) {
    EngineFlags flags;
    EXPECT_OK(ApplyRecordedSettings(header, needs, &flags));
    return flags.engine;
  };
  EXPECT_EQ(applied({.blocks = 3}).kv_cache_bytes, 4 * kBlockBytes);
  EXPECT_EQ(applied({.blocks = 3}).swap_bytes, 0u);
  EXPECT_EQ(applied({.blocks = 3, .swap_blocks = 7}).swap_bytes, 7 * kBlockBytes);
  // Half of it is for states then, and has room for as many.
  header.mutable_server()->mutable_limits()->set_row_state_bytes(kStateBytes);
  for (const ReplayNeeds& needs :
       {ReplayNeeds{.swap_blocks = 30, .swap_states = 2},
        ReplayNeeds{.swap_blocks = 3, .swap_states = 2}, ReplayNeeds{.swap_blocks = 3}}) {
    const uint64_t bytes = applied(needs).swap_bytes;
    const uint64_t states = bytes / 2 / kStateBytes;
    EXPECT_GE(states, std::max(1u, needs.swap_states));
    EXPECT_GE((bytes - states * kStateBytes) / kBlockBytes, needs.swap_blocks);
  }
}

TEST(RecordedEngine, IsRefusedWhereOneRoundsActivationsAndTheOtherDoesNot) {
  const v1::DescribeResponse plain = ServerOf("fp8_e4m3"), rounded = ServerOf("fp8_e4m3_rounded");
  EXPECT_OK(CheckAnswersAlike(plain, plain));
  EXPECT_OK(CheckAnswersAlike(rounded, rounded));
  EXPECT_THAT(CheckAnswersAlike(rounded, plain),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "weight_dtype: got fp8_e4m3, allowed: fp8_e4m3_rounded, as recorded"));
  EXPECT_THAT(CheckAnswersAlike(plain, rounded),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "weight_dtype: got fp8_e4m3_rounded, allowed: fp8_e4m3, as recorded"));
  // Recordings from before there was a weight_dtype.
  EXPECT_OK(CheckAnswersAlike(ServerOf(""), plain));
}

}  // namespace
}  // namespace reprise::tools
