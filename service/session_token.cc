// SPDX-License-Identifier: Apache-2.0
#include "service/session_token.h"

#include <sys/random.h>

#include "runtime/check.h"

namespace reprise::service {

SessionToken SessionToken::Random() {
  SessionToken token;
  // So few bytes come whole, once the kernel has its seed.
  REPRISE_CHECK(getrandom(token.bytes_.data(), kBytes, 0) == static_cast<ssize_t>(kBytes));
  return token;
}

bool SessionToken::Is(std::string_view bytes) const {
  if (bytes.size() != kBytes) return false;
  // Volatile: the compiler may not stop at the first difference.
  volatile unsigned char difference = 0;
  for (size_t i = 0; i < kBytes; ++i) {
    difference =
        static_cast<unsigned char>(difference | static_cast<unsigned char>(bytes[i] ^ bytes_[i]));
  }
  return difference == 0;
}

}  // namespace reprise::service
