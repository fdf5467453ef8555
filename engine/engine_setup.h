// SPDX-License-Identifier: Apache-2.0
// What DecodeEngine::Create does before there is an engine: fills in the options' defaults
// (resolved_options.h), loads the weights, sizes the KV pool. No step runs here.
#ifndef REPRISE_ENGINE_ENGINE_SETUP_H_
#define REPRISE_ENGINE_ENGINE_SETUP_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/engine_info.h"
#include "engine/engine_options.h"
#include "engine/resolved_options.h"
#include "engine/start_report.h"
#include "kernels/kernel_set.h"
#include "kernels/step/step_limits.h"
#include "models/config/model_spec.h"
#include "models/decoder.h"
#include "models/kv_pool.h"
#include "models/model_source.h"
#include "models/weights/model_weights.h"
#include "runtime/device.h"

namespace reprise::engine {

// How linear layers lie under a policy that ResolveLinear gave.
kernels::WeightLayout LayoutOf(LinearPolicy linear, const kernels::KernelSet& kernels);

// Binds the decoder's weights, and marks the parts of that on `clock`. Errors: those of
// Checkpoint::Open and ModelWeights.
absl::StatusOr<models::ModelWeights> LoadWeights(runtime::Device& device,
                                                 const models::ModelSource& source,
                                                 models::Decoder& decoder,
                                                 const kernels::KernelSet& kernels,
                                                 runtime::DType kv_dtype, LinearPolicy linear,
                                                 const ProgressFn& progress, StartClock* clock);

// Blocks of the pool. kv_cache_bytes decides where it is set; otherwise what is left of
// memory_fraction of the device once `graphs_bytes` are set aside for captured graphs (256 MiB on
// the host). Errors: ResourceExhausted with the budget in bytes.
absl::StatusOr<uint64_t> NumPoolBlocks(const runtime::Device& device,
                                       const DecodeEngineOptions& options,
                                       const models::KvGeometry& geometry, uint64_t graphs_bytes);

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_ENGINE_SETUP_H_
