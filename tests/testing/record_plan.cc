// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/record_plan.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "models/config/model_presets.h"
#include "runtime/dtype.h"
#include "tests/testing/fake_hip/fake_hip_device.h"
#if REPRISE_WITH_EMULATOR
#include "tests/emulated/emulated_device.h"
#endif

namespace reprise::testing {
namespace {

using engine::DecodeEngineOptions;
using engine::LinearPolicy;
using runtime::DType;

// Not one per core, so that the grids of kernels are the same on every machine.
constexpr int kHostThreads = 2;

absl::StatusOr<std::unique_ptr<runtime::Device>> CreateCuda() {
  std::string why;
  if (runtime::CountCudaDevices(&why) == 0)
    return absl::UnavailableError(absl::StrCat("no CUDA device: ", why));
  return runtime::Device::Create({.kind = runtime::DeviceKind::kCuda});
}

// Larger heads, contexts of several KV splits, a sliding window that cuts a split, a vocabulary of
// two of the sampler's chunks.
std::vector<RecordedModel> RandomModels() {
  return {{.name = "head-64",
           .shape = {{.hidden_size = 128,
                      .intermediate_size = 200,
                      .num_layers = 1,
                      .head_dim = 64,
                      .max_position_embeddings = 1024}},
           .is_large = true},
          {.name = "head-128",
           .shape = {{.architecture = "mistral",
                      .num_layers = 1,
                      .num_heads = 3,
                      .num_kv_heads = 1,
                      .head_dim = 128,
                      .max_position_embeddings = 1024,
                      .sliding_window = 270}},
           .is_large = true},
          {.name = "head-256",
           .shape = {{.architecture = "qwen3",
                      .num_layers = 1,
                      .num_heads = 2,
                      .num_kv_heads = 1,
                      .head_dim = 256,
                      .max_position_embeddings = 1024}},
           .is_large = true},
          {.name = "vocab-4201", .shape = {{.vocab_size = 4201}}, .is_large = true}};
}

// The byte model: by far the most weights.
bool IsLargeCheckpoint(const RecordedModel& model) {
  return model.is_large && !model.shape.has_value();
}

// What all engines of the pair have in common.
DecodeEngineOptions OptionsFor(const RecordedDevice& device, const RecordedModel& model) {
  DecodeEngineOptions options = {
      .dtype_from_checkpoint = false,
      .kv_cache_bytes = uint64_t{64} << 20,
      .max_rows = kScriptRows,
      .decode_buckets = {1, 2, 4, 8, 16},
      .mixed_buckets = {16, 32, 64, 128, kScriptStepTokens},
      .watchdog_timeout_ms = 600000,  // emulated steps take seconds
  };
  if (!model.source.preset.empty()) {
    options.kv_cache_bytes = uint64_t{2} << 30;
    options.max_context_length = 2 * kScriptLongContext;
  } else if (device.is_emulated && IsLargeCheckpoint(model)) {
    options.max_context_length = kScriptContext;  // no long contexts, which would take minutes
  }
  return options;
}

// Every policy with every block size.
std::vector<RecordedEngine> AllEngines(const RecordedDevice& device, const RecordedModel& model) {
  RecordedEngine engine{.options = OptionsFor(device, model)};
  std::vector<RecordedEngine> engines;
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    engine.options.dtype = dtype;
    for (const LinearPolicy linear : {LinearPolicy::kRowMajor, LinearPolicy::kPortable}) {
      engine.options.linear = linear;
      if (linear == LinearPolicy::kPortable && !device.has_tuned_linear) continue;
      const bool portable = linear == LinearPolicy::kPortable || !device.has_tuned_linear;
      const bool slow = portable && !device.is_gpu && model.is_large;
      engine.script = slow ? ScriptLength::kShort : ScriptLength::kFull;
      for (const uint32_t block_size : {16u, 3u}) {
        engine.options.block_size = block_size;
        engines.push_back(engine);
      }
    }
  }
  return engines;
}

// One for each dtype, but the large models without f32 (no matrix unit takes part in it, so host
// and hip run the same kernels faster) and the byte model in bf16 alone. Graphs for other numbers
// of tokens in each, so that bf16 and f16 together run every tile of the linear kernels, the large
// ones with few tokens.
std::vector<RecordedEngine> EmulatedEngines(const RecordedDevice& device,
                                            const RecordedModel& model) {
  RecordedEngine bf16{.options = OptionsFor(device, model),
                      .script = model.is_large ? ScriptLength::kMinimal : ScriptLength::kShort};
  RecordedEngine f16 = bf16, f32 = bf16;
  bf16.options.dtype = DType::kBf16;
  bf16.options.block_size = 16;
  bf16.options.decode_buckets = {4, 16};
  bf16.options.mixed_buckets = {32, 64, kScriptStepTokens};
  f16.options.dtype = DType::kF16;
  f16.options.block_size = 3;
  f16.options.decode_buckets = {1, 8, 16};
  f16.options.mixed_buckets = {16, 128, kScriptStepTokens};
  f32.options.dtype = DType::kF32;
  f32.options.block_size = 3;
  f32.options.mixed_buckets = {64, kScriptStepTokens};
  if (IsLargeCheckpoint(model)) return {bf16};
  if (model.is_large) return {bf16, f16};
  return {bf16, f16, f32};
}

}  // namespace

std::vector<RecordedDevice> AllRecordedDevices() {
  constexpr runtime::DeviceOptions kHost{.host_threads = kHostThreads};
  std::vector<RecordedDevice> devices = {
      {.name = "host", .create = [=] { return runtime::Device::Create(kHost); }},
      {.name = "cuda", .create = CreateCuda, .is_gpu = true}};
#if REPRISE_WITH_EMULATOR
  for (const auto unit :
       {runtime::MatrixUnit::kMma, runtime::MatrixUnit::kMfma, runtime::MatrixUnit::kWmma})
    devices.push_back({.name = NameOf(unit),
                       .create = [=] { return CreateEmulatedDevice(unit, kHost); },
                       .is_emulated = true});
#endif
  devices.push_back(
      {.name = "hip", .create = [] { return MakeFakeHipDevice(); }, .has_tuned_linear = false});
  return devices;
}

absl::StatusOr<std::vector<RecordedModel>> AllRecordedModels(const std::string& source_dir) {
  const std::filesystem::path root(source_dir);
  std::error_code error;
  std::vector<RecordedModel> models;
  for (const auto& entry : std::filesystem::directory_iterator(root / "tests/fixtures", error))
    if (entry.is_directory())
      models.push_back({.name = entry.path().filename().string(),
                        .source = {.directory = entry.path().string()}});
  if (models.empty())
    return absl::InvalidArgumentError(absl::StrCat("--source-dir: got \"", source_dir,
                                                   "\", which has no models in tests/fixtures; "
                                                   "allowed: the root of a source tree"));
  std::ranges::sort(models, {}, &RecordedModel::name);
  models.push_back({.name = "byte-llama",
                    .source = {.directory = (root / "examples/byte-llama").string()},
                    .is_large = true});
  for (RecordedModel& model : RandomModels()) models.push_back(std::move(model));
  return models;
}

std::vector<RecordedModel> AllRecordedPresets() {
  std::vector<RecordedModel> presets;
  for (const std::string_view name : models::PresetNames())
    presets.push_back({.name = std::string(name), .source = {.preset = std::string(name)}});
  return presets;
}

std::vector<RecordedEngine> RecordedEnginesOf(const RecordedDevice& device,
                                              const RecordedModel& model) {
  return device.is_emulated ? EmulatedEngines(device, model) : AllEngines(device, model);
}

}  // namespace reprise::testing
