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
#include "capi/graph_options.h"
#include "capi/handles.h"
#include "capi/reprise.h"
#include "runtime/status_macros.h"

namespace reprise::capi {
namespace {

absl::Status CheckIndex(size_t index, size_t count) {
  if (index < count) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("bucket: index is ", index, "; allowed: less than ", count));
}

}  // namespace

absl::Status WriteBucket(std::span<const graphs::CapturedBucket> buckets, size_t index,
                         reprise_bucket_info* out) {
  REPRISE_RETURN_IF_ERROR(CheckIndex(index, buckets.size()));
  const graphs::CapturedBucket& from = buckets[index];
  reprise_bucket_info value = {};
  value.name = from.bucket.name.c_str();
  value.capacity = from.bucket.capacity;
  value.num_kernel_nodes = from.num_kernel_nodes;
  value.num_other_nodes = from.num_other_nodes;
  value.capture_ns = from.capture_ns;
  value.device_bytes = from.device_bytes;
  value.tokens = from.bucket.tokens;
  return WriteStruct(value, out);
}

namespace {

using graphs::BatchShape;
using graphs::GraphManager;

absl::Status CreateManager(const reprise_stream* stream, const reprise_graph_options* given,
                           reprise_enqueue_fn enqueue, void* context,
                           reprise_graph_manager** manager) {
  REPRISE_RETURN_IF_ERROR(CheckHandle(stream));
  REPRISE_RETURN_IF_ERROR(CheckNotNull("graph manager", manager));
  reprise_graph_options options = {};
  REPRISE_RETURN_IF_ERROR(ReadStruct(given, &options));
  auto made = std::make_unique<reprise_graph_manager>();
  made->shared = stream->shared;
  made->stream.shared = stream->shared;
  REPRISE_ASSIGN_OR_RETURN(auto function, Enqueuing(options, enqueue, context, *made));
  REPRISE_ASSIGN_OR_RETURN(auto manager_options, ManagerOptions(options, context, *made));
  REPRISE_ASSIGN_OR_RETURN(
      made->manager,
      GraphManager::Create(*made->shared->stream, std::move(manager_options), std::move(function)));
  made->errors.resize(made->manager->table().buckets().size());
  *manager = made.release();
  return absl::OkStatus();
}

// Of an output that may be NULL, before anything runs.
template <typename T>
absl::Status CheckReport(const T* report) {
  if (report == nullptr) return absl::OkStatus();
  return CheckStructSize(StructOf<T>::kName, report->struct_size, StructOf<T>::kFirstBytes);
}

// Both ways to run a bucket.
using Run = absl::StatusOr<graphs::ReplayReport> (GraphManager::*)(const BatchShape&);
absl::Status RunBucket(const reprise_graph_manager* manager, Run run, const BatchShape& batch,
                       reprise_replay_report* report) {
  REPRISE_RETURN_IF_ERROR(CheckHandle(manager));
  REPRISE_RETURN_IF_ERROR(CheckReport(report));
  REPRISE_ASSIGN_OR_RETURN(const graphs::ReplayReport ran, (manager->manager.get()->*run)(batch));
  if (report == nullptr) return absl::OkStatus();
  reprise_replay_report value = {};
  value.graph = ran.graph.data();  // a bucket's name, a std::string
  value.capacity = ran.capacity;
  value.padding = ran.padding;
  value.tokens = ran.tokens;
  value.replayed = ran.replayed;
  return WriteStruct(value, report);
}

absl::Status Verify(const reprise_graph_manager* manager, const BatchShape& batch,
                    const reprise_memory_range* memory, size_t num_ranges,
                    reprise_verify_report* report) {
  REPRISE_RETURN_IF_ERROR(CheckHandle(manager));
  REPRISE_RETURN_IF_ERROR(CheckReport(report));
  REPRISE_ASSIGN_OR_RETURN(const auto ranges, MemoryRanges("memory", memory, num_ranges));
  REPRISE_ASSIGN_OR_RETURN(const graphs::VerifyReport verified,
                           manager->manager->Verify(batch, ranges));
  if (report == nullptr) return absl::OkStatus();
  reprise_verify_report value = {};
  value.graph = verified.graph.data();
  value.bytes = verified.bytes;
  return WriteStruct(value, report);
}

absl::Status Audit(reprise_graph_manager* manager, const BatchShape& batch,
                   reprise_audit_report* report) {
  REPRISE_RETURN_IF_ERROR(CheckHandle(manager));
  REPRISE_RETURN_IF_ERROR(CheckNotNull("audit report", report));
  REPRISE_RETURN_IF_ERROR(CheckReport(report));
  REPRISE_ASSIGN_OR_RETURN(const graphs::AuditReport from, manager->manager->Audit(batch));
  reprise_graph_manager::Audit& to = manager->audit;
  to = {};
  for (const graphs::ForeignPointer& pointer : from.foreign) {
    to.node.push_back(pointer.node);
    to.kernel.push_back(pointer.kernel);
    to.offset.push_back(pointer.offset);
    to.address.push_back(pointer.address);
  }
  for (const std::string& kernel : to.kernel) to.kernel_text.push_back(kernel.c_str());
  reprise_audit_report value = {};
  value.graph = from.graph.data();
  value.num_kernels = static_cast<uint64_t>(from.num_kernels);
  value.num_pointers = static_cast<uint64_t>(from.num_pointers);
  value.num_untold = static_cast<uint64_t>(from.num_untold);
  value.num_foreign = to.node.size();
  value.foreign_node = to.node.data();
  value.foreign_kernel = to.kernel_text.data();
  value.foreign_offset = to.offset.data();
  value.foreign_address = to.address.data();
  return WriteStruct(value, report);
}

absl::Status MoveBuffer(const reprise_graph_manager* manager, const char* name, void* data,
                        reprise_move_report* report) {
  REPRISE_RETURN_IF_ERROR(CheckHandle(manager));
  REPRISE_RETURN_IF_ERROR(CheckReport(report));
  REPRISE_RETURN_IF_ERROR(CheckNotNull("name", name));
  REPRISE_ASSIGN_OR_RETURN(const graphs::MoveReport moved,
                           manager->manager->MoveBuffer(name, data));
  if (report == nullptr) return absl::OkStatus();
  reprise_move_report value = {};
  value.num_graphs = static_cast<uint64_t>(moved.num_graphs);
  value.num_nodes = static_cast<uint64_t>(moved.num_nodes);
  value.update_ns = moved.update_ns;
  value.num_recaptured = static_cast<uint64_t>(moved.num_recaptured);
  return WriteStruct(value, report);
}

reprise_bucket_state NumberOf(graphs::BucketState state) {
  switch (state) {
    case graphs::BucketState::kPending:
      return REPRISE_BUCKET_PENDING;
    case graphs::BucketState::kCaptured:
      return REPRISE_BUCKET_CAPTURED;
    case graphs::BucketState::kFailed:
      return REPRISE_BUCKET_FAILED;
    case graphs::BucketState::kEvicted:
      break;
  }
  return REPRISE_BUCKET_EVICTED;
}

absl::Status GetReport(reprise_graph_manager* manager, size_t index,
                       reprise_bucket_report* report) {
  REPRISE_RETURN_IF_ERROR(CheckHandle(manager));
  REPRISE_RETURN_IF_ERROR(CheckNotNull("bucket report", report));
  REPRISE_RETURN_IF_ERROR(CheckReport(report));
  const std::vector<graphs::BucketReport> reports = manager->manager->Report();
  REPRISE_RETURN_IF_ERROR(CheckIndex(index, reports.size()));
  const graphs::BucketReport& from = reports[index];
  std::string& message = manager->errors[index];
  message = std::string(from.error.message());
  reprise_bucket_report value = {};
  value.name = manager->manager->table().buckets()[index].name.c_str();
  value.rows = from.bucket.capacity;
  value.tokens = from.bucket.tokens;
  value.state = NumberOf(from.state);
  value.error_code = static_cast<reprise_code>(from.error.code());
  value.error_message = message.c_str();
  value.num_kernel_nodes = from.num_kernel_nodes;
  value.num_other_nodes = from.num_other_nodes;
  value.capture_ns = from.capture_ns;
  value.graph_bytes = from.graph_bytes;
  value.num_captures = from.num_captures;
  value.num_evictions = from.num_evictions;
  value.num_replays = from.num_replays;
  value.num_eager_runs = from.num_eager_runs;
  value.used_cells = from.used_cells;
  value.padding_cells = from.padding_cells;
  value.workspace_bytes = from.bucket.workspace_bytes;
  return WriteStruct(value, report);
}

}  // namespace
}  // namespace reprise::capi

