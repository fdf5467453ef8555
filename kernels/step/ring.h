// SPDX-License-Identifier: Apache-2.0
// The rings as host and device share them: what the host writes into the metadata ring, and what
// the device writes into the result ring. Plain structs, the same layout for every compiler.
#ifndef REPRISE_KERNELS_STEP_RING_H_
#define REPRISE_KERNELS_STEP_RING_H_

#include <cstddef>
#include <cstdint>

#include "kernels/attention/decode_share.h"
#include "kernels/step/finish_reason.h"

namespace reprise::kernels {

// ---- metadata ring: host -> device ----

// How far the device has come: the first node of a replay reads it, the last one writes it. A
// request is one entry of the metadata ring and one replay or several in a row; each replay has an
// entry of its own in the result ring.
struct StepProgress {
  uint64_t published = 0;  // replays
  uint64_t requests = 0;   // whose replays have all been published
  uint64_t replay = 0;     // published ones of the request after those
};
static_assert(sizeof(StepProgress) == 24);

// Opens a ring entry, where fetch has copies of it, and in it the part that all later replays of a
// request read. A
// replay is idle where `sequence` is not that of the request's first replay as the device counts:
// no row runs and nothing is published; warm-up runs and captures rely on it.
struct StepHeader {
  uint64_t sequence = 0;  // of the request's first replay; 1 for the engine's first
  uint32_t num_rows = 0;
  uint32_t num_tokens = 0;        // query tokens of all rows
  uint32_t num_given_tokens = 0;  // of these, ids that lie in the ring entry
  uint32_t num_table_updates = 0;
  uint32_t num_sampling_updates = 0;
  uint32_t num_prefix_members = 0;
  uint32_t num_replays = 1;    // of the request
  uint32_t num_table_ids = 0;  // of all table updates
  uint32_t reserved[6] = {};
};
static_assert(sizeof(StepHeader) == 64);

enum RowEntryFlags : uint32_t {
  kRowReset = 1u << 0,  // the entry carries the row's initial state, features too
  // Token ids lie in the ring entry. Otherwise the first is the row's last token, and those behind
  // it are drafts, whose ids lie there (NumDrafts).
  kRowTokensGiven = 1u << 1,
  kRowSample = 1u << 2,          // sample after the last query token; with drafts, after each
  kRowFeatures = 1u << 3,        // the entry's features replace the row's
  kRowStopped = 1u << 4,         // set by the plan: the row had stopped and does nothing
  kRowPromptLogprobs = 1u << 5,  // report how likely each given token was
  kRowNextGiven = 1u << 6,       // behind the given ids lies one more: the token that follows them
  // The entry says for how many tokens the row has room. The plan leaves the flag set where that is
  // too few, and the row does nothing in this replay. Not with kRowReset.
  kRowPauses = 1u << 7,
};

// What of sampling a row uses beyond temperature and seed, in the flags above kRowFeatureShift. The
// plan leaves the row's live features in StepPlan::entries; kernels of a feature that no row has
// leave at once.
constexpr uint32_t kRowFeatureShift = 8;
enum RowFeatures : uint32_t {
  kFeatureStop = 1u << 0,       // stop tokens or a length budget
  kFeatureTruncate = 1u << 1,   // top-k, top-p or min-p
  kFeaturePenalties = 1u << 2,  // repetition, presence, frequency: the row has a token history
  kFeatureBias = 1u << 3,
  kFeatureMask = 1u << 4,       // allowed tokens
  kFeatureMinTokens = 1u << 5,  // stop tokens are kept out at first
  kFeatureLogprobs = 1u << 6,   // reports the rank and the likeliest tokens
  kFeatureLogits = 1u << 7,     // reports all its logits
};
// Features that change logits before a token is drawn.
constexpr uint32_t kFeaturesThatAdjust =
    kFeaturePenalties | kFeatureBias | kFeatureMask | kFeatureMinTokens;

// One row that runs in this step.
struct alignas(16) RowEntry {
  uint32_t slot = 0;          // resident row
  uint32_t flags = 0;         // RowEntryFlags
  uint32_t num_tokens = 0;    // query length, >= 1
  uint32_t given_offset = 0;  // of its ids, or its drafts', among the ring entry's given tokens
  // With kRowReset: tokens already in its KV. With kRowPauses: how many its blocks have room for.
  uint32_t context_length = 0;
  float temperature = 0.0f;  // with kRowReset
  uint64_t seed = 0;         // with kRowReset
};
static_assert(sizeof(RowEntry) == 32);

// Query tokens that are drafts: what somebody expects the row to sample behind its last token. The
// step samples behind each, and the row takes them as far as they are what was sampled.
constexpr uint32_t NumDrafts(uint32_t flags, uint32_t num_tokens) {
  return (flags & kRowTokensGiven) != 0 || num_tokens == 0 ? 0 : num_tokens - 1;
}

// Writes block ids into a resident row's table.
struct TableUpdate {
  uint32_t slot = 0;
  uint32_t first = 0;  // index in the table
  uint32_t count = 0;
  uint32_t offset = 0;  // of the ids among the ring entry's block ids
};
static_assert(sizeof(TableUpdate) == 16);

constexpr uint32_t kMaxStopTokens = 64;  // of a row
constexpr uint32_t kMaxLogitBias = 512;  // tokens of a row that have one
constexpr uint32_t kMaxTopLogprobs = 32;

// Sampling parameters of a row with features.
struct RowSampling {
  uint32_t top_k = 0;           // 0: all
  float top_p = 1.0f;           // 1: all
  float log_min_p = 0.0f;       // natural log of min_p; -inf: all
  float repetition = 1.0f;      // penalty; 1: none
  float presence = 0.0f;        // penalty; 0: none
  float frequency = 0.0f;       // penalty; 0: none
  uint32_t max_new_tokens = 0;  // length budget; 0: none
  uint32_t min_tokens = 0;      // sampled before a stop token may be
  uint32_t num_stop = 0;
  uint32_t num_bias = 0;
  uint32_t num_logprobs = 0;   // likeliest tokens to report
  uint32_t prompt_length = 0;  // given tokens from this position on count as sampled ones; 0: none
  uint32_t reserved[4] = {};
};
static_assert(sizeof(RowSampling) == 64);

struct LogitBias {
  uint32_t token = 0;
  float bias = 0.0f;
};
static_assert(sizeof(LogitBias) == 8);

enum SamplingUpdateKind : uint32_t {
  kUpdateSampling = 0,  // RowSampling
  kUpdateStop = 1,      // stop tokens
  kUpdateBias = 2,      // LogitBias
  kUpdateMask = 3,      // a bit per token, bit t % 32 of word t / 32
  kUpdateHistory = 4,   // prompt_length, then the row's tokens so far; forgets the row before it
};
constexpr uint32_t kSamplingUpdatesPerRow = 5;  // one of each kind at most

// Writes words into what a resident row keeps for sampling.
struct SamplingUpdate {
  uint32_t slot = 0;
  uint32_t kind = 0;    // SamplingUpdateKind
  uint32_t count = 0;   // words
  uint32_t offset = 0;  // words, a multiple of 4, among the ring entry's sampling data
};
static_assert(sizeof(SamplingUpdate) == 16);

// Blocks of fetch, which share a step's updates: each reads host memory over the bus, so a few are
// enough.
inline constexpr uint32_t kFetchBlocks = 16;

// Byte offsets of a metadata entry's parts; a function of the engine's limits.
//
// Every block of fetch reads a header of its own: reads of one line of host memory by several
// multiprocessors come one after the other, about 1 us each on an H100 (docs/benchmarks/README.md).
struct StepEntryLayout {
  uint64_t rows = 0;
  uint64_t table_updates = 0;
  uint64_t tokens = 0;
  uint64_t blocks = 0;
  uint64_t sampling_updates = 0;
  uint64_t sampling_data = 0;
  uint64_t prefix_members = 0;  // PrefixMember
  // What the later replays of a request read: a header and, as far behind it as in
  // the entry itself, rows; no updates and no tokens.
  uint64_t repeat = 0;
  uint64_t repeat_prefix_members = 0;
  uint64_t headers = 0;  // [kFetchBlocks - 1] copies of the first one
  uint64_t bytes = 0;

