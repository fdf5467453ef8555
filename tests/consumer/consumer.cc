// SPDX-License-Identifier: Apache-2.0
// Embeds an installed Reprise: replays a kernel of its own through GraphManager, and asks
// DecodeEngine for a model that is not there. Exit status 0 when both answer as documented. Not
// part of our own build.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/decode_engine.h"
#include "graphs/graph_manager.h"
#include "kernels/catalog.h"
#include "runtime/device.h"

namespace {

namespace graphs = reprise::graphs;
namespace runtime = reprise::runtime;

void Require(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "consumer: %s\n", what.c_str());
  std::exit(1);
}

struct AddOneArgs {
  int* values;
};

// Block i adds one to values[i].
void AddOne(const runtime::HostBlockContext& context, const void* args) {
  static_cast<const AddOneArgs*>(args)->values[context.block_x] += 1;
}

constexpr runtime::KernelDef kKernels[] = {{.name = "add_one", .host = AddOne}};
constexpr runtime::KernelImage kImage = {.kernels = kKernels, .cuda_fatbins = {}};

void ReplayOwnKernel(runtime::Device& device) {
  auto stream = device.CreateStream();
  Require(stream.ok(), stream.status().ToString());
  auto module = device.Load(kImage);
  Require(module.ok(), module.status().ToString());
  auto kernel = (*module)->Find("add_one");
  Require(kernel.ok(), kernel.status().ToString());

  std::vector<int> values(4, 0);
  auto enqueue = [&](runtime::Stream& on, const graphs::Bucket& bucket) {
    const runtime::LaunchShape shape = {.grid_x = static_cast<unsigned>(bucket.capacity)};
    return on.Launch(*kernel, shape, AddOneArgs{values.data()});
  };
  graphs::GraphManagerOptions options;
  options.buckets = {1, 2, 4};
  options.warm_up = false;
  auto manager = graphs::GraphManager::Create(**stream, options, enqueue);
  Require(manager.ok(), manager.status().ToString());

  auto report = (*manager)->Replay(3);
  Require(report.ok(), report.status().ToString());
  Require((*stream)->Synchronize().ok(), "the stream reports a fault");
  Require(report->capacity == 4 && report->padding == 1, "size 3 did not replay bucket 4");
  Require(values == std::vector<int>{1, 1, 1, 1}, "the replay did not run the kernel once");
}

void AskForMissingModel(runtime::Device& device) {
  engine::ModelSource source;
  source.directory = "/nonexistent/model";
  auto engine = engine::DecodeEngine::Create(device, source, {});
  Require(absl::IsNotFound(engine.status()), "a missing model directory is not NotFound");
}

}  // namespace

int main() {
  auto device = runtime::Device::Create({.kind = runtime::DeviceKind::kHost});
  Require(device.ok(), device.status().ToString());
  Require(!reprise::kernels::Catalog().kernels.empty(), "the catalogue is empty");
  ReplayOwnKernel(**device);
  AskForMissingModel(**device);
  std::puts("consumer: ok");
  return 0;
}