using reprise::capi::Call;
using reprise::capi::CheckHandle;
using reprise::graphs::BatchShape;
using reprise::graphs::GraphManager;

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
    return reprise::capi::RunBucket(manager, &GraphManager::Replay, {.rows = size}, report);
  });
}

reprise_code reprise_graph_manager_run_eager(reprise_graph_manager* manager, int64_t size,
                                             reprise_replay_report* report, reprise_error* error) {
  return Call(error, [&] {
    return reprise::capi::RunBucket(manager, &GraphManager::RunEager, {.rows = size}, report);
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

reprise_code reprise_graph_manager_replay_batch(reprise_graph_manager* manager, int64_t rows,
                                                int64_t tokens, reprise_replay_report* report,
                                                reprise_error* error) {
  return Call(error, [&] {
    const BatchShape batch{.rows = rows, .tokens = tokens};
    return reprise::capi::RunBucket(manager, &GraphManager::Replay, batch, report);
  });
}

reprise_code reprise_graph_manager_run_eager_batch(reprise_graph_manager* manager, int64_t rows,
                                                   int64_t tokens, reprise_replay_report* report,
                                                   reprise_error* error) {
  return Call(error, [&] {
    const BatchShape batch{.rows = rows, .tokens = tokens};
    return reprise::capi::RunBucket(manager, &GraphManager::RunEager, batch, report);
  });
}

reprise_code reprise_graph_manager_recapture(reprise_graph_manager* manager, int64_t rows,
                                             int64_t tokens, reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(CheckHandle(manager));
    return manager->manager->Recapture({.rows = rows, .tokens = tokens});
  });
}

reprise_code reprise_graph_manager_wait_for_captures(reprise_graph_manager* manager,
                                                     reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(CheckHandle(manager));
    return manager->manager->WaitForCaptures();
  });
}

