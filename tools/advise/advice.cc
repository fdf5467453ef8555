// SPDX-License-Identifier: Apache-2.0
#include "tools/advise/advice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graphs/bucket_table.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

// More candidates than this take long; sizes are then rounded up to multiples of a power of two.
constexpr size_t kMostCandidates = 2048;
// A set of more graphs has to cost less by at least this share: sums are not exact.
constexpr double kLeastGain = 1e-9;

int64_t RoundUp(int64_t size, int64_t grain) { return (size + grain - 1) / grain * grain; }

// One kind's candidates, the best sets of them, and what steps cost there.
struct Kind {
  StepKind kind;
  std::vector<StepGroup> groups;
  std::vector<int64_t> current;
  double bytes = 0;  // of one graph
  int64_t grain = 1;
  std::vector<BucketChoice> choices = {};
};

BucketCostFn CostFnOf(const BucketCost& cost, StepKind kind) {
  return [&cost, kind](const StepGroup& group, int64_t capacity) {
    return cost.Of(kind, group, capacity);
  };
}

std::vector<int64_t> PowersOfTwo(const std::vector<int64_t>& current) {
  return graphs::BucketTable::PowersOfTwoUpTo(current.back());
}

std::vector<int64_t> CandidatesOf(const Kind& kind, const std::vector<int64_t>& measured,
                                  int64_t grain) {
  const int64_t largest = kind.current.back();
  std::set<int64_t> candidates(kind.current.begin(), kind.current.end());
  for (const int64_t size : PowersOfTwo(kind.current)) candidates.insert(size);
  for (const int64_t size : measured) {
    if (size <= largest) candidates.insert(size);
  }
  for (const StepGroup& group : kind.groups)
    candidates.insert(std::min(RoundUp(group.size, grain), largest));
  return {candidates.begin(), candidates.end()};
}

void Choose(const BucketCost& cost, size_t max_buckets, Kind* kind) {
  std::vector<int64_t> candidates;
  for (kind->grain = 1;; kind->grain *= 2) {
    candidates = CandidatesOf(*kind, cost.sizes(kind->kind), kind->grain);
    // Of the trace's sizes one is left then.
    const bool is_coarsest = kind->grain >= kind->current.back();
    if (candidates.size() <= kMostCandidates || is_coarsest) break;
  }
  kind->choices = ChooseBuckets(kind->groups, candidates, max_buckets, CostFnOf(cost, kind->kind));
}

// The one choice: what there is.
void Keep(const BucketCost& cost, Kind* kind) {
  const double all = CostOf(kind->groups, kind->current, CostFnOf(cost, kind->kind));
  kind->choices = {{.buckets = kind->current, .cost = all}};
}

double WeightOf(const std::vector<StepGroup>& groups) {
  double sum = 0;
  for (const StepGroup& group : groups) sum += group.weight;
  return sum;
}

// Computes what sets come to.
class SetCosts {
 public:
  SetCosts(const BucketCost& cost, const Kind& decode, const Kind& mixed)
      : cost_(cost),
        decode_(decode),
        mixed_(mixed),
        steps_(WeightOf(decode.groups) + WeightOf(mixed.groups)) {}

  double BytesOf(size_t num_decode, size_t num_mixed) const {
    return static_cast<double>(num_decode) * decode_.bytes +
           static_cast<double>(num_mixed) * mixed_.bytes;
  }

  SetCost Of(std::string_view name, const BucketSet& set) const {
    const auto room = [](const StepGroup&, int64_t capacity) {
      return static_cast<double>(capacity);
    };
    const auto used = [](const StepGroup& group, int64_t) { return group.tokens; };
    const double all = CostOf(decode_.groups, set.decode, CostFnOf(cost_, decode_.kind)) +
                       CostOf(mixed_.groups, set.mixed, CostFnOf(cost_, mixed_.kind));
    const double had =
        CostOf(decode_.groups, set.decode, room) + CostOf(mixed_.groups, set.mixed, room);
    const double needed =
        CostOf(decode_.groups, set.decode, used) + CostOf(mixed_.groups, set.mixed, used);
    SetCost of_set{.name = name, .set = set, .bytes = BytesOf(set.decode.size(), set.mixed.size())};
    if (std::isfinite(all)) of_set.cost = all / steps_;
    of_set.padding_share = 1 - needed / had;
    return of_set;
  }

