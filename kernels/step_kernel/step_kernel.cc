// SPDX-License-Identifier: Apache-2.0
#include "kernels/step_kernel/step_kernel.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/attention/instances.h"
#include "kernels/linear/cluster_geometry.h"
#include "kernels/linear/instances.h"
#include "kernels/rms_norm/instances.h"
#include "kernels/rope_append/instances.h"
#include "kernels/step_kernel/instances.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {
namespace {

absl::string_view Abseil(std::string_view s) { return {s.data(), s.size()}; }

absl::Status Refuse(const ListedLaunch& launch, absl::string_view why) {
  return absl::UnimplementedError(
      absl::StrCat("step kernel: '", Abseil(launch.kernel.name), "' ", why));
}

template <typename Args>
absl::Status Read(const ListedLaunch& launch, Args* args) {
  if (launch.args.size() != sizeof(Args)) return Refuse(launch, "has arguments of another size");
  std::memcpy(args, launch.args.data(), sizeof(Args));
  return absl::OkStatus();
}

const LoadedKernel* FindLoaded(const KernelSet& kernels, const runtime::Kernel& kernel) {
  for (const LoadedKernel& loaded : kernels.loaded())
    if (loaded.kernel.handle == kernel.handle) return &loaded;
  return nullptr;
}

// num_rows: what counts the stage's rows.
absl::Status AddStage(const ListedLaunch& launch, const uint32_t* num_rows, StepStage stage,
                      StepKernelPlan* plan) {
  const auto known = std::find(plan->counts.begin(), plan->counts.end(), num_rows);
  stage.count = static_cast<uint32_t>(known - plan->counts.begin());
  if (known == plan->counts.end()) plan->counts.push_back(num_rows);
  if (plan->counts.size() > kStepCounts)
    return Refuse(launch, absl::StrCat("has live rows of its own; allowed: ", kStepCounts,
                                       " different counts of rows in a step"));
  plan->stages.push_back(stage);
  plan->labels.push_back(launch.shape.label);
  return absl::OkStatus();
}

// Says of every linear layer which stage is the next.
void LinkLinearLayers(StepKernelPlan* plan) {
  auto next = static_cast<uint32_t>(plan->stages.size());
  for (size_t i = plan->stages.size(); i-- > 0;) {
    plan->stages[i].next_linear = next;
    if (plan->stages[i].kind == StageKind::kLinear) next = static_cast<uint32_t>(i);
  }
  plan->first_linear = next;
}

static_assert(kLinearClusterFewestRows > kStepTokens, "linear_cluster is none of those below");
// Whatever kernel of packed weights it is: all sum in one order.
absl::Status AddLinear(const ListedLaunch& launch, const LoadedKernel& kernel,
                       StepKernelPlan* plan) {
  StepStage stage{.kind = StageKind::kLinear};
  if (kernel.instance->family == &kLinearGroup) {
    LinearGroupArgs args;
    REPRISE_RETURN_IF_ERROR(Read(launch, &args));
    stage.linear = args.linear;
  } else {
    REPRISE_RETURN_IF_ERROR(Read(launch, &stage.linear));
  }
  if (stage.linear.norm_weight != nullptr || stage.linear.adds_to_out != 0)
    return Refuse(launch, "does a norm's work; allowed: norms of their own (separate_norms)");
  const int64_t tiles =
      PackedLayout{stage.linear.out_features, stage.linear.in_features}.OutputTiles();
  stage.first_unit = plan->num_units;
  stage.num_units = static_cast<uint32_t>(tiles);
  stage.fixed = stage.num_units;
  plan->num_units += stage.num_units;
  return AddStage(launch, stage.linear.num_rows, stage, plan);
}

absl::Status AddNorm(const ListedLaunch& launch, size_t element_bytes, StepKernelPlan* plan) {
  StepStage stage{.kind = StageKind::kNorm, .threads = launch.shape.block};
  REPRISE_RETURN_IF_ERROR(Read(launch, &stage.norm));
  const auto pack = static_cast<int32_t>(16 / element_bytes);
  const int32_t most = kNormPacksPerThread * static_cast<int32_t>(stage.threads) * pack;
  if (stage.threads > kStepMaxNormThreads || stage.norm.hidden % pack != 0 ||
      stage.norm.hidden > most)
    return Refuse(
        launch, absl::StrCat("has rows of ", stage.norm.hidden, " elements; allowed: multiples of ",
                             pack, ", at most ", kStepMaxNormThreads * kNormPacksPerThread * pack));
  stage.per_row = kStepRowWarps;
  return AddStage(launch, stage.norm.num_rows, stage, plan);
}

absl::Status AddRope(const ListedLaunch& launch, const LoadedKernel& kernel, StepKernelPlan* plan) {
  StepStage stage{.kind = StageKind::kRopeAppend};
  REPRISE_RETURN_IF_ERROR(Read(launch, &stage.rope));
  const RopeAppendArgs& rope = stage.rope;
  if (kernel.instance->kv != kernel.instance->activation)
    return Refuse(launch, "stores KV of 8 bits; allowed: KV of the compute dtype");
  if (rope.whole_norm != 0)
    return Refuse(launch, "norms all heads of q and k together; allowed: each head alone, or none");
  if (rope.q_norm != nullptr && rope.num_heads + rope.kv.num_kv_heads > kStepMaxNormedHeads)
    return Refuse(launch, absl::StrCat("norms ", rope.num_heads + rope.kv.num_kv_heads,
                                       " heads; allowed: at most ", kStepMaxNormedHeads));
  stage.per_row = kStepRowWarps;
  return AddStage(launch, rope.num_tokens, stage, plan);
}

absl::Status AddAttention(const ListedLaunch& launch, const KernelSet& kernels,
                          StepKernelPlan* plan) {
  StepStage stage{.kind = StageKind::kAttention, .num_shares = launch.shape.grid_x};
  REPRISE_RETURN_IF_ERROR(Read(launch, &stage.attention));
  if (plan->stages.empty() || plan->stages.back().kind != StageKind::kRopeAppend)
    return Refuse(launch, "does not follow rope; allowed: behind rope and KV append");
  plan->kernel = kernels.Find(kStepKernel, stage.attention.kv.head_dim);
  if (plan->kernel == nullptr)
    return Refuse(launch, absl::StrCat("has heads of ", stage.attention.kv.head_dim, " on ",
                                       kernels.device.name,
                                       "; allowed: heads of 64 and 128, on devices of "
                                       "compute capability 9.0"));
  stage.per_row = static_cast<uint32_t>(stage.attention.kv.num_kv_heads) * kStepRowWarps;
  return AddStage(launch, plan->stages.back().rope.num_tokens, stage, plan);
}

absl::Status Add(const KernelSet& kernels, const ListedLaunch& launch, StepKernelPlan* plan) {
  const LoadedKernel* const kernel = FindLoaded(kernels, launch.kernel);
  const KernelFamily* const family = kernel == nullptr ? nullptr : kernel->instance->family;
  if (family == &kLinearStream || family == &kLinearGroup) return AddLinear(launch, *kernel, plan);
  if (family == &kRmsNorm) return AddNorm(launch, runtime::SizeOf(kernels.dtype), plan);
  if (family == &kRopeAppend || family == &kRopeAppendNormed) return AddRope(launch, *kernel, plan);
  if (family == &kAttentionDecodeBulk) return AddAttention(launch, kernels, plan);
  if (!plan->stages.empty()) {
    return Refuse(launch, absl::StrCat("is none of its stages on ", kernels.device.name,
                                       "; allowed: decode by tuned or chain, or a dense bf16 "
                                       "model with packed weights on compute capability 9.0"));
  }
  plan->head.push_back(launch);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StepKernelPlan> StepKernelPlan::Of(const KernelSet& kernels,
                                                  std::span<const ListedLaunch> launches) {
  StepKernelPlan plan;
  for (const ListedLaunch& launch : launches) REPRISE_RETURN_IF_ERROR(Add(kernels, launch, &plan));
  if (plan.kernel == nullptr)
    return absl::UnimplementedError(
        absl::StrCat("step kernel: no decode attention by bulk copies among ", launches.size(),
                     " launches on ", kernels.device.name, "; allowed: decoders that have it"));
  if (plan.num_units == 0)
    return absl::UnimplementedError("step kernel: no linear layers; allowed: decoders");
  LinkLinearLayers(&plan);
  return plan;
}

absl::Status StepKernel(runtime::Stream& stream, const KernelSet& kernels,
                        const StepKernelPlan& plan, const StepKernelMemory& memory) {
  if (memory.stages == nullptr || memory.done == nullptr || memory.counters == nullptr)
    return absl::InvalidArgumentError(
        "step kernel: a null among stages, done and counters; allowed: device memory");
  for (const ListedLaunch& launch : plan.head)
    REPRISE_RETURN_IF_ERROR(
        stream.Launch(launch.kernel, launch.shape, launch.args.data(), launch.args.size()));
  return stream.Launch(plan.kernel->kernel,
                       {.grid_x = static_cast<unsigned>(kernels.device.num_multiprocessors),
                        .block = plan.kernel->threads,
                        .shared_bytes = StepLayout(plan.kernel->instance->tile).bytes,
                        .cooperative = true,
                        .label = plan.kernel->label()},
                       StepKernelArgs{.stages = memory.stages,
                                      .num_stages = static_cast<uint32_t>(plan.stages.size()),
                                      .num_units = plan.num_units,
                                      .first_linear = plan.first_linear,
                                      .num_rows = {plan.counts.front(), plan.counts.back()},
                                      .done = memory.done,
                                      .counters = memory.counters});
}

}  // namespace reprise::kernels
