// SPDX-License-Identifier: Apache-2.0
// A block from its beginning to its end; see block_runner.h.
#include "tests/emulator/block_runner.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "tests/emulator/cluster.h"

namespace reprise::emulator {
namespace {

constinit std::atomic<uint64_t> schedule_seed = 1;
constinit std::atomic<uint64_t> num_blocks_run = 0;

uint64_t Mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

constinit thread_local RunningBlock running_block;

void SetScheduleSeed(uint64_t seed) {
  schedule_seed = seed;
  num_blocks_run = 0;
}

void RunBlock(const runtime::HostBlockContext& context, const BlockLimits& limits,
              void (*body)(void*), void* argument, size_t argument_bytes) {
  BlockRunner::OfThisThread().Run(context, limits, body, argument, argument_bytes);
}

BlockRunner& BlockRunner::OfThisThread() {
  thread_local std::unique_ptr<BlockRunner> runner;
  if (runner == nullptr) runner.reset(new BlockRunner);
  return *runner;
}

BlockRunner::BlockRunner() : shadow_(order_), outside_(DescribeThisThread()) {
  order_.list_vectors = [this](std::vector<Order::Vector>* vectors) {
    for (const Barrier& barrier : barriers_) {
      vectors->insert(vectors->end(), {barrier.released.vector, barrier.released.joined});
      vectors->push_back(barrier.completed);
    }
    for (const auto& [address, released] : atomics_) {
      vectors->insert(vectors->end(), {released.vector, released.joined});
    }
  };
}

BlockRunner::~BlockRunner() {
  for (auto& thread : threads_) thread->in_body = thread->begun;
  AbandonFibers();
}

void BlockRunner::Run(const runtime::HostBlockContext& context, const BlockLimits& limits,
                      void (*body)(void*), void* argument, size_t argument_bytes) {
  if (running_block.runner != nullptr) {
    throw std::runtime_error("emulator: RunBlock called by code that RunBlock runs");
  }
  CheckShape(context, limits);
  const ClusterKey cluster{.body = body,
                           .argument = argument,
                           .first_x = context.block_x / limits.cluster * limits.cluster,
                           .y = context.block_y};
  if (limits.cluster > 1 && !IsLastOfCluster(cluster, limits.cluster, context.block_x)) return;
  std::optional<LaunchTurn> turn;
  runs_beside_others_ = context.cooperative && uint64_t{context.grid_x} * context.grid_y > 1;
  if (kChecksAccesses && !runs_beside_others_) {
    turn.emplace(
        LaunchTurn::Key{.body = body,
                        .argument = argument,
                        .num_blocks = uint64_t{context.grid_x} * context.grid_y / limits.cluster});
  }
  const uint64_t seed = schedule_seed;
  const uint64_t count = num_blocks_run.fetch_add(1, std::memory_order_relaxed);
  random_ = Random(Mix(Mix(Mix(Mix(seed) + cluster.first_x) + context.block_y) + count));
  body_ = body;
  argument_ = argument;
  argument_begin_ = reinterpret_cast<uintptr_t>(argument);
  argument_bytes_ = argument_bytes;
  Launch* launch = turn.has_value() ? &turn->launch() : nullptr;
  if (kChecksAccesses && runs_beside_others_) {
    own_launch_ = std::make_unique<Launch>();
    launch = own_launch_.get();
  }
  Begin(context, limits, launch);
  arena_.Limit(limits.shared_bytes);
  running_block = {.private_begin = reinterpret_cast<uintptr_t>(private_.begin()),
                   .shared_begin = reinterpret_cast<uintptr_t>(arena_.begin()),
                   .runner = this};
  current_ = Pick();
  order_.SetCurrent(current_->id);
  arena_.Select(current_->block);
  Switch(outside_, current_->point);
  running_block = {};
  if (turn.has_value()) turn->launch().max_clock = order_.max_clock();
  if (failure_.empty() && num_blocks_ > 1) failure_ = FindUnreceived();
  if (failure_.empty()) failure_ = FindUnlanded();
  const auto has_waited = [](const auto& thread) { return thread->has_waited; };
  if (failure_.empty() && cluster.first_x == 0 && context.block_y == 0 &&
      std::none_of(threads_.begin(), threads_.begin() + block_threads_, has_waited))
    failure_ = "block (0, 0) ended, and no thread of it had waited for the launch before";
  ForgetCopies();
  if (failure_.empty()) return;
  AbandonFibers();
  throw std::runtime_error(
      absl::StrCat(failure_, " [schedule seed ", seed, ", block ", count, " since]"));
}

void BlockRunner::CheckShape(const runtime::HostBlockContext& context,
                             const BlockLimits& limits) const {
  const unsigned n = context.block_threads, warp_size = limits.warp_size;
  const bool is_power = warp_size != 0 && (warp_size & (warp_size - 1)) == 0;
  if (n == 0 || n > kMaxThreads || !is_power || n % warp_size != 0) {
    throw std::runtime_error(absl::StrCat("emulator: ", n, " threads in warps of ", warp_size,
                                          "; allowed: whole warps of a power of two, at most ",
                                          kMaxThreads, " threads"));
  }
  const unsigned cluster = limits.cluster;
  if (cluster == 0 || cluster > kMaxClusterBlocks || context.grid_x % cluster != 0 ||
      (cluster > 1 && (cluster * n > kMaxThreads || context.cooperative))) {
    throw std::runtime_error(absl::StrCat(
        "emulator: clusters of ", cluster, " blocks of ", n, " threads, ", context.grid_x,
        " blocks along x", context.cooperative ? ", in a cooperative launch" : "",
        "; allowed: 1 to ", kMaxClusterBlocks, " blocks that divide those along x, at most ",
        kMaxThreads, " threads in all, and no cooperative launch"));
  }
  const size_t allowed = std::min<size_t>(limits.shared_bytes, kMaxDynamicBytes);
  if (context.shared_bytes > allowed) {
    throw std::runtime_error(absl::StrCat("emulator: ", context.shared_bytes,
                                          " bytes of dynamic shared memory; allowed: ", allowed));
  }
}

void BlockRunner::Begin(const runtime::HostBlockContext& context, const BlockLimits& limits,
                        Launch* launch) {
  const unsigned warp_size = limits.warp_size;
  num_blocks_ = limits.cluster;
  block_threads_ = context.block_threads;
  num_threads_ = num_blocks_ * block_threads_;
  warp_size_ = warp_size;
  while (threads_.size() < num_threads_) {
    threads_.push_back(std::make_unique<Thread>(private_, static_cast<unsigned>(threads_.size())));
    threads_.back()->point = threads_.back()->stack.Prepare(&FiberMain);
  }
  num_ended_ = 0;
  num_ready_ = 0;
  failure_.clear();
  uninitialised_.clear();
  for (unsigned i = 0; i < num_threads_; ++i) {
    Thread& thread = *threads_[i];
    thread.block = i / block_threads_;
    thread.index = {.thread = i % block_threads_,
                    .block_threads = block_threads_,
                    .warp_size = warp_size,
                    .block_x = context.block_x / num_blocks_ * num_blocks_ + thread.block,
                    .block_y = context.block_y,
                    .grid_x = context.grid_x,
                    .grid_y = context.grid_y};
    thread.exchange_slot = 0;
    thread.num_committed = 0;
    thread.polls = false;
    thread.read_at = 0;
    thread.has_waited = !limits.waits_for_previous;
    MakeReady(i);
  }
  blocks_.fill({});
  cluster_ = {};
  num_ended_of_block_.fill(0);
  std::fill_n(warps_.begin(), num_threads_ / warp_size_, Rendezvous{});
  std::fill_n(unfinished_.begin(), num_threads_ / warp_size_, UnfinishedRead{});
  barriers_.clear();
  atomics_.clear();
  arena_.Begin(num_blocks_, context.shared_bytes);
  if (!order_.Begin(num_threads_, block_threads_, warp_size,
                    launch == nullptr ? 0 : launch->max_clock)) {
    shadow_.Clear();
  }
  if (launch == nullptr) return;
  launch->BeginBlock(order_, threads_[0]->index.block_x, context.block_y);
  grid_ = &launch->grid;
  global_ = &launch->global;
}

// Fibers are kept from block to block: one run of the loop is one block.
void BlockRunner::FiberMain() {
  BeginFiber();
  BlockRunner& runner = *running_block.runner;
  Thread& self = *runner.current_;
  self.begun = true;
  for (;;) {
    self.in_body = true;
    std::string thrown;
    try {
      runner.body_(runner.argument_);
    } catch (const std::exception& e) {
      thrown = absl::StrCat("the kernel threw: ", e.what());
    } catch (...) {
      thrown = "the kernel threw";
    }
    if (!thrown.empty()) runner.Fail([&] { return std::move(thrown); });
    self.in_body = false;
    self.waits = Waits::kEnded;
    ++runner.num_ended_;
    if (runner.num_blocks_ > 1) runner.EndThreadOfCluster();
    runner.GoOn();
  }
}

void BlockRunner::HandOver() {
  current_->in_body = true;  // if not in the body, then not where a fiber waits for the next one
  Switch(current_->point, outside_);
  LeaveForGood(outside_);  // only AbandonFibers comes back
}

// Under AddressSanitizer a fiber has memory of its own there, which it gives back when it leaves.
void BlockRunner::AbandonFibers() {
  abandoning_ = true;
  for (auto& thread : threads_) {
    if (!thread->in_body) continue;
#if defined(__SANITIZE_ADDRESS__)
    current_ = thread.get();
    Switch(outside_, thread->point);
#endif
    thread->point = thread->stack.Prepare(&FiberMain);
    thread->in_body = thread->begun = false;
  }
  abandoning_ = false;
}

// What a block left in flight, or "".
std::string BlockRunner::FindUnlanded() const {
  for (unsigned i = 0; i < num_threads_; ++i) {
    const Thread& thread = *threads_[i];
    if (thread.copies.empty()) continue;
    const AsyncCopy& copy = thread.copies.front();
    return absl::StrCat("the block ended with a copy in flight: ", NameOf(i),
                        " never waited for its copy to ", arena_.Describe(copy.offset),
                        "\n  started at ", Describe(copy.place));
  }
  for (const BulkCopy& bulk : bulk_copies_) {
    return absl::StrCat("the block ended with a bulk copy in flight, to ",
                        arena_.Describe(bulk.copies.front().offset), "\n  started at ",
                        Describe(bulk.copies.front().place));
  }
  for (const Barrier& barrier : barriers_) {
    if (barrier.num_copies == 0 || barrier.num_waited >= barrier.num_complete) continue;
    return absl::StrCat("the block ended with a bulk copy in flight: nobody waited for phase ",
                        barrier.num_waited, " of the barrier at ", arena_.Describe(barrier.offset),
                        ", on which it lands");
  }
  return "";
}

// Marks of copies look like no earlier block's.
void BlockRunner::ForgetCopies() {
  for (const auto& [offset, bytes] : stamped_) shadow_.Clear(offset, bytes);
  stamped_.clear();
  bulk_copies_.clear();
  peer_stores_.clear();
  if (failure_.empty()) return;
  for (auto& thread : threads_) thread->copies.clear();
}

size_t BlockRunner::SharedOffset(const void* p, const char* what, Place place) {
  const auto offset = static_cast<size_t>(static_cast<const std::byte*>(p) - arena_.begin());
  if (offset - arena_.own_begin() < Arena::kBytes) return offset;
  Fail([&] {
    return absl::StrCat(what, " is not in shared memory\n  ", NameOf(current_->id), " at ",
                        Describe(place));
  });
}

void* BlockRunner::Static(const void* key, size_t bytes, size_t alignment, Place place) {
  std::string error;
  void* const variable = arena_.Static(key, bytes, alignment, &error);
  if (variable == nullptr) {
    Fail([&] { return absl::StrCat(std::exchange(error, {}), "\n  at ", Describe(place)); });
  }
  return variable;
}

void BlockRunner::LetNextBegin(Place place) {
  if (current_->has_waited) return;
  Fail([&] {
    return absl::StrCat(NameOf(current_->id), " lets the next launch begin at ", Describe(place),
                        "\n  and has not waited for the one before");
  });
}

// A thread that reads what nobody wrote goes no further. The others do: where one of them comes to
// write there, it was a race, and can be told with both places.
void BlockRunner::WaitForGood(AccessKind kind, size_t bytes, const Shadow::Conflict& conflict,
                              Place place) {
  shadow_.NoteRead(conflict.offset, place);
  if (uninitialised_.empty()) uninitialised_ = DescribeConflict(kind, bytes, conflict, place);
  current_->waits = Waits::kForGood;
  GoOn();
}

}  // namespace reprise::emulator