 private:
  const BucketCost& cost_;
  const Kind& decode_;
  const Kind& mixed_;
  const double steps_;
};

// The trace needs mixed buckets, and there are none.
absl::Status NoMixedBuckets(const std::vector<TracedStep>& steps, int64_t largest_needed,
                            int64_t largest_decode) {
  const std::string allowed = "those of a recording or a profile, or --mixed-buckets N,N,...";
  if (!std::all_of(steps.begin(), steps.end(),
                   [](const TracedStep& step) { return step.is_decode(); })) {
    return absl::FailedPreconditionError(
        absl::StrCat("mixed buckets: got none, and the trace has mixed steps; allowed: ", allowed));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "decode buckets: got ", largest_decode, " as the largest, and the trace has decode steps of ",
      largest_needed, " rows; allowed: a largest one of ", largest_needed,
      " rows or more (--decode-buckets N,N,...), or mixed buckets, which larger steps replay: ",
      allowed));
}

absl::Status CheckFits(const std::vector<TracedStep>& steps, const std::vector<StepGroup>& mixed,
                       const BucketSet& current) {
  if (mixed.empty()) return absl::OkStatus();
  if (current.mixed.empty()) return NoMixedBuckets(steps, mixed.back().size, current.decode.back());
  if (mixed.back().size <= current.mixed.back()) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(
      "the trace has a step of ", mixed.back().size, " query tokens; allowed: at most ",
      current.mixed.back(), " in the largest mixed bucket, and decode steps of up to ",
      current.decode.back(), " rows in the largest decode bucket"));
}

// Of both kinds, the sets of one number of graphs.
struct Pair {
  const BucketChoice* decode = nullptr;
  const BucketChoice* mixed = nullptr;
  double cost = std::numeric_limits<double>::infinity();
};

// The best pair of `num_graphs`; none of a finite cost: within the limits there is none.
Pair BestOf(size_t num_graphs, const AdviceOptions& options, const SetCosts& costs,
            const Kind& decode, const Kind& mixed) {
  Pair best;
  for (const BucketChoice& d : decode.choices) {
    for (const BucketChoice& m : mixed.choices) {
      const bool fits = d.buckets.size() + m.buckets.size() == num_graphs &&
                        (!options.max_bytes || costs.BytesOf(d.buckets.size(), m.buckets.size()) <=
                                                   static_cast<double>(*options.max_bytes));
      if (fits && d.cost + m.cost < best.cost)
        best = {.decode = &d, .mixed = &m, .cost = d.cost + m.cost};
    }
  }
  return best;
}

// The best set of each number of graphs, as far as one more makes the steps cheaper.
std::vector<SetCost> Frontier(const AdviceOptions& options, const SetCosts& costs,
                              size_t max_graphs, const Kind& decode, const Kind& mixed) {
  std::vector<SetCost> frontier;
  double least = std::numeric_limits<double>::infinity();
  for (size_t n = 1; n <= max_graphs; ++n) {
    const Pair best = BestOf(n, options, costs, decode, mixed);
    if (best.decode == nullptr || best.cost >= least) continue;
    least = best.cost * (1 - kLeastGain);
    frontier.push_back(
        costs.Of("advised", {.decode = best.decode->buckets, .mixed = best.mixed->buckets}));
  }
  return frontier;
}

absl::Status NoneFits(const AdviceOptions& options, const SetCosts& costs, size_t max_graphs,
                      const Kind& decode, const Kind& mixed) {
  const size_t of_decode = decode.choices.front().buckets.size();
  const size_t of_mixed = mixed.choices.front().buckets.size();
  std::string got, bytes;
  if (options.max_bytes) {
    got = absl::StrCat(" and ", *options.max_bytes, " bytes (--memory)");
    bytes = absl::StrCat(" of ", std::llround(costs.BytesOf(of_decode, of_mixed)), " bytes");
  }
  const bool are_measured = std::isfinite(decode.choices.front().cost + mixed.choices.front().cost);
  return absl::ResourceExhaustedError(
      absl::StrCat("graphs: got at most ", max_graphs, " (--max-graphs)", got,
                   ", allowed: at least ", of_decode + of_mixed, bytes,
                   ", for the largest bucket of each kind and those that stay as they are",
                   are_measured ? "" : ", and more, as the profile has not measured all of these"));
}

