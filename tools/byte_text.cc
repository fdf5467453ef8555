// SPDX-License-Identifier: Apache-2.0
#include "tools/byte_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace reprise::tools {
namespace {

// What the first bytes of `bytes` are, as UTF-8.
struct Utf8 {
  enum Kind { kWhole, kNeedsMore, kInvalid } kind;
  size_t length;        // bytes of the character; 1 for kInvalid
  uint32_t code_point;  // of kWhole
};

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// The second byte of a few lead bytes has a narrower range: no overlong forms, no surrogates,
// nothing above U+10FFFF.
bool SecondByteFits(unsigned char lead, unsigned char second) {
  switch (lead) {
    case 0xE0:
      return second >= 0xA0;
    case 0xED:
      return second < 0xA0;
    case 0xF0:
      return second >= 0x90;
    case 0xF4:
      return second < 0x90;
    default:
      return true;
  }
}

Utf8 Classify(std::string_view bytes) {
  const auto lead = static_cast<unsigned char>(bytes[0]);
  if (lead < 0x80) return {Utf8::kWhole, 1, lead};
  const size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                        : lead >= 0xE0 && lead <= 0xEF ? 3
                        : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                       : 0;
  if (length == 0) return {Utf8::kInvalid, 1, 0};
  uint32_t code_point = lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Utf8::kNeedsMore, length, 0};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (!IsContinuation(bytes[i]) || (i == 1 && !SecondByteFits(lead, byte))) {
      return {Utf8::kInvalid, 1, 0};
    }
    code_point = code_point << 6 | (byte & 0x3Fu);
  }
  return {Utf8::kWhole, length, code_point};
}

bool IsControl(uint32_t code_point) {
  return (code_point < 0x20 && code_point != '\n') || (code_point >= 0x7F && code_point < 0xA0);
}

void AppendEscaped(std::string_view bytes, std::string* out) {
  for (char c : bytes) absl::StrAppendFormat(out, "\\x%02x", static_cast<unsigned char>(c));
}

}  // namespace

std::string ByteTextStream::Push(uint32_t token) {
  if (token >= 256) return absl::StrCat(Drain(/*end=*/true), "<", token, ">");
  held_.push_back(static_cast<char>(token));
  return Drain(/*end=*/false);
}

std::string ByteTextStream::Flush() { return Drain(/*end=*/true); }

std::string ByteTextStream::Drain(bool end) {
  std::string out;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const Utf8 next = Classify(rest);
    if (next.kind == Utf8::kNeedsMore && !end) break;
    const size_t length = next.kind == Utf8::kWhole ? next.length : 1;
    if (next.kind == Utf8::kWhole && !IsControl(next.code_point)) {
      out.append(rest.substr(0, length));
    } else {
      AppendEscaped(rest.substr(0, length), &out);
    }
    rest.remove_prefix(length);
  }
  held_ = std::string(rest);
  return out;
}

std::string ByteText(std::span<const uint32_t> tokens) {
  ByteTextStream stream;
  std::string out;
  for (uint32_t token : tokens) out += stream.Push(token);
  return out + stream.Flush();
}

std::vector<uint32_t> TokensOfText(std::string_view text) {
  std::vector<uint32_t> tokens;
  tokens.reserve(text.size());
  for (char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

}  // namespace reprise::tools
