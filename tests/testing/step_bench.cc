// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/step_bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <string>

#include "absl/strings/str_join.h"
#include "kernels/plan/plan.h"
#include "kernels/step/fetch.h"
#include "kernels/step/publish.h"
#include "tests/testing/random_steps.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::AttentionWorkItem;
using kernels::PlanCounts;
using kernels::ResultHeader;
using kernels::RowEntry;
using kernels::RowResult;
using kernels::StepCase;
using kernels::StepEntryLayout;
using kernels::StepHeader;
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

StepBench::StepBench(runtime::Device& device, runtime::Stream& stream,
                     const kernels::KernelSet& kernels, const StepCase& c)
    : c_(c),
      stream_(stream),
      kernels_(kernels),
      memory_(device, stream),
      rows_(c.max_rows, c.max_blocks_per_row, c.vocab),
      count_(c.first_count),
      requests_(c.first_count) {
  plan_.attention.num_windows = c.second_window.has_value() ? 2 : 1;
  plan_.attention.windows[0] = c.window;
  plan_.attention.windows[1] = c.second_window.value_or(0);
  fetch_.plan = plan_.plan = publish_.plan = MakePlan();
  fetch_.rows = plan_.rows = publish_.rows = MakeRows();
  rows_.temperature = PoisonedVector<float>(c.max_rows);

  fetch_.layout = StepEntryLayout::For(c.max_rows, c.max_step_tokens, c.max_blocks_per_row,
                                       RandomSteps::MaxSamplingWords(c));
  const uint32_t max_sampled = c.max_rows + c.max_draft_tokens;
  const auto results = kernels::ResultEntryLayout::For(c.max_rows, 0, 0, 0, max_sampled);
  publish_.entry_bytes = results.bytes;
  publish_.sampled_offset = results.sampled;
  step_ring_ = *runtime::MappedBuffer::Create(device, c.depth * fetch_.layout.bytes);
  result_ring_ =
      *runtime::MappedBuffer::Create(device, c.depth * publish_.entry_bytes + kRingGuardBytes);
  mirror_.ring.assign(result_ring_.bytes(), std::byte{0xff});
  std::memcpy(result_ring_.host(), mirror_.ring.data(), mirror_.ring.size());

  mirror_.progress = {.published = count_, .requests = requests_};
  fetch_.ring = reinterpret_cast<const unsigned char*>(step_ring_.device());
  fetch_.depth = publish_.depth = c.depth;
  fetch_.progress = publish_.progress =
      memory_.Variable(std::vector<kernels::StepProgress>{mirror_.progress});
  plan_.attention.tree = memory_.Constant(std::vector<kernels::AttentionTree>{c.tree});
  plan_.attention.num_shares = c.num_shares;
  plan_.attention.num_kv_heads = c.num_kv_heads;
  plan_.attention.tile_members = c.tile_members;
  plan_.attention.prefill_q_tokens = c.prefill_q_tokens;
  plan_.block_size = c.block_size;
  plan_.max_rows = c.max_rows;
  publish_.sampled_token_id = memory_.Poisoned<uint32_t>(max_sampled);
  publish_.sampled_logprob = memory_.Poisoned<float>(max_sampled);
  publish_.staging = memory_.Poisoned<RowResult>(c.max_rows);
  publish_.ring = reinterpret_cast<unsigned char*>(result_ring_.device());
}

template <typename T>
T* StepBench::Make(size_t n, std::vector<T>& mirror) {
  mirror = PoisonedVector<T>(n);
  return memory_.Poisoned<T>(n);
}

kernels::AttentionLists StepBench::MakeLists(Lists& mirror) {
  const size_t rows = c_.max_rows;
  const uint32_t max_splits = plan_.attention.max_splits;
  kernels::AttentionLists lists;
  if (c_.num_shares == 0) {
    lists.decode_items = Make(kernels::MaxDecodeItems(rows, max_splits), mirror.decode_items);
  } else {
    lists.decode_rows = Make(2 * rows, mirror.decode_rows);
    lists.prefix_members = Make(rows, mirror.members);
    lists.decode_shares = Make(c_.num_shares, mirror.decode_shares);
  }
  lists.prefill_items =
      Make(kernels::MaxPrefillItems(rows, c_.max_step_tokens, max_splits), mirror.prefill_items);
  return lists;
}

