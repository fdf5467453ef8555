// SPDX-License-Identifier: Apache-2.0
// What DecodeEngine::Create does before there is an engine: reads the model, fills in the options'
// defaults, sizes the KV pool. No step runs here.
#ifndef REPRISE_ENGINE_ENGINE_SETUP_H_
#define REPRISE_ENGINE_ENGINE_SETUP_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/engine_info.h"
#include "engine/engine_options.h"
#include "kernels/kernel_set.h"
#include "kernels/step/step_limits.h"
#include "models/config/model_spec.h"
#include "models/kv_pool.h"
#include "models/weights/model_weights.h"
#include "runtime/device.h"

namespace reprise::engine {

// Errors: InvalidArgument when both or neither of directory and preset are named; the reader's own.
absl::StatusOr<models::ModelSpec> ReadModelSpec(const ModelSource& source);
absl::StatusOr<std::unique_ptr<models::ModelWeights>> LoadWeights(runtime::Device& device,
                                                                  const ModelSource& source,
                                                                  const models::ModelSpec& spec,
                                                                  const kernels::KernelSet& kernels,
                                                                  const ProgressFn& progress);

// The options with every default filled in for this model and device, and the limits that follow.
// Errors: InvalidArgument with option, got, allowed.
struct ResolvedOptions {
  DecodeEngineOptions options = {};
  kernels::StepLimits limits = {};
};
absl::StatusOr<ResolvedOptions> ResolveOptions(const DecodeEngineOptions& options,
                                               const models::ModelSpec& spec,
                                               const runtime::DeviceProperties& device);

// Blocks of the pool. kv_cache_bytes decides where it is set; otherwise what is left of
// memory_fraction of the device once `graphs_bytes` are set aside for captured graphs (256 MiB on
// the host). Errors: ResourceExhausted with the budget in bytes.
absl::StatusOr<uint64_t> NumPoolBlocks(const runtime::Device& device,
                                       const DecodeEngineOptions& options,
                                       const models::KvGeometry& geometry, uint64_t graphs_bytes);

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_ENGINE_SETUP_H_
