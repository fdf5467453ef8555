// SPDX-License-Identifier: Apache-2.0
// Embedding the graph manager: a kernel of one's own, captured once per bucket and replayed by
// size. Runs on the host device, so that it needs no GPU; with a fat binary in the KernelImage and
// DeviceKind::kCuda the rest stays as it is.
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "reprise/graphs/graph_manager.h"
#include "reprise/runtime/device.h"
#include "reprise/runtime/memory/buffer.h"
#include "reprise/runtime/status_macros.h"

namespace {

using reprise::graphs::Bucket;
using reprise::graphs::GraphManager;
using reprise::runtime::Device;
using reprise::runtime::DeviceKind;
using reprise::runtime::KernelDef;
using reprise::runtime::MappedBuffer;
using reprise::runtime::Stream;

// y[i] = a * x[i] + y[i] for the first `*live` elements: how many is read when the graph runs, not
// when it is captured.
struct AxpyArgs {
  float a;
  const float* x;
  float* y;
  const unsigned* live;
};

void Axpy(const reprise::runtime::HostBlockContext& block, const void* raw) {
  const auto& args = *static_cast<const AxpyArgs*>(raw);
  if (block.block_x < *args.live) args.y[block.block_x] += args.a * args.x[block.block_x];
}

absl::Status Run() {
  constexpr KernelDef kernels[] = {{"axpy", Axpy}};
  REPRISE_ASSIGN_OR_RETURN(auto device, Device::Create({.kind = DeviceKind::kHost}));
  REPRISE_ASSIGN_OR_RETURN(auto module, device->Load({.kernels = kernels, .cuda_fatbins = {}}));
  REPRISE_ASSIGN_OR_RETURN(auto axpy, module->Find("axpy"));
  REPRISE_ASSIGN_OR_RETURN(auto stream, device->CreateStream());
  REPRISE_ASSIGN_OR_RETURN(auto memory, MappedBuffer::Create(*device, 4096));
  auto* x = reinterpret_cast<float*>(memory.host());
  auto* y = x + 256;
  auto* live = reinterpret_cast<unsigned*>(x + 512);
  for (int i = 0; i < 256; ++i) x[i] = static_cast<float>(i);

  // The five lines. Warm-up and capture see no live elements, so they leave y alone.
  REPRISE_ASSIGN_OR_RETURN(
      auto manager, GraphManager::Create(
                        *stream, {.buckets = {1, 2, 4, 8}, .name_prefix = "axpy"},
                        [&](Stream& s, const Bucket& bucket) {
                          return s.Launch(axpy, {.grid_x = static_cast<unsigned>(bucket.capacity)},
                                          AxpyArgs{2.0f, x, y, live});
                        }));

  for (const int size : {1, 3, 8, 5}) {
    *live = static_cast<unsigned>(size);
    REPRISE_ASSIGN_OR_RETURN(const auto report, manager->Replay(size));
    REPRISE_RETURN_IF_ERROR(stream->Synchronize());
    std::printf("size %d: replayed %.*s, %lld of padding\n", size,
                static_cast<int>(report.graph.size()), report.graph.data(),
                static_cast<long long>(report.padding));
  }
  // Element i took part in every replay of more than i elements.
  const float expected[] = {0, 6, 12, 12, 16, 10, 12, 14, 0};
  for (int i = 0; i < 9; ++i) {
    if (y[i] != expected[i]) {
      return absl::InternalError("y[" + std::to_string(i) + "] is " + std::to_string(y[i]) +
                                 "; expected " + std::to_string(expected[i]));
    }
  }
  return absl::OkStatus();
}

}  // namespace

int main() {
  const absl::Status status = Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "embed_graph_manager: %s\n", status.ToString().c_str());
  return 1;
}
