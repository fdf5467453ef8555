// SPDX-License-Identifier: Apache-2.0
#include "service/profile_calls.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "engine/device_rates.h"
#include "engine/product_rate.h"
#include "runtime/dtype.h"
#include "runtime/status_macros.h"
#include "service/wire/describe_to_wire.h"
#include "service/wire/model_sizes.h"

namespace reprise::service {
namespace {

constexpr int kMaxSizes = 256;  // of either kind
constexpr uint64_t kMinBandwidthBytes = uint64_t{256} << 10;
constexpr uint64_t kMaxBandwidthBytes = uint64_t{4} << 30;
constexpr uint32_t kPasses = 8;  // of either measurement
constexpr int kMostHalvings = 4;

absl::StatusOr<std::vector<uint32_t>> SizesOf(
    const char* kind, const google::protobuf::RepeatedField<uint32_t>& wire) {
  if (wire.size() > kMaxSizes)
    return absl::InvalidArgumentError(
        absl::StrCat(kind, ": got ", wire.size(), " sizes, allowed: at most ", kMaxSizes));
  return std::vector<uint32_t>(wire.begin(), wire.end());
}

void UnpaddedToWire(const std::vector<engine::ProfiledGraphInfo>& graphs,
                    v1::StartProfileResponse* wire) {
  for (const engine::ProfiledGraphInfo& graph : graphs)
    BucketToWire(graph.captured, graph.decode ? "decode" : "mixed", wire->add_unpadded_graphs());
}

void GraphsToWire(const std::vector<engine::ProfiledGraphInfo>& graphs,
                  v1::StartProfileResponse* wire) {
  for (const engine::ProfiledGraphInfo& graph : graphs) {
    v1::ProfiledGraph* profiled = wire->add_graphs();
    BucketToWire(graph.captured, graph.decode ? "decode" : "mixed", profiled->mutable_bucket());
    for (const graphs::ProfiledLaunch& launch : graph.launches) {
      v1::Launch* named = profiled->add_launches();
      named->set_kernel(launch.kernel);
      named->set_op(launch.op);
      named->set_shape(launch.shape);
    }
  }
}

// Over as much as the device has room for: `bytes`, half as much, and so on down to a part of
// kMostHalvings. Without that the rest of the profile goes on.
absl::Status MeasureBandwidth(runtime::Device& device, uint64_t bytes,
                              v1::StartProfileResponse* wire) {
  absl::StatusOr<engine::BandwidthRates> rates = engine::MeasureBandwidth(device, bytes, kPasses);
  for (int i = 0; i < kMostHalvings && absl::IsResourceExhausted(rates.status()); ++i) {
    bytes = std::max(bytes / 2, kMinBandwidthBytes);
    rates = engine::MeasureBandwidth(device, bytes, kPasses);
  }
  if (absl::IsResourceExhausted(rates.status())) {
    wire->set_bandwidth_missing(std::string(rates.status().message()));
    return absl::OkStatus();
  }
  REPRISE_RETURN_IF_ERROR(rates.status());
  v1::MeasuredBandwidth* bandwidth = wire->mutable_bandwidth();
  bandwidth->set_bytes(rates->bytes);
  bandwidth->mutable_read()->Assign(rates->read.begin(), rates->read.end());
  bandwidth->mutable_copy()->Assign(rates->copy.begin(), rates->copy.end());
  return absl::OkStatus();
}

absl::Status MeasureProducts(runtime::Device& device, runtime::DType dtype,
                             v1::StartProfileResponse* wire) {
  const absl::StatusOr<engine::ProductRates> rates =
      engine::MeasureProducts(device, dtype, kPasses);
  if (absl::IsResourceExhausted(rates.status())) {
    wire->set_products_missing(std::string(rates.status().message()));
    return absl::OkStatus();
  }
  REPRISE_RETURN_IF_ERROR(rates.status());
  v1::MeasuredProducts* products = wire->mutable_products();
  products->set_tokens(rates->tokens);
  products->set_features(static_cast<uint64_t>(rates->features));
  products->set_dtype(std::string(runtime::NameOf(dtype)));
  products->mutable_flops_per_s()->Assign(rates->flops_per_s.begin(), rates->flops_per_s.end());
  return absl::OkStatus();
}

}  // namespace

absl::Status StartProfile(const ServiceHost& host, const ServedSession& session,
                          const v1::StartProfileRequest& request,
                          v1::StartProfileResponse* response) {
  REPRISE_ASSIGN_OR_RETURN(const std::vector<uint32_t> rows, SizesOf("rows", request.rows()));
  REPRISE_ASSIGN_OR_RETURN(const std::vector<uint32_t> tokens, SizesOf("tokens", request.tokens()));
  REPRISE_ASSIGN_OR_RETURN(const std::vector<uint32_t> unpadded_rows,
                           SizesOf("unpadded_rows", request.unpadded_rows()));
  REPRISE_ASSIGN_OR_RETURN(const std::vector<uint32_t> unpadded_tokens,
                           SizesOf("unpadded_tokens", request.unpadded_tokens()));
  const uint64_t bytes = request.bandwidth_bytes();
  if (bytes != 0 && (bytes < kMinBandwidthBytes || bytes > kMaxBandwidthBytes)) {
    return absl::OutOfRangeError(absl::StrCat("bandwidth_bytes: got ", bytes, ", allowed 0, or ",
                                              kMinBandwidthBytes, " to ", kMaxBandwidthBytes));
  }
  engine::EngineProfiler& profiler = host.profile.profiler();
  const auto capture = [&]() -> absl::Status {
    const auto begin = std::chrono::steady_clock::now();
    REPRISE_RETURN_IF_ERROR(profiler.Drop());
    // First: it is refused where there can be none, before anything is captured.
    if (!unpadded_rows.empty() || !unpadded_tokens.empty())
      REPRISE_RETURN_IF_ERROR(profiler.CaptureUnpadded(unpadded_rows, unpadded_tokens));
    REPRISE_RETURN_IF_ERROR(profiler.Capture(rows, tokens));
    const auto took = std::chrono::steady_clock::now() - begin;
    response->set_capture_ns(
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(took).count()));
    REPRISE_ASSIGN_OR_RETURN(const std::vector<double> cost,
                             engine::MeasureStampCost(profiler.device()));
    response->mutable_stamp_cost_ns()->Assign(cost.begin(), cost.end());
    if (bytes != 0) REPRISE_RETURN_IF_ERROR(MeasureBandwidth(profiler.device(), bytes, response));
    if (!request.products()) return absl::OkStatus();
    return MeasureProducts(profiler.device(), host.engine.info().dtype, response);
  };
  REPRISE_RETURN_IF_ERROR(
      host.profile.Take(session.info.id, [&] { return host.pipeline.RunAlone(capture); }));
  GraphsToWire(profiler.captured(), response);
  UnpaddedToWire(profiler.captured_unpadded(), response);
  ModelSizesToWire(host.engine.info().model, response->mutable_model());
  const ProfileLease::Telemetry telemetry = host.profile.ReadTelemetry();
  response->set_telemetry(telemetry.source);
  response->set_telemetry_missing(telemetry.why_none);
  return absl::OkStatus();
}

void ReadTelemetry(const ServiceHost& host, v1::ReadTelemetryResponse* response) {
  const runtime::TelemetrySample sample = host.profile.ReadTelemetry().sample;
  if (sample.sm_clock_mhz) response->set_sm_clock_mhz(*sample.sm_clock_mhz);
  if (sample.memory_clock_mhz) response->set_memory_clock_mhz(*sample.memory_clock_mhz);
  if (sample.power_w) response->set_power_w(*sample.power_w);
}

}  // namespace reprise::service
