// SPDX-License-Identifier: Apache-2.0
// What a DecodeEngine is told at its start, beside its model: plain fields with units, defaults and
// effects.
#ifndef REPRISE_ENGINE_ENGINE_OPTIONS_H_
#define REPRISE_ENGINE_ENGINE_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/dtype.h"

namespace reprise::engine {

// Which kernels compute linear layers, and on the host attention. With each, a row's bits do not
// depend on the batch; they differ from each other by rounding. EngineInfo tells the one that runs.
enum class LinearPolicy : uint8_t {
  kTuned,     // with bf16 or f16: kPacked on sm_90, where it was measured to be faster, and, of
              // weights of 8 and 4 bits, on all GPUs with matrix units; else kRowMajor
  kRowMajor,  // matrix units, or the CPU's vector units, over weights as they are published
  kPacked,    // weights lie in the order in which they are read (kernels/packed_layout.h):
              // bf16 and f16 on GPUs with matrix units; no second copy
  kPortable,  // the reference kernels, the same source on every device; slow
};
// "tuned", "row-major", "packed", "portable".
constexpr std::string_view NameOf(LinearPolicy policy) {
  switch (policy) {
    case LinearPolicy::kTuned:
      return "tuned";
    case LinearPolicy::kRowMajor:
      return "row-major";
    case LinearPolicy::kPacked:
      return "packed";
    case LinearPolicy::kPortable:
      return "portable";
  }
  return "unknown";
}

// How the layers of a decode bucket of few rows run. Both give the same bits.
enum class DecodePolicy : uint8_t {
  kTuned,       // what was measured to be faster: kChain (docs/benchmarks/README.md)
  kChain,       // a kernel for each op
  kStepKernel,  // one kernel for all layers (kernels/step_kernel), in buckets of up to 8 rows: bf16
                // and f16 on sm_90, packed weights, heads of 64 and 128, KV of the compute dtype
};
// "tuned", "chain", "step-kernel".
constexpr std::string_view NameOf(DecodePolicy policy) {
  switch (policy) {
    case DecodePolicy::kTuned:
      return "tuned";
    case DecodePolicy::kChain:
      return "chain";
    case DecodePolicy::kStepKernel:
      return "step-kernel";
  }
  return "unknown";
}

struct DecodeEngineOptions {
  runtime::DType dtype = runtime::DType::kBf16;  // of compute: bf16, f16 or f32
  bool dtype_from_checkpoint = true;             // use the checkpoint's dtype instead of `dtype`
  // Of the KV cache: the compute dtype, or fp8_e4m3 or fp8_e5m2, which take half or a quarter of
  // its memory. Unset: what the checkpoint was calibrated for, else the compute dtype. Scales of 8
  // bits are the checkpoint's, else 1 (docs/models.md).
  std::optional<runtime::DType> kv_dtype = {};
  uint32_t block_size = 16;  // tokens of a KV block; any value >= 1
  // Of the pool; 0: what memory_fraction of the device leaves (host: 256 MiB).
  uint64_t kv_cache_bytes = 0;
  // Of the host's pinned memory, for KV blocks that SwapOut moves there; of models whose rows carry
  // state beside their KV half of it for that (SwapOutState). 0: none.
  uint64_t swap_bytes = 0;
  // Of the device's memory, for copies of KV blocks that engines of other processes take
  // (ExportBlocks). 0: none.
  uint64_t export_bytes = 0;
  double memory_fraction = 0.9;  // of the device's memory that Reprise may use in all
  uint32_t max_rows = 256;       // resident rows
  // Tokens; 0: the model's limit. Of a model with longrope it chooses the factors, for all rows:
  // the short ones up to the original length, else the long ones (docs/models.md).
  uint32_t max_context_length = 0;
  std::vector<int64_t> decode_buckets = {};  // rows; empty: powers of two up to max_rows
  // Query tokens; empty: 64, 256 and 1024 (host), or 256, 512, 1024 and 2048 (GPUs).
  std::vector<int64_t> mixed_buckets = {};
  uint32_t pipeline_depth = 2;  // step requests in flight, 1..8
  // StepRequest::num_steps at most, 1..32. The result ring has an entry for each step in flight, so
  // that it takes so many times the pinned memory: pipeline_depth x (16 bytes x max_rows + 272 x
  // (max_rows + max_prompt_logprobs) + 4 x vocabulary x max_logit_rows).
  uint32_t max_steps_per_request = 1;
  LinearPolicy linear = LinearPolicy::kTuned;
  // Linear layers whose weights are E4M3 round what they read to E4M3 too, with a scale for each
  // token, and multiply that: faster on sm_90 from some rows on, by FP8 tensor cores, and what
  // checkpoints mean that were made for it (docs/models.md). Of such checkpoints alone. Experts,
  // and all else, read activations as they are. False: so do linear layers.
  bool round_activations = false;
  DecodePolicy decode = DecodePolicy::kTuned;
  // Text of the tree by which attention's plan decides (docs/attention_tree.md); empty: the default
  // tree. It must be made for this device and model. DecodeEngine::SetAttentionTree replaces it.
  std::string attention_tree = {};
  // Text of the table by which linear layers take other kernels than their own choice, of the same
  // bits, for some shapes and rows (docs/tune_linear.md); empty: none. It must be made for this
  // device and dtype. Not with LinearPolicy::kPortable.
  std::string linear_table = {};
  // A row's bits do not depend on its neighbours. False: trees may cut rows by features of the
  // whole batch, and may be replaced by any other while rows are resident.
  bool batch_invariant = true;
  // From how many tokens on a group's shared prefix (StepRequest::prefixes) is read once for its
  // rows; rows of a group that shares fewer are attended alone, which is faster for short prefixes.
  // 0: always alone. Otherwise graphs hold a decode kernel that takes some per cent longer where
  // nothing is shared. Always alone, too, where the device has no such kernel for the model's heads
  // and its KV: EngineInfo.limits says 0 then.
  uint32_t min_shared_tokens = 0;
  // Penalties, logit bias, allowed tokens and min_tokens. Costs device memory per row: 8 bytes per
  // token of the vocabulary (adjusted logits, token history), a bit for the mask, 4 KiB of biases.
  bool adjust_logits = true;
  // Rows of a step that may return their logits; each takes 4 bytes x vocabulary x pipeline_depth
  // x max_steps_per_request of pinned memory.
  uint32_t max_logit_rows = 4;
  // Prompt tokens of a step whose likelihood may be asked for; each takes 4 bytes x vocabulary of
  // logits.
  uint32_t max_prompt_logprobs = 64;
  // Draft tokens of a step (StepRequest::drafts), 0..65535. Each takes 4 bytes x vocabulary of
  // logits, twice with adjust_logits. 0: no row may bring any, and none may in a model whose rows
  // carry state, whatever is asked for: such an engine's limits say 0.
  uint32_t max_draft_tokens = 0;
  uint64_t watchdog_timeout_ms = 30000;  // a step without a result for this long is a fault
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_ENGINE_OPTIONS_H_
