// SPDX-License-Identifier: Apache-2.0
// Linear by blocks that share K: launches of many shapes, and what comes before and behind them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/linear/cluster_geometry.h"
#include "kernels/linear/group_geometry.h"
#include "kernels/linear/instances.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/stream_geometry.h"
#include "kernels/step_kernel/launch_list.h"
#include "runtime/map_tiles.h"
#include "tests/kernels/linear_fixture.h"
#include "tests/testing/cases/linear_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::kLinearClusterBlocks;
using kernels::LinearArgs;
using kernels::LinearCase;
using kernels::WeightLayout;
using runtime::DType;

class LinearClusterTest : public LinearFixture {
 protected:
  bool HasClusters() const { return kernels().Find(kernels::kLinearCluster, 32) != nullptr; }

  // The output's bytes of so many rows, by linear_stream, 16 rows at a time.
  std::vector<std::byte> StreamBytes(GuardedMemory& memory, LinearArgs linear, uint32_t rows) {
    const kernels::LoadedKernel& few = kernels().Get(kernels::kLinearStream, 16);
    const auto* const x = static_cast<const std::byte*>(linear.x);
    std::vector<std::byte> bytes;
    for (uint32_t first = 0; first < rows; first += 16) {
      linear.x = x + size_t{first} * static_cast<size_t>(linear.in_features) * 2;
      linear.out = memory.Poisoned(size_t{16} * static_cast<size_t>(linear.out_features) * 4);
      linear.num_rows = memory.Constant(std::vector<uint32_t>{16});
      EXPECT_OK(stream().Launch(few.kernel,
                                {.grid_x = 3,
                                 .block = few.threads,
                                 .shared_bytes = kernels::StreamLayoutOf(*few.instance).bytes},
                                linear));
      memory.Check();
      const std::vector<std::byte> of_these = memory.ReadBytes(linear.out);
      bytes.insert(bytes.end(), of_these.begin(), of_these.end());
    }
    return bytes;
  }

  struct Shape {
    int tokens, span, chunks, copied_rows;
  };
  // Adds a launch of that shape to the stream.
  void Launch(const Shape& s, const LinearArgs& linear, uint32_t max_rows) {
    const kernels::LoadedKernel& kernel = kernels().Get(kernels::kLinearCluster, s.tokens);
    kernels::LinearGroupArgs args{
        .linear = linear, .span = s.span, .stage_chunks = s.chunks, .copied_rows = s.copied_rows};
    args.whole_stages =
        kernels::LinearGroupCopiesWholeStages(s.tokens, s.copied_rows, linear.in_features) ? 1 : 0;
    const runtime::DeviceKind kind = device().kind();
    ASSERT_OK_AND_ASSIGN(args.tokens, MapTiles(kind, LinearGroupTokens(args, max_rows)));
    ASSERT_OK_AND_ASSIGN(args.weights, MapTiles(kind, LinearGroupWeights(args, kernels::kGroup16)));
    const int64_t tiles =
        kernels::PackedLayout{linear.out_features, linear.in_features}.OutputTiles();
    const auto spans = static_cast<unsigned>((tiles + s.span - 1) / s.span);
    ASSERT_OK(stream().Launch(kernel.kernel,
                              {.grid_x = spans * kLinearClusterBlocks,
                               .block = kernel.threads,
                               .shared_bytes = kernels::LinearGroupSharedBytes(
                                   kernels().traits().shared_bytes, s.tokens, s.span, s.chunks,
                                   kernels::kGroup16, kLinearClusterBlocks)},
                              args));
  }
};
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(LinearClusterTest);

