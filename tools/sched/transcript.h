// SPDX-License-Identifier: Apache-2.0
// Transcript: shows what requests generate while they do. One request alone streams piece by piece;
// of several, whole lines come out as they complete, each behind its request's number and within
// the terminal's width. Bytes of byte models are shown as safe text, other tokens as ids.
#ifndef REPRISE_TOOLS_SCHED_TRANSCRIPT_H_
#define REPRISE_TOOLS_SCHED_TRANSCRIPT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "tools/byte_text.h"
#include "tools/console.h"
#include "tools/sched/request.h"

namespace reprise::tools {

class Transcript {
 public:
  // `console` must outlive the transcript. `several`: more than one request will speak.
  Transcript(Console* console, bool byte_tokens, bool several);

  void OnArrival(const Request& request);
  // Of request.tokens[index], in order.
  void OnToken(const Request& request, size_t index);
  void OnFinished(const Request& request);

 private:
  struct Line {
    ByteTextStream bytes;
    std::string text;  // not printed yet
  };
  std::string Piece(const Request& request, size_t index, Line* line) const;
  void PrintLines(const Request& request, Line* line);
  void PrintLine(const Request& request, std::string_view mark, std::string_view text);

  Console* console_;
  bool byte_tokens_;
  bool several_;
  size_t line_width_;
  size_t prompt_width_;
  absl::flat_hash_map<uint32_t, Line> lines_;  // by request id
};

// The generated text of a request, the stop token left out; token ids where the model's tokens are
// no bytes.
std::string TextOf(const Request& request, bool byte_tokens);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SCHED_TRANSCRIPT_H_
