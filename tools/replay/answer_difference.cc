// SPDX-License-Identifier: Apache-2.0
#include "tools/replay/answer_difference.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

// A number of an answer: how it is compared, and how it is shown.
struct Value {
  std::string field;
  uint64_t bits = 0;
  std::string text;
};

Value NumberOf(std::string field, uint64_t number) {
  return {std::move(field), number, absl::StrCat(number)};
}

Value FloatOf(std::string field, float number) {
  const auto bits = std::bit_cast<uint32_t>(number);
  return {std::move(field), bits, absl::StrFormat("%.9g (0x%08x)", number, bits)};
}

Value NamedOf(std::string field, int number, const std::string& name) {
  return {std::move(field), static_cast<uint64_t>(number),
          name.empty() ? absl::StrCat(number) : name};
}

// Rows that had stopped, or that pause, are named or not by how early the server knew that another
// step would do nothing for them.
bool DidSomething(int status) {
  return status != v1::ROW_STATUS_STOPPED && status != v1::ROW_STATUS_PAUSED;
}

// All that is compared of one row of one step, or of one token of a prompt.
struct Entry {
  uint32_t step = 0;
  uint32_t row = 0;
  std::vector<Value> values = {};
};

// The likeliest tokens of the entries of one message, which stand one after another.
template <typename Columns>
class TopReader {
 public:
  explicit TopReader(const Columns& columns) : columns_(columns) {}
  void Add(uint32_t count, Entry* entry) {
    entry->values.push_back(NumberOf("num_top", count));
    for (uint32_t i = 0; i < count; ++i, ++next_) {
      entry->values.push_back(
          NumberOf(absl::StrCat("top_token[", i, "]"), columns_.top_token(next_)));
      entry->values.push_back(
          FloatOf(absl::StrCat("top_logprob[", i, "]"), columns_.top_logprob(next_)));
    }
  }

 private:
  const Columns& columns_;
  int next_ = 0;
};

template <typename Columns>
bool TopsAgree(const Columns& columns) {
  uint64_t tops = 0;
  for (const uint32_t count : columns.num_top()) tops += count;
  return columns.num_top_size() == columns.rank_size() &&
         static_cast<uint64_t>(columns.top_token_size()) == tops &&
         columns.top_logprob_size() == columns.top_token_size();
}

bool AcceptedAgree(const v1::RowResults& rows) {
  const v1::AcceptedDrafts& accepted = rows.accepted();
  uint64_t tokens = 0;
  for (const uint32_t count : accepted.count()) tokens += count;
  return (accepted.count_size() == 0 || accepted.count_size() == rows.row_size()) &&
         static_cast<uint64_t>(accepted.token_size()) == tokens &&
         accepted.logprob_size() == accepted.token_size() &&
         (accepted.rank_size() == 0 || accepted.rank_size() == accepted.token_size()) &&
         TopsAgree(accepted);
}

bool ColumnsAgree(const v1::StepResponse& answer) {
  const v1::RowResults& rows = answer.rows();
  const int count = rows.row_size();
  const auto optional = [count](int size) { return size == 0 || size == count; };
  uint64_t steps = 0;
  for (const v1::SingleStep& step : answer.steps()) steps += step.num_rows();
  const v1::PromptLogprobs& prompt = answer.prompt_logprobs();
  return rows.status_size() == count && rows.sampled_size() == count &&
         rows.token_size() == count && rows.logprob_size() == count &&
         rows.context_length_size() == count && optional(rows.finish_reason_size()) &&
         optional(rows.rank_size()) && TopsAgree(rows) && AcceptedAgree(rows) &&
         (answer.steps().empty() || steps == static_cast<uint64_t>(count) || count == 0) &&
         (rows.logits_row_size() == 0 ? rows.logits_size() == 0
                                      : rows.logits_size() % rows.logits_row_size() == 0) &&
         prompt.position_size() == prompt.row_size() &&
         prompt.logprob_size() == prompt.row_size() && prompt.rank_size() == prompt.row_size() &&
         TopsAgree(prompt);
}

// Of each row result, the step that it is of.
std::vector<uint32_t> StepsOfRows(const v1::StepResponse& answer) {
  std::vector<uint32_t> steps;
  if (answer.rows().row_size() == 0) return steps;
  for (int i = 0; i < answer.steps_size(); ++i)
    steps.insert(steps.end(), answer.steps(i).num_rows(), static_cast<uint32_t>(i));
  steps.resize(static_cast<size_t>(answer.rows().row_size()));
  return steps;
}

