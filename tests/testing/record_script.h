// SPDX-License-Identifier: Apache-2.0
// A fixed workload for one engine, and its outputs as text (record_session.h): prompts in one chunk
// and in several, rows that decode alone, side by side and beside prompts, every sampling feature,
// two steps in flight, eager steps as well as replayed ones. record_outputs.cc chooses the engines.
#ifndef REPRISE_TESTS_TESTING_RECORD_SCRIPT_H_
#define REPRISE_TESTS_TESTING_RECORD_SCRIPT_H_

#include <cstdint>
#include <cstdio>
#include <string>

#include "engine/decode_engine.h"

namespace reprise::testing {

// What the script needs of an engine: resident rows, query tokens of a step, tokens of a context.
inline constexpr uint32_t kScriptRows = 16;
inline constexpr uint32_t kScriptStepTokens = 256;
inline constexpr uint32_t kScriptContext = 256;
// With contexts of so many tokens it also runs a row of several KV splits.
inline constexpr uint32_t kScriptLongContext = 600;

enum class ScriptLength : uint8_t {
  kFull,
  kShort,    // fewer cases, rows, tokens and steps, for what is slow on a CPU
  kMinimal,  // one row, for what is slower
};

// Plays the script and prints to `out`; every line starts with `label`. Throws std::runtime_error
// with the engine's message when a step is refused.
void PlayScript(engine::DecodeEngine& engine, const std::string& label, ScriptLength length,
                std::FILE* out);

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_RECORD_SCRIPT_H_
