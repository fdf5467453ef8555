// SPDX-License-Identifier: Apache-2.0
#include "tools/replay/recorded_session.h"

#include <algorithm>
#include <cstddef>
#include <tuple>

#include "runtime/status_macros.h"
#include "tools/replay/replayer.h"

namespace reprise::tools {

RecordedSession::RecordedSession(const service::Recording& recording) {
  for (const v1::SessionRecord& call : recording.calls) calls.push_back(&call);
  // In the file they stand by when they were answered.
  std::stable_sort(calls.begin(), calls.end(), [](const auto* a, const auto* b) {
    return std::tuple(a->time_ns(), a->step().sequence()) <
           std::tuple(b->time_ns(), b->step().sequence());
  });
  size_t end = 0;  // behind the last step
  NeedsCounter counter;
  for (size_t i = 0; i < calls.size(); ++i) {
    counter.Note(*calls[i]);
    if (!calls[i]->has_step()) continue;
    if (calls[i]->step().sequence() != num_steps + 1) {
      missing_step = num_steps + 1;
      break;
    }
    ++num_steps;
    end = i + 1;
    needs = counter.most();
  }
  calls.resize(end);
}

absl::StatusOr<ReplayResult> ReplaySession(const RecordedSession& session, ReplayTarget* target,
                                           const std::atomic<bool>& interrupted) {
  Replayer replayer(target);
  for (const v1::SessionRecord* call : session.calls) {
    if (interrupted || replayer.result().difference) break;
    REPRISE_RETURN_IF_ERROR(replayer.Repeat(*call));
  }
  return replayer.result();
}

}  // namespace reprise::tools
