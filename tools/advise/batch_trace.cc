// SPDX-License-Identifier: Apache-2.0
#include "tools/advise/batch_trace.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/status_macros.h"
#include "tools/input_file.h"
#include "tools/number_lines.h"

namespace reprise::tools {
namespace {

constexpr double kMostRows = 1u << 16;
constexpr double kMostTokens = 1u << 20;
constexpr double kMostContext = 1u << 30;
constexpr double kMostSteps = 1e12;
// Of a file, all of which is held at once: four times what a server records unless it is told
// otherwise, and the end of a pipe that has none.
constexpr size_t kMostBytes = size_t{4} << 30;
constexpr std::array<NumberField, 4> kFields = {
    NumberField{"rows", 1, kMostRows},
    NumberField{"tokens", 1, kMostTokens, /*whole=*/true, /*otherwise=*/0.0},
    NumberField{"context", 1, kMostContext, /*whole=*/false, /*otherwise=*/0.0},
    NumberField{"steps", 1, kMostSteps, /*whole=*/true, /*otherwise=*/1.0}};

// Whether there is a result for each row that an answer says it has, with what is read of it.
bool ColumnsAgree(const v1::StepResponse& answer) {
  const v1::RowResults& rows = answer.rows();
  uint64_t of_steps = 0;
  for (const v1::SingleStep& step : answer.steps()) of_steps += step.num_rows();
  return rows.status_size() == rows.row_size() && rows.context_length_size() == rows.row_size() &&
         (answer.steps().empty() || rows.row_size() == 0 ||
          of_steps == static_cast<uint64_t>(rows.row_size()));
}

// Of the results [begin, end): rows that ran.
double MeanContext(const v1::RowResults& rows, int begin, int end) {
  double sum = 0, count = 0;
  for (int i = begin; i < std::min(end, rows.context_length_size()); ++i) {
    if (rows.status(i) != v1::ROW_STATUS_RAN) continue;
    sum += rows.context_length(i);
    ++count;
  }
  return count > 0 ? sum / count : 0.0;
}

void AddStep(const v1::StepReport& report, double context, BatchTrace* trace) {
  if (!report.replayed()) {
    ++trace->num_eager;
    return;
  }
  const int64_t rows = int64_t{report.rows()} + report.other_rows();
  const int64_t tokens = int64_t{report.tokens()} + report.other_tokens();
  const double share = rows > 0 ? report.rows() / static_cast<double>(rows) : 1.0;
  if (share > 0)
    trace->steps.push_back({.rows = rows, .tokens = tokens, .context = context, .weight = share});
}

absl::Status AddNumbers(const std::string& file, std::string text, BatchTrace* trace) {
  std::istringstream in(std::move(text));
  REPRISE_ASSIGN_OR_RETURN(const auto records, ReadNumberLines(in, file, kFields, "step"));
  for (size_t i = 0; i < records.size(); ++i) {
    TracedStep step{.rows = static_cast<int64_t>(records[i][0]),
                    .tokens = static_cast<int64_t>(records[i][1]),
                    .context = records[i][2],
                    .weight = records[i][3]};
    if (step.tokens == 0) step.tokens = step.rows;
    if (step.tokens < step.rows) {
      return absl::InvalidArgumentError(absl::StrCat(file, ": record ", i + 1, ": tokens: got ",
                                                     step.tokens, ", allowed: ", step.rows,
                                                     " or more, one for each of its rows"));
    }
    trace->steps.push_back(step);
  }
  return absl::OkStatus();
}

// Whether it is one, or may be the begin of one that was cut off; an empty file may be.
bool IsRecording(std::string_view bytes) {
  const std::string first_line = service::RecordFirstLine();
  const std::string first_word = first_line.substr(0, first_line.find(' ') + 1);
  return bytes.starts_with(first_word) || std::string_view(first_line).starts_with(bytes);
}

}  // namespace

void ServedGraphs::Add(bool is_decode, int64_t capacity, double bytes) {
  std::vector<int64_t>& of_kind = is_decode ? decode : mixed;
  double& mean = is_decode ? decode_bytes : mixed_bytes;
  of_kind.insert(std::upper_bound(of_kind.begin(), of_kind.end(), capacity), capacity);
  mean += (bytes - mean) / static_cast<double>(of_kind.size());
}

ServedGraphs GraphsOf(const google::protobuf::RepeatedPtrField<v1::Bucket>& buckets) {
  ServedGraphs graphs;
  for (const v1::Bucket& bucket : buckets) {
    graphs.Add(bucket.kind() == "decode", bucket.capacity(),
               static_cast<double>(bucket.device_bytes()));
  }
  return graphs;
}

absl::Status AddRecording(const service::Recording& recording, BatchTrace* trace) {
  const ServedGraphs graphs = GraphsOf(recording.header.server().buckets());
  if (!trace->graphs) trace->graphs = graphs;
  if (trace->differing_graphs.ok() &&
      (graphs.decode != trace->graphs->decode || graphs.mixed != trace->graphs->mixed)) {
    const auto show = [](const ServedGraphs& g) {
      return absl::StrCat(absl::StrJoin(g.decode, ","), " and ", absl::StrJoin(g.mixed, ","));
    };
    trace->differing_graphs = absl::InvalidArgumentError(
        absl::StrCat(recording.name, ": decode and mixed buckets: got ", show(graphs),
                     ", allowed: ", show(*trace->graphs),
                     ", which the recordings before it have, or --address, or --decode-buckets and "
                     "--mixed-buckets, which say what there is now"));
  }
  for (const v1::SessionRecord& call : recording.calls) {
    if (!call.has_step() || !call.has_answer()) continue;
    const v1::StepResponse& answer = call.answer();
    if (!ColumnsAgree(answer))
      return absl::DataLossError(absl::StrCat(recording.name, ": step ", answer.sequence(),
                                              " has columns that do not agree; allowed: a "
                                              "recording as a server writes it"));
    if (answer.steps().empty()) {
      AddStep(answer.report(), MeanContext(answer.rows(), 0, answer.rows().row_size()), trace);
    }
    int begin = 0;
    for (const v1::SingleStep& step : answer.steps()) {
      const int end = begin + static_cast<int>(step.num_rows());
      AddStep(step.report(), MeanContext(answer.rows(), begin, end), trace);
      begin = end;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<BatchTrace> ReadBatchTrace(const std::vector<std::string>& files) {
  BatchTrace trace;
  const bool is_alone = files.size() == 1;
  for (const std::string& file : files) {
    REPRISE_ASSIGN_OR_RETURN(std::string bytes, ReadInputFile("", file, kMostBytes));
    // An empty file may be either. Alone it is refused, by what numbers have, and so is an empty
    // pipe, which is all that a failed command leaves.
    std::error_code error;
    const bool may_be_cut_off = !is_alone && std::filesystem::is_regular_file(file, error);
    if (!IsRecording(bytes) || (bytes.empty() && !may_be_cut_off)) {
      REPRISE_RETURN_IF_ERROR(AddNumbers(file, std::move(bytes), &trace));
      continue;
    }
    const absl::StatusOr<service::Recording> recording = service::ParseRecording(file, bytes);
    if (absl::IsOutOfRange(recording.status()) && !is_alone) {
      trace.skipped.push_back({.file = file, .why = std::string(recording.status().message())});
      continue;
    }
    REPRISE_RETURN_IF_ERROR(recording.status());
    REPRISE_RETURN_IF_ERROR(AddRecording(*recording, &trace));
  }
  if (!trace.steps.empty()) return trace;
  std::string skipped;
  for (const SkippedRecording& recording : trace.skipped)
    absl::StrAppend(&skipped, "; skipped: ", recording.why);
  return absl::InvalidArgumentError(
      absl::StrCat(absl::StrJoin(files, ", "),
                   ": got no step that replayed a graph, allowed: one or more", skipped));
}

void TellSkipped(const BatchTrace& trace, std::string_view command, Console* console) {
  for (const SkippedRecording& recording : trace.skipped)
    console->Note(absl::StrCat(std::string(command), ": ", recording.why, "; skipped"));
}

}  // namespace reprise::tools
