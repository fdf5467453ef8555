// SPDX-License-Identifier: Apache-2.0
// The JSON of a profile.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "tools/profile/report.h"
#include "tools/profile/report_parts.h"
#include "tools/profile/roofs.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

// With the rare late ones.
nlohmann::json TailToJson(const Samples& ns) {
  nlohmann::json json = ns.ToJson(kNsToUs);
  json["p99_9"] = ns.Percentile(99.9) * kNsToUs;
  json["max"] = ns.Max() * kNsToUs;
  return json;
}

nlohmann::json TimesToJson(const StepTimes& times) {
  return {{"replay_us", TailToJson(times.replay_ns)},
          {"device_us", TailToJson(times.device_ns)},
          {"launch_us", TailToJson(times.launch_ns)}};
}

nlohmann::json PlainToJson(const PointProfile& point) {
  nlohmann::json json = TimesToJson(point.plain);
  if (!point.is_of_server()) return json;
  json["wall_us"] = TailToJson(point.wall_ns);
  json["overhead_us"] = TailToJson(point.overhead_ns);
  return json;
}

// Whole nanoseconds, in an array for each round.
nlohmann::json SamplesToJson(const Samples& ns, const PointProfile& point) {
  nlohmann::json rounds = nlohmann::json::array();
  auto next = ns.values().begin();
  for (const uint32_t steps : point.round_steps) {
    nlohmann::json& round = rounds.emplace_back(nlohmann::json::array());
    for (uint32_t i = 0; i < steps; ++i) round.push_back(std::llround(*next++));
  }
  return rounds;
}

nlohmann::json AllSamplesToJson(const PointProfile& point) {
  nlohmann::json json = {{"replay", SamplesToJson(point.plain.replay_ns, point)},
                         {"device", SamplesToJson(point.plain.device_ns, point)},
                         {"launch", SamplesToJson(point.plain.launch_ns, point)}};
  if (!point.is_of_server()) return json;
  json["wall"] = SamplesToJson(point.wall_ns, point);
  json["overhead"] = SamplesToJson(point.overhead_ns, point);
  return json;
}

nlohmann::json TimelineToJson(const PointProfile& point) {
  const KernelTimes& kernels = point.kernels;
  nlohmann::json us = nlohmann::json::array();
  for (const double ns : kernels.MeanLaunchNs()) us.push_back(ns * kNsToUs);
  nlohmann::json json = {{"op", kernels.op_of_launch()}, {"stamped_us", std::move(us)}};
  if (point.trace.empty()) return json;
  nlohmann::json begin = nlohmann::json::array(), duration = nlohmann::json::array();
  for (const LaunchTrace& launch : point.trace.MeanLaunches()) {
    begin.push_back(launch.begin_ns * kNsToUs);
    duration.push_back(launch.duration_ns * kNsToUs);
  }
  json["traced_begin_us"] = std::move(begin);
  json["traced_us"] = std::move(duration);
  return json;
}

// null: nothing was traced.
nlohmann::json TraceToJson(const PointProfile& point) {
  if (point.trace.empty()) return nullptr;
  nlohmann::json json = TimesToJson(point.traced);
  json["skew"] = point.TracedSkew();
  json["span_us"] = point.trace.span_ns().ToJson(kNsToUs);
  json["gap_us"] = point.trace.gap_ns().ToJson(kNsToUs);
  json["overlap_us"] = point.trace.overlap_ns().ToJson(kNsToUs);
  return json;
}

nlohmann::json OpsToJson(const PointProfile& point, const ProfileContext& context) {
  const int64_t num_layers = context.spec.num_layers;
  const double stamp = context.StampCostNs();
  const double net_sum = point.kernels.NetSumNs(stamp);
  const std::vector<LaunchTrace> traces = TracesOfOps(point);
  nlohmann::json ops = nlohmann::json::array();
  for (size_t i = 0; i < traces.size(); ++i) {
    const OpTime& op = point.kernels.ops()[i];
    nlohmann::json traced = nullptr;
    if (!point.trace.empty()) {
      traced = {{"duration_us", traces[i].duration_ns * kNsToUs},
                {"exposed_us", traces[i].exposed_ns * kNsToUs},
                {"gap_us", traces[i].gap_ns * kNsToUs}};
    }
    const double net_us = KernelTimes::NetNs(op, stamp) * kNsToUs;
    nlohmann::json read = nullptr, written = nullptr;
    if (const std::optional<OpBytes> bytes = BytesOf(op, point, context)) {
      read = bytes->read;
      written = bytes->written;
    }
    nlohmann::json shape = nullptr;
    if (!op.launch.shape.empty()) shape = op.launch.shape;
    nlohmann::json per_layer = nullptr;
    if (op.IsOfLayers(num_layers)) per_layer = net_us / static_cast<double>(num_layers);
    ops.push_back({{"op", op.launch.op},
                   {"kernel", op.launch.kernel},
                   {"shape", std::move(shape)},
                   {"calls", op.count},
                   {"stamped_us", op.stamped_ns.ToJson(kNsToUs)},
                   {"samples_ns", SamplesToJson(op.stamped_ns, point)},
                   {"net_us", net_us},
                   {"share", Share(net_us, net_sum * kNsToUs)},
                   {"net_per_call_us", net_us / op.count},
                   {"net_per_layer_us", std::move(per_layer)},
                   {"traced", std::move(traced)},
                   {"read_bytes", std::move(read)},
                   {"written_bytes", std::move(written)},
                   {"flops", NumberOrNull(Flops(op, point, context))},
                   {"share_of_roof", NumberOrNull(ShareOfRoof(op, point, context))}});
  }
  return ops;
}

