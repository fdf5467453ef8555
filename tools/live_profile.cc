// SPDX-License-Identifier: Apache-2.0
#include "tools/live_profile.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/device_telemetry.h"
#include "runtime/status_macros.h"
#include "tools/advise/batch_trace.h"
#include "tools/connection_flags.h"
#include "tools/profile/report_parts.h"
#include "tools/profile/server_profiler.h"
#include "tools/sched/client.h"
#include "tools/sched/drain_limit.h"
#include "tools/server_stamps.h"
#include "tools/signals.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

std::string DeviceTextOf(const v1::Device& device) {
  return absl::StrCat(device.kind(), ", ", device.name(),
                      device.driver().empty() ? "" : absl::StrCat(", driver ", device.driver()));
}

ServerNames NamesOf(const v1::DescribeResponse& server) {
  ServerNames names;
  for (const v1::Bucket& bucket : server.buckets())
    names.num_kernels[bucket.name()] = static_cast<int>(bucket.kernel_nodes());
  names.attention_tree = server.attention_tree().version();
  names.batch_leaves = {server.attention_tree().batch_leaves().begin(),
                        server.attention_tree().batch_leaves().end()};
  return names;
}

// What EngineToJson says of an engine, as far as Describe tells it.
nlohmann::json EngineToJson(const v1::DescribeResponse& server) {
  nlohmann::json graphs = nlohmann::json::array();
  for (const v1::Bucket& bucket : server.buckets()) {
    graphs.push_back({{"name", bucket.name()},
                      {"capacity", bucket.capacity()},
                      {"kernel_nodes", bucket.kernel_nodes()},
                      {"other_nodes", bucket.other_nodes()},
                      {"capture_ms", static_cast<double>(bucket.capture_ns()) * 1e-6},
                      {"device_bytes", bucket.device_bytes()}});
  }
  const v1::Model& model = server.model();
  return {
      {"model",
       {{"name", model.name()},
        {"architecture", model.architecture()},
        {"parameters", model.num_parameters()}}},
      {"device",
       {{"kind", server.device().kind()},
        {"name", server.device().name()},
        {"driver", server.device().driver()}}},
      {"dtype", model.dtype()},
      {"weight_dtype", model.weight_dtype()},
      {"kv_dtype", model.kv_dtype()},
      {"linear", server.linear_policy()},
      {"memory_bytes",
       {{"weights", server.memory().weights_bytes()},
        {"kv_cache", server.memory().kv_cache_bytes()},
        {"workspace", server.memory().workspace_bytes()},
        {"graphs", server.memory().graphs_bytes()}}},
      {"pool",
       {{"block_size", server.pool().block_size()}, {"num_blocks", server.pool().num_blocks()}}},
      {"graphs", std::move(graphs)}};
}

// `started`: nullptr where steps cannot be stamped.
nlohmann::json FactsOf(const v1::DescribeResponse& server, const std::string& address,
                       const ProfileContext& context, const v1::StartProfileResponse* started) {
  nlohmann::json of_server = {{"address", address}, {"version", server.server_version()}};
  of_server["why_no_kernels"] = TextOrNull(context.why_no_stamps);
  of_server["profiled_graphs"] = started != nullptr ? ProfiledGraphsToJson(*started) : nullptr;
  const bool has_bandwidth = !context.bandwidth.read.empty();
  const bool has_products = !context.products.flops_per_s.empty();
  return {{"engine", EngineToJson(server)},
          {"server", std::move(of_server)},
          {"telemetry", TelemetryToJson(context.telemetry)},
          {"tracing", TelemetryToJson(context.tracing)},
          {"bandwidth", has_bandwidth ? BandwidthToJson(context.bandwidth) : nullptr},
          {"products", has_products ? ProductsToJson(context.products) : nullptr},
          {"stamp_cost_us", started != nullptr ? context.stamp_cost_ns.ToJson(1e-3) : nullptr}};
}

