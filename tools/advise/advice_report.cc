// SPDX-License-Identifier: Apache-2.0
#include "tools/advise/advice_report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/profile/report_parts.h"
#include "tools/table.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

using nlohmann::json;

std::string CostText(const BucketCost& cost, const std::optional<double>& value) {
  if (!value) return kNoFigure;
  return cost.is_time() ? FormatDuration(*value) : absl::StrFormat("%.1f tokens", *value);
}

// Of what another set costs: below 0 is less.
std::optional<double> Against(const std::optional<double>& value,
                              const std::optional<double>& other) {
  if (!value || !other || *other <= 0) return std::nullopt;
  return *value / *other - 1;
}

std::optional<double> AgainstPowersOfTwo(const Advice& advice) {
  return Against(advice.advised().cost, advice.powers_of_two().cost);
}

std::string ChangeText(const std::optional<double>& change) {
  return change ? absl::StrFormat("%+.1f %%", 100 * *change) : kNoFigure;
}

std::string Steps(double count) { return FormatCount(static_cast<uint64_t>(std::llround(count))); }

std::string TraceText(const Advice& advice, const BucketCost& cost) {
  std::string text = absl::StrCat("trace: ", Steps(advice.decode_steps), " decode and ",
                                  Steps(advice.mixed_steps), " mixed steps");
  if (advice.mean_context)
    absl::StrAppend(&text, ", ", std::llround(*advice.mean_context), " tokens of context");
  absl::StrAppend(&text, "\ncost: ");
  if (cost.is_time()) {
    absl::StrAppend(&text, "a step's time on ", cost.device(), " (", cost.file(), ")");
    if (!advice.mean_context) {
      absl::StrAppend(&text, ", at the shortest context that it has measured, ",
                      std::llround(cost.shortest_context()), " tokens");
    }
  } else {
    absl::StrAppend(&text, "the tokens that a step's graph has room for; --profile weighs them");
  }
  if (advice.decode_grain > 1 || advice.mixed_grain > 1) {
    absl::StrAppend(&text, "\ncandidates: decode sizes in multiples of ", advice.decode_grain,
                    ", mixed ones of ", advice.mixed_grain);
  }
  return absl::StrCat(text, "\n\n");
}

json SetToJson(const SetCost& set, const Advice& advice) {
  return {{"name", set.name},
          {"decode", set.set.decode},
          {"mixed", set.set.mixed},
          {"graphs", set.set.num_graphs()},
          {"graph_bytes", std::llround(set.bytes)},
          {"cost_per_step", NumberOrNull(set.cost)},
          {"padding_share", set.padding_share},
          {"change", NumberOrNull(Against(set.cost, advice.current().cost))}};
}

json TimesToJson(const VerifiedSet& set) {
  return {{"device_us", set.device_ns.ValuesToJson(1e-3)},
          {"replay_us", set.replay_ns.ValuesToJson(1e-3)}};
}

// Of medians of rounds.
double ChangeOf(const Samples& other, const Samples& advised) {
  const double before = other.Percentile(50);
  return before > 0 ? advised.Percentile(50) / before - 1 : 0.0;
}

// The sets that the advised one is compared with.
std::vector<std::pair<std::string, const VerifiedSet*>> OthersOf(const Verification& verification) {
  std::vector<std::pair<std::string, const VerifiedSet*>> others = {
      {"current", &verification.current}};
  if (verification.powers_of_two)
    others.emplace_back("powers of two", &*verification.powers_of_two);
  return others;
}

// "device -3.0 % (spread 9.0 %)" where the change is smaller than the wider of the two spreads.
void AddUncertain(const char* clock, const Samples& other, const Samples& advised,
                  std::vector<std::string>* uncertain) {
  const double change = ChangeOf(other, advised);
  const double spread = std::max(SpreadOf(other).value_or(0), SpreadOf(advised).value_or(0));
  if (std::abs(change) < spread) {
    uncertain->push_back(
        absl::StrCat(clock, " ", ChangeText(change), " (spread ", FormatPercent(spread), ")"));
  }
}

json VerificationToJson(const Verification& verification) {
  const auto& [steps, current, advised, powers_of_two] = verification;
  json verified = {{"device", advised.device},
                   {"steps", steps},
                   {"current", TimesToJson(current)},
                   {"advised", TimesToJson(advised)},
                   {"device_change", ChangeOf(current.device_ns, advised.device_ns)},
                   {"replay_change", ChangeOf(current.replay_ns, advised.replay_ns)}};
  if (powers_of_two) {
    verified["powers_of_two"] = TimesToJson(*powers_of_two);
    verified["device_change_against_powers_of_two"] =
        ChangeOf(powers_of_two->device_ns, advised.device_ns);
    verified["replay_change_against_powers_of_two"] =
        ChangeOf(powers_of_two->replay_ns, advised.replay_ns);
  }
  return verified;
}

}  // namespace

std::string BucketFlags(const BucketSet& set) {
  std::string flags = absl::StrCat("--decode-buckets ", absl::StrJoin(set.decode, ","));
  if (!set.mixed.empty())
    absl::StrAppend(&flags, " --mixed-buckets ", absl::StrJoin(set.mixed, ","));
  return flags;
}

