// SPDX-License-Identifier: Apache-2.0
// `reprise tune linear`: finds, for the linear layers of a model and the rows of its buckets, where
// another kernel of the same bits is faster than the built-in choice, and writes the table that
// says so.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/linear_table_text.h"
#include "engine/resolved_options.h"
#include "kernels/linear/linear_choice.h"
#include "runtime/status_macros.h"
#include "tools/atomic_file.h"
#include "tools/bench/bench_flags.h"
#include "tools/bench/linear_bench.h"
#include "tools/bench/linear_flags.h"
#include "tools/cli.h"
#include "tools/console.h"
#include "tools/device_flags.h"
#include "tools/engine_flags.h"
#include "tools/record.h"
#include "tools/signals.h"
#include "tools/table.h"
#include "tools/tune/linear_timer.h"
#include "tools/tune/linear_tune_report.h"
#include "tools/tune/linear_tuner.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr char kTuneLinearExamples[] =
    "Examples:\n"
    "  reprise tune linear --device cuda --preset llama-3.1-8b --out table.json\n"
    "  reprise tune linear --model examples/byte-llama --rows 1,8 --out table.json\n"
    "\n"
    "docs/tune_linear.md says how it measures and what it writes; --linear-table of `reprise "
    "serve` and others takes the table.";

struct TuneLinearFlags {
  LinearShapeFlags shapes;
  engine::LinearPolicy linear = engine::LinearPolicy::kTuned;
  LinearBenchOptions bench;
  LinearTunerOptions tuner;
  DeviceFlags device;
  std::string out_file;
};

absl::StatusOr<engine::LinearPolicy> ParseTunedLinear(std::string_view text) {
  const absl::StatusOr<engine::LinearPolicy> policy = ParseLinear(text);
  if (policy.ok() && *policy != engine::LinearPolicy::kPortable) return policy;
  return absl::InvalidArgumentError(
      absl::StrCat("linear: got \"", std::string(text), "\", allowed: tuned, row-major, packed"));
}

const LinearCandidateEntry& CandidateOf(engine::LinearPolicy policy) {
  const auto layout = policy == engine::LinearPolicy::kPacked ? kernels::WeightLayout::kPacked
                                                              : kernels::WeightLayout::kRowMajor;
  const auto all = LinearCandidates();
  return *std::find_if(all.begin(), all.end(),
                       [&](const LinearCandidateEntry& entry) { return entry.layout == layout; });
}

bool InWholeTiles(const LinearShape& shape) {
  return shape.out_features % kernels::kPackedTileOutputs == 0 &&
         shape.in_features % kernels::kPackedTileInputs == 0;
}

// Each shape of a format once, which is what a table asks for, and of packed weights those in whole
// tiles, which is what a benchmark has memory for. left_out: names of these.
std::vector<LinearShape> ShapesToTune(const std::vector<LinearShape>& shapes, bool packed,
                                      std::vector<std::string>* left_out) {
  std::vector<LinearShape> kept;
  for (const LinearShape& shape : shapes) {
    const bool again = std::any_of(kept.begin(), kept.end(), [&](const LinearShape& other) {
      return other.out_features == shape.out_features && other.in_features == shape.in_features &&
             other.format == shape.format && other.group_size == shape.group_size;
    });
    if (packed && !InWholeTiles(shape)) {
      left_out->push_back(absl::StrCat(shape.name, " of ", shape.SizeText()));
    } else if (!again) {
      kept.push_back(shape);
    }
  }
  return kept;
}

nlohmann::json SettingsOf(const TuneLinearFlags& flags, engine::LinearPolicy policy) {
  return {{"linear", std::string(NameOf(policy))},
          {"rows", flags.bench.rows},
          {"rounds", flags.tuner.rounds},
          {"replays", flags.tuner.replays},
          {"calls", flags.bench.calls},
          {"pool_bytes", flags.bench.pool_bytes},
          {"seed", flags.bench.seed}};
}

