// SPDX-License-Identifier: Apache-2.0
// What figures of steps are set beside, measured on the spot by the device's clock: the memory
// bandwidth that plain kernels of our own (kernels/memory_probe) reach on a range far larger than
// the caches, and what a stamp costs. Part of no public header: for profiles, of an engine in the
// process that measures and of a server.
#ifndef REPRISE_ENGINE_DEVICE_RATES_H_
#define REPRISE_ENGINE_DEVICE_RATES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/device.h"

namespace reprise::engine {

// Bytes per second, by pass.
struct BandwidthRates {
  uint64_t bytes = 0;        // that each pass reads; a copy reads and writes half of them each
  std::vector<double> read;  // counts what is read
  std::vector<double> copy;  // counts what is read and written together
};

// Runs one pass to warm up and `passes` measured ones of either kind over `bytes` of fresh memory,
// rounded down to a multiple of 256 KiB. Takes a stream of its own; the device should have nothing
// else to do. Errors: InvalidArgument on less than that, more than 1 TiB, or no pass;
// ResourceExhausted names the bytes; the device's.
absl::StatusOr<BandwidthRates> MeasureBandwidth(runtime::Device& device, uint64_t bytes,
                                                uint32_t passes);

// What a stamp behind a kernel adds to a graph's time, nanoseconds, by replay of a graph of stamps
// alone: from one to the next, the gap between two kernels included. Errors: the device's.
absl::StatusOr<std::vector<double>> MeasureStampCost(runtime::Device& device);

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_DEVICE_RATES_H_
