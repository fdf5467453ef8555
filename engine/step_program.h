// SPDX-License-Identifier: Apache-2.0
// StepProgram: the sequence of kernels that is one step of a model, enqueued on a stream for a
// bucket: fetch and plan, the decoder's layers, sampling, publish. The same calls serve capture and
// eager runs. It holds views only; decoder, pool, state and rings belong to the engine.
#ifndef REPRISE_ENGINE_STEP_PROGRAM_H_
#define REPRISE_ENGINE_STEP_PROGRAM_H_

#include "absl/status/status.h"
#include "engine/simulation/simulation.h"
#include "engine/step_kernels.h"
#include "engine/step_state.h"
#include "kernels/kernel_set.h"
#include "kernels/linear/linear.h"
#include "models/decoder.h"
#include "models/kv_pool.h"
#include "runtime/device.h"
#include "runtime/memory/mapped_ring.h"

namespace reprise::engine {

// Everything that a program views; must outlive it.
struct StepProgramParts {
  const kernels::KernelSet& kernels;
  const models::Decoder& decoder;
  const models::KvPool& pool;
  const StepState& state;
  const runtime::MappedRing& metadata;
  const runtime::MappedRing& results;
  SimulatedDecoder* simulated = nullptr;      // in the decoder's place
  const StepKernels* step_kernels = nullptr;  // of the decode buckets that have one
};

class StepProgram {
 public:
  StepProgram(const StepProgramParts& parts, const kernels::StepEntryLayout& metadata_layout,
              kernels::LinearCandidate linear = kernels::LinearCandidate::kBest)
      : parts_(parts), metadata_layout_(metadata_layout), linear_(linear) {}

  // Launches only.
  absl::Status Enqueue(runtime::Stream& stream, const models::StepShape& shape) const;
  // The layers alone, each op a kernel.
  absl::Status EnqueueLayers(runtime::Stream& stream, const models::StepShape& shape) const;

 private:
  absl::Status EnqueueFetchAndPlan(runtime::Stream& stream) const;
  absl::Status EnqueueDecoder(runtime::Stream& stream, const models::StepShape& shape) const;
  absl::Status EnqueueSample(runtime::Stream& stream, const models::StepShape& shape) const;
  absl::Status EnqueuePublish(runtime::Stream& stream) const;

  const StepProgramParts parts_;
  const kernels::StepEntryLayout metadata_layout_;
  const kernels::LinearCandidate linear_;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STEP_PROGRAM_H_
