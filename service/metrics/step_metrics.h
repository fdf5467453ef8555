// SPDX-License-Identifier: Apache-2.0
// StepMetrics: what is counted of steps that ran, by the graph that they replayed. The graphs are
// named before steps replay them, so that counting allocates nothing.
//
// Threads: every method from any thread. Counting and reading take no lock.
#ifndef REPRISE_SERVICE_METRICS_STEP_METRICS_H_
#define REPRISE_SERVICE_METRICS_STEP_METRICS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/step_request.h"
#include "engine/step_result.h"
#include "service/metrics/counter.h"
#include "service/metrics/histogram.h"
#include "service/step_times.h"

namespace reprise::service {

// Of one graph. A request that ran several steps counts in each one's graph; its own times are
// those of its first step's.
struct GraphMetrics {
  explicit GraphMetrics(std::string graph) : name(std::move(graph)) {}
  const std::string name;
  Counter steps;
  Counter replays;         // of steps that several requests ran together one
  Counter rows;            // that ran
  Counter padding_rows;    // of decode buckets
  Counter tokens;          // query tokens that ran
  Counter padding_tokens;  // bucket's capacity in tokens, less those
  Histogram device;        // of each replay, by the device's clock
  Histogram wall;          // of each request: message received to answer made
  Histogram queue;         // of each request: waiting for a place in the pipeline
  // Of each request: the host's part, checking and writing; and launching, of a replay's first.
  Histogram launch;

  std::atomic<GraphMetrics*> next = nullptr;  // in the order in which they were named
};

class StepMetrics {
 public:
  explicit StepMetrics(const std::vector<std::string>& graphs);
  // Names more graphs; those that were named stay, with what was counted. At most kMaxGraphs in
  // all: further ones count as "other".
  void AddGraphs(const std::vector<std::string>& graphs);
  static constexpr size_t kMaxGraphs = 2048;

  // A request that ran, with the engine's result. `answered_ns`: NowNs() when its answer was made.
  void NoteAnswered(const engine::StepRequest& request, const StepTimes& times,
                    const engine::StepResult& result, uint64_t answered_ns);

  // Calls `visit(metrics)` for each graph; the last is of graphs that nobody named, "other", such
  // as those of stamped and unpadded steps.
  template <typename Visit>
  void ForEachGraph(Visit visit) const {
    for (const GraphMetrics* graph = first_.load(std::memory_order_acquire); graph != nullptr;
         graph = graph->next.load(std::memory_order_acquire))
      visit(*graph);
    visit(other_);
  }
  uint64_t sampled_tokens() const { return sampled_tokens_.value(); }
  uint64_t prompt_tokens() const { return prompt_tokens_.value(); }
  uint64_t draft_tokens() const { return draft_tokens_.value(); }
  uint64_t accepted_tokens() const { return accepted_tokens_.value(); }
  uint64_t eager_steps() const { return eager_steps_.value(); }

 private:
  GraphMetrics& GraphOf(std::string_view name);

  std::mutex naming_;
  std::deque<GraphMetrics> graphs_;             // which cannot be moved; under naming_
  std::atomic<GraphMetrics*> first_ = nullptr;  // of graphs_, which those who count follow
  GraphMetrics other_{"other"};
  Counter sampled_tokens_;
  Counter prompt_tokens_;
  Counter draft_tokens_;
  Counter accepted_tokens_;
  Counter eager_steps_;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_METRICS_STEP_METRICS_H_
