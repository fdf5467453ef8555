// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_preview.h"

#include <algorithm>
#include <memory>
#include <string_view>

#include "engine/engine_setup.h"
#include "engine/step_program.h"
#include "engine/step_state.h"
#include "kernels/kernel_set.h"
#include "kernels/step_kernel/launch_list.h"
#include "models/decoder.h"
#include "models/kv_pool.h"
#include "runtime/memory/mapped_ring.h"
#include "runtime/status_macros.h"

namespace reprise::engine {
namespace {

// Steps that are looked at: one row, and as many as there are decode kernels of their own for; a
// prompt.
constexpr uint32_t kFewRows = 1, kManyRows = 32, kPromptTokens = 256;

// Of one launch.
LayerKernel KernelOf(const kernels::KernelSet& kernels, const kernels::ListedLaunch& launch) {
  LayerKernel of{.op = std::string(launch.shape.label.op),
                 .kernel = std::string(launch.kernel.name)};
  for (const kernels::LoadedKernel& loaded : kernels.loaded()) {
    if (loaded.kernel.handle != launch.kernel.handle) continue;
    const std::string_view family = loaded.instance->family->name;
    of.is_reference = family.find("portable") != std::string_view::npos;
  }
  return of;
}

void AddLaunches(const kernels::KernelSet& kernels, const kernels::LaunchList& list, bool mixed,
                 std::vector<LayerKernel>& all) {
  for (const kernels::ListedLaunch& launch : list.launches()) {
    const LayerKernel of = KernelOf(kernels, launch);
    auto known = std::find_if(all.begin(), all.end(),
                              [&](const LayerKernel& k) { return k.kernel == of.kernel; });
    if (known == all.end()) known = all.insert(all.end(), of);
    (mixed ? known->in_mixed : known->in_decode) = true;
  }
}

}  // namespace

bool EnginePreview::is_tuned() const {
  return std::none_of(kernels.begin(), kernels.end(),
                      [](const LayerKernel& kernel) { return kernel.is_reference; });
}

absl::StatusOr<EnginePreview> PreviewEngine(runtime::Device& device,
                                            const models::ModelSpec& published,
                                            const DecodeEngineOptions& asked) {
  DecodeEngineOptions small = asked;
  small.max_rows = kManyRows;
  small.decode_buckets = {kFewRows, kManyRows};
  small.mixed_buckets = {kPromptTokens};
  small.adjust_logits = false;
  small.max_logit_rows = small.max_prompt_logprobs = 0;
  REPRISE_ASSIGN_OR_RETURN(ResolvedOptions resolved,
                           ResolveOptions(small, published, device.properties()));
  DecodeEngineOptions& options = resolved.options;
  options.linear = ResolveLinear(options, published, device.properties());
  REPRISE_RETURN_IF_ERROR(CheckLinear(options, device.properties()));
  REPRISE_ASSIGN_OR_RETURN(const models::ModelSpec spec,
                           ModelToRun(options, published, device.properties()));
  REPRISE_ASSIGN_OR_RETURN(const auto kernels, kernels::KernelSet::Load(device, options.dtype));
  REPRISE_ASSIGN_OR_RETURN(const auto decoder, models::Decoder::Create(spec));
  const models::WeightPlan weights =
      decoder->PlanWeights(options.dtype, options.kv_dtype, LayoutOf(options.linear, *kernels));
  REPRISE_RETURN_IF_ERROR(weights.status());
  auto geometry = models::KvGeometry::For(spec, options.block_size, *options.kv_dtype);
  EnginePreview preview{
      .dtype = options.dtype,
      .kv_dtype = *options.kv_dtype,
      .linear = options.linear,
      .weights_bytes = weights.bytes(),
      .kv_bytes_per_token = geometry.BlockBytes() / static_cast<uint64_t>(geometry.block_size),
      .state_bytes_per_row = spec.RowStateBytes(options.dtype),
      .takes_long_factors = spec.rope.scaling == models::RopeScaling::kLongRope
                                ? std::optional(spec.rope.takes_long_factors)
                                : std::nullopt,
      .kernels = {}};

  // What the layers would launch is written down, and nothing launched: nobody follows addresses.
  REPRISE_ASSIGN_OR_RETURN(const auto stream, device.CreateStream());
  REPRISE_ASSIGN_OR_RETURN(const auto state, StepState::Create(device, *stream, *decoder, *kernels,
                                                               preview.kv_dtype, resolved.limits));
  geometry.swizzled = state->attention.num_shares != 0;
  REPRISE_ASSIGN_OR_RETURN(const auto pool, models::KvPool::Create(device, geometry, 2));
  // Which kernel it is may depend on whether there is a weight, as of the norms of q and k.
  weights.Bind(static_cast<const std::byte*>(state->activations().data()));
  const runtime::MappedRing no_ring;
  const StepProgram program({.kernels = *kernels,
                             .decoder = *decoder,
                             .pool = pool,
                             .state = *state,
                             .metadata = no_ring,
                             .results = no_ring},
                            {},
                            options.linear == LinearPolicy::kPortable
                                ? kernels::LinearCandidate::kPortable
                                : kernels::LinearCandidate::kBest);
  for (const models::StepShape& shape :
       {models::StepShape{.max_rows = kFewRows, .max_tokens = kFewRows},
        models::StepShape{.max_rows = kManyRows, .max_tokens = kManyRows},
        models::StepShape{.max_rows = kManyRows, .max_tokens = kPromptTokens, .mixed = true}}) {
    kernels::LaunchList list;
    REPRISE_RETURN_IF_ERROR(program.EnqueueLayers(list, shape));
    AddLaunches(*kernels, list, shape.mixed, preview.kernels);
  }
  return preview;
}

}  // namespace reprise::engine
