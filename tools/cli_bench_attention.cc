// SPDX-License-Identifier: Apache-2.0
// `reprise bench attention`: times paged attention alone over batches of given lengths, beside the
// time to read the same pages.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/device_telemetry.h"
#include "runtime/dtype.h"
#include "runtime/status_macros.h"
#include "tools/bench/attention_bench.h"
#include "tools/bench/bench_flags.h"
#include "tools/bench/bench_report.h"
#include "tools/bench/bench_rounds.h"
#include "tools/bench/name_list.h"
#include "tools/bench/tree_file.h"
#include "tools/cli.h"
#include "tools/console.h"
#include "tools/device_flags.h"
#include "tools/profile/report_parts.h"
#include "tools/record.h"
#include "tools/signals.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr char kAttentionExamples[] =
    "Examples:\n"
    "  reprise bench attention --rows 1,8 --contexts 128,1k --check\n"
    "  reprise bench attention --model examples/byte-llama --rows 4 --contexts 1k "
    "--batch uniform,skewed --decode-share 0,50,100 --chunk 64\n"
    "  reprise bench attention --rows 1,8 --contexts 128,1k --ladder\n"
    "  reprise bench attention --device cuda --standard-cells --sustain 2 --json attention.json "
    "--svg attention.svg\n"
    "\n"
    "docs/bench_attention.md says what each number is; docs/bench_attention.schema.json describes "
    "the JSON.";

struct AttentionFlags {
  HeadFlags heads;
  CellOptions cells;
  bool standard_cells = false, ladder = false;
  std::vector<const AttentionCandidateEntry*> candidates = {&AttentionCandidates()[0]};
  AttentionBenchOptions bench;
  bool check = false;
  double sustain_seconds = 0;
  DeviceFlags device;
  std::string tree_file;
  OutputFlags output;
};

auto CountsUpTo(uint64_t max) {
  return [max](std::string_view text) { return ParseCounts(text, max); };
}

absl::StatusOr<std::vector<BatchKind>> ParseBatchKinds(std::string_view text) {
  std::vector<std::string> names;
  for (const BatchKind kind : AllBatchKinds()) names.emplace_back(NameOf(kind));
  REPRISE_ASSIGN_OR_RETURN(const std::vector<size_t> chosen, ParseNameList("batch", text, names));
  std::vector<BatchKind> kinds;
  for (const size_t index : chosen) kinds.push_back(AllBatchKinds()[index]);
  return kinds;
}

// Options of cells that do not go with the standard ones.
constexpr const char* kCellOptions[] = {"--rows",         "--contexts", "--batch",
                                        "--decode-share", "--chunk",    "--shared-prefix"};

absl::Status CheckFlags(const AttentionFlags& flags, const CLI::App& app) {
  REPRISE_RETURN_IF_ERROR(CheckOutput(flags.output));
  if (flags.ladder && app.count("--candidates") != 0)
    return UsageError("candidates: got both --ladder and --candidates, allowed: one of them");
  if (!flags.standard_cells) return absl::OkStatus();
  for (const char* option : kCellOptions) {
    if (app.count(option) == 0) continue;
    return UsageError(
        absl::StrCat("cells: got both --standard-cells and ", option, ", allowed: one of them"));
  }
  return absl::OkStatus();
}

// Graphs of such candidates could not be captured.
absl::Status CheckCandidates(const std::vector<const AttentionCandidateEntry*>& candidates,
                             const AttentionShape& shape) {
  if (!runtime::IsFp8(shape.kv_dtype())) return absl::OkStatus();
  std::string allowed;
  for (const AttentionCandidateEntry& entry : AttentionCandidates())
    if (entry.takes_fp8)
      absl::StrAppend(&allowed, allowed.empty() ? "" : ", ", std::string(entry.name));
  for (const AttentionCandidateEntry* candidate : candidates) {
    if (candidate->takes_fp8) continue;
    return UsageError(absl::StrCat("candidates: ", std::string(candidate->name),
                                   " has no kernel for KV of 8 bits; allowed: ", allowed));
  }
  return absl::OkStatus();
}

absl::Status CheckAll(const Interrupt& interrupt, AttentionBench* bench, Console* console,
                      std::vector<MeasuredCell>* cells) {
  double worst = 0, allowed = 0;
  for (MeasuredCell& cell : *cells) {
    console->Progress(absl::StrCat("checking ", bench->cells()[cell.index].name), /*now=*/true);
    REPRISE_RETURN_IF_ERROR(bench->Check(cell.index, &cell.times));
    for (const SubjectTimes& candidate : cell.times.candidates) {
      worst = std::max(worst, candidate.check->worst);
      allowed = candidate.check->allowed;
    }
    REPRISE_RETURN_IF_ERROR(interrupt.status());
  }
  console->Note(absl::StrCat("checked: ", cells->size(), " cells, ", bench->candidates().size(),
                             bench->candidates().size() == 1 ? " candidate" : " candidates",
                             ", worst error ", worst, ", allowed: ", allowed));
  return absl::OkStatus();
}

