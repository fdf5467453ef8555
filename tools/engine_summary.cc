// SPDX-License-Identifier: Apache-2.0
// What was loaded, as tables for people and as JSON for programs: the second half of
// engine_flags.h.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "models/decoder.h"
#include "runtime/dtype.h"
#include "tools/engine_flags.h"
#include "tools/table.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

using engine::EngineInfo;
using graphs::CapturedBucket;

std::string ModelText(const models::ModelSpec& model) {
  return absl::StrCat(model.name, ": ", model.architecture, ", ",
                      FormatCount(static_cast<uint64_t>(models::NumParameters(model))),
                      " parameters, ", model.num_layers, " layers, hidden ", model.hidden_size,
                      ", ", model.num_heads, "/", model.num_kv_heads, " heads of ", model.head_dim,
                      ", vocabulary ", model.vocab_size);
}

std::string DeviceText(const runtime::DeviceProperties& device) {
  std::string text =
      absl::StrCat(std::string(runtime::NameOf(device.kind)), ":", device.ordinal, ", ",
                   device.name, device.architecture.empty() ? "" : ", ", device.architecture, ", ",
                   device.num_multiprocessors,
                   device.kind == runtime::DeviceKind::kHost ? " threads, " : " multiprocessors, ",
                   FormatBytes(device.total_bytes));
  if (!device.driver.empty()) absl::StrAppend(&text, ", driver ", device.driver);
  return text;
}

std::string FactsTable(const EngineInfo& info, const engine::PoolInfo& pool, size_t width) {
  const uint64_t tokens =
      static_cast<uint64_t>(std::max(pool.num_blocks, 1u) - 1) * pool.block_size;
  Table table({});
  table.AlignLeft();
  table.AddRow({"model", ModelText(info.model)});
  table.AddRow({"device", DeviceText(info.device)});
  table.AddRow(
      {"compute",
       absl::StrCat(
           std::string(runtime::NameOf(info.dtype)),
           info.weight_dtype() == info.dtype
               ? ""
               : absl::StrCat(", weights ", std::string(runtime::NameOf(info.weight_dtype()))),
           ", KV cache ", std::string(runtime::NameOf(info.kv_dtype)), ", linear ",
           std::string(engine::NameOf(info.linear)),
           info.step_kernel_rows == 0
               ? ""
               : absl::StrCat(", step kernel up to ", info.step_kernel_rows, " rows"))});
  table.AddRow({"memory", absl::StrCat("weights ", FormatBytes(info.memory.weights_bytes),
                                       ", KV cache ", FormatBytes(info.memory.kv_cache_bytes),
                                       ", workspace ", FormatBytes(info.memory.workspace_bytes),
                                       ", graphs ", FormatBytes(info.memory.graphs_bytes))});
  table.AddRow({"pool", absl::StrCat(FormatCount(pool.num_blocks), " blocks of ", pool.block_size,
                                     ", room for ", FormatCount(tokens), " tokens")});
  table.AddRow(
      {"limits", absl::StrCat(FormatCount(info.limits.max_rows), " rows, ",
                              FormatCount(info.limits.max_context_length), " tokens of context, ",
                              FormatCount(info.limits.max_step_tokens),
                              " tokens a step, pipeline depth ", info.limits.pipeline_depth)});
  const uint32_t min_shared = info.limits.min_shared_tokens;
  table.AddRow({"prefixes", min_shared == 0
                                ? "each row reads them for itself"
                                : absl::StrCat("those that are declared to be shared are read once "
                                               "from ",
                                               FormatCount(min_shared), " tokens on")});
  table.AddRow({"start-up",
                absl::StrCat("load ", FormatDuration(static_cast<double>(info.load_ns)),
                             ", capture ", FormatDuration(static_cast<double>(info.capture_ns)))});
  return table.ToString(width);
}

void AddBuckets(const std::vector<CapturedBucket>& buckets, const char* unit, Table* table) {
  for (const CapturedBucket& captured : buckets) {
    table->AddRow({captured.bucket.name, absl::StrCat(captured.bucket.capacity, " ", unit),
                   absl::StrCat(captured.num_kernel_nodes),
                   FormatDuration(static_cast<double>(captured.capture_ns)),
                   FormatBytes(captured.device_bytes)});
  }
}

void AddBucketsJson(const std::vector<CapturedBucket>& buckets, nlohmann::json* list) {
  for (const CapturedBucket& captured : buckets) {
    list->push_back({{"name", captured.bucket.name},
                     {"capacity", captured.bucket.capacity},
                     {"kernel_nodes", captured.num_kernel_nodes},
                     {"other_nodes", captured.num_other_nodes},
                     {"capture_ms", static_cast<double>(captured.capture_ns) * 1e-6},
                     {"device_bytes", captured.device_bytes}});
  }
}

}  // namespace

std::string EngineSummary(const engine::DecodeEngine& engine, size_t width) {
  const EngineInfo& info = engine.info();
  Table buckets({"graph", "capacity", "kernels", "capture", "driver bytes"});
  AddBuckets(info.decode_buckets, "rows", &buckets);
  AddBuckets(info.mixed_buckets, "tokens", &buckets);
  return absl::StrCat(FactsTable(info, engine.pool(), width), "\n", buckets.ToString(width));
}

nlohmann::json EngineToJson(const engine::DecodeEngine& engine) {
  const EngineInfo& info = engine.info();
  const engine::PoolInfo pool = engine.pool();
  nlohmann::json graphs = nlohmann::json::array();
  AddBucketsJson(info.decode_buckets, &graphs);
  AddBucketsJson(info.mixed_buckets, &graphs);
  return {{"model",
           {{"name", info.model.name},
            {"architecture", info.model.architecture},
            {"parameters", models::NumParameters(info.model)}}},
          {"device", DeviceToJson(info.device)},
          {"dtype", std::string(runtime::NameOf(info.dtype))},
          {"weight_dtype", std::string(runtime::NameOf(info.weight_dtype()))},
          {"kv_dtype", std::string(runtime::NameOf(info.kv_dtype))},
          {"linear", std::string(NameOf(info.linear))},
          {"step_kernel_rows", info.step_kernel_rows},
          {"memory_bytes",
           {{"weights", info.memory.weights_bytes},
            {"kv_cache", info.memory.kv_cache_bytes},
            {"workspace", info.memory.workspace_bytes},
            {"graphs", info.memory.graphs_bytes}}},
          {"pool", {{"block_size", pool.block_size}, {"num_blocks", pool.num_blocks}}},
          {"load_ms", static_cast<double>(info.load_ns) * 1e-6},
          {"capture_ms", static_cast<double>(info.capture_ns) * 1e-6},
          {"graphs", std::move(graphs)}};
}

}  // namespace reprise::tools
