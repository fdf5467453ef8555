// SPDX-License-Identifier: Apache-2.0
// DeviceReader: elements of device memory as doubles on the host, for comparing outputs with a
// reference.
#ifndef REPRISE_TOOLS_BENCH_DEVICE_READER_H_
#define REPRISE_TOOLS_BENCH_DEVICE_READER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "runtime/dtype.h"

namespace reprise::tools {

class DeviceReader {
 public:
  DeviceReader(runtime::Stream& stream, runtime::DType dtype) : stream_(stream), dtype_(dtype) {}

  // `count` elements, from element `offset` of `base` on.
  void Add(const void* base, int64_t offset, size_t count);
  // All that was added, one after the other. Waits for the stream. Errors: the device's.
  absl::StatusOr<std::vector<double>> Read();

 private:
  struct Piece {
    const std::byte* from;
    size_t bytes;
  };
  runtime::Stream& stream_;
  const runtime::DType dtype_;
  std::vector<Piece> pieces_;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BENCH_DEVICE_READER_H_
