// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/step_bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "absl/strings/str_join.h"
#include "kernels/step/step.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::AttentionItem;
using kernels::PlanCounts;
using kernels::ResultHeader;
using kernels::RowEntry;
using kernels::RowResult;
using kernels::StepCase;
using kernels::StepHeader;
using kernels::StepSlotLayout;
using kernels::TableUpdate;

constexpr size_t kRingGuardBytes = 256;

template <typename T>
std::vector<T> PoisonedVector(size_t n) {
  std::vector<T> v(n);
  std::memset(static_cast<void*>(v.data()), 0xff, n * sizeof(T));
  return v;
}

template <typename T>
void Overwrite(std::vector<T>& mirror, const std::vector<T>& prefix) {
  ASSERT_LE(prefix.size(), mirror.size());
  std::copy(prefix.begin(), prefix.end(), mirror.begin());
}

template <typename T>
void ExpectSame(const char* what, const std::vector<T>& got, const std::vector<T>& want) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::memcmp(&got[i], &want[i], sizeof(T)) == 0) continue;
    const auto words = [](const T& value) {
      uint32_t word[sizeof(T) / 4];
      std::memcpy(word, &value, sizeof(word));
      return absl::StrJoin(word, " ");
    };
    ADD_FAILURE() << what << "[" << i << "]: got " << words(got[i]) << ", want " << words(want[i]);
    return;
  }
}

}  // namespace

RandomSteps::RandomSteps(const StepCase& c, uint64_t seed)
    : c_(c), random_(seed), live_(c.max_rows), sampled_(c.max_rows), num_blocks_(c.max_rows) {}

OracleStep RandomSteps::Next(const OracleRows& rows) {
  OracleStep step;
  uint32_t num_rows = 1 + random_.Below(c_.max_rows);
  num_rows = std::min(num_rows, c_.max_step_tokens);
  const std::vector<uint32_t> slots = random_.Permutation(c_.max_rows);
  for (uint32_t i = 0; i < num_rows; ++i) {
    const uint32_t left = c_.max_step_tokens - step.num_tokens();
    AddRow(slots[i], left - (num_rows - 1 - i), rows, step);  // the others need a token each
  }
  return step;
}

void RandomSteps::AddRow(uint32_t slot, uint32_t budget, const OracleRows& rows, OracleStep& step) {
  const uint32_t capacity = c_.max_blocks_per_row * c_.block_size;
  RowEntry entry;
  entry.slot = slot;
  uint32_t before = live_[slot] ? rows.context_length[slot] : 0;
  if (!live_[slot] || before >= capacity || random_.Below(8) == 0) {
    entry.flags |= kernels::kRowReset;
    entry.context_length = before = random_.Below(3) == 0 ? 0 : random_.Below(capacity);
    entry.temperature = static_cast<float>(random_.Below(3)) * 0.5f;
    entry.seed = random_.Bits();
    live_[slot] = true;
    sampled_[slot] = false;
    num_blocks_[slot] = 0;
  }
  entry.num_tokens = 1;
  if (!sampled_[slot] || random_.Below(4) == 0) {
    entry.flags |= kernels::kRowTokensGiven;
    const uint32_t most = std::min(budget, capacity - before);
    if (random_.Below(2) == 0) entry.num_tokens = 1 + random_.Below(most);
    entry.given_offset = static_cast<uint32_t>(step.given_tokens.size());
    for (uint32_t i = 0; i < entry.num_tokens; ++i)
      step.given_tokens.push_back(random_.Below(1u << 17));
  }
  if (random_.Below(4) != 0) {
    entry.flags |= kernels::kRowSample;
    sampled_[slot] = true;
  }
  GiveBlocks(slot, before + entry.num_tokens, step);
  step.rows.push_back(entry);
}

