// SPDX-License-Identifier: Apache-2.0
// `reprise tune attention`: finds the tree that attention's plan decides by.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/attention_tree_text.h"
#include "runtime/status_macros.h"
#include "tools/atomic_file.h"
#include "tools/bench/attention_bench.h"
#include "tools/bench/bench_flags.h"
#include "tools/bench/bench_report.h"
#include "tools/bench/candidates.h"
#include "tools/cli.h"
#include "tools/console.h"
#include "tools/device_flags.h"
#include "tools/record.h"
#include "tools/signals.h"
#include "tools/table.h"
#include "tools/tune/journal.h"
#include "tools/tune/tree_timer.h"
#include "tools/tune/tune_batches.h"
#include "tools/tune/tune_report.h"
#include "tools/tune/tuner.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr char kAttentionExamples[] =
    "Examples:\n"
    "  reprise tune attention --device cuda --out tree.json --journal tune.jsonl\n"
    "  reprise tune attention --model examples/byte-llama --out tree.json --max-rows 4 "
    "--max-context 1k --budget 20\n"
    "\n"
    "docs/tune_attention.md says how it measures and what it writes; `reprise bench attention "
    "--tree` measures with the tree.";

constexpr uint64_t kHostMemory = uint64_t{1} << 30, kGpuMemory = uint64_t{16} << 30;

struct TuneFlags {
  HeadFlags heads;
  TuneGrid grid;
  uint64_t max_memory = 0;  // 0: by device
  uint64_t pool_bytes = 0;  // 0: by device
  uint32_t replays = 5;
  TunerOptions tuner;
  DeviceFlags device;
  std::string out_file, journal_file;
};

// What a measurement depends on; the journal is of one such.
nlohmann::json SettingsOf(const TuneFlags& flags) {
  return {{"max_rows", flags.grid.max_rows},
          {"max_context", flags.grid.max_context},
          {"max_memory", flags.max_memory},
          {"pool_bytes", flags.pool_bytes},
          {"decode_shares", flags.grid.decode_shares},
          {"chunk", flags.grid.chunk},
          {"replays", flags.replays},
          {"seed", flags.grid.seed}};
}

nlohmann::json JournalHeader(const TuneFlags& flags, const AttentionShape& shape,
                             const runtime::DeviceProperties& device, const nlohmann::json& run) {
  return {{"schema", kJournalSchema},    {"device", DeviceToJson(device)},
          {"shape", ShapeToJson(shape)}, {"version", run["version"]},
          {"commit", run["commit"]},     {"options", SettingsOf(flags)}};
}

std::string TuneHeader(const TuneFlags& flags, const AttentionBench& bench,
                       const TuneBatches& batches, const runtime::DeviceProperties& device,
                       size_t width) {
  Table table({});
  table.AlignLeft();
  if (!bench.shape().model.empty()) table.AddRow({"model", bench.shape().model});
  table.AddRow({"attention", ShapeText(bench.shape())});
  table.AddRow({"device", DeviceText(device)});
  table.AddRow({"memory", absl::StrCat(FormatBytes(bench.bytes()), "; calls cycle over ",
                                       FormatBytes(flags.pool_bytes), " of KV")});
  const uint32_t shares = bench.tree_limits().num_shares;
  table.AddRow(
      {"rows are dealt", shares == 0 ? "no" : absl::StrCat("to ", shares, " blocks at most")});
  table.AddRow({"batches",
                absl::StrCat(batches.cells.size(), " of up to ", flags.grid.max_rows, " rows and ",
                             FormatCount(flags.grid.max_context), " tokens, in about ",
                             FormatDuration(flags.tuner.budget_seconds * 1e9))});
  return absl::StrCat(table.ToString(width), "\n");
}

engine::NamedAttentionTree MadeFor(engine::NamedAttentionTree tree, const AttentionShape& shape,
                                   const runtime::DeviceProperties& device) {
  tree.device = device.name;
  tree.num_heads = shape.num_heads;
  tree.num_kv_heads = shape.num_kv_heads;
  tree.head_dim = shape.head_dim;
  tree.block_size = shape.block_size;
  tree.window = shape.window;
  tree.dtype = shape.kv_dtype();
  return tree;
}

TuneProgressFn ShowProgress(Console* console) {
  return [console](const TuneProgress& at) {
    console->Progress(absl::StrCat(
        "tune ", std::string(at.stage), " ",
        ProgressBar(static_cast<double>(at.done), static_cast<double>(at.total), 20, *console), " ",
        at.done, " / ", at.total, " batches, at most ", FormatDuration(at.seconds_left * 1e9),
        " left, ", std::string(at.batch)));
  };
}

