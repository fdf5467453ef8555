// SPDX-License-Identifier: Apache-2.0
// Buckets, their capture and their replay; see graph_manager.h.
#include "graphs/graph_manager.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graphs/capture_work.h"
#include "graphs/capture_worker.h"
#include "graphs/graph_pointers.h"
#include "graphs/graph_store.h"
#include "graphs/memory_snapshot.h"
#include "runtime/captured_node.h"
#include "runtime/status_macros.h"

namespace reprise::graphs {
namespace {

// The same error, saying which bucket and what was being done to it.
absl::Status InBucket(const absl::Status& status, const Bucket& bucket, absl::string_view doing) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("bucket '", bucket.name, "', ", doing, ": ", status.message()));
}

ReplayReport ReportOf(const Bucket& bucket, const BatchShape& batch, bool replayed) {
  return {.graph = bucket.name,
          .capacity = bucket.capacity,
          .padding = bucket.cells() - batch.rows * batch.tokens,
          .tokens = bucket.tokens,
          .replayed = replayed};
}

absl::Status CheckOptions(const GraphManagerOptions& options) {
  if (!options.buckets.empty() && !options.shapes.empty()) {
    return absl::InvalidArgumentError("buckets and shapes are both given; allowed: one of them");
  }
  const bool needs_device = options.capture == CaptureMode::kBackground || options.workspace_bytes;
  if (needs_device && options.device == nullptr) {
    return absl::InvalidArgumentError(
        "device is null; allowed with capture kBackground and with workspace_bytes: the stream's");
  }
  for (auto buffer = options.buffers.begin(); buffer != options.buffers.end(); ++buffer) {
    if (buffer->data == nullptr || buffer->bytes == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("buffer '", buffer->name, "' is null or empty"));
    }
    const auto same = [&](const MemoryRange& other) { return other.name == buffer->name; };
    if (std::any_of(options.buffers.begin(), buffer, same))
      return absl::InvalidArgumentError(absl::StrCat("buffer '", buffer->name, "' is there twice"));
  }
  return absl::OkStatus();
}

}  // namespace

GraphManager::GraphManager(runtime::Stream& stream, BucketTable table, GraphManagerOptions options,
                           EnqueueFn enqueue)
    : stream_(&stream),
      table_(std::move(table)),
      options_(std::move(options)),
      enqueue_(std::move(enqueue)),
      buffers_(options_.buffers),
      wanted_(table_.buckets().size()) {}

GraphManager::~GraphManager() = default;

absl::StatusOr<std::unique_ptr<GraphManager>> GraphManager::Create(runtime::Stream& stream,
                                                                   GraphManagerOptions options,
                                                                   EnqueueFn enqueue) {
  if (enqueue == nullptr) return absl::InvalidArgumentError("the enqueue function is empty");
  REPRISE_RETURN_IF_ERROR(CheckOptions(options));
  REPRISE_ASSIGN_OR_RETURN(BucketTable table,
                           options.shapes.empty()
                               ? BucketTable::Create(options.buckets, options.name_prefix)
                               : BucketTable::CreateGrid(options.shapes, options.name_prefix));
  // As in CheckStream.
  REPRISE_RETURN_IF_ERROR(stream.Synchronize());
  std::unique_ptr<GraphManager> manager(
      new GraphManager(stream, std::move(table), std::move(options), std::move(enqueue)));
  REPRISE_RETURN_IF_ERROR(manager->AllocateWorkspace());
  const GraphManagerOptions& kept = manager->options_;
  manager->store_ = std::make_unique<GraphStore>(
      stream, manager->table_.buckets(),
      GraphLimits{.max_bytes = kept.max_graph_bytes, .max_graphs = kept.max_graphs});
  if (!kept.buffers.empty()) runtime::KeepNodes(stream);
  REPRISE_RETURN_IF_ERROR(manager->CaptureAhead());
  if (kept.capture == CaptureMode::kBackground) REPRISE_RETURN_IF_ERROR(manager->StartWorker());
  return manager;
}