// As many blocks as the length needs, now and then some ahead, in one update or in two.
void RandomSteps::GiveBlocks(uint32_t slot, uint32_t length, OracleStep& step) {
  uint32_t wanted = (length + c_.block_size - 1) / c_.block_size;
  wanted = std::min(wanted + random_.Below(3), c_.max_blocks_per_row);
  const uint32_t middle = num_blocks_[slot] + (wanted - std::min(wanted, num_blocks_[slot])) / 2;
  for (const uint32_t end : {middle, wanted}) {
    if (end <= num_blocks_[slot]) continue;
    TableUpdate update;
    update.slot = slot;
    update.first = num_blocks_[slot];
    update.count = end - num_blocks_[slot];
    update.offset = static_cast<uint32_t>(step.blocks.size());
    for (uint32_t i = 0; i < update.count; ++i) step.blocks.push_back(1 + random_.Below(1u << 20));
    step.table_updates.push_back(update);
    num_blocks_[slot] = end;
  }
}

StepBench::StepBench(runtime::Device& device, runtime::Stream& stream,
                     const kernels::KernelSet& kernels, const StepCase& c)
    : c_(c),
      device_(device),
      stream_(stream),
      kernels_(kernels),
      memory_(device, stream),
      rows_(c.max_rows, c.max_blocks_per_row),
      count_(c.first_count) {
  const size_t rows = c.max_rows, tokens = c.max_step_tokens;
  const size_t decode_items = rows * c.split.max_splits;
  const size_t prefill_items = tokens / c.prefill_q_tokens + rows;
  mirror_ = {.entries = PoisonedVector<RowEntry>(rows),
             .given_tokens = PoisonedVector<uint32_t>(tokens),
             .query_start = PoisonedVector<uint32_t>(rows + 1),
             .context_before = PoisonedVector<uint32_t>(rows),
             .token_id = PoisonedVector<uint32_t>(tokens),
             .token_position = PoisonedVector<uint32_t>(tokens),
             .token_block = PoisonedVector<uint32_t>(tokens),
             .token_offset = PoisonedVector<uint32_t>(tokens),
             .sampled_entry = PoisonedVector<uint32_t>(rows),
             .sampled_token = PoisonedVector<uint32_t>(rows),
             .decode_items = PoisonedVector<AttentionItem>(decode_items),
             .prefill_items = PoisonedVector<AttentionItem>(prefill_items),
             .counts = PoisonedVector<PlanCounts>(1)[0],
             .ring = {}};
  kernels::StepPlan plan;
  plan.counts = memory_.Poisoned<PlanCounts>(1);
  plan.entries = memory_.Poisoned<RowEntry>(rows);
  plan.given_tokens = memory_.Poisoned<uint32_t>(tokens);
  plan.query_start = memory_.Poisoned<uint32_t>(rows + 1);
  plan.context_before = memory_.Poisoned<uint32_t>(rows);
  plan.token_id = memory_.Poisoned<uint32_t>(tokens);
  plan.token_position = memory_.Poisoned<uint32_t>(tokens);
  plan.token_block = memory_.Poisoned<uint32_t>(tokens);
  plan.token_offset = memory_.Poisoned<uint32_t>(tokens);
  plan.sampled_entry = memory_.Poisoned<uint32_t>(rows);
  plan.sampled_token = memory_.Poisoned<uint32_t>(rows);
  plan.decode_items = memory_.Poisoned<AttentionItem>(decode_items);
  plan.prefill_items = memory_.Poisoned<AttentionItem>(prefill_items);

  kernels::ResidentRows resident;
  resident.context_length = memory_.Poisoned<uint32_t>(rows);
  resident.last_token = memory_.Poisoned<uint32_t>(rows);
  resident.temperature = memory_.Poisoned<float>(rows);
  resident.seed = memory_.Poisoned<uint64_t>(rows);
  resident.life = memory_.Poisoned<kernels::RowLife>(rows);
  resident.block_table = memory_.Poisoned<uint32_t>(rows * c.max_blocks_per_row);
  resident.max_blocks_per_row = c.max_blocks_per_row;
  rows_.temperature = PoisonedVector<float>(rows);

  fetch_.layout = StepSlotLayout::For(rows, tokens, c.max_blocks_per_row);
  publish_.slot_bytes = kernels::ResultSlotBytes(rows);
  step_ring_ = *runtime::MappedBuffer::Create(device, c.depth * fetch_.layout.bytes);
  result_ring_ =
      *runtime::MappedBuffer::Create(device, c.depth * publish_.slot_bytes + kRingGuardBytes);
  mirror_.ring.assign(result_ring_.bytes(), std::byte{0xff});
  std::memcpy(result_ring_.host(), mirror_.ring.data(), mirror_.ring.size());

  uint64_t* step_count = memory_.Variable(std::vector<uint64_t>{count_});
  fetch_.ring = reinterpret_cast<const unsigned char*>(step_ring_.device());
  fetch_.depth = publish_.depth = c.depth;
  fetch_.step_count = publish_.step_count = step_count;
  fetch_.plan = plan_.plan = publish_.plan = plan;
  fetch_.rows = plan_.rows = publish_.rows = resident;
  plan_.split = c.split;
  plan_.block_size = c.block_size;
  plan_.prefill_q_tokens = c.prefill_q_tokens;
  plan_.window = c.window;
  publish_.sampled_token_id = memory_.Poisoned<uint32_t>(rows);
  publish_.sampled_logprob = memory_.Poisoned<float>(rows);
  publish_.staging = memory_.Poisoned<RowResult>(rows);
  publish_.ring = reinterpret_cast<unsigned char*>(result_ring_.device());
}

