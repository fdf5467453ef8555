// SPDX-License-Identifier: Apache-2.0
#include "models/layers/attention_layer.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/attention/attention.h"
#include "kernels/rope_append/rope_append.h"
#include "runtime/status_macros.h"

namespace reprise::models {

namespace {

constexpr uint32_t kMaxSplits = kernels::AttentionPlanRule{}.max_splits;

// Where the window stands among those of the model, as Decoder::attention_plan has them.
size_t IndexOfWindow(const ModelSpec& spec, int64_t window) {
  const std::vector<int64_t> all = spec.Windows();
  return static_cast<size_t>(std::find(all.begin(), all.end(), window) - all.begin());
}

}  // namespace

AttentionLayer::AttentionLayer(const ModelSpec& spec, std::string name, int64_t block,
                               BranchForm form)
    : spec_(spec),
      name_(std::move(name)),
      block_(block),
      kv_layer_(spec.KvLayerOf(block)),
      rope_table_(spec.RopeTableOf(block)),
      form_(form),
      window_(static_cast<uint32_t>(spec.WindowOf(block))),
      lists_(IndexOfWindow(spec, spec.WindowOf(block))) {}

void AttentionLayer::DeclareWeights(WeightPlan& weights) {
  HeadOrder heads;
  if (spec_.rotary_dim != 0) heads = {.head_dim = spec_.head_dim, .turned = spec_.rotary_dim};
  std::vector<WeightPlan::Part> qkv = {{absl::StrCat(name_, ".q_proj"), spec_.q_size(), heads},
                                       {absl::StrCat(name_, ".k_proj"), spec_.kv_size(), heads},
                                       {absl::StrCat(name_, ".v_proj"), spec_.kv_size()}};
  if (form_.fused_tensors) {
    heads.end = spec_.q_size() + spec_.kv_size();
    qkv = {{absl::StrCat(name_, ".qkv_proj"), spec_.qkv_size(), heads}};
  }
  weights.Linear(&qkv_, qkv, spec_.hidden_size, spec_.qkv_bias,
                 spec_.IsQuantized(block_, BlockLinear::kAttentionIn));
  if (spec_.qk_norm) {
    const bool whole = spec_.whole_qk_norm;
    weights.Norm(&q_norm_, absl::StrCat(name_, ".q_norm.weight"),
                 whole ? spec_.q_size() : spec_.head_dim);
    weights.Norm(&k_norm_, absl::StrCat(name_, ".k_norm.weight"),
                 whole ? spec_.kv_size() : spec_.head_dim);
  }
  if (spec_.attention_sinks)
    weights.Numbers(&sinks_, absl::StrCat(name_, ".sinks"), {spec_.num_heads});
  DeclareScales(weights, "k", &scales_.k);
  DeclareScales(weights, "v", &scales_.v);
  weights.Linear(&o_, {{absl::StrCat(name_, ".o_proj"), spec_.hidden_size}}, spec_.q_size(),
                 spec_.o_bias, spec_.IsQuantized(block_, BlockLinear::kAttentionOut));
}

// Names as vLLM and compressed-tensors write them. Of other caches than those of 8 bits a
// checkpoint may have them all the same.
void AttentionLayer::DeclareScales(WeightPlan& weights, const char* part, const float** out) const {
  std::vector<std::string> names = {absl::StrCat(name_, ".", part, "_scale"),
                                    absl::StrCat(name_, ".", part, "_proj.", part, "_scale"),
                                    absl::StrCat(name_, ".", part, "_proj.output_scale")};
  *out = nullptr;
  if (runtime::IsFp8(weights.kv_dtype())) {
    weights.Scales(out, std::move(names), spec_.num_kv_heads);
  } else {
    weights.Unread(std::move(names));
  }
}

void AttentionLayer::DeclareBuffers(const LayerBuffers& buffers) {
  const runtime::DType dtype = buffers.kernels.dtype;
  const size_t tokens = buffers.limits.max_step_tokens, rows = buffers.limits.max_rows;
  const auto q_size = static_cast<size_t>(spec_.q_size());
  runtime::BufferPlan& activations = buffers.activations;
  activations.ShareElements(&qkv_out_, tokens * static_cast<size_t>(spec_.qkv_size()), dtype,
                            "qkv");
  activations.ShareElements(&q_, tokens * q_size, dtype, "q");
  activations.ShareElements(&attended_, tokens * q_size, dtype, "attention");
  const size_t heads = rows * kMaxSplits * static_cast<size_t>(spec_.num_heads);
  runtime::BufferPlan& scratch = buffers.scratch;
  scratch.Share(&partial_out_, heads * static_cast<size_t>(spec_.head_dim),
                "attention.partial_out");
  scratch.Share(&partial_max_, heads, "attention.partial_max");
  scratch.Share(&partial_sum_, heads, "attention.partial_sum");
  scratch.Share(&piece_leaves_, rows * kMaxSplits * static_cast<size_t>(spec_.num_kv_heads),
                "attention.piece_leaves");
  scratch.Share(&arrivals_, rows * static_cast<size_t>(spec_.num_kv_heads), "attention.arrivals");
  linear_.Declare(buffers, buffers.limits.max_step_tokens, {&qkv_, &o_});
}

absl::Status AttentionLayer::Enqueue(const LayerContext& context) const {
  const uint32_t* num_tokens = &context.plan.counts->num_tokens;
  const uint32_t max_tokens = context.shape.max_tokens;
  REPRISE_RETURN_IF_ERROR(EnqueueLinear(context, linear_, qkv_,
                                        {.x = context.InputOf(form_),
                                         .out = qkv_out_,
                                         .num_rows = num_tokens,
                                         .max_rows = max_tokens,
                                         .norm_before = norm_before()}));
  REPRISE_RETURN_IF_ERROR(EnqueueRopeAppend(context));
  REPRISE_RETURN_IF_ERROR(EnqueueAttention(context));
  return EnqueueLinear(context, linear_, o_,
                       {.x = attended_,
                        .out = context.x.branch,
                        .num_rows = num_tokens,
                        .max_rows = max_tokens,
                        .ahead = kernels::KernelAhead::kAttention,
                        .norm_behind = norm_behind()});
}

absl::Status AttentionLayer::EnqueueRopeAppend(const LayerContext& context) const {
  return kernels::RopeAppend(context.stream, context.kernels,
                             {.qkv = qkv_out_,
                              .q_out = q_,
                              .kv_cache = context.kv.Layer(kv_layer_),
                              .rope = context.x.rope + rope_table_ * spec_.head_dim,
                              .token_block = context.plan.token_block,
                              .token_offset = context.plan.token_offset,
                              .num_tokens = &context.plan.counts->num_tokens,
                              .num_heads = static_cast<int32_t>(spec_.num_heads),
                              .kv = context.kv.geometry().layout(),
                              .q_norm = q_norm_,
                              .k_norm = k_norm_,
                              .norm_eps = static_cast<float>(spec_.rms_norm_eps),
                              .norm_offset = static_cast<float>(spec_.norm_offset),
                              .whole_norm = spec_.whole_qk_norm ? 1 : 0,
                              .rope_tables = static_cast<int32_t>(spec_.NumRopeTables()),
                              .scales = scales_},
                             context.shape.max_tokens);
}

absl::Status AttentionLayer::EnqueueAttention(const LayerContext& context) const {
  const kernels::StepPlan& plan = context.plan;
  const kernels::AttentionLists& lists = plan.attention[lists_];
  kernels::AttentionArgs args{.q = q_,
                              .kv_cache = context.kv.Layer(kv_layer_),
                              .out = attended_,
                              .items = lists.decode_items,
                              .num_items = &plan.counts->num_decode_items[lists_],
                              .query_start = plan.query_start,
                              .context_before = plan.context_before,
                              .block_table = context.rows.block_table,
                              .max_blocks_per_row = context.rows.max_blocks_per_row,
                              .partial_out = partial_out_,
                              .partial_max = partial_max_,
                              .partial_sum = partial_sum_,
                              .arrivals = arrivals_,
                              .decode_rows = lists.decode_rows,
                              .prefix_members = lists.prefix_members,
                              .shares = lists.decode_shares,
                              .piece_leaves = piece_leaves_,
                              .max_splits = kMaxSplits,
                              // Rope and append come between the plan and here, and what rows count
                              // as context was written by earlier steps.
                              .reads_ahead = true,
                              .num_heads = static_cast<int32_t>(spec_.num_heads),
                              .kv = context.kv.geometry().layout(),
                              .scale = static_cast<float>(spec_.attention_multiplier),
                              .window = window_,
                              .softcap = static_cast<float>(spec_.attention_softcap),
                              .sinks = sinks_,
                              .scales = scales_};
  // Where linear layers are the reference, so that a host computes as other devices do.
  const auto candidate =
      context.linear == kernels::LinearCandidate::kPortable && context.kernels.on_host()
          ? kernels::AttentionCandidate::kPortable
          : kernels::AttentionCandidate::kBest;
  REPRISE_RETURN_IF_ERROR(kernels::Attention(context.stream, context.kernels, args,
                                             kernels::AttentionPhase::kDecode, candidate));
  if (!context.shape.mixed) return absl::OkStatus();
  args.items = lists.prefill_items;
  args.num_items = &plan.counts->num_prefill_items[lists_];
  return kernels::Attention(context.stream, context.kernels, args,
                            kernels::AttentionPhase::kPrefill, candidate);
}

void AttentionLayer::AddBytes(const StepTraffic& traffic, StepBytes* bytes) const {
  const auto hidden = static_cast<uint64_t>(spec_.hidden_size);
  const auto q = static_cast<uint64_t>(spec_.q_size());
  const auto qkv = static_cast<uint64_t>(spec_.qkv_size());
  const uint64_t kv_bytes = 2 * static_cast<uint64_t>(spec_.kv_size()) * traffic.kv_element_bytes;
  bytes->kv_read += static_cast<uint64_t>(
      std::llround(static_cast<double>(traffic.rows * kv_bytes) * traffic.attended));
  bytes->kv_written += traffic.rows * kv_bytes;
  if (spec_.attention_sinks)
    bytes->weights += static_cast<uint64_t>(spec_.num_heads) * sizeof(float);
  // In and out of the projection of q, k and v; of rope, whose k and v are counted above; of
  // attention; of the projection of its output.
  const uint64_t elements = (hidden + qkv) + (qkv + q) + 2 * q + (q + hidden) +
                            PreparedElements(qkv_) + PreparedElements(o_) -
                            SparedElements(qkv_, norm_before());
  const uint64_t rope = static_cast<uint64_t>(spec_.head_dim) * sizeof(float);
  bytes->activations += traffic.rows * (elements * traffic.element_bytes + rope);
}

}  // namespace reprise::models
