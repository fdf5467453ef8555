// SPDX-License-Identifier: Apache-2.0
// What a DecodeEngine says of itself: model, device, limits, memory, captured graphs, the pool, and
// its progress while it starts.
#ifndef REPRISE_ENGINE_ENGINE_INFO_H_
#define REPRISE_ENGINE_ENGINE_INFO_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine_options.h"
#include "engine/kv_part.h"
#include "graphs/bucket.h"
#include "kernels/step/step_limits.h"
#include "kernels/weight_format.h"
#include "models/config/model_spec.h"
#include "runtime/device.h"
#include "runtime/dtype.h"

namespace reprise::engine {

struct PoolInfo {
  uint32_t block_size = 0;   // tokens
  uint32_t num_blocks = 0;   // usable ids are 1 .. num_blocks - 1; block 0 is the scratch block
  uint32_t free_blocks = 0;  // right now
  uint64_t bytes = 0;        // of the whole pool
  // Swap space, in blocks.
  uint32_t swap_blocks = 0;
  uint32_t free_swap_blocks = 0;
  // Rows whose state swap space has room for, in models whose rows carry some.
  uint32_t swap_states = 0;
  uint32_t free_swap_states = 0;
  // Export space, likewise.
  uint32_t export_blocks = 0;
  uint32_t free_export_blocks = 0;
};

// Bytes on the device unless it says otherwise, exact for what we allocate, measured for what the
// driver takes.
struct MemoryInfo {
  uint64_t weights_bytes = 0;
  uint64_t kv_cache_bytes = 0;
  uint64_t workspace_bytes = 0;  // activations, plan, resident rows with their state
  uint64_t graphs_bytes = 0;     // the driver's share for the graphs captured at start
  uint64_t swap_bytes = 0;       // pinned memory of the host for swapped blocks and states
  uint64_t export_bytes = 0;     // for copies of blocks that other processes take
};

// The tree by which attention's plan decides, from the step on that is submitted next.
struct AttentionTreeInfo {
  uint64_t version = 1;  // 1: what the engine started with; one more with every replacement
  bool batch_invariant = true;
  std::string text;  // docs/attention_tree.md
  // Names of leaves, by the index that steps report.
  std::vector<std::string> row_leaves, batch_leaves;
};

// For which sizes graphs are captured.
struct BucketSets {
  std::vector<int64_t> decode = {};  // rows
  std::vector<int64_t> mixed = {};   // query tokens
  bool operator==(const BucketSets&) const = default;
};

// The graphs that steps replay, from the step on that is submitted next.
struct GraphsInfo {
  uint64_t version = 1;  // 1: what the engine started with; one more with every replacement
  std::vector<graphs::CapturedBucket> decode_buckets;  // capacity in rows, ascending
  std::vector<graphs::CapturedBucket> mixed_buckets;   // capacity in query tokens, ascending
  uint64_t device_bytes = 0;                           // the driver's share for all of them
  uint64_t capture_ns = 0;                             // all of them, wall time
};

using GraphsFn = std::function<void(const GraphsInfo&)>;

struct EngineInfo {
  models::ModelSpec model;
  runtime::DeviceProperties device;
  runtime::DType dtype = runtime::DType::kBf16;     // of compute
  runtime::DType kv_dtype = runtime::DType::kBf16;  // of the KV cache
  // Of the linear layers of blocks, but for those that weight_quantization leaves out; kMxfp4 where
  // that is the format of experts alone.
  kernels::WeightFormat weight_format() const {
    if (model.mxfp4_experts) return kernels::WeightFormat::kMxfp4;
    return model.weight_quantization ? model.weight_quantization->format()
                                     : kernels::WeightFormatOf(dtype);
  }
  LinearPolicy linear = LinearPolicy::kRowMajor;  // what runs: never kTuned
  // Ranges of rows for which the linear table names a kernel, of all shapes, whether the model has
  // them or not. Unset: there is no table.
  std::optional<uint32_t> linear_table_ranges = {};
  // Rows of the largest decode bucket whose layers are one kernel (DecodePolicy), of those that the
  // engine started with; 0: none is.
  uint32_t step_kernel_rows = 0;
  // min_shared_tokens: 0 where no kernel reads shared tokens once. row_state_bytes: what a row of
  // the model carries beside its KV; 0: nothing.
  kernels::StepLimits limits;
  KvShape kv;  // of what ReadBlocks and WriteBlocks move
  // Of one ReadBlocks or WriteBlocks; room for one layer of a block at least.
  uint64_t max_kv_transfer_bytes = 0;
  MemoryInfo memory;
  // What the engine started with; DecodeEngine::captured_graphs has what steps replay now.
  std::vector<graphs::CapturedBucket> decode_buckets;  // capacity in rows
  std::vector<graphs::CapturedBucket> mixed_buckets;   // capacity in query tokens
  uint64_t load_ns = 0;                                // weights
  uint64_t capture_ns = 0;                             // all buckets
};

// Start-up progress: stage "load" counts bytes, stage "capture" counts buckets.
struct EngineProgress {
  std::string_view stage;
  std::string_view detail;
  uint64_t done = 0;
  uint64_t total = 0;
};
using ProgressFn = std::function<void(const EngineProgress&)>;

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_ENGINE_INFO_H_
