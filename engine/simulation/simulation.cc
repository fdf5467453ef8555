// SPDX-License-Identifier: Apache-2.0
#include "engine/simulation/simulation.h"

#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "runtime/host/spin_wait.h"

namespace reprise::engine {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// What a sleeping thread may be late by: slept less, and waited for with the clock in hand.
constexpr nanoseconds kSleepSlack = std::chrono::microseconds(100);

void SleepUntil(uint64_t begin_ns, uint64_t ns) {
  const steady_clock::time_point end(nanoseconds(begin_ns + ns));
  if (steady_clock::now() < end - kSleepSlack) std::this_thread::sleep_until(end - kSleepSlack);
  // Not by yielding: on a busy machine the thread would come back milliseconds later.
  while (steady_clock::now() < end) runtime::CpuRelax();
}

// Whether all that the step's rows want of their logits is a token.
bool WantsTokensAlone(const kernels::StepPlan& plan) {
  if (plan.counts->num_prompt_logprobs != 0) return false;
  for (uint32_t s = 0; s < plan.counts->num_sampled; ++s) {
    const uint32_t features =
        plan.entries[plan.sampled_entry[s]].flags >> kernels::kRowFeatureShift;
    if ((features & ~uint32_t{kernels::kFeatureStop}) != 0) return false;
  }
  return true;
}

}  // namespace

// SplitMix64's finaliser (Steele et al. 2014).
uint32_t MadeUpToken(uint32_t token, uint32_t position, uint32_t vocab) {
  uint64_t x = (uint64_t{token} << 32 | position) + 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return static_cast<uint32_t>((x ^ x >> 31) % vocab);
}

StepLoad LoadOf(const kernels::StepPlan& plan, const models::ModelSpec& model) {
  StepLoad load = {.tokens = plan.counts->num_tokens};
  double kv_tokens = 0, chunk_kv_tokens = 0, chunk_pairs = 0;
  for (uint32_t e = 0; e < plan.counts->num_rows; ++e) {
    const uint32_t tokens = plan.query_start[e + 1] - plan.query_start[e];
    if (tokens == 0) continue;  // stopped, or without room
    const auto context = static_cast<double>(uint64_t{plan.context_before[e]} + tokens);
    const double visible = model.MeanVisible(context, tokens);
    kv_tokens += visible;
    if (tokens == 1) continue;
    ++load.chunk_rows;
    load.chunk_tokens += tokens;
    chunk_kv_tokens += visible;
    chunk_pairs += ChunkPairs(tokens, visible - tokens);
  }
  load.kv_tokens = static_cast<uint64_t>(std::llround(kv_tokens));
  load.chunk_kv_tokens = static_cast<uint64_t>(std::llround(chunk_kv_tokens));
  load.chunk_pairs = static_cast<uint64_t>(std::llround(chunk_pairs));
  return load;
}

SimulatedDecoder::SimulatedDecoder(const Simulation& simulation, const StepState& state,
                                   const models::ModelSpec& model, float* logits,
                                   uint32_t max_logits)
    : simulation_(simulation),
      state_(state),
      model_(model),
      logits_(logits),
      vocab_(static_cast<uint32_t>(model.vocab_size)),
      peaks_(max_logits) {}

absl::Status SimulatedDecoder::EnqueueTokens(runtime::Stream& stream) {
  return stream.EnqueueHost([this] { MakeUpTokens(); });
}

absl::Status SimulatedDecoder::EnqueueWait(runtime::Stream& stream) {
  return stream.EnqueueHost([this] { Wait(); });
}

uint32_t SimulatedDecoder::TokenOf(uint32_t logits_row) const {
  const kernels::StepPlan& plan = state_.plan;
  const uint32_t t = plan.sampled_token[logits_row];
  return MadeUpToken(plan.token_id[t], plan.token_position[t], vocab_);
}

void SimulatedDecoder::MakeUpTokens() {
  kernels::PlanCounts& counts = *state_.plan.counts;
  if (counts.sequence == 0) return;  // an idle replay
  skips_sampling_ = WantsTokensAlone(state_.plan);
  if (!skips_sampling_) return MakeUpLogits();
  for (uint32_t s = 0; s < counts.num_sampled; ++s) {
    state_.sampled_token_id[s] = TokenOf(s);
    state_.sampled_logprob[s] = 0.0f;  // as kPeak makes it
  }
  num_sampled_ = std::exchange(counts.num_sampled, 0);
}

void SimulatedDecoder::MakeUpLogits() {
  for (uint32_t i = 0; i < state_.plan.counts->num_logits; ++i) {
    float* const row = logits_ + uint64_t{i} * vocab_;
    row[peaks_[i]] = 0.0f;
    peaks_[i] = TokenOf(i);
    row[peaks_[i]] = kPeak;
  }
}

void SimulatedDecoder::Wait() {
  kernels::PlanCounts& counts = *state_.plan.counts;
  if (counts.sequence == 0) return;
  if (skips_sampling_) counts.num_sampled = num_sampled_;
  const uint64_t ns = simulation_.cost.TimeNs(LoadOf(state_.plan, model_));
  simulation_.wait ? simulation_.wait(counts.begin_ns, ns) : SleepUntil(counts.begin_ns, ns);
}

}  // namespace reprise::engine
