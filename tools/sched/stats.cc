// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/stats.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/sched/transcript.h"
#include "tools/table.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr double kNsToMs = 1e-6;

// In the order in which a step goes through them, but for the last three, which share what the
// others leave of the server's time.
constexpr std::array<std::string_view, 10> kNetworkParts = {
    "wire",  "queue",   "validate", "ring",    "launch",
    "reply", "network", "device",   "overlap", "waiting"};
constexpr std::array<std::string_view, 6> kLocalParts = {"validate", "ring",    "launch",
                                                         "device",   "overlap", "waiting"};

uint64_t Minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

// A step's round trip, divided: every nanosecond is in one part, whatever overlaps on the clocks
// that the parts were measured by.
class RoundTrip {
 public:
  // `behind_ns`: of the round trip, before the result of the step before was in hand.
  RoundTrip(const StepOutcome& outcome, uint64_t behind_ns, bool over_network) {
    const engine::StepLedger& ledger = outcome.ledger;
    uint64_t left = outcome.round_trip_ns;
    const auto take = [this, &left](std::string_view part, uint64_t ns) {
      const uint64_t taken = std::min(ns, left);
      parts_.emplace_back(part, taken);
      left -= taken;
    };
    if (over_network) take("network", Minus(left, ledger.total_ns));
    const uint64_t way_back = (outcome.round_trip_ns - left) / 2;
    take("wire", outcome.wire_ns);
    take("queue", outcome.queue_ns);
    take("validate", ledger.validate_ns);
    take("ring", ledger.ring_ns);
    take("launch", ledger.launch_ns);
    const uint64_t launched_ns = outcome.round_trip_ns - left - way_back;
    take("reply", outcome.reply_ns);
    take("device", ledger.device_ns);
    take("overlap", Minus(behind_ns, launched_ns));
    take("waiting", left);
  }

  uint64_t Ns(std::string_view part) const {
    for (const auto& [name, ns] : parts_) {
      if (name == part) return ns;
    }
    return 0;
  }

 private:
  std::vector<std::pair<std::string_view, uint64_t>> parts_;
};

constexpr char kNone[] = "-";

std::vector<std::string> PercentileRow(std::string name, const Samples& ns) {
  if (ns.empty()) return {std::move(name), kNone, kNone, kNone, kNone};
  return {std::move(name), FormatDuration(ns.Percentile(50)), FormatDuration(ns.Percentile(90)),
          FormatDuration(ns.Percentile(99)), FormatDuration(ns.Mean())};
}

std::string ShareText(double part, double whole) {
  return whole > 0 ? FormatPercent(part / whole) : kNone;
}

std::string ShareOfMedians(const Samples& part, const Samples& whole) {
  return part.empty() ? kNone : ShareText(part.Percentile(50), whole.Percentile(50));
}

}  // namespace

// Of equal prefixes the shorter name has the smaller number.
bool Stats::ByCapacity::operator()(const std::string& a, const std::string& b) const {
  const std::string_view kind_a = std::string_view(a).substr(0, a.rfind('/'));
  const std::string_view kind_b = std::string_view(b).substr(0, b.rfind('/'));
  return std::make_tuple(kind_a, a.size(), std::string_view(a)) <
         std::make_tuple(kind_b, b.size(), std::string_view(b));
}

Stats::Stats(const StatsOptions& options) : options_(options) {
  if (options_.over_network) {
    for (std::string_view name : kNetworkParts) parts_.push_back({name, {}});
  } else {
    for (std::string_view name : kLocalParts) parts_.push_back({name, {}});
  }
}