// Every array of the plan, and its mirror.
kernels::StepPlan StepBench::MakePlan() {
  const size_t rows = c_.max_rows, tokens = c_.max_step_tokens;
  const size_t sampled = rows + c_.max_draft_tokens;
  const auto make = [this](size_t n, auto& mirror) { return Make(n, mirror); };
  kernels::StepPlan plan;
  plan.counts = memory_.Poisoned<PlanCounts>(1);
  mirror_.counts = PoisonedVector<PlanCounts>(1)[0];
  plan.given_rows = make(rows, mirror_.given_rows);
  plan.entries = make(rows, mirror_.entries);
  plan.given_tokens = make(tokens + rows, mirror_.given_tokens);
  plan.prefix = make(rows, mirror_.prefix);
  plan.query_start = make(rows + 1, mirror_.query_start);
  plan.context_before = make(rows, mirror_.context_before);
  plan.token_id = make(tokens, mirror_.token_id);
  plan.token_position = make(tokens, mirror_.token_position);
  plan.token_block = make(tokens, mirror_.token_block);
  plan.token_offset = make(tokens, mirror_.token_offset);
  plan.sampled_entry = make(sampled, mirror_.sampled_entry);
  plan.sampled_token = make(sampled + c_.max_prompt_logprobs, mirror_.sampled_token);
  for (uint32_t w = 0; w < plan_.attention.num_windows; ++w)
    plan.attention[w] = MakeLists(mirror_.lists[w]);
  plan.attention_leaf = make(rows, mirror_.attention_leaf);
  if (c_.vocab == 0) return plan;
  plan.logits_place = make(sampled, mirror_.logits_place);
  plan.prompt_entry = make(c_.max_prompt_logprobs, mirror_.prompt_entry);
  plan.prompt_target = make(c_.max_prompt_logprobs, mirror_.prompt_target);
  return plan;
}

kernels::ResidentRows StepBench::MakeRows() {
  const size_t rows = c_.max_rows;
  kernels::ResidentRows resident;
  resident.context_length = memory_.Poisoned<uint32_t>(rows);
  resident.last_token = memory_.Poisoned<uint32_t>(rows);
  resident.temperature = memory_.Poisoned<float>(rows);
  resident.seed = memory_.Poisoned<uint64_t>(rows);
  resident.life = memory_.Poisoned<kernels::RowLife>(rows);
  resident.block_table = memory_.Poisoned<uint32_t>(rows * c_.max_blocks_per_row);
  resident.max_blocks_per_row = c_.max_blocks_per_row;
  if (c_.vocab == 0) return resident;
  resident.sampling = memory_.Poisoned<kernels::RowSampling>(rows);
  resident.stop_token = memory_.Poisoned<uint32_t>(rows * kernels::kMaxStopTokens);
  if (!c_.adjust_logits) return resident;
  resident.vocab = c_.vocab;
  resident.mask_words = (c_.vocab + 31) / 32;
  resident.bias = memory_.Poisoned<kernels::LogitBias>(rows * kernels::kMaxLogitBias);
  resident.mask = memory_.Poisoned<uint32_t>(rows * resident.mask_words);
  resident.history = memory_.Poisoned<uint32_t>(rows * c_.vocab);
  return resident;
}

void StepBench::Write(uint64_t sequence, const OracleStep& step, uint32_t num_replays,
                      const OracleStep& repeat) {
  const StepEntryLayout& layout = fetch_.layout;
  std::byte* entry = step_ring_.host() + requests_ % c_.depth * layout.bytes;
  std::memset(entry, 0xff, layout.bytes);  // what a longer step may have left
  StepHeader header;
  header.sequence = sequence;
  header.num_replays = num_replays;
  WritePart(header, step, layout.prefix_members, entry);
  for (uint32_t block = 1; block < kernels::kFetchBlocks; ++block)
    std::memcpy(entry + layout.Header(block), entry, sizeof(header));
  if (num_replays > 1)
    WritePart(header, repeat, layout.repeat_prefix_members - layout.repeat, entry + layout.repeat);
}

