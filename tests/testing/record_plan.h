// SPDX-License-Identifier: Apache-2.0
// Which engines reprise_record_outputs runs: the devices, the models, and for each pair of them the
// dtypes, linear policies and block sizes, with the length of the script that is played on each.
// Lists alone; nothing here runs anything.
#ifndef REPRISE_TESTS_TESTING_RECORD_PLAN_H_
#define REPRISE_TESTS_TESTING_RECORD_PLAN_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/decode_engine.h"
#include "runtime/device.h"
#include "tests/testing/record_script.h"
#include "tests/testing/tiny_model.h"

namespace reprise::testing {

struct RecordedDevice {
  std::string name;
  // Errors: Unavailable where there is none.
  std::function<absl::StatusOr<std::unique_ptr<runtime::Device>>()> create;
  bool is_gpu = false;
  bool is_emulated = false;
  bool has_tuned_linear = true;  // false: both linear policies run the portable kernels
};

// host, cuda, mma, mfma, wmma (emulated GPUs; not in builds without the emulator) and hip (over the
// fake library).
std::vector<RecordedDevice> AllRecordedDevices();

// A model in a directory, a preset, or a small random one that is written to a directory first.
struct RecordedModel {
  std::string name;
  models::ModelSource source = {};
  std::optional<TinyModelOptions> shape = {};
  bool is_large = false;  // plays a shorter script where a full one would take minutes
};

// The folders in tests/fixtures in the order of their names, the byte model, and random models that
// have what no fixture has. Errors: InvalidArgument when there are no fixtures under `source_dir`.
absl::StatusOr<std::vector<RecordedModel>> AllRecordedModels(const std::string& source_dir);

// Every preset, with random weights.
std::vector<RecordedModel> AllRecordedPresets();

// One engine.
struct RecordedEngine {
  engine::DecodeEngineOptions options;
  ScriptLength script = ScriptLength::kFull;
};
std::vector<RecordedEngine> RecordedEnginesOf(const RecordedDevice& device,
                                              const RecordedModel& model);

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_RECORD_PLAN_H_
