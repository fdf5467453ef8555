// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/workload.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "tools/byte_text.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr uint32_t kMaxPromptTokens = 1u << 24;

uint32_t PromptLength(const PromptLengths& lengths, uint32_t index, Random* random) {
  if (!lengths.fixed.empty()) return lengths.fixed[index % lengths.fixed.size()];
  const double low = std::log(lengths.min);
  const double high = std::log(lengths.max);
  const double length = std::round(std::exp(low + (high - low) * random->Uniform()));
  return std::clamp(static_cast<uint32_t>(length), lengths.min, lengths.max);
}

std::vector<uint32_t> RandomPrompt(uint32_t length, uint32_t vocab_size, Random* random) {
  std::vector<uint32_t> tokens(length);
  for (uint32_t& token : tokens) token = static_cast<uint32_t>(random->Below(vocab_size));
  return tokens;
}

// A prompt that is not random.
struct FixedPrompt {
  std::vector<uint32_t> tokens;
  uint32_t max_new_tokens = 0;  // 0: the workload's
};

FixedPrompt FixedPromptOf(const FilePrompt& from) {
  if (from.is_text())
    return {TokensOfText(std::get<std::string>(from.prompt)), from.max_new_tokens};
  return {std::get<std::vector<uint32_t>>(from.prompt), from.max_new_tokens};
}

absl::StatusOr<std::vector<FixedPrompt>> FixedPrompts(const WorkloadOptions& options) {
  std::vector<FixedPrompt> prompts;
  for (const auto& tokens : options.token_prompts) prompts.push_back({.tokens = tokens});
  for (const FilePrompt& prompt : options.file_prompts) prompts.push_back(FixedPromptOf(prompt));
  for (const std::string& text : options.texts) prompts.push_back({.tokens = TokensOfText(text)});
  if (prompts.empty())
    return absl::InvalidArgumentError("prompts: got none, allowed: at least one");
  return prompts;
}

bool HasText(const WorkloadOptions& options) {
  return !options.texts.empty() || !options.stop_texts.empty() ||
         std::any_of(options.file_prompts.begin(), options.file_prompts.end(),
                     [](const FilePrompt& prompt) { return prompt.is_text(); });
}

std::vector<std::vector<uint32_t>> StopSequences(const WorkloadOptions& options,
                                                 const ServerInfo& server) {
  std::vector<std::vector<uint32_t>> sequences = options.stop_sequences;
  for (const std::string& text : options.stop_texts) sequences.push_back(TokensOfText(text));
  if (!options.ignore_eos) {
    for (uint32_t token : server.eos_token_ids) sequences.push_back({token});
  }
  return sequences;
}

double NextGapSeconds(const WorkloadOptions& options, Random* random) {
  switch (options.arrivals) {
    case Arrivals::kTogether:
      return 0.0;
    case Arrivals::kFixed:
      return 1.0 / options.rate;
    case Arrivals::kPoisson:
      return -std::log(1.0 - random->Uniform()) / options.rate;
  }
  return 0.0;
}

}  // namespace

