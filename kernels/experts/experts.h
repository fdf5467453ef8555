// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts: which experts a token goes to, linear layers whose matrix is an expert's,
// and the sum over a token's experts. All of it is decided on the device, in grids that depend on
// the bucket alone:
//
//   router's logits (Linear, f32)  ->  RouteExperts  ->  ExpertsLinear (gate and up)
//     ->  ExpertsLinear (down)  ->  CombineExperts
//
// A step reads the matrices of the experts that are routed to, and no others. A row's bits depend
// on the row alone: an output is summed in the order that its matrix and layout give, whoever
// shares its expert, and a token's experts are added most likely first.
#ifndef REPRISE_KERNELS_EXPERTS_EXPERTS_H_
#define REPRISE_KERNELS_EXPERTS_EXPERTS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/experts/expert_weights.h"
#include "kernels/experts/experts_args.h"
#include "kernels/kernel_set.h"
#include "kernels/linear/linear.h"
#include "runtime/device.h"

namespace reprise::kernels {

// Most places that one item may have for ExpertsLinear with such weights, of a launch of max_tokens
// tokens: RouteExperts cuts items to it. Changes no bits.
int32_t ExpertTileRows(const KernelSet& kernels, const ExpertWeights& weights, uint32_t max_tokens,
                       int32_t top_k, LinearCandidate candidate);
// Room for the items of at most so many tokens, whatever the tile.
size_t MaxExpertItems(uint32_t max_tokens, int64_t num_experts, int64_t top_k);

// For each live token the top_k experts of the largest logits, of equal ones the lower expert (NaN
// counts as minus infinity), and their shares: exp(logit - largest), divided by the sum of these
// over the chosen experts, or over all. Then places, sorted by expert, and items. The grid depends
// on max_tokens. Errors: InvalidArgument on shapes. Source: Shazeer et al. 2017; the order of
// softmax and top-k is that of Jiang et al. 2024 (Mixtral).
absl::Status RouteExperts(runtime::Stream& stream, const KernelSet& kernels,
                          const ExpertsRouteArgs& args, uint32_t max_tokens);

// What Linear says, for every place, with the matrix of its expert. x: 16-byte aligned rows.
// linear.silu_mul goes with weights in packed pairs. Sets linear's weight and features,
// expert_elements. Errors: InvalidArgument on shapes and silu_mul; Unimplemented on weights that
// are not of the type of activations.
absl::Status ExpertsLinear(runtime::Stream& stream, const KernelSet& kernels,
                           const ExpertWeights& weights, ExpertsLinearArgs args, int32_t tile_rows,
                           uint32_t max_tokens, int32_t top_k,
                           LinearCandidate candidate = LinearCandidate::kBest);

// out[t] = plus[t], where there is one, + sum over the token's choices c of share[c] * x[place[c]],
// in f32, one rounding. Errors: InvalidArgument on shapes.
absl::Status CombineExperts(runtime::Stream& stream, const KernelSet& kernels,
                            const ExpertsCombineArgs& args, uint32_t max_tokens);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_EXPERTS_EXPERTS_H_
