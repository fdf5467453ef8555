// SPDX-License-Identifier: Apache-2.0
#include "kernels/memory_probe/memory_probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/memory_probe/host_native_targets.h"
#include "runtime/device.h"
#include "tests/testing/cases/memory_probe_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::MemoryProbeCase;

using MemoryProbeTest = KernelTest;
REPRISE_FOR_EVERY_DEVICE(MemoryProbeTest);

constexpr size_t kPieceBytes = kernels::kMemoryProbePiece;
constexpr size_t kGroupBytes = kernels::kMemoryProbeGroup;
constexpr uint32_t kPattern = 5;

// Few different values, so that a group's word often is the pattern.
std::vector<uint32_t> SmallWords(int64_t bytes) {
  Random random(static_cast<uint64_t>(bytes));
  std::vector<uint32_t> words(static_cast<size_t>(bytes) / 4);
  for (uint32_t& word : words) word = random.Below(8);
  return words;
}

// Word by word: which group a word belongs to, then how many groups came out as the pattern.
std::vector<uint32_t> OracleMatches(const std::vector<uint32_t>& words) {
  const size_t bytes = words.size() * 4;
  std::vector<uint32_t> matches;
  for (size_t begin = 0; begin < bytes; begin += kPieceBytes) {
    const size_t piece = std::min(kPieceBytes, bytes - begin);
    std::vector<uint32_t> group(piece / kGroupBytes, 0);
    for (size_t i = 0; i < piece / 4; ++i) group[i / 4 % group.size()] ^= words[begin / 4 + i];
    matches.push_back(static_cast<uint32_t>(std::count(group.begin(), group.end(), kPattern)));
  }
  return matches;
}

TEST_P(MemoryProbeTest, ReadCountsTheWordsThatMatch) {
  for (const MemoryProbeCase& c : kernels::kMemoryProbeCases) {
    SCOPED_TRACE(c.name);
    const std::vector<uint32_t> words = SmallWords(c.bytes);
    const std::vector<uint32_t> want = OracleMatches(words);
    if (c.bytes > 1000) {
      EXPECT_GT(want[0], 0u);
    }
    GuardedMemory memory(device(), stream());
    auto* matches = memory.Poisoned<uint32_t>(want.size());
    ASSERT_OK(MemoryRead(stream(), kernels(),
                         {.data = memory.Constant(words),
                          .matches = matches,
                          .bytes = c.bytes,
                          .pattern = kPattern}));
    memory.Check();
    EXPECT_EQ(memory.Read(matches), want);
  }
}

TEST_P(MemoryProbeTest, OneChangedBitAnywhereChangesTheCount) {
  Random random(7);
  std::vector<uint32_t> zeros(kPieceBytes / 4, 0);
  for (int i = 0; i < 16; ++i) {
    const uint32_t at = random.Below(kPieceBytes / 4);
    zeros[at] = 1u << random.Below(32);
    GuardedMemory memory(device(), stream());
    auto* matches = memory.Poisoned<uint32_t>(1);
    ASSERT_OK(
        MemoryRead(stream(), kernels(),
                   {.data = memory.Constant(zeros), .matches = matches, .bytes = kPieceBytes}));
    memory.Check();
    EXPECT_EQ(memory.Read(matches)[0], kPieceBytes / kGroupBytes - 1) << at;
    zeros[at] = 0;
  }
}

TEST_P(MemoryProbeTest, CopyMovesEveryByte) {
  for (const MemoryProbeCase& c : kernels::kMemoryProbeCases) {
    SCOPED_TRACE(c.name);
    const std::vector<uint32_t> words = SmallWords(c.bytes);
    GuardedMemory memory(device(), stream());
    auto* to = memory.Poisoned<uint32_t>(words.size());
    ASSERT_OK(MemoryCopy(stream(), kernels(),
                         {.from = memory.Constant(words), .to = to, .bytes = c.bytes}));
    memory.Check();
    EXPECT_EQ(memory.Read(to), words);
  }
}

// The catalogue takes the best instruction set that runs here; these are all of them.
TEST(MemoryProbeOfTheHost, EveryInstructionSetReadsAndCopiesEveryByte) {
  ASSERT_OK_AND_ASSIGN(const auto device,
                       runtime::Device::Create({.kind = runtime::DeviceKind::kHost}));
  ASSERT_OK_AND_ASSIGN(const auto stream, device->CreateStream());
  for (const auto& target : kernels::on_host::NativeMemoryProbeTargets()) {
    const runtime::KernelDef defs[] = {{.name = "read", .host = target.read},
                                       {.name = "copy", .host = target.copy}};
    ASSERT_OK_AND_ASSIGN(const auto module, device->Load({.kernels = defs, .cuda_fatbins = {}}));
    ASSERT_OK_AND_ASSIGN(const runtime::Kernel read, module->Find("read"));
    ASSERT_OK_AND_ASSIGN(const runtime::Kernel copy, module->Find("copy"));
    for (const MemoryProbeCase& c : kernels::kMemoryProbeCases) {
      SCOPED_TRACE(std::string(target.name) + ", " + c.name);
      const std::vector<uint32_t> words = SmallWords(c.bytes);
      const std::vector<uint32_t> want = OracleMatches(words);
      const auto pieces = static_cast<unsigned>(want.size());
      GuardedMemory memory(*device, *stream);
      auto* data = memory.Constant(words);
      auto* matches = memory.Poisoned<uint32_t>(want.size());
      // Whole vectors at their own addresses go past the caches; others are copied as well.
      auto* to = memory.Poisoned<uint32_t>(words.size());
      auto* askew = memory.Poisoned<uint32_t>(words.size() + 4) + 4;
      ASSERT_OK(stream->Launch(
          read, {.grid_x = pieces},
          kernels::MemoryReadArgs{
              .data = data, .matches = matches, .bytes = c.bytes, .pattern = kPattern}));
      ASSERT_OK(stream->Launch(copy, {.grid_x = pieces},
                               kernels::MemoryCopyArgs{.from = data, .to = to, .bytes = c.bytes}));
      ASSERT_OK(
          stream->Launch(copy, {.grid_x = pieces},
                         kernels::MemoryCopyArgs{.from = data, .to = askew, .bytes = c.bytes}));
      memory.Check();
      EXPECT_EQ(memory.Read(matches), want);
      EXPECT_EQ(memory.Read(to), words);
      const std::vector<uint32_t> all = memory.Read(askew - 4);
      EXPECT_TRUE(std::equal(words.begin(), words.end(), all.begin() + 4, all.end()));
    }
  }
}

TEST_P(MemoryProbeTest, RefusesSizesThatAreNotWholeGroups) {
  EXPECT_THAT(MemoryRead(stream(), kernels(), {}), StatusIs(kInvalid, "memory_read: bytes is 0"));
  EXPECT_THAT(MemoryRead(stream(), kernels(), {.bytes = 100}), StatusIs(kInvalid, "bytes is 100"));
  EXPECT_THAT(MemoryCopy(stream(), kernels(), {.bytes = int64_t{1} << 60}),
              StatusIs(kInvalid, "memory_copy: bytes is 1152921504606846976"));
}

}  // namespace
}  // namespace reprise::testing
