// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/sample_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "runtime/buffer.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/number.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::LogprobReport;
using kernels::SampleArgs;
using runtime::DType;

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

kernels::RowSampling SamplingOf(const SampleRow& row) {
  kernels::RowSampling s;
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

// The plan and the resident rows of a step, as the host fills them. What belongs to no row is
// poisoned.
struct Inputs {
  explicit Inputs(const std::vector<SampleRow>& rows);
  // Fills in what row `s` of the step brings.
  void Add(uint32_t s, const SampleRow& row);

  const uint32_t num_rows, max_rows;
  const size_t vocab, mask_words;
  const std::vector<uint32_t> slot;  // by row
  // By row of the step.
  std::vector<kernels::RowEntry> entries;
  std::vector<uint32_t> before, sampled_entry, place;
  std::vector<double> logits;
  uint32_t num_logits = 0;
  // By slot.
  std::vector<double> temperature;
  std::vector<uint64_t> seed;
  std::vector<kernels::RowLife> life;
  std::vector<kernels::RowSampling> sampling;
  std::vector<uint32_t> stop, mask, history;
  std::vector<kernels::LogitBias> bias;
};

Inputs::Inputs(const std::vector<SampleRow>& rows)
    : num_rows(static_cast<uint32_t>(rows.size())),
      max_rows(num_rows + 1),
      vocab(rows[0].logits.size()),
      mask_words((vocab + 31) / 32),
      slot(Random(num_rows).Permutation(max_rows)),
      entries(num_rows),
      before(num_rows),
      sampled_entry(num_rows),
      place(num_rows),
      temperature(max_rows, NAN),
      seed(max_rows, ~uint64_t{0}),
      life(max_rows),
      sampling(max_rows),
      stop(max_rows * 64, 0xffffffffu),
      mask(max_rows * mask_words, 0),
      history(max_rows * vocab, 0xffffffffu),
      bias(max_rows * kernels::kMaxLogitBias) {
  for (uint32_t s = 0; s < num_rows; ++s) Add(s, rows[s]);
}

void Inputs::Add(uint32_t s, const SampleRow& row) {
  const uint32_t at = slot[s];
  entries[s].slot = at;
  entries[s].num_tokens = 1;
  entries[s].flags = kernels::kRowSample | FeaturesOf(row) << kernels::kRowFeatureShift;
  before[s] = row.position - 1;
  sampled_entry[s] = s;
  place[s] = num_logits;
  num_logits += row.return_logits;
  temperature[at] = row.temperature;
  seed[at] = row.seed;
  life[at] = {FeaturesOf(row), row.generated, 0, 0};
  sampling[at] = SamplingOf(row);
  std::copy(row.stop.begin(), row.stop.end(), stop.begin() + at * 64);
  size_t j = at * kernels::kMaxLogitBias;
  for (const auto& [token, value] : row.bias) bias[j++] = {token, static_cast<float>(value)};
  for (size_t t = 0; t < row.allowed.size(); ++t)
    if (row.allowed[t]) mask[at * mask_words + t / 32] |= 1u << t % 32;
  std::fill_n(history.begin() + static_cast<std::ptrdiff_t>(at * vocab), vocab, 0);
  for (const uint32_t t : row.prompt) history[at * vocab + t] |= kernels::kHistoryPrompt;
  for (const auto& [token, count] : row.sampled) history[at * vocab + token] += count;
  logits.insert(logits.end(), row.logits.begin(), row.logits.end());
}

// The kernels' view of the inputs, and outputs beside it; the result ring is the caller's.
SampleArgs ArgsOf(const Inputs& in, GuardedMemory& memory) {
  const size_t n = in.num_rows;
  kernels::PlanCounts counts{};
  counts.sequence = 8;  // slot 1 of 2
  counts.num_rows = counts.num_sampled = counts.num_logits = in.num_rows;
  SampleArgs args;
  args.vocab = static_cast<int32_t>(in.vocab);
  args.num_chunks = (args.vocab + kernels::kSampleChunk - 1) / kernels::kSampleChunk;
  const size_t chunks = n * static_cast<size_t>(args.num_chunks);
  args.logits = static_cast<const float*>(memory.ConstantTensor(DType::kF32, in.logits));
  args.partials = memory.Poisoned<kernels::SamplePartial>(chunks);
  args.adjusted = memory.Poisoned<float>(n * in.vocab);
  args.adjusted_partials = memory.Poisoned<kernels::SamplePartial>(chunks);
  args.cut = memory.Poisoned<kernels::SampleCut>(n);
  args.token = memory.Poisoned<uint32_t>(n);
  args.logprob = memory.Poisoned<float>(n);
  args.plan.counts = memory.Variable(std::vector<kernels::PlanCounts>{counts});
  args.plan.entries = memory.Variable(in.entries);
  args.plan.context_before = memory.Variable(in.before);
  args.plan.sampled_entry = memory.Variable(in.sampled_entry);
  args.plan.logits_place = memory.Variable(in.place);
  args.rows.temperature = static_cast<float*>(memory.VariableTensor(DType::kF32, in.temperature));
  args.rows.seed = memory.Variable(in.seed);
  args.rows.life = memory.Variable(in.life);
  args.rows.sampling = memory.Variable(in.sampling);
  args.rows.stop_token = memory.Variable(in.stop);
  args.rows.bias = memory.Variable(in.bias);
  args.rows.mask = memory.Variable(in.mask);
  args.rows.history = memory.Variable(in.history);
  args.rows.mask_words = static_cast<uint32_t>(in.mask_words);
  args.rows.vocab = static_cast<uint32_t>(in.vocab);
  args.result_layout = kernels::ResultSlotLayout::For(n, n, in.num_logits, in.vocab);
  args.result_depth = 2;
  return args;
}

// `result`: the step's slot of the result ring.
std::vector<SampleOutcome> Read(const std::vector<SampleRow>& rows, const Inputs& in,
                                const SampleArgs& args, GuardedMemory& memory,
                                const std::byte* result) {
  const auto token = memory.Read(args.token);
  const auto logprob = memory.Read(args.logprob);
  const auto cut = memory.Read(args.cut);
  const auto adjusted = memory.Read(args.adjusted);
  std::vector<SampleOutcome> outcomes(rows.size());
  for (size_t s = 0; s < rows.size(); ++s) {
    SampleOutcome& out = outcomes[s];
    out = {.token = token[s], .logprob = logprob[s], .cut = cut[s]};
    const auto begin = adjusted.begin() + static_cast<std::ptrdiff_t>(s * in.vocab);
    if (rows[s].adjusts())
      out.adjusted.assign(begin, begin + static_cast<std::ptrdiff_t>(in.vocab));
    if (rows[s].num_logprobs != 0)
      std::memcpy(&out.report, result + args.result_layout.reports + s * sizeof(LogprobReport),
                  sizeof(LogprobReport));
    if (rows[s].return_logits) {
      out.logits.resize(in.vocab);
      std::memcpy(out.logits.data(),
                  result + args.result_layout.logits + in.place[s] * in.vocab * 4, in.vocab * 4);
    }
  }
  return outcomes;
}

}  // namespace

std::vector<SampleOutcome> RunSample(runtime::Device& device, runtime::Stream& stream,
                                     const kernels::KernelSet& kernels,
                                     const std::vector<SampleRow>& rows) {
  const Inputs in(rows);
  GuardedMemory memory(device, stream);
  SampleArgs args = ArgsOf(in, memory);
  auto ring = *runtime::MappedBuffer::Create(device, 2 * args.result_layout.bytes);
  std::memset(ring.host(), 0xff, ring.bytes());
  args.results = reinterpret_cast<unsigned char*>(ring.device());
  EXPECT_OK(Sample(stream, kernels, args, in.num_rows + 2));
  memory.Check();
  EXPECT_EQ(memory.Read(args.rows.history), in.history) << "sampling itself counts nothing";
  return Read(rows, in, args, memory, ring.host() + args.result_layout.bytes);
}

}  // namespace reprise::testing
