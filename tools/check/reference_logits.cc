// SPDX-License-Identifier: Apache-2.0
#include "tools/check/reference_logits.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/step_draft.h"
#include "models/config/json_input.h"
#include "models/weights/file_input.h"
#include "models/weights/safetensors.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

using models::Json;
using models::JsonFields;

constexpr size_t kMaxFileBytes = size_t{64} << 20;
constexpr uint32_t kRow = 1;

absl::StatusOr<std::vector<uint32_t>> ReadTokens(const JsonFields& fields, int64_t vocab_size) {
  const std::string allowed =
      absl::StrCat("a list of one or more token ids from 0 to ", vocab_size - 1);
  const Json* list = fields.Find("tokens");
  if (list == nullptr || !list->is_array() || list->empty())
    return fields.Refuse("tokens", allowed);
  std::vector<uint32_t> tokens;
  for (const Json& id : *list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(vocab_size))
      return fields.Refuse("tokens", allowed);
    tokens.push_back(id.get<uint32_t>());
  }
  return tokens;
}

absl::StatusOr<std::vector<std::vector<float>>> ReadRows(const models::SafetensorsFile& file,
                                                         const std::string& name, size_t rows,
                                                         size_t vocab) {
  const auto found = file.tensors().find(name);
  if (found == file.tensors().end())
    return absl::NotFoundError(absl::StrCat(file.path(), ": tensor '", name, "': missing"));
  const models::TensorView& view = found->second;
  const std::vector<int64_t> shape = {static_cast<int64_t>(rows), static_cast<int64_t>(vocab)};
  if (!view.is_float() || view.dtype != runtime::DType::kF32 || view.shape != shape)
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": tensor '", name, "': got ", models::ElementName(view), " [",
                     absl::StrJoin(view.shape, ", "), "], allowed f32 [", rows, ", ", vocab, "]"));
  std::vector<std::vector<float>> logits(rows, std::vector<float>(vocab));
  for (size_t r = 0; r < rows; ++r)
    std::memcpy(logits[r].data(), view.data.data() + r * vocab * sizeof(float),
                vocab * sizeof(float));
  return logits;
}

absl::StatusOr<ReferencePrompt> ReadPrompt(const JsonFields& fields,
                                           const models::SafetensorsFile& file, int64_t vocab_size,
                                           int64_t max_context_length) {
  ReferencePrompt prompt;
  REPRISE_ASSIGN_OR_RETURN(prompt.tokens, ReadTokens(fields, vocab_size));
  const auto length = static_cast<int64_t>(prompt.tokens.size());
  if (length > max_context_length)
    return fields.Refuse(
        "tokens", absl::StrCat("at most ", max_context_length, " tokens, the model's context"));
  REPRISE_ASSIGN_OR_RETURN(const int64_t first, fields.Integer("first_position", 0, length - 1));
  prompt.first_position = static_cast<uint32_t>(first);
  REPRISE_ASSIGN_OR_RETURN(const std::string tensor, fields.StringOr("logits", ""));
  if (tensor.empty()) return fields.Refuse("logits", "the name of a tensor");
  REPRISE_ASSIGN_OR_RETURN(
      prompt.logits,
      ReadRows(file, tensor, static_cast<size_t>(length - first), static_cast<size_t>(vocab_size)));
  return prompt;
}

// A row's life in a session that ends with it.
class PromptRun {
 public:
  PromptRun(engine::DecodeEngine& engine, uint32_t length)
      : engine_(engine), session_(engine.OpenSession()), length_(length) {}
  ~PromptRun() { engine_.CloseSession(session_.id).IgnoreError(); }
  PromptRun(const PromptRun&) = delete;
  PromptRun& operator=(const PromptRun&) = delete;

  // Runs tokens; with `sample` the logits behind the last of them are in logits().
  absl::Status Run(std::span<const uint32_t> tokens, bool sample) {
    engine::StepDraft draft;
    if (sequence_ == 0) REPRISE_RETURN_IF_ERROR(Add(&draft));
    draft.chunks.push_back(
        {.row = kRow, .tokens = {tokens.begin(), tokens.end()}, .sample = sample});
    const engine::DraftView view(draft, session_, ++sequence_);
    return engine_.Step(view.request(), &result_);
  }
  const std::vector<float>& logits() const { return result_.logits; }

 private:
  absl::Status Add(engine::StepDraft* draft) {
    const uint32_t block_size = engine_.info().limits.block_size;
    REPRISE_ASSIGN_OR_RETURN(
        std::vector<uint32_t> blocks,
        engine_.AllocateBlocks(session_.id, (length_ + block_size - 1) / block_size));
    draft->add.push_back(
        {.row = kRow, .blocks = std::move(blocks), .sampling = {.return_logits = true}});
    return absl::OkStatus();
  }

