// SPDX-License-Identifier: Apache-2.0
// EngineParts: what a DecodeEngine is made of once it has started: the model's weights, the memory
// that steps work in, the rings, the KV pool and the captured graphs, on one device. No row is
// known here and no step runs. Nothing of it is replaced before it goes, but for the set of graphs
// within `graphs`.
#ifndef REPRISE_ENGINE_ENGINE_PARTS_H_
#define REPRISE_ENGINE_ENGINE_PARTS_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/attention_tree_text.h"
#include "engine/diagnostics.h"
#include "engine/engine_info.h"
#include "engine/engine_options.h"
#include "engine/row_state.h"
#include "engine/start_report.h"
#include "engine/step/select.h"
#include "engine/step_kernels.h"
#include "engine/step_program.h"
#include "engine/step_state.h"
#include "kernels/kernel_set.h"
#include "kernels/step/ring.h"
#include "models/decoder.h"
#include "models/kv_pool.h"
#include "models/model_source.h"
#include "models/weights/model_weights.h"
#include "runtime/device.h"
#include "runtime/memory/buffer.h"
#include "runtime/memory/mapped_ring.h"
#include "runtime/memory/shared_buffer.h"

namespace reprise::engine {

class EngineParts {
 public:
  // Loads, lays out, captures. `device` must outlive the parts. Errors: those of
  // DecodeEngine::Create. REQUIRES: not both poison and random_kv_cache.
  static absl::StatusOr<std::unique_ptr<const EngineParts>> Create(
      runtime::Device& device, const models::ModelSource& source,
      const DecodeEngineOptions& options, const EngineDiagnostics& diagnostics,
      const ProgressFn& progress);
  // Waits for the stream: nothing that a step works in may go before the step is done.
  ~EngineParts();
  EngineParts(const EngineParts&) = delete;
  EngineParts& operator=(const EngineParts&) = delete;

  // Whether a tree may serve this engine; CheckTreeFits's errors.
  absl::Status CheckAttentionTree(const NamedAttentionTree& named) const;
  // Whether steps stay within the limits that clients know, and within the memory that is laid out,
  // with these buckets. Errors: InvalidArgument.
  absl::Status CheckBuckets(const BucketSets& buckets) const;
  // Graphs of other buckets, on a stream of their own: while steps run. Any thread; one at a time.
  // Errors: those of Create for these.
  absl::StatusOr<std::unique_ptr<StepGraphs::Set>> CaptureBeside(const BucketSets& buckets) const;

  // In the order in which they are made; each may view those above it.
  runtime::Device& device;
  const EngineDiagnostics diagnostics;
  DecodeEngineOptions options;  // with every default filled in
  EngineInfo info;
  StartReport start;                        // complete once Create returns
  std::unique_ptr<runtime::Stream> stream;  // of every step
  std::unique_ptr<kernels::KernelSet> kernel_set;
  std::unique_ptr<models::Decoder> decoder;
  models::ModelWeights weights;
  std::unique_ptr<StepState> state;
  RowStates row_states;
  NamedAttentionTree attention_tree;  // that the engine starts with
  kernels::StepEntryLayout metadata_layout;
  runtime::MappedRing metadata;
  runtime::MappedRing results;
  models::KvPool pool;
  runtime::MappedBuffer kv_staging;  // contents of blocks on their way; none where simulated
  runtime::MappedBuffer kv_notice;   // one word: KvTransfer's notices
  runtime::MappedBuffer swap_space;  // num_swap_places blocks as they lie in the pool
  uint32_t num_swap_places = 0;
  // Of models whose rows carry state: num_state_places of row_states.bytes().
  runtime::MappedBuffer state_space;
  uint32_t num_state_places = 0;
  runtime::SharedBuffer export_space;  // num_export_places blocks, as in swap space
  uint32_t num_export_places = 0;
  std::unique_ptr<SimulatedDecoder> simulated;  // nullptr: the decoder runs
  std::unique_ptr<StepGraphs> graphs;

 private:
  EngineParts(runtime::Device& device, const EngineDiagnostics& diagnostics)
      : device(device), diagnostics(diagnostics) {}

  absl::Status Load(const models::ModelSource& source, const DecodeEngineOptions& asked,
                    const ProgressFn& progress);
  absl::Status LoadModelWeights(const models::ModelSource& source, const ProgressFn& progress);
  absl::Status LoadAttentionTree();
  // Into kernel_set, before anything asks what launches take.
  absl::Status LoadLinearTable();
  absl::Status CreateRings();
  absl::Status CreatePool();
  absl::Status CreateExportSpace(const models::KvGeometry& geometry);
  absl::Status CreateTransferMemory();
  // Says how much of swap space is whose.
  absl::Status DivideSwapSpace(const models::KvGeometry& geometry);
  absl::Status CreateSwapSpace(const models::KvGeometry& geometry);
  absl::Status FillPool();
  // nullptr where the options ask for none. Copies on `stream`.
  absl::StatusOr<std::unique_ptr<StepKernels>> MakeStepKernels(
      runtime::Stream& copies, const std::vector<int64_t>& decode_buckets) const;
  absl::Status Capture(const ProgressFn& progress);
  // What the device has free now; 0 on the host.
  absl::StatusOr<uint64_t> FreeBytes() const;
  absl::Status FinishReport(uint64_t free_before);
  StepProgram ProgramOn(const models::KvPool& program_pool, const StepKernels* step_kernels) const;

  StartClock clock_;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_ENGINE_PARTS_H_
