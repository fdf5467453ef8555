// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/sample_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>

#include "kernels/sample/sample.h"
#include "runtime/memory/buffer.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/number.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::LogprobReport;
using kernels::RowEntry;
using kernels::RowSampling;
using kernels::SampleArgs;
using kernels::SampleCut;
using runtime::DType;

constexpr uint64_t kSequence = 8;     // ring entry 1 of 2
constexpr uint32_t kSpareBlocks = 2;  // of sampled rows and of prompt tokens: they do nothing

uint32_t FeaturesOf(const SampleRow& row) {
  uint32_t features = 0;
  if (row.truncates()) features |= kernels::kFeatureTruncate;
  if (row.repetition != 1.0 || row.presence != 0.0 || row.frequency != 0.0)
    features |= kernels::kFeaturePenalties;
  if (!row.bias.empty()) features |= kernels::kFeatureBias;
  if (!row.allowed.empty()) features |= kernels::kFeatureMask;
  if (row.min_tokens != 0) features |= kernels::kFeatureMinTokens;
  if (row.num_logprobs != 0) features |= kernels::kFeatureLogprobs;
  if (row.return_logits) features |= kernels::kFeatureLogits;
  return features;
}

RowSampling SamplingOf(const SampleRow& row) {
  RowSampling s;
  s.top_k = row.top_k;
  s.top_p = static_cast<float>(row.top_p);
  s.log_min_p = std::log(static_cast<float>(row.min_p));
  s.repetition = static_cast<float>(row.repetition);
  s.presence = static_cast<float>(row.presence);
  s.frequency = static_cast<float>(row.frequency);
  s.min_tokens = row.min_tokens;
  s.num_stop = static_cast<uint32_t>(row.stop.size());
  s.num_bias = static_cast<uint32_t>(row.bias.size());
  s.num_logprobs = row.num_logprobs;
  return s;
}

// Resident rows as the device keeps them. Of a row without features only temperature, seed and
// life are ever written.
struct Resident {
  Resident(uint32_t max_rows, size_t vocab_size)
      : vocab(vocab_size),
        mask_words((vocab + 31) / 32),
        temperature(max_rows, NAN),
        seed(max_rows, ~uint64_t{0}),
        life(max_rows),
        sampling(max_rows),
        stop(size_t{max_rows} * kernels::kMaxStopTokens, 0xffffffffu),
        bias(size_t{max_rows} * kernels::kMaxLogitBias),
        mask(max_rows * mask_words, 0),
        history(max_rows * vocab, 0xffffffffu) {
    std::memset(static_cast<void*>(sampling.data()), 0xff, max_rows * sizeof(RowSampling));
  }

  void Set(size_t at, const SampleRow& row) {
    temperature[at] = row.temperature;
    seed[at] = row.seed;
    life[at] = {FeaturesOf(row), row.generated, kernels::FinishReason::kNone, 0};
    if (FeaturesOf(row) == 0) return;
    sampling[at] = SamplingOf(row);
    std::copy(row.stop.begin(), row.stop.end(), &stop[at * kernels::kMaxStopTokens]);
    size_t j = at * kernels::kMaxLogitBias;
    for (const auto& [token, value] : row.bias) bias[j++] = {token, static_cast<float>(value)};
    for (size_t t = 0; t < row.allowed.size(); ++t)
      if (row.allowed[t]) mask[at * mask_words + t / 32] |= 1u << t % 32;
    std::fill_n(&history[at * vocab], vocab, 0);
    for (const uint32_t t : row.prompt) history[at * vocab + t] |= kernels::kHistoryPrompt;
    for (const auto& [token, count] : row.sampled) history[at * vocab + token] += count;
  }

  kernels::ResidentRows Upload(GuardedMemory& memory) const {
    kernels::ResidentRows rows;
    rows.temperature = static_cast<float*>(memory.VariableTensor(DType::kF32, temperature));
    rows.seed = memory.Variable(seed);
    rows.life = memory.Variable(life);
    rows.sampling = memory.Variable(sampling);
    rows.stop_token = memory.Variable(stop);
    rows.bias = memory.Variable(bias);
    rows.mask = memory.Variable(mask);
    rows.history = memory.Variable(history);
    rows.mask_words = static_cast<uint32_t>(mask_words);
    rows.vocab = static_cast<uint32_t>(vocab);
    return rows;
  }

  size_t vocab, mask_words;
  std::vector<double> temperature;
  std::vector<uint64_t> seed;
  std::vector<kernels::RowLife> life;
  std::vector<RowSampling> sampling;
  std::vector<uint32_t> stop;
  std::vector<kernels::LogitBias> bias;
  std::vector<uint32_t> mask, history;
};

