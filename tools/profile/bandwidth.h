// SPDX-License-Identifier: Apache-2.0
// What a profile sets its figures beside, measured on the spot by the device's clock: the memory
// bandwidth that plain kernels of our own (kernels/memory_probe) reach on a range far larger than
// the caches, and what a stamp costs.
#ifndef REPRISE_TOOLS_PROFILE_BANDWIDTH_H_
#define REPRISE_TOOLS_PROFILE_BANDWIDTH_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "tools/samples.h"

namespace reprise::tools {

struct Bandwidth {
  uint64_t bytes = 0;  // that each pass reads; a copy reads and writes half of them each
  Samples read;        // bytes per second, by pass
  Samples copy;        // bytes per second, read and written together, by pass
  double best_read() const { return read.Percentile(100); }
  double best_copy() const { return copy.Percentile(100); }
  // Passes of another measurement over as many bytes.
  void AddAll(const Bandwidth& other) {
    bytes = other.bytes;
    read.AddAll(other.read);
    copy.AddAll(other.copy);
  }
};

// 4 GiB on a GPU, 512 MiB on the host.
uint64_t DefaultBandwidthBytes(const runtime::DeviceProperties& device);

// Of either kind, where nothing else is asked for.
inline constexpr uint32_t kBandwidthPasses = 8;

// See engine/device_rates.h.
absl::StatusOr<Bandwidth> MeasureBandwidth(runtime::Device& device, uint64_t bytes,
                                           uint32_t passes);

// Likewise: nanoseconds, by replay.
absl::StatusOr<Samples> MeasureStampCost(runtime::Device& device);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_PROFILE_BANDWIDTH_H_
