// SPDX-License-Identifier: Apache-2.0
// Arguments of the ops of Mamba-2 layers. See mamba.h.
#ifndef REPRISE_KERNELS_MAMBA_MAMBA_ARGS_H_
#define REPRISE_KERNELS_MAMBA_MAMBA_ARGS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/step/ring.h"

namespace reprise::kernels {

// The rows that run, as StepPlan lists them: entry e has the tokens [query_start[e],
// query_start[e + 1]) of the step.
struct MambaRows {
  const uint32_t* num_rows = nullptr;        // live count
  const RowEntry* entries = nullptr;         // their slots
  const uint32_t* query_start = nullptr;     // [rows + 1]
  const uint32_t* context_before = nullptr;  // [rows] 0: the row has no state yet
};

struct MambaConvArgs {
  // [tokens, projected_size] T, of which elements [offset, offset + channels) are convolved.
  const void* projected = nullptr;
  void* out = nullptr;            // [tokens, channels] T
  void* state = nullptr;          // [max_rows, width - 1, channels] T, by slot, oldest first
  const float* weight = nullptr;  // [channels, width], the newest input's last
  const float* bias = nullptr;    // [channels], or null
  MambaRows rows = {};
  int32_t projected_size = 0;
  int32_t offset = 0;
  int32_t channels = 0;
  int32_t width = 0;
};

struct MambaScanArgs {
  // [tokens, num_heads * head_dim + 2 * num_groups * state_size] T: x, B and C.
  const void* convolved = nullptr;
  const void* projected = nullptr;  // [tokens, projected_size] T, whose last num_heads are dt
  void* y = nullptr;                // [tokens, num_heads, head_dim] T
  float* state = nullptr;           // [max_rows, num_heads, head_dim, state_size], by slot
  // [num_heads] each.
  const float* a_log = nullptr;
  const float* d = nullptr;
  const float* dt_bias = nullptr;
  MambaRows rows = {};
  int32_t projected_size = 0;
  int32_t num_heads = 0;
  int32_t head_dim = 0;
  int32_t num_groups = 0;
  int32_t state_size = 0;
  // dt is brought into [min_dt, max_dt].
  float min_dt = 0.0f;
  float max_dt = 0.0f;
};

struct MambaNormArgs {
  const void* y = nullptr;          // [tokens, size] T
  const void* projected = nullptr;  // [tokens, projected_size] T, whose first `size` are the gate
  const void* weight = nullptr;     // [size] T
  void* out = nullptr;              // [tokens, size] T; may be y
  const uint32_t* num_tokens = nullptr;  // live count
  int32_t projected_size = 0;
  int32_t size = 0;
  float eps = 0.0f;
};

// Channels of a block of the convolution.
constexpr int32_t kMambaConvChannels = 256;
// Of the scan: parts that the sum over the state of one element of a head is added in, and tokens
// between which the state stays in registers. Neither changes with the number of rows or tokens.
constexpr int32_t kMambaLanes = 8;
constexpr int32_t kMambaScanTokens = 8;
// What shared memory has room for.
constexpr int32_t kMambaMaxHeadDim = 128;

// Dynamic shared memory of the scan, bytes.
constexpr size_t MambaScanSharedBytes(int32_t head_dim) {
  return (static_cast<size_t>(head_dim) * kMambaLanes + 2) * kMambaScanTokens * sizeof(float);
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_MAMBA_MAMBA_ARGS_H_
