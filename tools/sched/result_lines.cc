// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/result_lines.h"

#include "tools/sched/stats.h"

namespace reprise::tools {

void ResultLines::Add(const Request& request) { file_.Write(RequestToJson(request, byte_tokens_)); }

absl::Status ResultLines::Close(const std::vector<Request>& requests) {
  for (const Request& request : requests)
    if (!request.finished()) Add(request);
  return file_.Close();
}

}  // namespace reprise::tools