void StepBench::WritePart(const StepHeader& of_request, const OracleStep& step,
                          uint64_t members_offset, std::byte* entry) {
  const auto put = [&](uint64_t offset, const auto& values) {
    const auto bytes = std::as_bytes(std::span(values));
    std::copy(bytes.begin(), bytes.end(), entry + offset);
  };
  put(fetch_.layout.rows, step.rows);
  put(fetch_.layout.table_updates, step.table_updates);
  put(fetch_.layout.tokens, step.given_tokens);
  put(fetch_.layout.blocks, step.blocks);
  put(fetch_.layout.sampling_updates, step.sampling_updates);
  put(fetch_.layout.sampling_data, step.sampling_data);
  put(members_offset, step.prefix_members);
  StepHeader header = of_request;
  header.num_rows = static_cast<uint32_t>(step.rows.size());
  header.num_tokens = step.num_tokens();
  header.num_given_tokens = static_cast<uint32_t>(step.given_tokens.size());
  header.num_table_updates = static_cast<uint32_t>(step.table_updates.size());
  header.num_table_ids = static_cast<uint32_t>(step.blocks.size());
  header.num_sampling_updates = static_cast<uint32_t>(step.sampling_updates.size());
  header.num_prefix_members = static_cast<uint32_t>(step.prefix_members.size());
  std::memcpy(entry, &header, sizeof(header));
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

kernels::AttentionPlanRule StepBench::RuleOf(uint32_t window) const {
  kernels::AttentionPlanRule rule = plan_.attention;
  rule.num_windows = 1;
  rule.windows[0] = rule.windows[window];
  return rule;
}

void StepBench::ExpectLists(uint32_t window, const OraclePlan& plan) {
  Lists& lists = mirror_.lists[window];
  Overwrite(lists.decode_items, plan.decode_items);
  Overwrite(lists.decode_rows, plan.decode_rows);
  Overwrite(lists.members, plan.prefix_members);
  Overwrite(lists.decode_shares, plan.decode_shares);
  Overwrite(lists.prefill_items, plan.prefill_items);
  mirror_.counts.num_decode_items[window] = static_cast<uint32_t>(plan.decode_items.size());
  mirror_.counts.num_prefill_items[window] = static_cast<uint32_t>(plan.prefill_items.size());
}

void StepBench::ExpectStep(const OracleStep& step, uint32_t replay, uint32_t num_replays) {
  const OracleRows before = rows_;
  const OraclePlan plan = PlanStep(step, c_.block_size, RuleOf(0), c_.tree, rows_);
  Overwrite(mirror_.prefix, step.prefix_members);
  Overwrite(mirror_.given_rows, step.rows);
  Overwrite(mirror_.attention_leaf, plan.attention_leaf);
  Overwrite(mirror_.entries, plan.entries);
  Overwrite(mirror_.given_tokens, step.given_tokens);
  Overwrite(mirror_.query_start, plan.query_start);
  Overwrite(mirror_.context_before, plan.context_before);
  Overwrite(mirror_.token_id, plan.token_id);
  Overwrite(mirror_.token_position, plan.token_position);
  Overwrite(mirror_.token_block, plan.token_block);
  Overwrite(mirror_.token_offset, plan.token_offset);
  Overwrite(mirror_.sampled_entry, plan.sampled_entry);
  Overwrite(mirror_.sampled_token, plan.sampled_token);
  if (c_.vocab != 0) Overwrite(mirror_.logits_place, plan.logits_place);
  Overwrite(mirror_.prompt_entry, plan.prompt_entry);
  Overwrite(mirror_.prompt_target, plan.prompt_target);
  const auto size = [](const auto& v) { return static_cast<uint32_t>(v.size()); };
  mirror_.counts = {.sequence = ++count_,
                    .begin_ns = 0,
                    .num_rows = size(step.rows),
                    .num_tokens = size(plan.token_id),
                    .num_sampled = size(plan.sampled_entry),
                    .num_decode_items = {},
                    .num_prefill_items = {},
                    .num_table_updates = size(step.table_updates),
                    .num_prompt_logprobs = size(plan.prompt_entry),
                    .num_logits = size(plan.sampled_token),
                    .attention_leaf = plan.batch_leaf,
                    .num_prefix_members = size(step.prefix_members),
                    .replay = replay,
                    .num_replays = num_replays};
  ExpectLists(0, plan);
  // All windows see the same rows.
  for (uint32_t w = 1; w < plan_.attention.num_windows; ++w) {
    OracleRows rows = before;
    ExpectLists(w, PlanStep(step, c_.block_size, RuleOf(w), c_.tree, rows));
  }
  const bool last = replay + 1 == num_replays;
  if (last) ++requests_;
  mirror_.progress = {
      .published = count_, .requests = requests_, .replay = last ? 0 : uint64_t{replay} + 1};

  std::map<size_t, kernels::SampledToken> sampled;
  const std::vector<RowResult> results =
      PublishStep(plan, sampled_token_, sampled_logprob_, rows_, &sampled);
  std::byte* entry = mirror_.ring.data() + (count_ - 1) % c_.depth * publish_.entry_bytes;
  std::memcpy(entry + offsetof(ResultHeader, sequence), &count_, sizeof(count_));
  std::memcpy(entry + offsetof(ResultHeader, num_rows), &mirror_.counts.num_rows, sizeof(uint32_t));
  std::memcpy(entry + offsetof(ResultHeader, attention_leaf), &plan.batch_leaf, sizeof(uint32_t));
  if (!results.empty())
    std::memcpy(entry + sizeof(ResultHeader), results.data(), results.size() * sizeof(RowResult));
  for (const auto& [s, token] : sampled)
    std::memcpy(entry + publish_.sampled_offset + s * sizeof(token), &token, sizeof(token));
}

void StepBench::ExpectIdle() {
  mirror_.counts = PlanCounts{};
  mirror_.counts.replay = static_cast<uint32_t>(mirror_.progress.replay);
  OraclePlan plan;
  WalkTree(c_.tree, c_.window, {}, plan);
  mirror_.counts.attention_leaf = plan.batch_leaf;
  mirror_.query_start[0] = 0;
  for (Lists& lists : mirror_.lists)
    std::fill(lists.decode_shares.begin(), lists.decode_shares.end(), kernels::DecodeShare{});
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
  ExpectSame("given_rows", memory_.Read(plan.given_rows), mirror_.given_rows);
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
  for (uint32_t w = 0; w < plan_.attention.num_windows; ++w) CheckLists(w);
  ExpectSame("prefix", memory_.Read(plan.prefix), mirror_.prefix);
  ExpectSame("attention_leaf", memory_.Read(plan.attention_leaf), mirror_.attention_leaf);
  if (c_.vocab == 0) return;
  CheckLogitsPlace();
  ExpectSame("prompt_entry", memory_.Read(plan.prompt_entry), mirror_.prompt_entry);
  ExpectSame("prompt_target", memory_.Read(plan.prompt_target), mirror_.prompt_target);
}

void StepBench::CheckLists(uint32_t window) {
  SCOPED_TRACE("window " + std::to_string(plan_.attention.windows[window]));
  const kernels::AttentionLists& lists = fetch_.plan.attention[window];
  const Lists& mirror = mirror_.lists[window];
  if (c_.num_shares == 0) {
    ExpectSame("decode_items", memory_.Read(lists.decode_items), mirror.decode_items);
  } else {
    ExpectSame("decode_rows", memory_.Read(lists.decode_rows), mirror.decode_rows);
    ExpectSame("decode_shares", memory_.Read(lists.decode_shares), mirror.decode_shares);
    ExpectSame("prefix_members", memory_.Read(lists.prefix_members), mirror.members);
  }
  ExpectSame("prefill_items", memory_.Read(lists.prefill_items), mirror.prefill_items);
}

// Rows that do not return their logits have a place that nobody looks at.
void StepBench::CheckLogitsPlace() {
  const std::vector<uint32_t> got = memory_.Read(fetch_.plan.logits_place);
  for (size_t s = 0; s < got.size(); ++s)
    if (mirror_.logits_place[s] == OraclePlan::kAnyPlace) mirror_.logits_place[s] = got[s];
  ExpectSame("logits_place", got, mirror_.logits_place);
}

void StepBench::CheckRows() {
  const kernels::ResidentRows& resident = fetch_.rows;
  ExpectSame("context_length", memory_.Read(resident.context_length), rows_.context_length);
  ExpectSame("last_token", memory_.Read(resident.last_token), rows_.last_token);
  ExpectSame("temperature", memory_.Read(resident.temperature), rows_.temperature);
  ExpectSame("seed", memory_.Read(resident.seed), rows_.seed);
  ExpectSame("life", memory_.Read(resident.life), rows_.life);
  ExpectSame("block_table", memory_.Read(resident.block_table), rows_.block_table);
  ExpectSame("progress", memory_.Read(publish_.progress), {mirror_.progress});
  if (c_.vocab != 0) CheckSampling();
}

void StepBench::CheckSampling() {
  const kernels::ResidentRows& resident = fetch_.rows;
  ExpectSame("sampling", memory_.Read(resident.sampling), rows_.sampling);
  ExpectSame("stop_token", memory_.Read(resident.stop_token), rows_.stop_token);
  if (!c_.adjust_logits) return;
  ExpectSame("bias", memory_.Read(resident.bias), rows_.bias);
  ExpectSame("mask", memory_.Read(resident.mask), rows_.mask);
  ExpectSame("history", memory_.Read(resident.history), rows_.history);
}

// The times are the device's; everything else in the ring is known, entries of other steps and the
// words behind the last one included.
void StepBench::CheckResults() {
  std::vector<std::byte> ring(result_ring_.bytes());
  std::memcpy(ring.data(), result_ring_.host(), ring.size());
  for (uint32_t i = 0; i < c_.depth; ++i) {
    const size_t at = i * publish_.entry_bytes + offsetof(ResultHeader, begin_ns);
    uint64_t times[2];  // begin_ns, end_ns
    std::memcpy(times, ring.data() + at, sizeof(times));
    EXPECT_LE(times[0], times[1]);
    std::memcpy(mirror_.ring.data() + at, times, sizeof(times));
  }
  EXPECT_EQ(ring, mirror_.ring);
}

}  // namespace reprise::testing