// The step's plan: sampled rows in order, then the rows of prompt tokens that do not sample.
struct Plan {
  std::vector<RowEntry> entries;
  std::vector<uint32_t> before, sampled_entry, place, prompt_entry, prompt_target;
  uint32_t num_logits = 0;  // rows that return them

  void AddSampled(uint32_t slot, const SampleRow& row) {
    sampled_entry.push_back(static_cast<uint32_t>(entries.size()));
    AddEntry(slot, kernels::kRowSample | FeaturesOf(row) << kernels::kRowFeatureShift);
    before.back() = row.position - 1;
    place.push_back(num_logits);
    num_logits += row.return_logits;
  }
  void AddEntry(uint32_t slot, uint32_t flags) {
    RowEntry entry;
    entry.slot = slot;
    entry.num_tokens = 1;
    entry.flags = flags;
    entries.push_back(entry);
    before.push_back(0);
  }
  kernels::StepPlan Upload(GuardedMemory& memory) const {
    kernels::PlanCounts counts{};
    counts.sequence = kSequence;
    counts.num_rows = static_cast<uint32_t>(entries.size());
    counts.num_sampled = static_cast<uint32_t>(sampled_entry.size());
    counts.num_prompt_logprobs = static_cast<uint32_t>(prompt_entry.size());
    counts.num_logits = counts.num_sampled + counts.num_prompt_logprobs;
    kernels::StepPlan plan;
    plan.counts = memory.Variable(std::vector<kernels::PlanCounts>{counts});
    plan.entries = memory.Variable(entries);
    plan.context_before = memory.Variable(before);
    plan.sampled_entry = memory.Variable(sampled_entry);
    plan.logits_place = memory.Variable(place);
    plan.prompt_entry = memory.Variable(prompt_entry);
    plan.prompt_target = memory.Variable(prompt_target);
    return plan;
  }
};

// Where the step's results are, and what nobody was to write: takes what it hands out, the rest
// has to be untouched.
class Results {
 public:
  Results(const runtime::MappedBuffer& ring, const SampleArgs& args)
      : layout_(args.result_layout), bytes_(ring.host(), ring.host() + ring.bytes()) {}

  LogprobReport TakeReport(size_t index, uint32_t num_top) {
    LogprobReport report;
    const size_t at = layout_.reports + index * sizeof(LogprobReport);
    Take(at, &report, sizeof(report));
    // Of the lists only what was asked for is written.
    CheckTail(report, num_top);
    return report;
  }
  std::vector<float> TakeLogits(size_t place, size_t vocab) {
    std::vector<float> logits(vocab);
    Take(layout_.logits + place * vocab * 4, logits.data(), vocab * 4);
    return logits;
  }
  void ExpectNothingElse() const {
    EXPECT_TRUE(std::all_of(bytes_.begin(), bytes_.end(), [](std::byte b) {
      return b == std::byte{0xff};
    })) << "results were written that nobody asked for";
  }

 private:
  void Take(size_t at, void* to, size_t size) {
    std::byte* from = bytes_.data() + layout_.bytes + at;  // entry 1
    std::memcpy(to, from, size);
    std::memset(from, 0xff, size);
  }
  static void CheckTail(const LogprobReport& report, uint32_t num_top) {
    EXPECT_LE(report.num_top, num_top);
    for (uint32_t j = report.num_top; j < kernels::kMaxTopLogprobs; ++j) {
      EXPECT_EQ(report.top_token[j], 0xffffffffu) << "place " << j;
      EXPECT_TRUE(std::isnan(report.top_logprob[j])) << "place " << j;
    }
  }

  const kernels::ResultEntryLayout layout_;
  std::vector<std::byte> bytes_;
};

// What the host would have left on the device. The rows lie in random slots, one of which stays
// empty.
struct Inputs {
  Inputs(const std::vector<SampleRow>& rows, const std::vector<PromptRow>& prompt)
      : num_sampled(static_cast<uint32_t>(rows.size())),
        num_logits(num_sampled + static_cast<uint32_t>(prompt.size())),
        vocab(num_sampled != 0 ? rows[0].logits.size() : prompt[0].logits.size()),
        slot(Random(num_logits).Permutation(num_logits + 1)),
        resident(num_logits + 1, vocab) {
    for (uint32_t s = 0; s < num_sampled; ++s) {
      plan.AddSampled(slot[s], rows[s]);
      resident.Set(slot[s], rows[s]);
      logits.insert(logits.end(), rows[s].logits.begin(), rows[s].logits.end());
    }
    for (const PromptRow& token : prompt) {
      const bool own = token.sampled == PromptRow::kOwnRow;
      num_top.push_back(own ? token.num_logprobs : rows[token.sampled].num_logprobs);
      plan.prompt_entry.push_back(own ? AddOwnRow(token) : token.sampled);
      plan.prompt_target.push_back(token.target);
      logits.insert(logits.end(), token.logits.begin(), token.logits.end());
    }
  }

