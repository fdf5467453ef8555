// SPDX-License-Identifier: Apache-2.0
// SimulatedDevice: what a profile (JSON of `reprise profile`) says of a device, as far as an engine
// that computes nothing needs it to take as long as that device. docs/sim.md has the rules.
#ifndef REPRISE_TOOLS_SIMULATED_DEVICE_H_
#define REPRISE_TOOLS_SIMULATED_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/diagnostics.h"
#include "engine/engine_options.h"
#include "engine/simulation/simulation.h"
#include "models/model_source.h"

namespace reprise::tools {

// Blocks of a pool that has no memory: what the engine keeps of each, 36 bytes, is there (2.4 GB).
// Those of llama-3.1-8b would take 128 TiB.
inline constexpr uint64_t kMaxSimulatedBlocks = uint64_t{1} << 26;

struct SimulatedDevice {
  std::string name;  // of the profile, for messages
  // What was profiled.
  std::string device;
  std::string architecture;
  uint64_t num_parameters = 0;
  std::string dtype;
  std::string kv_dtype;  // "": the profile does not say
  uint64_t kv_cache_bytes = 0;
  std::vector<int64_t> mixed_buckets;
  // A line for people: what prompts take, and by how much the profile's points that also decode
  // differ from that.
  std::string prompts_note;
  std::shared_ptr<const engine::Simulation> simulation;

  // Has an engine of `source`, which `simulation` must outlive, be this device: fills in the pool
  // and the mixed buckets where options leave them open. Errors: FailedPrecondition where the
  // profile is of another model or data type (what, got, allowed); InvalidArgument for a pool of
  // more than kMaxSimulatedBlocks; those of reading the model's config.
  absl::Status Apply(const models::ModelSource& source, engine::DecodeEngineOptions* options,
                     engine::EngineDiagnostics* diagnostics) const;
};

// Errors, which begin with `name`: InvalidArgument names what of the profile is missing or is not
// as it should be: times, rows, contexts and prompts are within the bounds of engine::StepCost.
absl::StatusOr<SimulatedDevice> ParseSimulatedDevice(const std::string& name,
                                                     std::string_view json);
// The same of a file. Errors: also those of models::ReadFile.
absl::StatusOr<SimulatedDevice> ReadSimulatedDevice(const std::string& path);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SIMULATED_DEVICE_H_
