// SPDX-License-Identifier: Apache-2.0
// TopFigures as text for people and as JSON.
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "tools/table.h"
#include "tools/text_width.h"
#include "tools/top/top_figures.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

using nlohmann::json;

std::string Seconds(double seconds) {
  return std::isnan(seconds) ? "-" : FormatDuration(seconds * 1e9);
}

std::string Count(double count) { return FormatCount(static_cast<uint64_t>(count)); }

std::string Of(double part, double whole) {
  return absl::StrCat(Count(part), " of ", Count(whole));
}

std::string Fixed(double value) { return absl::StrCat(std::round(value * 10) / 10); }

std::string StateOf(const TopFigures& figures) {
  if (figures.serving) return "SERVING";
  if (figures.device_faults > 0) return "NOT SERVING: the device failed";
  return figures.loaded ? "NOT SERVING: draining" : "NOT SERVING: loading";
}

std::string Headline(const TopFigures& figures, const std::string& address) {
  const std::string device = figures.device.empty() ? "" : absl::StrCat(" on ", figures.device);
  return absl::StrCat(
      address, ": ", StateOf(figures), ", up ", Seconds(figures.uptime_seconds), ", reprise ",
      figures.version, device, "\n",
      figures.restarted ? "The server was restarted; figures are since then.\n" : "");
}

std::string RatesText(const TopFigures& figures, size_t width) {
  return Paragraph(
      absl::StrCat(FormatRate(figures.steps_per_second), " steps, ",
                   FormatRate(figures.sampled_tokens_per_second), " tokens sampled, ",
                   FormatRate(figures.prompt_tokens_per_second), " prompt tokens; device busy ",
                   FormatPercent(figures.device_busy), "; over ", Seconds(figures.seconds)),
      width, 2);
}

std::string GraphsText(const TopFigures& figures, size_t width) {
  if (figures.graphs.empty()) return "no steps\n";
  Table table({"graph", "steps/s", "rows/step", "padding", "device p50", "p90", "p99", "wall p50",
               "p90", "p99"});
  for (const GraphFigures& graph : figures.graphs) {
    table.AddRow({graph.name, FormatRate(graph.steps_per_second), Fixed(graph.rows_per_step),
                  FormatPercent(graph.padding), Seconds(graph.device.p50),
                  Seconds(graph.device.p90), Seconds(graph.device.p99), Seconds(graph.wall.p50),
                  Seconds(graph.wall.p90), Seconds(graph.wall.p99)});
  }
  return table.ToString(width);
}

// Those that lost their stream and wait to be resumed are open, and hold rows and blocks.
std::string SessionsText(const TopFigures& figures) {
  const std::string open = Of(figures.sessions, figures.max_sessions);
  if (figures.detached_sessions == 0) return open;
  return absl::StrCat(open, ", ", Count(figures.detached_sessions), " detached");
}

std::string StateText(const TopFigures& figures, size_t width) {
  Table table({});
  table.AlignLeft();
  table.AddRow(
      {"KV blocks held", Of(figures.pool_blocks - figures.pool_free_blocks, figures.pool_blocks)});
  table.AddRow({"resident rows", Of(figures.rows, figures.max_rows)});
  table.AddRow({"sessions", SessionsText(figures)});
  table.AddRow({"requests", absl::StrCat(Count(figures.requests_in_flight), " in flight, ",
                                         Count(figures.requests_waiting), " waiting, of ",
                                         Count(figures.sessions_waiting), " sessions")});
  table.AddRow({"waits", absl::StrCat("p50 ", Seconds(figures.queue.p50), ", p99 ",
                                      Seconds(figures.queue.p99), ", oldest ",
                                      Seconds(figures.oldest_wait_seconds))});
  table.AddRow({"served spread", Seconds(figures.served_spread_seconds)});
  table.AddRow(
      {"messages", absl::StrCat(FormatBytes(static_cast<uint64_t>(figures.message_bytes)), " of ",
                                FormatBytes(static_cast<uint64_t>(figures.max_message_bytes)))});
  table.AddRow({"connections", Count(figures.connections)});
  return table.ToString(width);
}

