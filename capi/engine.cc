// SPDX-License-Identifier: Apache-2.0
// Engines of reprise.h: options, creation, and what an engine says of itself.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "capi/bucket_info.h"
#include "capi/call.h"
#include "capi/handles.h"
#include "capi/reprise.h"
#include "engine/decode_engine.h"
#include "engine/engine_info.h"
#include "engine/engine_options.h"
#include "engine/kv_part.h"
#include "models/model_source.h"
#include "runtime/dtype.h"
#include "runtime/status_macros.h"

namespace reprise::capi {
namespace {

using engine::DecodePolicy;
using engine::LinearPolicy;
using runtime::DType;

constexpr std::array kComputeTypes = {DType::kBf16, DType::kF16, DType::kF32};
constexpr std::array kKvTypes = {DType::kBf16, DType::kF16, DType::kF32, DType::kE4m3,
                                 DType::kE5m2};
constexpr std::array kLinearPolicies = {LinearPolicy::kTuned, LinearPolicy::kRowMajor,
                                        LinearPolicy::kPacked, LinearPolicy::kPortable};
constexpr std::array kDecodePolicies = {DecodePolicy::kTuned, DecodePolicy::kChain,
                                        DecodePolicy::kStepKernel};

constexpr uint64_t kUint32Max = UINT32_MAX;

std::string Text(const char* text) { return text == nullptr ? "" : text; }

// The one of `values` that is named so; none for NULL and "auto".
template <typename T, size_t kCount>
absl::StatusOr<std::optional<T>> ByName(std::string_view field, const char* name,
                                        const std::array<T, kCount>& values) {
  if (name == nullptr || std::string_view(name) == "auto") return std::nullopt;
  std::vector<std::string> allowed = {"auto"};
  for (const T value : values) {
    if (NameOf(value) == name) return value;
    allowed.emplace_back(NameOf(value));
  }
  return absl::InvalidArgumentError(absl::StrCat("engine options: ", std::string(field), " is \"",
                                                 name,
                                                 "\"; allowed: ", absl::StrJoin(allowed, ", ")));
}

absl::StatusOr<std::vector<int64_t>> Buckets(std::string_view field, const int64_t* buckets,
                                             size_t count) {
  REPRISE_RETURN_IF_ERROR(CheckArray(field, buckets, count));
  return std::vector<int64_t>(buckets, buckets + count);
}

reprise_engine_options Defaults() {
  const engine::DecodeEngineOptions defaults;
  reprise_engine_options options = {};
  options.random_seed = models::ModelSource().random_seed;
  options.kv_cache_bytes = defaults.kv_cache_bytes;
  options.memory_fraction = defaults.memory_fraction;
  options.block_size = defaults.block_size;
  options.max_rows = defaults.max_rows;
  options.max_context_length = defaults.max_context_length;
  options.pipeline_depth = defaults.pipeline_depth;
  options.max_steps_per_request = defaults.max_steps_per_request;
  options.min_shared_tokens = defaults.min_shared_tokens;
  options.max_logit_rows = defaults.max_logit_rows;
  options.max_prompt_logprobs = defaults.max_prompt_logprobs;
  options.adjust_logits = defaults.adjust_logits;
  options.batch_invariant = defaults.batch_invariant;
  options.watchdog_timeout_ms = defaults.watchdog_timeout_ms;
  options.swap_bytes = defaults.swap_bytes;
  options.max_draft_tokens = defaults.max_draft_tokens;
  options.round_activations = defaults.round_activations;
  return options;
}

absl::StatusOr<engine::DecodeEngineOptions> EngineOptions(const reprise_engine_options& given) {
  engine::DecodeEngineOptions options;
  REPRISE_ASSIGN_OR_RETURN(const auto dtype, ByName("dtype", given.dtype, kComputeTypes));
  options.dtype_from_checkpoint = !dtype.has_value();
  options.dtype = dtype.value_or(options.dtype);
  REPRISE_ASSIGN_OR_RETURN(options.kv_dtype, ByName("kv_dtype", given.kv_dtype, kKvTypes));
  REPRISE_ASSIGN_OR_RETURN(const auto linear, ByName("linear", given.linear, kLinearPolicies));
  options.linear = linear.value_or(options.linear);
  options.attention_tree = Text(given.attention_tree);
  options.kv_cache_bytes = given.kv_cache_bytes;
  options.memory_fraction = given.memory_fraction;
  REPRISE_ASSIGN_OR_RETURN(options.decode_buckets, Buckets("decode_buckets", given.decode_buckets,
                                                           given.num_decode_buckets));
  REPRISE_ASSIGN_OR_RETURN(options.mixed_buckets,
                           Buckets("mixed_buckets", given.mixed_buckets, given.num_mixed_buckets));
  options.block_size = given.block_size;
  options.max_rows = given.max_rows;
  options.max_context_length = given.max_context_length;
  options.pipeline_depth = given.pipeline_depth;
  options.max_steps_per_request = given.max_steps_per_request;
  options.min_shared_tokens = given.min_shared_tokens;
  options.max_logit_rows = given.max_logit_rows;
  options.max_prompt_logprobs = given.max_prompt_logprobs;
  REPRISE_ASSIGN_OR_RETURN(options.adjust_logits, ReadSwitch("adjust_logits", given.adjust_logits));
  REPRISE_ASSIGN_OR_RETURN(options.batch_invariant,
                           ReadSwitch("batch_invariant", given.batch_invariant));
  options.watchdog_timeout_ms = given.watchdog_timeout_ms;
  REPRISE_ASSIGN_OR_RETURN(const auto decode, ByName("decode", given.decode, kDecodePolicies));
  options.decode = decode.value_or(options.decode);
  options.swap_bytes = given.swap_bytes;
  REPRISE_ASSIGN_OR_RETURN(options.round_activations,
                           ReadSwitch("round_activations", given.round_activations));
  options.linear_table = Text(given.linear_table);
  // The engine says how many it allows.
  options.max_draft_tokens = static_cast<uint32_t>(std::min(given.max_draft_tokens, kUint32Max));
  return options;
}

engine::ProgressFn Progress(const reprise_engine_options& options) {
  if (options.progress == nullptr) return {};
  return [report = options.progress,
          context = options.progress_context](const engine::EngineProgress& progress) {
    report(context, std::string(progress.stage).c_str(), std::string(progress.detail).c_str(),
           progress.done, progress.total);
  };
}

absl::Status CreateEngine(const reprise_device* device, const reprise_engine_options* given,
                          reprise_engine** engine) {
  REPRISE_RETURN_IF_ERROR(CheckHandle(device));
  REPRISE_RETURN_IF_ERROR(CheckNotNull("engine", engine));
  reprise_engine_options options = {};
  REPRISE_RETURN_IF_ERROR(ReadStruct(given, &options));
  const models::ModelSource source{.directory = Text(options.directory),
                                   .preset = Text(options.preset),
                                   .random_seed = options.random_seed};
  REPRISE_ASSIGN_OR_RETURN(const auto engine_options, EngineOptions(options));
  auto shared = std::make_shared<SharedEngine>();
  shared->device = device->device;
  REPRISE_ASSIGN_OR_RETURN(
      shared->engine,
      engine::DecodeEngine::Create(*shared->device, source, engine_options, Progress(options)));
  *engine = new reprise_engine{.tag = {}, .shared = std::move(shared)};
  return absl::OkStatus();
}

// NameOf's texts are literals.
const char* Literal(std::string_view text) { return text.data(); }

reprise_engine_info InfoOf(const engine::EngineInfo& from, const engine::GraphsInfo& graphs) {
  reprise_engine_info info = {};
  info.model = from.model.name.c_str();
  info.architecture = from.model.architecture.c_str();
  info.vocab_size = static_cast<uint64_t>(from.model.vocab_size);
  info.hidden_size = static_cast<uint64_t>(from.model.hidden_size);
  info.num_layers = static_cast<uint64_t>(from.model.num_layers);
  info.num_heads = static_cast<uint64_t>(from.model.num_heads);
  info.num_kv_heads = static_cast<uint64_t>(from.model.num_kv_heads);
  info.head_dim = static_cast<uint64_t>(from.model.head_dim);
  info.eos_token_ids = from.model.eos_token_ids.data();
  info.num_eos_token_ids = from.model.eos_token_ids.size();
  info.tokens_are_bytes = from.model.token_encoding == models::TokenEncoding::kBytes;
  info.dtype = Literal(NameOf(from.dtype));
  info.kv_dtype = Literal(NameOf(from.kv_dtype));
  info.linear = Literal(NameOf(from.linear));
  info.block_size = from.limits.block_size;
  info.max_rows = from.limits.max_rows;
  info.max_context_length = from.limits.max_context_length;
  info.max_blocks_per_row = from.limits.max_blocks_per_row;
  info.max_step_tokens = from.limits.max_step_tokens;
  info.max_prompt_tokens = from.limits.max_prompt_tokens;
  info.pipeline_depth = from.limits.pipeline_depth;
  info.max_steps_per_request = from.limits.max_steps_per_request;
  info.min_shared_tokens = from.limits.min_shared_tokens;
  info.max_logit_rows = from.limits.max_logit_rows;
  info.max_prompt_logprobs = from.limits.max_prompt_logprobs;
  info.max_stop_tokens = from.limits.max_stop_tokens;
  info.max_logit_bias = from.limits.max_logit_bias;
  info.max_logprobs = from.limits.max_logprobs;
  info.weights_bytes = from.memory.weights_bytes;
  info.kv_cache_bytes = from.memory.kv_cache_bytes;
  info.workspace_bytes = from.memory.workspace_bytes;
  info.graphs_bytes = graphs.device_bytes;
  info.num_decode_buckets = graphs.decode_buckets.size();
  info.num_mixed_buckets = graphs.mixed_buckets.size();
  info.load_ns = from.load_ns;
  info.capture_ns = graphs.capture_ns;
  info.max_draft_tokens = from.limits.max_draft_tokens;
  info.step_kernel_rows = from.step_kernel_rows;
  info.kv_num_layers = from.kv.num_layers;
  info.kv_num_heads = from.kv.num_kv_heads;
  info.kv_head_dim = from.kv.head_dim;
  info.max_kv_blocks_per_call = engine::kMaxKvBlocksPerCall;
  info.kv_token_bytes = from.kv.TokenBytes();
  info.max_kv_transfer_bytes = from.max_kv_transfer_bytes;
  info.swap_bytes = from.memory.swap_bytes;
  info.row_state_bytes = from.limits.row_state_bytes;
  return info;
}

absl::Status GetBucket(SharedEngine& shared, reprise_bucket_kind kind, size_t index,
                       reprise_bucket_info* bucket) {
  if (kind != REPRISE_BUCKET_DECODE && kind != REPRISE_BUCKET_MIXED) {
    return absl::InvalidArgumentError(
        absl::StrCat("bucket kind is ", kind, "; allowed: 0 (decode), 1 (mixed)"));
  }
  const engine::GraphsInfo graphs = shared.engine->captured_graphs();
  REPRISE_RETURN_IF_ERROR(WriteBucket(
      kind == REPRISE_BUCKET_DECODE ? graphs.decode_buckets : graphs.mixed_buckets, index, bucket));
  const std::lock_guard lock(shared.naming);
  bucket->name = shared.bucket_names.insert(bucket->name).first->c_str();
  return absl::OkStatus();
}

absl::Status GetAttentionTree(const reprise_engine* engine, char* text, size_t capacity,
                              size_t* bytes, uint64_t* version) {
  REPRISE_RETURN_IF_ERROR(CheckHandle(engine));
  REPRISE_RETURN_IF_ERROR(CheckArray("text", text, capacity));
  const engine::AttentionTreeInfo tree = engine->shared->engine->attention_tree();
  const size_t needed = tree.text.size() + 1;
  if (bytes != nullptr) *bytes = needed;
  if (capacity != 0 && capacity < needed) {
    return absl::OutOfRangeError(absl::StrCat("attention tree: capacity is ", capacity,
                                              "; allowed: 0, or at least ", needed, " bytes"));
  }
  if (capacity != 0) std::copy_n(tree.text.c_str(), needed, text);
  if (version != nullptr) *version = tree.version;
  return absl::OkStatus();
}

}  // namespace
}  // namespace reprise::capi

