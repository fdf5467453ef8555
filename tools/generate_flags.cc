// SPDX-License-Identifier: Apache-2.0
#include "tools/generate_flags.h"

#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/step/step_limits.h"
#include "runtime/status_macros.h"
#include "tools/connection_flags.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr uint64_t kMaxToken = std::numeric_limits<uint32_t>::max();

absl::StatusOr<std::vector<uint32_t>> ParseTokens(std::string_view text) {
  REPRISE_ASSIGN_OR_RETURN(const auto values, ParseUnsignedList(text, 0, kMaxToken));
  return std::vector<uint32_t>(values.begin(), values.end());
}

// Each use of the option appends one list of tokens.
CLI::Option* AddTokensOption(CLI::App* app, const std::string& name,
                             std::vector<std::vector<uint32_t>>* lists, const std::string& type,
                             const std::string& description) {
  const auto append = [name, lists](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      auto tokens = ParseTokens(text);
      if (!tokens.ok()) throw OptionError(name, tokens.status());
      lists->push_back(*std::move(tokens));
    }
  };
  return app->add_option_function<std::vector<std::string>>(name, append, description)
      ->type_name(type)
      ->allow_extra_args(false);
}

void AddPromptFileOptions(CLI::App* app, GenerateFlags* flags) {
  AddFileOption(app, "--prompts-file", &flags->prompts_file,
                "A file of prompts: a text in each line, or lines of JSON such as {\"prompt\": "
                "\"You may\", \"max_new_tokens\": 20} or {\"tokens\": [1, 2]}; -: stdin");
  AddFileOption(app, "--prompt-tokens-file", &flags->prompt_tokens_file,
                "Likewise, with ID,ID,... in each line that is no JSON");
}

void AddPromptOptions(CLI::App* app, WorkloadOptions* workload) {
  app->add_option("--prompt", workload->texts,
                  "Text to go on from, for models whose tokens are bytes: others need their own "
                  "tokenizer, and get --prompt-tokens. May be given several times")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  AddTokensOption(app, "--prompt-tokens", &workload->token_prompts, "ID,ID,...",
                  "Token ids to go on from; may be given several times");
  app->add_option_function<std::string>(
         "--random-prompts,--prompt-lengths",
         [workload](const std::string& text) {
           auto lengths = ParsePromptLengths(text);
           if (!lengths.ok()) throw OptionError("--random-prompts", lengths.status());
           workload->prompt_lengths = *std::move(lengths);
           workload->random_prompts = true;
         },
         "Random prompts of so many tokens: 128,512 in turn, or 64..8192 log-uniform")
      ->type_name("N,N|MIN..MAX");
}

auto DecimalIn(double min, double max) {
  return [min, max](std::string_view text) { return ParseDecimal(text, min, max); };
}

void AddTruncationOptions(CLI::App* app, engine::SamplingParams* sampling) {
  AddOption(
      app, "--top-k", &sampling->top_k,
      [](std::string_view text) { return ParseUnsigned(text, 0, kMaxToken); }, "K", "0",
      "Sample from the K likeliest tokens; 0: all");
  AddOption(app, "--top-p", &sampling->top_p, DecimalIn(1e-6, 1.0), "P", "1",
            "Sample from the fewest tokens that hold this share of the mass");
  AddOption(app, "--min-p", &sampling->min_p, DecimalIn(0.0, 1.0), "P", "0",
            "Leave out tokens less than P times as likely as the likeliest");
}

// "ID:NUMBER".
absl::Status ParseBias(const std::string& text, std::vector<engine::TokenBias>* biases) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("logit bias: got \"", text, "\", allowed: ID:NUMBER, such as 42:-1.5"));
  }
  const std::string_view view(text);
  REPRISE_ASSIGN_OR_RETURN(const uint64_t token,
                           ParseUnsigned(view.substr(0, colon), 0, kMaxToken));
  REPRISE_ASSIGN_OR_RETURN(const double bias, ParseDecimal(view.substr(colon + 1), -1e6, 1e6));
  biases->push_back({.token = static_cast<uint32_t>(token), .bias = static_cast<float>(bias)});
  return absl::OkStatus();
}

void AddAdjustmentOptions(CLI::App* app, engine::SamplingParams* sampling) {
  AddOption(app, "--repetition-penalty", &sampling->repetition_penalty, DecimalIn(0.01, 100.0), "R",
            "1", "Divides positive logits, multiplies others, of tokens that came before");
  AddOption(app, "--presence-penalty", &sampling->presence_penalty, DecimalIn(-100.0, 100.0), "P",
            "0", "Taken off the logits of tokens that were generated");
  AddOption(app, "--frequency-penalty", &sampling->frequency_penalty, DecimalIn(-100.0, 100.0), "F",
            "0", "Taken off per time that the token was generated");
}

void AddBiasOption(CLI::App* app, std::vector<engine::TokenBias>* biases) {
  app->add_option_function<std::vector<std::string>>(
         "--logit-bias",
         [biases](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) {
             const absl::Status status = ParseBias(text, biases);
             if (!status.ok()) throw OptionError("--logit-bias", status);
           }
         },
         "Added to a token's logit; may be given several times")
      ->type_name("ID:NUMBER")
      ->allow_extra_args(false);
}