std::string RefusalsText(const TopFigures& figures, size_t width) {
  Table table({"refused", "now", "total"});
  for (const auto& [code, count] : figures.refused)
    table.AddRow({code, Count(count.now), Count(count.total)});
  const auto add = [&table](const char* name, const TopFigures::Count& count) {
    if (count.total > 0) table.AddRow({name, Count(count.now), Count(count.total)});
  };
  add("results lost", figures.lost);
  add("sessions refused", figures.sessions_refused);
  add("connections refused", figures.connections_refused);
  add("connections cut off", figures.connections_cut);
  add("log records dropped", figures.log_dropped);
  return table.empty() ? "nothing refused\n" : table.ToString(width);
}

// NaN is null in JSON.
json JsonOf(const TimeQuantiles& times) {
  return {{"p50_seconds", times.p50}, {"p90_seconds", times.p90}, {"p99_seconds", times.p99}};
}

json JsonOf(const TopFigures::Count& count) { return {{"now", count.now}, {"total", count.total}}; }

}  // namespace

std::string TopText(const TopFigures& figures, const std::string& address, size_t width) {
  std::string text = Headline(figures, address);
  if (!figures.loaded) return text;
  return absl::StrCat(text, RatesText(figures, width), "\n", GraphsText(figures, width), "\n",
                      StateText(figures, width), "\n", RefusalsText(figures, width));
}

json TopJson(const TopFigures& figures) {
  json graphs = json::array();
  for (const GraphFigures& graph : figures.graphs) {
    graphs.push_back({{"graph", graph.name},
                      {"steps_per_second", graph.steps_per_second},
                      {"rows_per_step", graph.rows_per_step},
                      {"padding", graph.padding},
                      {"device", JsonOf(graph.device)},
                      {"wall", JsonOf(graph.wall)}});
  }
  json refused = json::object();
  for (const auto& [code, count] : figures.refused) refused[code] = JsonOf(count);
  return {{"loaded", figures.loaded},
          {"serving", figures.serving},
          {"restarted", figures.restarted},
          {"seconds", figures.seconds},
          {"uptime_seconds", figures.uptime_seconds},
          {"server_version", figures.version},
          {"device", figures.device},
          {"steps_per_second", figures.steps_per_second},
          {"sampled_tokens_per_second", figures.sampled_tokens_per_second},
          {"prompt_tokens_per_second", figures.prompt_tokens_per_second},
          {"device_busy", figures.device_busy},
          {"queue", JsonOf(figures.queue)},
          {"graphs", graphs},
          {"pool_blocks", figures.pool_blocks},
          {"pool_free_blocks", figures.pool_free_blocks},
          {"resident_rows", figures.rows},
          {"max_rows", figures.max_rows},
          {"sessions", figures.sessions},
          {"detached_sessions", figures.detached_sessions},
          {"max_sessions", figures.max_sessions},
          {"requests_in_flight", figures.requests_in_flight},
          {"requests_waiting", figures.requests_waiting},
          {"sessions_waiting", figures.sessions_waiting},
          {"oldest_wait_seconds", figures.oldest_wait_seconds},
          {"served_spread_seconds", figures.served_spread_seconds},
          {"message_bytes", figures.message_bytes},
          {"max_message_bytes", figures.max_message_bytes},
          {"connections", figures.connections},
          {"refused", refused},
          {"lost", JsonOf(figures.lost)},
          {"sessions_refused", JsonOf(figures.sessions_refused)},
          {"connections_refused", JsonOf(figures.connections_refused)},
          {"connections_cut", JsonOf(figures.connections_cut)},
          {"log_dropped", JsonOf(figures.log_dropped)},
          {"device_faults", figures.device_faults}};
}

}  // namespace reprise::tools
