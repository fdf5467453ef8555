// SPDX-License-Identifier: Apache-2.0
// LinearWeights: one linear layer's tensors on a device.
#ifndef REPRISE_MODELS_WEIGHTS_LINEAR_WEIGHTS_H_
#define REPRISE_MODELS_WEIGHTS_LINEAR_WEIGHTS_H_

#include <cstdint>

namespace reprise::models {

// weight: [out_features, in_features] row-major, compute dtype. bias: [out_features] compute dtype,
// or nullptr.
struct LinearWeights {
  const void* weight = nullptr;
  const void* bias = nullptr;
  int64_t out_features = 0;
  int64_t in_features = 0;
};

}  // namespace reprise::models

#endif  // REPRISE_MODELS_WEIGHTS_LINEAR_WEIGHTS_H_
