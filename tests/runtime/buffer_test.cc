// SPDX-License-Identifier: Apache-2.0
// Ownership of device memory: who frees, how often, and what moves.
#include "runtime/memory/buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "runtime/device.h"
#include "tests/testing/status_matchers.h"

namespace reprise::runtime {
namespace {

using ::reprise::testing::StatusIs;

// Counts what is allocated and freed, over a host device.
class CountingDevice final : public Device {
 public:
  const DeviceProperties& properties() const override { return device_->properties(); }
  absl::StatusOr<void*> Allocate(size_t bytes) override {
    auto data = device_->Allocate(bytes);
    if (data.ok()) ++live_[*data];
    return data;
  }
  void Free(void* data) override {
    EXPECT_EQ(live_.erase(data), 1u) << "freed twice, or never allocated";
    device_->Free(data);
  }
  absl::StatusOr<MappedPointers> AllocateMapped(size_t bytes) override {
    auto pointers = device_->AllocateMapped(bytes);
    if (pointers.ok()) ++live_[pointers->host];
    return pointers;
  }
  void FreeMapped(const MappedPointers& pointers) override {
    EXPECT_EQ(live_.erase(pointers.host), 1u) << "freed twice, or never allocated";
    device_->FreeMapped(pointers);
  }
  absl::StatusOr<size_t> FreeBytes() const override { return device_->FreeBytes(); }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override {
    return device_->CreateStream();
  }
  absl::StatusOr<std::unique_ptr<Stream>> WrapStream(void* native) override {
    return device_->WrapStream(native);
  }
  absl::StatusOr<std::unique_ptr<KernelModule>> Load(const KernelImage& image) override {
    return device_->Load(image);
  }
  size_t num_live() const { return live_.size(); }

 private:
  std::unique_ptr<Device> device_ = *Device::Create({});
  std::map<void*, int> live_;
};

template <typename Buffer>
class Buffers : public ::testing::Test {};
using BufferTypes = ::testing::Types<DeviceBuffer, MappedBuffer>;
TYPED_TEST_SUITE(Buffers, BufferTypes);

TYPED_TEST(Buffers, DestructorFreesOnce) {
  CountingDevice device;
  {
    ASSERT_OK_AND_ASSIGN(const TypeParam buffer, TypeParam::Create(device, 100));
    EXPECT_EQ(buffer.bytes(), 100u);
    EXPECT_EQ(device.num_live(), 1u);
  }
  EXPECT_EQ(device.num_live(), 0u);
}

TYPED_TEST(Buffers, MoveHandsOverOwnership) {
  CountingDevice device;
  ASSERT_OK_AND_ASSIGN(TypeParam a, TypeParam::Create(device, 100));
  {
    TypeParam b(std::move(a));
    EXPECT_EQ(b.bytes(), 100u);
    EXPECT_EQ(a.bytes(), 0u);
    EXPECT_EQ(device.num_live(), 1u);
  }
  EXPECT_EQ(device.num_live(), 0u);
}

TYPED_TEST(Buffers, MoveAssignmentLosesNothing) {
  CountingDevice device;
  {
    ASSERT_OK_AND_ASSIGN(TypeParam a, TypeParam::Create(device, 100));
    ASSERT_OK_AND_ASSIGN(TypeParam b, TypeParam::Create(device, 200));
    a = std::move(b);
    EXPECT_EQ(a.bytes(), 200u);
    TypeParam& same = a;
    a = std::move(same);
    EXPECT_EQ(a.bytes(), 200u);
    a = TypeParam();
  }
  EXPECT_EQ(device.num_live(), 0u);
}

TYPED_TEST(Buffers, EmptyBufferOwnsNothing) {
  const TypeParam buffer;
  EXPECT_EQ(buffer.bytes(), 0u);
}

TYPED_TEST(Buffers, CreateReportsTheDevicesError) {
  CountingDevice device;
  EXPECT_THAT(TypeParam::Create(device, 0),
              StatusIs(absl::StatusCode::kInvalidArgument, "0 bytes"));
  EXPECT_THAT(TypeParam::Create(device, ~size_t{0}),
              StatusIs(absl::StatusCode::kResourceExhausted, " asked"));
  EXPECT_EQ(device.num_live(), 0u);
}

}  // namespace
}  // namespace reprise::runtime
