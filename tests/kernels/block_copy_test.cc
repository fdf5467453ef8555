// SPDX-License-Identifier: Apache-2.0
#include "kernels/block_copy/block_copy.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::BlockCopyArgs;
using kernels::BlockPair;

using BlockCopyTest = KernelTest;
REPRISE_FOR_EVERY_DEVICE(BlockCopyTest);

std::vector<uint8_t> RandomBytes(size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Below(256));
  return bytes;
}

// Less than a chunk, chunks, a piece, a piece and chunks, pieces and some bytes.
constexpr int64_t kBlockBytes[] = {7, 48, 16384, 16384 + 32, 2 * 16384 + 5};

// From some blocks of a layer of 6 to some of one of 5, in 3 layers; nothing beside them changes.
TEST_P(BlockCopyTest, CopiesTheNamedBlocksInEveryLayerAlone) {
  constexpr size_t kLayers = 3, kFrom = 6, kTo = 5;
  const std::vector<BlockPair> pairs = {{5, 0}, {0, 3}, {5, 4}};
  for (const int64_t block_bytes : kBlockBytes) {
    SCOPED_TRACE(block_bytes);
    const auto block = static_cast<size_t>(block_bytes);
    const std::vector<uint8_t> from = RandomBytes(kLayers * kFrom * block, 1);
    std::vector<uint8_t> want = RandomBytes(kLayers * kTo * block, 2);
    GuardedMemory memory(device(), stream());
    uint8_t* to = memory.Variable(want);
    BlockCopyArgs args = {.from = memory.Constant(from),
                          .to = to,
                          .from_layer_bytes = static_cast<int64_t>(kFrom) * block_bytes,
                          .to_layer_bytes = static_cast<int64_t>(kTo) * block_bytes,
                          .block_bytes = block_bytes,
                          .layers = kLayers,
                          .count = static_cast<int32_t>(pairs.size())};
    for (size_t i = 0; i < pairs.size(); ++i) args.pair[i] = pairs[i];
    ASSERT_OK(BlockCopy(stream(), kernels(), args));
    for (size_t layer = 0; layer < kLayers; ++layer) {
      for (const BlockPair& pair : pairs) {
        for (size_t i = 0; i < block; ++i)
          want[(layer * kTo + pair.to) * block + i] = from[(layer * kFrom + pair.from) * block + i];
      }
    }
    memory.Check();
    EXPECT_TRUE(memory.Read(to) == want);
  }
}

TEST_P(BlockCopyTest, CopiesWithinOnePool) {
  constexpr int64_t kBytes = 64;
  std::vector<uint8_t> pool = RandomBytes(4 * kBytes, 3);
  GuardedMemory memory(device(), stream());
  uint8_t* data = memory.Variable(pool);
  BlockCopyArgs args = {.from = data,
                        .to = data,
                        .from_layer_bytes = 4 * kBytes,
                        .to_layer_bytes = 4 * kBytes,
                        .block_bytes = kBytes,
                        .layers = 1,
                        .count = 2,
                        .pair = {{1, 3}, {1, 2}}};
  ASSERT_OK(BlockCopy(stream(), kernels(), args));
  memory.Check();
  for (int64_t i = 0; i < kBytes; ++i) {
    pool[static_cast<size_t>(2 * kBytes + i)] = pool[static_cast<size_t>(kBytes + i)];
    pool[static_cast<size_t>(3 * kBytes + i)] = pool[static_cast<size_t>(kBytes + i)];
  }
  EXPECT_TRUE(memory.Read(data) == pool);
}

TEST_P(BlockCopyTest, TakesAsManyPairsAsItSays) {
  constexpr int32_t kMost = kernels::kMaxCopyPairs;
  const std::vector<uint8_t> from = RandomBytes(kMost, 4);
  GuardedMemory memory(device(), stream());
  auto* to = memory.Poisoned<uint8_t>(kMost);
  BlockCopyArgs args = {.from = memory.Constant(from),
                        .to = to,
                        .from_layer_bytes = kMost,
                        .to_layer_bytes = kMost,
                        .block_bytes = 1,
                        .layers = 1,
                        .count = kMost};
  for (uint32_t i = 0; i < kMost; ++i) args.pair[i] = {.from = i, .to = kMost - 1 - i};
  ASSERT_OK(BlockCopy(stream(), kernels(), args));
  memory.Check();
  EXPECT_EQ(memory.Read(to), std::vector<uint8_t>(from.rbegin(), from.rend()));
  ++args.count;
  EXPECT_THAT(BlockCopy(stream(), kernels(), args),
              StatusIs(kInvalid, "count is 257; allowed: at most 256"));
}

TEST_P(BlockCopyTest, NotifyHostComesBehindWhatWasEnqueuedBeforeIt) {
  GuardedMemory memory(device(), stream());
  const std::vector<uint64_t> values = {17, 42};
  auto* to = memory.Variable(std::vector<uint64_t>{0, 0});
  auto* word = memory.Variable(std::vector<uint64_t>{0});
  ASSERT_OK(BlockCopy(stream(), kernels(),
                      {.from = memory.Constant(values),
                       .to = to,
                       .from_layer_bytes = 16,
                       .to_layer_bytes = 16,
                       .block_bytes = 16,
                       .layers = 1,
                       .count = 1}));
  ASSERT_OK(NotifyHost(stream(), kernels(), {.word = word, .value = 9}));
  memory.Check();
  EXPECT_EQ(memory.Read(to), values);
  EXPECT_EQ(memory.Read(word), std::vector<uint64_t>{9});
}

TEST_P(BlockCopyTest, RefusesWhatIsNothing) {
  BlockCopyArgs args;
  EXPECT_THAT(BlockCopy(stream(), kernels(), args), StatusIs(kInvalid, "count is 0"));
  args.count = 1;
  EXPECT_THAT(BlockCopy(stream(), kernels(), args), StatusIs(kInvalid, "layers is 0"));
  args.layers = 1;
  EXPECT_THAT(BlockCopy(stream(), kernels(), args), StatusIs(kInvalid, "block_bytes is 0"));
  args.block_bytes = 1;
  EXPECT_THAT(BlockCopy(stream(), kernels(), args), StatusIs(kInvalid, "from or to is null"));
  EXPECT_THAT(NotifyHost(stream(), kernels(), {}), StatusIs(kInvalid, "word is null"));
}

}  // namespace
}  // namespace reprise::testing
