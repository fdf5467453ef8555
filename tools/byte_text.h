// SPDX-License-Identifier: Apache-2.0
// Prints the tokens of byte-level models on a terminal, safely: a model's output must not move the
// cursor, change colours or break the encoding of what follows. Not a tokenizer of anything else.
#ifndef REPRISE_TOOLS_BYTE_TEXT_H_
#define REPRISE_TOOLS_BYTE_TEXT_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::tools {

// Turns a stream of tokens into printable UTF-8. A token below 256 is that byte; any other is shown
// as "<id>". Newline passes; other control characters (C0, DEL, C1) and bytes that are not valid
// UTF-8 are shown as "\xNN". A multi-byte character comes out with its last byte; until then it is
// held back.
class ByteTextStream {
 public:
  // Text that became printable with this token; may be empty.
  std::string Push(uint32_t token);
  // What is still held back, escaped.
  std::string Flush();

 private:
  // Prints what `held_` allows: whole characters, and escapes for bytes that can no longer become
  // one.
  std::string Drain(bool end);
  std::string held_;
};

// All tokens at once.
std::string ByteText(std::span<const uint32_t> tokens);

// The bytes of `text` as tokens.
std::vector<uint32_t> TokensOfText(std::string_view text);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BYTE_TEXT_H_
