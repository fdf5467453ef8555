// SPDX-License-Identifier: Apache-2.0
#include "tools/replay/replayer.h"

#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "service/session_token.h"

namespace reprise::tools {
namespace {

constexpr uint32_t kNobodys = 0xffffffff;

std::string RefusalText(const v1::StepError& error) {
  return absl::StrCat("the refusal \"", error.message(), "\"");
}

std::string RandomText() {
  const service::SessionToken random = service::SessionToken::Random();
  return absl::BytesToHexString({random.bytes().data(), random.bytes().size()});
}

std::vector<uint32_t> ListOf(const ReplayedIds::Recorded& ids) { return {ids.begin(), ids.end()}; }

absl::Status CheckCount(const char* doing, int asked, size_t got) {
  if (static_cast<size_t>(asked) == got) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(doing, ": got ", got, ", asked for ", asked));
}

}  // namespace

Replayer::Replayer(ReplayTarget* target) : target_(*target), name_prefix_(RandomText()) {}

absl::Status Replayer::Repeat(const v1::SessionRecord& call) {
  if (call.has_step()) return RepeatStep(call);
  const absl::Status status = RepeatKvCall(call);
  if (status.ok()) return status;
  // The steps before it were repeated.
  return absl::Status(status.code(),
                      absl::StrCat("before step ", result_.steps + 1, ": ", status.message()));
}

absl::Status Replayer::RepeatKvCall(const v1::SessionRecord& call) {
  if (call.has_allocate()) return RepeatAllocate(call.allocated().blocks());
  // What was in them comes next.
  if (call.has_adopted()) return RepeatAllocate(call.adopted().blocks());
  if (call.has_free()) return RepeatFree(call.free());
  if (call.has_write()) return RepeatWrite(call.write());
  if (call.has_swap_out()) return RepeatSwapOut(call);
  if (call.has_swap_in()) return RepeatSwapIn(call);
  if (call.has_swap_out_state()) return RepeatSwapOutState(call);
  if (call.has_free_swapped()) return RepeatFreeSwapped(call.free_swapped());
  if (call.has_share()) return RepeatShare(call.share());
  if (call.has_release()) return RepeatRelease(call.release());
  return absl::DataLossError("the recording has a call that is none");
}

// ---- blocks ----

absl::Status Replayer::RepeatAllocate(const ReplayedIds::Recorded& recorded) {
  REPRISE_ASSIGN_OR_RETURN(const std::vector<uint32_t> got,
                           target_.Allocate(static_cast<uint32_t>(recorded.size())));
  REPRISE_RETURN_IF_ERROR(CheckCount("allocating blocks", recorded.size(), got.size()));
  blocks_.Add(recorded, got);
  return absl::OkStatus();
}

absl::Status Replayer::RepeatFree(const v1::FreeRequest& recorded) {
  ReplayedIds::Recorded blocks = recorded.blocks();
  REPRISE_RETURN_IF_ERROR(blocks_.Map(&blocks));
  REPRISE_RETURN_IF_ERROR(target_.Free(ListOf(blocks)));
  blocks_.Remove(recorded.blocks());
  return absl::OkStatus();
}

absl::Status Replayer::RepeatWrite(const v1::WriteBlocksRequest& recorded) {
  v1::WriteBlocksRequest write = recorded;
  for (v1::KvPart& part : *write.mutable_parts()) {
    const std::optional<uint32_t> block = blocks_.Find(part.block());
    if (!block) return blocks_.Unknown(part.block());
    part.set_block(*block);
  }
  return target_.Write(write);
}

// ---- swap space ----

absl::Status Replayer::RepeatSwapOut(const v1::SessionRecord& call) {
  ReplayedIds::Recorded blocks = call.swap_out().blocks();
  REPRISE_RETURN_IF_ERROR(blocks_.Map(&blocks));
  REPRISE_ASSIGN_OR_RETURN(const std::vector<uint32_t> got, target_.SwapOut(ListOf(blocks)));
  const ReplayedIds::Recorded& swapped = call.swapped_out().swapped();
  REPRISE_RETURN_IF_ERROR(CheckCount("swapping blocks out", swapped.size(), got.size()));
  blocks_.Remove(call.swap_out().blocks());
  swapped_.Add(swapped, got);
  return absl::OkStatus();
}

