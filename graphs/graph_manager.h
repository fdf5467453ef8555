// SPDX-License-Identifier: Apache-2.0
// GraphManager: captures one graph per bucket and replays the smallest that fits. It knows sizes
// and a callable that enqueues work, and no models; an embedder uses it with kernels, a stream and
// a context of its own.
//
//   auto manager = GraphManager::Create(*stream, {.buckets = {1, 2, 4, 8}},
//       [&](runtime::Stream& s, const Bucket& bucket) {
//         return s.Launch(my_kernel, ShapeFor(bucket.capacity), args);
//       });
//   auto replay = (*manager)->Replay(5);   // replays the graph of bucket 8, reports 3 of padding
//
// Threads: Create and everything else use the given stream, one thread at a time. In mode
// kBackground the manager has a thread of its own, which captures on a stream of its own.
#ifndef REPRISE_GRAPHS_GRAPH_MANAGER_H_
#define REPRISE_GRAPHS_GRAPH_MANAGER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graphs/bucket.h"
#include "graphs/bucket_table.h"
#include "graphs/graph_report.h"
#include "graphs/memory_range.h"
#include "graphs/pointer_report.h"
#include "runtime/device.h"
#include "runtime/memory/buffer.h"

namespace reprise::graphs {

class CaptureWorker;
class GraphStore;
struct CaptureResult;

struct CaptureProgress {
  int done = 0;
  int total = 0;
  std::string_view bucket;  // the one just captured
};

enum class CaptureMode : uint8_t {
  kEager,       // all buckets in Create
  kLazy,        // each at its first use, which waits for the stream
  kBackground,  // all buckets by a thread, largest first, while others are used
};

// What a use of a bucket does that mode kBackground has not captured yet. Its capture comes next in
// any case.
enum class WhilePending : uint8_t {
  kWait,      // waits for the capture
  kLarger,    // replays the smallest captured bucket that fits; waits where there is none
  kRunEager,  // runs the work launch by launch, and says so in its report
};

// Picks a bucket for a batch: its index, or a negative number where none will do. It may look at
// anything else too; it is asked once for each use.
using BucketPolicy = std::function<int(std::span<const Bucket> buckets, const BatchShape& batch)>;

struct GraphManagerOptions {
  std::vector<int64_t> buckets = {};  // capacities, any order
  std::string name_prefix = "graph";
  // Create runs each bucket once eagerly before it is captured, in every mode: drivers load some
  // things at their first use, and later the work would run on a batch that is served.
  bool warm_up = true;
  // Called after each capture of Create, and of kBackground; by the thread that uses the manager.
  std::function<void(const CaptureProgress&)> progress = {};
  // Instead of `buckets`: rows x tokens, any order.
  std::vector<BatchShape> shapes = {};
  // Empty: the bucket of the fewest cells that fits.
  BucketPolicy policy = {};

  CaptureMode capture = CaptureMode::kEager;
  WhilePending while_pending = WhilePending::kWait;
  // kBackground: called once on the thread that captures, ahead of its first capture; its error is
  // that of every capture. A program with a CUDA context of its own makes it current here.
  std::function<absl::Status()> on_capture_thread = {};

  // The most memory that graphs may take of the device, as measured, and the most graphs; 0: no
  // limit. Beyond it the least recently used one goes, which waits for the stream if it may still
  // run; its next use captures the bucket again. What is captured ahead of its use, by kEager and
  // kBackground, stops at the limit. What a graph takes is known once it is captured: for that
  // moment the sum may be beyond the limit, and a graph that is larger by itself stays while used.
  size_t max_graph_bytes = 0;
  size_t max_graphs = 0;

  // Whose memory and streams the next two need; outlives the manager.
  runtime::Device* device = nullptr;  // kBackground, workspace_bytes
  // How much scratch memory a bucket's work needs. One workspace of the largest is allocated, and
  // every bucket gets its address (Bucket::workspace): replays run one after another. Contents are
  // undefined at the begin of each.
  std::function<size_t(const Bucket& bucket)> workspace_bytes = {};

  // The memory that the work may use, for Audit and MoveBuffer; names are distinct. On CUDA graphs
  // keep more host memory then.
  std::vector<MemoryRange> buffers = {};
};

// What Verify compared.
struct VerifyReport {
  std::string_view graph;
  size_t bytes = 0;
};

class GraphManager {
 public:
  // By default captures every bucket, largest first. Errors: what `enqueue` or a capture returned,
  // with the bucket's name; InvalidArgument where `enqueue` left nothing on its stream, which no
  // graph would have, and on options that exclude each other, or lack something; those of the
  // device's memory, streams and threads.
  static absl::StatusOr<std::unique_ptr<GraphManager>> Create(runtime::Stream& stream,
                                                              GraphManagerOptions options,
                                                              EnqueueFn enqueue);
  // Waits for a capture that is under way.
  ~GraphManager();