// The tokens of rows with accepted drafts, row after row.
class AcceptedReader {
 public:
  explicit AcceptedReader(const v1::AcceptedDrafts& accepted)
      : accepted_(accepted), tops_(accepted) {}
  // Those of the next row.
  void Add(int row, Entry* entry) {
    const uint32_t count = accepted_.count_size() == 0 ? 0 : accepted_.count(row);
    entry->values.push_back(NumberOf("accepted", count));
    for (uint32_t i = 0; i < count; ++i, ++next_) {
      const std::string at = absl::StrCat("accepted[", i, "]: ");
      entry->values.push_back(NumberOf(at + "token", accepted_.token(next_)));
      entry->values.push_back(FloatOf(at + "logprob", accepted_.logprob(next_)));
      if (accepted_.rank_size() == 0) continue;
      entry->values.push_back(NumberOf(at + "rank", accepted_.rank(next_)));
      tops_.Add(accepted_.num_top(next_), entry);
    }
  }

 private:
  const v1::AcceptedDrafts& accepted_;
  TopReader<v1::AcceptedDrafts> tops_;
  int next_ = 0;
};

std::vector<Entry> RowEntries(const v1::StepResponse& answer) {
  const v1::RowResults& rows = answer.rows();
  const std::vector<uint32_t> steps = StepsOfRows(answer);
  TopReader tops(rows);
  AcceptedReader accepted(rows.accepted());
  std::vector<Entry> entries;
  for (int i = 0; i < rows.row_size(); ++i) {
    Entry entry{.step = steps[static_cast<size_t>(i)], .row = rows.row(i)};
    const int finish = rows.finish_reason_size() == 0 ? 0 : rows.finish_reason(i);
    entry.values = {NamedOf("status", rows.status(i), v1::RowStatus_Name(rows.status(i))),
                    NumberOf("sampled", rows.sampled(i) ? 1 : 0),
                    NumberOf("token", rows.token(i)),
                    FloatOf("logprob", rows.logprob(i)),
                    NumberOf("context_length", rows.context_length(i)),
                    NamedOf("finish_reason", finish,
                            v1::FinishReason_Name(static_cast<v1::FinishReason>(finish))),
                    NumberOf("rank", rows.rank_size() == 0 ? 0 : rows.rank(i))};
    tops.Add(rows.num_top_size() == 0 ? 0 : rows.num_top(i), &entry);
    accepted.Add(i, &entry);
    if (DidSomething(rows.status(i))) entries.push_back(std::move(entry));
  }
  return entries;
}

std::vector<Entry> PromptEntries(const v1::PromptLogprobs& prompt) {
  TopReader tops(prompt);
  std::vector<Entry> entries;
  for (int i = 0; i < prompt.row_size(); ++i) {
    const std::string at = absl::StrCat("prompt_logprobs of position ", prompt.position(i), ": ");
    Entry entry{.row = prompt.row(i)};
    entry.values = {NumberOf("prompt_logprobs: position", prompt.position(i)),
                    FloatOf(at + "logprob", prompt.logprob(i)),
                    NumberOf(at + "rank", prompt.rank(i))};
    tops.Add(prompt.num_top(i), &entry);
    entries.push_back(std::move(entry));
  }
  return entries;
}

// Rows that were refused alone. Why is not compared: it may name blocks, which differ. A row
// without room is refused or passed over by how early the server knew that it had stopped.
std::vector<Entry> RefusedEntries(const v1::StepResponse& answer) {
  std::vector<Entry> entries;
  for (const v1::RowError& error : answer.row_errors())
    if (error.code() != static_cast<int>(absl::StatusCode::kOutOfRange))
      entries.push_back({.row = error.row()});
  return entries;
}

AnswerDifference DifferenceOf(const Entry& entry, const std::string& field,
                              const std::string& expected, const std::string& got) {
  return {.step = entry.step, .row = entry.row, .field = field, .expected = expected, .got = got};
}

