// SPDX-License-Identifier: Apache-2.0
// Linear layers: out = x * weight^T, for one token and for thousands. Candidates: `native` (host),
// `matrix` (row-major bf16 and f16 on GPUs with matrix units), `stream`, `group` and
// `packed` (the same of packed weights: few rows where there are bulk copies, more where warpgroups
// multiply, any number), `portable`
// (everything, everywhere: the reference). Which one a launch takes says linear_choice.h; a table
// may say otherwise (KernelSet::linear_table). All of them reduce K in an order that depends on the
// weight's shape and layout and the device alone, never on the number of rows: a row's bits are the
// same in every bucket.
#ifndef REPRISE_KERNELS_LINEAR_LINEAR_H_
#define REPRISE_KERNELS_LINEAR_LINEAR_H_

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/kernel_set.h"
#include "kernels/linear/linear_args.h"
#include "kernels/linear/linear_weights.h"
#include "runtime/device.h"

namespace reprise::kernels {

enum class LinearCandidate : uint8_t { kBest, kPortable };

// Whether weights of that shape may lie in packed pairs, for LinearArgs::silu_mul.
bool LinearTakesPairs(const KernelSet& kernels, int64_t out_features, int64_t in_features);

// Whether a launch of Linear with these weights and at most so many rows can norm its input
// (LinearArgs::norm_weight), or add to what the output holds (LinearArgs::adds_to_out): kernels for
// up to 8 rows can, where there are bulk copies, of weights packed in whole chunks. A norm is of up
// to 4 rows, of weights of 4 bits 8, and of up to 1024 inputs, of more than 1536 up to 2048, or of
// more than 3584 up to 4096, in their own order.
bool LinearNormsInput(const KernelSet& kernels, const LinearWeights& weights, uint32_t max_rows);
bool LinearAddsToOut(const KernelSet& kernels, const LinearWeights& weights, uint32_t max_rows);

// Workspace for every launch with at most `max_rows` rows and `max_out_features` features: floats
// of LinearArgs::partials (of row-major weights) and words of LinearArgs::counters (zero before the
// first use). Shared by all layers of one stream.
size_t LinearPartialFloats(const KernelSet& kernels, uint32_t max_rows);
size_t LinearNumCounters(const KernelSet& kernels, uint32_t max_out_features);

// Whether weights have scales and a group size if, and only if, their format has. Errors:
// InvalidArgument where they lack them, Unimplemented where they have them, both beginning with
// `op`.
absl::Status CheckScales(const char* op, const LinearWeights& weights);

// `args` with what a launch by Linear would have of its weights, but for num_segments.
LinearArgs WithWeights(const LinearWeights& weights, LinearArgs args);

// out[r, n] = scale * sum_k x[r, k] * weight[n, k] + bias[n], f32 accumulation, one rounding. x:
// 16-byte aligned, in the order of weight's columns, max_rows rows, of which those beyond the live
// ones may be read. silu_mul, norm_weight, adds_to_out: LinearArgs says what comes instead. What
// LinearArgs says is set here is ignored. The grid depends on max_rows and the weight's shape; rows
// beyond the live count cost next to nothing. Errors: InvalidArgument on shapes, silu_mul and what
// does not go with adds_to_out; Unimplemented on a format, or a field of it, that no instance for
// the set's dtype reads, and on norms and sums that LinearNormsInput and LinearAddsToOut deny; what
// MapTiles says.
absl::Status Linear(runtime::Stream& stream, const KernelSet& kernels, const LinearWeights& weights,
                    LinearArgs args, uint32_t max_rows,
                    LinearCandidate candidate = LinearCandidate::kBest);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_H_
