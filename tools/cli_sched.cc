// SPDX-License-Identifier: Apache-2.0
// `reprise sched`: the reference external scheduler. It is a client like any other: it talks to the
// server through reprise.v1 alone, so that of the engine nothing but the headers of its vocabulary
// may be included here or in sched/ (tests/tools/scheduler_includes_test.cc lists them).
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "tools/cli.h"
#include "tools/connection_flags.h"
#include "tools/generate.h"
#include "tools/generate_flags.h"
#include "tools/record.h"
#include "tools/sched/client.h"
#include "tools/sched/drain_limit.h"
#include "tools/sched/workload.h"
#include "tools/signals.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr char kSchedExamples[] =
    "Examples:\n"
    "  reprise sched --demo\n"
    "  reprise sched --address unix:/tmp/reprise.sock --prompt \"You may copy and distribute\"\n"
    "  reprise sched --prompts-file prompts.txt --rate 20 --max-new-tokens 200\n"
    "  reprise sched --arrivals trace.csv --ignore-eos --slo-ttft 1s --slo-tpot 50ms --svg "
    "sched.svg\n"
    "  reprise sched --prompts-file prompts.txt --max-new-tokens 200 --draft ngram:4,8\n"
    "  reprise sched --requests 64 --random-prompts 64..8192 --max-new-tokens 256 --ignore-eos "
    "--json sched.json\n"
    "\n"
    "A signal (Ctrl-C) ends it with the figures of what was generated so far; a second one ends "
    "it at once.";

constexpr char kPromptSources[] =
    "--prompt, --prompts-file, --prompt-tokens, --prompt-tokens-file, --random-prompts, --demo, "
    "--arrivals FILE";

struct SchedFlags {
  ConnectionOptions connection;
  std::chrono::nanoseconds wait = std::chrono::seconds(5);
  std::chrono::nanoseconds timeout{0};
  std::chrono::nanoseconds resume_grace = std::chrono::seconds(10);
  std::chrono::nanoseconds reopen = std::chrono::seconds(10);
  GenerateFlags generate;
  bool demo = false;
  double rate = 0;
  std::string arrivals;  // a kind, or a file
  std::vector<int32_t> priorities;
  std::chrono::nanoseconds slo_ttft{0};
  std::chrono::nanoseconds slo_tpot{0};
  std::string svg_file;
  BatcherOptions batcher;
  uint32_t pipeline_depth = 2;
};

// None: it is not one of them.
std::optional<Arrivals> ParseArrivals(std::string_view text) {
  if (text == "together") return Arrivals::kTogether;
  if (text == "fixed") return Arrivals::kFixed;
  if (text == "poisson") return Arrivals::kPoisson;
  return std::nullopt;
}

absl::StatusOr<Preemption> ParsePreemption(std::string_view text) {
  if (text == "recompute") return Preemption::kRecompute;
  if (text == "swap") return Preemption::kSwap;
  return absl::InvalidArgumentError(
      absl::StrCat("preempt: got \"", std::string(text), "\", allowed: recompute, swap"));
}

absl::StatusOr<std::vector<int32_t>> ParsePriorities(std::string_view text) {
  REPRISE_ASSIGN_OR_RETURN(const auto values, ParseUnsignedList(text, 0, 1u << 30));
  return std::vector<int32_t>(values.begin(), values.end());
}

absl::StatusOr<std::vector<TracedRequest>> ReadTrace(const SchedFlags& flags) {
  absl::StatusOr<std::vector<TracedRequest>> trace = ReadArrivalTrace(flags.arrivals);
  if (absl::IsNotFound(trace.status())) {
    return UsageError(absl::StrCat("arrivals: ", trace.status().message(),
                                   ", allowed: together, fixed, poisson, or a file"));
  }
  if (!trace.ok())
    return absl::Status(trace.status().code(),
                        absl::StrCat("arrivals: ", trace.status().message()));
  if (flags.rate != 0) return UsageError("rate: got one beside an arrival trace, allowed: none");
  if (!flags.priorities.empty())
    return UsageError("priorities: got some beside an arrival trace, allowed: those in it");
  return trace;
}

absl::StatusOr<WorkloadOptions> WorkloadOf(const SchedFlags& flags) {
  const std::optional<Arrivals> arrivals = ParseArrivals(flags.arrivals);
  const bool traced = !flags.arrivals.empty() && !arrivals;
  std::vector<TracedRequest> trace;
  if (traced) {
    REPRISE_ASSIGN_OR_RETURN(trace, ReadTrace(flags));
  }
  const int others = static_cast<int>(flags.demo) + static_cast<int>(traced);
  REPRISE_RETURN_IF_ERROR(CheckGenerateFlags(flags.generate, others, kPromptSources));
  REPRISE_ASSIGN_OR_RETURN(WorkloadOptions workload, ReadWorkload(flags.generate));
  workload.trace = std::move(trace);
  if (traced) return workload;
  workload.priorities = flags.priorities;
  workload.rate = flags.rate;
  if (flags.demo) {
    workload.texts = DemoPrompts();
    if (workload.rate == 0) workload.rate = 16;
    if (workload.num_requests == 0) workload.num_requests = 24;
  }
  workload.arrivals =
      arrivals.value_or(workload.rate > 0 ? Arrivals::kPoisson : Arrivals::kTogether);
  if (workload.arrivals != Arrivals::kTogether && workload.rate == 0) {
    return UsageError("arrivals: got no --rate, allowed: requests per second above 0");
  }
  return workload;
}

