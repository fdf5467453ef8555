// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/recording_targets.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/kv_part.h"
#include "reprise/v1/record.pb.h"
#include "service/kv/kv_wire.h"
#include "service/record/kv_records.h"
#include "service/record/record_format.h"
#include "tools/replay/recorded_session.h"
#include "tools/replay/replay_target.h"

namespace reprise::fuzz {
namespace {

constexpr engine::KvShape kShape = {.num_layers = 2,
                                    .num_kv_heads = 1,
                                    .head_dim = 4,
                                    .block_size = 4,
                                    .dtype = runtime::DType::kF32};

// Takes whatever it is asked, and gives what it is asked for.
class YieldingTarget final : public tools::ReplayTarget {
 public:
  absl::StatusOr<std::vector<uint32_t>> Allocate(uint32_t count) override { return Some(count); }
  absl::Status Free(const std::vector<uint32_t>& /*blocks*/) override { return absl::OkStatus(); }
  absl::Status Write(const v1::WriteBlocksRequest& write) override {
    return service::PartsFromWire(kShape, write).status();
  }
  absl::StatusOr<std::vector<uint32_t>> SwapOut(const std::vector<uint32_t>& blocks) override {
    return Some(blocks.size());
  }
  absl::StatusOr<std::vector<uint32_t>> SwapIn(const std::vector<uint32_t>& swapped) override {
    return Some(swapped.size());
  }
  absl::StatusOr<engine::SwappedState> SwapOutState(uint32_t row) override {
    return engine::SwappedState{.place = row};
  }
  absl::Status FreeSwapped(const std::vector<uint32_t>& /*swapped*/,
                           const std::vector<uint32_t>& /*states*/) override {
    return absl::OkStatus();
  }
  absl::Status Share(const std::string& /*name*/,
                     const std::vector<uint32_t>& /*blocks*/) override {
    return absl::OkStatus();
  }
  absl::Status Release(const std::string& /*name*/) override { return absl::OkStatus(); }
  absl::Status Step(const v1::StepRequest& step, v1::StepStreamResponse* answer) override {
    answer->mutable_step()->set_sequence(step.sequence());
    return absl::OkStatus();
  }

 private:
  static std::vector<uint32_t> Some(size_t count) { return std::vector<uint32_t>(count, 1); }
};

// Of a server with 8 blocks of 4 tokens and 5 places in swap space.
std::vector<v1::SessionRecord> KvCallSeeds() {
  std::vector<v1::SessionRecord> calls(9);
  calls[0].mutable_adopted()->add_blocks(3);
  v1::WriteBlocksRequest* write = calls[1].mutable_write();
  service::KvLayoutToWire(kShape, "", write->mutable_layout());
  v1::KvPart* part = write->add_parts();
  part->set_block(3);
  part->set_num_layers(1);
  part->set_num_tokens(1);
  part->set_contents(std::string(kShape.BytesOf({.num_layers = 1, .num_tokens = 1}), 'k'));
  part->set_crc32(service::Crc32Of(*part));
  calls[2].mutable_share()->set_name(service::SharedNameDigest("x"));
  calls[2].mutable_share()->add_blocks(3);
  calls[3].mutable_release()->set_name(service::SharedNameDigest("x"));
  calls[4].mutable_allocate()->set_count(1);
  calls[4].mutable_allocated()->add_blocks(5);
  calls[5].mutable_swap_out()->add_blocks(5);
  calls[5].mutable_swapped_out()->add_swapped(4);
  calls[6].mutable_swap_in()->add_swapped(4);
  calls[6].mutable_swapped_in()->add_blocks(2);
  calls[7].mutable_swap_out_state()->set_row(17);
  calls[7].mutable_swapped_out_state()->set_swapped_state(1);
  calls[8].mutable_free_swapped()->add_swapped_states(1);
  return calls;
}

v1::SessionRecord HeaderSeed() {
  v1::SessionRecord header;
  header.mutable_header()->set_session(7);
  header.mutable_header()->mutable_server()->mutable_model()->set_name("tiny");
  v1::Pool* pool = header.mutable_header()->mutable_server()->mutable_pool();
  pool->set_block_size(kShape.block_size);
  pool->set_num_blocks(8);
  pool->set_swap_blocks(5);
  pool->set_swap_states(2);
  return header;
}

v1::SessionRecord StepSeed(uint64_t time_ns) {
  v1::SessionRecord step;
  step.set_time_ns(time_ns);
  step.mutable_step()->set_sequence(1);
  step.mutable_answer()->set_sequence(1);
  return step;
}

std::string RecordingOf(const std::vector<v1::SessionRecord>& records, uint32_t version) {
  std::string file = service::RecordFirstLine(version);
  for (const v1::SessionRecord& record : records)
    service::AppendFramed(record.SerializeAsString(), &file);
  return file;
}

}  // namespace

// What is read is repeated, too, whatever becomes of it.
bool TakeRecording(std::string_view bytes) {
  const auto recording = service::ParseRecording("f", bytes);
  if (!recording.ok()) return false;
  const tools::RecordedSession session(*recording);
  YieldingTarget target;
  const std::atomic<bool> interrupted = false;
  tools::ReplaySession(session, &target, interrupted).status().IgnoreError();
  return true;
}

std::vector<std::string> RecordingSeeds() {
  const v1::SessionRecord step = StepSeed(0);
  v1::SessionRecord end;
  end.mutable_end()->set_reason(v1::RECORD_END_REASON_SESSION_ENDED);
  std::vector<v1::SessionRecord> calls = KvCallSeeds();
  calls.insert(calls.begin(), HeaderSeed());
  calls.push_back(step);
  return {RecordingOf(calls, service::kRecordVersion),
          RecordingOf({HeaderSeed(), step, end}, service::kOldestRecordVersion)};
}

// One record behind a header: checksums refuse nearly all that is almost right of a file.
bool TakeRecord(std::string_view bytes) {
  std::string file = RecordingOf({HeaderSeed()}, service::kRecordVersion);
  service::AppendFramed(bytes, &file);
  // What stands behind the last step is not repeated.
  service::AppendFramed(StepSeed(~uint64_t{0}).SerializeAsString(), &file);
  return TakeRecording(file);
}

std::vector<std::string> RecordSeeds() {
  std::vector<std::string> seeds;
  for (const v1::SessionRecord& call : KvCallSeeds()) seeds.push_back(call.SerializeAsString());
  return seeds;
}

}  // namespace reprise::fuzz