void StepBench::Write(uint64_t sequence, const OracleStep& step) {
  std::byte* slot = step_ring_.host() + (sequence - 1) % c_.depth * fetch_.layout.bytes;
  std::memset(slot, 0xff, fetch_.layout.bytes);  // what a longer step may have left
  const auto put = [&](uint64_t offset, const auto& values) {
    const auto bytes = std::as_bytes(std::span(values));
    std::copy(bytes.begin(), bytes.end(), slot + offset);
  };
  put(fetch_.layout.rows, step.rows);
  put(fetch_.layout.table_updates, step.table_updates);
  put(fetch_.layout.tokens, step.given_tokens);
  put(fetch_.layout.blocks, step.blocks);
  StepHeader header;
  header.sequence = sequence;
  header.num_rows = static_cast<uint32_t>(step.rows.size());
  header.num_tokens = step.num_tokens();
  header.num_given_tokens = static_cast<uint32_t>(step.given_tokens.size());
  header.num_table_updates = static_cast<uint32_t>(step.table_updates.size());
  std::memcpy(slot, &header, sizeof(header));
}

void StepBench::SetSampled(const std::vector<uint32_t>& token, const std::vector<float>& logprob) {
  sampled_token_ = token;
  sampled_logprob_ = logprob;
  ASSERT_OK(stream_.CopyToDevice(const_cast<uint32_t*>(publish_.sampled_token_id), token.data(),
                                 token.size() * sizeof(uint32_t)));
  ASSERT_OK(stream_.CopyToDevice(const_cast<float*>(publish_.sampled_logprob), logprob.data(),
                                 logprob.size() * sizeof(float)));
  ASSERT_OK(stream_.Synchronize());
}

void StepBench::Launch() {
  ASSERT_OK(Fetch(stream_, kernels_, fetch_));
  ASSERT_OK(Plan(stream_, kernels_, plan_));
  ASSERT_OK(Publish(stream_, kernels_, publish_));
}

void StepBench::ExpectStep(const OracleStep& step) {
  const OraclePlan plan =
      PlanStep(step, c_.block_size, c_.split, c_.prefill_q_tokens, c_.window, rows_);
  Overwrite(mirror_.entries, step.rows);
  Overwrite(mirror_.given_tokens, step.given_tokens);
  Overwrite(mirror_.query_start, plan.query_start);
  Overwrite(mirror_.context_before, plan.context_before);
  Overwrite(mirror_.token_id, plan.token_id);
  Overwrite(mirror_.token_position, plan.token_position);
  Overwrite(mirror_.token_block, plan.token_block);
  Overwrite(mirror_.token_offset, plan.token_offset);
  Overwrite(mirror_.sampled_entry, plan.sampled_entry);
  Overwrite(mirror_.sampled_token, plan.sampled_token);
  Overwrite(mirror_.decode_items, plan.decode_items);
  Overwrite(mirror_.prefill_items, plan.prefill_items);
  const auto size = [](const auto& v) { return static_cast<uint32_t>(v.size()); };
  mirror_.counts = {.sequence = ++count_,
                    .begin_ns = 0,
                    .num_rows = size(step.rows),
                    .num_tokens = step.num_tokens(),
                    .num_sampled = size(plan.sampled_entry),
                    .num_decode_items = size(plan.decode_items),
                    .num_prefill_items = size(plan.prefill_items),
                    .num_table_updates = size(step.table_updates),
                    .num_prompt_logprobs = 0,
                    .num_logits = size(plan.sampled_entry)};

  const std::vector<RowResult> results =
      PublishStep(step, plan, sampled_token_, sampled_logprob_, rows_);
  std::byte* slot = mirror_.ring.data() + (count_ - 1) % c_.depth * publish_.slot_bytes;
  std::memcpy(slot + offsetof(ResultHeader, sequence), &count_, sizeof(count_));
  std::memcpy(slot + offsetof(ResultHeader, num_rows), &mirror_.counts.num_rows, sizeof(uint32_t));
  std::memcpy(slot + sizeof(ResultHeader), results.data(), results.size() * sizeof(RowResult));
}

