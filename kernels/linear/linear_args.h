// SPDX-License-Identifier: Apache-2.0
// Arguments of the linear op. See linear.h.
#ifndef REPRISE_KERNELS_LINEAR_LINEAR_ARGS_H_
#define REPRISE_KERNELS_LINEAR_LINEAR_ARGS_H_

#include <cstdint>

namespace reprise::kernels {

struct LinearArgs {
  const void* x = nullptr;             // [rows, in_features] T
  const void* weight = nullptr;        // [out_features, in_features] T
  const void* bias = nullptr;          // [out_features] T, or nullptr
  void* out = nullptr;                 // [rows, out_features] T, or f32 with out_is_f32
  const uint32_t* num_rows = nullptr;  // live count
  float* partials = nullptr;           // [LinearPartialFloats], tensor cores only
  uint32_t* counters = nullptr;        // [LinearNumCounters], zero before and after
  int32_t in_features = 0;
  int32_t out_features = 0;
  float scale = 1.0f;  // the product is multiplied by this before the bias is added
  int32_t out_is_f32 = 0;
  int32_t num_segments =
      0;  // set by Linear: the K order of the tensor-core kernel, see linear_matrix_body.h
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_ARGS_H_