  // Enqueues one replay of the smallest bucket that fits, or of what the policy picks; captures it
  // first where it has no graph. Errors: OutOfRange when none fits; the error of the bucket's
  // capture, from every use until Recapture; nothing was enqueued then.
  absl::StatusOr<ReplayReport> Replay(int64_t size) { return Replay(BatchShape{.rows = size}); }
  absl::StatusOr<ReplayReport> Replay(const BatchShape& batch);
  // Runs the same bucket's work launch by launch. Same kernels, same arguments, same bits.
  absl::StatusOr<ReplayReport> RunEager(int64_t size) { return RunEager(BatchShape{.rows = size}); }
  absl::StatusOr<ReplayReport> RunEager(const BatchShape& batch);

  // Replays, eager runs and captures from here on are enqueued on `stream`, of the same device,
  // which outlives the manager. What Create has captured on a stream of its own, beside work on
  // another one, takes over that other's work so. REQUIRES: nothing of the manager's is under way;
  // not kBackground.
  void EnqueueOn(runtime::Stream& stream);

  // Captures the bucket of this batch now, also where it has a graph or an error: after what its
  // work is has changed. Waits for the stream. Errors: the capture's; the bucket has it then, and
  // no graph.
  absl::Status Recapture(const BatchShape& batch);
  // Waits until kBackground has nothing more to capture. Errors: that of the first bucket that has
  // one.
  absl::Status WaitForCaptures();

  // Runs the bucket's work both ways from the same contents of `memory`, which has to be all that
  // the work reads and writes, and compares what is there afterwards, bit for bit. `memory` is as
  // before in the end. Waits for the stream. Errors: DataLoss names the range and the first byte
  // that differs; InvalidArgument without memory; those of Replay and RunEager.
  absl::StatusOr<VerifyReport> Verify(const BatchShape& batch, std::span<const MemoryRange> memory);

  // Looks for pointers that the bucket's kernels, copies and fills were given and that are in none
  // of GraphManagerOptions::buffers, nor in the workspace; captures the bucket first where it has
  // no graph. Errors: FailedPrecondition without buffers; Unimplemented where the device does not
  // tell arguments (HIP); those of Replay.
  absl::StatusOr<AuditReport> Audit(const BatchShape& batch);
  // A buffer lies elsewhere now: graphs that are replayed from here on use `data` instead, those in
  // flight what they had. Nodes are changed in place; a graph whose nodes cannot all be told, or
  // that the driver does not change, is captured again, for which the function has to use the new
  // address already. Contents are the caller's business. Waits for captures that are under way. On
  // CUDA copies and fills are changed in place only where the context that they were captured in is
  // the calling thread's.
  // Errors: NotFound names the buffers; InvalidArgument on null; the first capture's, whose bucket
  // has it then and no graph, while all others have moved.
  absl::StatusOr<MoveReport> MoveBuffer(std::string_view name, void* data);

  const BucketTable& table() const { return table_; }
  // By bucket index; without nodes where it has never been captured.
  std::span<const CapturedBucket> captured() const;
  // By bucket index; what is so now.
  std::vector<BucketReport> Report();
  // Of the memory that all buckets share.
  size_t workspace_bytes() const { return workspace_.bytes(); }

 private:
  GraphManager(runtime::Stream& stream, BucketTable table, GraphManagerOptions options,
               EnqueueFn enqueue);
  absl::Status AllocateWorkspace();
  absl::Status CaptureAhead();
  absl::Status StartWorker();

  absl::StatusOr<const Bucket*> Pick(const BatchShape& batch) const;
  // The same, and it has a graph.
  absl::StatusOr<const Bucket*> PickCaptured(const BatchShape& batch);
  // The bucket to replay; nullptr: its work is to be run launch by launch.
  absl::StatusOr<const Bucket*> MakeReady(const Bucket& bucket, const BatchShape& batch,
                                          WhilePending while_pending);
  absl::Status Enqueue(runtime::Stream& stream, const Bucket& bucket);
  absl::StatusOr<CaptureResult> CaptureOn(runtime::Stream& stream, const Bucket& bucket);
  absl::Status CheckStream();
  absl::Status CaptureNow(const Bucket& bucket);
  absl::StatusOr<ReplayReport> RunEagerly(const Bucket& bucket, const BatchShape& batch);
  // Keeps what the worker has captured. What has to go for it is not bucket `keep`, or, with a
  // negative one, what has just come.
  absl::Status TakeBackgroundCaptures(int keep = -1);
  void ReportProgress(const Bucket& bucket);

  runtime::Stream* stream_;
  BucketTable table_;
  const GraphManagerOptions options_;
  const EnqueueFn enqueue_;
  std::vector<MemoryRange> buffers_;  // where they are now
  std::mutex enqueue_mutex_;          // held while enqueue_ is called
  runtime::DeviceBuffer workspace_;   // outlives the graphs, which hold its address
  std::unique_ptr<GraphStore> store_;
  int num_captured_ = 0;  // so far, for progress
  // Of kBackground; the worker ends before what it uses.
  std::vector<bool> wanted_;  // by bucket index: used, and not captured since
  std::unique_ptr<runtime::Stream> capture_stream_;
  std::unique_ptr<CaptureWorker> worker_;
};

}  // namespace reprise::graphs

#endif  // REPRISE_GRAPHS_GRAPH_MANAGER_H_
