// SPDX-License-Identifier: Apache-2.0
#include "tools/server_stamps.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/weight_format.h"
#include "runtime/status_macros.h"
#include "service/wire/model_sizes.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

absl::StatusOr<runtime::DType> DTypeFrom(const std::string& name) {
  using runtime::DType;
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16, DType::kE4m3, DType::kE5m2}) {
    if (runtime::NameOf(dtype) == name) return dtype;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the server's dtype: got \"", name, "\", allowed: f32, bf16, f16, fp8_e4m3, fp8_e5m2"));
}

// Whether the server has a bucket of exactly that size.
bool HasBucketOf(const v1::DescribeResponse& server, const StepPoint& point) {
  const char* const kind = point.is_decode() ? "decode" : "mixed";
  return std::any_of(server.buckets().begin(), server.buckets().end(),
                     [&](const v1::Bucket& bucket) {
                       return bucket.kind() == kind && bucket.capacity() == point.size();
                     });
}

uint64_t NumGraphs(const v1::StartProfileResponse& wire) {
  return static_cast<uint64_t>(wire.graphs_size()) +
         static_cast<uint64_t>(wire.unpadded_graphs_size());
}

uint64_t BytesOfGraphs(const v1::StartProfileResponse& wire) {
  uint64_t bytes = 0;
  for (const v1::Bucket& bucket : wire.unpadded_graphs()) bytes += bucket.device_bytes();
  for (const v1::ProfiledGraph& graph : wire.graphs()) bytes += graph.bucket().device_bytes();
  return bytes;
}

}  // namespace

v1::StartProfileRequest StartRequestOf(const ProfileOptions& options, uint64_t bandwidth_bytes,
                                       const v1::DescribeResponse& server) {
  v1::StartProfileRequest request;
  std::set<uint32_t> rows, tokens, unpadded_rows, unpadded_tokens;
  for (const StepPoint& point : PointsOf(options)) {
    (point.is_decode() ? rows : tokens).insert(point.size());
    if (options.padding && !HasBucketOf(server, point))
      (point.is_decode() ? unpadded_rows : unpadded_tokens).insert(point.size());
  }
  request.mutable_rows()->Assign(rows.begin(), rows.end());
  request.mutable_tokens()->Assign(tokens.begin(), tokens.end());
  request.mutable_unpadded_rows()->Assign(unpadded_rows.begin(), unpadded_rows.end());
  request.mutable_unpadded_tokens()->Assign(unpadded_tokens.begin(), unpadded_tokens.end());
  request.set_bandwidth_bytes(bandwidth_bytes);
  request.set_products(true);
  return request;
}

uint64_t ServerBandwidthBytes(const v1::Device& device) {
  return device.kind() == "host" ? uint64_t{64} << 20 : uint64_t{1} << 30;
}

std::string WhyNoPadding(const v1::StartProfileRequest& request,
                         const v1::StartProfileResponse& wire) {
  const int asked = request.unpadded_rows_size() + request.unpadded_tokens_size();
  if (wire.unpadded_graphs_size() >= asked) return "";
  return absl::StrCat("the server captured ", wire.unpadded_graphs_size(), " of ", asked,
                      " graphs without padding: an older one knows of none");
}

bool GoesOnWithoutStamps(const absl::Status& refusal) {
  static constexpr std::array kGoOn = {absl::StatusCode::kPermissionDenied,
                                       absl::StatusCode::kUnimplemented, absl::StatusCode::kAborted,
                                       absl::StatusCode::kResourceExhausted,
                                       absl::StatusCode::kFailedPrecondition};
  for (const absl::StatusCode code : kGoOn)
    if (refusal.code() == code) return true;
  return false;
}

absl::StatusOr<ServerStamps> StampsFromWire(const v1::StartProfileResponse& wire,
                                            const v1::Model& model) {
  ServerStamps stamps;
  REPRISE_ASSIGN_OR_RETURN(stamps.spec, service::ModelSizesFromWire(wire.model()));
  stamps.spec.name = model.name();
  REPRISE_ASSIGN_OR_RETURN(stamps.dtype, DTypeFrom(model.dtype()));
  stamps.spec.checkpoint_dtype = stamps.dtype;
  REPRISE_ASSIGN_OR_RETURN(stamps.kv_dtype, DTypeFrom(model.kv_dtype()));
  for (const v1::Bucket& bucket : wire.unpadded_graphs())
    (bucket.kind() == "decode" ? stamps.unpadded_rows : stamps.unpadded_tokens)
        .insert(bucket.capacity());
  for (const v1::ProfiledGraph& wire_graph : wire.graphs()) {
    ServerStamps::Graph& graph = stamps.graphs[wire_graph.bucket().name()];
    graph.num_kernel_nodes = static_cast<int>(wire_graph.bucket().kernel_nodes());
    graph.capacity = wire_graph.bucket().capacity();
    graph.decode = wire_graph.bucket().kind() == "decode";
    for (const v1::Launch& launch : wire_graph.launches()) {
      graph.launches.push_back(
          {.kernel = launch.kernel(), .op = launch.op(), .shape = launch.shape()});
    }
  }
  return stamps;
}

void StartToContext(const v1::StartProfileResponse& wire, const ServerStamps& stamps,
                    ProfileContext* context) {
  context->spec = stamps.spec;
  context->dtype = stamps.dtype;
  context->kv_dtype = stamps.kv_dtype;
  if (stamps.spec.weight_quantization)
    context->scale_inputs = stamps.spec.weight_quantization->scale_inputs();
  context->telemetry = {.name = wire.telemetry(), .why_none = wire.telemetry_missing()};
  context->tracing = {.name = "", .why_none = "a server traces no kernels"};
  for (const double ns : wire.stamp_cost_ns()) context->stamp_cost_ns.Add(ns);
  context->why_no_bandwidth = wire.bandwidth_missing();
  context->bandwidth.bytes = wire.bandwidth().bytes();
  for (const double rate : wire.bandwidth().read()) context->bandwidth.read.Add(rate);
  for (const double rate : wire.bandwidth().copy()) context->bandwidth.copy.Add(rate);
  context->why_no_products = wire.products_missing();
  context->products.tokens = wire.products().tokens();
  context->products.features = static_cast<int64_t>(wire.products().features());
  context->products.dtype = stamps.dtype;
  for (const double rate : wire.products().flops_per_s()) context->products.flops_per_s.Add(rate);
  context->profiled_graphs =
      absl::StrCat(FormatCount(NumGraphs(wire)), ", ", FormatBytes(BytesOfGraphs(wire)),
                   " of the server's device, captured in ",
                   FormatDuration(static_cast<double>(wire.capture_ns())));
}

nlohmann::json ProfiledGraphsToJson(const v1::StartProfileResponse& wire) {
  return {{"graphs", NumGraphs(wire)},
          {"capture_ms", static_cast<double>(wire.capture_ns()) * 1e-6},
          {"device_bytes", BytesOfGraphs(wire)}};
}

}  // namespace reprise::tools
