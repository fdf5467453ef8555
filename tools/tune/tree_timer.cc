// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/tree_timer.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/attention_tree_text.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::vector<std::string> Indices(uint32_t count) {
  std::vector<std::string> names;
  for (uint32_t i = 0; i < count; ++i) names.push_back(absl::StrCat(i));
  return names;
}

}  // namespace

nlohmann::json CellToJournal(const BenchCell& cell, uint32_t window) {
  return {{"name", cell.name},
          {"rows", cell.rows.size()},
          {"decode_rows", cell.num_decode_rows()},
          {"query_tokens", cell.query_tokens()},
          {"longest", cell.longest()},
          {"seen_tokens", cell.SeenTokens(window)}};
}

nlohmann::json TreeToJournal(const kernels::AttentionTree& tree, uint32_t repeat) {
  engine::NamedAttentionTree named;
  named.tree = tree;
  named.row_leaves = Indices(tree.rows.num_leaves);
  named.batch_leaves = Indices(tree.batch.num_leaves);
  const nlohmann::json text = nlohmann::json::parse(AttentionTreeText(named));
  nlohmann::json json = {{"rows", text["rows"]}, {"batch", text["batch"]}};
  if (repeat != 0) json["repeat"] = repeat;
  return json;
}

BenchTreeTimer::ReplayCost BenchTreeTimer::WorkOf(const BenchCell& cell,
                                                  const AttentionShape& shape) {
  ReplayCost work{cell.SeenTokens(shape.window) * shape.TokenBytes(), 0, 0};
  for (const BatchRow& row : cell.rows) work.pairs += uint64_t{row.query_tokens} * row.length();
  return work;
}

std::optional<TreeTimes> BenchTreeTimer::FromJournal(size_t cell,
                                                     const std::vector<nlohmann::json>& choices) {
  const nlohmann::json key = CellToJournal(bench_.cells()[cell], bench_.shape().window);
  TreeTimes times;
  for (const nlohmann::json& choice : choices) {
    const JournalEntry* const entry = journal_.Find(key, choice);
    if (entry == nullptr) return std::nullopt;
    times.ns.push_back(entry->ns);
    times.spread.push_back(entry->spread);
    times.seconds += entry->seconds;
  }
  return times;
}

double BenchTreeTimer::LeastSeconds(const ReplayCost& work) const {
  double least = 0;
  for (const ReplayCost& known : known_)
    if (known.kv_bytes <= work.kv_bytes && known.pairs <= work.pairs)
      least = std::max(least, known.seconds);
  return least;
}

absl::StatusOr<TreeTimes> BenchTreeTimer::Time(size_t cell,
                                               std::span<const kernels::AttentionTree> trees,
                                               double most_seconds, uint32_t repeat) {
  std::vector<nlohmann::json> choices;
  for (const kernels::AttentionTree& tree : trees) choices.push_back(TreeToJournal(tree, repeat));
  if (const auto times = FromJournal(cell, choices)) return *times;
  const auto replays = static_cast<double>(trees.size() * (replays_ + 1));
  ReplayCost work = WorkOf(bench_.cells()[cell], bench_.shape());
  if (LeastSeconds(work) * replays > most_seconds) return TreeTimes();

  const std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  REPRISE_ASSIGN_OR_RETURN(const PreparedCell prepared, bench_.Prepare(cell));
  work.seconds = prepared.calls * prepared.call_ns * 1e-9;
  known_.push_back(work);
  if (work.seconds * replays > most_seconds) return TreeTimes{{}, SecondsSince(begin), {}};
  const auto measured = [&](uint32_t) { return interrupted_(); };
  REPRISE_ASSIGN_OR_RETURN(const std::vector<Samples> samples,
                           bench_.TimeTrees(prepared, trees, replays_, measured));
  TreeTimes times{{}, SecondsSince(begin), {}};
  std::vector<JournalEntry> entries;
  const nlohmann::json key = CellToJournal(bench_.cells()[cell], bench_.shape().window);
  for (size_t i = 0; i < trees.size(); ++i) {
    times.ns.push_back(samples[i].Percentile(50));
    times.spread.push_back((samples[i].Percentile(90) - samples[i].Percentile(10)) / times.ns[i]);
    entries.push_back({.cell = key,
                       .choice = choices[i],
                       .ns = times.ns[i],
                       .replays = replays_,
                       .spread = times.spread[i],
                       .seconds = times.seconds / static_cast<double>(trees.size())});
  }
  num_measured_ += trees.size();
  REPRISE_RETURN_IF_ERROR(journal_.Append(entries));
  return times;
}

}  // namespace reprise::tools