void StepBench::ExpectIdle() {
  mirror_.counts = PlanCounts{};
  mirror_.query_start[0] = 0;
}

void StepBench::Check() {
  memory_.Check();
  CheckPlan();
  CheckRows();
  CheckResults();
}

void StepBench::CheckPlan() {
  const kernels::StepPlan& plan = fetch_.plan;
  PlanCounts counts = memory_.Read(plan.counts)[0];
  EXPECT_GT(counts.begin_ns, 0u);
  counts.begin_ns = 0;
  ExpectSame("counts", std::vector<PlanCounts>{counts}, {mirror_.counts});
  ExpectSame("entries", memory_.Read(plan.entries), mirror_.entries);
  ExpectSame("given_tokens", memory_.Read(plan.given_tokens), mirror_.given_tokens);
  ExpectSame("query_start", memory_.Read(plan.query_start), mirror_.query_start);
  ExpectSame("context_before", memory_.Read(plan.context_before), mirror_.context_before);
  ExpectSame("token_id", memory_.Read(plan.token_id), mirror_.token_id);
  ExpectSame("token_position", memory_.Read(plan.token_position), mirror_.token_position);
  ExpectSame("token_block", memory_.Read(plan.token_block), mirror_.token_block);
  ExpectSame("token_offset", memory_.Read(plan.token_offset), mirror_.token_offset);
  ExpectSame("sampled_entry", memory_.Read(plan.sampled_entry), mirror_.sampled_entry);
  ExpectSame("sampled_token", memory_.Read(plan.sampled_token), mirror_.sampled_token);
  ExpectSame("decode_items", memory_.Read(plan.decode_items), mirror_.decode_items);
  ExpectSame("prefill_items", memory_.Read(plan.prefill_items), mirror_.prefill_items);
}

void StepBench::CheckRows() {
  const kernels::ResidentRows& resident = fetch_.rows;
  ExpectSame("context_length", memory_.Read(resident.context_length), rows_.context_length);
  ExpectSame("last_token", memory_.Read(resident.last_token), rows_.last_token);
  ExpectSame("temperature", memory_.Read(resident.temperature), rows_.temperature);
  ExpectSame("seed", memory_.Read(resident.seed), rows_.seed);
  ExpectSame("life", memory_.Read(resident.life), rows_.life);
  ExpectSame("block_table", memory_.Read(resident.block_table), rows_.block_table);
  ExpectSame("step_count", memory_.Read(publish_.step_count), {count_});
}

// The times are the device's; everything else in the ring is known, slots of other steps and the
// words behind the last one included.
void StepBench::CheckResults() {
  std::vector<std::byte> ring(result_ring_.bytes());
  std::memcpy(ring.data(), result_ring_.host(), ring.size());
  for (uint32_t i = 0; i < c_.depth; ++i) {
    const size_t at = i * publish_.slot_bytes + offsetof(ResultHeader, begin_ns);
    uint64_t times[2];  // begin_ns, end_ns
    std::memcpy(times, ring.data() + at, sizeof(times));
    EXPECT_LE(times[0], times[1]);
    std::memcpy(mirror_.ring.data() + at, times, sizeof(times));
  }
  EXPECT_EQ(ring, mirror_.ring);
}

}  // namespace reprise::testing
