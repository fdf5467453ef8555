// SPDX-License-Identifier: Apache-2.0
// A stream of the host device; see host_stream.h.
//
// One thread per stream takes items from a queue and runs each to its end before it takes the next.
// `submitted_` and `completed_` count items; everything that waits, waits for them. A fault (a
// kernel or function that threw) is sticky: what comes after it is dropped.
#include "runtime/host/host_stream.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <random>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/captured_node.h"
#include "runtime/host/host_program.h"
#include "runtime/host/mapped_addresses.h"
#include "runtime/host/spin_wait.h"
#include "runtime/launch_check.h"
#include "runtime/status_macros.h"

namespace reprise::runtime {
namespace {

// First in, first out, in one array that grows and never shrinks: a steady state allocates nothing.
// Externally locked.
class WorkQueue {
 public:
  void Push(WorkItem item) {
    if (size_ == slots_.size()) Grow();
    slots_[(head_ + size_++) % slots_.size()] = std::move(item);
  }
  // REQUIRES: not empty.
  WorkItem Pop() {
    WorkItem item = std::move(slots_[head_]);
    head_ = (head_ + 1) % slots_.size();
    --size_;
    return item;
  }

 private:
  void Grow() {
    constexpr size_t kFirstSlots = 64;
    std::vector<WorkItem> slots(slots_.empty() ? kFirstSlots : 2 * slots_.size());
    for (size_t i = 0; i < size_; ++i) slots[i] = std::move(slots_[(head_ + i) % slots_.size()]);
    slots_ = std::move(slots);
    head_ = 0;
  }
  std::vector<WorkItem> slots_;
  size_t head_ = 0;
  size_t size_ = 0;
};

class HostStream final : public Stream {
 public:
  HostStream(const DeviceProperties& properties, HostExecutor& executor, const TestDelays& delays,
             HostScratch scratch)
      : properties_(properties),
        executor_(executor),
        delays_(delays),
        random_(delays.seed),
        scratch_(std::move(scratch)) {}
  ~HostStream() override {
    stop_.store(true, std::memory_order_seq_cst);
    work_wait_.Wake();
    if (thread_.joinable()) thread_.join();
  }
  // Throws std::system_error when there is no thread.
  void Start() { thread_ = std::thread(&HostStream::Loop, this); }

  absl::Status Launch(const Kernel& kernel, const LaunchShape& shape, const void* args,
                      size_t args_bytes) override {
    REPRISE_RETURN_IF_ERROR(CheckLaunch(properties_, kernel, shape, args, args_bytes));
    return Enqueue(KernelWork{static_cast<const KernelDef*>(kernel.handle), shape,
                              HostArgs(args, args_bytes)});
  }
  absl::Status EnqueueHost(std::function<void()> work) override {
    if (work == nullptr) return absl::InvalidArgumentError("EnqueueHost: the function is empty");
    return Enqueue(FunctionWork{std::move(work)});
  }
  absl::Status CopyToDevice(void* dst, const void* src, size_t bytes) override {
    return EnqueueCopy("CopyToDevice", dst, src, bytes);
  }
  absl::Status CopyToHost(void* dst, const void* src, size_t bytes) override {
    return EnqueueCopy("CopyToHost", dst, src, bytes);
  }
  absl::Status Fill(void* dst, unsigned char value, size_t bytes) override {
    REPRISE_RETURN_IF_ERROR(CheckTransfer("Fill", dst, &value, bytes));
    if (bytes == 0) return absl::OkStatus();
    return Enqueue(FillWork{dst, value, bytes});
  }

  absl::Status Synchronize() override;
  absl::Status Query() override;
  bool WaitUntil(const std::function<bool()>& done,
                 std::chrono::steady_clock::time_point deadline) override;
  absl::Status BeginCapture() override;
  absl::StatusOr<std::unique_ptr<CapturedGraph>> EndCapture() override;
  void AbortCapture() override { capture_ = nullptr; }
  void* native_handle() const override { return nullptr; }

  absl::Status Replay(const HostExecutor& executor, const ReplayWork& program);

 private:
  absl::Status EnqueueCopy(std::string_view what, void* dst, const void* src, size_t bytes) {
    REPRISE_RETURN_IF_ERROR(CheckTransfer(what, dst, src, bytes));
    if (bytes == 0) return absl::OkStatus();
    return Enqueue(CopyWork{dst, src, bytes});
  }
  absl::Status Enqueue(WorkItem item);
  absl::Status Fault();
  bool Idle() const {
    return completed_.load(std::memory_order_seq_cst) == submitted_.load(std::memory_order_seq_cst);
  }

