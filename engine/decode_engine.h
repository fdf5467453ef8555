// SPDX-License-Identifier: Apache-2.0
// DecodeEngine: a model, its KV-cache pool and its captured graphs on one device; runs steps. This
// is what a C++ program embeds and what the service drives. It knows neither protobuf nor gRPC.
//
//   REPRISE_ASSIGN_OR_RETURN(auto engine, DecodeEngine::Create(*device, source, options));
//   const SessionInfo session = engine->OpenSession();
//   REPRISE_ASSIGN_OR_RETURN(auto blocks, engine->AllocateBlocks(session.id, 4));
//   REPRISE_RETURN_IF_ERROR(engine->Step(request, &result));
//
// Pipelining: Submit returns after the graph launch; up to `limits.pipeline_depth` steps may be in
// flight. Step n+1 may be submitted before step n's result is read. Results are taken in submission
// order. Threads: every method may be called from any thread. Submit calls are serialised inside;
// Wait may block in one thread while another submits. Errors never change any row: a refused step
// leaves rows, blocks and sequence numbers as they were.
#ifndef REPRISE_ENGINE_DECODE_ENGINE_H_
#define REPRISE_ENGINE_DECODE_ENGINE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine_info.h"
#include "engine/engine_options.h"
#include "engine/session_info.h"
#include "engine/step_request.h"
#include "engine/step_result.h"
#include "models/model_source.h"
#include "runtime/device.h"

namespace reprise::engine {

struct EngineDiagnostics;

class DecodeEngine {
 public:
  // Loads the model, lays out memory, captures graphs. `device` must outlive the engine. Errors:
  // the model's and the options' own, and ResourceExhausted with the exact byte budget when the
  // pool does not fit.
  static absl::StatusOr<std::unique_ptr<DecodeEngine>> Create(runtime::Device& device,
                                                              const models::ModelSource& source,
                                                              const DecodeEngineOptions& options,
                                                              const ProgressFn& progress = {});
  ~DecodeEngine();
  DecodeEngine(const DecodeEngine&) = delete;
  DecodeEngine& operator=(const DecodeEngine&) = delete;

  const EngineInfo& info() const;
  PoolInfo pool() const;
  // OK, or the sticky fault after which every step is refused.
  absl::Status health() const;

  AttentionTreeInfo attention_tree() const;
  // Replaces the tree by which attention's plan decides, for every step that is submitted from here
  // on, and returns its version. Steps in flight are not waited for, and nothing is captured again.
  // Errors (nothing changed): InvalidArgument for text that is no tree (what, got, allowed);
  // FailedPrecondition for one that was made for something else or, in an engine that is batch
  // invariant, whose part about rows is another than that in force, as that would change the bits
  // of rows; Unavailable after a device fault.
  absl::StatusOr<uint64_t> SetAttentionTree(std::string_view text);

  // A session owns rows and blocks, within `limits`.
  SessionInfo OpenSession(const SessionLimits& limits = {});
  // Whether the session was opened and not closed since.
  bool IsOpen(SessionId session) const;
  // Drops the session's rows and frees its blocks, after its steps in flight. Errors: NotFound.
  absl::Status CloseSession(SessionId session);
  // Block ids, never 0. What another session wrote in them is cleared, in order with steps, before
  // any later step can read it. Errors: NotFound (session), InvalidArgument (zero),
  // ResourceExhausted (asked, free): all or nothing.
  absl::StatusOr<std::vector<uint32_t>> AllocateBlocks(SessionId session, uint32_t count);
  // Errors: all or nothing; InvalidArgument / PermissionDenied (id not held by the session, or
  // named twice), FailedPrecondition (a resident row's table names it).
  absl::Status FreeBlocks(SessionId session, std::span<const uint32_t> blocks);

  // Validates, writes the metadata ring, launches one graph. Allocates nothing, synchronises
  // nothing. Errors (nothing changed): NotFound session or row; FailedPrecondition epoch, sequence,
  // row has nothing to continue from, context that the session has not written; InvalidArgument
  // tokens, sampling, tables, duplicates; PermissionDenied a block of another session;
  // ResourceExhausted rows or pipeline depth; OutOfRange context, step tokens, counts and sizes of
  // sampling; Unavailable after a device fault.
  absl::StatusOr<StepTicket> Submit(const StepRequest& request);
  // Blocks until the step's result is there. `ticket` must be the oldest in flight. Errors:
  // FailedPrecondition (order), DeadlineExceeded (watchdog), Internal (device fault); the two last
  // are sticky.
  absl::Status Wait(StepTicket ticket, StepResult* result);
  // Submit and Wait. FailedPrecondition while other steps are in flight.
  absl::Status Step(const StepRequest& request, StepResult* result);

 private:
  class Impl;
  // For our own tests and measurements; their headers are not installed.
  friend class EngineProfiler;
  friend absl::StatusOr<std::unique_ptr<DecodeEngine>> CreateEngineWithDiagnostics(
      runtime::Device& device, const models::ModelSource& source,
      const DecodeEngineOptions& options, const EngineDiagnostics& diagnostics,
      const ProgressFn& progress);
  explicit DecodeEngine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_DECODE_ENGINE_H_
