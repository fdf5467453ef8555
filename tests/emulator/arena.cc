// SPDX-License-Identifier: Apache-2.0
// Layout of a block's shared memory; see arena.h.
#include "tests/emulator/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "absl/strings/str_cat.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace reprise::emulator {
namespace {

constexpr size_t kAlignment = 1024;
constexpr size_t kRedZoneBytes = 256;
constexpr int kPoison = 0xff;

size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

void Forbid([[maybe_unused]] std::byte* begin, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_POISON_MEMORY_REGION(begin, bytes);
#endif
}

void Allow([[maybe_unused]] std::byte* begin, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(begin, bytes);
#endif
}

}  // namespace

Arena::Arena() {
  static_assert(kLeadBytes % kAlignment == 0 && kBytes % kAlignment == 0);
  void* memory = mmap(nullptr, kAllBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("emulator: no memory for an arena");
  memory_ = static_cast<std::byte*>(memory);
  Forbid(memory_, kAllBytes);
}

Arena::~Arena() {
  Allow(memory_, kAllBytes);
  munmap(memory_, kAllBytes);
}

void Arena::Begin(unsigned num_blocks, size_t dynamic_bytes) {
  for (unsigned block = 0; block < num_blocks_; ++block)
    Forbid(memory_ + block * kBytes + kLeadBytes, end_ - kLeadBytes);
  num_blocks_ = num_blocks;
  dynamic_end_ = kLeadBytes + dynamic_bytes;
  end_ = dynamic_end_;
  static_bytes_ = 0;
  variables_.clear();
  AllowInAll(kLeadBytes, dynamic_bytes);
  Select(0);
}

void Arena::AllowInAll(size_t offset, size_t bytes) {
  for (unsigned block = 0; block < num_blocks_; ++block) {
    std::byte* const begin = memory_ + block * kBytes + offset;
    Allow(begin, bytes);
    std::memset(begin, kPoison, bytes);
  }
}

void* Arena::Static(const void* key, size_t bytes, size_t alignment, std::string* error) {
  for (const Variable& variable : variables_) {
    if (variable.key != key) continue;
    if (variable.bytes == bytes) return memory_ + own_begin_ + variable.offset;
    *error = absl::StrCat("static shared variable of ", variable.bytes,
                          " bytes asked for as one of ", bytes);
    return nullptr;
  }
  const size_t offset = RoundUp(end_ + kRedZoneBytes, std::max(alignment, size_t{16}));
  if (alignment > kAlignment || offset + bytes > kBytes - kTailBytes) {
    *error = absl::StrCat("static shared variable of ", bytes, " bytes, aligned to ", alignment,
                          "; allowed: ", kMaxStaticBytes, " bytes in all, alignment ", kAlignment);
    return nullptr;
  }
  static_bytes_ = RoundUp(static_bytes_, alignment) + bytes;
  const size_t dynamic_bytes = dynamic_end_ - kLeadBytes;
  if (RoundUp(static_bytes_, kAlignment) + dynamic_bytes > limit_bytes_) {
    *error = absl::StrCat("static shared variables of ", static_bytes_, " bytes beside ",
                          dynamic_bytes, " of dynamic shared memory; allowed: ", limit_bytes_,
                          " in all, variables rounded up to ", kAlignment);
    return nullptr;
  }
  variables_.push_back({.key = key, .offset = offset, .bytes = bytes});
  end_ = offset + bytes;
  AllowInAll(offset, bytes);
  return memory_ + own_begin_ + offset;
}

bool Arena::IsInStatic(size_t offset, size_t bytes) const {
  return std::any_of(variables_.begin(), variables_.end(), [&](const Variable& v) {
    return offset >= v.offset && offset + bytes <= v.offset + v.bytes;
  });
}

std::string Arena::Describe(size_t offset) const {
  if (num_blocks_ == 1) return DescribeInBlock(offset);
  return absl::StrCat(DescribeInBlock(offset % kBytes), " of the cluster's block ",
                      offset / kBytes);
}

std::string Arena::DescribeInBlock(size_t offset) const {
  for (const Variable& variable : variables_) {
    if (offset >= variable.offset && offset < variable.offset + variable.bytes + kRedZoneBytes) {
      return absl::StrCat("static shared variable (", variable.bytes, " bytes) + ",
                          offset - variable.offset);
    }
  }
  const auto address = static_cast<int64_t>(offset) - static_cast<int64_t>(kLeadBytes);
  return absl::StrCat("dynamic shared memory (", dynamic_end_ - kLeadBytes, " bytes) ",
                      address < 0 ? "- " : "+ ", address < 0 ? -address : address);
}

}  // namespace reprise::emulator