  // On the stream's thread:
  void Loop();
  absl::Status Execute(const WorkItem& item);
  absl::Status Execute(const FunctionWork& work);
  absl::Status Execute(const KernelWork& work);
  absl::Status Execute(const CopyWork& work);
  absl::Status Execute(const FillWork& work);
  absl::Status Execute(const ReplayWork& program);

  const DeviceProperties& properties_;
  HostExecutor& executor_;
  std::shared_ptr<HostProgram> capture_;  // the recording, while capturing

  std::mutex queue_mutex_;
  WorkQueue queue_ ABSL_GUARDED_BY(queue_mutex_);
  std::atomic<uint64_t> submitted_{0};
  std::atomic<uint64_t> completed_{0};
  std::atomic<bool> stop_{false};
  SpinWait work_wait_;  // the stream's thread: until there is work
  SpinWait idle_wait_;  // Synchronize: until there is none
  // WaitUntil: until some work has ended. Steps are long beside a wake-up, so it sleeps at once.
  SpinWait ended_wait_{std::chrono::nanoseconds(0)};

  std::atomic<bool> faulted_{false};
  std::mutex fault_mutex_;
  absl::Status fault_ ABSL_GUARDED_BY(fault_mutex_);

  // The stream's thread alone:
  const TestDelays delays_;
  std::mt19937_64 random_;
  HostScratch scratch_;
  std::thread thread_;
};

class HostGraph final : public CapturedGraph, public CapturedNodeAccess {
 public:
  HostGraph(const HostExecutor& executor, ReplayWork program)
      : executor_(executor), program_(std::move(program)) {
    for (const WorkItem& node : program_->nodes) {
      ++(std::holds_alternative<KernelWork>(node) ? num_kernel_nodes_ : num_other_nodes_);
    }
  }
  absl::Status Replay(Stream& stream) override {
    auto* host_stream = dynamic_cast<HostStream*>(&stream);
    if (host_stream == nullptr) {
      return absl::InvalidArgumentError(
          "a graph captured on host cannot be replayed on another device");
    }
    return host_stream->Replay(executor_, program_);
  }
  int num_kernel_nodes() const override { return num_kernel_nodes_; }
  int num_other_nodes() const override { return num_other_nodes_; }
  size_t device_bytes() const override { return 0; }

  absl::StatusOr<std::span<const CapturedNode>> List() override {
    FindNodes();
    addresses_ = MappedAddresses::Read();
    return nodes_;
  }
  absl::Status SetArgs(size_t node, std::span<const std::byte> args) override {
    FindNodes();
    REPRISE_RETURN_IF_ERROR(CheckSetArgs(nodes_, node, args));
    // Replays in flight share the program that they were enqueued with.
    program_ = WithArgs(*program_, node, args);
    nodes_[node].args.assign(args.begin(), args.end());
    return absl::OkStatus();
  }
  bool IsAddress(uint64_t word) override { return addresses_.Contains(word); }

 private:
  void FindNodes() {
    if (nodes_.empty()) nodes_ = ListNodes(*program_);
  }

