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
#include "graphs/row_table.h"
#include "graphs/step_program.h"
#include "graphs/step_validator.h"
#include "graphs/step_writer.h"
#include "graphs/workspace.h"
#include "kernels/kernel_set.h"
#include "runtime/block_ledger.h"
#include "runtime/device.h"
#include "runtime/kv_pool.h"
#include "runtime/mapped_ring.h"
#include "runtime/model_spec.h"
#include "runtime/model_weights.h"
#include "tests/testing/engine_driver.h"

namespace reprise::testing {

struct StepProbeOptions {
  std::string directory;  // of the model
  runtime::DType dtype = runtime::DType::kF32;
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

  const runtime::ModelSpec& spec() const { return spec_; }

 private:
  StepProbe(runtime::Device& device, const StepProbeOptions& options)
      : device_(device), options_(options) {}
  absl::Status Start();
  absl::Status AddNewRows(StepDraft* draft);
  absl::Status Execute(const StepDraft& draft);

  runtime::Device& device_;
  const StepProbeOptions options_;
  runtime::ModelSpec spec_;
  std::unique_ptr<runtime::Stream> stream_;
  std::unique_ptr<kernels::KernelSet> kernels_;
  std::unique_ptr<runtime::ModelWeights> weights_;
  graphs::StepWorkspace workspace_;
  runtime::KvPool pool_;
  runtime::MappedRing metadata_, results_;
  std::unique_ptr<graphs::StepProgram> program_;

  std::unique_ptr<graphs::RowTable> rows_;
  std::unique_ptr<runtime::BlockLedger> ledger_;
  std::unique_ptr<graphs::StepValidator> validator_;
  std::unique_ptr<graphs::StepWriter> writer_;
  graphs::RowList list_;
  uint64_t sequence_ = 0;
};

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_STEP_PROBE_H_