void AddSamplingOptions(CLI::App* app, WorkloadOptions* workload) {
  AddOption(
      app, "--max-new-tokens", &workload->max_new_tokens,
      [](std::string_view text) { return ParseUnsigned(text, 1, 1u << 30); }, "N", "128",
      "Tokens to generate at most, per prompt");
  AddOption(
      app, "--temperature", &workload->sampling.numbers.temperature,
      [](std::string_view text) { return ParseDecimal(text, 0.0, 100.0); }, "T", "0",
      "0: always the likeliest token");
  AddTruncationOptions(app, &workload->sampling.numbers);
  AddAdjustmentOptions(app, &workload->sampling.numbers);
  AddBiasOption(app, &workload->sampling.logit_bias);
  AddOption(
      app, "--logprobs", &workload->sampling.numbers.num_logprobs,
      [](std::string_view text) { return ParseUnsigned(text, 0, 32); }, "N", "0",
      "With each token, show its rank and the N likeliest, and put them into --json");
  AddOption(
      app, "--seed", &workload->seed,
      [](std::string_view text) {
        return ParseUnsigned(text, 0, std::numeric_limits<uint64_t>::max());
      },
      "N", "1", "Seed of sampling, random prompts and arrivals; prompt i samples with seed + i");
  app->add_option_function<std::vector<std::string>>(
         "--stop",
         [workload](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) {
             if (!text.empty()) continue;
             throw OptionError("--stop", absl::InvalidArgumentError(
                                             "got \"\", allowed: a text of at least one byte"));
           }
           workload->stop_texts = texts;
         },
         "End after this text, for byte-level models; may be given several times")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  AddTokensOption(app, "--stop-tokens", &workload->stop_sequences, "ID,ID,...",
                  "End after this sequence of tokens; may be given several times");
  app->add_option_function<std::vector<std::string>>(
         "--stop-token",
         [workload](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) {
             const auto token = ParseUnsigned(text, 0, kMaxToken);
             if (!token.ok()) throw OptionError("--stop-token", token.status());
             workload->sampling.stop_tokens.push_back(static_cast<uint32_t>(*token));
           }
         },
         "Token id at which rows stop by themselves, on the device; may be given several times")
      ->type_name("ID")
      ->allow_extra_args(false);
  app->add_flag("--ignore-eos", workload->ignore_eos, "Go on after the model's end-of-text tokens");
}

}  // namespace

void AddGenerateOptions(CLI::App* app, GenerateFlags* flags) {
  AddPromptOptions(app, &flags->workload);
  AddPromptFileOptions(app, flags);
  NameOptionGroup(app, "Prompts");
  AddSamplingOptions(app, &flags->workload);
  NameOptionGroup(app, "Generation");
  app->add_flag("--eager", flags->eager, "Launch kernel by kernel instead of replaying graphs");
  AddOption(
      app, "--steps-per-request", &flags->steps_per_request,
      [](std::string_view text) { return ParseUnsigned(text, 1, kernels::kMaxStepsPerRequest); },
      "K", "1",
      "Decode steps that one request runs, one after another on the device: tokens come K at a "
      "time, for less work of the host");
  app->add_flag("--quiet", flags->quiet, "Print the tables, not the text");
  AddOption(
      app, "--warmup", &flags->warmup_steps,
      [](std::string_view text) { return ParseUnsigned(text, 0, 1u << 30); }, "STEPS", "0",
      "Decode steps left out of the figures");
  app->add_option("--json", flags->json_file,
                  "Write figures and tokens to this file too; -: to stdout, and text to stderr")
      ->type_name("FILE");
  AddFileOption(app, "--json-lines", &flags->json_lines_file,
                "Write a line of JSON for each request when it has finished: prompt, tokens, text, "
                "why it ended, times; -: to stdout, and text to stderr");
  NameOptionGroup(app, "Measuring");
}

absl::Status CheckGenerateFlags(const GenerateFlags& flags, int others,
                                const std::string& allowed) {
  const WorkloadOptions& workload = flags.workload;
  const int sources = others + static_cast<int>(!workload.texts.empty()) +
                      static_cast<int>(!workload.token_prompts.empty()) +
                      static_cast<int>(!flags.prompts_file.empty()) +
                      static_cast<int>(!flags.prompt_tokens_file.empty()) +
                      static_cast<int>(workload.random_prompts);
  if (sources != 1) {
    return UsageError(absl::StrCat("prompts: got ", sources == 0 ? "none" : "several kinds",
                                   ", allowed: one of ", allowed));
  }
  return absl::OkStatus();
}

absl::StatusOr<WorkloadOptions> ReadWorkload(const GenerateFlags& flags) {
  WorkloadOptions workload = flags.workload;
  if (!flags.prompts_file.empty()) {
    REPRISE_ASSIGN_OR_RETURN(workload.file_prompts,
                             ReadPromptsFile(flags.prompts_file, PlainLines::kText));
  } else if (!flags.prompt_tokens_file.empty()) {
    REPRISE_ASSIGN_OR_RETURN(workload.file_prompts,
                             ReadPromptsFile(flags.prompt_tokens_file, PlainLines::kTokens));
  }
  return workload;
}

bool ShowsText(const GenerateFlags& flags) {
  return !flags.quiet && !flags.workload.random_prompts;
}

}  // namespace reprise::tools
