// SPDX-License-Identifier: Apache-2.0
// What a stream of the host device runs: work items, and programs of them, which are captured
// graphs. Part of the host device's implementation.
#ifndef REPRISE_RUNTIME_HOST_HOST_PROGRAM_H_
#define REPRISE_RUNTIME_HOST_HOST_PROGRAM_H_

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/captured_node.h"
#include "runtime/device.h"

namespace reprise::runtime {

// A launch's copied argument struct: in place up to kInlineBytes, on the heap beyond.
class HostArgs {
 public:
  HostArgs(const void* args, size_t bytes) : bytes_(bytes) {
    if (bytes > sizeof(inline_))
      heap_.reset(new Chunk[(bytes + sizeof(Chunk) - 1) / sizeof(Chunk)]);
    std::memcpy(heap_ != nullptr ? heap_.get() : inline_, args, bytes);
  }
  HostArgs(const HostArgs& other) : HostArgs(other.data(), other.bytes_) {}
  HostArgs(HostArgs&&) noexcept = default;
  HostArgs& operator=(HostArgs&&) noexcept = default;
  const void* data() const { return heap_ != nullptr ? heap_.get() : inline_; }
  size_t bytes() const { return bytes_; }

 private:
  struct alignas(64) Chunk {
    std::byte bytes[64];
  };
  static constexpr size_t kInlineBytes = 256;
  Chunk inline_[kInlineBytes / sizeof(Chunk)] = {};
  std::unique_ptr<Chunk[]> heap_;
  size_t bytes_ = 0;
};

struct FunctionWork {
  std::function<void()> function;
};
struct KernelWork {
  const KernelDef* kernel;
  LaunchShape shape;
  HostArgs args;
};
struct CopyWork {
  void* dst;
  const void* src;
  size_t bytes;
};
struct FillWork {
  void* dst;
  unsigned char value;
  size_t bytes;
};
struct HostProgram;
using ReplayWork = std::shared_ptr<HostProgram>;
using WorkItem = std::variant<FunctionWork, KernelWork, CopyWork, FillWork, ReplayWork>;

// A captured graph. Shared by the graph object and its replays in flight.
struct HostProgram {
  std::vector<WorkItem> nodes;  // never a ReplayWork
  // As on a GPU, replays of one graph run one after another, whatever streams they are on.
  std::shared_ptr<std::mutex> running = std::make_shared<std::mutex>();
};

// As CapturedNodeAccess::List.
std::vector<CapturedNode> ListNodes(const HostProgram& program);
// The same program, but for the arguments of one node. REQUIRES: it is a kernel, a copy or a fill,
// and there are as many bytes as it has.
std::shared_ptr<HostProgram> WithArgs(const HostProgram& program, size_t node,
                                      std::span<const std::byte> args);

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_HOST_HOST_PROGRAM_H_