void Stats::AddStep(const StepOutcome& outcome, const FinishedStep& step) {
  num_steps_ += outcome.steps.size();
  const uint64_t submitted_ns = Minus(step.result_ns, outcome.round_trip_ns);
  const uint64_t behind_ns = Minus(last_result_ns_, submitted_ns);
  last_result_ns_ = step.result_ns;
  if (outcome.rows.empty()) {  // drops alone
    last_decode_result_ns_.reset();
    return;
  }
  AddDrafts(outcome, step);
  for (const engine::SingleStep& single : outcome.steps) {
    const engine::StepReport& report = single.report;
    Graph& graph = graphs_[std::string(report.graph)];
    ++(report.replayed ? graph.replays : graph.eager_runs);
    graph.tokens += report.tokens;
    graph.padding_tokens += report.padding_tokens;
  }
  if (step.prefill) {
    last_decode_result_ns_.reset();
    AddLedger(outcome, behind_ns);
    return;
  }
  const bool warm = num_decode_steps_ >= options_.warmup_steps;
  num_decode_steps_ += outcome.steps.size();
  if (warm) {
    AddLedger(outcome, behind_ns);
    AddDecodeSteps(outcome, step);
  }
  last_decode_result_ns_ = step.result_ns;
}

void Stats::AddDrafts(const StepOutcome& outcome, const FinishedStep& step) {
  if (step.draft_tokens == 0) return;
  ++drafts_.steps;
  drafts_.proposed += step.draft_tokens;
  drafts_.accepted += outcome.accepted.size();
  for (const engine::RowOutcome& row : outcome.rows) drafts_.rows += row.sampled ? 1 : 0;
}

void Stats::AddLedger(const StepOutcome& outcome, uint64_t behind_ns) {
  const RoundTrip trip(outcome, behind_ns, options_.over_network);
  for (Part& part : parts_) part.ns.Add(static_cast<double>(trip.Ns(part.name)));
  round_trip_ns_.Add(static_cast<double>(outcome.round_trip_ns));
}

// Several steps of one request share its wall time and its rows' KV alike.
void Stats::AddDecodeSteps(const StepOutcome& outcome, const FinishedStep& step) {
  const auto num_steps = static_cast<double>(outcome.steps.size());
  for (const engine::SingleStep& single : outcome.steps) {
    decode_device_ns_.Add(static_cast<double>(single.device_ns));
    decode_rows_.Add(static_cast<double>(single.report.rows));
    if (last_decode_result_ns_) {
      decode_wall_ns_.Add(static_cast<double>(step.result_ns - *last_decode_result_ns_) /
                          num_steps);
    }
    if (options_.floor) {
      const double context = static_cast<double>(step.context_tokens) / num_steps;
      const double bytes =
          options_.floor->weights_bytes + options_.floor->kv_bytes_per_token * context;
      floor_ns_.Add(bytes / options_.floor->bandwidth * 1e9);
    }
  }
}

void Stats::AddRequests(const std::vector<Request>& requests, uint64_t wall_ns) {
  wall_ns_ = wall_ns;
  num_requests_ += requests.size();
  for (const Request& request : requests) {
    num_finished_ += request.finished() && !request.failed();
    num_failed_ += request.failed();
    num_preemptions_ += request.num_preemptions;
    num_swaps_ += request.num_swaps;
    prompt_tokens_ += request.prompt.size();
    new_tokens_ += request.tokens.size();
    AddLatencies(request, &all_);
    AddLatencies(request, &classes_[request.priority]);
    const auto& times = request.token_times_ns;
    for (size_t i = 1; i < times.size(); ++i) {
      itl_ns_.Add(static_cast<double>(times[i] - times[i - 1]));
    }
  }
}

void Stats::AddLatencies(const Request& request, Class* of_priority) {
  ++of_priority->num_requests;
  const auto& times = request.token_times_ns;
  if (times.empty()) return;
  const auto ttft_ns = static_cast<double>(Minus(times.front(), request.arrival_ns));
  of_priority->ttft_ns.Add(ttft_ns);
  double tpot_ns = 0;
  if (times.size() > 1) {
    tpot_ns =
        static_cast<double>(times.back() - times.front()) / static_cast<double>(times.size() - 1);
    of_priority->tpot_ns.Add(tpot_ns);
  }
  const auto [ttft_bound, tpot_bound] = options_.bounds;
  if (!request.finished() || request.failed()) return;
  if (ttft_bound != 0 && ttft_ns > static_cast<double>(ttft_bound)) return;
  if (tpot_bound != 0 && tpot_ns > static_cast<double>(tpot_bound)) return;
  ++of_priority->num_met;
  of_priority->num_met_tokens += times.size();
}

