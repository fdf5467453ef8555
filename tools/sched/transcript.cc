// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/transcript.h"

#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tools/table.h"

namespace reprise::tools {
namespace {

constexpr size_t kLineWidth = 96;    // columns of text before a line is broken
constexpr size_t kPromptWidth = 80;  // columns of a prompt that are shown

// The special token that ended a byte model's text is not text.
bool IsHiddenEnd(const Request& request, bool byte_tokens) {
  return byte_tokens && request.finish == FinishReason::kStopToken && request.tokens.back() >= 256;
}

std::string Ids(std::span<const uint32_t> tokens) { return absl::StrJoin(tokens, " "); }

// Cuts at a character, not inside one.
std::string_view CutToWidth(std::string_view text, size_t width) {
  size_t end = 0;
  while (end < text.size() && DisplayWidth(text.substr(0, end + 1)) <= width) ++end;
  return text.substr(0, end);
}

}  // namespace

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
  const std::string_view shown = CutToWidth(prompt, kPromptWidth);
  PrintLine(request, "> ",
            shown.size() < prompt.size() ? absl::StrCat(std::string(shown), " ...") : prompt);
}

void Transcript::OnToken(const Request& request) {
  Line& line = lines_[request.id];
  const std::string piece = Piece(request, &line);
  if (!several_) {
    console_->Print(piece);
    return;
  }
  line.text += piece;
  PrintLines(request, &line);
}

std::string Transcript::Piece(const Request& request, Line* line) const {
  const uint32_t token = request.tokens.back();
  if (!byte_tokens_) return absl::StrCat(token, " ");
  return IsHiddenEnd(request, byte_tokens_) ? line->bytes.Flush() : line->bytes.Push(token);
}

void Transcript::PrintLines(const Request& request, Line* line) {
  while (true) {
    const size_t newline = line->text.find('\n');
    if (newline != std::string::npos && DisplayWidth(line->text.substr(0, newline)) <= kLineWidth) {
      PrintLine(request, "  ", line->text.substr(0, newline));
      line->text.erase(0, newline + 1);
      continue;
    }
    if (DisplayWidth(line->text) <= kLineWidth) return;
    const std::string_view head = CutToWidth(line->text, kLineWidth);
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
