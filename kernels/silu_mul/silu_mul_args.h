// SPDX-License-Identifier: Apache-2.0
// Arguments of SiLU*up and its kin. See silu_mul.h.
#ifndef REPRISE_KERNELS_SILU_MUL_SILU_MUL_ARGS_H_
#define REPRISE_KERNELS_SILU_MUL_SILU_MUL_ARGS_H_

#include <cstdint>

namespace reprise::kernels {

struct SiluMulArgs {
  // The linear layer behind it reads weights, and counts that the plan wrote (thread.h).
  static constexpr bool kLetsNextBeginFirst = true;
  const void* gate_up = nullptr;         // [tokens, 2 * intermediate] T: gate, then up
  void* out = nullptr;                   // [tokens, intermediate] T
  const uint32_t* num_tokens = nullptr;  // live count
  int32_t intermediate = 0;
  int32_t gelu = 0;  // whether the gate goes through GELU, in its tanh form, in place of SiLU
  // Not 0: the gate is at most this, and up within it to both sides; the gate's sigmoid is taken of
  // sigmoid_slope times the gate, and the factor is up + 1.
  float limit = 0.0f;
  float sigmoid_slope = 1.0f;
};

// Elements that a thread takes at a time, where a row is a multiple of them.
constexpr int32_t kSiluMulPack = 8;

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_SILU_MUL_SILU_MUL_ARGS_H_