// What was measured is not lost, where there is a journal.
void SayHowToGoOn(const Journal& journal, const BenchTreeTimer& timer, Console* console) {
  console->Note(journal.path().empty()
                    ? absl::StrCat("kept: nothing of ", timer.num_measured(),
                                   " measurements; with --journal FILE a run can be continued")
                    : absl::StrCat("kept: ", journal.num_entries(), " measurements in ",
                                   journal.path(), "; the same command continues from there"));
}

absl::Status WriteTree(const TuneFlags& flags, const TunedTree& tuned, const AttentionBench& bench,
                       const runtime::DeviceProperties& device, const Invocation& invocation) {
  nlohmann::json settings = SettingsOf(flags);
  settings["budget_s"] = flags.tuner.budget_seconds;
  settings["max_leaves"] = flags.tuner.max_leaves;
  settings["min_gain"] = flags.tuner.min_gain;
  settings["cut_prompts"] = flags.tuner.cut_prompts;
  const nlohmann::json notes = TuneNotes(tuned, RecordOf("tune attention", invocation), settings);
  const std::string text =
      AttentionTreeText(MadeFor(tuned.tree, bench.shape(), device),
                        notes.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  // What cannot be read back is not left for a server to find out.
  REPRISE_ASSIGN_OR_RETURN(const engine::NamedAttentionTree read, engine::ParseAttentionTree(text));
  REPRISE_RETURN_IF_ERROR(CheckTreeFits(read,
                                        {.device = device.name,
                                         .num_heads = bench.shape().num_heads,
                                         .kv = bench.shape().kv(),
                                         .windows = {bench.shape().window}},
                                        bench.tree_limits()));
  REPRISE_RETURN_IF_ERROR(WriteAtomically(flags.out_file, text));
  invocation.console->Note(absl::StrCat("written: ", flags.out_file));
  return absl::OkStatus();
}

absl::Status Tune(const TuneFlags& flags, const TuneBatches& batches, runtime::Device& device,
                  const Invocation& invocation, AttentionBench* bench, Journal* journal,
                  Interrupt* interrupt) {
  Console* console = invocation.console;
  console->Print(TuneHeader(flags, *bench, batches, device.properties(), console->width()));
  if (journal->num_entries() != 0)
    console->Note(
        absl::StrCat("continues: ", journal->num_entries(), " measurements in ", journal->path()));
  interrupt->Arm();
  BenchTreeTimer timer(bench, journal, flags.replays, [&] { return interrupt->status(); });
  const absl::StatusOr<TunedTree> tuned =
      TuneTree(batches, bench->tree_limits(), bench->shape().window, flags.tuner, &timer,
               ShowProgress(console));
  console->ClearProgress();
  if (!tuned.ok()) {
    SayHowToGoOn(*journal, timer, console);
    return tuned.status();
  }
  console->Print(TuneText(*tuned, console->width()));
  const std::string warning = TuneWarning(*tuned);
  if (!warning.empty()) console->Note(absl::StrCat("reprise tune attention: warning: ", warning));
  return WriteTree(flags, *tuned, *bench, device.properties(), invocation);
}

// Whether the device deals rows decides which batches there are.
absl::StatusOr<bool> DealsRows(runtime::Device& device, const AttentionShape& shape) {
  REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::KernelSet> kernels,
                           kernels::KernelSet::Load(device, shape.dtype));
  return TreeLimitsOf(shape, *kernels).num_shares != 0;
}

absl::Status RunTuneAttention(TuneFlags flags, const Invocation& invocation) {
  if (flags.out_file.empty()) return UsageError("--out: got nothing, allowed: a file");
  if (flags.out_file == kStdoutFile) return UsageError("--out: got \"-\", allowed: a file");
  REPRISE_ASSIGN_OR_RETURN(const AttentionShape shape, ShapeOf(flags.heads));
  REPRISE_RETURN_IF_ERROR(CheckWritable(flags.out_file, engine::kMaxAttentionTreeBytes));
  Interrupt interrupt;
  REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Device> device,
                           OpenDevice(flags.device, invocation.console));
  const bool host = device->kind() == runtime::DeviceKind::kHost;
  if (flags.pool_bytes == 0) flags.pool_bytes = DefaultPoolBytes(device->properties());
  if (flags.max_memory == 0) flags.max_memory = host ? kHostMemory : kGpuMemory;
  REPRISE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Journal> journal,
      Journal::Open(flags.journal_file, JournalHeader(flags, shape, device->properties(),
                                                      RecordOf("tune attention", invocation))));
  flags.grid.cut_prompts = flags.tuner.cut_prompts;
  flags.grid.block_size = static_cast<uint32_t>(shape.block_size);
  flags.grid.max_blocks = flags.max_memory / shape.PageBytes();
  REPRISE_ASSIGN_OR_RETURN(flags.grid.dealt, DealsRows(*device, shape));
  const TuneBatches batches = MakeTuneBatches(flags.grid);
  if (batches.rows.empty()) return NoBatchFits();
  invocation.console->Progress("filling memory", /*now=*/true);
  REPRISE_ASSIGN_OR_RETURN(
      const std::unique_ptr<AttentionBench> bench,
      AttentionBench::Create(*device, shape, batches.cells, {&AttentionCandidates()[0]},
                             {.max_context = flags.grid.max_context,
                              .pool_bytes = flags.pool_bytes,
                              .seed = flags.grid.seed}));
  return Tune(flags, batches, *device, invocation, bench.get(), journal.get(), &interrupt);
}