double Stats::PaddingShare() const {
  uint64_t tokens = 0;
  uint64_t padding = 0;
  for (const auto& [name, graph] : graphs_) {
    tokens += graph.tokens;
    padding += graph.padding_tokens;
  }
  const double capacity = static_cast<double>(tokens + padding);
  return capacity > 0 ? static_cast<double>(padding) / capacity : 0.0;
}

std::string Stats::ToText(size_t width) const {
  std::string text = absl::StrCat(RequestTable(width), "\n", LatencyTable(width));
  if (options_.bounds.any()) absl::StrAppend(&text, "\n", GoodputTable(width));
  if (drafts_.steps != 0) absl::StrAppend(&text, "\n", DraftTable(width));
  if (!decode_device_ns_.empty()) absl::StrAppend(&text, "\n", DecodeTable(width));
  if (!graphs_.empty()) absl::StrAppend(&text, "\n", GraphTable(width));
  if (!round_trip_ns_.empty()) absl::StrAppend(&text, "\n", LedgerTable(width));
  return text;
}

std::string Stats::RequestTable(size_t width) const {
  std::vector<std::string> header = {"requests",   "finished", "preempted", "prompt tokens",
                                     "new tokens", "steps",    "wall",      "new tokens/s"};
  const double seconds = static_cast<double>(wall_ns_) * 1e-9;
  std::vector<std::string> row = {
      FormatCount(num_requests_),
      FormatCount(num_finished_),
      FormatCount(num_preemptions_),
      FormatCount(prompt_tokens_),
      FormatCount(new_tokens_),
      FormatCount(num_steps_),
      FormatDuration(static_cast<double>(wall_ns_)),
      seconds > 0 ? FormatRate(static_cast<double>(new_tokens_) / seconds) : "-"};
  if (num_swaps_ > 0) {
    header.insert(header.begin() + 3, "swapped");
    row.insert(row.begin() + 3, FormatCount(num_swaps_));
  }
  if (num_failed_ > 0) {
    header.insert(header.begin() + 2, "failed");
    row.insert(row.begin() + 2, FormatCount(num_failed_));
  }
  Table table(std::move(header));
  table.SetKeys(0);
  table.AddRow(std::move(row));
  return table.ToString(width);
}

std::string Stats::LatencyTable(size_t width) const {
  Table table({"latency", "p50", "p90", "p99", "mean"});
  table.AddRow(PercentileRow("TTFT", all_.ttft_ns));
  table.AddRow(PercentileRow("TPOT", all_.tpot_ns));
  table.AddRow(PercentileRow("ITL", itl_ns_));
  if (classes_.size() > 1) {
    for (const auto& [priority, requests] : classes_) {
      table.AddRow(PercentileRow(absl::StrCat("TTFT, priority ", priority), requests.ttft_ns));
      table.AddRow(PercentileRow(absl::StrCat("TPOT, priority ", priority), requests.tpot_ns));
    }
  }
  return table.ToString(width);
}

