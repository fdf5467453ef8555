// SPDX-License-Identifier: Apache-2.0
// ResultLines: a line of JSON for each request, written as soon as it has finished, for a program
// that reads along.
#ifndef REPRISE_TOOLS_SCHED_RESULT_LINES_H_
#define REPRISE_TOOLS_SCHED_RESULT_LINES_H_

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tools/record.h"
#include "tools/sched/request.h"

namespace reprise::tools {

class ResultLines {
 public:
  // byte_tokens: lines have text as well.
  ResultLines(RecordLines file, bool byte_tokens)
      : file_(std::move(file)), byte_tokens_(byte_tokens) {}

  // A request that has finished.
  void Add(const Request& request);
  // Adds those of `requests` that have not finished, and closes the file. Errors: those of the
  // file, also of Add.
  absl::Status Close(const std::vector<Request>& requests);

 private:
  RecordLines file_;
  bool byte_tokens_;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SCHED_RESULT_LINES_H_
