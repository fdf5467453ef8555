// SPDX-License-Identifier: Apache-2.0
// What benchmarks of kernels have in common in how often they replay a graph, and over how much
// memory.
#ifndef REPRISE_TOOLS_BENCH_REPLAYS_H_
#define REPRISE_TOOLS_BENCH_REPLAYS_H_

#include <chrono>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device.h"

namespace reprise::tools {

// Told how many replays of every graph were measured since it was last told; an error ends the
// measurement.
using MeasuredReplays = std::function<absl::Status(uint32_t)>;

// A round of a cell ends once it has taken this long for each of its graphs, and has this many
// replays.
inline constexpr std::chrono::seconds kRoundTime(2);
inline constexpr uint32_t kLeastReplays = 3;

// What calls should read before the same bytes come again: 256 MiB on a GPU, several times its L2
// cache; 64 MiB on the host.
uint64_t DefaultPoolBytes(const runtime::DeviceProperties& device);

// What lies between two stamps that a replay has just left at `stamps`, less what two stamps in a
// row take, at least 1 ns: nothing takes no time at all, even where a clock ticks slowly. Errors:
// Internal where the clock went back; the device's.
absl::StatusOr<double> NsBetweenStamps(runtime::Stream& stream, const uint64_t* stamps,
                                       double stamp_cost_ns);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BENCH_REPLAYS_H_
