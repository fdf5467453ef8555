// SPDX-License-Identifier: Apache-2.0
// UTF-8, which every text field of the wire holds: bytes that are none are found before a message
// is parsed, and replaced before one is sent. Threads: free functions without state, and a value.
#ifndef REPRISE_SERVICE_WIRE_UTF8_H_
#define REPRISE_SERVICE_WIRE_UTF8_H_

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace reprise::service {

// Bytes that are no UTF-8 become U+FFFD.
std::string ToUtf8(std::string_view text);

// Whether a text that comes in pieces is UTF-8.
class Utf8Check {
 public:
  // False: it is not.
  bool Add(std::string_view piece);
  // No character is begun.
  bool whole() const { return num_begun_ == 0; }

 private:
  std::array<char, 4> begun_ = {};
  size_t num_begun_ = 0;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_WIRE_UTF8_H_
