// SPDX-License-Identifier: Apache-2.0
#include "service/metrics/render_metrics.h"

#include <array>
#include <string_view>
#include <vector>

#include "service/metrics/exposition.h"

namespace reprise::service {
namespace {

constexpr std::string_view kCounter = "counter";
constexpr std::string_view kGauge = "gauge";

void AddOne(std::string_view name, std::string_view type, std::string_view help, uint64_t value,
            Exposition* text) {
  text->Family(name, type, help);
  text->Add({}, value);
}

void AddOneSeconds(std::string_view name, std::string_view help, uint64_t ns, Exposition* text) {
  text->Family(name, kGauge, help);
  text->AddSeconds({}, ns);
}

// ---- the server ----

void RenderServer(const MetricsSources& sources, Exposition* text) {
  text->Family("reprise_build_info", kGauge, "The program; always 1");
  text->Add({{"version", sources.version}, {"commit", sources.commit}}, 1);
  AddOneSeconds("reprise_start_time_seconds", "When the server started, since 1970",
                sources.start_time_ns, text);
  AddOneSeconds("reprise_uptime_seconds", "Since the server started", sources.uptime_ns, text);
  AddOne("reprise_serving", kGauge, "1 while steps are taken: loaded, not draining, no fault",
         sources.serving ? 1 : 0, text);
}

void RenderConnections(const ConnectionCounters& connections, Exposition* text) {
  AddOne("reprise_connections_open", kGauge, "Connections of clients, counted once a second",
         connections.open.load(std::memory_order_relaxed), text);
  AddOne("reprise_connections_accepted_total", kCounter, "Connections accepted",
         connections.accepted.value(), text);
  text->Family("reprise_connections_refused_total", kCounter,
               "Connections refused: beyond a limit, or the system had no room");
  text->Add({{"reason", "limit"}}, connections.refused_limit.value());
  text->Add({{"reason", "system"}}, connections.refused_system.value());
  text->Family("reprise_connections_cut_total", kCounter,
               "Connections cut off, by what they sent too much of");
  for (size_t i = 0; i < kNumCutReasons; ++i)
    text->Add({{"reason", NameOf(static_cast<CutReason>(i))}}, connections.cut[i].value());
}

void RenderRefusals(const Telemetry& telemetry, Exposition* text) {
  text->Family("reprise_requests_refused_total", kCounter,
               "Step requests answered with an error, by its code");
  for (size_t i = 1; i < kNumStatusCodes; ++i)
    text->Add({{"code", NameOfCode(static_cast<absl::StatusCode>(i))}}, telemetry.refused(i));
  AddOne("reprise_requests_lost_total", kCounter,
         "Of them, those that were launched and had no result", telemetry.lost(), text);
  AddOne("reprise_requests_repeated_total", kCounter,
         "Unary step requests answered with the answer of the same request sent before",
         telemetry.repeated(), text);
  AddOne("reprise_rows_refused_total", kCounter,
         "Rows refused alone, in requests of which the rest ran", telemetry.rows_refused(), text);
}

void RenderDenied(const Telemetry& telemetry, Exposition* text) {
  text->Family("reprise_calls_denied_total", kCounter,
               "Calls that proved no identity, or one that may not make them, by code");
  for (const absl::StatusCode code :
       {absl::StatusCode::kUnauthenticated, absl::StatusCode::kPermissionDenied})
    text->Add({{"code", NameOfCode(code)}}, telemetry.denied(code));
}

void RenderReloads(const Telemetry& telemetry, Exposition* text) {
  text->Family("reprise_reloads_total", kCounter,
               "Times that the files of identities and TLS were read again, by what became of it");
  text->Add({{"result", "taken"}}, telemetry.reloads_taken());
  text->Add({{"result", "refused"}}, telemetry.reloads_refused());
}

void RenderSessions(const Telemetry& telemetry, Exposition* text) {
  AddOne("reprise_sessions_opened_total", kCounter, "Sessions opened", telemetry.sessions_opened(),
         text);
  AddOne("reprise_sessions_refused_total", kCounter, "Sessions refused, for there were too many",
         telemetry.sessions_refused(), text);
  AddOne("reprise_sessions_resumed_total", kCounter,
         "Streams that resumed a session, from a stream that was lost or still had it",
         telemetry.sessions_resumed(), text);
  text->Family("reprise_sessions_ended_total", kCounter, "Sessions ended, by why");
  for (size_t i = 0; i < kNumSessionEnds; ++i)
    text->Add({{"reason", NameOf(static_cast<SessionEnd>(i))}}, telemetry.sessions_ended(i));
  AddOne("reprise_session_watch_out_of_memory_total", kCounter,
         "Looks for idle and expired sessions that found no memory; the next one tries again",
         telemetry.looks_out_of_memory(), text);
}

void RenderAccessLog(const AccessLog& log, Exposition* text) {
  AddOne("reprise_access_log_written_total", kCounter, "Lines written to the access log",
         log.written(), text);
  AddOne("reprise_access_log_dropped_total", kCounter,
         "Records that the access log lacks: too many at once, or not to be written", log.dropped(),
         text);
}

void AddByLoss(std::string_view name, std::string_view help,
               const std::array<Counter, kNumRecordLosses>& counters, Exposition* text) {
  text->Family(name, kCounter, help);
  for (size_t i = 0; i < kNumRecordLosses; ++i)
    text->Add({{"reason", NameOf(static_cast<RecordLoss>(i))}}, counters[i].value());
}

void RenderRecordings(const RecordCounters& recordings, Exposition* text) {
  AddOne("reprise_recording_files", kGauge, "Recordings in the directory, earlier ones included",
         recordings.files.load(std::memory_order_relaxed), text);
  AddOne("reprise_recording_bytes", kGauge, "What they take",
         recordings.bytes.load(std::memory_order_relaxed), text);
  AddOne("reprise_recording_limit_bytes", kGauge, "What they may take", recordings.limit_bytes,
         text);
  AddOne("reprise_recorded_steps_total", kCounter, "Step requests written to recordings",
         recordings.steps.value(), text);
  AddByLoss("reprise_recordings_stopped_total",
            "Recordings that ended before their sessions did, by why", recordings.stopped, text);
  AddByLoss("reprise_sessions_unrecorded_total", "Sessions that have no recording, by why",
            recordings.refused, text);
}

// ---- steps ----

void AddCounters(std::string_view name, std::string_view help, Counter GraphMetrics::*counter,
                 const StepMetrics& steps, Exposition* text) {
  text->Family(name, kCounter, help);
  steps.ForEachGraph([&](const GraphMetrics& graph) {
    text->Add({{"graph", graph.name}}, (graph.*counter).value());
  });
}

void AddHistograms(std::string_view name, std::string_view help, Histogram GraphMetrics::*histogram,
                   const StepMetrics& steps, Exposition* text) {
  text->Family(name, "histogram", help);
  steps.ForEachGraph([&](const GraphMetrics& graph) {
    text->AddHistogram({{"graph", graph.name}}, (graph.*histogram).Read());
  });
}

void RenderSteps(const StepMetrics& steps, Exposition* text) {
  AddCounters("reprise_steps_total", "Steps that ran, by graph", &GraphMetrics::steps, steps, text);
  AddCounters("reprise_replays_total", "Replays: steps that requests ran together are one",
              &GraphMetrics::replays, steps, text);
  AddCounters("reprise_step_rows_total", "Rows that ran", &GraphMetrics::rows, steps, text);
  AddCounters("reprise_step_padding_rows_total", "Rows of decode buckets that no row filled",
              &GraphMetrics::padding_rows, steps, text);
  AddCounters("reprise_step_tokens_total", "Query tokens that ran", &GraphMetrics::tokens, steps,
              text);
  AddCounters("reprise_step_padding_tokens_total", "Query tokens of buckets that none filled",
              &GraphMetrics::padding_tokens, steps, text);
  AddHistograms("reprise_step_device_seconds", "Time of a replay by the device's clock",
                &GraphMetrics::device, steps, text);
  AddHistograms("reprise_request_wall_seconds",
                "Time of a step request in the server, received to answer made",
                &GraphMetrics::wall, steps, text);
  AddHistograms("reprise_request_queue_seconds",
                "Time that a step request waited for a place in the pipeline", &GraphMetrics::queue,
                steps, text);
  AddHistograms("reprise_request_launch_seconds",
                "Host time to check a step request, write its metadata and launch its graphs",
                &GraphMetrics::launch, steps, text);
  AddOne("reprise_eager_steps_total", kCounter, "Steps that ran kernel by kernel, as asked",
         steps.eager_steps(), text);
  AddOne("reprise_sampled_tokens_total", kCounter, "Tokens sampled", steps.sampled_tokens(), text);
  AddOne("reprise_prompt_tokens_total", kCounter, "Tokens given in chunks", steps.prompt_tokens(),
         text);
  AddOne("reprise_draft_tokens_total", kCounter, "Draft tokens that rows brought",
         steps.draft_tokens(), text);
  AddOne("reprise_accepted_tokens_total", kCounter, "Draft tokens that were accepted",
         steps.accepted_tokens(), text);
}

void RenderWaiting(const WaitingSteps& waiting, Exposition* text) {
  AddOne("reprise_requests_waiting", kGauge, "Step requests that wait for their turn",
         waiting.requests, text);
  AddOne("reprise_requests_in_flight", kGauge, "Step requests on the device", waiting.in_flight,
         text);
  AddOne("reprise_launches_in_flight", kGauge, "Launches of these, which may share one",
         waiting.launches, text);
  AddOne("reprise_sessions_waiting", kGauge, "Sessions with step requests that wait",
         waiting.sessions, text);
  AddOneSeconds("reprise_oldest_wait_seconds", "How long the oldest waiting request has waited",
                waiting.oldest_wait_ns, text);
  AddOneSeconds("reprise_served_spread_seconds",
                "Device time by which the most served waiting session is ahead of the least served",
                waiting.served_spread_ns, text);
}

// ---- the engine ----

void RenderEngine(const engine::DecodeEngine& engine, Exposition* text) {
  const engine::EngineInfo& info = engine.info();
  const engine::GraphsInfo graphs = engine.captured_graphs();
  text->Family("reprise_device_info", kGauge, "The device; always 1");
  text->Add({{"kind", runtime::NameOf(info.device.kind)}, {"name", info.device.name}}, 1);
  AddOne("reprise_device_faults_total", kCounter,
         "Faults of the device; after the first no step runs", engine.health().ok() ? 0 : 1, text);
  text->Family("reprise_device_memory_bytes", kGauge, "Device memory that the engine takes");
  text->Add({{"use", "weights"}}, info.memory.weights_bytes);
  text->Add({{"use", "kv_cache"}}, info.memory.kv_cache_bytes);
  text->Add({{"use", "workspace"}}, info.memory.workspace_bytes);
  text->Add({{"use", "graphs"}}, graphs.device_bytes);
  AddOne("reprise_graphs", kGauge, "Captured graphs that steps may replay",
         graphs.decode_buckets.size() + graphs.mixed_buckets.size(), text);
  AddOne("reprise_bucket_changes_total", kCounter, "How often other buckets took over (SetBuckets)",
         graphs.version - 1, text);
  text->Family("reprise_graph_capture_seconds", kGauge, "Time that the capture of a graph took");
  for (const auto* buckets : {&graphs.decode_buckets, &graphs.mixed_buckets}) {
    for (const graphs::CapturedBucket& captured : *buckets)
      text->AddSeconds({{"graph", captured.bucket.name}}, captured.capture_ns);
  }
}

void RenderPool(const engine::DecodeEngine& engine, Exposition* text) {
  const engine::PoolInfo pool = engine.pool();
  const uint32_t usable = pool.num_blocks - 1;  // block 0 is nobody's
  AddOne("reprise_pool_blocks", kGauge, "KV blocks that sessions can hold", usable, text);
  AddOne("reprise_pool_free_blocks", kGauge, "KV blocks that no session holds", pool.free_blocks,
         text);
  AddOne("reprise_pool_held_blocks", kGauge, "KV blocks that sessions hold",
         usable - pool.free_blocks, text);
  AddOne("reprise_resident_rows", kGauge, "Rows that are resident", engine.num_resident_rows(),
         text);
  AddOne("reprise_resident_rows_limit", kGauge, "Rows that can be resident",
         engine.info().limits.max_rows, text);
}

void RenderHost(const ServiceHost& host, Exposition* text) {
  RenderEngine(host.engine, text);
  RenderPool(host.engine, text);
  AddOne("reprise_sessions_open", kGauge, "Sessions that are open", host.sessions.num_open(), text);
  AddOne("reprise_sessions_detached", kGauge,
         "Of them, those without a stream, which wait to be resumed", host.sessions.num_detached(),
         text);
  AddOne("reprise_sessions_limit", kGauge, "Sessions that may be open",
         host.sessions.max_sessions(), text);
  AddOne("reprise_waiting_message_bytes", kGauge, "Memory charged for messages and answers",
         host.memory.used(), text);
  AddOne("reprise_waiting_message_limit_bytes", kGauge, "Memory that messages may take",
         host.memory.bytes(), text);
  RenderWaiting(host.pipeline.waiting(), text);
}

}  // namespace

std::string RenderMetrics(const MetricsSources& sources) {
  Exposition text;
  RenderServer(sources, &text);
  RenderConnections(sources.connections, &text);
  RenderRefusals(sources.telemetry, &text);
  RenderDenied(sources.telemetry, &text);
  RenderReloads(sources.telemetry, &text);
  RenderSessions(sources.telemetry, &text);
  if (sources.telemetry.access_log() != nullptr)
    RenderAccessLog(*sources.telemetry.access_log(), &text);
  if (sources.recordings != nullptr) RenderRecordings(*sources.recordings, &text);
  if (sources.host != nullptr) {
    RenderHost(*sources.host, &text);
    RenderSteps(*sources.telemetry.steps(), &text);
  }
  return text.text();
}

}  // namespace reprise::service