absl::Status Replayer::RepeatSwapIn(const v1::SessionRecord& call) {
  ReplayedIds::Recorded swapped = call.swap_in().swapped();
  REPRISE_RETURN_IF_ERROR(swapped_.Map(&swapped));
  REPRISE_ASSIGN_OR_RETURN(const std::vector<uint32_t> got, target_.SwapIn(ListOf(swapped)));
  const ReplayedIds::Recorded& blocks = call.swapped_in().blocks();
  REPRISE_RETURN_IF_ERROR(CheckCount("swapping blocks in", blocks.size(), got.size()));
  swapped_.Remove(call.swap_in().swapped());
  blocks_.Add(blocks, got);
  return absl::OkStatus();
}

absl::Status Replayer::RepeatSwapOutState(const v1::SessionRecord& call) {
  REPRISE_ASSIGN_OR_RETURN(const engine::SwappedState got,
                           target_.SwapOutState(call.swap_out_state().row()));
  const v1::SwapOutStateResponse& recorded = call.swapped_out_state();
  if (got.context_length != recorded.context_length())
    return absl::InternalError(absl::StrCat("swapping a state out: got one behind ",
                                            got.context_length, " tokens, recorded ",
                                            recorded.context_length()));
  ReplayedIds::Recorded state;
  state.Add(recorded.swapped_state());
  states_.Add(state, {got.place});
  return absl::OkStatus();
}

absl::Status Replayer::RepeatFreeSwapped(const v1::FreeSwappedRequest& recorded) {
  ReplayedIds::Recorded swapped = recorded.swapped();
  ReplayedIds::Recorded states = recorded.swapped_states();
  REPRISE_RETURN_IF_ERROR(swapped_.Map(&swapped));
  REPRISE_RETURN_IF_ERROR(states_.Map(&states));
  REPRISE_RETURN_IF_ERROR(target_.FreeSwapped(ListOf(swapped), ListOf(states)));
  swapped_.Remove(recorded.swapped());
  states_.Remove(recorded.swapped_states());
  return absl::OkStatus();
}

// ---- blocks that nobody writes ----

absl::Status Replayer::RepeatShare(const v1::ShareBlocksRequest& recorded) {
  if (shared_.contains(recorded.name()))
    return absl::DataLossError("the recording shares blocks twice under one name");
  ReplayedIds::Recorded blocks = recorded.blocks();
  REPRISE_RETURN_IF_ERROR(blocks_.Map(&blocks));
  const std::string name = absl::StrCat("replay ", name_prefix_, " ", ++num_names_);
  REPRISE_RETURN_IF_ERROR(target_.Share(name, ListOf(blocks)));
  shared_.emplace(recorded.name(), Shared{.name = name, .blocks = recorded.blocks()});
  return absl::OkStatus();
}

absl::Status Replayer::RepeatRelease(const v1::ReleaseBlocksRequest& recorded) {
  const auto found = shared_.find(recorded.name());
  if (found == shared_.end()) {
    return absl::DataLossError(
        "the recording releases blocks under a name under which it has none");
  }
  REPRISE_RETURN_IF_ERROR(target_.Release(found->second.name));
  blocks_.Remove(found->second.blocks);
  shared_.erase(found);
  return absl::OkStatus();
}

// ---- steps ----

absl::Status Replayer::MapBlocks(bool is_refused_alone, ReplayedIds::Recorded* blocks) const {
  for (uint32_t& block : *blocks) {
    const std::optional<uint32_t> found = blocks_.Find(block);
    if (!found && !is_refused_alone) return blocks_.Unknown(block);
    block = found.value_or(kNobodys);
  }
  return absl::OkStatus();
}

absl::Status Replayer::MapAdded(bool is_refused_alone, v1::AddRow* row) const {
  REPRISE_RETURN_IF_ERROR(MapBlocks(is_refused_alone, row->mutable_blocks()));
  if (!row->has_swapped_state()) return absl::OkStatus();
  const std::optional<uint32_t> state = states_.Find(row->swapped_state());
  if (!state && !is_refused_alone) return states_.Unknown(row->swapped_state());
  row->set_swapped_state(state.value_or(kNobodys));
  return absl::OkStatus();
}

absl::Status Replayer::SendStep(const v1::SessionRecord& call) {
  step_ = call.step();
  const bool is_refused_alone = step_.isolate_bad_rows();
  for (v1::AddRow& row : *step_.mutable_add())
    REPRISE_RETURN_IF_ERROR(MapAdded(is_refused_alone, &row));
  for (v1::AppendBlocks& row : *step_.mutable_append())
    REPRISE_RETURN_IF_ERROR(MapBlocks(is_refused_alone, row.mutable_blocks()));
  REPRISE_RETURN_IF_ERROR(blocks_.Map(step_.mutable_copy_blocks()));
  return target_.Step(step_, &answer_);
}

absl::Status Replayer::RepeatStep(const v1::SessionRecord& call) {
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

}  // namespace reprise::tools