std::string ServerText(const v1::DescribeResponse& server, const std::string& address) {
  return absl::StrCat("connected to ", address, ": ", server.model().name(), " (",
                      server.model().dtype(), ", KV ", server.model().kv_dtype(), ") on ",
                      server.device().kind(), " (", server.device().name(), "), ",
                      FormatCount(server.limits().max_rows()), " rows, ",
                      FormatCount(server.pool().free_blocks()), " free blocks of ",
                      server.pool().block_size(), " tokens");
}

nlohmann::json ServerToJson(const v1::DescribeResponse& server) {
  return {{"model", server.model().name()},
          {"dtype", server.model().dtype()},
          {"kv_dtype", server.model().kv_dtype()},
          {"device",
           {{"kind", server.device().kind()},
            {"name", server.device().name()},
            {"driver", server.device().driver()}}},
          {"linear", server.linear_policy()},
          {"version", server.server_version()}};
}

absl::StatusOr<std::unique_ptr<GrpcClient>> Connect(const SchedFlags& flags,
                                                    const Interrupt& interrupt, Console* console) {
  const auto note = [console](const std::string& what) {
    console->Note(absl::StrCat("reprise sched: ", what));
  };
  using std::chrono::milliseconds;
  absl::StatusOr<std::unique_ptr<GrpcClient>> client =
      GrpcClient::Connect({.connection = flags.connection,
                           .name = absl::StrCat("reprise sched ", REPRISE_VERSION),
                           .wait = flags.wait,
                           .timeout = flags.timeout,
                           .resume_grace = duration_cast<milliseconds>(flags.resume_grace),
                           .reopen = duration_cast<milliseconds>(flags.reopen),
                           .note = note,
                           .interrupted = &interrupt.requested()});
  if (!client.ok()) REPRISE_RETURN_IF_ERROR(interrupt.status());
  return client;
}

uint64_t Nanoseconds(std::chrono::nanoseconds time) { return static_cast<uint64_t>(time.count()); }

absl::Status Sched(const SchedFlags& flags, const Invocation& invocation) {
  if (flags.batcher.eager && flags.batcher.steps_per_request != 1) {
    return UsageError(absl::StrCat("steps-per-request: got ", flags.batcher.steps_per_request,
                                   " with --eager, allowed with it: 1"));
  }
  REPRISE_RETURN_IF_ERROR(CheckConnectionOptions(flags.connection));
  REPRISE_ASSIGN_OR_RETURN(const WorkloadOptions workload, WorkloadOf(flags));
  if (flags.svg_file == kStdoutFile) return UsageError("--svg: got \"-\", allowed: a file");
  REPRISE_RETURN_IF_ERROR(PrepareRecord(flags.generate.json_file, invocation.console));
  REPRISE_RETURN_IF_ERROR(PrepareRecord(flags.generate.json_lines_file, invocation.console));
  REPRISE_RETURN_IF_ERROR(PrepareRecord(flags.svg_file, invocation.console));
  Interrupt interrupt;
  REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<GrpcClient> client,
                           Connect(flags, interrupt, invocation.console));
  const DrainLimit limit(client.get(), &interrupt.requested());
  invocation.console->Note(ServerText(client->description(), flags.connection.address));
  Generation generation{
      .workload = workload,
      .shows_text = ShowsText(flags.generate) && workload.trace.empty(),
      .json_file = flags.generate.json_file,
      .json_lines_file = flags.generate.json_lines_file,
      .svg_file = flags.svg_file,
      .title = absl::StrCat("reprise sched: ", client->description().model().name(), " on ",
                            client->description().device().name()),
      .server = ServerInfoOf(client->description()),
      .batcher = flags.batcher,
      .stats = {.warmup_steps = flags.generate.warmup_steps,
                .bounds = {.ttft_ns = Nanoseconds(flags.slo_ttft),
                           .tpot_ns = Nanoseconds(flags.slo_tpot)}},
      .driver = {.timeout_ns = Nanoseconds(flags.timeout)},
      .channel = client.get(),
      .source = client.get(),
      .close = [&client] { return client->Close(); },
      .record = RecordOf("sched", invocation)};
  generation.driver.pipeline_depth =
      std::min(flags.pipeline_depth, generation.server.limits.pipeline_depth);
  generation.record["schema"] = "reprise.sched/1";
  generation.record["server"] = ServerToJson(client->description());
  return Generate(std::move(generation), &interrupt, invocation.console);
}

