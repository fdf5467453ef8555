// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/report.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "kernels/weight_format.h"
#include "tools/profile/report_parts.h"
#include "tools/table.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

double Share(double part, double whole) { return whole > 0 ? part / whole : 0.0; }

// A kernel that every layer launches equally often.
bool IsOfLayers(const OpTime& op, int64_t num_layers) {
  return num_layers > 0 && op.count >= num_layers && op.count % num_layers == 0;
}

std::string Signed(double fraction) { return absl::StrFormat("%+.1f %%", fraction * 100); }

std::string KernelTable(const PointProfile& point, const ProfileContext& context) {
  const int64_t num_layers = context.num_layers;
  const double stamp = context.StampCostNs();
  const double net_sum = point.kernels.NetSumNs(stamp);
  Table table({"op", "calls", "stamped", "net", "share", "net per call", "net per layer"});
  for (const OpTime& op : point.kernels.ops()) {
    const double net = KernelTimes::NetNs(op, stamp);
    table.AddRow({NameOf(op.launch), absl::StrCat(op.count), FormatDuration(op.stamped_ns.Mean()),
                  FormatDuration(net), FormatPercent(Share(net, net_sum)),
                  FormatDuration(net / op.count),
                  IsOfLayers(op, num_layers) ? FormatDuration(net / static_cast<double>(num_layers))
                                             : kNone});
  }
  return table.ToString(context.width);
}

// How the kernels' times relate to the replay's latency.
std::string SumText(const PointProfile& point, const ProfileContext& context) {
  const double stamp = context.StampCostNs();
  const double net_sum = point.kernels.NetSumNs(stamp);
  const double span = point.kernels.span_ns().Mean();
  return Paragraph(
      absl::StrCat("stamped times add up to ", FormatDuration(span), ", ",
                   FormatPercent(Share(span, point.profiled.replay_ns.Mean())),
                   " of the profiled graph's mean replay (",
                   FormatDuration(point.profiled.replay_ns.Mean()),
                   "); skew of the profiled graph ", Signed(point.Skew()), ", ",
                   FormatDuration(stamp), " a stamp; net times add up to ", FormatDuration(net_sum),
                   ", ", FormatPercent(Share(net_sum, point.plain.replay_ns.Mean())),
                   " of the mean replay (", FormatDuration(point.plain.replay_ns.Mean()), ")"),
      context.width);
}

// How replay is distributed: bins of one width up to the 99th percentile, and what lies beyond it.
std::string HistogramText(const Samples& ns, size_t width) {
  constexpr size_t kBins = 8;
  constexpr size_t kWidestBar = 32, kNarrowestBar = 4;
  // A third of a terminal's line, which other columns share; no limit where there is none.
  const size_t widest = width == 0 ? kWidestBar : std::clamp(width / 3, kNarrowestBar, kWidestBar);
  const double low = ns.Min(), high = ns.Percentile(99);
  const double step = (high - low) / kBins;
  std::vector<size_t> counts(kBins + 1, 0);
  for (const double value : ns.values()) {
    const auto bin = step > 0 ? static_cast<size_t>((value - low) / step) : 0;
    ++counts[value > high ? kBins : std::min(bin, kBins - 1)];
  }
  const auto most = static_cast<double>(*std::max_element(counts.begin(), counts.end()));
  Table table({"replay from", "to", "steps", ""});
  table.SetKeys(3);
  table.AlignLeft();
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const bool beyond = i == kBins;
    const double from = low + step * static_cast<double>(i);
    const auto bar = static_cast<size_t>(std::ceil(static_cast<double>(widest * counts[i]) / most));
    table.AddRow({FormatDuration(from), FormatDuration(beyond ? ns.Max() : from + step),
                  absl::StrCat(counts[i]), std::string(bar, '#')});
  }
  return table.ToString(width);
}

std::string LatencyTable(const std::vector<PointProfile>& points, const ProfileContext& context) {
  Table table({"rows", "context", "graph", "replay p50", "p90", "p99", "p99.9", "spread",
               "launch p50", "device p50", "bytes", "bytes/s", "of read", "SM clock", "power"});
  table.SetKeys(3);
  for (const PointProfile& p : points) {
    const Samples& replay = p.plain.replay_ns;
    table.AddRow({absl::StrCat(p.rows), FormatCount(p.context), p.graph,
                  FormatDuration(replay.Percentile(50)), FormatDuration(replay.Percentile(90)),
                  FormatDuration(replay.Percentile(99)), FormatDuration(replay.Percentile(99.9)),
                  p.Spread() ? FormatPercent(*p.Spread()) : kNone,
                  FormatDuration(p.plain.launch_ns.Percentile(50)),
                  FormatDuration(p.plain.device_ns.Percentile(50)), FormatBytes(p.bytes.total()),
                  FormatBandwidth(p.BytesPerSecond()),
                  FormatPercent(Share(p.BytesPerSecond(), context.bandwidth.best_read())),
                  MeanText(p.sm_clock_mhz, "MHz"), MeanText(p.power_w, "W")});
  }
  return table.ToString(context.width);
}