// The shape of a launch that Linear makes, without a launch.
TEST_P(LinearClusterTest, IsWhatLinearTakesForFewOutputs) {
  if (dtype() == DType::kF32 || !HasClusters()) GTEST_SKIP() << "needs clusters, and 16 bits";
  const int64_t multiprocessors = device().properties().num_multiprocessors;
  if (multiprocessors < kLinearClusterBlocks) GTEST_SKIP() << "needs room for a cluster";
  const auto clusters = static_cast<unsigned>(multiprocessors / kLinearClusterBlocks);
  alignas(16) const float memory[4] = {};  // nothing runs, so that nothing of it is read
  alignas(16) float out[4] = {};
  const uint32_t live = 1;
  const kernels::LinearWeights weights{
      .format = kernels::WeightFormatOf(dtype()),
      .layout = WeightLayout::kPacked,
      .data = memory,
      .out_features = int64_t{clusters} * kernels::kLinearClusterMaxSpan * 16,
      .in_features = 4096};
  struct Wanted {
    uint32_t rows;
    int tile;  // 0: another kernel's
  };
  for (const Wanted& w : {Wanted{16, 0}, Wanted{17, 32}, Wanted{32, 32}, Wanted{33, 64},
                          Wanted{64, 64}, Wanted{65, 128}, Wanted{128, 128}, Wanted{129, 0}}) {
    SCOPED_TRACE(absl::StrCat(w.rows, " rows"));
    kernels::LaunchList list;
    ASSERT_OK(
        Linear(list, kernels(), weights, {.x = memory, .out = out, .num_rows = &live}, w.rows));
    ASSERT_EQ(list.launches().size(), 1u);
    const kernels::ListedLaunch& launch = list.launches()[0];
    int tile = 0;
    for (const int of : {32, 64, 128})
      if (launch.kernel.handle == kernels().Get(kernels::kLinearCluster, of).kernel.handle)
        tile = of;
    EXPECT_EQ(tile, w.tile);
    if (w.tile == 0) continue;
    EXPECT_EQ(launch.shape.grid_x, clusters * kLinearClusterBlocks);
    EXPECT_EQ(launch.shape.grid_y, 1u);
    const int span = kernels::kLinearClusterMaxSpan, shared = kernels().traits().shared_bytes;
    const int chunks = kernels::LinearGroupStageChunks(shared, w.tile, span, kernels::kGroup16,
                                                       kLinearClusterBlocks);
    EXPECT_EQ(launch.shape.shared_bytes,
              kernels::LinearGroupSharedBytes(shared, w.tile, span, chunks, kernels::kGroup16,
                                              kLinearClusterBlocks));
  }
}

// Inputs: a part, which leaves one of the blocks without any, parts for both, and more for the
// first one, of which each takes the place of the one before. Outputs: ten tiles, the last one
// half. Rows: a whole tile of tokens, which lie in the halves of both blocks, and three fewer.
TEST_P(LinearClusterTest, EveryShapeHasTheBitsOfLinearStream) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  if (dtype() == DType::kF32 || !HasClusters()) GTEST_SKIP() << "needs clusters, and 16 bits";
  constexpr uint32_t kRows = 128;
  for (const int32_t in_features : {72, 512, 792, 1288, 4096}) {
    const LinearCase c{"", in_features, 152, kRows, kRows, true, 0.5f, true};
    const LinearInput in(c, dtype());
    GuardedMemory memory(device(), stream());
    const Call call = MakeCall(memory, c, in, WeightLayout::kPacked);
    LinearArgs linear = WithWeights(call.weights, call.args);
    const std::vector<std::byte> expected = StreamBytes(memory, linear, kRows);
    for (const Shape& s : {Shape{32, 1, 4, 32}, Shape{32, 4, 2, 32}, Shape{64, 2, 4, 64},
                           Shape{64, 3, 2, 64}, Shape{128, 4, 1, 128}, Shape{128, 4, 2, 64}}) {
      for (const int rows : {s.tokens, s.tokens - 3}) {
        SCOPED_TRACE(absl::StrCat(in_features, " inputs, tokens ", s.tokens, ", span ", s.span,
                                  ", chunks ", s.chunks, ", rows ", rows));
        const auto bytes = static_cast<ptrdiff_t>(rows) * 152 * 4;
        linear.num_rows = memory.Constant(std::vector<uint32_t>{static_cast<uint32_t>(rows)});
        linear.out = memory.Poisoned(static_cast<size_t>(bytes));
        Launch(s, linear, static_cast<uint32_t>(s.tokens));
        memory.Check();
        EXPECT_TRUE(std::ranges::equal(memory.ReadBytes(linear.out),
                                       std::span(expected).first(static_cast<size_t>(bytes))));
      }
    }
  }
}