  engine::DecodeEngine& engine_;
  const engine::SessionInfo session_;
  const uint32_t length_;
  uint64_t sequence_ = 0;
  engine::StepResult result_;
};

size_t LikeliestOf(const std::vector<float>& logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Sums over all rows that it is shown.
class Differences {
 public:
  void Add(const std::vector<float>& got, const std::vector<float>& want) {
    for (size_t i = 0; i < want.size(); ++i) {
      const double difference = double{got[i]} - want[i];
      difference_ += difference * difference;
      reference_ += double{want[i]} * want[i];
      // NaN is larger than all.
      if (!(std::fabs(difference) <= of_.largest)) of_.largest = std::fabs(difference);
    }
    ++of_.positions;
    of_.same_token += LikeliestOf(got) == LikeliestOf(want) ? 1 : 0;
  }
  LogitsDifference Finish() const {
    LogitsDifference all = of_;
    all.relative = difference_ == 0.0 ? 0.0 : std::sqrt(difference_ / reference_);
    return all;
  }

 private:
  LogitsDifference of_;
  double difference_ = 0.0, reference_ = 0.0;
};

absl::Status ComparePrompt(engine::DecodeEngine& engine, const ReferencePrompt& prompt,
                           uint32_t chunk_tokens, Differences& differences) {
  const std::span<const uint32_t> tokens(prompt.tokens);
  PromptRun run(engine, static_cast<uint32_t>(tokens.size()));
  const size_t behind_first = size_t{prompt.first_position} + 1;
  for (size_t done = 0; done < behind_first;) {
    const size_t count = std::min<size_t>(chunk_tokens, behind_first - done);
    REPRISE_RETURN_IF_ERROR(run.Run(tokens.subspan(done, count), done + count == behind_first));
    done += count;
  }
  differences.Add(run.logits(), prompt.logits[0]);
  for (size_t position = behind_first; position < tokens.size(); ++position) {
    REPRISE_RETURN_IF_ERROR(run.Run(tokens.subspan(position, 1), true));
    differences.Add(run.logits(), prompt.logits[position - prompt.first_position]);
  }
  return absl::OkStatus();
}

}  // namespace

uint32_t ReferenceLogits::max_length() const {
  size_t most = 0;
  for (const ReferencePrompt& prompt : prompts) most = std::max(most, prompt.tokens.size());
  return static_cast<uint32_t>(most);
}

absl::StatusOr<ReferenceLogits> ReadReferenceLogits(const std::string& path, int64_t vocab_size,
                                                    int64_t max_context_length) {
  REPRISE_ASSIGN_OR_RETURN(const std::string text, models::ReadFile(path, kMaxFileBytes));
  REPRISE_ASSIGN_OR_RETURN(const Json json, models::ParseJsonObject(text, path));
  const JsonFields fields(json, path + ": ");
  ReferenceLogits reference;
  REPRISE_ASSIGN_OR_RETURN(reference.vocab_size,
                           fields.Integer("vocab_size", vocab_size, vocab_size));
  const Json* prompts = fields.Find("prompts");
  if (prompts == nullptr || !prompts->is_array() || prompts->empty())
    return fields.Refuse("prompts", "a list of one or more objects");
  REPRISE_ASSIGN_OR_RETURN(
      const auto file, models::SafetensorsFile::Open(
                           std::filesystem::path(path).replace_extension("safetensors").string()));
  for (size_t i = 0; i < prompts->size(); ++i) {
    const std::string at = absl::StrCat(path, ": prompts[", i, "]");
    const Json& entry = (*prompts)[i];
    if (!entry.is_object())
      return absl::InvalidArgumentError(
          absl::StrCat(at, ": got ", models::ShowJson(entry), ", allowed an object"));
    REPRISE_ASSIGN_OR_RETURN(ReferencePrompt prompt, ReadPrompt(JsonFields(entry, at + "."), *file,
                                                                vocab_size, max_context_length));
    reference.prompts.push_back(std::move(prompt));
  }
  return reference;
}

absl::StatusOr<LogitsDifference> CompareLogits(engine::DecodeEngine& engine,
                                               const ReferenceLogits& reference,
                                               uint32_t chunk_tokens) {
  Differences differences;
  for (const ReferencePrompt& prompt : reference.prompts)
    REPRISE_RETURN_IF_ERROR(ComparePrompt(engine, prompt, chunk_tokens, differences));
  return differences.Finish();
}

}  // namespace reprise::tools
