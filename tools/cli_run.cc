// SPDX-License-Identifier: Apache-2.0
// `reprise run`: generates through the embedded library, without a server; for trying a model and
// for measuring its steps. Rows are scheduled by the same batcher as those of `reprise sched`, all
// prompts first, so that decode steps are measured undisturbed.
#include <memory>
#include <string>
#include <utility>

#include "runtime/status_macros.h"
#include "tools/cli.h"
#include "tools/engine_flags.h"
#include "tools/generate.h"
#include "tools/generate_flags.h"
#include "tools/record.h"
#include "tools/run/embedded_channel.h"
#include "tools/signals.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr char kRunExamples[] =
    "Examples:\n"
    "  reprise run --model examples/byte-llama --prompt \"You may copy and distribute\"\n"
    "  reprise run --preset llama-3.1-8b --random-prompts 512 --rows 2 --max-new-tokens 256 "
    "--ignore-eos --warmup 16 --bandwidth 4.70TB/s --json run.json\n"
    "  reprise run --preset llama-3.1-8b --rows 64 --random-prompts 64..8192 --kv-cache 40GiB "
    "--ignore-eos\n"
    "  reprise run --model examples/byte-llama --prompts-file prompts.txt --quiet --json-lines "
    "results.jsonl\n"
    "\n"
    "A signal (Ctrl-C) ends it with the figures of what was generated so far; a second one ends "
    "it at once.";

constexpr char kPromptSources[] =
    "--prompt, --prompts-file, --prompt-tokens, --prompt-tokens-file or --random-prompts";

struct RunFlags {
  EngineFlags engine;
  GenerateFlags generate;
  double bandwidth = 0;  // bytes per second; 0: no floor
};

// Weights that a decode step reads: all but an embedding table that is not also the output layer;
// of that it reads a row per token.
Floor FloorOf(const engine::EngineInfo& info, double bandwidth) {
  const models::ModelSpec& model = info.model;
  const auto element = static_cast<double>(runtime::SizeOf(info.dtype));
  double weights = static_cast<double>(info.memory.weights_bytes);
  if (!model.tie_word_embeddings) {
    weights -= static_cast<double>(model.vocab_size * model.hidden_size) * element;
  }
  return {.weights_bytes = weights,
          .kv_bytes_per_token = 2.0 *
                                static_cast<double>(model.kv_size() * model.NumAttentionLayers()) *
                                static_cast<double>(runtime::SizeOf(info.kv_dtype)),
          .bandwidth = bandwidth};
}

StatsOptions StatsOptionsOf(const RunFlags& flags, const engine::EngineInfo& info) {
  StatsOptions options{.warmup_steps = flags.generate.warmup_steps, .over_network = false};
  if (flags.bandwidth > 0) options.floor = FloorOf(info, flags.bandwidth);
  return options;
}

absl::Status Run(const RunFlags& flags, const Invocation& invocation) {
  REPRISE_RETURN_IF_ERROR(CheckSource(flags.engine.source));
  REPRISE_RETURN_IF_ERROR(CheckGenerateFlags(flags.generate, 0, kPromptSources));
  REPRISE_ASSIGN_OR_RETURN(const WorkloadOptions workload, ReadWorkload(flags.generate));
  REPRISE_RETURN_IF_ERROR(PrepareRecord(flags.generate.json_file, invocation.console));
  REPRISE_RETURN_IF_ERROR(PrepareRecord(flags.generate.json_lines_file, invocation.console));
  Interrupt interrupt;
  REPRISE_ASSIGN_OR_RETURN(const LoadedEngine loaded, LoadEngine(flags.engine, invocation.console));
  EmbeddedChannel channel(loaded.engine.get());
  Generation generation{.workload = workload,
                        .shows_text = ShowsText(flags.generate),
                        .json_file = flags.generate.json_file,
                        .json_lines_file = flags.generate.json_lines_file,
                        .server = ServerInfoOf(*loaded.engine),
                        .batcher = {.prefill_first = true,
                                    .eager = flags.generate.eager,
                                    .steps_per_request = flags.generate.steps_per_request},
                        .stats = StatsOptionsOf(flags, loaded.engine->info()),
                        .channel = &channel,
                        .source = &channel,
                        .record = RecordOf("run", invocation)};
  generation.driver.pipeline_depth = generation.server.limits.pipeline_depth;
  generation.record["schema"] = "reprise.run/1";
  generation.record["engine"] = EngineToJson(loaded);
  return Generate(std::move(generation), &interrupt, invocation.console);
}

void AddRowOptions(CLI::App* app, WorkloadOptions* workload) {
  AddOption(
      app, "--rows", &workload->num_requests,
      [](std::string_view text) { return ParseUnsigned(text, 1, 1u << 20); }, "N", "",
      "Rows to generate together, repeating the prompts (default: one per prompt)");
}

}  // namespace

Command AddRunCommand(CLI::App* root) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* app =
      root->add_subcommand("run", "Generate and measure in this process, without a server");
  app->footer(kRunExamples);
  AddRowOptions(app, &flags->generate.workload);
  AddGenerateOptions(app, &flags->generate);
  AddOption(app, "--bandwidth", &flags->bandwidth, ParseBandwidth, "SIZE/s", "",
            "Memory bandwidth, such as 4.70TB/s: shows each decode step beside its floor")
      ->group("Measuring");
  AddEngineOptions(app, &flags->engine, /*offers_simulation=*/true);
  return {app, [flags](const Invocation& invocation) {
            flags->engine.engine.max_steps_per_request = flags->generate.steps_per_request;
            return Run(*flags, invocation);
          }};
}

}  // namespace reprise::tools
