// SPDX-License-Identifier: Apache-2.0
// Arguments of the linear op. See linear.h.
#ifndef REPRISE_KERNELS_LINEAR_LINEAR_ARGS_H_
#define REPRISE_KERNELS_LINEAR_LINEAR_ARGS_H_

#include <cstdint>

#include "runtime/tile_map.h"

namespace reprise::kernels {

// The kernel that is enqueued just before, which decides how much of the weights is on its way
// while that runs (StreamFirstRequests). Changes no bits.
enum class KernelAhead : uint8_t {
  kLong,       // reads much itself, such as other weights; or one of which nothing was measured
  kNorm,       // short: reads its rows, and no more
  kAttention,  // waits for what it reads several times, one after the other
};

struct LinearArgs {
  const void* x = nullptr;             // [rows, in_features] T, or with row_scales E4M3
  void* out = nullptr;                 // [rows, out_features] T, or f32 with out_is_f32
  const uint32_t* num_rows = nullptr;  // live count
  float* partials = nullptr;           // [LinearPartialFloats]
  uint32_t* counters = nullptr;        // [LinearNumCounters], zero before and after
  float scale = 1.0f;                  // the product is multiplied by this before the bias is added
  int32_t out_is_f32 = 0;
  // The second half of the outputs times the SiLU of the first, [rows, out_features / 2]: of
  // weights in packed pairs, and of them alone.
  int32_t silu_mul = 0;
  // LinearNormsInput: x is a residual stream, and its norm is what is multiplied, as RmsNorm would
  // have written it (rms_norm.h).
  const void* norm_weight = nullptr;  // [in_features] T, or nullptr: x is multiplied
  float norm_eps = 0.0f;
  float norm_weight_offset = 0.0f;
  // LinearAddsToOut: the output, rounded, is a branch, and out a residual stream to which it is
  // added, as RmsNorm would. Not x: blocks read all of that while others store.
  int32_t adds_to_out = 0;
  float branch_scale = 1.0f;
  // Matrix units: the kernel that is enqueued just before this one writes neither num_rows nor the
  // weight, that of a norm included, nor does one that may still go on when this one begins
  // (thread.h): they may be read without waiting.
  bool reads_ahead = false;
  KernelAhead ahead = KernelAhead::kLong;

  // Set by Linear, of its LinearWeights.
  const void* weight = nullptr;   // [out_features, in_features], row-major or packed
  const float* scales = nullptr;  // of E4M3, PackedLayout; of kInt4 ScaleWord's
  const void* bias = nullptr;     // [out_features] T, or nullptr
  int32_t in_features = 0;
  int32_t out_features = 0;
  int32_t packed = 0;  // whether the weight is
  // Set by Linear: the K order of row-major weights on matrix units, see linear_matrix_body.h.
  int32_t num_segments = 0;
  int32_t scale_inputs = 0;  // of a scale
  float norm_share = 0.0f;   // 1 / in_features

  // Not set by Linear. With kE4m3Rounded, and with it alone: what x is worth, [rows]
  // (round_rows.h).
  const float* row_scales = nullptr;
};

// Of linear_group, set by Linear. Tiles are copied: of tokens so many rows of x by 64 inputs, or
// what a stage has, of weights, and of scales that come with a stage, what a stage has
// (group_geometry.h). Of kE4m3Rounded inputs are counted in pairs, here and in `linear`.
struct LinearGroupArgs {
  LinearArgs linear = {};
  int32_t span = 0;          // tiles of 16 outputs that a block takes at a time
  int32_t stage_chunks = 0;  // 64 inputs each
  int32_t copied_rows = 0;   // of x
  int32_t whole_stages = 0;  // whether one copy brings all tokens of a stage
  runtime::TileMap tokens = {}, weights = {}, scales = {};
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_ARGS_H_