std::string Stats::GoodputTable(size_t width) const {
  Table table({"goodput", "requests", "met", "share", "met/s", "their tokens/s"});
  const double seconds = static_cast<double>(wall_ns_) * 1e-9;
  const auto rate = [seconds](uint64_t count) {
    return seconds > 0 ? FormatRate(static_cast<double>(count) / seconds) : std::string(kNone);
  };
  const auto add = [&](std::string name, const Class& requests) {
    table.AddRow({std::move(name), FormatCount(requests.num_requests),
                  FormatCount(requests.num_met),
                  ShareText(static_cast<double>(requests.num_met),
                            static_cast<double>(requests.num_requests)),
                  rate(requests.num_met), rate(requests.num_met_tokens)});
  };
  add("all", all_);
  if (classes_.size() > 1) {
    for (const auto& [priority, requests] : classes_)
      add(absl::StrCat("priority ", priority), requests);
  }
  const auto [ttft_ns, tpot_ns] = options_.bounds;
  std::string bounds;
  if (ttft_ns != 0)
    absl::StrAppend(&bounds, " TTFT of at most ", FormatDuration(static_cast<double>(ttft_ns)));
  if (tpot_ns != 0) {
    absl::StrAppend(&bounds, bounds.empty() ? "" : " and", " TPOT of at most ",
                    FormatDuration(static_cast<double>(tpot_ns)));
  }
  return absl::StrCat(table.ToString(width),
                      Paragraph(absl::StrCat("met: finished, with", bounds), width));
}

std::string Stats::DraftTable(size_t width) const {
  Table table({"steps with drafts", "drafted", "accepted", "share", "tokens/row and step"});
  const auto accepted = static_cast<double>(drafts_.accepted);
  const auto rows = static_cast<double>(drafts_.rows);
  table.AddRow({FormatCount(drafts_.steps), FormatCount(drafts_.proposed),
                FormatCount(drafts_.accepted),
                ShareText(accepted, static_cast<double>(drafts_.proposed)),
                rows > 0 ? absl::StrFormat("%.2f", (rows + accepted) / rows) : kNone});
  return table.ToString(width);
}

std::string Stats::DecodeTable(size_t width) const {
  Table table({"decode step", "p50", "p90", "p99", "mean"});
  table.AddRow(PercentileRow("wall", decode_wall_ns_));
  table.AddRow(PercentileRow("device", decode_device_ns_));
  if (!floor_ns_.empty()) table.AddRow(PercentileRow("floor", floor_ns_));
  std::string text = table.ToString(width);
  text += Paragraph(
      absl::StrFormat("%s decode steps measured, %.1f rows on average; device p50 / wall p50 %s",
                      FormatCount(decode_device_ns_.count()), decode_rows_.Mean(),
                      ShareOfMedians(decode_device_ns_, decode_wall_ns_)),
      width);
  if (!floor_ns_.empty()) {
    text += Paragraph(
        absl::StrFormat("floor (weights once and the rows' KV at %s): %s of wall p50, %s of "
                        "device p50",
                        FormatBandwidth(options_.floor->bandwidth),
                        ShareOfMedians(floor_ns_, decode_wall_ns_),
                        ShareOfMedians(floor_ns_, decode_device_ns_)),
        width);
  }
  return text;
}

std::string Stats::GraphTable(size_t width) const {
  uint64_t eager = 0;
  for (const auto& [name, graph] : graphs_) eager += graph.eager_runs;
  std::vector<std::string> header = {"graph", "replays", "tokens", "padding"};
  if (eager > 0) header.push_back("run eagerly");
  Table table(header);
  for (const auto& [name, graph] : graphs_) {
    std::vector<std::string> row = {
        name, FormatCount(graph.replays), FormatCount(graph.tokens),
        ShareText(static_cast<double>(graph.padding_tokens),
                  static_cast<double>(graph.tokens + graph.padding_tokens))};
    if (eager > 0) row.push_back(FormatCount(graph.eager_runs));
    table.AddRow(std::move(row));
  }
  return absl::StrCat(table.ToString(width),
                      Paragraph(absl::StrCat("padding in all: ", FormatPercent(PaddingShare()),
                                             " of the graphs' token slots"),
                                width));
}