// Asks the server to let steps be stamped. Where it does not, `context` says why, and so does a
// warning; unless a bound is of what there is none of then. Errors: its, and those of the
// connection; usage, of bounds.
absl::Status StartProfile(const ProfileFlags& flags, Console* console, GrpcClient* client,
                          v1::StartProfileResponse* started, std::optional<ServerStamps>* stamps,
                          ProfileContext* context) {
  const v1::DescribeResponse& server = client->description();
  console->Progress("the server captures profiled graphs and measures bandwidth", /*now=*/true);
  const uint64_t bytes =
      flags.bandwidth_bytes != 0 ? flags.bandwidth_bytes : ServerBandwidthBytes(server.device());
  v1::StartProfileRequest request = StartRequestOf(flags.profile, bytes, server);
  absl::Status status = client->StartProfile(request, started);
  const bool padding = request.unpadded_rows_size() + request.unpadded_tokens_size() != 0;
  // For want of memory, or of graphs that there could be: the rest needs none of them.
  if (padding && (absl::IsResourceExhausted(status) || absl::IsFailedPrecondition(status))) {
    context->why_no_padding = std::string(status.message());
    request.clear_unpadded_rows();
    request.clear_unpadded_tokens();
    status = client->StartProfile(request, started);
  }
  if (status.ok()) {
    if (context->why_no_padding.empty()) context->why_no_padding = WhyNoPadding(request, *started);
    if (!context->why_no_padding.empty())
      console->Note(absl::StrCat("reprise profile: warning: without what padding costs: ",
                                 context->why_no_padding));
    absl::StatusOr<ServerStamps> from_wire = StampsFromWire(*started, server.model());
    REPRISE_RETURN_IF_ERROR(from_wire.status());
    *stamps = *std::move(from_wire);
    StartToContext(*started, **stamps, context);
    return CheckKernelsOf(flags, /*is_server=*/true, [stamps](const StepPoint& point) {
      return (*stamps)->LaunchesOf(point);
    });
  }
  if (!GoesOnWithoutStamps(status)) return status;
  context->why_no_stamps = std::string(status.message());
  context->telemetry.why_none = context->tracing.why_none = context->why_no_stamps;
  for (const Assertion& assertion : flags.assertions) {
    if (!NeedsStamps(assertion)) continue;
    return absl::Status(status.code(), absl::StrCat("--assert ", assertion.text,
                                                    ": the server lets no step be stamped: ",
                                                    context->why_no_stamps));
  }
  console->Note(
      absl::StrCat("reprise profile: warning: without kernels: ", context->why_no_stamps));
  return absl::OkStatus();
}

absl::StatusOr<runtime::TelemetrySample> ReadTelemetry(GrpcClient* client) {
  v1::ReadTelemetryResponse read;
  REPRISE_RETURN_IF_ERROR(client->ReadTelemetry(&read));
  runtime::TelemetrySample sample;
  if (read.has_sm_clock_mhz()) sample.sm_clock_mhz = read.sm_clock_mhz();
  if (read.has_memory_clock_mhz()) sample.memory_clock_mhz = read.memory_clock_mhz();
  if (read.has_power_w()) sample.power_w = read.power_w();
  return sample;
}

