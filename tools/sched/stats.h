// SPDX-License-Identifier: Apache-2.0
// Stats: what a run measured, as tables and as JSON. The driver feeds it step by step, and asks it
// once at the end.
//
// Words: TTFT, arrival to first token. TPOT, of one request: (last token - first token) / (tokens -
// 1). ITL, the time between two tokens of one request. A decode step carries no prompt tokens; its
// wall time runs from the result of the decode step before it to its own; steps of one request
// share theirs. The warm-up leaves the first decode steps out of everything that is said of steps,
// not out of what is said of requests. Goodput: requests that finished within the bounds of TTFT
// and TPOT that were set, of all there were, and per second of the run. What was never measured is
// "-" in tables and null in JSON.
//
// Where a request's time went, of one step or several: its round trip, divided without rest. Beside
// the ledger's parts, network is what of it was outside of the server; overlap, while the step
// before was in flight, so that it cost nothing; waiting, what is left: launched and not begun yet,
// or done and not seen yet.
#ifndef REPRISE_TOOLS_SCHED_STATS_H_
#define REPRISE_TOOLS_SCHED_STATS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"
#include "tools/samples.h"
#include "tools/sched/channel.h"
#include "tools/sched/driver.h"
#include "tools/sched/request.h"
#include "tools/text_width.h"

namespace reprise::tools {

// What a decode step must read at least: all weights once and the KV of its rows.
struct Floor {
  double weights_bytes = 0;
  double kv_bytes_per_token = 0;
  double bandwidth = 0;  // bytes per second, > 0
};

// Bounds of latency, ns; 0: none.
struct LatencyBounds {
  uint64_t ttft_ns = 0;
  uint64_t tpot_ns = 0;  // met by a request of one token
  bool any() const { return ttft_ns != 0 || tpot_ns != 0; }
};

struct StatsOptions {
  uint64_t warmup_steps = 0;  // decode steps left out
  bool over_network = true;   // the ledger has wire, queue, reply and network parts
  std::optional<Floor> floor = std::nullopt;
  LatencyBounds bounds = {};
};

class Stats {
 public:
  explicit Stats(const StatsOptions& options);

  void AddStep(const StepOutcome& outcome, const FinishedStep& step);
  // `requests` ended, finished or not, after `wall_ns`.
  void AddRequests(const std::vector<Request>& requests, uint64_t wall_ns);

  uint64_t num_steps() const { return num_steps_; }
  // Tables with blank lines between them, `width` columns wide at most.
  std::string ToText(size_t width = kNoWidth) const;
  nlohmann::json ToJson() const;

 private:
  struct Part {
    std::string_view name;
    Samples ns;
  };
  struct Graph {
    uint64_t replays = 0;
    uint64_t eager_runs = 0;
    uint64_t tokens = 0;
    uint64_t padding_tokens = 0;
  };
  // Requests of one priority.
  struct Class {
    uint64_t num_requests = 0;
    uint64_t num_met = 0;         // the bounds
    uint64_t num_met_tokens = 0;  // of these
    Samples ttft_ns;
    Samples tpot_ns;
  };
  // Of rows with drafts in steps whose results came.
  struct Drafts {
    uint64_t steps = 0;     // that had any
    uint64_t proposed = 0;  // tokens
    uint64_t accepted = 0;
    uint64_t rows = 0;  // that ran in these steps and sampled, with drafts or without
  };
  void AddDrafts(const StepOutcome& outcome, const FinishedStep& step);
  nlohmann::json DraftsToJson() const;
  void AddLatencies(const Request& request, Class* of_priority);
  nlohmann::json GoodputToJson(const Class& requests) const;
  void AddLedger(const StepOutcome& outcome, uint64_t behind_ns);
  void AddDecodeSteps(const StepOutcome& outcome, const FinishedStep& step);
  double PaddingShare() const;
  std::string RequestTable(size_t width) const;
  std::string LatencyTable(size_t width) const;
  std::string GoodputTable(size_t width) const;
  std::string DraftTable(size_t width) const;
  std::string DecodeTable(size_t width) const;
  std::string GraphTable(size_t width) const;
  std::string LedgerTable(size_t width) const;

  const StatsOptions options_;
  uint64_t num_steps_ = 0;
  uint64_t num_decode_steps_ = 0;
  uint64_t last_result_ns_ = 0;
  // Of the step just before, if it was a decode step.
  std::optional<uint64_t> last_decode_result_ns_;
  Samples decode_wall_ns_;
  Samples decode_device_ns_;
  Samples decode_rows_;
  Samples floor_ns_;
  // By kind, then by capacity: "decode/8" comes before "decode/16".
  struct ByCapacity {
    bool operator()(const std::string& a, const std::string& b) const;
  };
  std::map<std::string, Graph, ByCapacity> graphs_;
  std::vector<Part> parts_;
  Samples round_trip_ns_;

  uint64_t wall_ns_ = 0;
  uint64_t num_requests_ = 0;
  uint64_t num_finished_ = 0;  // failed ones are not among them
  uint64_t num_failed_ = 0;
  Drafts drafts_;
  uint64_t num_preemptions_ = 0;
  uint64_t prompt_tokens_ = 0;
  uint64_t new_tokens_ = 0;
  uint64_t num_swaps_ = 0;
  Class all_;
  std::map<int32_t, Class, std::greater<>> classes_;  // by priority
  Samples itl_ns_;
};

// One paragraph per token of requests with num_logprobs; empty when there are none.
std::string ChancesToText(const std::vector<Request>& requests, size_t width = kNoWidth);

// A request as --json and --json-lines write it: docs/run.schema.json describes it.
nlohmann::json RequestToJson(const Request& request, bool byte_tokens);
// All of them, in a list.
nlohmann::json RequestsToJson(const std::vector<Request>& requests, bool byte_tokens);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SCHED_STATS_H_
