// SPDX-License-Identifier: Apache-2.0
#include "capi/graph_options.h"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "capi/call.h"
#include "runtime/status_macros.h"

namespace reprise::capi {
namespace {

using graphs::BatchShape;
using graphs::Bucket;
using graphs::CaptureMode;
using graphs::GraphManagerOptions;
using graphs::WhilePending;

constexpr std::array kModes = {CaptureMode::kEager, CaptureMode::kLazy, CaptureMode::kBackground};
constexpr std::array kPending = {WhilePending::kWait, WhilePending::kLarger,
                                 WhilePending::kRunEager};

// The one of `values` that has this number.
template <typename T>
absl::StatusOr<T> ByNumber(std::string_view field, int32_t number, const std::array<T, 3>& values,
                           std::string_view names) {
  if (number >= 0 && static_cast<size_t>(number) < values.size())
    return values[static_cast<size_t>(number)];
  return absl::InvalidArgumentError(absl::StrCat("graph options: ", std::string(field), " is ",
                                                 number, "; allowed: ", std::string(names)));
}

// The handle of the stream that the manager enqueues on: its caller's, or its own thread's.
reprise_stream* HandleOf(runtime::Stream& stream, reprise_graph_manager& manager) {
  if (&stream == manager.shared->stream) return &manager.stream;
  if (manager.capture_stream.shared == nullptr) {
    auto shared = std::make_shared<SharedStream>();
    shared->device = manager.shared->device;
    shared->stream = &stream;
    manager.capture_stream.shared = std::move(shared);
  }
  return &manager.capture_stream;
}

// A query, which waits for nothing and is refused in a capture.
bool IsCapturing(runtime::Stream& stream) { return absl::IsFailedPrecondition(stream.Query()); }

reprise_bucket BucketOf(const Bucket& from, bool capturing) {
  return {.struct_size = sizeof(reprise_bucket),
          .name = from.name.c_str(),
          .rows = from.capacity,
          .tokens = from.tokens,
          .workspace = from.workspace,
          .workspace_bytes = from.workspace_bytes,
          .index = static_cast<uint64_t>(from.index),
          .capturing = capturing ? 1u : 0u};
}

reprise_batch_shape ShapeOf(const BatchShape& from) {
  return {.rows = from.rows, .tokens = from.tokens};
}

graphs::BucketPolicy Policy(reprise_bucket_policy_fn policy, void* context,
                            reprise_graph_manager& manager) {
  if (policy == nullptr) return {};
  return [policy, context, &manager](std::span<const Bucket> buckets, const BatchShape& batch) {
    // They stay as they are.
    if (manager.shapes.empty())
      for (const Bucket& bucket : buckets) manager.shapes.push_back(ShapeOf(bucket.shape()));
    const reprise_batch_shape wanted = ShapeOf(batch);
    const int64_t index = policy(context, manager.shapes.data(), manager.shapes.size(), &wanted);
    if (index < 0) return -1;
    return index > INT32_MAX ? INT32_MAX : static_cast<int>(index);
  };
}

absl::Status ReadBuckets(const reprise_graph_options& given, GraphManagerOptions* options) {
  REPRISE_RETURN_IF_ERROR(CheckArray("buckets", given.buckets, given.num_buckets));
  REPRISE_RETURN_IF_ERROR(CheckArray("shapes", given.shapes, given.num_shapes));
  options->buckets.assign(given.buckets, given.buckets + given.num_buckets);
  for (const reprise_batch_shape& shape : std::span(given.shapes, given.num_shapes))
    options->shapes.push_back({.rows = shape.rows, .tokens = shape.tokens});
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<graphs::MemoryRange>> MemoryRanges(std::string_view name,
                                                              const reprise_memory_range* ranges,
                                                              size_t num_ranges) {
  REPRISE_RETURN_IF_ERROR(CheckArray(name, ranges, num_ranges));
  std::vector<graphs::MemoryRange> list;
  for (const reprise_memory_range& range : std::span(ranges, num_ranges)) {
    if (range.name == nullptr || range.data == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(std::string(name), ": range ", list.size(),
                                                     " has NULL for its ",
                                                     range.name == nullptr ? "name" : "data"));
    }
    list.push_back({.name = range.name, .data = range.data, .bytes = range.bytes});
  }
  return list;
}

absl::StatusOr<GraphManagerOptions> ManagerOptions(const reprise_graph_options& given,
                                                   void* context, reprise_graph_manager& manager) {
  GraphManagerOptions options;
  REPRISE_RETURN_IF_ERROR(ReadBuckets(given, &options));
  if (given.name_prefix != nullptr) options.name_prefix = given.name_prefix;
  REPRISE_ASSIGN_OR_RETURN(options.warm_up, ReadSwitch("warm_up", given.warm_up));
  options.policy = Policy(given.policy, context, manager);
  REPRISE_ASSIGN_OR_RETURN(options.capture, ByNumber("capture", given.capture, kModes,
                                                     "0 (eager), 1 (lazy), 2 (background)"));
  REPRISE_ASSIGN_OR_RETURN(options.while_pending,
                           ByNumber("while_pending", given.while_pending, kPending,
                                    "0 (wait), 1 (larger), 2 (run eager)"));
  options.max_graph_bytes = given.max_graph_bytes;
  options.max_graphs = given.max_graphs;
  options.device = manager.shared->device.get();
  REPRISE_ASSIGN_OR_RETURN(options.buffers,
                           MemoryRanges("buffers", given.buffers, given.num_buffers));
  if (given.workspace_bytes != nullptr) {
    options.workspace_bytes = [ask = given.workspace_bytes, context](const Bucket& bucket) {
      const reprise_batch_shape shape = ShapeOf(bucket.shape());
      return ask(context, &shape);
    };
  }
  if (given.on_capture_thread != nullptr) {
    options.on_capture_thread = [begin = given.on_capture_thread, context] {
      reprise_error error = {};
      return FromCaller(begin(context, &error), error, "on_capture_thread");
    };
  }
  if (given.progress != nullptr) {
    options.progress = [report = given.progress, context](const graphs::CaptureProgress& progress) {
      report(context, std::string(progress.bucket).c_str(), static_cast<uint64_t>(progress.done),
             static_cast<uint64_t>(progress.total));
    };
  }
  return options;
}

absl::StatusOr<graphs::EnqueueFn> Enqueuing(const reprise_graph_options& given,
                                            reprise_enqueue_fn enqueue, void* context,
                                            reprise_graph_manager& manager) {
  if (given.enqueue_bucket == nullptr) {
    if (enqueue == nullptr) return CheckNotNull("enqueue", nullptr);
    return [enqueue, context, &manager](runtime::Stream& stream, const Bucket& bucket) {
      reprise_error error = {};
      return FromCaller(enqueue(context, HandleOf(stream, manager), bucket.capacity, &error), error,
                        "enqueue");
    };
  }
  if (enqueue != nullptr) {
    return absl::InvalidArgumentError(
        "enqueue and enqueue_bucket are both given; allowed: one of them");
  }
  return [enqueue_bucket = given.enqueue_bucket, context, &manager](runtime::Stream& stream,
                                                                    const Bucket& bucket) {
    reprise_error error = {};
    const reprise_bucket told = BucketOf(bucket, IsCapturing(stream));
    return FromCaller(enqueue_bucket(context, HandleOf(stream, manager), &told, &error), error,
                      "enqueue_bucket");
  };
}

}  // namespace reprise::capi
