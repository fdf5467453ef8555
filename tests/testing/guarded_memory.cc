// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/guarded_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "tests/testing/number.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace reprise::testing {
namespace {

constexpr size_t kGuardBytes = 256;  // keeps the contents aligned to 256 bytes
constexpr std::byte kGuard{0xa5};
constexpr std::byte kPoison{0xff};

void Require(const absl::Status& status) {
  if (status.ok()) return;
  ADD_FAILURE() << status.ToString();
  throw std::runtime_error(status.ToString());
}

}  // namespace

GuardedMemory::~GuardedMemory() {
  // Kernels may still run when a test ends early.
  const absl::Status status = stream_.Synchronize();
  EXPECT_TRUE(status.ok()) << status.ToString();
  for (const Buffer& buffer : buffers_) {
    GuardsAccessible(buffer, true);
    device_.Free(buffer.base);
  }
}

std::byte* GuardedMemory::Add(Buffer buffer, std::span<const std::byte> image) {
  absl::StatusOr<void*> base = device_.Allocate(image.size());
  Require(base.status());
  buffer.base = static_cast<std::byte*>(*base);
  Require(stream_.CopyToDevice(buffer.base, image.data(), image.size()));
  Require(stream_.Synchronize());
  GuardsAccessible(buffer, false);
  buffers_.push_back(std::move(buffer));
  return buffers_.back().base + kGuardBytes;
}

void* GuardedMemory::Poisoned(size_t bytes) {
  return Filled(std::vector<std::byte>(bytes, kPoison), false);
}

void* GuardedMemory::Filled(std::span<const std::byte> contents, bool constant) {
  std::vector<std::byte> image(kGuardBytes, kGuard);
  image.reserve(2 * kGuardBytes + contents.size());
  image.insert(image.end(), contents.begin(), contents.end());
  image.insert(image.end(), kGuardBytes, kGuard);
  Buffer buffer;
  buffer.bytes = contents.size();
  buffer.constant = constant;
  if (constant) buffer.original.assign(contents.begin(), contents.end());
  return Add(std::move(buffer), image);
}

const void* GuardedMemory::ConstantTensor(runtime::DType dtype, std::span<const double> values) {
  return Filled(Encode(dtype, values), true);
}
void* GuardedMemory::VariableTensor(runtime::DType dtype, std::span<const double> values) {
  return Filled(Encode(dtype, values), false);
}

void GuardedMemory::GuardsAccessible(const Buffer& buffer, bool accessible) const {
#if defined(__SANITIZE_ADDRESS__)
  if (device_.kind() != runtime::DeviceKind::kHost) return;
  for (const std::byte* guard : {buffer.base, buffer.base + kGuardBytes + buffer.bytes}) {
    if (accessible) {
      ASAN_UNPOISON_MEMORY_REGION(guard, kGuardBytes);
    } else {
      ASAN_POISON_MEMORY_REGION(guard, kGuardBytes);
    }
  }
#else
  static_cast<void>(buffer);
  static_cast<void>(accessible);
#endif
}

std::vector<std::byte> GuardedMemory::Download(const std::byte* from, size_t bytes) {
  std::vector<std::byte> out(bytes);
  Require(stream_.CopyToHost(out.data(), from, bytes));
  Require(stream_.Synchronize());
  return out;
}

void GuardedMemory::CheckBuffer(const Buffer& buffer) {
  GuardsAccessible(buffer, true);
  const std::vector<std::byte> image =
      Download(buffer.base, kGuardBytes + buffer.bytes + kGuardBytes);
  GuardsAccessible(buffer, false);
  const auto contents = std::span(image).subspan(kGuardBytes, buffer.bytes);
  auto is_guard = [](std::byte b) { return b == kGuard; };
  EXPECT_TRUE(std::all_of(image.begin(), image.begin() + kGuardBytes, is_guard))
      << "a kernel wrote before a buffer of " << buffer.bytes << " bytes";
  EXPECT_TRUE(std::all_of(image.end() - kGuardBytes, image.end(), is_guard))
      << "a kernel wrote beyond a buffer of " << buffer.bytes << " bytes";
  EXPECT_TRUE(!buffer.constant || std::equal(contents.begin(), contents.end(),
                                             buffer.original.begin(), buffer.original.end()))
      << "a kernel changed an input of " << buffer.bytes << " bytes";
}

void GuardedMemory::Check() {
  Require(stream_.Synchronize());
  for (const Buffer& buffer : buffers_) CheckBuffer(buffer);
}

std::vector<std::byte> GuardedMemory::ReadBytes(const void* buffer) {
  for (const Buffer& b : buffers_)
    if (b.base + kGuardBytes == buffer) return Download(b.base + kGuardBytes, b.bytes);
  throw std::logic_error("GuardedMemory::ReadBytes: no buffer starts at this address");
}

std::vector<double> GuardedMemory::ReadTensor(runtime::DType dtype, const void* buffer) {
  return Decode(dtype, ReadBytes(buffer));
}

}  // namespace reprise::testing
