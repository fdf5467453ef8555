// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_setup.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/step/sampling.h"
#include "graphs/bucket_table.h"
#include "kernels/fill/fill.h"
#include "kernels/linear/linear.h"
#include "models/weights/checkpoint.h"
#include "runtime/byte_count.h"
#include "runtime/status_macros.h"

namespace reprise::engine {
namespace {

constexpr uint64_t kHostPoolBytes = uint64_t{256} << 20;

absl::Status CheckRange(const char* option, int64_t got, int64_t min, int64_t max) {
  if (got >= min && got <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(option, " is ", got, "; allowed: ", min, " to ", max));
}

absl::Status CheckDTypes(runtime::DType dtype, runtime::DType kv_dtype) {
  const std::string compute(runtime::NameOf(dtype));
  if (runtime::IsFp8(dtype))
    return absl::InvalidArgumentError(
        absl::StrCat("dtype is ", compute, "; allowed: bf16, f16, f32"));
  if (kv_dtype == dtype || runtime::IsFp8(kv_dtype)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("kv_dtype is ", std::string(runtime::NameOf(kv_dtype)), "; allowed: ", compute,
                   " (the compute dtype), fp8_e4m3, fp8_e5m2"));
}

// The one place where a step's limits come from. `o` has every default filled in.
kernels::StepLimits LimitsOf(const DecodeEngineOptions& o, const models::ModelSpec& spec) {
  const int64_t widest_decode = *std::max_element(o.decode_buckets.begin(), o.decode_buckets.end());
  const int64_t widest_mixed = *std::max_element(o.mixed_buckets.begin(), o.mixed_buckets.end());
  kernels::StepLimits limits{
      .block_size = o.block_size,
      .vocab_size = static_cast<uint32_t>(spec.vocab_size),
      .max_rows = o.max_rows,
      .max_context_length = o.max_context_length,
      .max_blocks_per_row = (o.max_context_length + o.block_size - 1) / o.block_size,
      .max_step_tokens = static_cast<uint32_t>(std::max(widest_decode, widest_mixed)),
      .max_prompt_tokens = static_cast<uint32_t>(widest_mixed),
      .pipeline_depth = o.pipeline_depth,
      .max_steps_per_request = o.max_steps_per_request,
      .min_shared_tokens = o.min_shared_tokens,
      .adjust_logits = o.adjust_logits,
      .max_logit_rows = std::min(o.max_logit_rows, o.max_rows),
      .max_prompt_logprobs = o.max_prompt_logprobs,
      .max_draft_tokens = o.max_draft_tokens,
      .max_stop_tokens = kernels::kMaxStopTokens,
      .max_logit_bias = kernels::kMaxLogitBias,
      .max_logprobs = kernels::kMaxTopLogprobs,
      .row_state_bytes = spec.RowStateBytes(o.dtype)};
  // A token that was not accepted could not be taken back from the state.
  if (limits.row_state_bytes != 0) limits.max_draft_tokens = 0;
  limits.max_sampling_bytes = sizeof(uint32_t) * MaxSamplingWords(limits);
  return limits;
}

}  // namespace

kernels::WeightLayout LayoutOf(LinearPolicy linear, const kernels::KernelSet& kernels) {
  if (linear != LinearPolicy::kPacked) return kernels::WeightLayout::kRowMajor;
  const bool pairs =
      kernels::LinearTakesPairs(kernels, 2 * kernels::kPairRun, kernels::kPackedChunk);
  return pairs ? kernels::WeightLayout::kPackedPairs : kernels::WeightLayout::kPacked;
}

absl::StatusOr<models::ModelWeights> LoadWeights(runtime::Device& device,
                                                 const models::ModelSource& source,
                                                 models::Decoder& decoder,
                                                 const kernels::KernelSet& kernels,
                                                 runtime::DType kv_dtype, LinearPolicy linear,
                                                 const ProgressFn& progress, StartClock* clock) {
  const models::WeightPlan plan =
      decoder.PlanWeights(kernels.dtype, kv_dtype, LayoutOf(linear, kernels));
  if (source.directory.empty()) {
    auto fill = [&kernels](runtime::Stream& stream, void* dst, runtime::DType dtype,
                           kernels::WeightLayout layout, int64_t count, uint64_t seed,
                           float stddev) {
      const bool packed = runtime::IsFp8(dtype) && kernels::IsPacked(layout);
      return kernels::RandomFill(stream, kernels,
                                 {.out = dst,
                                  .dtype = dtype,
                                  .count = count,
                                  .seed = seed,
                                  .stddev = stddev,
                                  .packed = packed});
    };
    auto weights = models::ModelWeights::Random(device, plan, source.random_seed, fill);
    clock->Mark("random weights");
    return weights;
  }
  REPRISE_ASSIGN_OR_RETURN(auto checkpoint, models::Checkpoint::Open(source.directory));
  clock->Mark("opening weights");
  auto report = [&](size_t done, size_t total) {
    if (progress)
      progress({.stage = "load", .detail = source.directory, .done = done, .total = total});
  };
  auto weights = models::ModelWeights::Load(device, plan, *checkpoint, report);
  clock->Mark("reading, packing and uploading weights");
  return weights;
}

absl::Status CheckOptions(const DecodeEngineOptions& options) {
  REPRISE_RETURN_IF_ERROR(CheckRange("block_size", options.block_size, 1, 65536));
  REPRISE_RETURN_IF_ERROR(CheckRange("max_rows", options.max_rows, 1, 65536));
  REPRISE_RETURN_IF_ERROR(CheckRange("pipeline_depth", options.pipeline_depth, 1, 8));
  REPRISE_RETURN_IF_ERROR(CheckRange("max_steps_per_request", options.max_steps_per_request, 1,
                                     kernels::kMaxStepsPerRequest));
  REPRISE_RETURN_IF_ERROR(CheckRange("max_logit_rows", options.max_logit_rows, 0, 65536));
  REPRISE_RETURN_IF_ERROR(CheckRange("max_prompt_logprobs", options.max_prompt_logprobs, 0, 65536));
  REPRISE_RETURN_IF_ERROR(
      CheckRange("max_draft_tokens", options.max_draft_tokens, 0, kernels::kMaxDraftTokens));
  if (!(options.memory_fraction > 0.0 && options.memory_fraction <= 1.0))
    return absl::InvalidArgumentError(absl::StrCat("memory_fraction is ", options.memory_fraction,
                                                   "; allowed: more than 0, at most 1"));
  for (const int64_t rows : options.decode_buckets)
    REPRISE_RETURN_IF_ERROR(CheckRange("decode bucket", rows, 1, options.max_rows));
  for (const int64_t tokens : options.mixed_buckets)
    REPRISE_RETURN_IF_ERROR(CheckRange("mixed bucket", tokens, 1, 65536));
  return absl::OkStatus();
}

absl::StatusOr<ResolvedOptions> ResolveOptions(const DecodeEngineOptions& options,
                                               const models::ModelSpec& spec,
                                               const runtime::DeviceProperties& device) {
  REPRISE_RETURN_IF_ERROR(CheckOptions(options));
  ResolvedOptions r{.options = options};
  DecodeEngineOptions& o = r.options;
  const bool host = device.kind == runtime::DeviceKind::kHost;
  if (o.dtype_from_checkpoint) o.dtype = spec.checkpoint_dtype;
  if (!o.kv_dtype) o.kv_dtype = spec.kv_cache_dtype.value_or(o.dtype);
  REPRISE_RETURN_IF_ERROR(CheckDTypes(o.dtype, *o.kv_dtype));
  const auto model_limit =
      static_cast<uint32_t>(std::min<int64_t>(spec.max_position_embeddings, 1 << 30));
  if (o.max_context_length == 0) o.max_context_length = model_limit;
  REPRISE_RETURN_IF_ERROR(CheckRange("max_context_length", o.max_context_length, 1, model_limit));
  if (o.decode_buckets.empty()) o.decode_buckets = graphs::BucketTable::PowersOfTwoUpTo(o.max_rows);
  if (o.mixed_buckets.empty())
    o.mixed_buckets =
        host ? std::vector<int64_t>{64, 256, 1024} : std::vector<int64_t>{256, 512, 1024, 2048};

  r.limits = LimitsOf(o, spec);
  return r;
}

LinearPolicy ResolveLinear(const DecodeEngineOptions& options, const models::ModelSpec& spec,
                           const runtime::DeviceProperties& device) {
  if (options.linear != LinearPolicy::kTuned) return options.linear;
  // Weights of 8 and 4 bits have kernels for matrix units where they are packed, and no others.
  const bool packed = kernels::CanPack(kernels::WeightFormatOf(options.dtype)) &&
                      (device.compute_capability == 90 ||
                       ((spec.weight_quantization.has_value() || spec.mxfp4_experts) &&
                        device.matrix_unit != runtime::MatrixUnit::kNone));
  return packed ? LinearPolicy::kPacked : LinearPolicy::kRowMajor;
}

absl::Status CheckLinear(const DecodeEngineOptions& options,
                         const runtime::DeviceProperties& device) {
  if (options.linear != LinearPolicy::kPacked) return absl::OkStatus();
  if (device.matrix_unit != runtime::MatrixUnit::kNone &&
      kernels::CanPack(kernels::WeightFormatOf(options.dtype)))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "linear is packed with ", std::string(runtime::NameOf(options.dtype)), " on ", device.name,
      device.matrix_unit == runtime::MatrixUnit::kNone ? ", which has no matrix units" : "",
      "; allowed: packed with bf16 and f16 on devices with matrix units, row-major, portable, "
      "tuned"));
}

