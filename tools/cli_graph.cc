// SPDX-License-Identifier: Apache-2.0
// `reprise graph`: what the captured graphs of a model are made of, and where two of them differ.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine_profiler.h"
#include "graphs/captured_nodes.h"
#include "runtime/status_macros.h"
#include "tools/cli.h"
#include "tools/console.h"
#include "tools/device_flags.h"
#include "tools/engine_flags.h"
#include "tools/graph/graph_dump.h"
#include "tools/graph/graph_svg.h"
#include "tools/record.h"
#include "tools/table.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr char kGraphExamples[] =
    "Examples:\n"
    "  reprise graph list --model examples/byte-llama\n"
    "  reprise graph dump --model examples/byte-llama --graph decode/8 --json graph.json --dot "
    "graph.dot\n"
    "  reprise graph dump --model examples/byte-llama --graph decode/8 --svg step.svg --layer-svg "
    "layer.svg\n"
    "  reprise graph dump --model examples/byte-llama --graph decode/8 --captured\n"
    "  reprise graph diff before.json after.json\n"
    "  reprise graph diff --model examples/byte-llama decode/1 decode/8\n"
    "\n"
    "docs/profile.md says what they show.";

struct ListFlags {
  EngineFlags engine;
  std::string json_file;
};

struct DumpFlags : ListFlags {
  std::string graph, dot_file, svg_file, layer_file;
  bool captured = false;
};

struct DiffFlags : ListFlags {
  std::string a, b;  // files, or graphs of the model
  bool captured = false;
};

const graphs::CapturedBucket* FindBucket(const engine::EngineInfo& info, const std::string& graph) {
  for (const auto* buckets : {&info.decode_buckets, &info.mixed_buckets}) {
    for (const graphs::CapturedBucket& captured : *buckets) {
      if (captured.bucket.name == graph) return &captured;
    }
  }
  return nullptr;
}

// These nodes as the device tells them. Errors name the graph.
absl::StatusOr<std::vector<graphs::GraphNode>> AskDevice(engine::EngineProfiler& profiler,
                                                         const std::string& graph,
                                                         std::vector<graphs::GraphNode> nodes) {
  const auto ask = [&]() -> absl::StatusOr<std::vector<graphs::GraphNode>> {
    REPRISE_ASSIGN_OR_RETURN(const graphs::CapturedNodes captured,
                             profiler.ListCapturedNodes(graph));
    return graphs::AsCaptured(std::move(nodes), captured);
  };
  absl::StatusOr<std::vector<graphs::GraphNode>> told = ask();
  if (told.ok()) return told;
  return absl::Status(told.status().code(), absl::StrCat(graph, ": ", told.status().message()));
}

// `captured_nodes`: as the device tells them. Errors: usage for a graph that there is not, which
// names those that there are; those of AskDevice.
absl::StatusOr<GraphDump> DumpOf(const LoadedEngine& loaded, const std::string& graph,
                                 bool captured_nodes) {
  engine::EngineProfiler profiler(*loaded.engine);
  absl::StatusOr<std::vector<graphs::GraphNode>> nodes = profiler.ListNodes(graph);
  if (absl::IsNotFound(nodes.status())) return UsageError(std::string(nodes.status().message()));
  REPRISE_RETURN_IF_ERROR(nodes.status());
  if (captured_nodes) {
    REPRISE_ASSIGN_OR_RETURN(nodes, AskDevice(profiler, graph, *std::move(nodes)));
  }
  REPRISE_ASSIGN_OR_RETURN(std::vector<kernels::ListedStage> stages, profiler.ListStages(graph));
  const engine::EngineInfo& info = loaded.engine->info();
  const graphs::CapturedBucket& captured = *FindBucket(info, graph);
  return GraphDump{.where = absl::StrCat(info.model.name, " on ", DeviceText(info.device)),
                   .graph = graph,
                   .capacity = captured.bucket.capacity,
                   .device_bytes = captured.device_bytes,
                   .captured = captured_nodes,
                   .knows_early = captured_nodes,
                   .nodes = *std::move(nodes),
                   .stages = std::move(stages)};
}

// Kernels of a graph that the linear table chose.
absl::StatusOr<int64_t> NumFromTable(engine::EngineProfiler& profiler, const std::string& graph) {
  REPRISE_ASSIGN_OR_RETURN(const std::vector<graphs::GraphNode> nodes, profiler.ListNodes(graph));
  return std::count_if(nodes.begin(), nodes.end(),
                       [](const graphs::GraphNode& node) { return node.from_table; });
}