std::string Header(const LinearShapes& of, const std::vector<LinearShape>& shapes,
                   engine::LinearPolicy policy, const runtime::DeviceProperties& device,
                   size_t width) {
  Table table({});
  table.AlignLeft();
  if (!of.model.name.empty()) table.AddRow({"model", of.model.name});
  std::vector<std::string> names;
  for (const LinearShape& shape : shapes)
    names.push_back(absl::StrCat(shape.name, shape.per_step == 0 ? "" : " ",
                                 shape.per_step == 0 ? "" : shape.SizeText()));
  table.AddRow({"linear", absl::StrCat(absl::StrJoin(names, ", "), "; activations of ",
                                       std::string(runtime::NameOf(of.dtype)), ", weights ",
                                       std::string(NameOf(policy)))});
  table.AddRow({"device", DeviceText(device)});
  return absl::StrCat(table.ToString(width), "\n");
}

LinearTuneProgressFn ShowProgress(const std::vector<LinearShape>& shapes,
                                  const Interrupt& interrupt, Console* console) {
  return [&shapes, &interrupt, console](const LinearTuneProgress& at) {
    console->Progress(absl::StrCat(
        "tune ",
        ProgressBar(static_cast<double>(at.done), static_cast<double>(at.total), 20, *console), " ",
        at.done, " / ", at.total, " cells, ", shapes[at.shape].name, " with ", at.rows,
        at.rows == 1 ? " row" : " rows"));
    return interrupt.status();
  };
}

absl::Status WriteTable(const TuneLinearFlags& flags, const TunedLinear& tuned,
                        const std::vector<LinearShape>& shapes, engine::LinearPolicy policy,
                        runtime::DType dtype, runtime::Device& device,
                        const Invocation& invocation) {
  const engine::NamedLinearTable named{
      .device = device.properties().name, .dtype = dtype, .table = tuned.TableOf(shapes)};
  const nlohmann::json notes =
      LinearTuneNotes(tuned, shapes, RecordOf("tune linear", invocation),
                      DeviceToJson(device.properties()), SettingsOf(flags, policy));
  const std::string text = engine::LinearTableText(
      named, notes.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  // What cannot be read back is not left for a server to find out.
  REPRISE_ASSIGN_OR_RETURN(const engine::NamedLinearTable read, engine::ParseLinearTable(text));
  REPRISE_ASSIGN_OR_RETURN(const auto kernels, kernels::KernelSet::Load(device, dtype));
  REPRISE_RETURN_IF_ERROR(kernels::CheckLinearTable(*kernels, read.table));
  REPRISE_RETURN_IF_ERROR(WriteAtomically(flags.out_file, text));
  invocation.console->Note(absl::StrCat("written: ", flags.out_file));
  return absl::OkStatus();
}

absl::Status Tune(const TuneLinearFlags& flags, const LinearShapes& of, engine::LinearPolicy policy,
                  runtime::Device& device, Interrupt* interrupt, const Invocation& invocation) {
  Console* console = invocation.console;
  std::vector<std::string> left_out;
  const std::vector<LinearShape> shapes =
      ShapesToTune(of.shapes, policy == engine::LinearPolicy::kPacked, &left_out);
  console->Print(Header(of, shapes, policy, device.properties(), console->width()));
  if (!left_out.empty())
    console->Note(absl::StrCat("left out: ", absl::StrJoin(left_out, ", "),
                               ": packed weights are measured in multiples of ",
                               kernels::kPackedTileOutputs, "x", kernels::kPackedTileInputs));
  REPRISE_ASSIGN_OR_RETURN(
      const std::unique_ptr<BenchLinearTimer> timer,
      BenchLinearTimer::Create(device, shapes, CandidateOf(policy), flags.bench));
  interrupt->Arm();
  const absl::StatusOr<TunedLinear> tuned =
      TuneLinear(shapes.size(), flags.bench.rows, flags.tuner, timer.get(),
                 ShowProgress(shapes, *interrupt, console));
  console->ClearProgress();
  REPRISE_RETURN_IF_ERROR(tuned.status());
  console->Print(LinearTuneText(*tuned, shapes, device.properties().name, console->width()));
  const std::string warning = LinearTuneWarning(*tuned);
  if (!warning.empty()) console->Note(absl::StrCat("reprise tune linear: warning: ", warning));
  return WriteTable(flags, *tuned, shapes, policy, of.dtype, device, invocation);
}

absl::Status RunTuneLinear(TuneLinearFlags flags, const Invocation& invocation) {
  if (flags.out_file.empty()) return UsageError("--out: got nothing, allowed: a file");
  if (flags.out_file == kStdoutFile) return UsageError("--out: got \"-\", allowed: a file");
  REPRISE_ASSIGN_OR_RETURN(const LinearShapes of, ShapesOf(flags.shapes));
  flags.bench.dtype = of.dtype;
  flags.tuner.seed = flags.bench.seed;
  REPRISE_RETURN_IF_ERROR(CheckWritable(flags.out_file, engine::kMaxLinearTableBytes));
  Interrupt interrupt;
  REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Device> device,
                           OpenDevice(flags.device, invocation.console));
  engine::DecodeEngineOptions options{.dtype = of.dtype, .linear = flags.linear};
  options.linear = engine::ResolveLinear(options, of.model, device->properties());
  REPRISE_RETURN_IF_ERROR(engine::CheckLinear(options, device->properties()));
  return Tune(flags, of, options.linear, *device, &interrupt, invocation);
}