reprise_code reprise_graph_manager_verify(reprise_graph_manager* manager, int64_t rows,
                                          int64_t tokens, const reprise_memory_range* memory,
                                          size_t num_ranges, reprise_verify_report* report,
                                          reprise_error* error) {
  return Call(error, [&] {
    const BatchShape batch{.rows = rows, .tokens = tokens};
    return reprise::capi::Verify(manager, batch, memory, num_ranges, report);
  });
}

reprise_code reprise_graph_manager_audit(reprise_graph_manager* manager, int64_t rows,
                                         int64_t tokens, reprise_audit_report* report,
                                         reprise_error* error) {
  return Call(error, [&] {
    return reprise::capi::Audit(manager, {.rows = rows, .tokens = tokens}, report);
  });
}

reprise_code reprise_graph_manager_move_buffer(reprise_graph_manager* manager, const char* name,
                                               void* data, reprise_move_report* report,
                                               reprise_error* error) {
  return Call(error, [&] { return reprise::capi::MoveBuffer(manager, name, data, report); });
}

reprise_code reprise_graph_manager_get_report(reprise_graph_manager* manager, size_t index,
                                              reprise_bucket_report* report, reprise_error* error) {
  return Call(error, [&] { return reprise::capi::GetReport(manager, index, report); });
}

size_t reprise_graph_manager_workspace_bytes(const reprise_graph_manager* manager) {
  return CheckHandle(manager).ok() ? manager->manager->workspace_bytes() : 0;
}