absl::Status List(const ListFlags& flags, const Invocation& invocation) {
  REPRISE_RETURN_IF_ERROR(CheckSource(flags.engine.source));
  REPRISE_RETURN_IF_ERROR(PrepareRecord(flags.json_file, invocation.console));
  REPRISE_ASSIGN_OR_RETURN(const LoadedEngine loaded, LoadEngine(flags.engine, invocation.console));
  const engine::EngineInfo& info = loaded.engine->info();
  engine::EngineProfiler profiler(*loaded.engine);
  nlohmann::json by_table = nullptr;
  std::vector<std::string> heads = {"graph",       "capacity", "kernel nodes",
                                    "other nodes", "capture",  "driver bytes"};
  if (info.linear_table_ranges) {
    heads.emplace_back("by table");
    by_table = nlohmann::json::array();
  }
  Table table(heads);
  for (const auto* buckets : {&info.decode_buckets, &info.mixed_buckets}) {
    const char* unit = buckets == &info.decode_buckets ? " rows" : " tokens";
    for (const graphs::CapturedBucket& captured : *buckets) {
      std::vector<std::string> row = {captured.bucket.name,
                                      absl::StrCat(captured.bucket.capacity, unit),
                                      absl::StrCat(captured.num_kernel_nodes),
                                      absl::StrCat(captured.num_other_nodes),
                                      FormatDuration(static_cast<double>(captured.capture_ns)),
                                      FormatBytes(captured.device_bytes)};
      if (info.linear_table_ranges) {
        REPRISE_ASSIGN_OR_RETURN(const int64_t nodes, NumFromTable(profiler, captured.bucket.name));
        by_table.push_back({{"graph", captured.bucket.name}, {"kernel_nodes", nodes}});
        row.push_back(absl::StrCat(nodes));
      }
      table.AddRow(std::move(row));
    }
  }
  invocation.console->Print(table.ToString(invocation.console->width()));
  nlohmann::json json = RecordOf("graph list", invocation);
  json["schema"] = "reprise.graph_list/1";
  json["engine"] = EngineToJson(loaded);
  json["by_table"] = std::move(by_table);
  return WriteRecord(flags.json_file, json, invocation.console);
}

// A form of a dump, and where it goes: "" for nowhere.
struct DumpForm {
  const std::string& file;
  absl::StatusOr<std::string> (*text)(const GraphDump&);
};

std::vector<DumpForm> FormsOf(const DumpFlags& flags) {
  return {{flags.dot_file,
           [](const GraphDump& dump) { return absl::StatusOr<std::string>(GraphDot(dump)); }},
          {flags.svg_file,
           [](const GraphDump& dump) { return absl::StatusOr<std::string>(StepSvg(dump)); }},
          {flags.layer_file, LayerSvg}};
}

absl::Status PrepareForms(const DumpFlags& flags, Console* console) {
  REPRISE_RETURN_IF_ERROR(PrepareRecord(flags.json_file, console));
  for (const DumpForm& form : FormsOf(flags))
    REPRISE_RETURN_IF_ERROR(PrepareRecord(form.file, console));
  return absl::OkStatus();
}

absl::Status WriteForms(const DumpFlags& flags, const GraphDump& dump, Console* console) {
  for (const DumpForm& form : FormsOf(flags)) {
    if (form.file.empty()) continue;
    REPRISE_ASSIGN_OR_RETURN(const std::string text, form.text(dump));
    if (form.file == kStdoutFile) {
      console->PrintData(text);
    } else {
      REPRISE_RETURN_IF_ERROR(WriteText(form.file, text));
    }
  }
  return absl::OkStatus();
}

absl::Status Dump(const DumpFlags& flags, const Invocation& invocation) {
  REPRISE_RETURN_IF_ERROR(CheckSource(flags.engine.source));
  REPRISE_RETURN_IF_ERROR(PrepareForms(flags, invocation.console));
  REPRISE_ASSIGN_OR_RETURN(const LoadedEngine loaded, LoadEngine(flags.engine, invocation.console));
  REPRISE_ASSIGN_OR_RETURN(const GraphDump dump, DumpOf(loaded, flags.graph, flags.captured));
  invocation.console->Print(GraphText(dump, invocation.console->width()));
  REPRISE_RETURN_IF_ERROR(WriteForms(flags, dump, invocation.console));
  nlohmann::json json = RecordOf("graph dump", invocation);
  json["engine"] = EngineToJson(loaded);
  json.update(GraphToJson(dump));
  return WriteRecord(flags.json_file, json, invocation.console);
}