using reprise::capi::Call;
using reprise::capi::CheckHandle;
using reprise::capi::WriteStruct;

reprise_code reprise_engine_options_init(reprise_engine_options* options, size_t struct_size,
                                         reprise_error* error) {
  return Call(error, [&] { return WriteStruct(reprise::capi::Defaults(), struct_size, options); });
}

reprise_code reprise_engine_create(reprise_device* device, const reprise_engine_options* options,
                                   reprise_engine** engine, reprise_error* error) {
  return Call(error, [&] { return reprise::capi::CreateEngine(device, options, engine); });
}

reprise_code reprise_engine_destroy(reprise_engine* engine) {
  return reprise::capi::Destroy(engine);
}

reprise_code reprise_engine_get_info(const reprise_engine* engine, reprise_engine_info* info,
                                     reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(CheckHandle(engine));
    const reprise::engine::DecodeEngine& from = *engine->shared->engine;
    return WriteStruct(reprise::capi::InfoOf(from.info(), from.captured_graphs()), info);
  });
}

reprise_code reprise_engine_get_pool(const reprise_engine* engine, reprise_pool_info* pool,
                                     reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(CheckHandle(engine));
    const reprise::engine::PoolInfo from = engine->shared->engine->pool();
    reprise_pool_info value = {};
    value.block_size = from.block_size;
    value.num_blocks = from.num_blocks;
    value.free_blocks = from.free_blocks;
    value.bytes = from.bytes;
    value.swap_blocks = from.swap_blocks;
    value.free_swap_blocks = from.free_swap_blocks;
    value.swap_states = from.swap_states;
    value.free_swap_states = from.free_swap_states;
    value.num_resident_rows = engine->shared->engine->num_resident_rows();
    return WriteStruct(value, pool);
  });
}

