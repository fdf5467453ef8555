// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/device_reader.h"

#include <cstring>

#include "runtime/float_convert.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

using runtime::DType;

double Decode(DType dtype, const std::byte* at) {
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  if (runtime::IsFp8(dtype)) {
    const auto bits = std::to_integer<uint8_t>(*at);
    return dtype == DType::kE4m3 ? runtime::E4m3ToFloat(bits) : runtime::E5m2ToFloat(bits);
  }
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  return dtype == DType::kBf16 ? runtime::Bf16ToFloat(bits) : runtime::F16ToFloat(bits);
}

}  // namespace

void DeviceReader::Add(const void* base, int64_t offset, size_t count) {
  const size_t size = runtime::SizeOf(dtype_);
  pieces_.push_back(
      {static_cast<const std::byte*>(base) + offset * static_cast<int64_t>(size), count * size});
}

absl::StatusOr<std::vector<double>> DeviceReader::Read() {
  size_t total = 0;
  for (const Piece& piece : pieces_) total += piece.bytes;
  std::vector<std::byte> bytes(total);
  size_t at = 0;
  for (const Piece& piece : pieces_) {
    REPRISE_RETURN_IF_ERROR(stream_.CopyToHost(bytes.data() + at, piece.from, piece.bytes));
    at += piece.bytes;
  }
  REPRISE_RETURN_IF_ERROR(stream_.Synchronize());
  std::vector<double> values;
  for (at = 0; at < total; at += runtime::SizeOf(dtype_))
    values.push_back(Decode(dtype_, bytes.data() + at));
  return values;
}

}  // namespace reprise::tools