absl::Status GraphManager::AllocateWorkspace() {
  if (!options_.workspace_bytes) return absl::OkStatus();
  std::vector<size_t> bytes;
  for (const Bucket& bucket : table_.buckets()) bytes.push_back(options_.workspace_bytes(bucket));
  const size_t most = *std::max_element(bytes.begin(), bytes.end());
  if (most == 0) return absl::OkStatus();
  REPRISE_ASSIGN_OR_RETURN(workspace_, runtime::DeviceBuffer::Create(*options_.device, most));
  table_.SetWorkspace(workspace_.data(), bytes);
  return absl::OkStatus();
}

// Largest first: what the driver sets aside for the largest serves the others.
absl::Status GraphManager::CaptureAhead() {
  bool capture = options_.capture == CaptureMode::kEager;
  const std::span<const Bucket> buckets = table_.buckets();
  for (auto bucket = buckets.rbegin(); bucket != buckets.rend(); ++bucket) {
    if (options_.warm_up) {
      const absl::Status enqueued = Enqueue(*stream_, *bucket);
      // Launch by launch, to its end, so that a fault shows here with the bucket's name. Also after
      // an error: what was enqueued before it must not outlive what it works on.
      const absl::Status ran = stream_->Synchronize();
      REPRISE_RETURN_IF_ERROR(InBucket(enqueued.ok() ? ran : enqueued, *bucket, "warm-up"));
    }
    if (!capture) continue;
    REPRISE_ASSIGN_OR_RETURN(CaptureResult result, CaptureOn(*stream_, *bucket));
    REPRISE_RETURN_IF_ERROR(store_->Put(bucket->index, std::move(result)));
    if (store_->over_limit()) {
      REPRISE_RETURN_IF_ERROR(store_->Evict(bucket->index));
      capture = false;
    } else {
      ReportProgress(*bucket);
    }
  }
  return absl::OkStatus();
}

absl::Status GraphManager::StartWorker() {
  REPRISE_ASSIGN_OR_RETURN(capture_stream_, options_.device->CreateStream());
  if (!buffers_.empty()) runtime::KeepNodes(*capture_stream_);
  auto capture = [this, started = false,
                  ready = absl::Status()](int index) mutable -> absl::StatusOr<CaptureResult> {
    const Bucket& bucket = table_.buckets()[static_cast<size_t>(index)];
    if (!std::exchange(started, true) && options_.on_capture_thread)
      ready = options_.on_capture_thread();
    if (!ready.ok()) return InBucket(ready, bucket, "capture thread");
    return CaptureOn(*capture_stream_, bucket);
  };
  REPRISE_ASSIGN_OR_RETURN(worker_, CaptureWorker::Start(std::move(capture)));
  const std::span<const Bucket> buckets = table_.buckets();
  for (auto bucket = buckets.rbegin(); bucket != buckets.rend(); ++bucket)
    worker_->Append(bucket->index);
  return absl::OkStatus();
}

absl::StatusOr<const Bucket*> GraphManager::Pick(const BatchShape& batch) const {
  if (!options_.policy) return table_.SmallestThatFits(batch);
  REPRISE_RETURN_IF_ERROR(table_.CheckShape(batch));
  const std::span<const Bucket> buckets = table_.buckets();
  const int index = options_.policy(buckets, batch);
  if (index < 0) return table_.TooLarge(batch);
  if (static_cast<size_t>(index) >= buckets.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy: bucket index is ", index, "; allowed: less than ", buckets.size()));
  }
  const Bucket& bucket = buckets[static_cast<size_t>(index)];
  if (!bucket.Fits(batch)) {
    return absl::InvalidArgumentError(absl::StrCat("policy: bucket '", bucket.name,
                                                   "' is too small for ", batch.rows, " rows of ",
                                                   batch.tokens, " tokens"));
  }
  return &bucket;
}