// Two files, or two graphs of a model.
absl::StatusOr<std::pair<GraphDump, GraphDump>> ReadBoth(const DiffFlags& flags, Console* console) {
  std::pair<GraphDump, GraphDump> both;
  if (flags.engine.source.directory.empty() && flags.engine.source.preset.empty()) {
    if (flags.captured) {
      return UsageError(
          "--captured: got two files, allowed: two graphs of a model, --model DIR or --preset "
          "NAME");
    }
    for (const auto& [file, dump] :
         {std::pair(&flags.a, &both.first), std::pair(&flags.b, &both.second)}) {
      absl::StatusOr<GraphDump> read = ReadGraph(*file);
      if (!read.ok()) return UsageError(std::string(read.status().message()));
      *dump = *std::move(read);
    }
    return both;
  }
  REPRISE_RETURN_IF_ERROR(CheckSource(flags.engine.source));
  REPRISE_ASSIGN_OR_RETURN(const LoadedEngine loaded, LoadEngine(flags.engine, console));
  REPRISE_ASSIGN_OR_RETURN(both.first, DumpOf(loaded, flags.a, flags.captured));
  REPRISE_ASSIGN_OR_RETURN(both.second, DumpOf(loaded, flags.b, flags.captured));
  return both;
}

absl::Status Diff(const DiffFlags& flags, const Invocation& invocation) {
  REPRISE_RETURN_IF_ERROR(PrepareRecord(flags.json_file, invocation.console));
  REPRISE_ASSIGN_OR_RETURN(const auto both, ReadBoth(flags, invocation.console));
  const auto& [a, b] = both;
  const std::vector<NodeDifference> differences = DiffGraphs(a, b);
  invocation.console->Print(DifferencesText(a, b, differences, invocation.console->width()));
  nlohmann::json json = RecordOf("graph diff", invocation);
  json.update(DifferencesToJson(a, b, differences));
  REPRISE_RETURN_IF_ERROR(WriteRecord(flags.json_file, json, invocation.console));
  if (differences.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(differences.size(), " nodes differ"));
}

void AddJsonOption(CLI::App* app, std::string* file) {
  app->add_option("--json", *file, "Write the same to this file too; -: to stdout")
      ->type_name("FILE");
}

void AddCapturedOption(CLI::App* app, bool* captured) {
  app->add_flag(
      "--captured", *captured,
      "Capture once more and ask the device for nodes and edges: an error where they are not "
      "those that were enqueued");
}

Command AddListCommand(CLI::App* graph) {
  auto flags = std::make_shared<ListFlags>();
  CLI::App* app = graph->add_subcommand("list", "List the graphs of a model, with their memory");
  AddJsonOption(app, &flags->json_file);
  NameOptionGroup(app, "Output");
  AddEngineOptions(app, &flags->engine);
  return {app, [flags](const Invocation& invocation) { return List(*flags, invocation); }};
}

Command AddDumpCommand(CLI::App* graph) {
  auto flags = std::make_shared<DumpFlags>();
  CLI::App* app = graph->add_subcommand("dump", "Show every node of a graph");
  app->add_option("--graph", flags->graph, "Its name, as `reprise graph list` has it")
      ->required()
      ->type_name("NAME");
  AddCapturedOption(app, &flags->captured);
  AddJsonOption(app, &flags->json_file);
  app->add_option("--dot", flags->dot_file, "Write it for graphviz to this file; -: to stdout")
      ->type_name("FILE");
  app->add_option("--svg", flags->svg_file,
                  "Draw the whole step to this file, as SVG; -: to stdout")
      ->type_name("FILE");
  app->add_option("--layer-svg", flags->layer_file,
                  "Draw one layer, with kernels and all sizes; -: to stdout")
      ->type_name("FILE");
  NameOptionGroup(app, "Output");
  AddEngineOptions(app, &flags->engine);
  return {app, [flags](const Invocation& invocation) { return Dump(*flags, invocation); }};
}

Command AddDiffCommand(CLI::App* graph) {
  auto flags = std::make_shared<DiffFlags>();
  CLI::App* app = graph->add_subcommand(
      "diff",
      "Compare two dumps, or two graphs of a model, node by node: exit code 1 where any "
      "differs");
  app->add_option("A", flags->a, "A file of `graph dump --json`; with a model, a graph's name")
      ->required()
      ->type_name("");
  app->add_option("B", flags->b, "And another")->required()->type_name("");
  AddCapturedOption(app, &flags->captured);
  AddJsonOption(app, &flags->json_file);
  NameOptionGroup(app, "Output");
  AddEngineOptions(app, &flags->engine);
  return {app, [flags](const Invocation& invocation) { return Diff(*flags, invocation); }};
}

}  // namespace

Command AddGraphCommand(CLI::App* root) {
  CLI::App* app = root->add_subcommand("graph", "Show the captured graphs of a model");
  app->footer(kGraphExamples);
  return CommandOf(app, {AddListCommand(app), AddDumpCommand(app), AddDiffCommand(app)});
}

}  // namespace reprise::tools
