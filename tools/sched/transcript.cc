// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/transcript.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tools/text_width.h"

namespace reprise::tools {
namespace {

// On a terminal that is wide enough; less on others.
constexpr size_t kLineWidth = 96;    // columns of text before a line is broken
constexpr size_t kPromptWidth = 80;  // columns of a prompt that are shown
constexpr size_t kLeastWidth = 8;

constexpr size_t kMarkWidth = 8;  // "[  1] > "
constexpr std::string_view kCut = " ...";

size_t Within(size_t room, size_t taken, size_t wanted) {
  return std::clamp(room - std::min(room, taken), kLeastWidth, wanted);
}

// The special token that ended a byte model's text is not text.
bool IsHiddenEnd(const Request& request, bool byte_tokens) {
  return byte_tokens && request.finish == FinishReason::kStopToken && request.tokens.back() >= 256;
}

std::string Ids(std::span<const uint32_t> tokens) { return absl::StrJoin(tokens, " "); }

}  // namespace

Transcript::Transcript(Console* console, bool byte_tokens, bool several)
    : console_(console),
      byte_tokens_(byte_tokens),
      several_(several),
      line_width_(Within(console->width(), kMarkWidth, kLineWidth)),
      prompt_width_(Within(console->width(), kMarkWidth + kCut.size(), kPromptWidth)) {}

std::string TextOf(const Request& request, bool byte_tokens) {
  if (!byte_tokens) return Ids(request.tokens);
  std::span<const uint32_t> tokens = request.tokens;
  if (!tokens.empty() && IsHiddenEnd(request, byte_tokens))
    tokens = tokens.first(tokens.size() - 1);
  return ByteText(tokens);
}

void Transcript::OnArrival(const Request& request) {
  lines_[request.id];
  std::string prompt = byte_tokens_ ? ByteText(request.prompt) : Ids(request.prompt);
  if (!several_) {
    if (byte_tokens_) console_->Print(prompt);
    return;
  }
  prompt = absl::StrReplaceAll(prompt, {{"\n", "\\n"}});
  const std::string_view shown = CutToWidth(prompt, prompt_width_);
  PrintLine(
      request, "> ",
      shown.size() < prompt.size() ? absl::StrCat(std::string(shown), std::string(kCut)) : prompt);
}

void Transcript::OnToken(const Request& request, size_t index) {
  Line& line = lines_[request.id];
  const std::string piece = Piece(request, index, &line);
  if (!several_) {
    console_->Print(piece);
    return;
  }
  line.text += piece;
  PrintLines(request, &line);
}

std::string Transcript::Piece(const Request& request, size_t index, Line* line) const {
  const uint32_t token = request.tokens[index];
  if (!byte_tokens_) return absl::StrCat(token, " ");
  const bool is_last = index + 1 == request.tokens.size();
  return is_last && IsHiddenEnd(request, byte_tokens_) ? line->bytes.Flush()
                                                       : line->bytes.Push(token);
}

void Transcript::PrintLines(const Request& request, Line* line) {
  while (true) {
    const size_t newline = line->text.find('\n');
    if (newline != std::string::npos &&
        DisplayWidth(line->text.substr(0, newline)) <= line_width_) {
      PrintLine(request, "  ", line->text.substr(0, newline));
      line->text.erase(0, newline + 1);
      continue;
    }
    if (DisplayWidth(line->text) <= line_width_) return;
    const std::string_view head = CutToWidth(line->text, line_width_);
    const size_t space = head.rfind(' ');
    const size_t end = space == head.npos || space == 0 ? head.size() : space;
    PrintLine(request, "  ", line->text.substr(0, end));
    line->text.erase(0, end == space ? end + 1 : end);
  }
}

void Transcript::OnFinished(const Request& request) {
  Line& line = lines_[request.id];
  line.text += line.bytes.Flush();
  if (several_) {
    PrintLine(request, "  ", line.text);
  } else {
    console_->Print(absl::StrCat(line.text, "\n"));
  }
  lines_.erase(request.id);
}

// Blank lines would tell apart nothing among the lines of others.
void Transcript::PrintLine(const Request& request, std::string_view mark, std::string_view text) {
  if (text.find_first_not_of(' ') == text.npos) return;
  console_->Print(
      absl::StrFormat("[%3u] %s%s\n", request.id, std::string(mark), std::string(text)));
}

}  // namespace reprise::tools
