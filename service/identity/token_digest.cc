// SPDX-License-Identifier: Apache-2.0
#include "service/identity/token_digest.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>

#include "absl/strings/ascii.h"

namespace reprise::service {
namespace {

static_assert(TokenDigest::kBytes == SHA256_DIGEST_LENGTH);

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool IsTokenCharacter(char c) {
  constexpr std::string_view kMarks = "-._~+/=";
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || kMarks.find(c) != kMarks.npos;
}

}  // namespace

TokenDigest TokenDigest::Of(std::string_view token) {
  TokenDigest digest;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest.bytes_.data());
  return digest;
}

std::optional<TokenDigest> TokenDigest::FromHex(std::string_view text) {
  if (text.size() != 2 * kBytes) return std::nullopt;
  TokenDigest digest;
  for (size_t i = 0; i < kBytes; ++i) {
    const int high = HexValue(text[2 * i]);
    const int low = HexValue(text[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    digest.bytes_[i] = static_cast<unsigned char>(16 * high + low);
  }
  return digest;
}

bool TokenDigest::Is(const TokenDigest& other) const {
  return CRYPTO_memcmp(bytes_.data(), other.bytes_.data(), kBytes) == 0;
}

bool IsBearerToken(std::string_view text) {
  return !text.empty() && text.size() <= TokenDigest::kMaxTokenBytes &&
         std::all_of(text.begin(), text.end(), IsTokenCharacter);
}

}  // namespace reprise::service
