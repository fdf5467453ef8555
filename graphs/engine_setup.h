// SPDX-License-Identifier: Apache-2.0
// What DecodeEngine::Create does before there is an engine: reads the model, fills in the options'
// defaults, sizes the KV pool. No step runs here.
#ifndef REPRISE_GRAPHS_ENGINE_SETUP_H_
#define REPRISE_GRAPHS_ENGINE_SETUP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "graphs/decode_engine.h"
#include "graphs/workspace.h"
#include "kernels/kernel_set.h"
#include "runtime/device.h"
#include "runtime/kv_pool.h"
#include "runtime/model_spec.h"
#include "runtime/model_weights.h"

namespace reprise::graphs {

using ProgressFn = std::function<void(const EngineProgress&)>;

// Errors: InvalidArgument when both or neither of directory and preset are named; the reader's own.
absl::StatusOr<runtime::ModelSpec> ReadModelSpec(const ModelSource& source);
absl::StatusOr<std::unique_ptr<runtime::ModelWeights>> LoadWeights(
    runtime::Device& device, const ModelSource& source, const runtime::ModelSpec& spec,
    const kernels::KernelSet& kernels, const ProgressFn& progress);

// The options with every default filled in for this model and device, and the limits that follow.
// Errors: InvalidArgument with option, got, allowed.
struct ResolvedOptions {
  DecodeEngineOptions options = {};
  EngineLimits limits = {};
  WorkspaceLimits workspace = {};
};
absl::StatusOr<ResolvedOptions> ResolveOptions(const DecodeEngineOptions& options,
                                               const runtime::ModelSpec& spec,
                                               const runtime::DeviceProperties& device);

// Blocks of the pool. kv_cache_bytes decides where it is set; otherwise what is left of
// memory_fraction of the device once `graphs_bytes` are set aside for captured graphs (256 MiB on
// the host). Errors: ResourceExhausted with the budget in bytes.
absl::StatusOr<uint64_t> NumPoolBlocks(const runtime::Device& device,
                                       const DecodeEngineOptions& options,
                                       const runtime::KvGeometry& geometry, uint64_t graphs_bytes);

}  // namespace reprise::graphs

#endif  // REPRISE_GRAPHS_ENGINE_SETUP_H_
