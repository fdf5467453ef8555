// SPDX-License-Identifier: Apache-2.0
// Embedding the decode engine: loads a model, gives a row a prompt, and generates greedily, one
// captured graph per step.
//
//   embed_decode_engine <Hugging Face directory>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "reprise/engine/decode_engine.h"
#include "reprise/engine/step_request.h"
#include "reprise/models/model_source.h"
#include "reprise/runtime/device.h"
#include "reprise/runtime/status_macros.h"

namespace {

using reprise::engine::DecodeEngine;
using reprise::engine::RowAdd;
using reprise::engine::RowChunk;
using reprise::engine::SessionInfo;
using reprise::engine::StepRequest;
using reprise::engine::StepResult;

constexpr uint32_t kRow = 1;
constexpr uint32_t kNewTokens = 16;

void Print(const StepResult& result) {
  std::printf("%.*s: token %u after %u\n", static_cast<int>(result.report.graph.size()),
              result.report.graph.data(), result.rows[0].token, result.rows[0].context_length);
}

// Steps of a session are numbered from 1.
StepRequest NextStep(const SessionInfo& session, uint64_t sequence) {
  StepRequest request;
  request.session = session.id;
  request.epoch = session.epoch;
  request.sequence = sequence;
  return request;
}

absl::Status Generate(DecodeEngine& engine, std::string_view prompt) {
  const SessionInfo session = engine.OpenSession();
  const uint32_t length = static_cast<uint32_t>(prompt.size()) + kNewTokens;
  const uint32_t block_size = engine.pool().block_size;
  REPRISE_ASSIGN_OR_RETURN(
      const std::vector<uint32_t> blocks,
      engine.AllocateBlocks(session.id, (length + block_size - 1) / block_size));

  // Byte-level models have one token per byte. A request views its arrays until Submit returns.
  const std::vector<uint32_t> tokens(prompt.begin(), prompt.end());
  const RowAdd add[] = {{.row = kRow, .sampling = {}, .blocks = blocks}};
  const RowChunk chunk[] = {{.row = kRow, .sample = true, .tokens = tokens}};
  StepRequest request = NextStep(session, 1);
  request.add = add;
  request.chunks = chunk;
  StepResult result;
  REPRISE_RETURN_IF_ERROR(engine.Step(request, &result));
  Print(result);

  for (uint32_t sequence = 2; sequence <= kNewTokens; ++sequence) {
    request = NextStep(session, sequence);
    request.continue_all = true;
    REPRISE_RETURN_IF_ERROR(engine.Step(request, &result));
    Print(result);
  }
  if (!result.report.replayed || result.rows[0].context_length != length - 1) {
    return absl::InternalError("the last step replayed no graph, or its row has another length");
  }
  return engine.CloseSession(session.id);
}

absl::Status Run(const char* directory) {
  REPRISE_ASSIGN_OR_RETURN(const auto device, reprise::runtime::Device::Create(
                                                  {.kind = reprise::runtime::DeviceKind::kHost}));
  reprise::engine::DecodeEngineOptions options;
  options.max_rows = 4;
  options.mixed_buckets = {64};
  REPRISE_ASSIGN_OR_RETURN(const auto engine,
                           DecodeEngine::Create(*device, {.directory = directory}, options));
  return Generate(*engine, "You may copy and distribute");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: embed_decode_engine <Hugging Face directory>\n");
    return 2;
  }
  const absl::Status status = Run(argv[1]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "embed_decode_engine: %s\n", status.ToString().c_str());
  return 1;
}