// ---- options ----

void AddBatchOptions(CLI::App* app, TuneFlags* flags) {
  AddOption(app, "--max-rows", &flags->grid.max_rows, CountIn(1, kMostBatchRows), "N", "128",
            "Rows of the largest batch");
  AddOption(app, "--max-context", &flags->grid.max_context, CountIn(1, kMostRowTokens), "N", "32k",
            "Tokens of the longest row, and what the graphs are captured for");
  AddOption(app, "--max-memory", &flags->max_memory, ParsePoolBytes, "SIZE", "",
            "KV of the largest batch; larger ones are left out (default: 16GiB, host 1GiB)");
  AddOption(
      app, "--decode-share", &flags->grid.decode_shares,
      [](std::string_view text) -> absl::StatusOr<std::vector<uint32_t>> {
        REPRISE_ASSIGN_OR_RETURN(const auto values, ParseUnsignedList(text, 0, 100));
        return std::vector<uint32_t>(values.begin(), values.end());
      },
      "N,N,...", "50",
      "Percentages of rows that decode in batches with chunks of prompts; 100: no such batches");
  AddOption(app, "--chunk", &flags->grid.chunk, CountIn(2, kMostRowTokens), "N", "512",
            "Query tokens of the largest chunk");
  app->add_flag("--standard-cells", flags->grid.standard,
                "Also say what batch invariance costs in every cell that Reprise is judged by");
  NameOptionGroup(app, "Batches");
}

void AddMeasuringOptions(CLI::App* app, TuneFlags* flags) {
  AddOption(
      app, "--budget", &flags->tuner.budget_seconds,
      [](std::string_view text) { return ParseDecimal(text, 0.1, 86400); }, "SECONDS", "120",
      "Time to measure for, about; batches that do not fit into it are left out");
  AddOption(app, "--replays", &flags->replays, UnsignedIn(1, 1000), "N", "5",
            "Measured replays of every candidate in a batch");
  AddOption(app, "--pool-bytes", &flags->pool_bytes, ParsePoolBytes, "SIZE", "",
            "KV that calls cycle over, more than caches hold (default: 256MiB, host 64MiB)");
  AddOption(app, "--seed", &flags->grid.seed, UnsignedIn(0, UINT64_MAX), "N", "1",
            "Of lengths, block tables and held-out batches");
  app->add_option("--journal", flags->journal_file,
                  "Write down every measurement in this file, and continue what is in it")
      ->type_name("FILE");
  NameOptionGroup(app, "Measuring");
}

void AddTreeOptions(CLI::App* app, TuneFlags* flags) {
  app->add_option("--out", flags->out_file, "Write the tree to this file")->type_name("FILE");
  AddOption(app, "--max-leaves", &flags->tuner.max_leaves, UnsignedIn(1, kMostPartLeaves), "N", "6",
            "Leaves of each part of the tree at most");
  AddOption(
      app, "--min-gain", &flags->tuner.min_gain,
      [](std::string_view text) { return ParseDecimal(text, 0, 1); }, "SHARE", "0.005",
      "What another leaf must take off the mean time");
  app->add_flag("!--no-batch-invariance", flags->tuner.batch_invariant,
                "Let rows be asked for the batch too: a row's bits then depend on its neighbours");
  app->add_flag(
      "--cut-prompts", flags->tuner.cut_prompts,
      "Let the KV of rows of a few query tokens be cut (prompt_splits): a row's bits then "
      "depend on how its prompt came in chunks");
  NameOptionGroup(app, "Tree");
}

}  // namespace

Command AddTuneAttentionCommand(CLI::App* tune) {
  auto flags = std::make_shared<TuneFlags>();
  CLI::App* app = tune->add_subcommand(
      "attention",
      "Measure how attention's plan should cut and deal rows, and write the tree that decides it");
  app->footer(kAttentionExamples);
  AddTreeOptions(app, flags.get());
  AddBatchOptions(app, flags.get());
  AddHeadOptions(app, &flags->heads);
  AddMeasuringOptions(app, flags.get());
  AddDeviceOptions(app, &flags->device);
  NameOptionGroup(app, "Device");
  return {app,
          [flags](const Invocation& invocation) { return RunTuneAttention(*flags, invocation); }};
}

}  // namespace reprise::tools