  // Its entry.
  uint32_t AddOwnRow(const PromptRow& token) {
    const auto entry = static_cast<uint32_t>(plan.entries.size());
    const SampleRow row{.logits = {}, .num_logprobs = token.num_logprobs};
    plan.AddEntry(slot[entry], kernels::kRowPromptLogprobs | FeaturesOf(row)
                                                                 << kernels::kRowFeatureShift);
    resident.Set(slot[entry], row);
    return entry;
  }

  const uint32_t num_sampled, num_logits;
  const size_t vocab;
  const std::vector<uint32_t> slot;
  Resident resident;
  Plan plan;
  std::vector<double> logits;
  std::vector<uint32_t> num_top;  // by prompt token: likeliest ones that it reports
};

// The kernels' view of the inputs, and outputs beside it; the result ring is the caller's.
SampleArgs ArgsOf(const Inputs& in, GuardedMemory& memory) {
  SampleArgs args;
  args.vocab = static_cast<int32_t>(in.vocab);
  args.num_chunks = (args.vocab + kernels::kSampleChunk - 1) / kernels::kSampleChunk;
  const size_t chunks = static_cast<size_t>(args.num_chunks);
  args.logits = static_cast<const float*>(memory.ConstantTensor(DType::kF32, in.logits));
  args.partials = memory.Poisoned<kernels::SamplePartial>(in.num_logits * chunks);
  args.adjusted = memory.Poisoned<float>(in.num_sampled * in.vocab);
  args.adjusted_partials = memory.Poisoned<kernels::SamplePartial>(in.num_sampled * chunks);
  args.cut = memory.Poisoned<SampleCut>(in.num_sampled);
  args.token = memory.Poisoned<uint32_t>(in.num_sampled);
  args.logprob = memory.Poisoned<float>(in.num_sampled);
  args.plan = in.plan.Upload(memory);
  args.rows = in.resident.Upload(memory);
  args.result_layout = kernels::ResultEntryLayout::For(in.plan.entries.size(), in.num_logits,
                                                       in.plan.num_logits, in.vocab);
  args.result_depth = 2;
  return args;
}

SampleOutcomes Read(const std::vector<SampleRow>& rows, const Inputs& in, const SampleArgs& args,
                    GuardedMemory& memory, const runtime::MappedBuffer& ring) {
  const auto token = memory.Read(args.token);
  const auto logprob = memory.Read(args.logprob);
  const auto cut = memory.Read(args.cut);
  const auto adjusted = memory.Read(args.adjusted);
  Results results(ring, args);
  SampleOutcomes outcomes;
  for (size_t s = 0; s < rows.size(); ++s) {
    SampleOutcome& out = outcomes.rows.emplace_back();
    out = {.token = token[s], .logprob = logprob[s], .cut = cut[s]};
    const auto begin = adjusted.begin() + static_cast<std::ptrdiff_t>(s * in.vocab);
    if (rows[s].adjusts())
      out.adjusted.assign(begin, begin + static_cast<std::ptrdiff_t>(in.vocab));
    if (rows[s].num_logprobs != 0) out.report = results.TakeReport(s, rows[s].num_logprobs);
    if (rows[s].return_logits) out.logits = results.TakeLogits(in.plan.place[s], in.vocab);
  }
  for (size_t i = 0; i < in.num_top.size(); ++i)
    outcomes.prompt.push_back(results.TakeReport(rows.size() + i, in.num_top[i]));
  results.ExpectNothingElse();
  return outcomes;
}

}  // namespace

SampleOutcomes RunSample(runtime::Device& device, runtime::Stream& stream,
                         const kernels::KernelSet& kernels, const std::vector<SampleRow>& rows,
                         const std::vector<PromptRow>& prompt) {
  const Inputs in(rows, prompt);
  GuardedMemory memory(device, stream);
  SampleArgs args = ArgsOf(in, memory);
  const auto ring = *runtime::MappedBuffer::Create(device, 2 * args.result_layout.bytes);
  std::memset(ring.host(), 0xff, ring.bytes());
  args.results = reinterpret_cast<unsigned char*>(ring.device());
  const auto num_prompt = static_cast<uint32_t>(prompt.size());
  EXPECT_OK(
      Sample(stream, kernels, args, in.num_sampled + kSpareBlocks, num_prompt + kSpareBlocks));
  memory.Check();
  EXPECT_EQ(memory.Read(args.rows.history), in.resident.history)
      << "sampling itself counts nothing";
  return Read(rows, in, args, memory, ring);
}

}  // namespace reprise::testing
