// SPDX-License-Identifier: Apache-2.0
// EngineDiagnostics: how tests and measurements have an engine fill its memory, or compute nothing,
// which an embedder has no use for. Part of no public header: DecodeEngine::Create starts an engine
// without any.
#ifndef REPRISE_ENGINE_DIAGNOSTICS_H_
#define REPRISE_ENGINE_DIAGNOSTICS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "engine/engine_info.h"
#include "engine/engine_options.h"
#include "engine/simulation/simulation.h"
#include "models/model_source.h"
#include "runtime/device.h"

namespace reprise::engine {

class DecodeEngine;

// At most one of `poison`, `random_kv_cache` and `simulation`.
struct EngineDiagnostics {
  bool poison = false;  // fill what must never be read with NaN (slow; a test mode)
  // Fill the pool with random numbers at start, for measuring: rows may then be added with a
  // context that nobody has written.
  bool random_kv_cache = false;
  // Accept any context without random numbers, so that tests can see what a block holds.
  bool any_context = false;
  // Steps compute nothing and take as long as this says. On the host device alone; wants
  // `kv_cache_bytes`, of a pool that has no memory. Must outlive the engine.
  const Simulation* simulation = nullptr;

  bool accepts_any_context() const { return random_kv_cache || any_context; }
};

// DecodeEngine::Create with diagnostics. Errors: as there; InvalidArgument when two of
// poison, random_kv_cache and simulation are set; FailedPrecondition when a simulation is wanted on
// another device than the host.
absl::StatusOr<std::unique_ptr<DecodeEngine>> CreateEngineWithDiagnostics(
    runtime::Device& device, const models::ModelSource& source, const DecodeEngineOptions& options,
    const EngineDiagnostics& diagnostics, const ProgressFn& progress = {});

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_DIAGNOSTICS_H_
