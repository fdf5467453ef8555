// SPDX-License-Identifier: Apache-2.0
// Rings in mapped memory: entries, both sides' addresses, the sequence word.
#include "runtime/memory/mapped_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "tests/testing/any_device.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::runtime {
namespace {

using ::reprise::testing::StatusIs;

using ::reprise::testing::kInvalid;

class MappedRingTest : public ::testing::TestWithParam<DeviceKind> {};
REPRISE_ON_EVERY_DEVICE(MappedRingTest);

TEST_P(MappedRingTest, StartsZeroedAndStepsGoRoundItsEntries) {
  REPRISE_DEVICE_OR_SKIP(device);
  ASSERT_OK_AND_ASSIGN(const MappedRing ring, MappedRing::Create(*device, 3, 192));
  EXPECT_EQ(ring.depth(), 3u);
  EXPECT_EQ(ring.entry_bytes(), 192u);
  const std::byte* base = ring.HostEntry(0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(base) % 64, 0u);
  EXPECT_TRUE(std::all_of(base, base + 3 * 192, [](std::byte b) { return b == std::byte{0}; }));
  for (uint64_t step = 0; step < 10; ++step) {
    EXPECT_EQ(ring.HostEntry(step), base + (step % 3) * 192);
    EXPECT_EQ(ring.Poll(step), 0u);
  }
  const uint64_t late = std::numeric_limits<uint64_t>::max();  // a multiple of 3
  EXPECT_EQ(ring.HostEntry(late), base);
}

TEST_P(MappedRingTest, DeviceSeesWhatTheHostWritesAndTheOtherWayRound) {
  REPRISE_DEVICE_OR_SKIP(device);
  ASSERT_OK_AND_ASSIGN(const auto stream, device->CreateStream());
  ASSERT_OK_AND_ASSIGN(const MappedRing ring, MappedRing::Create(*device, 2, 64));
  const uint64_t word = 0x1122334455667788;
  std::memcpy(ring.HostEntry(1), &word, sizeof(word));
  EXPECT_EQ(ring.Poll(1), word);
  EXPECT_EQ(ring.Poll(0), 0u);
  uint64_t seen = 0;
  ASSERT_OK(stream->CopyToHost(&seen, ring.device_base() + 64, sizeof(seen)));
  ASSERT_OK(stream->Synchronize());
  EXPECT_EQ(seen, word);
  ASSERT_OK(stream->CopyToDevice(ring.device_base(), &word, sizeof(word)));
  ASSERT_OK(stream->Synchronize());
  EXPECT_EQ(ring.Poll(0), word);
  EXPECT_EQ(ring.Poll(2), word);
}

TEST(MappedRing, WhatWasPublishedBeforeTheSequenceWordIsVisibleToThePoller) {
  ASSERT_OK_AND_ASSIGN(const auto device, Device::Create({.kind = DeviceKind::kHost}));
  ASSERT_OK_AND_ASSIGN(const MappedRing ring, MappedRing::Create(*device, 2, 64));
  constexpr uint64_t kSteps = 2000;
  uint64_t taken = 0;  // by the poller; the publisher stays at most two entries ahead
  std::thread publisher([&] {
    for (uint64_t step = 0; step < kSteps; ++step) {
      while (step >= __atomic_load_n(&taken, __ATOMIC_ACQUIRE) + 2) std::this_thread::yield();
      std::byte* entry = ring.HostEntry(step);
      const uint64_t payload = step * 31 + 5;
      std::memcpy(entry + 56, &payload, sizeof(payload));
      __atomic_store_n(reinterpret_cast<uint64_t*>(entry), step + 1, __ATOMIC_RELEASE);
    }
  });
  for (uint64_t step = 0; step < kSteps; ++step) {
    while (ring.Poll(step) != step + 1) std::this_thread::yield();
    uint64_t payload = 0;
    std::memcpy(&payload, ring.HostEntry(step) + 56, sizeof(payload));
    EXPECT_EQ(payload, step * 31 + 5);
    __atomic_store_n(&taken, step + 1, __ATOMIC_RELEASE);
  }
  publisher.join();
}

TEST_P(MappedRingTest, RefusesWhatIsNoRing) {
  REPRISE_DEVICE_OR_SKIP(device);
  EXPECT_THAT(MappedRing::Create(*device, 0, 64), StatusIs(kInvalid, "depth is 0"));
  EXPECT_THAT(MappedRing::Create(*device, 2, 0), StatusIs(kInvalid, "0 bytes"));
  EXPECT_THAT(MappedRing::Create(*device, 2, 96), StatusIs(kInvalid, "96 bytes"));
  const size_t huge = std::numeric_limits<size_t>::max() / 64 * 64;
  EXPECT_THAT(MappedRing::Create(*device, 2, huge), StatusIs(kInvalid, "bytes"));
}

}  // namespace
}  // namespace reprise::runtime
