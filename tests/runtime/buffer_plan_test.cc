// SPDX-License-Identifier: Apache-2.0
// Buffers declared by their owners: one allocation, exact bytes, every pointer set and no overlap.
#include "runtime/memory/buffer_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/testing/status_matchers.h"

namespace reprise::runtime {
namespace {

using ::reprise::testing::StatusIs;

class BufferPlanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(device_, Device::Create({.kind = DeviceKind::kHost}));
  }
  std::unique_ptr<Device> device_;
};

struct Range {
  const void* begin;
  size_t bytes;
};

void ExpectDisjointInside(std::vector<Range> ranges, const Arena& arena) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  auto end = reinterpret_cast<uintptr_t>(arena.data());
  for (const Range& range : ranges) {
    const auto begin = reinterpret_cast<uintptr_t>(range.begin);
    EXPECT_GE(begin, end);
    EXPECT_EQ(begin % 256, 0u);
    end = begin + range.bytes;
  }
  EXPECT_LE(end, reinterpret_cast<uintptr_t>(arena.data()) + arena.bytes());
}

TEST_F(BufferPlanTest, SetsEveryPointerToARangeOfItsOwn) {
  BufferPlan plan;
  uint32_t* counters = nullptr;
  double* sums = nullptr;
  void* activations = nullptr;
  plan.Add(&counters, 70, "counters");
  plan.Add(&sums, 3, "sums");
  plan.AddElements(&activations, 129, DType::kBf16, "activations");
  EXPECT_EQ(counters, nullptr);
  ASSERT_OK_AND_ASSIGN(const size_t bytes, plan.bytes());
  EXPECT_EQ(bytes, 512u + 256 + 512);
  ASSERT_OK_AND_ASSIGN(const Arena arena, plan.Allocate(*device_));
  EXPECT_EQ(arena.bytes(), bytes);
  ExpectDisjointInside({{counters, 70 * 4}, {sums, 3 * 8}, {activations, 129 * 2}}, arena);
  EXPECT_EQ(counters, arena.data());  // in the order of declaration
}

TEST_F(BufferPlanTest, SharersOfANameGetOneBufferAsLargeAsTheLargest) {
  BufferPlan plan;
  float *a = nullptr, *b = nullptr, *c = nullptr, *other = nullptr;
  plan.Share(&a, 10, "scratch");
  plan.Share(&b, 200, "scratch");
  plan.Share(&other, 5, "other");
  plan.Share(&c, 3, "scratch");
  ASSERT_EQ(plan.regions().size(), 2u);
  EXPECT_EQ(plan.regions()[0].name, "scratch");
  EXPECT_EQ(plan.regions()[0].bytes, 200u * 4);
  ASSERT_OK_AND_ASSIGN(const Arena arena, plan.Allocate(*device_));
  EXPECT_EQ(a, b);
  EXPECT_EQ(b, c);
  ExpectDisjointInside({{a, 800}, {other, 20}}, arena);
}

TEST_F(BufferPlanTest, BuffersOfNoElementsAreNull) {
  BufferPlan plan;
  int none = 1;
  int *empty = &none, *one = nullptr;
  plan.Add(&empty, 0, "empty");
  plan.Add(&one, 1, "one");
  ASSERT_OK_AND_ASSIGN(const Arena arena, plan.Allocate(*device_));
  EXPECT_EQ(empty, nullptr);
  EXPECT_NE(one, nullptr);
}

TEST_F(BufferPlanTest, MoreThanCanBeAddressedIsRefused) {
  BufferPlan plan;
  uint64_t *large = nullptr, *one = nullptr;
  plan.Add(&one, 1, "one");
  plan.Add(&large, static_cast<size_t>(-1) / 4, "large");
  EXPECT_THAT(plan.bytes(), StatusIs(absl::StatusCode::kResourceExhausted, "large"));
  EXPECT_THAT(plan.Allocate(*device_), StatusIs(absl::StatusCode::kResourceExhausted, "large"));
  EXPECT_EQ(one, nullptr);
}

TEST_F(BufferPlanTest, TwoOwnersOfOneNameAreABug) {
  BufferPlan plan;
  int *a = nullptr, *b = nullptr;
  plan.Add(&a, 1, "mine");
  EXPECT_DEATH(plan.Add(&b, 1, "mine"), "");
}

}  // namespace
}  // namespace reprise::runtime
