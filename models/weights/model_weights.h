// SPDX-License-Identifier: Apache-2.0
// ModelWeights: a model's tensors on a device, in the compute dtype, laid out as the step program
// reads them. q, k and v rows lie in one matrix, so do gate and up; every matrix stays
// [out_features, in_features] row-major as published. Owns its memory. Addresses are stable for its
// lifetime, so captured graphs may hold them.
#ifndef REPRISE_MODELS_WEIGHTS_MODEL_WEIGHTS_H_
#define REPRISE_MODELS_WEIGHTS_MODEL_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/linear/linear_weights.h"
#include "models/config/model_spec.h"
#include "models/weights/checkpoint.h"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/memory/buffer.h"

namespace reprise::models {

// In the format of the compute dtype.
using LinearWeights = kernels::LinearWeights;

struct LayerWeights {
  const void* input_norm = nullptr;  // [hidden]
  LinearWeights qkv;                 // rows: q heads, k heads, v heads
  const void* q_norm = nullptr;      // [head_dim], or nullptr: heads are not normed
  const void* k_norm = nullptr;      // the same for k
  LinearWeights o;
  const void* post_attention_norm = nullptr;  // [hidden]
  LinearWeights gate_up;                      // rows: gate [intermediate], up [intermediate]
  LinearWeights down;
};

// Fills `count` elements of `dtype` at device address `dst` with pseudo-random values of zero mean
// and the given standard deviation, a function of (seed, index) alone. Provided by the layer above,
// which has kernels.
using RandomFill =
    std::function<absl::Status(runtime::Stream& stream, void* dst, runtime::DType dtype,
                               int64_t count, uint64_t seed, float stddev)>;
// Called with bytes done and bytes in all, on the thread that called Load.
using LoadProgress = std::function<void(size_t done_bytes, size_t total_bytes)>;

class ModelWeights {
 public:
  // Reads every tensor that `spec` needs from `checkpoint`, converts to `dtype`, uploads.
  // `checkpoint` is not needed afterwards. Errors: NotFound names a missing tensor; InvalidArgument
  // names a tensor whose shape is wrong (got, allowed), one that no part of the model consumes, or
  // a tied checkpoint's lm_head that differs from its embedding; those of ValidateModelSpec and the
  // device.
  static absl::StatusOr<std::unique_ptr<ModelWeights>> Load(runtime::Device& device,
                                                            const ModelSpec& spec,
                                                            const Checkpoint& checkpoint,
                                                            runtime::DType dtype,
                                                            const LoadProgress& progress = {});
  // Random weights of the exact shapes: matrices N(0, 0.02^2)-like, norms 1, biases random. Same
  // (spec, seed): same bits.
  static absl::StatusOr<std::unique_ptr<ModelWeights>> Random(runtime::Device& device,
                                                              const ModelSpec& spec,
                                                              runtime::DType dtype, uint64_t seed,
                                                              const RandomFill& fill);
  // Device bytes that Load or Random will take for this model, exactly. Wants a spec that
  // ValidateModelSpec accepts.
  static size_t BytesFor(const ModelSpec& spec, runtime::DType dtype);

  runtime::DType dtype() const { return dtype_; }
  size_t bytes() const { return buffer_.bytes(); }
  const void* embedding() const { return embedding_; }       // [vocab, hidden]
  const LinearWeights& lm_head() const { return lm_head_; }  // shares the embedding when tied
  const void* final_norm() const { return final_norm_; }     // [hidden]
  const std::vector<LayerWeights>& layers() const { return layers_; }
  const float* rope_inverse_frequencies() const {
    return rope_;
  }  // [head_dim / 2] f32, on the device

 private:
  ModelWeights() = default;
  friend class ModelWeightsBuilder;  // lives in model_weights.cc

  runtime::DType dtype_ = runtime::DType::kBf16;
  runtime::DeviceBuffer buffer_;
  const void* embedding_ = nullptr;
  LinearWeights lm_head_;
  const void* final_norm_ = nullptr;
  std::vector<LayerWeights> layers_;
  const float* rope_ = nullptr;
};

}  // namespace reprise::models

#endif  // REPRISE_MODELS_WEIGHTS_MODEL_WEIGHTS_H_
