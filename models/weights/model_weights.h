// SPDX-License-Identifier: Apache-2.0
// ModelWeights: the memory of a model's tensors on a device, in the compute dtype, laid out as its
// layers declared them (weight_plan.h). Addresses are stable for its lifetime, so captured graphs
// may hold them.
#ifndef REPRISE_MODELS_WEIGHTS_MODEL_WEIGHTS_H_
#define REPRISE_MODELS_WEIGHTS_MODEL_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/weights/checkpoint.h"
#include "models/weights/weight_plan.h"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/memory/buffer.h"

namespace reprise::models {

// Fills `count` elements of `dtype` at device address `dst` with pseudo-random values of zero mean
// and the given standard deviation, a function of (seed, index) alone, as elements of a matrix that
// lies so.
using RandomFill = std::function<absl::Status(runtime::Stream& stream, void* dst,
                                              runtime::DType dtype, kernels::WeightLayout layout,
                                              int64_t count, uint64_t seed, float stddev)>;
// Called with bytes done and bytes in all, on the thread that called Load.
using LoadProgress = std::function<void(size_t done_bytes, size_t total_bytes)>;

class ModelWeights {
 public:
  ModelWeights() = default;
  // Both bind the plan's pointers on success.
  //
  // Reads every tensor of `plan` from `checkpoint`, converts to the plan's dtype, uploads.
  // `checkpoint` is not needed afterwards. Errors: NotFound names a missing tensor; InvalidArgument
  // names a tensor whose shape is wrong (got, allowed), one that no layer declares, a tied one that
  // differs from what it must copy, one whose dtype the config denies, a scale of the KV cache that
  // is no finite number above 0 or has two names, one of weights that is no finite number of at
  // least 0; the plan's status; those of the device.
  static absl::StatusOr<ModelWeights> Load(runtime::Device& device, const WeightPlan& plan,
                                           const Checkpoint& checkpoint,
                                           const LoadProgress& progress = {});
  // All that Load would refuse of a checkpoint, in the order in which it would. Reads no weights
  // but scales and copies of tied tensors.
  static std::vector<absl::Status> Check(const WeightPlan& plan, const Checkpoint& checkpoint);
  // Random weights of the exact shapes: matrices N(0, 0.02^2)-like, norms 1, biases random. Same
  // (plan, seed): same bits.
  static absl::StatusOr<ModelWeights> Random(runtime::Device& device, const WeightPlan& plan,
                                             uint64_t seed, const RandomFill& fill);

  // Device bytes, those of the plan.
  size_t bytes() const { return buffer_.bytes(); }

 private:
  explicit ModelWeights(runtime::DeviceBuffer buffer) : buffer_(std::move(buffer)) {}
  runtime::DeviceBuffer buffer_;
};

}  // namespace reprise::models

#endif  // REPRISE_MODELS_WEIGHTS_MODEL_WEIGHTS_H_