void AddServerOptions(CLI::App* app, SchedFlags* flags) {
  AddAddressOption(app, &flags->connection);
  AddOption(app, "--wait", &flags->wait, ParseDuration, "TIME", "5s",
            "Wait this long for the server to become ready");
  AddOption(app, "--timeout", &flags->timeout, ParseDuration, "TIME", "0",
            "Give up when the whole run takes longer; 0: never");
  AddOption(app, "--resume-grace", &flags->resume_grace, ParseDuration, "TIME", "10s",
            "Where the connection is lost, try to go on with the session for this long, as far as "
            "the server allows; 0: not at all");
  AddOption(app, "--reopen", &flags->reopen, ParseDuration, "TIME", "10s",
            "Where the session is lost with its server, wait this long for one at the same "
            "address, and begin again there with all requests that have not finished; 0: not at "
            "all");
  AddProofOptions(app, &flags->connection);
}

void AddWorkloadOptions(CLI::App* app, SchedFlags* flags) {
  app->add_flag("--demo", flags->demo,
                "Built-in prompts for the model that ships with Reprise: 24 requests, 16 a second, "
                "at most 64 "
                "tokens in a step with prompts");
  WorkloadOptions* workload = &flags->generate.workload;
  AddOption(
      app, "--requests", &workload->num_requests,
      [](std::string_view text) { return ParseUnsigned(text, 1, 1u << 24); }, "N", "",
      "Requests in all, repeating the prompts (default: one per prompt)");
  AddOption(
      app, "--rate", &flags->rate,
      [](std::string_view text) { return ParseDecimal(text, 1e-3, 1e6); }, "R", "",
      "Requests per second (default: all at the start)");
  app->add_option(
         "--arrivals", flags->arrivals,
         "How requests come (default: together, poisson with --rate), or a trace: a file of "
         "arrival times, lengths and priorities, as CSV or lines of JSON, whose prompts are "
         "random")
      ->type_name("together|fixed|poisson|FILE");
  AddOption(app, "--priorities", &flags->priorities, ParsePriorities, "N,N,...", "0",
            "Priorities of the requests, in turn; higher ones go first");
}

void AddPolicyOptions(CLI::App* app, SchedFlags* flags) {
  AddOption(
      app, "--max-rows", &flags->batcher.max_rows,
      [](std::string_view text) { return ParseUnsigned(text, 1, 1u << 16); }, "N", "",
      "Rows resident at once (default: what the server allows)");
  AddOption(
      app, "--step-tokens", &flags->batcher.step_tokens,
      [](std::string_view text) { return ParseUnsigned(text, 1, 1u << 24); }, "N", "",
      "Token budget of a step with prompts (default: what the server allows)");
  AddOption(
      app, "--pipeline-depth", &flags->pipeline_depth,
      [](std::string_view text) { return ParseUnsigned(text, 1, 64); }, "N", "2",
      "Steps in flight, as far as the server allows");
  AddOption(
      app, "--preempt", &flags->batcher.preemption, ParsePreemption, "recompute|swap", "recompute",
      "What becomes of the KV of a row that is preempted; swap: it goes to the server's swap space "
      "as far as there is room");
  AddOption(
      app, "--draft", &flags->batcher.draft, ParseDraft, "ngram[:N,K]", "",
      absl::StrCat("Let rows bring drafts that steps verify: where a row's last N tokens have "
                   "come before, in its prompt or behind it, the K that followed them there (",
                   NameOf(kDefaultNgram), " unless set)"));
}

void AddMeasuringOptions(CLI::App* app, SchedFlags* flags) {
  AddOption(app, "--slo-ttft", &flags->slo_ttft, ParseDuration, "TIME", "0",
            "Goodput: requests whose first token comes within this time of their arrival; 0: "
            "whenever");
  AddOption(app, "--slo-tpot", &flags->slo_tpot, ParseDuration, "TIME", "0",
            "Goodput: requests whose further tokens take this time each on average; 0: any");
  app->add_option("--svg", flags->svg_file, "Write a chart of the run to this file too")
      ->type_name("FILE");
}

}  // namespace

Command AddSchedCommand(CLI::App* root) {
  auto flags = std::make_shared<SchedFlags>();
  CLI::App* app = root->add_subcommand("sched", "Drive a server: the reference external scheduler");
  app->footer(kSchedExamples);
  AddServerOptions(app, flags.get());
  NameOptionGroup(app, "Server");
  AddWorkloadOptions(app, flags.get());
  AddGenerateOptions(app, &flags->generate);
  AddMeasuringOptions(app, flags.get());
  NameOptionGroup(app, "Measuring");
  AddPolicyOptions(app, flags.get());
  NameOptionGroup(app, "Scheduling");
  return {app, [flags](const Invocation& invocation) {
            flags->batcher.eager = flags->generate.eager;
            flags->batcher.steps_per_request = flags->generate.steps_per_request;
            // Small enough that prompts are cut into chunks, so that a demo shows it.
            if (flags->demo && flags->batcher.step_tokens == 0) flags->batcher.step_tokens = 64;
            return Sched(*flags, invocation);
          }};
}

}  // namespace reprise::tools