absl::StatusOr<models::ModelSpec> ModelToRun(const DecodeEngineOptions& options,
                                             const models::ModelSpec& spec,
                                             const runtime::DeviceProperties& device) {
  models::ModelSpec model = spec;
  model.rope.FitContexts(options.max_context_length);
  if (!options.round_activations) return model;
  if (!model.weight_quantization || !model.weight_quantization->means_rounding)
    return absl::InvalidArgumentError(
        "round_activations is true with a model that does not mean it; allowed: where "
        "quantization_config says that weights and activations are fp8_e4m3");
  // As KernelSet::traits has it: 0 of an emulated device.
  const bool groups = device.matrix_unit == runtime::MatrixUnit::kMma &&
                      (device.compute_capability == 90 || device.compute_capability == 0);
  if (options.linear != LinearPolicy::kPortable &&
      !(options.linear == LinearPolicy::kPacked && groups))
    return absl::InvalidArgumentError(
        absl::StrCat("round_activations is true with ", std::string(NameOf(options.linear)),
                     " linear layers of ", std::string(runtime::NameOf(options.dtype)), " on ",
                     device.name, "; allowed: packed of bf16 and f16 on sm_90, portable"));
  model.weight_quantization->rounds_activations = true;
  return model;
}

absl::StatusOr<uint64_t> NumPoolBlocks(const runtime::Device& device,
                                       const DecodeEngineOptions& options,
                                       const models::KvGeometry& geometry, uint64_t graphs_bytes) {
  uint64_t budget = options.kv_cache_bytes;
  std::string account = "kv_cache_bytes";
  if (budget == 0 && device.kind() == runtime::DeviceKind::kHost) {
    budget = kHostPoolBytes;
    account = "the host's default";
  } else if (budget == 0) {
    REPRISE_ASSIGN_OR_RETURN(const size_t free, device.FreeBytes());
    const auto total = static_cast<double>(device.properties().total_bytes);
    const auto reserve =
        static_cast<uint64_t>(total * (1.0 - options.memory_fraction)) + graphs_bytes;
    budget = free > reserve ? free - reserve : 0;
    account = absl::StrCat(runtime::ByteCount(free), " free less ", runtime::ByteCount(reserve),
                           " kept for others (memory_fraction) and for captured graphs");
  }
  const uint64_t blocks = budget / geometry.BlockBytes();
  if (blocks < 2) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the KV pool gets ", runtime::ByteCount(budget), ", ", account,
                     "; needed: at least ", runtime::ByteCount(2 * geometry.BlockBytes()),
                     ", two blocks of ", runtime::ByteCount(geometry.BlockBytes())));
  }
  return std::min<uint64_t>(blocks, uint64_t{1} << 31);
}

}  // namespace reprise::engine
