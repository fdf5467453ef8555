// SPDX-License-Identifier: Apache-2.0
// Targets of targets.h that read what clients send, each with what it takes to begin with.
#ifndef REPRISE_TESTS_FUZZ_WIRE_TARGETS_H_
#define REPRISE_TESTS_FUZZ_WIRE_TARGETS_H_

#include <string>
#include <string_view>
#include <vector>

#include "engine/kv_part.h"
#include "runtime/dtype.h"

namespace reprise::fuzz {

// Of KV that is exchanged.
inline constexpr engine::KvShape kKvShape = {.num_layers = 2,
                                             .num_kv_heads = 1,
                                             .head_dim = 4,
                                             .block_size = 4,
                                             .dtype = runtime::DType::kF32};

// A StepRequest, as a unary call or a stream has it.
bool TakeStep(std::string_view bytes);
std::vector<std::string> StepSeeds();
// Any message of a stream.
bool TakeStreamMessage(std::string_view bytes);
std::vector<std::string> StreamSeeds();
// The message of a unary call. The first byte says which.
bool TakeUnaryMessage(std::string_view bytes);
std::vector<std::string> UnarySeeds();
// A WriteBlocksRequest, whose contents are checked, too.
bool TakeKvContents(std::string_view bytes);
std::vector<std::string> KvSeeds();
// A connection's bytes, before gRPC reads them.
bool TakeFrames(std::string_view bytes);
std::vector<std::string> FrameSeeds();
// The header of a trace.
bool TakeTraceparent(std::string_view bytes);
std::vector<std::string> TraceparentSeeds();

}  // namespace reprise::fuzz

#endif  // REPRISE_TESTS_FUZZ_WIRE_TARGETS_H_
