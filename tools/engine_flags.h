// SPDX-License-Identifier: Apache-2.0
// What `serve`, `run` and `profile` have in common: the options that choose a model and an engine,
// loading with progress, and the summary of what was loaded.
#ifndef REPRISE_TOOLS_ENGINE_FLAGS_H_
#define REPRISE_TOOLS_ENGINE_FLAGS_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/decode_engine.h"
#include "engine/diagnostics.h"
#include "engine/engine_options.h"
#include "models/model_source.h"
#include "nlohmann/json.hpp"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "tools/cli.h"
#include "tools/console.h"
#include "tools/device_flags.h"

namespace reprise::tools {

struct EngineFlags {
  models::ModelSource source;
  DeviceFlags device;
  engine::DecodeEngineOptions engine;
  std::string attention_tree_file = {};  // "": the default tree
  std::string linear_table_file = {};    // "": none
  engine::EngineDiagnostics diagnostics;
};

// A name of models::PresetNames(). Errors: InvalidArgument with what, got, allowed.
absl::StatusOr<std::string> ParsePreset(std::string_view text);
// "bf16", "f16", "f32", and "auto", which is unset: the checkpoint's own. Errors: as above.
absl::StatusOr<std::optional<runtime::DType>> ParseDType(std::string_view text);
// Those, "fp8_e4m3" and "fp8_e5m2"; "auto" is unset. Errors: as above.
absl::StatusOr<std::optional<runtime::DType>> ParseKvDType(std::string_view text);

// "tuned", "packed", "portable". Errors: as above.
absl::StatusOr<engine::LinearPolicy> ParseLinear(std::string_view text);
// "tuned", "chain", "step-kernel". Errors: as above.
absl::StatusOr<engine::DecodePolicy> ParseDecode(std::string_view text);

// --dtype, --kv-dtype and --linear alone. `options` must outlive `app`.
void AddTypeOptions(CLI::App* app, engine::DecodeEngineOptions* options);
// `flags` must outlive `app`. offers_simulation: see AddDeviceOptions.
void AddEngineOptions(CLI::App* app, EngineFlags* flags, bool offers_simulation = false);

// The engine goes before its device, and what simulates one.
struct LoadedEngine {
  std::shared_ptr<const engine::Simulation> simulation;  // nullptr: the device is real
  std::unique_ptr<runtime::Device> device;
  std::unique_ptr<engine::DecodeEngine> engine;
  uint64_t device_ns = 0;  // choosing and opening the device
  uint64_t total_ns = 0;   // all of LoadEngine
};

// Usage error unless exactly one of --model and --preset was given.
absl::Status CheckSource(const models::ModelSource& source);

// Picks the device (and says on stderr which and why, where it was left open), loads and captures
// with progress on stderr. Errors: usage (neither or both of --model and --preset), and those of
// the device and the engine.
absl::StatusOr<LoadedEngine> LoadEngine(const EngineFlags& flags, Console* console);

// Tables of model, device, memory, pool and buckets, and of where the start went, `width` columns
// wide at most.
std::string EngineSummary(const LoadedEngine& loaded, size_t width);
nlohmann::json EngineToJson(const LoadedEngine& loaded);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_ENGINE_FLAGS_H_