// Sums of a part take the place of those before it, in both blocks. Where one says too early that
// they may, an H200 has other bits in every launch; the emulator finds it in any.
TEST_P(LinearClusterTest, ManyShortPartsHaveTheSameBitsAgainAndAgain) {
  if (dtype() == DType::kF32 || !HasClusters() || is_emulated())
    GTEST_SKIP() << "needs a GPU that has clusters, and 16 bits";
  const LinearCase c{"", 8192, 2048, 32, 32, false, 1.0f, true};
  const LinearInput in(c, dtype());
  GuardedMemory memory(device(), stream());
  const Call call = MakeCall(memory, c, in, WeightLayout::kPacked);
  const LinearArgs linear = WithWeights(call.weights, call.args);
  const std::vector<std::byte> expected = StreamBytes(memory, linear, c.max_rows);
  for (int i = 0; i < 100; ++i) {
    Launch({32, 2, 4, 32}, linear, c.max_rows);
    memory.Check();
    ASSERT_EQ(memory.ReadBytes(linear.out), expected) << "launch " << i;
  }
}

// One launch behind another that writes what it reads, or that still reads what it writes, as
// LinearTest.WaitsForTheLaunchBefore.
TEST_P(LinearClusterTest, WaitsForTheLaunchBefore) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  if (dtype() == DType::kF32 || !HasClusters()) GTEST_SKIP() << "needs clusters, and 16 bits";
  constexpr uint32_t kRows = 20;
  const LinearCase wide{"", 64, 1096, kRows, kRows}, narrow{"", 1096, 64, kRows, kRows};
  std::vector<std::byte> results[2];
  for (const bool reads_ahead : {false, true}) {
    GuardedMemory memory(device(), stream());
    const Call to_wide = MakeCall(memory, wide, LinearInput(wide, dtype()), WeightLayout::kPacked);
    const Call to_narrow =
        MakeCall(memory, narrow, LinearInput(narrow, dtype()), WeightLayout::kPacked);
    auto* const stamp = memory.Poisoned<uint64_t>(1);
    ASSERT_OK(kernels::Stamp(stream(), kernels(), {.out = stamp}));
    LinearArgs back = WithWeights(to_narrow.weights, to_narrow.args);
    back.x = to_wide.args.out;
    back.reads_ahead = reads_ahead;
    LinearArgs again = to_wide.args;
    again.reads_ahead = reads_ahead;
    again.x = back.out;
    for (int i = 0; i < 2; ++i) {
      ASSERT_OK(Linear(stream(), kernels(), to_wide.weights, i == 0 ? to_wide.args : again, kRows));
      Launch({32, 2, 2, 32}, back, kRows);
      Launch({64, 4, 2, 64}, back, kRows);  // writes what the one before wrote
    }
    memory.Check();
    results[reads_ahead ? 1 : 0] = memory.ReadBytes(back.out);
  }
  EXPECT_EQ(results[0], results[1]);
}

// Few tokens of a tile, none of the second half, and a batch without rows.
TEST_P(LinearClusterTest, HalvesOfATileMayBeEmpty) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  if (dtype() == DType::kF32 || !HasClusters()) GTEST_SKIP() << "needs clusters, and 16 bits";
  for (const uint32_t rows : {0u, 1u, 16u, 17u, 40u, 64u}) {
    SCOPED_TRACE(absl::StrCat(rows, " rows"));
    const LinearCase c{"", 1032, 64, rows, 64, true};
    const LinearInput in(c, dtype());
    GuardedMemory memory(device(), stream());
    const Call call = MakeCall(memory, c, in, WeightLayout::kPacked);
    LinearArgs linear = WithWeights(call.weights, call.args);
    Launch({64, 4, 2, 64}, linear, c.max_rows);
    memory.Check();
    std::vector<std::byte> got = memory.ReadBytes(linear.out);
    linear.out = memory.Poisoned(got.size());
    Launch({128, 2, 1, 128}, linear, c.max_rows);
    memory.Check();
    EXPECT_EQ(memory.ReadBytes(linear.out), got);
    // Rows that there are not stay poisoned in both.
    if (rows > 16) continue;
    Call by_stream = call;
    by_stream.args.out = memory.Poisoned(got.size());
    ASSERT_OK(Linear(stream(), kernels(), by_stream.weights, by_stream.args, 16));
    EXPECT_EQ(memory.ReadBytes(by_stream.args.out), got);
  }
}

}  // namespace
}  // namespace reprise::testing