// Of two entries for the same place.
std::optional<AnswerDifference> Compare(const Entry& recorded, const Entry& got) {
  if (recorded.step != got.step || recorded.row != got.row) {
    const auto name = [](const Entry& entry) {
      return absl::StrCat("row ", entry.row, " in step ", entry.step, " of the request");
    };
    return DifferenceOf(recorded, "row", name(recorded), name(got));
  }
  const size_t count = std::min(recorded.values.size(), got.values.size());
  for (size_t i = 0; i < count; ++i) {
    const Value& expected = recorded.values[i];
    const Value& value = got.values[i];
    if (expected.bits != value.bits || expected.field != value.field)
      return DifferenceOf(recorded, expected.field, expected.text, value.text);
  }
  return std::nullopt;
}

std::optional<AnswerDifference> Compare(const std::vector<Entry>& recorded,
                                        const std::vector<Entry>& got, const std::string& what) {
  const size_t count = std::min(recorded.size(), got.size());
  for (size_t i = 0; i < count; ++i) {
    if (auto difference = Compare(recorded[i], got[i])) return difference;
  }
  if (recorded.size() > count) return DifferenceOf(recorded[count], what, "a result", "none");
  if (got.size() > count) return DifferenceOf(got[count], what, "no result", "one");
  return std::nullopt;
}

std::optional<AnswerDifference> CompareLogits(const v1::RowResults& recorded,
                                              const v1::RowResults& got) {
  const int rows = std::min(recorded.logits_row_size(), got.logits_row_size());
  const auto difference = [](uint32_t row, const std::string& field, const std::string& expected,
                             const std::string& found) {
    return AnswerDifference{.row = row, .field = field, .expected = expected, .got = found};
  };
  for (int i = 0; i < rows; ++i) {
    const uint32_t row = recorded.logits_row(i);
    if (row != got.logits_row(i))
      return difference(row, "logits_row", absl::StrCat(row), absl::StrCat(got.logits_row(i)));
    const int vocab = recorded.logits_size() / recorded.logits_row_size();
    const int others = got.logits_size() / got.logits_row_size();
    if (vocab != others)
      return difference(row, "logits", absl::StrCat(vocab, " of them"), absl::StrCat(others));
    for (int t = 0; t < vocab; ++t) {
      const Value expected = FloatOf("", recorded.logits(i * vocab + t));
      const Value value = FloatOf("", got.logits(i * vocab + t));
      if (expected.bits != value.bits)
        return difference(row, absl::StrCat("logits[", t, "]"), expected.text, value.text);
    }
  }
  if (recorded.logits_row_size() > rows)
    return difference(recorded.logits_row(rows), "logits", "logits", "none");
  if (got.logits_row_size() > rows)
    return difference(got.logits_row(rows), "logits", "none", "logits");
  return std::nullopt;
}

}  // namespace

std::string DifferenceText(const AnswerDifference& difference) {
  return absl::StrCat(
      "step ", difference.sequence, difference.step == 0 ? "" : " (",
      difference.step == 0 ? "" : absl::StrCat("its step ", difference.step, " of several)"),
      difference.row ? absl::StrCat(", row ", *difference.row) : "", ": ", difference.field,
      ": expected ", difference.expected, ", got ", difference.got);
}

absl::StatusOr<std::optional<AnswerDifference>> FirstDifference(const v1::StepResponse& recorded,
                                                                const v1::StepResponse& got) {
  if (!ColumnsAgree(recorded)) {
    return absl::DataLossError(
        absl::StrCat("step ", recorded.sequence(), " as recorded has columns that do not agree"));
  }
  if (!ColumnsAgree(got)) {
    return absl::InternalError(
        absl::StrCat("step ", got.sequence(), " as answered has columns that do not agree"));
  }
  std::optional<AnswerDifference> difference =
      Compare(RowEntries(recorded), RowEntries(got), "row");
  if (!difference) difference = CompareLogits(recorded.rows(), got.rows());
  if (!difference) {
    difference = Compare(PromptEntries(recorded.prompt_logprobs()),
                         PromptEntries(got.prompt_logprobs()), "prompt_logprobs");
  }
  if (!difference)
    difference = Compare(RefusedEntries(recorded), RefusedEntries(got), "row_errors");
  if (difference) difference->sequence = recorded.sequence();
  return difference;
}

uint64_t NumComparedRows(const v1::StepResponse& recorded) {
  const auto& statuses = recorded.rows().status();
  const auto ran = std::count_if(statuses.begin(), statuses.end(), DidSomething);
  return static_cast<uint64_t>(ran) + RefusedEntries(recorded).size();
}

}  // namespace reprise::tools
