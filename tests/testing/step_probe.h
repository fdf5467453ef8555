// SPDX-License-Identifier: Apache-2.0
// StepProbe: the pieces under DecodeEngine (weights, pool, workspace, rings, step program), put
// together without it, so that a test sees what a step leaves on the device: all logits of the rows
// that sample. Launch by launch, no capture. Rows are added when first named, with scattered blocks
// of their own for the whole context.
#ifndef REPRISE_TESTS_TESTING_STEP_PROBE_H_
#define REPRISE_TESTS_TESTING_STEP_PROBE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/state/block_ledger.h"
#include "engine/state/row_table.h"
#include "engine/step/validate.h"
#include "engine/step/write.h"
#include "engine/step_program.h"
#include "engine/step_state.h"
#include "kernels/kernel_set.h"
#include "models/config/model_spec.h"
#include "models/decoder.h"
#include "models/kv_pool.h"
#include "models/weights/model_weights.h"
#include "runtime/device.h"
#include "runtime/memory/mapped_ring.h"
#include "tests/testing/engine_driver.h"

namespace reprise::testing {

struct StepProbeOptions {
  std::string directory;  // of the model
  runtime::DType dtype = runtime::DType::kF32;
  kernels::WeightLayout layout = kernels::WeightLayout::kRowMajor;  // of linear layers
  bool round_activations = false;  // DecodeEngineOptions::round_activations
  uint32_t block_size = 16;
  uint32_t max_rows = 8;
  uint32_t max_step_tokens = 256;
  uint32_t max_context_length = 128;
};

class StepProbe {
 public:
  static absl::StatusOr<std::unique_ptr<StepProbe>> Create(runtime::Device& device,
                                                           const StepProbeOptions& options);

  // Runs one step. One vector of vocab_size logits per chunk that samples, in their order.
  absl::StatusOr<std::vector<std::vector<float>>> Run(const std::vector<StepDraft::Chunk>& chunks);
  // Drops a row and gives its blocks back.
  absl::Status Drop(uint32_t row);

  const models::ModelSpec& spec() const { return spec_; }

 private:
  StepProbe(runtime::Device& device, const StepProbeOptions& options)
      : device_(device), options_(options) {}
  absl::Status Start();
  absl::Status AddNewRows(StepDraft* draft);
  absl::Status Execute(const StepDraft& draft);

  runtime::Device& device_;
  const StepProbeOptions options_;
  models::ModelSpec spec_;
  std::unique_ptr<runtime::Stream> stream_;
  std::unique_ptr<kernels::KernelSet> kernels_;
  std::unique_ptr<models::Decoder> decoder_;
  models::ModelWeights weights_;
  std::unique_ptr<engine::StepState> state_;
  models::KvPool pool_;
  runtime::MappedRing metadata_, results_;
  std::unique_ptr<engine::StepProgram> program_;

  std::unique_ptr<engine::RowTable> rows_;
  std::unique_ptr<engine::BlockLedger> ledger_;
  std::unique_ptr<engine::StepValidator> validator_;
  std::unique_ptr<engine::StepWriter> writer_;
  engine::RowList list_;
  uint64_t sequence_ = 0;
};

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_STEP_PROBE_H_