std::string BytesTable(const std::vector<PointProfile>& points, const ProfileContext& context) {
  Table table({"rows", "context", "weights", "KV read", "KV written", "activations", "in all"});
  table.SetKeys(2);
  for (const PointProfile& p : points) {
    table.AddRow({absl::StrCat(p.rows), FormatCount(p.context), FormatBytes(p.bytes.weights),
                  FormatBytes(p.bytes.kv_read), FormatBytes(p.bytes.kv_written),
                  FormatBytes(p.bytes.activations), FormatBytes(p.bytes.total())});
  }
  return table.ToString(context.width);
}

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

// Of a weight that a linear layer reads, with its share of a scale.
double ElementBytes(const graphs::ProfiledLaunch& launch, const ProfileContext& context) {
  if (!launch.op.ends_with("_fp8")) return context.weight_bytes;
  return kernels::BytesOf(kernels::WeightFormat::kE4m3) +
         static_cast<double>(sizeof(float)) / kernels::kScaleInputs;
}

// What all launches of a kernel in a step have to read, where that is one thing: the matrices of a
// linear layer, or the KV of a step's only attention kernel.
std::optional<double> ReadBytes(const OpTime& op, const PointProfile& point,
                                const ProfileContext& context) {
  const graphs::ProfiledLaunch& launch = op.launch;
  const std::pair<absl::string_view, absl::string_view> size = absl::StrSplit(launch.shape, 'x');
  double outputs = 0, inputs = 0;
  if (launch.op.starts_with("linear") && absl::SimpleAtod(size.first, &outputs) &&
      absl::SimpleAtod(size.second, &inputs))
    return op.count * outputs * inputs * ElementBytes(launch, context);
  const auto is_attention = [](const OpTime& other) {
    return other.launch.op.starts_with("attention");
  };
  const std::vector<OpTime>& ops = point.kernels.ops();
  if (is_attention(op) && std::count_if(ops.begin(), ops.end(), is_attention) == 1)
    return static_cast<double>(point.bytes.kv_read);
  return std::nullopt;
}

nlohmann::json TimelineToJson(const KernelTimes& kernels) {
  nlohmann::json us = nlohmann::json::array();
  for (const double ns : kernels.MeanLaunchNs()) us.push_back(ns * kNsToUs);
  return {{"op", kernels.op_of_launch()}, {"stamped_us", std::move(us)}};
}

nlohmann::json OpsToJson(const PointProfile& point, const ProfileContext& context) {
  const int64_t num_layers = context.num_layers;
  const double stamp = context.StampCostNs();
  const double net_sum = point.kernels.NetSumNs(stamp);
  nlohmann::json ops = nlohmann::json::array();
  for (const OpTime& op : point.kernels.ops()) {
    const double net_us = KernelTimes::NetNs(op, stamp) * kNsToUs;
    nlohmann::json shape = nullptr;
    if (!op.launch.shape.empty()) shape = op.launch.shape;
    nlohmann::json per_layer = nullptr;
    if (IsOfLayers(op, num_layers)) per_layer = net_us / static_cast<double>(num_layers);
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
                   {"read_bytes", NumberOrNull(ReadBytes(op, point, context))}});
  }
  return ops;
}

}  // namespace

std::string NameOf(const graphs::ProfiledLaunch& launch) {
  return launch.shape.empty() ? launch.op : absl::StrCat(launch.op, " ", launch.shape);
}

std::string ProfileHeader(const ProfileContext& context) {
  Table table({});
  table.AlignLeft();
  table.AddRow({"model", context.model});
  table.AddRow({"device", context.device});
  table.AddRow({"bandwidth", BandwidthText(context.bandwidth)});
  table.AddRow({"clock, power", context.telemetry.empty()
                                    ? absl::StrCat("not available: ", context.telemetry_why)
                                    : absl::StrCat("from ", context.telemetry)});
  return absl::StrCat(table.ToString(context.width), "\n");
}