// Which of the points the server cannot run.
absl::Status CheckServerPoints(const v1::DescribeResponse& server, const ProfileOptions& options) {
  const ServerInfo info = ServerInfoOf(server);
  if (info.limits.max_prompt_tokens == 0 || info.num_blocks < 2) {
    return absl::FailedPreconditionError(
        absl::StrCat("the server: got ", info.num_blocks, " blocks and mixed buckets of up to ",
                     info.limits.max_prompt_tokens, " tokens, allowed: at least 2 and 1"));
  }
  uint32_t max_bucket = 0;
  for (const v1::Bucket& bucket : server.buckets()) {
    if (bucket.kind() == "decode") max_bucket = std::max(max_bucket, bucket.capacity());
  }
  const std::vector<StepPoint> points = PointsOf(options);
  const uint32_t block_size = info.limits.block_size;
  REPRISE_RETURN_IF_ERROR(
      CheckPoints(points, info.limits, max_bucket, block_size, info.num_blocks - 1));
  const uint32_t free = server.pool().free_blocks();
  for (const StepPoint& point : points) {
    const uint64_t needed = BlocksOf(point, block_size);
    if (needed > info.usable_blocks())
      return absl::ResourceExhaustedError(
          absl::StrCat(NameOf(point), " needs ", needed, " blocks of ", block_size,
                       " tokens; allowed: ", info.usable_blocks(), ", which a session may hold"));
    if (needed <= free) continue;
    return absl::ResourceExhaustedError(absl::StrCat(
        NameOf(point), " needs ", needed, " blocks of ", block_size, " tokens; the server has ",
        free, " free of ", info.num_blocks - 1, ": other sessions hold the rest"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<GrpcClient>> Connect(const ProfileFlags& flags,
                                                    const Interrupt& interrupt) {
  // A connection that is lost ends the run: a step that was sent twice has no time of its own.
  absl::StatusOr<std::unique_ptr<GrpcClient>> client =
      GrpcClient::Connect({.connection = flags.connection,
                           .name = absl::StrCat("reprise profile ", REPRISE_VERSION),
                           .wait = flags.wait,
                           .interrupted = &interrupt.requested()});
  if (!client.ok()) REPRISE_RETURN_IF_ERROR(interrupt.status());
  return client;
}

absl::Status MeasureServer(const ProfileFlags& flags, const Invocation& invocation,
                           GrpcClient* client, Interrupt* interrupt) {
  const v1::DescribeResponse& server = client->description();
  ProfileContext context;
  context.device = DeviceTextOf(server.device());
  context.model = server.model().name();
  context.width = invocation.console->width();
  context.padding = flags.profile.padding;
  context.server = absl::StrCat(flags.connection.address, ", version ", server.server_version());
  v1::StartProfileResponse started;
  std::optional<ServerStamps> stamps;
  REPRISE_RETURN_IF_ERROR(
      StartProfile(flags, invocation.console, client, &started, &stamps, &context));
  if (stamps && !context.telemetry.name.empty())
    stamps->read_telemetry = [client] { return ReadTelemetry(client); };
  StepSession session(client, client, ServerInfoOf(server));
  ServerProfiler profiler(&session, NamesOf(server), stamps ? &*stamps : nullptr);
  const ProfileRun run{
      .flags = flags,
      .context = context,
      .invocation = invocation,
      .facts = FactsOf(server, flags.connection.address, context, stamps ? &started : nullptr),
      .kinds = stamps ? 2u : 1u,
      .measure = [&](uint32_t round, const MeasuredSteps& measured, PointProfile* point) {
        const absl::Status status = profiler.Measure(flags.profile, round, measured, point);
        // An interrupted run says so, and not what the server said of the session that it ended.
        return interrupt->requested() ? interrupt->status() : status;
      }};
  return RunProfile(run, interrupt);
}

}  // namespace

absl::Status ProfileServer(ProfileFlags flags, const Invocation& invocation) {
  REPRISE_RETURN_IF_ERROR(CheckConnectionOptions(flags.connection));
  for (const Assertion& assertion : flags.assertions) {
    const absl::Status known = CheckServerSubject(assertion);
    if (!known.ok()) return UsageError(std::string(known.message()));
  }
  std::vector<TracedStep> traced;
  if (!flags.recorded_files.empty()) {
    const absl::StatusOr<BatchTrace> trace = ReadBatchTrace(flags.recorded_files);
    REPRISE_RETURN_IF_ERROR(trace.status());
    TellSkipped(*trace, "reprise profile", invocation.console);
    traced = trace->steps;
  } else {
    REPRISE_RETURN_IF_ERROR(PrepareProfile(invocation, &flags));
  }
  Interrupt interrupt;
  REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<GrpcClient> client, Connect(flags, interrupt));
  const DrainLimit limit(client.get(), &interrupt.requested());
  if (!flags.recorded_files.empty()) {
    REPRISE_ASSIGN_OR_RETURN(std::vector<SampledStep> steps,
                             SampleStepsWithin(client->description().limits().max_context_length(),
                                               traced, flags.recorded_points));
    SetRecorded(std::move(steps), &flags);
    REPRISE_RETURN_IF_ERROR(PrepareProfile(invocation, &flags));
  }
  REPRISE_RETURN_IF_ERROR(CheckServerPoints(client->description(), flags.profile));
  const absl::Status status = MeasureServer(flags, invocation, client.get(), &interrupt);
  const absl::Status closed = client->Close();
  return status.ok() ? closed : status;
}

}  // namespace reprise::tools