void AddTableOptions(CLI::App* app, TuneLinearFlags* flags) {
  app->add_option("--out", flags->out_file, "Write the table to this file")->type_name("FILE");
  AddOption(app, "--linear", &flags->linear, ParseTunedLinear, "POLICY", "tuned",
            "How weights lie in the engine that takes the table: tuned (packed on sm_90, else "
            "row-major), row-major, packed");
  NameOptionGroup(app, "Table");
}

void AddMeasuringOptions(CLI::App* app, TuneLinearFlags* flags) {
  AddOption(app, "--rounds", &flags->tuner.rounds, UnsignedIn(1, 1000), "N", "5",
            "Rounds over the kernels of a shape and a number of rows, each in another order");
  AddOption(app, "--replays", &flags->tuner.replays, UnsignedIn(1, 1000), "N", "5",
            "Measured replays of every kernel in a round");
  AddOption(app, "--calls", &flags->bench.calls, UnsignedIn(1, 4096), "N", "",
            "Calls of a shape in a graph (default: as many as a step has, and so many that they "
            "read more than caches hold, at most 512)");
  AddOption(app, "--pool-bytes", &flags->bench.pool_bytes, ParsePoolBytes, "SIZE", "",
            "Weights that calls cycle over, at least the largest one (default: all of the model's "
            "that fit, on the host up to 512MiB of them, but at least 256MiB, host 64MiB)");
  AddOption(app, "--seed", &flags->bench.seed, UnsignedIn(0, UINT64_MAX), "N", "1",
            "Of weights, inputs, and the order of kernels");
  NameOptionGroup(app, "Measuring");
}

}  // namespace

Command AddTuneLinearCommand(CLI::App* tune) {
  auto flags = std::make_shared<TuneLinearFlags>();
  CLI::App* app = tune->add_subcommand(
      "linear",
      "Measure which kernels linear layers should take, and write the table that decides it");
  app->footer(kTuneLinearExamples);
  AddTableOptions(app, flags.get());
  AddLinearShapeOptions(app, &flags->shapes, &flags->bench.rows);
  AddMeasuringOptions(app, flags.get());
  AddDeviceOptions(app, &flags->device);
  NameOptionGroup(app, "Device");
  return {app, [flags](const Invocation& invocation) { return RunTuneLinear(*flags, invocation); }};
}

}  // namespace reprise::tools
