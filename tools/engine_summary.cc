// SPDX-License-Identifier: Apache-2.0
// What was loaded, as tables for people and as JSON for programs: the second half of
// engine_flags.h.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine_profiler.h"
#include "models/decoder.h"
#include "runtime/dtype.h"
#include "tools/engine_flags.h"
#include "tools/table.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

using engine::EngineInfo;
using engine::StartReport;
using graphs::CapturedBucket;

const StartReport& ReportOf(const LoadedEngine& loaded) {
  return engine::EngineProfiler(*loaded.engine).start_report();
}

// The parts add up to the first number.
std::string StartText(const LoadedEngine& loaded) {
  const StartReport& report = ReportOf(loaded);
  const auto time = [](uint64_t ns) { return FormatDuration(static_cast<double>(ns)); };
  std::string text = absl::StrCat(time(loaded.total_ns), ": device ", time(loaded.device_ns));
  uint64_t told = loaded.device_ns;
  for (const engine::StartPhase& phase : report.phases) {
    told += phase.ns;
    absl::StrAppend(&text, ", ", std::string(phase.name), " ", time(phase.ns));
  }
  return absl::StrCat(text, ", rest ", time(loaded.total_ns - std::min(told, loaded.total_ns)));
}

// What is on the device, part by part; of a GPU they add up to its memory.
std::string DeviceMemoryText(const EngineInfo& info, const StartReport& report) {
  const engine::MemoryInfo& memory = info.memory;
  std::string text = absl::StrCat("weights ", FormatBytes(memory.weights_bytes), ", KV cache ",
                                  FormatBytes(memory.kv_cache_bytes), ", activations ",
                                  FormatBytes(report.activations_bytes), ", state ",
                                  FormatBytes(report.state_bytes));
  if (report.step_kernel_bytes != 0)
    absl::StrAppend(&text, ", step kernels ", FormatBytes(report.step_kernel_bytes));
  if (memory.export_bytes != 0)
    absl::StrAppend(&text, ", export space ", FormatBytes(memory.export_bytes));
  absl::StrAppend(&text, ", graphs ", FormatBytes(memory.graphs_bytes));
  if (info.device.kind == runtime::DeviceKind::kHost) return text;
  return absl::StrCat(text, ", driver ", FormatBytes(report.driver_bytes), ", before the start ",
                      FormatBytes(report.before_bytes), ", free ", FormatBytes(report.free_bytes));
}

std::string PinnedMemoryText(const EngineInfo& info, const StartReport& report) {
  return absl::StrCat("rings ", FormatBytes(report.rings_bytes), ", transfers ",
                      FormatBytes(report.transfer_bytes),
                      info.memory.swap_bytes == 0
                          ? ""
                          : absl::StrCat(", swap space ", FormatBytes(info.memory.swap_bytes)));
}

nlohmann::json StartToJson(const LoadedEngine& loaded) {
  constexpr double kNsToMs = 1e-6;
  const StartReport& report = ReportOf(loaded);
  nlohmann::json phases = nlohmann::json::array();
  const auto add = [&phases](std::string_view name, uint64_t ns) {
    phases.push_back({{"name", std::string(name)}, {"ms", static_cast<double>(ns) * kNsToMs}});
  };
  add("device", loaded.device_ns);
  for (const engine::StartPhase& phase : report.phases) add(phase.name, phase.ns);
  const uint64_t told = loaded.device_ns + report.total_ns;
  add("rest", loaded.total_ns - std::min(told, loaded.total_ns));
  return {{"total_ms", static_cast<double>(loaded.total_ns) * kNsToMs},
          {"phases", std::move(phases)}};
}

nlohmann::json MemoryToJson(const EngineInfo& info, const StartReport& report) {
  const bool is_host = info.device.kind == runtime::DeviceKind::kHost;
  const auto of_gpu = [is_host](uint64_t bytes) {
    return is_host ? nlohmann::json(nullptr) : nlohmann::json(bytes);
  };
  return {{"weights", info.memory.weights_bytes},
          {"kv_cache", info.memory.kv_cache_bytes},
          {"workspace", info.memory.workspace_bytes},
          {"activations", report.activations_bytes},
          {"state", report.state_bytes},
          {"step_kernels", report.step_kernel_bytes},
          {"export", info.memory.export_bytes},
          {"graphs", info.memory.graphs_bytes},
          {"driver", of_gpu(report.driver_bytes)},
          {"before", of_gpu(report.before_bytes)},
          {"free", of_gpu(report.free_bytes)},
          {"pinned_rings", report.rings_bytes},
          {"pinned_transfers", report.transfer_bytes},
          {"pinned_swap", info.memory.swap_bytes}};
}

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