// null: not measured, or there is none.
nlohmann::json PaddingToJson(const PointProfile& point) {
  if (!point.has_unpadded()) return nullptr;
  nlohmann::json json = TimesToJson(point.unpadded);
  json["replay_cost_us"] = point.PaddingReplayNs() * kNsToUs;
  json["replay_share"] = Share(point.PaddingReplayNs(), point.plain.replay_ns.Percentile(50));
  json["device_cost_us"] = point.PaddingDeviceNs() * kNsToUs;
  json["device_share"] = Share(point.PaddingDeviceNs(), point.plain.device_ns.Percentile(50));
  return json;
}

// Of a point with stamped steps.
nlohmann::json StampsToJson(const PointProfile& point, const ProfileContext& context) {
  nlohmann::json profiled = TimesToJson(point.profiled);
  profiled["kernels"] = point.num_profiled_kernels;
  profiled["skew"] = point.Skew();
  profiled["device_skew"] = point.DeviceSkew();
  const double flops = StepFlops(point, context);
  const double flops_per_s = Share(flops * 1e9, point.plain.device_ns.Percentile(50));
  const double best_read = context.bandwidth.best_read(), best = context.products.best();
  return {{"mean_attended", point.mean_attended},
          {"unpadded", PaddingToJson(point)},
          {"twin", std::move(profiled)},
          {"bytes",
           {{"weights", point.bytes.weights},
            {"kv_read", point.bytes.kv_read},
            {"kv_written", point.bytes.kv_written},
            {"activations", point.bytes.activations},
            {"total", point.bytes.total()}}},
          {"bytes_per_s", point.BytesPerSecond()},
          {"share_of_read_bandwidth", NumberOrNull(ShareIfAny(point.BytesPerSecond(), best_read))},
          {"flops", flops},
          {"flops_per_s", flops_per_s},
          {"share_of_product_rate", NumberOrNull(ShareIfAny(flops_per_s, best))},
          {"energy_j", NumberOrNull(point.EnergyJ())},
          {"ops", OpsToJson(point, context)},
          {"traced", TraceToJson(point)},
          {"timeline", TimelineToJson(point)},
          {"stamped_span_us", point.kernels.span_ns().ToJson(kNsToUs)},
          {"net_sum_us", point.kernels.NetSumNs(context.StampCostNs()) * kNsToUs}};
}

// In its place, of steps that could not be stamped.
nlohmann::json UntoldToJson() {
  return {{"twin", nullptr},
          {"unpadded", nullptr},
          {"traced", nullptr},
          {"bytes", nullptr},
          {"bytes_per_s", nullptr},
          {"flops", nullptr},
          {"flops_per_s", nullptr},
          {"share_of_product_rate", nullptr},
          {"energy_j", nullptr},
          {"share_of_read_bandwidth", nullptr},
          {"ops", nlohmann::json::array()},
          {"stamped_span_us", nullptr},
          {"net_sum_us", nullptr}};
}

}  // namespace

nlohmann::json BandwidthToJson(const Bandwidth& bandwidth) {
  return {{"bytes", bandwidth.bytes},
          {"passes", bandwidth.read.count()},
          {"read_bytes_per_s",
           {{"best", bandwidth.best_read()}, {"p50", bandwidth.read.Percentile(50)}}},
          {"copy_bytes_per_s",
           {{"best", bandwidth.best_copy()}, {"p50", bandwidth.copy.Percentile(50)}}}};
}

nlohmann::json ProductsToJson(const ProductRate& products) {
  return {
      {"tokens", products.tokens},
      {"features", products.features},
      {"dtype", std::string(runtime::NameOf(products.dtype))},
      {"passes", products.flops_per_s.count()},
      {"flops_per_s", {{"best", products.best()}, {"p50", products.flops_per_s.Percentile(50)}}}};
}

nlohmann::json PointToJson(const PointProfile& point, const ProfileContext& context) {
  nlohmann::json json = {{"name", NameOf(point.point())},
                         {"rows", point.rows},
                         {"context", point.context},
                         {"shortest_context", point.shortest == 0 ? nlohmann::json(nullptr)
                                                                  : nlohmann::json(point.shortest)},
                         {"prompts", point.prompts},
                         {"mean_context", point.mean_context},
                         {"graph", point.graph},
                         {"attention_leaf", point.attention_leaf},
                         {"padding_rows", point.padding_rows},
                         {"padding_tokens", point.padding_tokens},
                         {"kernels", point.num_kernels},
                         {"round_replay_us", point.round_replay_ns.ValuesToJson(kNsToUs)},
                         {"spread", NumberOrNull(point.Spread())},
                         {"plain", PlainToJson(point)},
                         {"samples_ns", AllSamplesToJson(point)},
                         {"clock",
                          {{"sm_mhz", MeanJson(point.sm_clock_mhz)},
                           {"memory_mhz", MeanJson(point.memory_clock_mhz)},
                           {"power_w", MeanJson(point.power_w)}}}};
  json.update(point.has_stamps() ? StampsToJson(point, context) : UntoldToJson());
  if (point.is_of_server()) json["shared_steps"] = point.num_shared_steps;
  return json;
}

}  // namespace reprise::tools
