// SPDX-License-Identifier: Apache-2.0
// Graphs of the caller's own work, of reprise.h.
#include "graphs/graph_manager.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "capi/bucket_info.h"
#include "capi/call.h"
#include "capi/handles.h"
#include "capi/reprise.h"
#include "runtime/status_macros.h"

namespace reprise::capi {

absl::Status WriteBucket(std::span<const graphs::CapturedBucket> buckets, size_t index,
                         reprise_bucket_info* out) {
  if (index >= buckets.size()) {
    return absl::OutOfRangeError(
        absl::StrCat("bucket: index is ", index, "; allowed: less than ", buckets.size()));
  }
  const graphs::CapturedBucket& from = buckets[index];
  reprise_bucket_info value = {};
  value.name = from.bucket.name.c_str();
  value.capacity = from.bucket.capacity;
  value.num_kernel_nodes = from.num_kernel_nodes;
  value.num_other_nodes = from.num_other_nodes;
  value.capture_ns = from.capture_ns;
  value.device_bytes = from.device_bytes;
  return WriteStruct(value, out);
}

namespace {

using graphs::GraphManager;

absl::Status CreateManager(const reprise_stream* stream, const reprise_graph_options* given,
                           reprise_enqueue_fn enqueue, void* context,
                           reprise_graph_manager** manager) {
  REPRISE_RETURN_IF_ERROR(CheckHandle(stream));
  REPRISE_RETURN_IF_ERROR(CheckNotNull("graph manager", manager));
  if (enqueue == nullptr) return CheckNotNull("enqueue", nullptr);
  reprise_graph_options options = {};
  REPRISE_RETURN_IF_ERROR(ReadStruct(given, &options));
  REPRISE_RETURN_IF_ERROR(CheckArray("buckets", options.buckets, options.num_buckets));
  REPRISE_ASSIGN_OR_RETURN(const bool warm_up, ReadSwitch("warm_up", options.warm_up));
  auto made = std::make_unique<reprise_graph_manager>();
  made->shared = stream->shared;
  made->stream.shared = stream->shared;
  graphs::GraphManagerOptions manager_options{
      .buckets = {options.buckets, options.buckets + options.num_buckets}, .warm_up = warm_up};
  if (options.name_prefix != nullptr) manager_options.name_prefix = options.name_prefix;
  // `made` lives as long as the function does.
  const auto call = [enqueue, context, own = &made->stream](runtime::Stream&,
                                                            const graphs::Bucket& bucket) {
    reprise_error error = {};
    return FromCaller(enqueue(context, own, bucket.capacity, &error), error, "enqueue");
  };
  REPRISE_ASSIGN_OR_RETURN(
      made->manager, GraphManager::Create(*made->shared->stream, std::move(manager_options), call));
  *manager = made.release();
  return absl::OkStatus();
}

// Both ways to run a bucket.
using Run = absl::StatusOr<graphs::ReplayReport> (GraphManager::*)(int64_t);
absl::Status RunBucket(const reprise_graph_manager* manager, Run run, int64_t size,
                       reprise_replay_report* report) {
  REPRISE_RETURN_IF_ERROR(CheckHandle(manager));
  if (report != nullptr) {  // before anything runs
    using S = StructOf<reprise_replay_report>;
    REPRISE_RETURN_IF_ERROR(CheckStructSize(S::kName, report->struct_size, S::kFirstBytes));
  }
  REPRISE_ASSIGN_OR_RETURN(const graphs::ReplayReport ran, (manager->manager.get()->*run)(size));
  if (report == nullptr) return absl::OkStatus();
  reprise_replay_report value = {};
  value.graph = ran.graph.data();  // a bucket's name, a std::string
  value.capacity = ran.capacity;
  value.padding = ran.padding;
  return WriteStruct(value, report);
}

}  // namespace
}  // namespace reprise::capi

using reprise::capi::Call;
using reprise::capi::CheckHandle;

reprise_code reprise_graph_options_init(reprise_graph_options* options, size_t struct_size,
                                        reprise_error* error) {
  return Call(error, [&] {
    reprise_graph_options defaults = {};
    defaults.warm_up = reprise::graphs::GraphManagerOptions().warm_up;
    return reprise::capi::WriteStruct(defaults, struct_size, options);
  });
}

reprise_code reprise_graph_manager_create(reprise_stream* stream,
                                          const reprise_graph_options* options,
                                          reprise_enqueue_fn enqueue, void* context,
                                          reprise_graph_manager** manager, reprise_error* error) {
  return Call(error, [&] {
    return reprise::capi::CreateManager(stream, options, enqueue, context, manager);
  });
}

reprise_code reprise_graph_manager_destroy(reprise_graph_manager* manager) {
  return reprise::capi::Destroy(manager);
}

reprise_code reprise_graph_manager_replay(reprise_graph_manager* manager, int64_t size,
                                          reprise_replay_report* report, reprise_error* error) {
  return Call(error, [&] {
    return reprise::capi::RunBucket(manager, &reprise::graphs::GraphManager::Replay, size, report);
  });
}

reprise_code reprise_graph_manager_run_eager(reprise_graph_manager* manager, int64_t size,
                                             reprise_replay_report* report, reprise_error* error) {
  return Call(error, [&] {
    return reprise::capi::RunBucket(manager, &reprise::graphs::GraphManager::RunEager, size,
                                    report);
  });
}

size_t reprise_graph_manager_num_buckets(const reprise_graph_manager* manager) {
  return CheckHandle(manager).ok() ? manager->manager->captured().size() : 0;
}

reprise_code reprise_graph_manager_get_bucket(const reprise_graph_manager* manager, size_t index,
                                              reprise_bucket_info* bucket, reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(CheckHandle(manager));
    return reprise::capi::WriteBucket(manager->manager->captured(), index, bucket);
  });
}
