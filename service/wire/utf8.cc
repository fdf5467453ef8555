// SPDX-License-Identifier: Apache-2.0
#include "service/wire/utf8.h"

#include <algorithm>

namespace reprise::service {
namespace {

// Of the sequence that begins with this byte; 0: none does.
size_t LengthFrom(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  if (byte < 0x80) return 1;
  if (byte < 0xc2 || byte > 0xf4) return 0;
  return byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
}

// Length of the sequence at the start of `text`, which is not empty; 0 where there is none.
size_t SequenceLength(std::string_view text) {
  const auto byte = [&text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t length = LengthFrom(text[0]);
  if (length <= 1) return length;
  if (text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  // Overlong forms, surrogates, and what lies beyond Unicode.
  const unsigned char first = byte(0);
  const bool bad = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) > 0x9f) ||
                   (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) > 0x8f);
  return bad ? 0 : length;
}

}  // namespace

std::string ToUtf8(std::string_view text) {
  std::string utf8;
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    utf8.append(length == 0 ? std::string_view("\xef\xbf\xbd") : text.substr(0, length));
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return utf8;
}

bool Utf8Check::Add(std::string_view piece) {
  while (!piece.empty()) {
    const size_t length = LengthFrom(num_begun_ == 0 ? piece[0] : begun_[0]);
    if (length == 0) return false;
    const size_t taken = std::min(length - num_begun_, piece.size());
    std::copy_n(piece.begin(), taken, begun_.begin() + static_cast<ptrdiff_t>(num_begun_));
    num_begun_ += taken;
    piece.remove_prefix(taken);
    if (num_begun_ < length) return true;
    if (SequenceLength({begun_.data(), length}) == 0) return false;
    num_begun_ = 0;
  }
  return true;
}

}  // namespace reprise::service
