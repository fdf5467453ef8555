// SPDX-License-Identifier: Apache-2.0
// Bucket: one size that a graph is captured for, the function that enqueues its work, and what was
// captured. Data alone; graph_manager.h does something with it.
#ifndef REPRISE_GRAPHS_BUCKET_H_
#define REPRISE_GRAPHS_BUCKET_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace reprise::runtime {
class Stream;
}

namespace reprise::graphs {

// How much a batch needs, or a bucket has, in two dimensions. Work that is batched by one thing
// leaves `tokens` at 1.
struct BatchShape {
  int64_t rows = 0;
  int64_t tokens = 1;  // of a row
  bool operator==(const BatchShape&) const = default;
};

// One captured size. `capacity` counts whatever the embedder batches by: rows, tokens, requests.
struct Bucket {
  int index = 0;
  int64_t capacity = 0;
  std::string name;    // "<prefix>/<capacity>", or "<prefix>/<capacity>x<tokens>"
  int64_t tokens = 1;  // the second dimension
  // Device memory that all buckets share, and how much of it this one asked for; see
  // GraphManagerOptions. The graph holds the address.
  void* workspace = nullptr;
  size_t workspace_bytes = 0;

  BatchShape shape() const { return {.rows = capacity, .tokens = tokens}; }
  int64_t cells() const { return capacity * tokens; }
  bool Fits(const BatchShape& batch) const {
    return batch.rows <= capacity && batch.tokens <= tokens;
  }
};

// Enqueues the whole work of one bucket on `stream`: launches only, no allocation, no
// synchronisation. Called once eagerly for warm-up (if asked for), once under each capture, and
// again for every eager run; never by two threads at once.
using EnqueueFn = std::function<absl::Status(runtime::Stream& stream, const Bucket& bucket)>;

// What was captured, per bucket.
struct CapturedBucket {
  Bucket bucket;
  int num_kernel_nodes = 0;
  int num_other_nodes = 0;
  uint64_t capture_ns = 0;  // capture + instantiate + upload
  size_t device_bytes = 0;  // measured
};

}  // namespace reprise::graphs

#endif  // REPRISE_GRAPHS_BUCKET_H_
