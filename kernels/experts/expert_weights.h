// SPDX-License-Identifier: Apache-2.0
// ExpertWeights: the same linear layer of all experts, as their matrices lie on a device: one
// behind the other, each as LinearWeights says.
#ifndef REPRISE_KERNELS_EXPERTS_EXPERT_WEIGHTS_H_
#define REPRISE_KERNELS_EXPERTS_EXPERT_WEIGHTS_H_

#include <cstdint>

#include "kernels/linear/linear_weights.h"

namespace reprise::kernels {

struct ExpertWeights {
  LinearWeights first;  // expert 0's; a bias is [num_experts, out_features]
  int64_t num_experts = 0;
  int64_t expert_elements = 0;  // from one matrix to the next
  int64_t expert_scales = 0;  // from the first scale of a matrix to that of the next; 0: no scales
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_EXPERTS_EXPERT_WEIGHTS_H_
