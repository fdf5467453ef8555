// SPDX-License-Identifier: Apache-2.0
#include "models/layers/experts_layer.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/experts/experts.h"
#include "kernels/silu_mul/silu_mul.h"
#include "runtime/status_macros.h"

namespace reprise::models {

void ExpertsLayer::DeclareWeights(WeightPlan& weights) {
  if (shared_ != nullptr) shared_->DeclareWeights(weights);
  const int64_t experts = spec_.num_experts, intermediate = spec_.expert_intermediate_size;
  weights.PlainLinear(&router_, {{absl::StrCat(name_, ".", tensors_.router), experts}},
                      spec_.hidden_size, tensors_.biased);
  // Kernels take the product with SiLU at once, and no other.
  const bool paired = spec_.activation == Activation::kSilu;
  if (tensors_.up == nullptr) {
    ExpertStack stack = {.form = tensors_.inputs_first ? MatrixForm::kInputs : MatrixForm::kOutputs,
                         .biased = tensors_.biased};
    if (spec_.mxfp4_experts) stack.form = MatrixForm::kMxfp4;
    ExpertStack of_pairs = stack;
    of_pairs.alternates = tensors_.alternates;
    weights.StackedExperts(&gate_up_, {absl::StrCat(name_, ".", tensors_.gate), 2 * intermediate},
                           experts, spec_.hidden_size, paired, of_pairs);
    weights.StackedExperts(&down_, {absl::StrCat(name_, ".", tensors_.down), spec_.hidden_size},
                           experts, intermediate, /*paired=*/false, stack);
    return;
  }
  std::vector<std::vector<WeightPlan::Part>> gate_up, down;
  for (int64_t expert = 0; expert < experts; ++expert) {
    const std::string of_expert = absl::StrCat(name_, ".experts.", expert, ".");
    gate_up.push_back({{absl::StrCat(of_expert, tensors_.gate), intermediate},
                       {absl::StrCat(of_expert, tensors_.up), intermediate}});
    down.push_back({{absl::StrCat(of_expert, tensors_.down), spec_.hidden_size}});
  }
  weights.Experts(&gate_up_, gate_up, spec_.hidden_size, paired);
  weights.Experts(&down_, down, intermediate, /*paired=*/false);
}

void ExpertsLayer::DeclareBuffers(const LayerBuffers& buffers) {
  if (shared_ != nullptr) shared_->DeclareBuffers(buffers);
  const uint32_t tokens = buffers.limits.max_step_tokens;
  const size_t places = tokens * static_cast<size_t>(spec_.experts_per_token);
  const auto intermediate = static_cast<size_t>(spec_.expert_intermediate_size);
  const runtime::DType dtype = buffers.kernels.dtype;
  runtime::BufferPlan& activations = buffers.activations;
  activations.Share(&logits_, tokens * static_cast<size_t>(spec_.num_experts), "experts.logits");
  activations.Share(&routes_.expert, places, "experts.expert");
  activations.Share(&routes_.share, places, "experts.share");
  activations.Share(&routes_.place, places, "experts.place");
  activations.Share(&routes_.token, places, "experts.token");
  activations.Share(&routes_.items,
                    kernels::MaxExpertItems(tokens, spec_.num_experts, spec_.experts_per_token),
                    "experts.items");
  activations.Share(&routes_.counts, 1, "experts.counts");
  if (!HasPairs())
    activations.ShareElements(&gate_up_out_, 2 * places * intermediate, dtype, "experts.gate_up");
  activations.ShareElements(&activated_, places * intermediate, dtype, "experts.activated");
  activations.ShareElements(&down_out_, places * static_cast<size_t>(spec_.hidden_size), dtype,
                            "experts.down");
  buffers.scratch.Share(&arrivals_, 1, "experts.arrivals");
  linear_.Declare(buffers, tokens, {&router_});
}

absl::Status ExpertsLayer::Enqueue(const LayerContext& context) const {
  // It leaves its branch where the sum over experts adds it.
  if (shared_ != nullptr) REPRISE_RETURN_IF_ERROR(shared_->Enqueue(context));
  const uint32_t max_tokens = context.shape.max_tokens;
  // Whatever the shapes of the two are, items are cut to one tile.
  const int32_t tile_rows =
      kernels::ExpertTileRows(context.kernels, gate_up_, max_tokens, top_k(), context.linear);
  REPRISE_RETURN_IF_ERROR(EnqueueRouter(context, tile_rows));
  REPRISE_RETURN_IF_ERROR(EnqueueLinear(context, gate_up_, context.InputOf(form_),
                                        HasPairs() ? activated_ : gate_up_out_, /*gathers=*/true,
                                        tile_rows));
  if (!HasPairs()) {
    REPRISE_RETURN_IF_ERROR(
        kernels::SiluMul(context.stream, context.kernels,
                         {.gate_up = gate_up_out_,
                          .out = activated_,
                          .num_tokens = &routes_.counts->num_places,
                          .intermediate = static_cast<int32_t>(spec_.expert_intermediate_size),
                          .limit = static_cast<float>(spec_.gate_limit),
                          .sigmoid_slope = static_cast<float>(spec_.gate_slope)},
                         max_tokens * static_cast<uint32_t>(top_k())));
  }
  REPRISE_RETURN_IF_ERROR(
      EnqueueLinear(context, down_, activated_, down_out_, /*gathers=*/false, tile_rows));
  return kernels::CombineExperts(context.stream, context.kernels,
                                 {.x = down_out_,
                                  .out = context.x.branch,
                                  .num_tokens = &context.plan.counts->num_tokens,
                                  .share = routes_.share,
                                  .place = routes_.place,
                                  .plus = shared_ != nullptr ? context.x.branch : nullptr,
                                  .top_k = top_k(),
                                  .hidden = static_cast<int32_t>(spec_.hidden_size)},
                                 max_tokens);
}

absl::Status ExpertsLayer::EnqueueRouter(const LayerContext& context, int32_t tile_rows) const {
  const uint32_t* num_tokens = &context.plan.counts->num_tokens;
  const uint32_t max_tokens = context.shape.max_tokens;
  REPRISE_RETURN_IF_ERROR(models::EnqueueLinear(context, linear_, router_,
                                                {.x = context.InputOf(form_),
                                                 .out = logits_,
                                                 .num_rows = num_tokens,
                                                 .max_rows = max_tokens,
                                                 .out_is_f32 = true}));
  return kernels::RouteExperts(context.stream, context.kernels,
                               {.logits = logits_,
                                .num_tokens = num_tokens,
                                .routes = routes_,
                                .arrivals = arrivals_,
                                .num_experts = static_cast<int32_t>(spec_.num_experts),
                                .top_k = top_k(),
                                .normalised = spec_.normalises_expert_shares ? 1 : 0,
                                .tile_rows = tile_rows},
                               max_tokens);
}

absl::Status ExpertsLayer::EnqueueLinear(const LayerContext& context,
                                         const kernels::ExpertWeights& weights, const void* x,
                                         void* out, bool gathers, int32_t tile_rows) const {
  const bool silu_mul = weights.first.layout == kernels::WeightLayout::kPackedPairs;
  return kernels::ExpertsLinear(context.stream, context.kernels, weights,
                                {.linear = {.x = x,
                                            .out = out,
                                            .silu_mul = silu_mul ? 1 : 0,
                                            // The router is just before the one that gathers.
                                            .reads_ahead = !gathers},
                                 .token = routes_.token,
                                 .items = routes_.items,
                                 .counts = routes_.counts,
                                 .gathers = gathers ? 1 : 0},
                                tile_rows, context.shape.max_tokens, top_k(), context.linear);
}

void ExpertsLayer::AddBytes(const StepTraffic& traffic, StepBytes* bytes) const {
  if (shared_ != nullptr) {
    shared_->AddBytes(traffic, bytes);
    bytes->activations +=
        traffic.rows * static_cast<uint64_t>(spec_.hidden_size) * traffic.element_bytes;
  }
  const auto hidden = static_cast<uint64_t>(spec_.hidden_size);
  const auto intermediate = static_cast<uint64_t>(spec_.expert_intermediate_size);
  const auto experts = static_cast<uint64_t>(spec_.num_experts);
  const auto top_k = static_cast<uint64_t>(spec_.experts_per_token);
  const double read = spec_.MeanExperts(static_cast<double>(traffic.rows));
  const uint64_t biases = tensors_.biased ? 2 * intermediate + hidden : 0;
  uint64_t of_expert = 3 * hidden * intermediate * traffic.element_bytes;
  const kernels::WeightFormat format = gate_up_.first.format;
  if (kernels::IsScaled(format)) {
    const auto scales = [&](uint64_t outputs, int64_t inputs) {
      const kernels::PackedLayout layout{.in_features = inputs,
                                         .scale_inputs = gate_up_.first.group_size};
      return outputs * static_cast<uint64_t>(layout.ScaleGroups()) * sizeof(float);
    };
    of_expert = 3 * hidden * intermediate * static_cast<uint64_t>(kernels::BitsOf(format)) / 8 +
                scales(2 * intermediate, spec_.hidden_size) +
                scales(hidden, spec_.expert_intermediate_size);
  }
  of_expert += biases * traffic.element_bytes;
  bytes->weights += static_cast<uint64_t>(std::llround(read * static_cast<double>(of_expert)));
  // In and out of gate and up, of the activation where it is a kernel of its own, of down, of the
  // sum.
  const uint64_t activation = HasPairs() ? intermediate : 5 * intermediate;
  const uint64_t of_choice = hidden + activation + (intermediate + hidden) + hidden;
  const uint64_t elements = hidden + top_k * of_choice + hidden;
  const uint64_t logits = 2 * experts * sizeof(float);
  bytes->activations += traffic.rows * (elements * traffic.element_bytes + logits);
}

}  // namespace reprise::models