// SplitMix64. Source: Steele, Lea and Flood 2014.
uint64_t Random::Next() {
  state_ += 0x9E3779B97F4A7C15u;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

double Random::Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

uint64_t Random::Below(uint64_t bound) { return Next() % bound; }

absl::StatusOr<PromptLengths> ParsePromptLengths(std::string_view text) {
  PromptLengths lengths;
  const size_t dots = text.find("..");
  if (dots == text.npos) {
    REPRISE_ASSIGN_OR_RETURN(const auto values, ParseUnsignedList(text, 1, kMaxPromptTokens));
    lengths.fixed.assign(values.begin(), values.end());
    return lengths;
  }
  REPRISE_ASSIGN_OR_RETURN(const uint64_t min,
                           ParseUnsigned(text.substr(0, dots), 1, kMaxPromptTokens));
  REPRISE_ASSIGN_OR_RETURN(const uint64_t max,
                           ParseUnsigned(text.substr(dots + 2), min, kMaxPromptTokens));
  lengths.min = static_cast<uint32_t>(min);
  lengths.max = static_cast<uint32_t>(max);
  return lengths;
}

namespace {

// What requests of one workload have in common.
void FillRequest(const WorkloadOptions& options,
                 const std::vector<std::vector<uint32_t>>& stop_sequences, uint32_t index,
                 Request* request) {
  request->id = index + 1;
  request->prompt_index = index;
  request->max_new_tokens = options.max_new_tokens;
  request->stop_sequences = stop_sequences;
  request->sampling = options.sampling;
  request->sampling.numbers.seed = options.seed + index;
  const std::vector<int32_t>& priorities = options.priorities;
  if (!priorities.empty()) request->priority = priorities[index % priorities.size()];
}

absl::StatusOr<std::vector<Request>> MakeTracedWorkload(const WorkloadOptions& options,
                                                        const ServerInfo& server) {
  const size_t most = options.trace.size();
  if (options.num_requests > most) {
    return absl::InvalidArgumentError(absl::StrCat("requests: got ", options.num_requests,
                                                   ", allowed: at most the ", most,
                                                   " of the arrival trace"));
  }
  Random random(options.seed);
  const auto stop_sequences = StopSequences(options, server);
  std::vector<Request> requests(options.num_requests == 0 ? most : options.num_requests);
  for (uint32_t i = 0; i < requests.size(); ++i) {
    const TracedRequest& traced = options.trace[i];
    FillRequest(options, stop_sequences, i, &requests[i]);
    requests[i].prompt = RandomPrompt(traced.prompt_tokens, server.limits.vocab_size, &random);
    requests[i].max_new_tokens = traced.new_tokens;
    requests[i].arrival_ns = traced.arrival_ns;
    requests[i].priority = traced.priority;
  }
  return requests;
}

}  // namespace

absl::StatusOr<std::vector<Request>> MakeWorkload(const WorkloadOptions& options,
                                                  const ServerInfo& server) {
  if (HasText(options) && !server.byte_tokens) {
    return absl::InvalidArgumentError(
        "text: this model's tokens need its own tokenizer; allowed: text for byte-level models, "
        "and token ids or random prompts for this one");
  }
  if (!options.trace.empty()) return MakeTracedWorkload(options, server);
  std::vector<FixedPrompt> prompts;
  if (!options.random_prompts) {
    REPRISE_ASSIGN_OR_RETURN(prompts, FixedPrompts(options));
  }
  // Two streams, so that lengths do not change when arrivals do.
  Random prompt_random(options.seed);
  Random arrival_random(options.seed ^ 0xA5A5A5A5A5A5A5A5u);
  const auto num_prompts = static_cast<uint32_t>(
      options.random_prompts ? std::max<size_t>(1, options.prompt_lengths.fixed.size())
                             : prompts.size());
  const uint32_t count = options.num_requests == 0 ? num_prompts : options.num_requests;
  const auto stop_sequences = StopSequences(options, server);

  std::vector<Request> requests(count);
  double arrival_s = 0;
  for (uint32_t i = 0; i < count; ++i) {
    Request& request = requests[i];
    FillRequest(options, stop_sequences, i, &request);
    if (options.random_prompts) {
      const uint32_t length = PromptLength(options.prompt_lengths, i, &prompt_random);
      request.prompt = RandomPrompt(length, server.limits.vocab_size, &prompt_random);
    } else {
      const FixedPrompt& prompt = prompts[i % num_prompts];
      request.prompt_index = i % num_prompts;
      request.prompt = prompt.tokens;
      if (prompt.max_new_tokens != 0) request.max_new_tokens = prompt.max_new_tokens;
    }
    // The first request opens the run.
    if (i > 0) arrival_s += NextGapSeconds(options, &arrival_random);
    request.arrival_ns = static_cast<uint64_t>(arrival_s * 1e9);
  }
  return requests;
}

std::vector<std::string> DemoPrompts() {
  return {
      "This program is free software; you can redistribute it",
      "Everyone is permitted to copy and distribute verbatim copies",
      "THERE IS NO WARRANTY FOR THE PROGRAM",
      "Licensed under the Apache License",
      // Long enough to be prefilled in chunks, while the others decode.
      "    This program is free software; you can redistribute it and/or modify\n"
      "    it under the terms of the GNU General Public License as published by\n"
      "    the Free Software Foundation; either version 2 of the License, or\n"
      "    (at your option) any later version.\n",
      "                    GNU GENERAL PUBLIC LICENSE\n",
      "Redistribution and use in source and binary forms",
      "You may copy and distribute",
      "The purpose of this License is",
      "To protect your rights, we need to",
      "This License applies to any",
      "The \"Program\", below, refers to",
      "THE SOFTWARE IS PROVIDED",
  };
}

}  // namespace reprise::tools