std::string AdviceText(const Advice& advice, const BucketCost& cost, size_t width) {
  const auto current = advice.current().cost;
  Table sets({"set", "decode graphs", "mixed graphs", "driver bytes", "a step", "padding",
              "against current"});
  for (const SetCost& set : advice.sets) {
    sets.AddRow({std::string(set.name), absl::StrCat(set.set.decode.size()),
                 absl::StrCat(set.set.mixed.size()),
                 FormatBytes(static_cast<uint64_t>(std::llround(set.bytes))),
                 CostText(cost, set.cost), FormatPercent(set.padding_share),
                 ChangeText(Against(set.cost, current))});
  }
  Table graphs({"graphs", "a step", "padding", "against current", "buckets"});
  for (const SetCost& set : advice.by_graphs) {
    graphs.AddRow(
        {absl::StrCat(set.set.num_graphs()), CostText(cost, set.cost),
         FormatPercent(set.padding_share), ChangeText(Against(set.cost, current)),
         absl::StrCat(absl::StrJoin(set.set.decode, ","), set.set.mixed.empty() ? "" : " + ",
                      absl::StrJoin(set.set.mixed, ","))});
  }
  return absl::StrCat(TraceText(advice, cost), sets.ToString(width),
                      "advised against powers of two: ", ChangeText(AgainstPowersOfTwo(advice)),
                      " a step\n\nthe best of each number:\n", graphs.ToString(width), "\n",
                      BucketFlags(advice.advised().set), "\n");
}

std::string VerificationText(const Verification& verification, size_t width) {
  const VerifiedSet& advised = verification.advised;
  Table table({"measured", "device", "replay", "spread"});
  const auto add = [&table](const std::string& name, const VerifiedSet& set) {
    const std::optional<double> spread = SpreadOf(set.device_ns);
    table.AddRow({name, FormatDuration(set.device_ns.Percentile(50)),
                  FormatDuration(set.replay_ns.Percentile(50)),
                  spread ? FormatPercent(*spread) : kNoFigure});
  };
  std::string changes;
  for (const auto& [name, other] : OthersOf(verification)) {
    add(name, *other);
    absl::StrAppend(&changes, "advised against ", name, ": device ",
                    ChangeText(ChangeOf(other->device_ns, advised.device_ns)), ", replay ",
                    ChangeText(ChangeOf(other->replay_ns, advised.replay_ns)), "\n");
  }
  add("advised", advised);
  return absl::StrCat("\n", FormatCount(verification.steps), " steps of the trace's sizes on ",
                      advised.device, ", medians of ", advised.device_ns.count(), " rounds:\n",
                      table.ToString(width), changes);
}

std::vector<std::string> VerificationWarnings(const Verification& verification) {
  std::vector<std::string> warnings;
  for (const auto& [name, other] : OthersOf(verification)) {
    std::vector<std::string> uncertain;
    AddUncertain("device", other->device_ns, verification.advised.device_ns, &uncertain);
    AddUncertain("replay", other->replay_ns, verification.advised.replay_ns, &uncertain);
    if (uncertain.empty()) continue;
    warnings.push_back(absl::StrCat("advised against ", name, ": ", absl::StrJoin(uncertain, ", "),
                                    ": rounds of one set differ by more, so that this means "
                                    "nothing"));
  }
  return warnings;
}

json AdviceToJson(const std::vector<std::string>& files, const Advice& advice,
                  const BucketCost& cost, const AdviceOptions& options,
                  const std::optional<Verification>& verification) {
  json sets = json::array(), by_graphs = json::array();
  for (const SetCost& set : advice.sets) sets.push_back(SetToJson(set, advice));
  for (const SetCost& set : advice.by_graphs) by_graphs.push_back(SetToJson(set, advice));
  return {{"schema", "reprise.advise/1"},
          {"trace",
           {{"files", files},
            {"decode_steps", advice.decode_steps},
            {"mixed_steps", advice.mixed_steps},
            {"mean_context", NumberOrNull(advice.mean_context)}}},
          {"cost",
           {{"unit", cost.is_time() ? "ns" : "tokens"},
            {"profile", cost.is_time() ? json(cost.file()) : json(nullptr)},
            {"device", cost.is_time() ? json(cost.device()) : json(nullptr)}}},
          {"limits",
           {{"graphs", options.max_graphs != 0 ? options.max_graphs : options.current.num_graphs()},
            {"bytes", options.max_bytes ? json(*options.max_bytes) : json(nullptr)},
            {"decode_graph_bytes", options.decode_bytes},
            {"mixed_graph_bytes", options.mixed_bytes}}},
          {"candidates",
           {{"decode_multiple", advice.decode_grain}, {"mixed_multiple", advice.mixed_grain}}},
          {"sets", std::move(sets)},
          {"change_against_powers_of_two", NumberOrNull(AgainstPowersOfTwo(advice))},
          {"by_graphs", std::move(by_graphs)},
          {"flags", BucketFlags(advice.advised().set)},
          {"verified", verification ? VerificationToJson(*verification) : json(nullptr)}};
}

}  // namespace reprise::tools
