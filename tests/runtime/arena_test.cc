// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>

#include "runtime/device.h"
#include "tests/testing/status_matchers.h"

namespace reprise::runtime {
namespace {

using ::reprise::testing::StatusIs;

struct HostArena : ::testing::Test {
  std::unique_ptr<Device> device = *Device::Create({});
};
using Arenas = HostArena;

TEST(ArenaLayout, RegionsAreAlignedDisjointAndExactlyAccounted) {
  ArenaLayout layout;
  const auto a = layout.Add<uint8_t>(1, "a");
  const auto b = layout.Add<double>(32, "b");
  const auto c = layout.Add<uint16_t>(129, "c");
  EXPECT_EQ(a.offset, 0u);
  EXPECT_EQ(b.offset, 256u);
  EXPECT_EQ(c.offset, 512u);
  EXPECT_EQ(layout.bytes(), 1024u);
  size_t reserved = 0;
  for (const ArenaRegion& region : layout.regions()) reserved += region.reserved_bytes;
  EXPECT_EQ(reserved, layout.bytes());
  EXPECT_EQ(layout.regions()[2].bytes, 258u);
  EXPECT_EQ(layout.regions()[2].name, "c");
}

TEST(ArenaLayout, AlternativesShareBytesAndTheLargestCounts) {
  ArenaLayout layout;
  const auto before = layout.Add<char>(10, "before");
  ArenaHandle<char> a1, a2, b1, inner1, inner2;
  {
    ArenaAlternatives outer(layout);
    outer.Next();
    a1 = layout.Add<char>(256, "a1");
    a2 = layout.Add<char>(256, "a2");
    outer.Next();
    b1 = layout.Add<char>(300, "b1");
    {
      ArenaAlternatives inner(layout);
      inner.Next();
      inner1 = layout.Add<char>(1000, "inner1");
      inner.Next();
      inner2 = layout.Add<char>(10, "inner2");
    }
  }
  const auto after = layout.Add<char>(1, "after");
  EXPECT_EQ(before.offset, 0u);
  EXPECT_EQ(a1.offset, 256u);
  EXPECT_EQ(a2.offset, 512u);
  EXPECT_EQ(b1.offset, 256u);
  EXPECT_EQ(inner1.offset, 768u);
  EXPECT_EQ(inner2.offset, 768u);
  EXPECT_EQ(after.offset, 768u + 1024u);
  EXPECT_EQ(layout.bytes(), 2048u);
}

TEST(ArenaLayout, AlternativesCoverRegionsAddedBeforeTheFirstNext) {
  ArenaLayout layout;
  {
    ArenaAlternatives alternatives(layout);
    layout.Add<char>(5000, "first");
    alternatives.Next();
    EXPECT_EQ(layout.Add<char>(1, "second").offset, 0u);
  }
  EXPECT_EQ(layout.bytes(), 5120u);
}

TEST(ArenaLayout, PrintsEveryRegionAndTheTotal) {
  ArenaLayout layout;
  layout.Add<float>(100, "hidden");
  layout.Add<float>(1, "logits");
  const std::string text = layout.ToString();
  EXPECT_THAT(text, ::testing::ContainsRegex("0 +400 +hidden\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("512 +4 +logits\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("768 +total\n"));
}

TEST_F(Arenas, OverflowIsAnErrorThatNamesTheRegion) {
  constexpr size_t kMax = std::numeric_limits<size_t>::max();
  for (const size_t count : {kMax, kMax / 4 + 1, kMax / 4}) {
    ArenaLayout layout;
    layout.Add<char>(1000, "small");
    layout.Add<float>(count, "huge");
    layout.Add<char>(1, "later");
    EXPECT_THAT(layout.status(), StatusIs(absl::StatusCode::kResourceExhausted, "'huge'"));
    EXPECT_THAT(Arena::Create(*device, layout),
                StatusIs(absl::StatusCode::kResourceExhausted, "'huge'"));
  }
}

TEST_F(Arenas, HandlesResolveInsideOneBufferOfTheLayoutsSize) {
  ArenaLayout layout;
  const auto a = layout.Add<uint32_t>(3, "a");
  const auto none = layout.Add<uint32_t>(0, "none");
  const auto b = layout.Add<uint64_t>(100, "b");
  ASSERT_OK_AND_ASSIGN(Arena arena, Arena::Create(*device, layout));
  EXPECT_EQ(arena.bytes(), layout.bytes());
  EXPECT_EQ(static_cast<void*>(arena.Get(a)), arena.data());
  EXPECT_EQ(arena.Get(none), nullptr);
  EXPECT_EQ(reinterpret_cast<char*>(arena.Get(b)) - static_cast<char*>(arena.data()), 256);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.Get(b)) % 256, 0u);
  // All of it may be written.
  std::memset(arena.Get(b), 1, 800);
  std::memset(arena.data(), 2, arena.bytes());
}

TEST_F(Arenas, PointersSurviveAMove) {
  ArenaLayout layout;
  const auto a = layout.Add<uint32_t>(3, "a");
  ASSERT_OK_AND_ASSIGN(Arena arena, Arena::Create(*device, layout));
  const uint32_t* before = arena.Get(a);
  const Arena moved = std::move(arena);
  EXPECT_EQ(moved.Get(a), before);
}

TEST_F(Arenas, EmptyLayoutIsRefused) {
  EXPECT_THAT(Arena::Create(*device, ArenaLayout()),
              StatusIs(absl::StatusCode::kInvalidArgument, "0 bytes"));
}

TEST_F(Arenas, LayoutBeyondTheDeviceSaysAskedAndFree) {
  ArenaLayout layout;
  layout.Add<char>(device->properties().total_bytes + 1, "too much");
  EXPECT_THAT(Arena::Create(*device, layout),
              StatusIs(absl::StatusCode::kResourceExhausted, " asked"));
}

using ArenaDeathTest = HostArena;
TEST_F(ArenaDeathTest, HandleOfALargerLayoutIsAnInvariantBroken) {
  ArenaLayout small, large;
  small.Add<char>(1, "a");
  const auto beyond = large.Add<char>(100000, "b");
  ASSERT_OK_AND_ASSIGN(Arena arena, Arena::Create(*device, small));
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(arena.Get(beyond), "invariant broken");
}

}  // namespace
}  // namespace reprise::runtime