  const HostExecutor& executor_;
  ReplayWork program_;
  int num_kernel_nodes_ = 0;
  int num_other_nodes_ = 0;
  std::vector<CapturedNode> nodes_;  // once they were asked for
  MappedAddresses addresses_;
};

absl::Status HostStream::Enqueue(WorkItem item) {
  if (capture_ != nullptr) {
    capture_->nodes.push_back(std::move(item));
    return absl::OkStatus();
  }
  if (faulted_.load(std::memory_order_acquire)) return Fault();
  {
    std::lock_guard<std::mutex> lock(queue_mutex_);
    queue_.Push(std::move(item));
  }
  submitted_.fetch_add(1, std::memory_order_seq_cst);
  work_wait_.Wake();
  return absl::OkStatus();
}

absl::Status HostStream::Fault() {
  std::lock_guard<std::mutex> lock(fault_mutex_);
  return fault_;
}

absl::Status HostStream::Synchronize() {
  if (capture_ != nullptr) {
    return absl::FailedPreconditionError("Synchronize: the stream is capturing");
  }
  idle_wait_.Wait([&] { return Idle(); });
  return Fault();
}

absl::Status HostStream::Query() {
  if (capture_ != nullptr) return absl::FailedPreconditionError("Query: the stream is capturing");
  if (faulted_.load(std::memory_order_acquire)) return Fault();
  return Idle() ? absl::OkStatus() : absl::Status(absl::StatusCode::kUnavailable, "");
}

bool HostStream::WaitUntil(const std::function<bool()>& done,
                           std::chrono::steady_clock::time_point deadline) {
  return ended_wait_.WaitUntil(
      [&] {
        // In order with what the thread does when work has ended: what that work wrote is seen.
        static_cast<void>(completed_.load(std::memory_order_seq_cst));
        return done();
      },
      deadline);
}

absl::Status HostStream::BeginCapture() {
  if (capture_ != nullptr) {
    return absl::FailedPreconditionError("BeginCapture: the stream is capturing already");
  }
  if (faulted_.load(std::memory_order_acquire)) return Fault();
  capture_ = std::make_shared<HostProgram>();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CapturedGraph>> HostStream::EndCapture() {
  if (capture_ == nullptr) {
    return absl::FailedPreconditionError("EndCapture: the stream is not capturing");
  }
  return std::make_unique<HostGraph>(executor_, std::exchange(capture_, nullptr));
}

absl::Status HostStream::Replay(const HostExecutor& executor, const ReplayWork& program) {
  if (&executor != &executor_) {
    return absl::InvalidArgumentError(
        "a graph cannot be replayed on a stream of another host device");
  }
  if (capture_ != nullptr) return absl::FailedPreconditionError("Replay: the stream is capturing");
  return Enqueue(program);
}

void HostStream::Loop() {
  for (;;) {
    work_wait_.Wait([&] { return !Idle() || stop_.load(std::memory_order_seq_cst); });
    if (Idle()) return;
    WorkItem item;
    {
      std::lock_guard<std::mutex> lock(queue_mutex_);
      item = queue_.Pop();
    }
    if (!faulted_.load(std::memory_order_relaxed)) {
      absl::Status status = Execute(item);
      if (!status.ok()) {
        std::lock_guard<std::mutex> lock(fault_mutex_);
        fault_ = std::move(status);
        faulted_.store(true, std::memory_order_release);
      }
    }
    // What the item owns goes before it counts as done: an embedder may destroy what its function
    // refers to after Synchronize.
    item = WorkItem();
    completed_.fetch_add(1, std::memory_order_seq_cst);
    // Whoever sleeps until there is no work is woken once, not by every kernel ahead.
    if (Idle()) idle_wait_.Wake();
    ended_wait_.Wake();
  }
}

absl::Status HostStream::Execute(const WorkItem& item) {
  return std::visit([this](const auto& work) { return Execute(work); }, item);
}

absl::Status HostStream::Execute(const FunctionWork& work) {
  try {
    work.function();
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat("EnqueueHost: the function threw: ", e.what()));
  } catch (...) {
    return absl::InternalError("EnqueueHost: the function threw");
  }
  return absl::OkStatus();
}

absl::Status HostStream::Execute(const KernelWork& work) {
  HostLaunch launch{.fn = work.kernel->host,
                    .name = work.kernel->name,
                    .shape = work.shape,
                    .args = work.args.data(),
                    .order_seed = 0,
                    .one_thread = delays_.one_thread};
  if (delays_.max_us > 0) {
    const uint64_t delay_us = random_() % static_cast<uint64_t>(delays_.max_us);
    if (delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
    launch.order_seed = random_() | 1;
  }
  if (delays_.slow_us > 0 && launch.name == delays_.slow_kernel) {
    // Awake, since a sleep of microseconds may last ten times as long.
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(delays_.slow_us);
    while (std::chrono::steady_clock::now() < end) {
    }
  }
  return executor_.Run(launch, scratch_);
}

absl::Status HostStream::Execute(const CopyWork& work) {
  std::memcpy(work.dst, work.src, work.bytes);
  return absl::OkStatus();
}

absl::Status HostStream::Execute(const FillWork& work) {
  std::memset(work.dst, work.value, work.bytes);
  return absl::OkStatus();
}

absl::Status HostStream::Execute(const ReplayWork& program) {
  std::lock_guard<std::mutex> lock(*program->running);
  for (const WorkItem& node : program->nodes) REPRISE_RETURN_IF_ERROR(Execute(node));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Stream>> CreateHostStream(const DeviceProperties& properties,
                                                         HostExecutor& executor,
                                                         const TestDelays& delays) {
  REPRISE_ASSIGN_OR_RETURN(HostScratch scratch, HostScratch::Create());
  auto stream = std::make_unique<HostStream>(properties, executor, delays, std::move(scratch));
  try {
    stream->Start();
  } catch (const std::system_error& e) {
    return absl::ResourceExhaustedError(
        absl::StrCat("host device: no thread for a stream: ", e.what()));
  }
  return stream;
}

}  // namespace reprise::runtime
