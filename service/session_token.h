// SPDX-License-Identifier: Apache-2.0
// SessionToken: the name of a session on the wire: 128 random bits that only the client who opened
// it is told. Threads: a value.
#ifndef REPRISE_SERVICE_SESSION_TOKEN_H_
#define REPRISE_SERVICE_SESSION_TOKEN_H_

#include <array>
#include <cstddef>
#include <string_view>

namespace reprise::service {

class SessionToken {
 public:
  static constexpr size_t kBytes = 16;

  // From the kernel's random numbers.
  static SessionToken Random();

  // Takes the same time whatever `bytes` says; false at once where it has another length.
  bool Is(std::string_view bytes) const;
  std::string_view bytes() const { return {bytes_.data(), bytes_.size()}; }

 private:
  std::array<char, kBytes> bytes_ = {};
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_SESSION_TOKEN_H_