std::string Stats::LedgerTable(size_t width) const {
  Table table({"where a step's time went", "p50", "p90", "p99", "mean", "share"});
  const double whole = round_trip_ns_.Sum();
  for (const Part& part : parts_) {
    std::vector<std::string> row = PercentileRow(std::string(part.name), part.ns);
    row.push_back(ShareText(part.ns.Sum(), whole));
    table.AddRow(std::move(row));
  }
  std::vector<std::string> row =
      PercentileRow(options_.over_network ? "round trip" : "submit to result", round_trip_ns_);
  row.push_back(ShareText(whole, whole));
  table.AddRow(std::move(row));
  return absl::StrCat(
      table.ToString(width),
      Paragraph("overlap: the step before was still in flight (pipelining); waiting: launched and "
                "not begun yet, or done and not seen yet",
                width));
}

namespace {

nlohmann::json BoundToJson(uint64_t ns) {
  if (ns == 0) return nullptr;
  return static_cast<double>(ns) * kNsToMs;
}

}  // namespace

nlohmann::json Stats::DraftsToJson() const {
  if (drafts_.steps == 0) return nullptr;
  const auto accepted = static_cast<double>(drafts_.accepted);
  const auto rows = static_cast<double>(drafts_.rows);
  nlohmann::json drafts = {{"steps", drafts_.steps},
                           {"proposed", drafts_.proposed},
                           {"accepted", drafts_.accepted},
                           {"acceptance", accepted / static_cast<double>(drafts_.proposed)},
                           {"tokens_per_row_and_step", nullptr}};
  if (rows > 0) drafts["tokens_per_row_and_step"] = (rows + accepted) / rows;
  return drafts;
}

nlohmann::json Stats::GoodputToJson(const Class& requests) const {
  const double seconds = static_cast<double>(wall_ns_) * 1e-9;
  nlohmann::json json = {
      {"num_met", requests.num_met},
      {"share", nullptr},
      {"requests_per_s", nullptr},
      {"tokens_per_s", nullptr},
  };
  if (requests.num_requests > 0) {
    json["share"] =
        static_cast<double>(requests.num_met) / static_cast<double>(requests.num_requests);
  }
  if (seconds > 0) {
    json["requests_per_s"] = static_cast<double>(requests.num_met) / seconds;
    json["tokens_per_s"] = static_cast<double>(requests.num_met_tokens) / seconds;
  }
  return json;
}

nlohmann::json Stats::ToJson() const {
  nlohmann::json graphs = nlohmann::json::object();
  for (const auto& [name, graph] : graphs_) {
    graphs[name] = {{"replays", graph.replays},
                    {"eager_runs", graph.eager_runs},
                    {"tokens", graph.tokens},
                    {"padding_tokens", graph.padding_tokens}};
  }
  nlohmann::json ledger = nlohmann::json::object();
  for (const Part& part : parts_) ledger[std::string(part.name)] = part.ns.ToJson(kNsToUs);
  ledger["round_trip"] = round_trip_ns_.ToJson(kNsToUs);
  nlohmann::json decode = {{"warmup_steps", options_.warmup_steps},
                           {"wall_ms", decode_wall_ns_.ToJson(kNsToMs)},
                           {"device_ms", decode_device_ns_.ToJson(kNsToMs)},
                           {"mean_rows", nullptr}};
  if (!decode_rows_.empty()) decode["mean_rows"] = decode_rows_.Mean();
  if (options_.floor) {
    decode["floor_ms"] = floor_ns_.ToJson(kNsToMs);
    decode["floor_bandwidth_bytes_per_s"] = options_.floor->bandwidth;
  }
  nlohmann::json priorities = nlohmann::json::array();
  for (const auto& [priority, requests] : classes_) {
    nlohmann::json entry = {{"priority", priority},
                            {"num_requests", requests.num_requests},
                            {"ttft_ms", requests.ttft_ns.ToJson(kNsToMs)},
                            {"tpot_ms", requests.tpot_ns.ToJson(kNsToMs)},
                            {"goodput", nullptr}};
    if (options_.bounds.any()) entry["goodput"] = GoodputToJson(requests);
    priorities.push_back(std::move(entry));
  }
  nlohmann::json goodput = nullptr;
  if (options_.bounds.any()) {
    goodput = GoodputToJson(all_);
    goodput["slo_ttft_ms"] = BoundToJson(options_.bounds.ttft_ns);
    goodput["slo_tpot_ms"] = BoundToJson(options_.bounds.tpot_ns);
  }
  return {{"wall_s", static_cast<double>(wall_ns_) * 1e-9},
          {"num_requests", num_requests_},
          {"num_finished", num_finished_},
          {"num_failed", num_failed_},
          {"num_preemptions", num_preemptions_},
          {"num_swaps", num_swaps_},
          {"prompt_tokens", prompt_tokens_},
          {"new_tokens", new_tokens_},
          {"steps", num_steps_},
          {"ttft_ms", all_.ttft_ns.ToJson(kNsToMs)},
          {"tpot_ms", all_.tpot_ns.ToJson(kNsToMs)},
          {"itl_ms", itl_ns_.ToJson(kNsToMs)},
          {"goodput", std::move(goodput)},
          {"priorities", std::move(priorities)},
          {"drafts", DraftsToJson()},
          {"decode_steps", std::move(decode)},
          {"graphs", std::move(graphs)},
          {"padding_share", PaddingShare()},
          {"ledger_us", std::move(ledger)}};
}