absl::Status MeasureRounds(const Interrupt& interrupt, AttentionBench* bench, Console* console,
                           std::vector<MeasuredCell>* cells) {
  const AttentionBenchOptions& options = bench->options();
  const BenchRounds rounds{.rounds = options.rounds,
                           .units = uint64_t{options.replays} * cells->size(),
                           .unit = "replays"};
  return rounds.Measure(interrupt, console, [&](const BenchRounds::Told& told) {
    for (MeasuredCell& cell : *cells) {
      const auto measured = [&](uint32_t replays) {
        return told(replays, bench->cells()[cell.index].name);
      };
      REPRISE_RETURN_IF_ERROR(bench->Measure(cell.index, measured, &cell.times));
    }
    return absl::OkStatus();
  });
}

absl::Status SustainAll(double seconds, const Interrupt& interrupt,
                        runtime::DeviceTelemetry* telemetry, AttentionBench* bench,
                        Console* console, std::vector<MeasuredCell>* cells) {
  for (MeasuredCell& cell : *cells) {
    const auto measured = [&](uint32_t) {
      console->Progress(absl::StrCat("back to back for ", FormatDuration(seconds * 1e9), " each, ",
                                     bench->cells()[cell.index].name));
      return interrupt.status();
    };
    REPRISE_RETURN_IF_ERROR(bench->Sustain(cell.index, seconds, telemetry, measured, &cell.times));
  }
  return absl::OkStatus();
}

absl::Status Report(const AttentionFlags& flags, const std::vector<MeasuredCell>& cells,
                    const BenchContext& context, const absl::Status& status,
                    const Invocation& invocation) {
  Console* console = invocation.console;
  console->Print(CellsText(cells, context));
  for (const MeasuredCell& cell : cells) {
    const std::string warning = CellWarning(cell, context);
    if (!warning.empty())
      console->Note(absl::StrCat("reprise bench attention: warning: ", warning));
  }
  nlohmann::json json = RecordOf("bench attention", invocation);
  json.update(BenchToJson(cells, context));
  if (!status.ok()) json["error"] = std::string(status.message());
  return WriteOutput(flags.output, json, BenchChart(cells, context), console);
}

absl::Status MeasureAll(const AttentionFlags& flags, runtime::Device& device,
                        const Invocation& invocation, AttentionBench* bench, Interrupt* interrupt) {
  Console* console = invocation.console;
  auto telemetry = runtime::DeviceTelemetry::Open(device.properties());
  const BenchContext context{.bench = *bench,
                             .device = device.properties(),
                             .telemetry = SourceOf(telemetry),
                             .sustain_seconds = flags.sustain_seconds,
                             .tree_file = flags.tree_file,
                             .width = console->width()};
  console->Print(BenchHeader(context));
  interrupt->Arm();
  std::vector<MeasuredCell> cells(bench->cells().size());
  for (size_t i = 0; i < cells.size(); ++i) cells[i].index = i;
  absl::Status status;
  if (flags.check) status = CheckAll(*interrupt, bench, console, &cells);
  if (status.ok()) status = MeasureRounds(*interrupt, bench, console, &cells);
  if (status.ok() && flags.sustain_seconds > 0) {
    status = SustainAll(flags.sustain_seconds, *interrupt,
                        telemetry.ok() ? telemetry->get() : nullptr, bench, console, &cells);
  }
  console->ClearProgress();
  std::erase_if(cells, [](const MeasuredCell& c) { return c.times.floor.round_ns.empty(); });
  if (cells.empty()) return status;
  const absl::Status reported = Report(flags, cells, context, status, invocation);
  return status.ok() ? reported : status;
}

absl::Status RunAttention(AttentionFlags flags, const CLI::App& app, const Invocation& invocation) {
  REPRISE_RETURN_IF_ERROR(CheckFlags(flags, app));
  REPRISE_ASSIGN_OR_RETURN(const AttentionShape shape, ShapeOf(flags.heads));
  flags.cells.seed = flags.bench.seed;
  if (flags.ladder) flags.candidates = LadderCandidates();
  REPRISE_RETURN_IF_ERROR(CheckCandidates(flags.candidates, shape));
  std::vector<BenchCell> cells =
      flags.standard_cells ? StandardCells(flags.bench.seed) : MakeCells(flags.cells);
  REPRISE_RETURN_IF_ERROR(
      CheckCells(cells, flags.bench.max_context, static_cast<uint32_t>(shape.block_size)));
  engine::NamedAttentionTree tree;
  if (!flags.tree_file.empty()) {
    REPRISE_ASSIGN_OR_RETURN(tree, ReadAttentionTreeFile(flags.tree_file));
  }
  REPRISE_RETURN_IF_ERROR(PrepareOutput(flags.output, invocation.console));
  Interrupt interrupt;
  REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Device> device,
                           OpenDevice(flags.device, invocation.console));
  if (flags.bench.pool_bytes == 0) flags.bench.pool_bytes = DefaultPoolBytes(device->properties());
  invocation.console->Progress("filling memory", /*now=*/true);
  REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<AttentionBench> bench,
                           AttentionBench::Create(*device, shape, std::move(cells),
                                                  flags.candidates, flags.bench, tree));
  return MeasureAll(flags, *device, invocation, bench.get(), &interrupt);
}

