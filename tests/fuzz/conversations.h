// SPDX-License-Identifier: Apache-2.0
// Conversations of three sessions with an engine, made of bytes: requests that are well-formed and
// mean anything, beside a model that recomputes who owns which block. A simulated device runs the
// steps. Threads: one at a time.
#ifndef REPRISE_TESTS_FUZZ_CONVERSATIONS_H_
#define REPRISE_TESTS_FUZZ_CONVERSATIONS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::fuzz {

// Whether the engine took every request. Aborts where it does not keep what it promises: a block
// belongs to one session, a refused request changes nothing, and what a session held is free when
// it is closed.
bool TakeConversation(std::string_view bytes);
std::vector<std::string> ConversationSeeds();
// Made so far, and of these taken.
struct NumRequests {
  uint64_t made = 0;
  uint64_t taken = 0;
};
NumRequests RequestsOfConversations();

}  // namespace reprise::fuzz

#endif  // REPRISE_TESTS_FUZZ_CONVERSATIONS_H_
