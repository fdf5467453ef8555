// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/bandwidth.h"

#include <vector>

#include "engine/device_rates.h"
#include "runtime/status_macros.h"

namespace reprise::tools {

uint64_t DefaultBandwidthBytes(const runtime::DeviceProperties& device) {
  return device.kind == runtime::DeviceKind::kHost ? uint64_t{512} << 20 : uint64_t{4} << 30;
}

absl::StatusOr<Bandwidth> MeasureBandwidth(runtime::Device& device, uint64_t bytes,
                                           uint32_t passes) {
  REPRISE_ASSIGN_OR_RETURN(const engine::BandwidthRates rates,
                           engine::MeasureBandwidth(device, bytes, passes));
  Bandwidth bandwidth{.bytes = rates.bytes, .read = {}, .copy = {}};
  for (const double rate : rates.read) bandwidth.read.Add(rate);
  for (const double rate : rates.copy) bandwidth.copy.Add(rate);
  return bandwidth;
}

absl::StatusOr<Samples> MeasureStampCost(runtime::Device& device) {
  REPRISE_ASSIGN_OR_RETURN(const std::vector<double> costs, engine::MeasureStampCost(device));
  Samples samples;
  for (const double cost : costs) samples.Add(cost);
  return samples;
}

}  // namespace reprise::tools