std::optional<double> MeanContext(const std::vector<TracedStep>& steps) {
  double sum = 0, rows = 0;
  for (const TracedStep& step : steps) {
    if (step.context <= 0) continue;
    sum += step.weight * static_cast<double>(step.rows) * step.context;
    rows += step.weight * static_cast<double>(step.rows);
  }
  if (rows <= 0) return std::nullopt;
  return sum / rows;
}

}  // namespace

StepGroups GroupSteps(const std::vector<TracedStep>& steps, int64_t largest_decode,
                      double default_context) {
  std::map<int64_t, StepGroup> by_size[2];
  for (const TracedStep& step : steps) {
    const bool decode = step.is_decode() && step.rows <= largest_decode;
    // A step of no row replays the smallest decode graph.
    const int64_t size = std::max<int64_t>(decode ? step.rows : step.tokens, 1);
    StepGroup& group = by_size[decode ? 0 : 1][size];
    const double context = step.context > 0 ? step.context : default_context;
    group.size = size;
    group.weight += step.weight;
    group.tokens += step.weight * static_cast<double>(step.tokens);
    group.kv_tokens += step.weight * static_cast<double>(step.rows) * context;
  }
  StepGroups groups;
  for (const int kind : {0, 1}) {
    for (auto& [size, group] : by_size[kind]) {
      group.tokens /= group.weight;
      group.kv_tokens /= group.weight;
      (kind == 0 ? groups.decode : groups.mixed).push_back(group);
    }
  }
  return groups;
}

absl::StatusOr<Advice> Advise(const BatchTrace& trace, const BucketCost& cost,
                              const AdviceOptions& options) {
  const BucketSet& current = options.current;
  std::vector<TracedStep> steps = trace.steps;
  if (options.kind == AdviseKind::kDecode)
    std::erase_if(steps, [](const TracedStep& step) { return !step.is_decode(); });
  StepGroups groups = GroupSteps(steps, current.decode.back(), cost.shortest_context());
  REPRISE_RETURN_IF_ERROR(CheckFits(steps, groups.mixed, current));
  const bool chooses_decode = options.kind != AdviseKind::kMixed && !groups.decode.empty();
  const bool chooses_mixed = options.kind != AdviseKind::kDecode && !groups.mixed.empty();
  // What is not chosen costs the same in every set.
  if (options.kind == AdviseKind::kMixed) groups.decode.clear();
  if (options.kind == AdviseKind::kDecode) groups.mixed.clear();
  if (groups.decode.empty() && groups.mixed.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the trace: got no ", options.kind == AdviseKind::kMixed ? "mixed" : "decode",
                     " step, allowed: one or more, or the other --kind"));
  }
  REPRISE_RETURN_IF_ERROR(cost.CheckCovers(StepKind::kDecode, groups.decode));
  REPRISE_RETURN_IF_ERROR(cost.CheckCovers(StepKind::kMixed, groups.mixed));

  Kind decode{.kind = StepKind::kDecode,
              .groups = std::move(groups.decode),
              .current = current.decode,
              .bytes = options.decode_bytes};
  Kind mixed{.kind = StepKind::kMixed,
             .groups = std::move(groups.mixed),
             .current = current.mixed,
             .bytes = options.mixed_bytes};
  const size_t max_graphs = options.max_graphs != 0 ? options.max_graphs : current.num_graphs();
  for (auto [kind, chooses] : {std::pair(&decode, chooses_decode), {&mixed, chooses_mixed}}) {
    if (chooses) {
      Choose(cost, max_graphs, kind);
    } else {
      Keep(cost, kind);
    }
  }
  const SetCosts costs(cost, decode, mixed);
  Advice advice{.decode_steps = WeightOf(decode.groups),
                .mixed_steps = WeightOf(mixed.groups),
                .mean_context = MeanContext(steps),
                .decode_grain = decode.grain,
                .mixed_grain = mixed.grain};
  advice.by_graphs = Frontier(options, costs, max_graphs, decode, mixed);
  if (advice.by_graphs.empty()) {
    return NoneFits(options, costs, max_graphs, decode, mixed);
  }
  advice.sets.push_back(costs.Of("current", current));
  advice.sets.push_back(costs.Of(
      "powers of two", {.decode = chooses_decode ? PowersOfTwo(current.decode) : current.decode,
                        .mixed = chooses_mixed ? PowersOfTwo(current.mixed) : current.mixed}));
  advice.sets.push_back(advice.by_graphs.back());
  return advice;
}

}  // namespace reprise::tools
