// SPDX-License-Identifier: Apache-2.0
// The bytes of a ticket: what is put in comes out, and nothing but the length is asked of them.
#include "service/kv/kv_ticket.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace reprise::service {
namespace {

using ::reprise::testing::StatusIs;

const std::string kWindow = "0123456789abcdef", kKey = "a key of a copy.";

TEST(KvTicket, BytesAreWindowPlaceInLittleEndianAndKey) {
  const std::string bytes = BytesOf({.window = kWindow, .place = 0x89abcdef, .key = kKey});
  EXPECT_EQ(bytes, kWindow + "\xef\xcd\xab\x89" + kKey);
  ASSERT_OK_AND_ASSIGN(const KvTicket ticket, ParseKvTicket(bytes));
  EXPECT_EQ(ticket.window, kWindow);
  EXPECT_EQ(ticket.place, 0x89abcdefu);
  EXPECT_EQ(ticket.key, kKey);
}

TEST(KvTicket, OfAnyBytesIsReadAsItStands) {
  for (const char byte : {'\0', '\x7f', '\x80', '\xff'}) {
    const std::string bytes(KvTicket::kBytes, byte);
    ASSERT_OK_AND_ASSIGN(const KvTicket ticket, ParseKvTicket(bytes));
    EXPECT_EQ(ticket.place, 0x01010101u * static_cast<unsigned char>(byte));
    EXPECT_EQ(BytesOf(ticket), bytes);
  }
}

TEST(KvTicket, OfAnotherLengthIsRefused) {
  for (const size_t size : {size_t{0}, KvTicket::kBytes - 1, KvTicket::kBytes + 1, size_t{1000}}) {
    EXPECT_THAT(ParseKvTicket(std::string(size, 'k')),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "tickets: got one of " + std::to_string(size) +
                             " bytes, allowed: those of ExportBlocks, of 36"));
  }
}

}  // namespace
}  // namespace reprise::service