// ", weights fp8_e4m3 but for 2 linear layers"; of weights in the type of compute nothing.
std::string WeightsText(const EngineInfo& info) {
  if (info.model.mxfp4_experts) return ", experts mxfp4";
  if (!info.model.weight_quantization) return "";
  std::string text = absl::StrCat(", weights ", std::string(kernels::NameOf(info.weight_format())));
  if (const int64_t left_out = info.model.NumLeftOut(); left_out != 0)
    absl::StrAppend(&text, " but for ", left_out,
                    left_out == 1 ? " linear layer" : " linear layers");
  return text;
}

std::string FactsTable(const LoadedEngine& loaded, size_t width) {
  const EngineInfo& info = loaded.engine->info();
  const engine::PoolInfo pool = loaded.engine->pool();
  const StartReport& report = ReportOf(loaded);
  const uint64_t tokens =
      static_cast<uint64_t>(std::max(pool.num_blocks, 1u) - 1) * pool.block_size;
  Table table({});
  table.AlignLeft();
  table.AddRow({"model", ModelText(info.model)});
  table.AddRow({"device", DeviceText(info.device)});
  table.AddRow(
      {"compute",
       absl::StrCat(
           std::string(runtime::NameOf(info.dtype)), WeightsText(info), ", KV cache ",
           std::string(runtime::NameOf(info.kv_dtype)), ", linear ",
           std::string(engine::NameOf(info.linear)),
           !info.linear_table_ranges
               ? ""
               : absl::StrCat(" with a table of ", *info.linear_table_ranges, " ranges of rows"),
           info.step_kernel_rows == 0
               ? ""
               : absl::StrCat(", step kernel up to ", info.step_kernel_rows, " rows"))});
  table.AddRow({"memory", DeviceMemoryText(info, report)});
  table.AddRow({"pinned memory", PinnedMemoryText(info, report)});
  if (info.limits.row_state_bytes != 0)
    table.AddRow({"state", absl::StrCat(FormatBytes(info.limits.row_state_bytes),
                                        " of a row beside its KV, in the workspace")});
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
  table.AddRow({"start-up", StartText(loaded)});
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

std::string EngineSummary(const LoadedEngine& loaded, size_t width) {
  const EngineInfo& info = loaded.engine->info();
  Table buckets({"graph", "capacity", "kernels", "capture", "driver bytes"});
  AddBuckets(info.decode_buckets, "rows", &buckets);
  AddBuckets(info.mixed_buckets, "tokens", &buckets);
  return absl::StrCat(FactsTable(loaded, width), "\n", buckets.ToString(width));
}

nlohmann::json EngineToJson(const LoadedEngine& loaded) {
  const EngineInfo& info = loaded.engine->info();
  const engine::PoolInfo pool = loaded.engine->pool();
  nlohmann::json graphs = nlohmann::json::array();
  AddBucketsJson(info.decode_buckets, &graphs);
  AddBucketsJson(info.mixed_buckets, &graphs);
  return {{"model",
           {{"name", info.model.name},
            {"architecture", info.model.architecture},
            {"parameters", models::NumParameters(info.model)}}},
          {"device", DeviceToJson(info.device)},
          {"dtype", std::string(runtime::NameOf(info.dtype))},
          {"weight_dtype", std::string(kernels::NameOf(info.weight_format()))},
          {"kv_dtype", std::string(runtime::NameOf(info.kv_dtype))},
          {"linear", std::string(NameOf(info.linear))},
          {"linear_table_ranges",
           info.linear_table_ranges ? nlohmann::json(*info.linear_table_ranges) : nlohmann::json()},
          {"step_kernel_rows", info.step_kernel_rows},
          {"memory_bytes", MemoryToJson(info, ReportOf(loaded))},
          {"pool", {{"block_size", pool.block_size}, {"num_blocks", pool.num_blocks}}},
          {"load_ms", static_cast<double>(info.load_ns) * 1e-6},
          {"capture_ms", static_cast<double>(info.capture_ns) * 1e-6},
          {"start", StartToJson(loaded)},
          {"graphs", std::move(graphs)}};
}

}  // namespace reprise::tools