absl::StatusOr<const Bucket*> GraphManager::PickCaptured(const BatchShape& batch) {
  REPRISE_ASSIGN_OR_RETURN(const Bucket* bucket, Pick(batch));
  if (worker_ != nullptr) REPRISE_RETURN_IF_ERROR(TakeBackgroundCaptures());
  if (store_->graph(bucket->index) != nullptr) return bucket;
  return MakeReady(*bucket, batch, WhilePending::kWait);
}

absl::Status GraphManager::Enqueue(runtime::Stream& stream, const Bucket& bucket) {
  std::lock_guard<std::mutex> lock(enqueue_mutex_);
  return enqueue_(stream, bucket);
}

// On any thread; touches nothing but the stream and what the function does.
absl::StatusOr<CaptureResult> GraphManager::CaptureOn(runtime::Stream& stream,
                                                      const Bucket& bucket) {
  const auto start = std::chrono::steady_clock::now();
  auto graph = CaptureWork(stream, [&] { return Enqueue(stream, bucket); });
  if (!graph.ok()) return InBucket(graph.status(), bucket, "capture");
  if ((*graph)->num_kernel_nodes() + (*graph)->num_other_nodes() == 0) {
    return InBucket(
        absl::InvalidArgumentError("the function enqueued nothing on the stream that it was given"),
        bucket, "capture");
  }
  const auto took = std::chrono::steady_clock::now() - start;
  const CapturedBucket captured = {
      .bucket = bucket,
      .num_kernel_nodes = (*graph)->num_kernel_nodes(),
      .num_other_nodes = (*graph)->num_other_nodes(),
      .capture_ns =
          static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(took).count()),
      .device_bytes = (*graph)->device_bytes()};
  return CaptureResult{.captured = captured, .graph = *std::move(graph)};
}

// An older fault, or a capture that is under way, is the caller's and not the next bucket's.
absl::Status GraphManager::CheckStream() {
  const absl::Status state = stream_->Query();
  return absl::IsUnavailable(state) ? absl::OkStatus() : state;
}

absl::Status GraphManager::CaptureNow(const Bucket& bucket) {
  REPRISE_RETURN_IF_ERROR(InBucket(CheckStream(), bucket, "capture"));
  auto result = CaptureOn(*stream_, bucket);
  if (!result.ok()) {
    REPRISE_RETURN_IF_ERROR(store_->Fail(bucket.index, result.status()));
    return result.status();
  }
  REPRISE_RETURN_IF_ERROR(store_->Put(bucket.index, *std::move(result)));
  return store_->Trim(bucket.index);
}

void GraphManager::ReportProgress(const Bucket& bucket) {
  ++num_captured_;
  if (!options_.progress) return;
  options_.progress({.done = num_captured_,
                     .total = static_cast<int>(table_.buckets().size()),
                     .bucket = bucket.name});
}

absl::Status GraphManager::TakeBackgroundCaptures(int keep) {
  for (CaptureWorker::Done& done : worker_->TakeDone()) {
    const Bucket& bucket = table_.buckets()[static_cast<size_t>(done.bucket)];
    const bool wanted = wanted_[static_cast<size_t>(done.bucket)];
    wanted_[static_cast<size_t>(done.bucket)] = false;
    if (!done.result.ok()) {
      REPRISE_RETURN_IF_ERROR(store_->Fail(done.bucket, done.result.status()));
      continue;
    }
    REPRISE_RETURN_IF_ERROR(store_->Put(done.bucket, *std::move(done.result)));
    if (store_->over_limit() && !wanted) {
      worker_->CancelQueued();
      REPRISE_RETURN_IF_ERROR(store_->Evict(done.bucket));
      continue;
    }
    REPRISE_RETURN_IF_ERROR(store_->Trim(keep < 0 ? done.bucket : keep));
    ReportProgress(bucket);
  }
  return absl::OkStatus();
}