namespace {

// Per token: its log-probability, its rank, and the likeliest tokens as [id, log-probability].
nlohmann::json ChancesToJson(const Request& request) {
  nlohmann::json list = nlohmann::json::array();
  for (const Request::Chance& chance : request.chances) {
    nlohmann::json top = nlohmann::json::array();
    for (const engine::TokenLogprob& t : chance.top) top.push_back({t.token, t.logprob});
    list.push_back({{"logprob", chance.logprob}, {"rank", chance.rank}, {"top", std::move(top)}});
  }
  return list;
}

}  // namespace

std::string ChancesToText(const std::vector<Request>& requests, size_t width) {
  std::string text;
  for (const Request& request : requests) {
    for (size_t i = 0; i < request.chances.size() && i < request.tokens.size(); ++i) {
      const Request::Chance& chance = request.chances[i];
      std::string line = absl::StrCat("request ", request.id, " token ", i, ": ", request.tokens[i],
                                      " (", chance.logprob, ", rank ", chance.rank, ")");
      const char* separator = "; likeliest ";
      for (const engine::TokenLogprob& t : chance.top) {
        absl::StrAppend(&line, separator, t.token, " (", t.logprob, ")");
        separator = ", ";
      }
      text += Paragraph(line, width);
    }
  }
  return text;
}

nlohmann::json RequestToJson(const Request& request, bool byte_tokens) {
  nlohmann::json entry = {{"id", request.id},
                          {"prompt_index", request.prompt_index},
                          {"arrival_ms", static_cast<double>(request.arrival_ns) * kNsToMs},
                          {"prompt_tokens", request.prompt.size()},
                          {"tokens", request.tokens},
                          {"finish", std::string(NameOf(request.finish))},
                          {"priority", request.priority},
                          {"preemptions", request.num_preemptions},
                          {"swaps", request.num_swaps}};
  if (request.failed()) entry["error"] = request.error;
  if (byte_tokens) entry["text"] = TextOf(request, byte_tokens);
  if (!request.chances.empty()) entry["logprobs"] = ChancesToJson(request);
  const std::vector<uint64_t>& times = request.token_times_ns;
  if (!times.empty()) {
    const auto since_arrival = [&request](uint64_t ns) {
      return static_cast<double>(Minus(ns, request.arrival_ns)) * kNsToMs;
    };
    entry["ttft_ms"] = since_arrival(times.front());
    entry["latency_ms"] = since_arrival(times.back());
  }
  return entry;
}

nlohmann::json RequestsToJson(const std::vector<Request>& requests, bool byte_tokens) {
  nlohmann::json list = nlohmann::json::array();
  for (const Request& request : requests) list.push_back(RequestToJson(request, byte_tokens));
  return list;
}

}  // namespace reprise::tools