reprise_code reprise_engine_get_bucket(const reprise_engine* engine, reprise_bucket_kind kind,
                                       size_t index, reprise_bucket_info* bucket,
                                       reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(CheckHandle(engine));
    return reprise::capi::GetBucket(*engine->shared, kind, index, bucket);
  });
}

reprise_code reprise_engine_check_health(const reprise_engine* engine, reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(CheckHandle(engine));
    return engine->shared->engine->health();
  });
}

reprise_code reprise_engine_get_attention_tree(const reprise_engine* engine, char* text,
                                               size_t capacity, size_t* bytes, uint64_t* version,
                                               reprise_error* error) {
  return Call(error, [&] {
    return reprise::capi::GetAttentionTree(engine, text, capacity, bytes, version);
  });
}

reprise_code reprise_engine_set_attention_tree(reprise_engine* engine, const char* text,
                                               uint64_t* version, reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(CheckHandle(engine));
    REPRISE_RETURN_IF_ERROR(reprise::capi::CheckNotNull("text", text));
    REPRISE_ASSIGN_OR_RETURN(const uint64_t set, engine->shared->engine->SetAttentionTree(text));
    if (version != nullptr) *version = set;
    return absl::OkStatus();
  });
}

reprise_code reprise_engine_set_buckets(reprise_engine* engine, const int64_t* decode,
                                        size_t num_decode, const int64_t* mixed, size_t num_mixed,
                                        uint64_t* version, reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(CheckHandle(engine));
    reprise::engine::BucketSets buckets;
    REPRISE_ASSIGN_OR_RETURN(buckets.decode, reprise::capi::Buckets("decode", decode, num_decode));
    REPRISE_ASSIGN_OR_RETURN(buckets.mixed, reprise::capi::Buckets("mixed", mixed, num_mixed));
    REPRISE_ASSIGN_OR_RETURN(const reprise::engine::GraphsInfo graphs,
                             engine->shared->engine->SetBuckets(buckets));
    if (version != nullptr) *version = graphs.version;
    return absl::OkStatus();
  });
}
