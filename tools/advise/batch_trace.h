// SPDX-License-Identifier: Apache-2.0
// BatchTrace: how large the steps of a server were, from recordings of its sessions
// (docs/record.md) or from a file of numbers:
//
//   rows,tokens,context,steps          {"rows": 4, "tokens": 131, "context": 512, "steps": 20}
//   4,131,512,20
//
// rows that ran, query tokens of all of them (left out: one each), tokens in a row's KV in the mean
// (left out: not known), and how many steps were so (left out: one).
#ifndef REPRISE_TOOLS_ADVISE_BATCH_TRACE_H_
#define REPRISE_TOOLS_ADVISE_BATCH_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reprise/v1/step_service.pb.h"
#include "service/record/record_format.h"
#include "tools/console.h"

namespace reprise::tools {

struct TracedStep {
  int64_t rows = 0;    // that ran; 0: a step that only adds, drops or appends
  int64_t tokens = 0;  // query tokens of all of them
  double context = 0;  // tokens in a row's KV, in the mean; 0: not known
  // How many steps it stands for. A replay that served several sessions is in the recording of each
  // of them, and counts there by the session's share of its rows.
  double weight = 1;

  bool is_decode() const { return tokens == rows; }
};

// Buckets, and what the driver takes for a graph of each kind, in the mean.
struct ServedGraphs {
  std::vector<int64_t> decode, mixed;  // ascending
  double decode_bytes = 0, mixed_bytes = 0;

  void Add(bool is_decode, int64_t capacity, double bytes);
};

// Those of a server.
ServedGraphs GraphsOf(const google::protobuf::RepeatedPtrField<v1::Bucket>& buckets);

// A recording that ends before its header does, as a server leaves it that was killed or had no
// room as a session began: nothing is known of the session.
struct SkippedRecording {
  std::string file;
  std::string why;  // begins with the file's name
};

struct BatchTrace {
  std::vector<TracedStep> steps = {};
  std::optional<ServedGraphs> graphs = {};  // of the server that was recorded first
  // Where a later recording is of other buckets: which, got, allowed; for those who need to know
  // what there is.
  absl::Status differing_graphs = {};
  uint64_t num_eager = 0;  // steps that were left out because no graph was replayed
  std::vector<SkippedRecording> skipped = {};
};

// Adds the steps of a recording. Errors: DataLoss names the recording and a step whose results do
// not go together.
absl::Status AddRecording(const service::Recording& recording, BatchTrace* trace);

// Files of either kind, pipes too: each is read once. Of several, recordings without a whole header
// are skipped, empty files among them; TellSkipped says so. Errors: those of reading them;
// InvalidArgument names the file, what in it is wrong, got, allowed; files without steps.
absl::StatusOr<BatchTrace> ReadBatchTrace(const std::vector<std::string>& files);

// A note for each recording that was skipped, by the command of that name.
void TellSkipped(const BatchTrace& trace, std::string_view command, Console* console);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_ADVISE_BATCH_TRACE_H_