  static constexpr uint64_t RoundUp(uint64_t x) { return (x + 63) / 64 * 64; }
  static constexpr StepEntryLayout For(uint64_t max_rows, uint64_t max_step_tokens,
                                       uint64_t max_blocks_per_row, uint64_t sampling_words = 0) {
    StepEntryLayout l;
    l.rows = sizeof(StepHeader);
    l.table_updates = RoundUp(l.rows + max_rows * sizeof(RowEntry));
    // An added row can be appended to in the same step.
    l.tokens = RoundUp(l.table_updates + 2 * max_rows * sizeof(TableUpdate));
    // A chunk may bring the token that follows it.
    l.blocks = RoundUp(l.tokens + (max_step_tokens + max_rows) * sizeof(uint32_t));
    l.sampling_updates = RoundUp(l.blocks + max_rows * max_blocks_per_row * sizeof(uint32_t));
    l.sampling_data =
        RoundUp(l.sampling_updates + kSamplingUpdatesPerRow * max_rows * sizeof(SamplingUpdate));
    l.prefix_members = RoundUp(l.sampling_data + sampling_words * sizeof(uint32_t));
    l.repeat = RoundUp(l.prefix_members + max_rows * sizeof(PrefixMember));
    l.repeat_prefix_members = RoundUp(l.repeat + l.rows + max_rows * sizeof(RowEntry));
    l.headers = RoundUp(l.repeat_prefix_members + max_rows * sizeof(PrefixMember));
    l.bytes = l.headers + (kFetchBlocks - 1) * sizeof(StepHeader);
    return l;
  }
  static_assert(sizeof(StepHeader) == 64, "a line of host memory");
  // The header that a block of fetch reads.
  constexpr uint64_t Header(uint32_t block) const {
    return block == 0 ? 0 : headers + (block - 1) * sizeof(StepHeader);
  }
};

// ---- result ring: device -> host ----

struct ResultHeader {
  uint64_t sequence = 0;  // of the replay; stored last, with release order: the ring entry is
                          // complete when it is the one expected
  uint64_t begin_ns = 0;  // device clock at the first node
  uint64_t end_ns = 0;    // and at the publishing node
  uint32_t num_rows = 0;
  uint32_t attention_leaf = 0;  // PlanCounts.attention_leaf
  uint32_t reserved[8] = {};
};
static_assert(sizeof(ResultHeader) == 64);

enum RowResultFlags : uint32_t {
  kResultSampled = 1u << 0,
  kResultStopped = 1u << 1,   // had stopped before this step and did nothing
  kResultLogprobs = 1u << 2,  // its sampled token has a LogprobReport
  kResultLogits = 1u << 3,    // its logits are in the result area, in request order
  kResultPaused = 1u << 4,    // had no room for a token more and did nothing
};
// What sampling says of a row without any token above minus infinity.
constexpr uint32_t kNoCandidate = 0xffffffffu;
// The FinishReason of a row that stopped with this step's token is in the byte of the flags above
// this shift.
constexpr uint32_t kResultFinishShift = 8;
// How many of the row's drafts were accepted is in the flags above this shift.
constexpr uint32_t kResultAcceptedShift = 16;
constexpr uint32_t kMaxDraftTokens = (1u << (32 - kResultAcceptedShift)) - 1;  // of a step

struct RowResult {
  uint32_t token = 0;
  float logprob = 0.0f;
  uint32_t context_length = 0;
  uint32_t flags = 0;
};
static_assert(sizeof(RowResult) == 16);

// A token of a row with drafts.
struct SampledToken {
  uint32_t token = 0;
  float logprob = 0.0f;
};
static_assert(sizeof(SampledToken) == 8);

// How likely one token was under the model's own logits, before any adjustment and temperature, and
// what would have been likelier. Order of tokens: larger logit first, then lower id.
struct LogprobReport {
  float logprob = 0.0f;
  uint32_t rank = 0;  // 1: the first in that order
  uint32_t num_top = 0;
  uint32_t reserved = 0;
  uint32_t top_token[kMaxTopLogprobs] = {};
  float top_logprob[kMaxTopLogprobs] = {};
};
static_assert(sizeof(LogprobReport) == 272);

// Byte offsets of a result entry's parts. Rows come first, so that a client of fewer features knows
// the same layout.
struct ResultEntryLayout {
  uint64_t reports = 0;  // LogprobReport: of sampled tokens in request order, then of prompt tokens
  uint64_t logits = 0;   // [max_logit_rows, vocab] f32
  // SampledToken, by sampled token in request order: of rows with drafts alone, as far as those
  // were accepted and one more.
  uint64_t sampled = 0;
  uint64_t bytes = 0;

  static constexpr ResultEntryLayout For(uint64_t max_rows, uint64_t num_reports = 0,
                                         uint64_t max_logit_rows = 0, uint64_t vocab = 0,
                                         uint64_t max_sampled = 0) {
    ResultEntryLayout l;
    l.reports = StepEntryLayout::RoundUp(sizeof(ResultHeader) + max_rows * sizeof(RowResult));
    l.logits = StepEntryLayout::RoundUp(l.reports + num_reports * sizeof(LogprobReport));
    l.sampled = StepEntryLayout::RoundUp(l.logits + max_logit_rows * vocab * sizeof(float));
    l.bytes = StepEntryLayout::RoundUp(l.sampled + max_sampled * sizeof(SampledToken));
    return l;
  }
};

constexpr uint64_t ResultEntryBytes(uint64_t max_rows) {
  return ResultEntryLayout::For(max_rows).bytes;
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_STEP_RING_H_
