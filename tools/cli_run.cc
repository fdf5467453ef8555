// SPDX-License-Identifier: Apache-2.0
// `reprise run`: generates through the embedded library, without a server; for trying a model and
// for measuring its steps. Rows are scheduled by the same batcher as those of `reprise sched`, all
// prompts first, so that decode steps are measured undisturbed.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "tools/cli.h"
#include "tools/console.h"
#include "tools/engine_flags.h"
#include "tools/generate_flags.h"
#include "tools/run/embedded_channel.h"
#include "tools/sched/batcher.h"
#include "tools/sched/block_manager.h"
#include "tools/sched/driver.h"
#include "tools/sched/monitor.h"
#include "tools/sched/stats.h"
#include "tools/sched/workload.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr char kExamples[] = R"(Examples:
  reprise run --model examples/byte-llama --prompt "You may copy and distribute"
  reprise run --preset llama-3.1-8b --random-prompt 512 --rows 2 --max-new-tokens 256 --ignore-eos
      --warmup 16 --bandwidth 4.70TB/s --json run.json
  reprise run --preset llama-3.1-8b --rows 64 --prompt-lengths 64..8192 --kv-cache 40GiB --ignore-eos)";

constexpr char kPromptSources[] = "--prompt, --prompt-tokens, --random-prompt or --prompt-lengths";

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
  return {
      .weights_bytes = weights,
      .kv_bytes_per_token = 2.0 * static_cast<double>(model.kv_size() * model.num_layers) * element,
      .bandwidth = bandwidth};
}

StatsOptions StatsOptionsOf(const RunFlags& flags, const engine::EngineInfo& info) {
  StatsOptions options{.warmup_steps = flags.generate.warmup_steps, .over_network = false};
  if (flags.bandwidth > 0) options.floor = FloorOf(info, flags.bandwidth);
  return options;
}

absl::Status Generate(const RunFlags& flags, engine::DecodeEngine* engine, Console* console) {
  const ServerInfo server = ServerInfoOf(*engine);
  REPRISE_ASSIGN_OR_RETURN(std::vector<Request> requests,
                           MakeWorkload(flags.generate.workload, server));
  EmbeddedChannel channel(engine);
  BlockManager blocks(&channel, {});
  Batcher batcher(server, {.prefill_first = true, .eager = flags.generate.eager}, &blocks);
  Stats stats(StatsOptionsOf(flags, engine->info()));
  std::optional<Transcript> transcript;
  if (ShowsText(flags.generate)) {
    transcript.emplace(console, server.byte_tokens, requests.size() > 1);
  }
  Monitor monitor(console, &stats, std::move(transcript));
  SteadyClock clock;
  Driver driver(&batcher, &blocks, &channel, &clock, &monitor,
                {.pipeline_depth = server.limits.pipeline_depth});
  REPRISE_RETURN_IF_ERROR(driver.Run(&requests));
  stats.AddRequests(requests, clock.NowNs());
  console->Print(absl::StrCat("\n", ChancesToText(requests), stats.ToText()));
  if (!flags.generate.json_file.empty()) {
    REPRISE_RETURN_IF_ERROR(WriteJsonFile(
        flags.generate.json_file, {{"command", "run"},
                                   {"version", REPRISE_VERSION},
                                   {"engine", EngineToJson(*engine)},
                                   {"figures", stats.ToJson()},
                                   {"requests", RequestsToJson(requests, server.byte_tokens)}}));
  }
  return FailureOf(requests);
}

absl::Status Run(const RunFlags& flags) {
  REPRISE_RETURN_IF_ERROR(CheckSource(flags.engine.source));
  REPRISE_RETURN_IF_ERROR(CheckPrompts(flags.generate.workload, 0, kPromptSources));
  if (!flags.generate.json_file.empty()) {
    REPRISE_RETURN_IF_ERROR(CheckWritable(flags.generate.json_file));
  }
  Console console;
  REPRISE_ASSIGN_OR_RETURN(const LoadedEngine loaded, LoadEngine(flags.engine, &console));
  return Generate(flags, loaded.engine.get(), &console);
}

void AddRowOptions(CLI::App* app, WorkloadOptions* workload) {
  app->add_option_function<std::string>(
         "--random-prompt",
         [workload](const std::string& text) {
           const auto length = ParseUnsigned(text, 1, 1u << 24);
           if (!length.ok()) {
             throw CLI::ValidationError("--random-prompt", std::string(length.status().message()));
           }
           workload->random_prompts = true;
           workload->prompt_lengths.fixed = {static_cast<uint32_t>(*length)};
         },
         "Random prompts of this many tokens each")
      ->type_name("N");
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
  app->footer(kExamples);
  AddRowOptions(app, &flags->generate.workload);
  AddGenerateOptions(app, &flags->generate);
  AddOption(app, "--bandwidth", &flags->bandwidth, ParseBandwidth, "SIZE/s", "",
            "Memory bandwidth, such as 4.70TB/s: shows each decode step beside its floor")
      ->group("Measuring");
  AddEngineOptions(app, &flags->engine);
  return {app, [flags] { return Run(*flags); }};
}

}  // namespace reprise::tools