absl::StatusOr<const Bucket*> GraphManager::MakeReady(const Bucket& bucket, const BatchShape& batch,
                                                      WhilePending while_pending) {
  REPRISE_RETURN_IF_ERROR(store_->error(bucket.index));
  if (worker_ == nullptr) {
    REPRISE_RETURN_IF_ERROR(CaptureNow(bucket));
    return &bucket;
  }
  wanted_[static_cast<size_t>(bucket.index)] = true;
  worker_->Prepend(bucket.index);
  if (while_pending == WhilePending::kRunEager) return nullptr;
  if (while_pending == WhilePending::kLarger) {
    for (const Bucket& other : table_.buckets()) {
      if (other.Fits(batch) && store_->graph(other.index) != nullptr) return &other;
    }
  }
  worker_->Wait(bucket.index);
  REPRISE_RETURN_IF_ERROR(TakeBackgroundCaptures(bucket.index));
  REPRISE_RETURN_IF_ERROR(store_->error(bucket.index));
  return &bucket;
}

absl::StatusOr<ReplayReport> GraphManager::Replay(const BatchShape& batch) {
  REPRISE_ASSIGN_OR_RETURN(const Bucket* bucket, Pick(batch));
  if (worker_ != nullptr && worker_->has_done()) REPRISE_RETURN_IF_ERROR(TakeBackgroundCaptures());
  if (store_->graph(bucket->index) == nullptr) {
    const Bucket& picked = *bucket;
    REPRISE_ASSIGN_OR_RETURN(bucket, MakeReady(picked, batch, options_.while_pending));
    if (bucket == nullptr) return RunEagerly(picked, batch);
  }
  const absl::Status status = store_->graph(bucket->index)->Replay(*stream_);
  if (!status.ok()) return InBucket(status, *bucket, "replay");
  store_->CountReplay(*bucket, batch);
  return ReportOf(*bucket, batch, /*replayed=*/true);
}

absl::StatusOr<ReplayReport> GraphManager::RunEager(const BatchShape& batch) {
  REPRISE_ASSIGN_OR_RETURN(const Bucket* bucket, Pick(batch));
  return RunEagerly(*bucket, batch);
}

absl::StatusOr<ReplayReport> GraphManager::RunEagerly(const Bucket& bucket,
                                                      const BatchShape& batch) {
  REPRISE_RETURN_IF_ERROR(InBucket(Enqueue(*stream_, bucket), bucket, "eager run"));
  store_->CountEagerRun(bucket, batch);
  return ReportOf(bucket, batch, /*replayed=*/false);
}

void GraphManager::EnqueueOn(runtime::Stream& stream) {
  stream_ = &stream;
  store_->EnqueueOn(stream);
}

absl::Status GraphManager::Recapture(const BatchShape& batch) {
  REPRISE_ASSIGN_OR_RETURN(const Bucket* bucket, Pick(batch));
  if (worker_ != nullptr) worker_->Cancel(bucket->index);
  return CaptureNow(*bucket);
}

absl::Status GraphManager::WaitForCaptures() {
  if (worker_ != nullptr) {
    worker_->WaitAll();
    REPRISE_RETURN_IF_ERROR(TakeBackgroundCaptures());
  }
  for (const Bucket& bucket : table_.buckets())
    REPRISE_RETURN_IF_ERROR(store_->error(bucket.index));
  return absl::OkStatus();
}

