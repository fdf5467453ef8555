// SPDX-License-Identifier: Apache-2.0
// TokenDigest: the SHA-256 of a bearer token: all that a server keeps of it. Threads: a value.
#ifndef REPRISE_SERVICE_IDENTITY_TOKEN_DIGEST_H_
#define REPRISE_SERVICE_IDENTITY_TOKEN_DIGEST_H_

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace reprise::service {

class TokenDigest {
 public:
  static constexpr size_t kBytes = 32;
  // Of a token that a client shows; a longer one is none.
  static constexpr size_t kMaxTokenBytes = 512;

  static TokenDigest Of(std::string_view token);
  // 64 hexadecimal digits; nullopt for any other text.
  static std::optional<TokenDigest> FromHex(std::string_view text);

  // For lists of identities; what clients show is compared by Is.
  bool operator==(const TokenDigest& other) const = default;
  // Takes the same time whatever they hold.
  bool Is(const TokenDigest& other) const;
  std::string_view bytes() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

 private:
  std::array<unsigned char, kBytes> bytes_ = {};
};

// Whether `text` can be a token of a bearer (RFC 6750, 2.1), of at most kMaxTokenBytes.
bool IsBearerToken(std::string_view text);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_IDENTITY_TOKEN_DIGEST_H_
