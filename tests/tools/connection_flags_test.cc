// SPDX-License-Identifier: Apache-2.0
// To which addresses a token may travel in the clear.
#include "tools/connection_flags.h"

#include <gtest/gtest.h>

#include <string>

namespace reprise::tools {
namespace {

bool MayGoInTheClear(const std::string& address) {
  return CheckConnectionOptions({.address = address, .token_file = "token"}).ok();
}

TEST(ConnectionFlags, ATokenMayGoInTheClearToThisHost) {
  for (const char* address : {"unix:/run/reprise.sock", "127.0.0.1:1", "127.9.8.7:50061",
                              "localhost:50061", "[::1]:50061", "[0:0:0:0:0:0:0:1]:1"}) {
    EXPECT_TRUE(MayGoInTheClear(address)) << address;
  }
}

TEST(ConnectionFlags, ATokenNeedsTlsToWhereverElse) {
  for (const char* address :
       {"127.evil.example:1", "127.0.0.1.evil.example:1", "127.0.0.256:1", "localhost.example:1",
        "128.0.0.1:1", "10.0.0.1:1", "[::2]:1", "[::]:1", "[127.0.0.1]:1", "example:1"}) {
    EXPECT_FALSE(MayGoInTheClear(address)) << address;
    EXPECT_TRUE(
        CheckConnectionOptions({.address = address, .tls_ca = "ca", .token_file = "token"}).ok())
        << address;
  }
}

}  // namespace
}  // namespace reprise::tools
