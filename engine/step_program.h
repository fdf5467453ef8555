// SPDX-License-Identifier: Apache-2.0
// StepProgram: the sequence of kernels that is one step of a model, enqueued on a stream for a
// bucket. The same calls serve capture and eager runs. It holds views only; weights, pool,
// workspace and rings belong to the engine.
#ifndef REPRISE_ENGINE_STEP_PROGRAM_H_
#define REPRISE_ENGINE_STEP_PROGRAM_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/workspace.h"
#include "kernels/kernel_set.h"
#include "kernels/linear/linear.h"
#include "models/config/model_spec.h"
#include "models/kv_pool.h"
#include "models/weights/model_weights.h"
#include "runtime/device.h"
#include "runtime/memory/mapped_ring.h"

namespace reprise::engine {

// The static shape of a bucket.
struct StepShape {
  uint32_t max_rows = 0;    // rows that run
  uint32_t max_tokens = 0;  // query tokens that run
  bool mixed = false;       // rows may have more than one query token
};

class StepProgram {
 public:
  StepProgram(const models::ModelSpec& spec, const kernels::KernelSet& kernels,
              const models::ModelWeights& weights, const models::KvPool& pool,
              const StepWorkspace& workspace, const runtime::MappedRing& metadata,
              const kernels::StepSlotLayout& metadata_layout, const runtime::MappedRing& results,
              kernels::LinearCandidate linear = kernels::LinearCandidate::kBest)
      : spec_(spec),
        kernels_(kernels),
        weights_(weights),
        pool_(pool),
        workspace_(workspace),
        metadata_(metadata),
        metadata_layout_(metadata_layout),
        results_(results),
        linear_(linear) {}

  // fetch, plan, embedding, layers, logits, sampling, publish. Launches only.
  absl::Status Enqueue(runtime::Stream& stream, const StepShape& shape) const;

 private:
  absl::Status EnqueueFetchAndPlan(runtime::Stream& stream) const;
  absl::Status EnqueueEmbedding(runtime::Stream& stream, const StepShape& shape) const;
  absl::Status EnqueueLayer(runtime::Stream& stream, const StepShape& shape, size_t layer) const;
  absl::Status EnqueueAttention(runtime::Stream& stream, const StepShape& shape,
                                size_t layer) const;
  absl::Status EnqueueMlp(runtime::Stream& stream, const StepShape& shape, size_t layer) const;
  absl::Status EnqueueLogitsAndSample(runtime::Stream& stream, const StepShape& shape) const;
  absl::Status EnqueuePublish(runtime::Stream& stream) const;

  // out = x * weights, over the step's live tokens.
  absl::Status EnqueueLinear(runtime::Stream& stream, const StepShape& shape,
                             const models::LinearWeights& weights, const void* x, void* out) const;
  // residual += scale * branch (nothing for branch == nullptr); normed = norm(residual), over the
  // live tokens.
  absl::Status EnqueueNorm(runtime::Stream& stream, const StepShape& shape, const void* branch,
                           const void* weight) const;

  const models::ModelSpec& spec_;
  const kernels::KernelSet& kernels_;
  const models::ModelWeights& weights_;
  const models::KvPool& pool_;
  const StepWorkspace& workspace_;
  const runtime::MappedRing& metadata_;
  const kernels::StepSlotLayout metadata_layout_;
  const runtime::MappedRing& results_;
  const kernels::LinearCandidate linear_;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STEP_PROGRAM_H_
