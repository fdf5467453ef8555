// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/report.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "tools/profile/report_parts.h"
#include "tools/profile/roofs.h"
#include "tools/table.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

std::string Signed(double fraction) { return absl::StrFormat("%+.1f %%", fraction * 100); }

std::string PercentText(const std::optional<double>& share) {
  return share ? FormatPercent(*share) : kNoFigure;
}

std::string KernelTable(const PointProfile& point, const ProfileContext& context) {
  const int64_t num_layers = context.spec.num_layers;
  const double stamp = context.StampCostNs();
  const double net_sum = point.kernels.NetSumNs(stamp);
  std::vector<std::string> columns = {"op",    "calls",        "stamped",       "net",
                                      "share", "net per call", "net per layer", "of roof"};
  const bool traced = !point.trace.empty();
  if (traced) columns.insert(columns.end(), {"traced", "exposed", "gaps"});
  const std::vector<LaunchTrace> traces = TracesOfOps(point);
  Table table(columns);
  for (size_t i = 0; i < point.kernels.ops().size(); ++i) {
    const OpTime& op = point.kernels.ops()[i];
    const double net = KernelTimes::NetNs(op, stamp);
    std::vector<std::string> cells = {NameOf(op.launch),
                                      absl::StrCat(op.count),
                                      FormatDuration(op.stamped_ns.Mean()),
                                      FormatDuration(net),
                                      FormatPercent(Share(net, net_sum)),
                                      FormatDuration(net / op.count),
                                      op.IsOfLayers(num_layers)
                                          ? FormatDuration(net / static_cast<double>(num_layers))
                                          : kNoFigure,
                                      PercentText(ShareOfRoof(op, point, context))};
    if (traced) {
      for (const double ns : {traces[i].duration_ns, traces[i].exposed_ns, traces[i].gap_ns})
        cells.push_back(FormatDuration(ns));
    }
    table.AddRow(cells);
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

// How traced kernels make up a step; "" where none were traced.
std::string TraceText(const PointProfile& point, const ProfileContext& context) {
  const KernelTrace& trace = point.trace;
  if (trace.empty()) return "";
  return Paragraph(
      absl::StrCat("traced: ", trace.num_steps(),
                   trace.num_steps() == 1 ? " step spans " : " steps span ",
                   FormatDuration(trace.span_ns().Mean()), " from the first kernel's begin to the ",
                   "last one's end, of which ", FormatDuration(trace.gap_ns().Mean()),
                   " lie between kernels; what kernels ran beside others adds up to ",
                   FormatDuration(trace.overlap_ns().Mean()), "; skew of traced steps ",
                   Signed(point.TracedSkew())),
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
         PercentText(p.Spread()), FormatDuration(p.plain.launch_ns.Percentile(50)),
         FormatDuration(p.plain.device_ns.Percentile(50)), FormatBytes(p.bytes.total()),
         FormatBandwidth(p.BytesPerSecond()),
         PercentText(ShareIfAny(p.BytesPerSecond(), context.bandwidth.best_read())),
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

// "15.6 M": in a column whose heading has the unit.
std::string ShortFlops(double flops) {
  return std::string(absl::StripSuffix(FormatFlops(flops), "FLOP"));
}

// What a step moves, and what it multiplies and takes.
std::string WorkTable(const std::vector<PointProfile>& points, const ProfileContext& context) {
  const std::vector<std::string> keys = KeysOf(points);
  Table table = TableOf(keys,
                        {"weights", "KV read", "KV written", "activations", "in all", "FLOP",
                         "FLOP/s", "of products", "energy"},
                        /*more_keys=*/0);
  for (const PointProfile& p : points) {
    const double flops = StepFlops(p, context);
    const double flops_per_s = Share(flops * 1e9, p.plain.device_ns.Percentile(50));
    const std::optional<double> energy = p.EnergyJ();
    table.AddRow(LineOf(p, keys.size(),
                        {FormatBytes(p.bytes.weights), FormatBytes(p.bytes.kv_read),
                         FormatBytes(p.bytes.kv_written), FormatBytes(p.bytes.activations),
                         FormatBytes(p.bytes.total()), ShortFlops(flops), ShortFlops(flops_per_s),
                         PercentText(ShareIfAny(flops_per_s, context.products.best())),
                         energy ? absl::StrFormat("%.3f J", *energy) : kNoFigure}));
  }
  return table.ToString(context.width);
}

std::string SignedTime(double ns) {
  return absl::StrCat(ns < 0 ? "-" : "+", FormatDuration(std::abs(ns)));
}

// What padding costs where it was measured; "" where it was not asked for, or could not be.
std::string PaddingTable(const std::vector<PointProfile>& points, const ProfileContext& context) {
  if (!context.padding || !context.why_no_padding.empty()) return "";
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

}  // namespace

std::vector<LaunchTrace> TracesOfOps(const PointProfile& point) {
  std::vector<LaunchTrace> ops(point.kernels.ops().size());
  const std::vector<LaunchTrace> launches = point.trace.MeanLaunches();
  for (size_t i = 0; i < launches.size(); ++i) {
    LaunchTrace& op = ops[point.kernels.op_of_launch()[i]];
    op.duration_ns += launches[i].duration_ns;
    op.gap_ns += launches[i].gap_ns;
    op.exposed_ns += launches[i].exposed_ns;
  }
  return ops;
}

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
    if (!context.why_no_stamps.empty()) {
      table.AddRow(
          {"not measured", absl::StrCat("kernels, bytes, bandwidth, ",
                                        context.padding ? "padding, " : "", "clock and power")});
      return absl::StrCat(table.ToString(context.width), "\n");
    }
    table.AddRow({"profiled graphs", context.profiled_graphs});
    if (!context.why_no_padding.empty())
      table.AddRow({"not measured", absl::StrCat("padding: ", context.why_no_padding)});
  }
  table.AddRow({"bandwidth", context.why_no_bandwidth.empty() ? BandwidthText(context.bandwidth)
                                                              : context.why_no_bandwidth});
  table.AddRow({"products", context.why_no_products.empty() ? ProductsText(context.products)
                                                            : context.why_no_products});
  table.AddRow({"clock, power", TelemetryText(context.telemetry)});
  table.AddRow({"kernels traced", context.tracing.name.empty()
                                      ? absl::StrCat("no: ", context.tracing.why_none)
                                      : absl::StrCat("by ", context.tracing.name)});
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
  const std::string wall =
      point.is_of_server() ? absl::StrCat(HistogramText(point.wall_ns, "wall", context.width), "\n")
                           : "";
  if (!point.has_stamps()) return absl::StrCat(head, wall);
  return absl::StrCat(head, KernelTable(point, context), SumText(point, context),
                      TraceText(point, context), "\n", wall,
                      HistogramText(point.plain.replay_ns, "replay", context.width), "\n");
}

std::string PointsText(const std::vector<PointProfile>& points, const ProfileContext& context) {
  const std::string server = context.server.empty() ? "" : ServerTable(points, context);
  if (!context.why_no_stamps.empty()) return server;
  return absl::StrCat(server, server.empty() ? "" : "\n", LatencyTable(points, context), "\n",
                      WorkTable(points, context), PaddingTable(points, context));
}

std::string BandwidthText(const Bandwidth& bandwidth) {
  return absl::StrCat("read ", FormatBandwidth(bandwidth.best_read()), ", copy ",
                      FormatBandwidth(bandwidth.best_copy()), " (best of ", bandwidth.read.count(),
                      " passes over ", FormatBytes(bandwidth.bytes), ")");
}

std::string ProductsText(const ProductRate& products) {
  const std::string features = FormatCount(static_cast<uint64_t>(products.features));
  return absl::StrCat(FormatFlops(products.best()), "/s (best of ", products.flops_per_s.count(),
                      " linear layers of ", features, "x", features, " with ",
                      FormatCount(products.tokens), " tokens, ",
                      std::string(runtime::NameOf(products.dtype)), ")");
}

}  // namespace reprise::tools
