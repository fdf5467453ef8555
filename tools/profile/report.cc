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
                                             : kNoFigure});
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

// How a quantity is distributed: bins of one width up to the 99th percentile, and what lies beyond
// it.
std::string HistogramText(const Samples& ns, const char* name, size_t width) {
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
  Table table({absl::StrCat(name, " from"), "to", "steps", ""});
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

// "1,024", "64 to 1,024".
std::string ContextText(const PointProfile& p) {
  const std::string shortest = p.shortest == 0 ? "" : absl::StrCat(FormatCount(p.shortest), " to ");
  return absl::StrCat(shortest, FormatCount(p.context));
}

// What says which point a line is of: prompts only where a point has any.
std::vector<std::string> KeysOf(const std::vector<PointProfile>& points) {
  const bool all_decode =
      std::all_of(points.begin(), points.end(), [](const auto& p) { return p.prompts.empty(); });
  return all_decode ? std::vector<std::string>{"rows", "context"}
                    : std::vector<std::string>{"rows", "context", "prompts"};
}

// The first cells of a line, then `more`.
std::vector<std::string> LineOf(const PointProfile& p, size_t num_keys,
                                std::vector<std::string> more) {
  std::vector<std::string> cells = {absl::StrCat(p.rows), p.rows == 0 ? kNoFigure : ContextText(p)};
  if (num_keys > cells.size())
    cells.push_back(p.prompts.empty() ? kNoFigure : PromptsName(p.point()));
  cells.insert(cells.end(), more.begin(), more.end());
  return cells;
}

Table TableOf(std::vector<std::string> keys, const std::vector<std::string>& more,
              size_t more_keys) {
  const size_t num_keys = keys.size() + more_keys;
  keys.insert(keys.end(), more.begin(), more.end());
  Table table(std::move(keys));
  table.SetKeys(num_keys);
  return table;
}

std::string LatencyTable(const std::vector<PointProfile>& points, const ProfileContext& context) {
  const std::vector<std::string> keys = KeysOf(points);
  Table table = TableOf(keys,
                        {"graph", "replay p50", "p90", "p99", "p99.9", "spread", "launch p50",
                         "device p50", "bytes", "bytes/s", "of read", "SM clock", "power"},
                        /*more_keys=*/1);
  for (const PointProfile& p : points) {
    const Samples& replay = p.plain.replay_ns;
    table.AddRow(LineOf(
        p, keys.size(),
        {p.graph, FormatDuration(replay.Percentile(50)), FormatDuration(replay.Percentile(90)),
         FormatDuration(replay.Percentile(99)), FormatDuration(replay.Percentile(99.9)),
         p.Spread() ? FormatPercent(*p.Spread()) : kNoFigure,
         FormatDuration(p.plain.launch_ns.Percentile(50)),
         FormatDuration(p.plain.device_ns.Percentile(50)), FormatBytes(p.bytes.total()),
         FormatBandwidth(p.BytesPerSecond()),
         FormatPercent(Share(p.BytesPerSecond(), context.bandwidth.best_read())),
         MeanText(p.sm_clock_mhz, "MHz"), MeanText(p.power_w, "W")}));
  }
  return table.ToString(context.width);
}

// What a server tells, and what its client sees.
std::string ServerTable(const std::vector<PointProfile>& points, const ProfileContext& context) {
  const std::vector<std::string> keys = KeysOf(points);
  Table table = TableOf(keys,
                        {"graph", "wall p50", "p90", "p99", "p99.9", "overhead p50", "replay p50",
                         "p99", "spread", "launch p50", "device p50"},
                        /*more_keys=*/1);
  for (const PointProfile& p : points) {
    const Samples &wall = p.wall_ns, &replay = p.plain.replay_ns;
    table.AddRow(LineOf(
        p, keys.size(),
        {p.graph, FormatDuration(wall.Percentile(50)), FormatDuration(wall.Percentile(90)),
         FormatDuration(wall.Percentile(99)), FormatDuration(wall.Percentile(99.9)),
         FormatDuration(p.overhead_ns.Percentile(50)), FormatDuration(replay.Percentile(50)),
         FormatDuration(replay.Percentile(99)), p.Spread() ? FormatPercent(*p.Spread()) : kNoFigure,
         FormatDuration(p.plain.launch_ns.Percentile(50)),
         FormatDuration(p.plain.device_ns.Percentile(50))}));
  }
  return table.ToString(context.width);
}

std::string BytesTable(const std::vector<PointProfile>& points, const ProfileContext& context) {
  const std::vector<std::string> keys = KeysOf(points);
  Table table = TableOf(keys, {"weights", "KV read", "KV written", "activations", "in all"},
                        /*more_keys=*/0);
  for (const PointProfile& p : points) {
    table.AddRow(LineOf(p, keys.size(),
                        {FormatBytes(p.bytes.weights), FormatBytes(p.bytes.kv_read),
                         FormatBytes(p.bytes.kv_written), FormatBytes(p.bytes.activations),
                         FormatBytes(p.bytes.total())}));
  }
  return table.ToString(context.width);
}

std::string SignedTime(double ns) {
  return absl::StrCat(ns < 0 ? "-" : "+", FormatDuration(std::abs(ns)));
}

// What padding costs where it was measured; "" where it was not asked for.
std::string PaddingTable(const std::vector<PointProfile>& points, const ProfileContext& context) {
  if (!context.padding) return "";
  const std::vector<std::string> keys = KeysOf(points);
  Table table = TableOf(keys,
                        {"graph", "padding", "replay p50", "without", "cost", "share", "device p50",
                         "without", "cost", "share"},
                        /*more_keys=*/1);
  for (const PointProfile& p : points) {
    if (!p.has_unpadded()) continue;
    const double replay = p.plain.replay_ns.Percentile(50);
    const double device = p.plain.device_ns.Percentile(50);
    table.AddRow(
        LineOf(p, keys.size(),
               {p.graph, absl::StrCat(p.prompts.empty() ? p.padding_rows : p.padding_tokens),
                FormatDuration(replay), FormatDuration(p.unpadded.replay_ns.Percentile(50)),
                SignedTime(p.PaddingReplayNs()), Signed(Share(p.PaddingReplayNs(), replay)),
                FormatDuration(device), FormatDuration(p.unpadded.device_ns.Percentile(50)),
                SignedTime(p.PaddingDeviceNs()), Signed(Share(p.PaddingDeviceNs(), device))}));
  }
  if (table.empty()) return "\npadding: no point has any\n";
  return absl::StrCat("\n", table.ToString(context.width));
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

// Of a weight that a linear layer reads, with its share of a scale.
double ElementBytes(const graphs::ProfiledLaunch& launch, const ProfileContext& context) {
  const bool fp8 = launch.op.ends_with("_fp8"), int4 = launch.op.ends_with("_int4");
  if (!fp8 && !int4) return context.weight_bytes;
  return kernels::BitsOf(fp8 ? kernels::WeightFormat::kE4m3 : kernels::WeightFormat::kInt4) / 8.0 +
         static_cast<double>(sizeof(float)) / context.scale_inputs;
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

// What only an engine in this process can be asked for.
nlohmann::json StampsToJson(const PointProfile& point, const ProfileContext& context) {
  nlohmann::json profiled = TimesToJson(point.profiled);
  profiled["kernels"] = point.num_profiled_kernels;
  profiled["skew"] = point.Skew();
  profiled["device_skew"] = point.DeviceSkew();
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
          {"share_of_read_bandwidth", Share(point.BytesPerSecond(), context.bandwidth.best_read())},
          {"ops", OpsToJson(point, context)},
          {"timeline", TimelineToJson(point.kernels)},
          {"stamped_span_us", point.kernels.span_ns().ToJson(kNsToUs)},
          {"net_sum_us", point.kernels.NetSumNs(context.StampCostNs()) * kNsToUs}};
}

// In its place, of a server's steps.
nlohmann::json UntoldToJson(const PointProfile& point) {
  return {{"twin", nullptr},
          {"bytes", nullptr},
          {"bytes_per_s", nullptr},
          {"share_of_read_bandwidth", nullptr},
          {"ops", nlohmann::json::array()},
          {"stamped_span_us", nullptr},
          {"net_sum_us", nullptr},
          {"shared_steps", point.num_shared_steps}};
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
  if (!context.server.empty()) {
    table.AddRow({"server", context.server});
    table.AddRow(
        {"not measured", "kernels, bytes, bandwidth, clock and power: a server tells none"});
    return absl::StrCat(table.ToString(context.width), "\n");
  }
  table.AddRow({"bandwidth", BandwidthText(context.bandwidth)});
  table.AddRow({"clock, power", context.telemetry.empty()
                                    ? absl::StrCat("not available: ", context.telemetry_why)
                                    : absl::StrCat("from ", context.telemetry)});
  return absl::StrCat(table.ToString(context.width), "\n");
}

std::string PointName(const PointProfile& point) {
  const std::string rows = absl::StrCat(point.rows, point.rows == 1 ? " row" : " rows", " of ",
                                        ContextText(point), " tokens");
  if (point.prompts.empty()) return rows;
  const std::string prompts = absl::StrCat("prompts of ", PromptsName(point.point()), " tokens");
  return point.rows == 0 ? prompts : absl::StrCat(rows, " and ", prompts);
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

std::string SharedWarning(const PointProfile& point) {
  if (point.num_shared_steps == 0) return "";
  return absl::StrCat(FormatCount(point.num_shared_steps), " of ",
                      FormatCount(point.plain.replay_ns.count()), " steps of ", PointName(point),
                      " ran rows of other sessions too: their times are not those of the point");
}

std::string PointText(const PointProfile& point, const ProfileContext& context) {
  const std::string leaf = point.attention_leaf.empty()
                               ? ""
                               : absl::StrCat(", attention leaf \"", point.attention_leaf, "\"");
  const std::string head = Paragraph(
      absl::StrCat(PointName(point), ": ", point.graph, ", ", point.num_kernels, " kernels, ",
                   point.prompts.empty() ? absl::StrCat(point.padding_rows, " rows")
                                         : absl::StrCat(point.padding_tokens, " tokens"),
                   " of padding", leaf),
      context.width);
  if (point.is_of_server()) {
    return absl::StrCat(head, HistogramText(point.wall_ns, "wall", context.width), "\n");
  }
  return absl::StrCat(head, KernelTable(point, context), SumText(point, context), "\n",
                      HistogramText(point.plain.replay_ns, "replay", context.width), "\n");
}

std::string PointsText(const std::vector<PointProfile>& points, const ProfileContext& context) {
  if (!context.server.empty()) return ServerTable(points, context);
  return absl::StrCat(LatencyTable(points, context), "\n", BytesTable(points, context),
                      PaddingTable(points, context));
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
  json.update(point.is_of_server() ? UntoldToJson(point) : StampsToJson(point, context));
  return json;
}

}  // namespace reprise::tools
