// SPDX-License-Identifier: Apache-2.0
#include "tools/generate.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "tools/bench/svg_chart.h"
#include "tools/record.h"
#include "tools/sched/block_manager.h"
#include "tools/sched/monitor.h"
#include "tools/sched/result_lines.h"
#include "tools/sched/run_chart.h"
#include "tools/sched/workload.h"

namespace reprise::tools {
namespace {

std::optional<Transcript> MakeTranscript(const Generation& generation, bool several,
                                         Console* console) {
  if (!generation.shows_text) return std::nullopt;
  if (!generation.server.byte_tokens) {
    console->Note(
        "tokens are shown as ids: text needs the model's own tokenizer, which Reprise has not");
  }
  return std::make_optional<Transcript>(console, generation.server.byte_tokens, several);
}

// Marks requests that can never run, before any does. Errors: FailureOf them.
absl::Status CheckRequests(const Batcher& batcher, std::vector<Request>* requests,
                           ResultLines* lines) {
  for (Request& request : *requests) {
    const absl::Status status = batcher.Check(request);
    if (status.ok()) continue;
    request.finish = FinishReason::kNoCandidate;
    request.error = std::string(status.message());
    lines->Add(request);
  }
  return FailureOf(*requests);
}

// A signal explains whatever else went wrong.
absl::Status Cause(const absl::Status& status, const Interrupt& interrupt) {
  if (status.ok()) return status;
  const absl::Status signal = interrupt.status();
  return signal.ok() ? status : signal;
}

void PrintFigures(const std::vector<Request>& requests, const Stats& stats, Console* console) {
  console->EndLine();
  if (stats.num_steps() == 0) return;
  const size_t width = console->width();
  console->Print(absl::StrCat("\n", ChancesToText(requests, width), stats.ToText(width)));
}

}  // namespace

absl::Status Generate(Generation generation, Interrupt* interrupt, Console* console) {
  const ServerInfo& server = generation.server;
  REPRISE_RETURN_IF_ERROR(CheckBatcherOptions(server, generation.batcher));
  REPRISE_ASSIGN_OR_RETURN(std::vector<Request> requests,
                           MakeWorkload(generation.workload, server));
  REPRISE_ASSIGN_OR_RETURN(RecordLines file,
                           RecordLines::Open(generation.json_lines_file, console));
  ResultLines lines(std::move(file), server.byte_tokens);
  BlockManagerOptions block_options;
  if (server.max_kv_blocks_per_call != 0) block_options.max_swap = server.max_kv_blocks_per_call;
  BlockManager blocks(generation.source, block_options);
  Batcher batcher(server, generation.batcher, &blocks);
  Stats stats(generation.stats);
  Monitor monitor(console, &stats, &lines,
                  MakeTranscript(generation, requests.size() > 1, console));
  SteadyClock clock;
  generation.driver.interrupted = &interrupt->requested();
  Driver driver(&batcher, &blocks, generation.channel, &clock, &monitor, generation.driver);
  interrupt->Arm();
  absl::Status status = CheckRequests(batcher, &requests, &lines);
  if (status.ok()) status = Cause(driver.Run(&requests), *interrupt);
  const uint64_t wall_ns = clock.NowNs();
  stats.AddRequests(requests, wall_ns);
  console->ClearProgress();
  PrintFigures(requests, stats, console);
  if (status.ok() || interrupt->requested()) {
    const absl::Status closed = generation.close();
    if (status.ok()) status = closed;
  }
  if (status.ok()) status = FailureOf(requests);
  generation.record["figures"] = stats.ToJson();
  // Of a hundred thousand requests that takes seconds.
  if (!generation.json_file.empty())
    generation.record["requests"] = RequestsToJson(requests, server.byte_tokens);
  generation.record["error"] = nullptr;
  if (!status.ok()) generation.record["error"] = std::string(status.message());
  absl::Status written = lines.Close(requests);
  written.Update(WriteRecord(generation.json_file, generation.record, console));
  if (!generation.svg_file.empty()) {
    const Chart chart = RunChart(requests, wall_ns, generation.title);
    written.Update(WriteText(generation.svg_file, ToSvg(chart)));
  }
  return status.ok() ? written : status;
}

}  // namespace reprise::tools