absl::StatusOr<VerifyReport> GraphManager::Verify(const BatchShape& batch,
                                                  std::span<const MemoryRange> memory) {
  if (memory.empty()) {
    return absl::InvalidArgumentError("verify: no memory to compare; allowed: at least one range");
  }
  REPRISE_ASSIGN_OR_RETURN(const Bucket* bucket, PickCaptured(batch));
  REPRISE_ASSIGN_OR_RETURN(const MemorySnapshot before, MemorySnapshot::Take(*stream_, memory));
  const auto run = [&](bool eager) -> absl::StatusOr<MemorySnapshot> {
    const absl::Status status =
        eager ? Enqueue(*stream_, *bucket) : store_->graph(bucket->index)->Replay(*stream_);
    auto after = MemorySnapshot::Take(*stream_, memory);
    REPRISE_RETURN_IF_ERROR(before.PutBack(*stream_));
    REPRISE_RETURN_IF_ERROR(InBucket(status, *bucket, eager ? "eager run" : "replay"));
    return after;
  };
  REPRISE_ASSIGN_OR_RETURN(const MemorySnapshot eager, run(true));
  REPRISE_ASSIGN_OR_RETURN(const MemorySnapshot replayed, run(false));
  const std::string difference =
      MemorySnapshot::FirstDifference(eager, "eager", replayed, "replayed");
  if (!difference.empty()) return InBucket(absl::DataLossError(difference), *bucket, "verify");
  return VerifyReport{.graph = bucket->name, .bytes = before.bytes()};
}

absl::StatusOr<AuditReport> GraphManager::Audit(const BatchShape& batch) {
  if (buffers_.empty()) {
    return absl::FailedPreconditionError(
        "audit: no buffers are registered; GraphManagerOptions::buffers has them");
  }
  REPRISE_ASSIGN_OR_RETURN(const Bucket* bucket, PickCaptured(batch));
  std::vector<MemoryRange> owners = buffers_;
  owners.push_back({.name = "workspace", .data = workspace_.data(), .bytes = workspace_.bytes()});
  auto report = AuditPointers(*store_->graph(bucket->index), owners);
  if (!report.ok()) return InBucket(report.status(), *bucket, "audit");
  report->graph = bucket->name;
  return report;
}

absl::StatusOr<MoveReport> GraphManager::MoveBuffer(std::string_view name, void* data) {
  if (buffers_.empty()) {
    return absl::NotFoundError(absl::StrCat("buffer: got \"", std::string(name),
                                            "\", and no buffers are registered; "
                                            "GraphManagerOptions::buffers has them"));
  }
  const auto buffer = std::find_if(buffers_.begin(), buffers_.end(),
                                   [&](const MemoryRange& range) { return range.name == name; });
  if (buffer == buffers_.end()) {
    const auto append = [](std::string* out, const MemoryRange& range) { out->append(range.name); };
    return absl::NotFoundError(absl::StrCat("buffer: got \"", std::string(name), "\", allowed: ",
                                            absl::StrJoin(buffers_, ", ", append)));
  }
  if (data == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("buffer '", buffer->name, "': its new address is null"));
  }
  REPRISE_RETURN_IF_ERROR(CheckStream());
  if (worker_ != nullptr) {
    worker_->WaitAll();
    REPRISE_RETURN_IF_ERROR(TakeBackgroundCaptures());
  }
  const MemoryRange from = *buffer;
  buffer->data = data;
  MoveReport report;
  absl::Status first_error;
  for (const Bucket& bucket : table_.buckets()) {
    runtime::CapturedGraph* graph = store_->graph(bucket.index);
    if (graph == nullptr) continue;
    if (MovePointers(*graph, from, data, &report).value_or(false)) continue;
    const absl::Status captured = CaptureNow(bucket);
    first_error.Update(captured);
    if (captured.ok()) ++report.num_recaptured;
  }
  // A bucket with an error has no graph, and the others have moved.
  if (!first_error.ok()) return first_error;
  return report;
}

std::span<const CapturedBucket> GraphManager::captured() const { return store_->captured(); }

std::vector<BucketReport> GraphManager::Report() {
  // A graph that cannot go yet stays in the report as it is.
  if (worker_ != nullptr) TakeBackgroundCaptures().IgnoreError();
  return store_->Report();
}

}  // namespace reprise::graphs
