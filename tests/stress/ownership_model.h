// SPDX-License-Identifier: Apache-2.0
// OwnershipModel: who owns which KV block of a server, recomputed from what clients of it were
// answered and nothing else. It lies in memory that all of them map; each client is a process that
// has one slot, and one session at a time.
//
// A client claims blocks once it was answered them, and lets go of them before it asks the server
// to take them back. So a block that somebody claims while another client is certain to own it has
// two owners. A client is certain unless its session may have ended without it: whoever harms a
// session, be it the client itself, says so before (`Doubt`), and the client asks the server before
// it is certain again (`Settle`).
// Threads and processes: any.
#ifndef REPRISE_TESTS_STRESS_OWNERSHIP_MODEL_H_
#define REPRISE_TESTS_STRESS_OWNERSHIP_MODEL_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::stress {

inline constexpr uint32_t kMaxSlots = 64;  // a block's users are bits of a word
inline constexpr uint32_t kMaxModelBlocks = 4096;
inline constexpr uint32_t kNumIdentities = 4;
inline constexpr uint32_t kNumTexts = 16;
inline constexpr uint32_t kMaxPrompt = 16;
inline constexpr uint32_t kTextTokens = 32;  // that are sampled

// A prompt, and what a row says that nobody disturbs: tokens, and the bits of their
// log-probabilities.
struct Text {
  uint32_t prompt_length;
  std::array<uint32_t, kMaxPrompt> prompt;
  std::array<uint32_t, kTextTokens> tokens;
  std::array<uint32_t, kTextTokens> logprob_bits;
};

// What clients have done, all together.
enum class Count : uint8_t {
  kSessions,
  kSteps,
  kTokens,
  kAllocations,
  kBlocks,
  kForks,
  kSwaps,
  kShares,
  kAdoptions,
  kExports,
  kImports,
  kCancelledStreams,
  kCancelledCalls,
  kResumes,
  kAnswersKept,
  kSlowReads,
  kThefts,
  kNoRoom,
  kLost,
  kKills,
  kFreezes,
  kAudits,
  kEnd,
};

// What one client offers others: blocks under a name, or copies by tickets.
struct Offer {
  bool is_copy = false;
  uint32_t identity = 0;
  uint32_t text = 0;
  uint32_t context_length = 0;
  uint32_t num_sampled = 0;  // of the text, when it was offered
  uint32_t size = 0;         // of `words`
  std::array<char, 256> words = {};
};

class OwnershipModel {
 public:
  // What a client holds, as it was answered.
  struct Holding {
    bool has_session;
    uint64_t life;
    uint32_t identity;
    uint32_t blocks, shared, swapped, exported, rows;
  };

  // Makes the file for so many clients; or maps one that was made. Aborts where that fails.
  static std::unique_ptr<OwnershipModel> Make(const std::string& path, uint32_t num_slots);
  static std::unique_ptr<OwnershipModel> Map(const std::string& path);

  // Before any client starts.
  std::array<Text, kNumTexts>& texts();

  // ---- a client's session ----

  // Opened with this token. `doubts`: NumDoubts before that. Returns its number among the slot's
  // sessions.
  uint64_t Begin(uint32_t slot, uint32_t identity, std::string_view token, uint64_t doubts);
  // It is to end, or has: what it held is nobody's.
  void End(uint32_t slot);
  void Doubt(uint32_t slot) {
    Harm(slot, [] {});
  }
  // Doubts it and does `act`, while nobody claims, lets go or settles.
  void Harm(uint32_t slot, const std::function<void()>& act);
  // How often the slot's sessions were doubted.
  uint64_t NumDoubts(uint32_t slot);
  // The same, or 0 while the session is certain.
  uint64_t DoubtsOf(uint32_t slot);
  // The session has answered after it was doubted so often: it holds these blocks. False where it
  // was doubted once more.
  bool Settle(uint32_t slot, uint64_t doubts, std::span<const uint32_t> held);
  // The token of a session that is another identity's, or one that nobody has.
  std::string TokenOfAnother(uint32_t slot, uint32_t identity, uint64_t random);

  // ---- blocks ----

  // False while the session is doubted, and then nothing was claimed.
  bool Claim(uint32_t slot, std::span<const uint32_t> blocks);
  void LetGo(uint32_t slot, std::span<const uint32_t> blocks);
  // Blocks that are the slot's own become shared.
  void Share(uint32_t slot, std::span<const uint32_t> blocks);
  bool Adopt(uint32_t slot, std::span<const uint32_t> blocks);
  void SetSwapped(uint32_t slot, uint32_t count);
  void SetExported(uint32_t slot, uint32_t count);
  void SetRows(uint32_t slot, uint32_t count);

  void Post(const Offer& offer);
  // One of the latest, of this identity or, where it is kNumIdentities, of any. False where nobody
  // offers any.
  bool TakeOffer(bool is_copy, uint32_t identity, uint64_t random, Offer* offer);

  // ---- audits ----

  // Clients stop between two things that they do, and say so.
  void Pause(bool pause);
  void Stop();
  bool paused();
  bool stopped();
  void Park(uint32_t slot, bool parked);
  bool IsParked(uint32_t slot);
  Holding HoldingOf(uint32_t slot);
  // Different blocks that have users.
  uint32_t NumBlocks();

  void Add(Count count, uint64_t amount = 1);
  uint64_t Get(Count count);
  // Something was not as it must be. The first is kept.
  void Fail(std::string_view what);
  std::string Failure();

 private:
  struct Shared;
  explicit OwnershipModel(Shared* shared) : shared_(shared) {}
  void FailLocked(std::string_view what);

  Shared* const shared_;
};

}  // namespace reprise::stress

#endif  // REPRISE_TESTS_STRESS_OWNERSHIP_MODEL_H_
