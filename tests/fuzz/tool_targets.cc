// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/tool_targets.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "engine/attention_tree_text.h"
#include "engine/linear_table_text.h"
#include "graphs/graph_nodes.h"
#include "nlohmann/json.hpp"
#include "runtime/check.h"
#include "tests/fuzz/fuzz_files.h"
#include "tools/advise/batch_trace.h"
#include "tools/compare/measured_run.h"
#include "tools/config_file.h"
#include "tools/graph/graph_dump.h"
#include "tools/profile/profile_file.h"
#include "tools/sched/arrival_trace.h"
#include "tools/sched/prompts_file.h"
#include "tools/serve_config.h"
#include "tools/simulated_device.h"
#include "tools/top/metrics_text.h"
#include "tools/tune/journal.h"

namespace reprise::fuzz {

bool TakeArrivals(std::string_view bytes) {
  return tools::ReadArrivalTrace(MemoryFile(bytes).path()).ok();
}

std::vector<std::string> ArrivalSeeds() {
  return {"time_s,prompt_tokens,new_tokens,priority\n0.0,512,128,0\n1.5,7,9,-2\n",
          "{\"time_s\": 0.0, \"prompt_tokens\": 512, \"new_tokens\": 128, \"priority\": 0}\n"};
}

bool TakeServeConfig(std::string_view bytes) {
  if (!tools::CheckServeConfig("serve.toml", bytes).ok()) return false;
  // A file that is taken is taken with one more setting, too.
  const auto changed = tools::WithSettings("serve.toml", bytes, {{"max-sessions", "8"}});
  REPRISE_CHECK(changed.ok() && tools::CheckServeConfig("serve.toml", *changed).ok());
  return true;
}

std::vector<std::string> ServeConfigSeeds() {
  return {
      "# A comment.\npreset = \"llama-3.1-8b\"  # another\nmax-context = 4096\ndevice = 'cuda:0'\n",
      "listen = [\"unix:/run/s\", \"127.0.0.1:0\"]\nmax-rows = 64\ndecode-buckets = \"1,8,64\"\n"
      "allow-administration = true\nidle-timeout = \"1.5s\"\nkv-cache = \"1GiB\"\n"};
}

bool TakePrompts(std::string_view bytes) {
  const MemoryFile file(bytes);
  const auto texts = tools::ReadPromptsFile(file.path(), tools::PlainLines::kText);
  const auto tokens = tools::ReadPromptsFile(file.path(), tools::PlainLines::kTokens);
  return texts.ok() && tokens.ok();
}

std::vector<std::string> PromptSeeds() {
  return {"1,2\r\n\n4294967295,0\n",
          "{\"prompt\": \"a\\nb\\u00e9\", \"max_new_tokens\": 7}\n{\"tokens\": [5, 0]}\n"};
}

bool TakeBatches(std::string_view bytes) {
  return tools::ReadBatchTrace({MemoryFile(bytes).path()}).ok();
}

std::vector<std::string> BatchSeeds() {
  return {"rows,tokens,context,steps\n4,131,512,20\n8,,,\n",
          "{\"rows\": 4, \"tokens\": 131, \"context\": 512.5, \"steps\": 20}\n{\"rows\": 1}\n"};
}

bool TakeAttentionTree(std::string_view bytes) {
  const auto tree = engine::ParseAttentionTree(bytes);
  if (!tree.ok()) return false;
  // What is taken is written so that it is taken again, as the same.
  const std::string text = engine::AttentionTreeText(*tree);
  const auto again = engine::ParseAttentionTree(text);
  REPRISE_CHECK(again.ok() && engine::AttentionTreeText(*again) == text);
  return true;
}

std::vector<std::string> AttentionTreeSeeds() {
  return {engine::AttentionTreeText(engine::NamedAttentionTree())};
}

// What is written is read as the same table.
bool TakeLinearTable(std::string_view bytes) {
  const auto named = engine::ParseLinearTable(bytes);
  if (!named.ok()) return false;
  const auto again = engine::ParseLinearTable(engine::LinearTableText(*named));
  REPRISE_CHECK(again.ok() && again->table == named->table);
  return true;
}

std::vector<std::string> LinearTableSeeds() {
  return {R"({"schema":"reprise-linear-table/1","made_for":{"device":"a","dtype":"bf16"},)"
          R"("layers":[{"weights":"bf16","group_size":0,"out_features":64,"in_features":512,)"
          R"("kernels":[{"rows_from":1,"rows_to":2,"kernel":"reprise_linear_group_bf16_16"},)"
          R"({"rows_from":3,"rows_to":8,"kernel":"reprise_linear_packed_bf16_32"}]}]})"};
}

bool TakeProfile(std::string_view bytes) { return tools::ParseProfile("f", bytes).ok(); }

std::vector<std::string> ProfileSeeds() {
  return {FileText("docs/benchmarks/profile_8b_h200.json")};
}

bool TakeSimulatedDevice(std::string_view bytes) {
  return tools::ParseSimulatedDevice("f", bytes).ok();
}

bool TakeGraph(std::string_view bytes) {
  const auto graph = tools::ParseGraph("f", bytes);
  if (!graph.ok()) return false;
  // What is taken is written so that it is taken again, as the same.
  const auto again = tools::ParseGraph("f", tools::GraphToJson(*graph).dump());
  REPRISE_CHECK(again.ok() && again->nodes == graph->nodes);
  return true;
}

std::vector<std::string> GraphSeeds() {
  graphs::GraphNode kernel, fill;
  kernel.kind = graphs::GraphNode::Kind::kKernel;
  kernel.kernel = "reprise_linear";
  kernel.op = "linear";
  kernel.shape = "8x4";
  kernel.grid_x = 4;
  kernel.block = 128;
  fill.kind = graphs::GraphNode::Kind::kFill;
  tools::GraphDump dump;
  dump.graph = "decode/8";
  dump.capacity = 8;
  dump.nodes = {kernel, fill, kernel};
  return {tools::GraphToJson(dump).dump()};
}

bool TakeJournal(std::string_view bytes) {
  const nlohmann::json header = {{"schema", tools::kJournalSchema}, {"options", {{"seed", 1}}}};
  const MemoryFile file(bytes);
  size_t num_entries = 0;
  {
    const auto journal = tools::Journal::Open(file.path(), header);
    if (!journal.ok()) return false;
    num_entries = (*journal)->num_entries();
  }
  // A line that was cut off is gone, and the others are still there.
  const auto again = tools::Journal::Open(file.path(), header);
  REPRISE_CHECK(again.ok() && (*again)->num_entries() == num_entries);
  return true;
}

std::vector<std::string> JournalSeeds() {
  return {absl::StrCat(R"({"options":{"seed":1},"schema":")", tools::kJournalSchema, "\"}\n",
                       R"({"cell":{"rows":8},"choice":{"rows":1},"ns":5.5,"replays":3,)",
                       R"("seconds":0.25,"spread":0})", "\n",
                       R"({"cell":{"rows":8},"choice":{"rows":2},"ns":7,"repl)")};
}

bool TakeMeasuredRun(std::string_view bytes) { return tools::ParseMeasuredRun("f", bytes).ok(); }

std::vector<std::string> MeasuredRunSeeds() {
  return {FileText("docs/benchmarks/step_8b_h200.json")};
}

bool TakeMetrics(std::string_view bytes) { return tools::MetricsText::Parse(bytes).ok(); }

std::vector<std::string> MetricsSeeds() {
  return {
      "# HELP a A\n# TYPE a counter\na{graph=\"decode/8\",x=\"\\\"\"} 12\n# TYPE h histogram\n"
      "h_bucket{le=\"0.1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 0.4\nh_count 2\n"};
}

}  // namespace reprise::fuzz