void AddCellOptions(CLI::App* app, AttentionFlags* flags) {
  AddOption(app, "--rows", &flags->cells.rows, CountsUpTo(kMostBatchRows), "N,N,...", "1,8,64",
            "Rows of a batch");
  AddOption(app, "--contexts", &flags->cells.contexts, CountsUpTo(kMostRowTokens), "N,N,...",
            "128,1k", "Tokens in the KV of a batch's longest rows, such as 128,1k,8k");
  AddOption(app, "--batch", &flags->cells.kinds, ParseBatchKinds, "KIND,...", "uniform",
            "Lengths of the rows: uniform, log-uniform (from a 128th), skewed (one is long, the "
            "others a 128th), sharegpt (lognormal, mean 559)");
  AddOption(
      app, "--decode-share", &flags->cells.decode_shares,
      [](std::string_view text) -> absl::StatusOr<std::vector<uint32_t>> {
        REPRISE_ASSIGN_OR_RETURN(const auto values, ParseUnsignedList(text, 0, 100));
        return std::vector<uint32_t>(values.begin(), values.end());
      },
      "N,N,...", "100", "Percentages of rows that decode; the others bring a chunk of a prompt");
  AddOption(app, "--chunk", &flags->cells.chunk, CountIn(2, kMostRowTokens), "N", "512",
            "Query tokens of such a chunk, on top of the row's context");
  AddOption(app, "--shared-prefix", &flags->cells.shared_tokens, CountIn(0, kMostRowTokens), "N",
            "0", "Tokens that all rows of a batch begin with, in the same blocks");
  app->add_flag("--standard-cells", flags->standard_cells,
                "The cells that Reprise is judged by, instead of rows and contexts: uniform, "
                "ragged, skewed, ShareGPT-like and mixed");
  AddOption(app, "--max-context", &flags->bench.max_context, CountIn(1, kMostRowTokens), "N", "32k",
            "Tokens of the longest row that the graphs are captured for");
  NameOptionGroup(app, "Cells");
}

void AddMeasuringOptions(CLI::App* app, AttentionFlags* flags) {
  std::string candidates = "Which kernels";
  for (const AttentionCandidateEntry& entry : AttentionCandidates())
    absl::StrAppend(&candidates, &entry == &AttentionCandidates()[0] ? ": " : "; ",
                    std::string(entry.name), " (", std::string(entry.description), ")");
  AddOption(app, "--candidates", &flags->candidates, ParseCandidates, "NAME,...",
            std::string(AttentionCandidates()[0].name), candidates);
  std::string rungs;
  for (const AttentionCandidateEntry* rung : LadderCandidates())
    absl::StrAppend(&rungs, rungs.empty() ? "" : ", ", std::string(rung->name));
  app->add_flag("--ladder", flags->ladder,
                absl::StrCat("All rungs of the ladder, from the simplest kernel to what the engine "
                             "runs: ",
                             rungs));
  app->add_option("--tree", flags->tree_file,
                  "Attention tree that plans decide by, such as `reprise tune attention` writes "
                  "(default: the built-in one); naive, q-blocks and two-kernels have their own")
      ->type_name("FILE");
  app->add_flag("--check", flags->check,
                "Compare outputs with a double-precision reference before anything is timed");
  AddRoundOptions(app, &flags->bench.rounds, &flags->bench.replays);
  AddOption(app, "--calls", &flags->bench.calls, UnsignedIn(1, 4096), "N", "",
            "Calls of attention in a graph (default: as many as take a millisecond and read all "
            "of --pool-bytes, at most 512)");
  AddOption(app, "--pool-bytes", &flags->bench.pool_bytes, ParsePoolBytes, "SIZE", "",
            "KV that calls cycle over, more than caches hold (default: 256MiB, host 64MiB)");
  AddOption(
      app, "--sustain", &flags->sustain_seconds,
      [](std::string_view text) { return ParseDecimal(text, 0, 3600); }, "SECONDS", "0",
      "Then replay every graph back to back for so long, and report clock and power");
  AddOption(app, "--seed", &flags->bench.seed, UnsignedIn(0, UINT64_MAX), "N", "1",
            "Of lengths and block tables");
  AddOutputOptions(app, &flags->output);
  NameOptionGroup(app, "Measuring");
}

}  // namespace

Command AddBenchAttentionCommand(CLI::App* bench) {
  auto flags = std::make_shared<AttentionFlags>();
  CLI::App* app = bench->add_subcommand(
      "attention",
      "Time paged attention alone over batches of given lengths, beside reading the same pages");
  app->footer(kAttentionExamples);
  AddCellOptions(app, flags.get());
  AddHeadOptions(app, &flags->heads);
  AddMeasuringOptions(app, flags.get());
  AddDeviceOptions(app, &flags->device);
  NameOptionGroup(app, "Device");
  return {app, [app, flags](const Invocation& invocation) {
            return RunAttention(*flags, *app, invocation);
          }};
}

}  // namespace reprise::tools
