// SPDX-License-Identifier: Apache-2.0
// EnginePreview: what an engine would be, for who asks before it loads one: its types, how many
// bytes its weights and a token of its KV cache take, and which kernels its layers launch.
#ifndef REPRISE_ENGINE_ENGINE_PREVIEW_H_
#define REPRISE_ENGINE_ENGINE_PREVIEW_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine_options.h"
#include "models/config/model_spec.h"
#include "runtime/device.h"
#include "runtime/dtype.h"

namespace reprise::engine {

// A kernel that layers launch.
struct LayerKernel {
  std::string op;                            // what a profile calls it
  std::string kernel;                        // its name in the device's code
  bool in_decode = false, in_mixed = false;  // in which kinds of steps
  // Whether it is a portable one of linear or attention, which runs everything, on every device,
  // and is slow: the reference for the tuned ones.
  bool is_reference = false;
};

struct EnginePreview {
  runtime::DType dtype = runtime::DType::kBf16;
  runtime::DType kv_dtype = runtime::DType::kBf16;
  LinearPolicy linear = LinearPolicy::kTuned;  // what kTuned stands for
  uint64_t weights_bytes = 0;
  uint64_t kv_bytes_per_token = 0;   // in all layers
  uint64_t state_bytes_per_row = 0;  // beside KV, in all layers; 0: none
  // Of longrope, whether its long factors count: contexts are as long as the options allow.
  std::optional<bool> takes_long_factors = std::nullopt;
  std::vector<LayerKernel> kernels;  // each once, in the order of their first launch

  // No kernel is a reference.
  bool is_tuned() const;
};

// Of `options` the types, the policy of linear layers, the block size and the longest context
// count. Loads no weights; takes tens of megabytes of the device for as long as it runs. Errors:
// those that an engine would answer for the spec, the options and the device; none of weights and
// of memory.
absl::StatusOr<EnginePreview> PreviewEngine(runtime::Device& device, const models::ModelSpec& spec,
                                            const DecodeEngineOptions& options);

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_ENGINE_PREVIEW_H_
