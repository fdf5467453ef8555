// SPDX-License-Identifier: Apache-2.0
#include "service/wire/describe_to_wire.h"

#include <string>
#include <string_view>
#include <vector>

#include "models/decoder.h"
#include "runtime/dtype.h"
#include "service/message_bounds.h"
#include "service/wire/utf8.h"

namespace reprise::service {
namespace {

std::string ToString(std::string_view text) { return std::string(text); }

void ModelToWire(const engine::EngineInfo& info, v1::Model* wire) {
  const models::ModelSpec& spec = info.model;
  // Names of files may be any bytes, and a client refuses a message whose text is no UTF-8.
  wire->set_name(ToUtf8(spec.name));
  wire->set_architecture(ToUtf8(spec.architecture));
  wire->set_vocab_size(static_cast<uint32_t>(spec.vocab_size));
  wire->set_max_position_embeddings(static_cast<uint32_t>(spec.max_position_embeddings));
  wire->mutable_eos_token_ids()->Assign(spec.eos_token_ids.begin(), spec.eos_token_ids.end());
  wire->set_dtype(ToString(NameOf(info.dtype)));
  wire->set_kv_dtype(ToString(NameOf(info.kv_dtype)));
  wire->set_weight_dtype(ToString(NameOf(info.weight_format())));
  wire->set_num_layers(static_cast<uint32_t>(spec.num_layers));
  wire->set_hidden_size(static_cast<uint32_t>(spec.hidden_size));
  wire->set_num_heads(static_cast<uint32_t>(spec.num_heads));
  wire->set_num_kv_heads(static_cast<uint32_t>(spec.num_kv_heads));
  wire->set_head_dim(static_cast<uint32_t>(spec.head_dim));
  wire->set_num_parameters(static_cast<uint64_t>(models::NumParameters(spec)));
  wire->set_token_encoding(spec.token_encoding == models::TokenEncoding::kBytes
                               ? v1::TOKEN_ENCODING_BYTES
                               : v1::TOKEN_ENCODING_OPAQUE);
}

void LimitsToWire(const engine::EngineInfo& info, uint64_t max_message_bytes, v1::Limits* wire) {
  const kernels::StepLimits& limits = info.limits;
  wire->set_max_rows(limits.max_rows);
  wire->set_max_context_length(limits.max_context_length);
  wire->set_max_blocks_per_row(limits.max_blocks_per_row);
  wire->set_max_step_tokens(limits.max_step_tokens);
  wire->set_pipeline_depth(limits.pipeline_depth);
  wire->set_max_message_bytes(max_message_bytes);
  wire->set_adjust_logits(limits.adjust_logits);
  wire->set_max_logit_rows(limits.max_logit_rows);
  wire->set_max_prompt_logprobs(limits.max_prompt_logprobs);
  wire->set_max_sampling_bytes(limits.max_sampling_bytes);
  wire->set_max_stop_tokens(limits.max_stop_tokens);
  wire->set_max_logit_bias(limits.max_logit_bias);
  wire->set_max_logprobs(limits.max_logprobs);
  wire->set_max_step_bytes(MaxStepBytes(limits));
  wire->set_max_result_bytes(MaxResultBytes(limits));
  wire->set_min_shared_tokens(limits.min_shared_tokens);
  wire->set_max_steps_per_request(limits.max_steps_per_request);
  wire->set_max_copies(limits.max_rows);
  wire->set_max_draft_tokens(limits.max_draft_tokens);
  wire->set_row_state_bytes(limits.row_state_bytes);
  wire->set_max_kv_transfer_bytes(info.max_kv_transfer_bytes);
  wire->set_max_kv_blocks_per_call(engine::kMaxKvBlocksPerCall);
}

void KindToWire(const std::vector<graphs::CapturedBucket>& buckets, const char* kind,
                google::protobuf::RepeatedPtrField<v1::Bucket>* wire) {
  for (const graphs::CapturedBucket& captured : buckets) BucketToWire(captured, kind, wire->Add());
}

void TreeToWire(const engine::AttentionTreeInfo& tree, v1::AttentionTree* wire) {
  wire->set_version(tree.version);
  wire->set_batch_invariant(tree.batch_invariant);
  wire->set_text(tree.text);
  wire->mutable_row_leaves()->Assign(tree.row_leaves.begin(), tree.row_leaves.end());
  wire->mutable_batch_leaves()->Assign(tree.batch_leaves.begin(), tree.batch_leaves.end());
}

}  // namespace

void BucketToWire(const graphs::CapturedBucket& captured, const char* kind, v1::Bucket* wire) {
  wire->set_name(captured.bucket.name);
  wire->set_kind(kind);
  wire->set_capacity(static_cast<uint32_t>(captured.bucket.capacity));
  wire->set_kernel_nodes(static_cast<uint32_t>(captured.num_kernel_nodes));
  wire->set_other_nodes(static_cast<uint32_t>(captured.num_other_nodes));
  wire->set_capture_ns(captured.capture_ns);
  wire->set_device_bytes(captured.device_bytes);
}

void BucketsToWire(const engine::GraphsInfo& graphs,
                   google::protobuf::RepeatedPtrField<v1::Bucket>* wire) {
  KindToWire(graphs.decode_buckets, "decode", wire);
  KindToWire(graphs.mixed_buckets, "mixed", wire);
}

void DescribeToWire(const engine::EngineInfo& info, const engine::PoolInfo& pool,
                    const engine::GraphsInfo& graphs, const engine::AttentionTreeInfo& tree,
                    uint64_t max_message_bytes, v1::DescribeResponse* wire) {
  ModelToWire(info, wire->mutable_model());
  wire->mutable_pool()->set_block_size(pool.block_size);
  wire->mutable_pool()->set_num_blocks(pool.num_blocks);
  wire->mutable_pool()->set_free_blocks(pool.free_blocks);
  wire->mutable_pool()->set_bytes(pool.bytes);
  wire->mutable_pool()->set_swap_blocks(pool.swap_blocks);
  wire->mutable_pool()->set_free_swap_blocks(pool.free_swap_blocks);
  wire->mutable_pool()->set_swap_states(pool.swap_states);
  wire->mutable_pool()->set_free_swap_states(pool.free_swap_states);
  wire->mutable_pool()->set_export_blocks(pool.export_blocks);
  wire->mutable_pool()->set_free_export_blocks(pool.free_export_blocks);
  LimitsToWire(info, max_message_bytes, wire->mutable_limits());
  BucketsToWire(graphs, wire->mutable_buckets());
  wire->set_buckets_version(graphs.version);
  wire->mutable_device()->set_kind(ToString(runtime::NameOf(info.device.kind)));
  wire->mutable_device()->set_name(ToUtf8(info.device.name));
  wire->mutable_device()->set_driver(ToUtf8(info.device.driver));
  wire->mutable_device()->set_total_bytes(info.device.total_bytes);
  wire->mutable_memory()->set_weights_bytes(info.memory.weights_bytes);
  wire->mutable_memory()->set_kv_cache_bytes(info.memory.kv_cache_bytes);
  wire->mutable_memory()->set_workspace_bytes(info.memory.workspace_bytes);
  wire->mutable_memory()->set_graphs_bytes(graphs.device_bytes);
  wire->mutable_memory()->set_swap_bytes(info.memory.swap_bytes);
  wire->mutable_memory()->set_export_bytes(info.memory.export_bytes);
  wire->set_rank(0);
  wire->set_world_size(1);
  wire->set_server_version(REPRISE_VERSION);
  wire->set_api_version("reprise.v1");
  wire->set_linear_policy(std::string(engine::NameOf(info.linear)));
  TreeToWire(tree, wire->mutable_attention_tree());
}

}  // namespace reprise::service
