// SPDX-License-Identifier: Apache-2.0
// Two engines on one device: each has weights, a KV pool, a stream and graphs of its own, and steps
// on a thread of its own. What one generates does not depend on the other.
//
//   embed_two_engines <Hugging Face directory> [host | cuda]
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reprise/engine/decode_engine.h"
#include "reprise/engine/step_request.h"
#include "reprise/models/model_source.h"
#include "reprise/runtime/device.h"
#include "reprise/runtime/status_macros.h"

namespace {

using reprise::engine::DecodeEngine;
using reprise::runtime::Device;
using reprise::runtime::DeviceKind;
using Tokens = std::vector<uint32_t>;

constexpr uint32_t kNewTokens = 16;

absl::StatusOr<std::unique_ptr<DecodeEngine>> Load(Device& device, const char* directory) {
  reprise::engine::DecodeEngineOptions options;
  options.max_rows = 4;
  options.mixed_buckets = {64};
  // What is left of the device is the other's.
  options.kv_cache_bytes = uint64_t{16} << 20;
  return DecodeEngine::Create(device, {.directory = directory}, options);
}

absl::StatusOr<Tokens> Generate(DecodeEngine& engine, std::string_view prompt) {
  const reprise::engine::SessionInfo session = engine.OpenSession();
  const Tokens tokens(prompt.begin(), prompt.end());  // of byte-level models
  const uint32_t block_size = engine.pool().block_size;
  const uint32_t length = static_cast<uint32_t>(prompt.size()) + kNewTokens;
  REPRISE_ASSIGN_OR_RETURN(
      const std::vector<uint32_t> blocks,
      engine.AllocateBlocks(session.id, (length + block_size - 1) / block_size));
  const reprise::engine::RowAdd add[] = {{.row = 1, .sampling = {}, .blocks = blocks}};
  const reprise::engine::RowChunk chunk[] = {{.row = 1, .sample = true, .tokens = tokens}};
  Tokens generated;
  reprise::engine::StepResult result;
  for (uint64_t sequence = 1; sequence <= kNewTokens; ++sequence) {
    reprise::engine::StepRequest request;
    request.session = session.id;
    request.epoch = session.epoch;
    request.sequence = sequence;
    request.continue_all = sequence > 1;
    if (sequence == 1) request.add = add, request.chunks = chunk;
    REPRISE_RETURN_IF_ERROR(engine.Step(request, &result));
    generated.push_back(result.rows[0].token);
  }
  REPRISE_RETURN_IF_ERROR(engine.CloseSession(session.id));
  return generated;
}

absl::Status Run(const char* directory, DeviceKind kind) {
  constexpr std::string_view kPrompts[] = {"You may copy and distribute", "This License"};
  REPRISE_ASSIGN_OR_RETURN(const auto device, Device::Create({.kind = kind}));
  REPRISE_ASSIGN_OR_RETURN(const auto first, Load(*device, directory));
  REPRISE_ASSIGN_OR_RETURN(const Tokens alone, Generate(*first, kPrompts[0]));

  REPRISE_ASSIGN_OR_RETURN(const auto second, Load(*device, directory));
  absl::StatusOr<Tokens> other;
  std::thread thread([&] { other = Generate(*second, kPrompts[1]); });
  const auto beside = Generate(*first, kPrompts[0]);
  thread.join();
  REPRISE_RETURN_IF_ERROR(beside.status());
  REPRISE_RETURN_IF_ERROR(other.status());
  if (*beside != alone) return absl::InternalError("beside another engine it generates otherwise");
  std::printf("two engines on %s: %zu tokens each\n", device->properties().name.c_str(),
              other->size());
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view device = argc > 2 ? argv[2] : "host";
  if (argc < 2 || argc > 3 || (device != "host" && device != "cuda")) {
    std::fprintf(stderr, "usage: embed_two_engines <Hugging Face directory> [host | cuda]\n");
    return 2;
  }
  const absl::Status status =
      Run(argv[1], device == "cuda" ? DeviceKind::kCuda : DeviceKind::kHost);
  if (status.ok()) return 0;
  std::fprintf(stderr, "embed_two_engines: %s\n", status.ToString().c_str());
  return 1;
}
