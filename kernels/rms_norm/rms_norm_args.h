// SPDX-License-Identifier: Apache-2.0
// Arguments of the RMSNorm op. See rms_norm.h.
#ifndef REPRISE_KERNELS_RMS_NORM_RMS_NORM_ARGS_H_
#define REPRISE_KERNELS_RMS_NORM_RMS_NORM_ARGS_H_

#include <cstdint>

namespace reprise::kernels {

struct RmsNormArgs {
  // Linear layers behind a norm read weights, and counts that the plan wrote (thread.h).
  static constexpr bool kLetsNextBeginFirst = true;
  const void* residual = nullptr;  // [rows, hidden] T
  const void* branch = nullptr;    // [rows, hidden] T, or nullptr: nothing is added
  void* residual_out =
      nullptr;  // [rows, hidden] T, may be `residual`; or nullptr: the sum is not kept
  const void* weight = nullptr;        // [hidden] T
  void* out = nullptr;                 // [rows, hidden] T, but see row_scales
  const uint32_t* gather = nullptr;    // [rows] input row of each output row; nullptr: the same row
  const uint32_t* num_rows = nullptr;  // live count of output rows
  int32_t hidden = 0;
  float eps = 0.0f;
  float branch_scale = 1.0f;
  float weight_offset = 0.0f;  // what is added to every weight, in f32
  float share = 0.0f;          // 1 / hidden; set by RmsNorm and RmsNormAdd
  // RmsNorm: `out` is [rows, hidden] E4M3 and this [rows], what RoundRows makes of the norm.
  float* row_scales = nullptr;
};

// Packs of 16 bytes of a row that one thread keeps. A warp's are a part of K of linear_stream.
constexpr int32_t kNormPacksPerThread = 2;

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_RMS_NORM_RMS_NORM_ARGS_H_
