// SPDX-License-Identifier: Apache-2.0
// What it costs a step to be counted, and to be recorded for the access log.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "service/access_log/access_log.h"
#include "service/clock.h"
#include "service/telemetry.h"

namespace reprise::service {
namespace {

class Job final : public StepJob {
 public:
  void Finished(const absl::Status& /*status*/, const engine::StepResult* /*result*/) override {}
};

// As `reprise serve` has them unless told otherwise.
std::vector<std::string> Graphs() {
  std::vector<std::string> graphs;
  for (int rows = 1; rows <= 256; rows *= 2) graphs.push_back("decode/" + std::to_string(rows));
  for (const char* mixed : {"mixed/64", "mixed/256", "mixed/1024"}) graphs.emplace_back(mixed);
  return graphs;
}

engine::StepResult ResultOf(uint32_t rows) {
  engine::StepResult result;
  result.rows.assign(rows, {.row = 1, .sampled = true});
  result.report = {.graph = "decode/64", .replayed = true, .rows = rows, .tokens = rows};
  result.steps = {{.num_rows = rows, .report = result.report, .device_ns = 3'000'000}};
  result.ledger = {.device_ns = 3'000'000};
  return result;
}

void NoteSteps(Telemetry* telemetry, benchmark::State* state) {
  telemetry->SetGraphs(Graphs());
  const engine::StepResult result = ResultOf(static_cast<uint32_t>(state->range(0)));
  const CallOrigin call = {.peer = "ipv4:127.0.0.1:40122", .trace = {}};
  const TraceId trace = TraceId::FromBytes("0123456789abcdef");
  Job job;
  const uint64_t now_ns = NowNs();
  job.times = {
      .received_ns = now_ns, .converted_ns = now_ns, .submitted_ns = now_ns, .result_ns = now_ns};
  for (auto _ : *state) {
    telemetry->NoteStep({.call = call, .trace = trace, .session = 1, .sequence = 1}, job,
                        absl::OkStatus(), &result);
  }
}

void Counted(benchmark::State& state) {
  Telemetry telemetry;
  NoteSteps(&telemetry, &state);
}
BENCHMARK(Counted)->Arg(1)->Arg(64)->Arg(256);

void CountedAndRecorded(benchmark::State& state) {
  auto log = AccessLog::Open({.path = "/dev/null", .max_waiting = 1 << 20}).value();
  Telemetry telemetry;
  telemetry.SetAccessLog(log.get());
  NoteSteps(&telemetry, &state);
}
// No more than the ring holds, so that nothing is dropped.
BENCHMARK(CountedAndRecorded)->Arg(1)->Arg(64)->Arg(256)->Iterations(500'000);

}  // namespace
}  // namespace reprise::service