std::string PointName(const PointProfile& point) {
  return absl::StrCat(point.rows, point.rows == 1 ? " row" : " rows", " of ",
                      FormatCount(point.context), " tokens");
}

std::string SpreadWarning(const PointProfile& point) {
  const std::optional<double> spread = point.Spread();
  if (!spread || *spread <= kTrustedSpread) return "";
  return absl::StrCat("the medians of ", point.round_replay_ns.count(), " rounds of ",
                      PointName(point), " reach from ", FormatDuration(point.round_replay_ns.Min()),
                      " to ", FormatDuration(point.round_replay_ns.Max()), ", a spread of ",
                      FormatPercent(*spread), " (more than ", FormatPercent(kTrustedSpread),
                      "): something else uses the device, or its clocks change");
}

std::string PointText(const PointProfile& point, const ProfileContext& context) {
  return absl::StrCat(
      Paragraph(absl::StrCat(PointName(point), ": ", point.graph, ", ", point.num_kernels,
                             " kernels, ", point.padding_rows,
                             " rows of padding, attention leaf \"", point.attention_leaf, "\""),
                context.width),
      KernelTable(point, context), SumText(point, context), "\n",
      HistogramText(point.plain.replay_ns, context.width), "\n");
}

std::string PointsText(const std::vector<PointProfile>& points, const ProfileContext& context) {
  return absl::StrCat(LatencyTable(points, context), "\n", BytesTable(points, context));
}

std::string BandwidthText(const Bandwidth& bandwidth) {
  return absl::StrCat("read ", FormatBandwidth(bandwidth.best_read()), ", copy ",
                      FormatBandwidth(bandwidth.best_copy()), " (best of ", bandwidth.read.count(),
                      " passes over ", FormatBytes(bandwidth.bytes), ")");
}

nlohmann::json BandwidthToJson(const Bandwidth& bandwidth) {
  return {{"bytes", bandwidth.bytes},
          {"passes", bandwidth.read.count()},
          {"read_bytes_per_s",
           {{"best", bandwidth.best_read()}, {"p50", bandwidth.read.Percentile(50)}}},
          {"copy_bytes_per_s",
           {{"best", bandwidth.best_copy()}, {"p50", bandwidth.copy.Percentile(50)}}}};
}

nlohmann::json PointToJson(const PointProfile& point, const ProfileContext& context) {
  nlohmann::json profiled = TimesToJson(point.profiled);
  profiled["kernels"] = point.num_profiled_kernels;
  profiled["skew"] = point.Skew();
  profiled["device_skew"] = point.DeviceSkew();
  return {{"rows", point.rows},
          {"context", point.context},
          {"mean_context", point.mean_context},
          {"mean_attended", point.mean_attended},
          {"graph", point.graph},
          {"attention_leaf", point.attention_leaf},
          {"padding_rows", point.padding_rows},
          {"kernels", point.num_kernels},
          {"round_replay_us", point.round_replay_ns.ValuesToJson(kNsToUs)},
          {"spread", point.Spread() ? nlohmann::json(*point.Spread()) : nlohmann::json(nullptr)},
          {"plain", TimesToJson(point.plain)},
          {"twin", std::move(profiled)},
          {"bytes",
           {{"weights", point.bytes.weights},
            {"kv_read", point.bytes.kv_read},
            {"kv_written", point.bytes.kv_written},
            {"activations", point.bytes.activations},
            {"total", point.bytes.total()}}},
          {"bytes_per_s", point.BytesPerSecond()},
          {"share_of_read_bandwidth", Share(point.BytesPerSecond(), context.bandwidth.best_read())},
          {"samples_ns",
           {{"replay", SamplesToJson(point.plain.replay_ns, point)},
            {"device", SamplesToJson(point.plain.device_ns, point)},
            {"launch", SamplesToJson(point.plain.launch_ns, point)}}},
          {"ops", OpsToJson(point, context)},
          {"timeline", TimelineToJson(point.kernels)},
          {"stamped_span_us", point.kernels.span_ns().ToJson(kNsToUs)},
          {"net_sum_us", point.kernels.NetSumNs(context.StampCostNs()) * kNsToUs},
          {"clock",
           {{"sm_mhz", MeanJson(point.sm_clock_mhz)},
            {"memory_mhz", MeanJson(point.memory_clock_mhz)},
            {"power_w", MeanJson(point.power_w)}}}};
}

}  // namespace reprise::tools
