// SPDX-License-Identifier: Apache-2.0
#include "tools/replay/recorded_session.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

// The ids of blocks that the replay was given, by those of the recording.
class BlockMap {
 public:
  void Add(const v1::AllocateResponse& recorded, const std::vector<uint32_t>& got) {
    for (size_t i = 0; i < got.size(); ++i) ids_[recorded.blocks(static_cast<int>(i))] = got[i];
  }
  void Remove(const google::protobuf::RepeatedField<uint32_t>& recorded) {
    for (const uint32_t block : recorded) ids_.erase(block);
  }
  // is_refused_alone: a row that names a block which is not the session's was refused by itself,
  // and is again: it names one that nobody has.
  absl::Status Map(google::protobuf::RepeatedField<uint32_t>* blocks,
                   bool is_refused_alone = false) const {
    for (uint32_t& block : *blocks) {
      const auto found = ids_.find(block);
      if (found == ids_.end() && is_refused_alone) {
        block = kNobodysBlock;
        continue;
      }
      if (found == ids_.end()) {
        return absl::DataLossError(
            absl::StrCat("the recording names block ", block, ", which it has not allocated"));
      }
      block = found->second;
    }
    return absl::OkStatus();
  }

 private:
  static constexpr uint32_t kNobodysBlock = 0xffffffff;
  std::map<uint32_t, uint32_t> ids_;
};

std::string RefusalText(const v1::StepError& error) {
  return absl::StrCat("the refusal \"", error.message(), "\"");
}

// One session on its way through a target.
class Replayer {
 public:
  explicit Replayer(ReplayTarget* target) : target_(*target) {}

  absl::Status Repeat(const v1::SessionRecord& call) {
    if (call.has_step()) return RepeatStep(call);
    const absl::Status status =
        call.has_allocate() ? RepeatAllocate(call.allocated()) : RepeatFree(call.free());
    if (status.ok()) return status;
    // The steps before it were repeated.
    return absl::Status(status.code(),
                        absl::StrCat("before step ", result_.steps + 1, ": ", status.message()));
  }
  const ReplayResult& result() const { return result_; }

 private:
  absl::Status RepeatFree(const v1::FreeRequest& recorded) {
    google::protobuf::RepeatedField<uint32_t> blocks = recorded.blocks();
    REPRISE_RETURN_IF_ERROR(blocks_.Map(&blocks));
    REPRISE_RETURN_IF_ERROR(target_.Free({blocks.begin(), blocks.end()}));
    blocks_.Remove(recorded.blocks());
    return absl::OkStatus();
  }

  absl::Status RepeatAllocate(const v1::AllocateResponse& recorded) {
    const auto count = static_cast<uint32_t>(recorded.blocks_size());
    REPRISE_ASSIGN_OR_RETURN(const std::vector<uint32_t> got, target_.Allocate(count));
    if (got.size() != count) {
      return absl::InternalError(
          absl::StrCat("allocating blocks: got ", got.size(), ", asked for ", count));
    }
    blocks_.Add(recorded, got);
    return absl::OkStatus();
  }

  // The step with the blocks of the replay, and its answer.
  absl::Status SendStep(const v1::SessionRecord& call) {
    step_ = call.step();
    const bool is_refused_alone = step_.isolate_bad_rows();
    for (v1::AddRow& row : *step_.mutable_add())
      REPRISE_RETURN_IF_ERROR(blocks_.Map(row.mutable_blocks(), is_refused_alone));
    for (v1::AppendBlocks& row : *step_.mutable_append())
      REPRISE_RETURN_IF_ERROR(blocks_.Map(row.mutable_blocks(), is_refused_alone));
    REPRISE_RETURN_IF_ERROR(blocks_.Map(step_.mutable_copy_blocks()));
    return target_.Step(step_, &answer_);
  }

  absl::Status RepeatStep(const v1::SessionRecord& call) {
    const absl::Status sent = SendStep(call);
    if (!sent.ok()) {
      return absl::Status(sent.code(),
                          absl::StrCat("step ", call.step().sequence(), ": ", sent.message()));
    }
    ++result_.steps;
    if (step_.omit_rows()) ++result_.steps_without_rows;
    if (answer_.has_step()) {
      REPRISE_ASSIGN_OR_RETURN(result_.difference, FirstDifference(call.answer(), answer_.step()));
      result_.rows += NumComparedRows(call.answer());
      return absl::OkStatus();
    }
    result_.difference =
        AnswerDifference{.sequence = step_.sequence(),
                         .field = "answer",
                         .expected = "a result",
                         .got = answer_.has_error() ? RefusalText(answer_.error()) : "nothing"};
    return absl::OkStatus();
  }

  ReplayTarget& target_;
  BlockMap blocks_;
  ReplayResult result_;
  v1::StepRequest step_;
  v1::StepStreamResponse answer_;
};

}  // namespace

RecordedSession::RecordedSession(const service::Recording& recording) {
  for (const v1::SessionRecord& call : recording.calls) calls.push_back(&call);
  // In the file they stand by when they were answered.
  std::stable_sort(calls.begin(), calls.end(), [](const auto* a, const auto* b) {
    return std::tuple(a->time_ns(), a->step().sequence()) <
           std::tuple(b->time_ns(), b->step().sequence());
  });
  size_t end = 0;  // behind the last step
  uint32_t held = 0;
  uint32_t most = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    held += static_cast<uint32_t>(calls[i]->allocated().blocks_size());
    held -= std::min(held, static_cast<uint32_t>(calls[i]->free().blocks_size()));
    most = std::max(most, held);
    if (!calls[i]->has_step()) continue;
    if (calls[i]->step().sequence() != num_steps + 1) {
      missing_step = num_steps + 1;
      break;
    }
    ++num_steps;
    end = i + 1;
    max_blocks = most;
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
