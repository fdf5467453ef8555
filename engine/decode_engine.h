// SPDX-License-Identifier: Apache-2.0
// DecodeEngine: a model, its KV-cache pool and its captured graphs on one device; runs steps. This
// is what a C++ program embeds and what the service drives. It knows neither protobuf nor gRPC.
//
//   REPRISE_ASSIGN_OR_RETURN(auto engine, DecodeEngine::Create(*device, source, options));
//   const SessionInfo session = engine->OpenSession();
//   REPRISE_ASSIGN_OR_RETURN(auto blocks, engine->AllocateBlocks(session.id, 4));
//   REPRISE_RETURN_IF_ERROR(engine->Step(request, &result));
//
// Pipelining: Submit returns after the graph launch; up to `limits.pipeline_depth` requests may be
// in flight. Request n+1 may be submitted before request n's result is read. Results are taken in
// submission order.
//
// Several steps per request: with `options.max_steps_per_request` of 8, say,
//
//   request.num_steps = 8;  // request.append has brought blocks for 8 tokens of each row
//   REPRISE_RETURN_IF_ERROR(engine->Step(request, &result));
//   auto row = result.rows.begin();
//   for (const SingleStep& step : result.steps)
//     for (uint32_t i = 0; i < step.num_rows; ++i, ++row) Use(*row);
//
// launches 8 graphs at once and gives the tokens that 8 requests of one step would, to the bit. A
// row that stops does nothing in later steps; one whose blocks are full pauses, and goes on with a
// later request that appends some. Last steps in which no row has room or budget for a token are
// not launched, so the result may have fewer steps than num_steps.
//
// Threads: every method may be called from any thread. Submit calls are serialised inside;
// Wait may block in one thread while another submits. Errors never change any row: a refused step
// leaves rows, blocks and sequence numbers as they were. With StepRequest::isolate_bad_rows a row
// whose entry is wrong is refused alone, and the rest of the request runs.
#ifndef REPRISE_ENGINE_DECODE_ENGINE_H_
#define REPRISE_ENGINE_DECODE_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine_info.h"
#include "engine/engine_options.h"
#include "engine/kv_export.h"
#include "engine/kv_part.h"
#include "engine/session_info.h"
#include "engine/step_request.h"
#include "engine/step_result.h"
#include "models/model_source.h"
#include "runtime/device.h"
#include "runtime/memory/shared_buffer.h"

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
  // Rows of all sessions that are resident right now.
  uint32_t num_resident_rows() const;
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

  // The graphs that steps replay from here on.
  GraphsInfo captured_graphs() const;
  // Captures graphs of other buckets while steps go on replaying those that there are; from then on
  // steps replay the new ones, and what is not needed any more goes with the steps in flight. A
  // kind without buckets keeps those that it has. Changes no row's bits where the engine is batch
  // invariant. Device memory has to hold both for that time. Calls come one after another; returns
  // captured_graphs(), of which `captured` is told before any step replays them. Errors (nothing
  // changed): InvalidArgument (no buckets at all; one of decode below 1 or beyond max_rows or
  // max_step_tokens; a mixed one below 1 or beyond the largest; that one missing); Unavailable
  // after a device fault; the captures' own, ResourceExhausted among them.
  absl::StatusOr<GraphsInfo> SetBuckets(const BucketSets& buckets, const GraphsFn& captured = {});

  // Sessions that are opened with this account hold no more than `limits` together, besides their
  // own. Accounts last as long as the engine.
  AccountId OpenAccount(const SessionLimits& limits);
  // Other limits from the next call on. What sessions hold beyond them stays theirs. REQUIRES:
  // `account` was opened.
  void SetAccountLimits(AccountId account, const SessionLimits& limits);
  // A session owns rows and blocks, within `limits` and those of its account. REQUIRES: `account`
  // is 0 (none) or was opened.
  SessionInfo OpenSession(const SessionLimits& limits = {}, AccountId account = 0);
  // Whether the session was opened and not closed since.
  bool IsOpen(SessionId session) const;
  // Errors: NotFound, also when it is being closed.
  absl::StatusOr<SessionUse> session_use(SessionId session) const;
  // Drops the session's rows and frees its blocks, after its steps in flight. Errors: NotFound.
  absl::Status CloseSession(SessionId session);
  // Block ids, never 0. What another session wrote in them is cleared, in order with steps, before
  // any later step can read it. Errors: NotFound (session), InvalidArgument (zero),
  // ResourceExhausted (asked, free): all or nothing.
  absl::StatusOr<std::vector<uint32_t>> AllocateBlocks(SessionId session, uint32_t count);
  // Errors: all or nothing; InvalidArgument / PermissionDenied (id not held by the session, or
  // named twice), FailedPrecondition (a resident row's table names it).
  absl::Status FreeBlocks(SessionId session, std::span<const uint32_t> blocks);

  // Full blocks that sessions of one account read together (docs/kv.md). From here on nobody writes
  // them, and they stay until the last session that uses them has released them or ended. Errors of
  // all three: NotFound session.

  // Shares blocks of the session's under a name of its account's. Errors (nothing changed):
  // InvalidArgument (a name without bytes or with more than 64; a block named twice), OutOfRange
  // (no block, or more than a row's table takes), FreeBlocks's about blocks that are not the
  // session's, FailedPrecondition (a block that is not full, or shared already), AlreadyExists (the
  // name).
  absl::Status ShareBlocks(SessionId session, std::string_view name,
                           std::span<const uint32_t> blocks);
  // What has been shared under the name, for this session to use. Errors: NotFound,
  // ResourceExhausted.
  absl::StatusOr<std::vector<uint32_t>> AdoptBlocks(SessionId session, std::string_view name);
  // Errors: NotFound, FailedPrecondition (a resident row of the session has one in its table).
  absl::Status ReleaseBlocks(SessionId session, std::string_view name);

  // What leaves the pool and comes back (docs/kv.md). All of it is in order with steps: it sees
  // what steps that were submitted before have written, and later steps see what it writes. Errors
  // (nothing changed) of all five: NotFound session; what is said of FreeBlocks for blocks that are
  // not the session's; OutOfRange for none or more than kMaxKvBlocksPerCall; Unavailable after a
  // device fault.

  // Contents of parts of blocks, one behind the other, appended to `contents`; says in each part
  // how many tokens it has: those that the session has written since it was given the block, steps
  // in flight included. Waits for the device. Errors: OutOfRange layers, more than
  // info().max_kv_transfer_bytes of whole blocks; FailedPrecondition in a simulation; Internal,
  // DeadlineExceeded (device fault, sticky).
  absl::Status ReadBlocks(SessionId session, std::span<KvPart> parts,
                          std::vector<std::byte>* contents);
  // Writes parts of blocks; waits for the device. A block's layers come in ascending order, from
  // layer 0 on, one block of a session at a time; with the last of them the session has written
  // num_tokens tokens there, and until then none. Errors, beside ReadBlocks's: InvalidArgument
  // contents of another size; OutOfRange tokens; FailedPrecondition layers out of order, or a block
  // that a resident row's table names.
  absl::Status WriteBlocks(SessionId session, std::span<const KvPart> parts,
                           std::span<const std::byte> contents);

  // Moves blocks to swap space and frees them. What they are called there, in their order, is the
  // session's alone until SwapIn or FreeSwapped names it or the session ends. Does not wait. Errors
  // besides: ResourceExhausted swap space; FreeBlocks's.
  absl::StatusOr<std::vector<uint32_t>> SwapOut(SessionId session,
                                                std::span<const uint32_t> blocks);
  // Takes blocks from the pool and moves contents back, in the order of `swapped`; what the session
  // had written in a block, it has again. Errors besides: OutOfRange, PermissionDenied (not the
  // session's), InvalidArgument (named twice); AllocateBlocks's.
  absl::StatusOr<std::vector<uint32_t>> SwapIn(SessionId session,
                                               std::span<const uint32_t> swapped);
  // Forgets swapped blocks, and states that SwapOutState has copied: all or nothing. Errors:
  // SwapIn's about either.
  absl::Status FreeSwapped(SessionId session, std::span<const uint32_t> swapped,
                           std::span<const uint32_t> states = {});

  // Copies what a resident row carries beside its KV to swap space, for a row that is added later
  // in its place (RowAdd::swapped_state); what it is called there is the session's alone until
  // then. The row stays. Does not wait. Asked again before the row has run, says the same copy.
  // Errors: NotFound session or row; FailedPrecondition where rows of the model carry none, or the
  // row has steps in flight, has no tokens, has lost a result, or was copied since it last ran to a
  // place that has been freed or has come back; ResourceExhausted swap space; Unavailable after a
  // device fault.
  absl::StatusOr<SwappedState> SwapOutState(SessionId session, uint32_t row);

  // Copies for engines of other processes, over memory that they map (kv_export.h). The service
  // says who may take them (docs/kv.md).

  // Where copies lie; the same for the engine's life.
  ExportSpace export_space() const;
  // Another engine's, of the same arrangement. Must not outlive the device. Errors: OpenedBuffer's.
  absl::StatusOr<runtime::OpenedBuffer> OpenExportSpace(std::string_view handle,
                                                        uint32_t num_places) const;
  // Told of places that become free, by whatever call; before any session is opened, or empty once
  // all are closed.
  void OnExportsFreed(ExportsFreedFn freed);
  // Copies blocks into export space, where they stay until FreeExported or the session's end; waits
  // for the device, then calls `publish` while nobody can free them. The session keeps its blocks.
  // Errors: as ReadBlocks; FailedPrecondition no export space, or a block without tokens;
  // ResourceExhausted (asked, free; more than the session may have).
  absl::Status ExportBlocks(SessionId session, std::span<const uint32_t> blocks,
                            const PublishExportsFn& publish);
  absl::Status FreeExported(SessionId session, std::span<const uint32_t> places);
  // Copies exported blocks into blocks of this session, one for each; waits for the device. With
  // `source.check` OK the session has written the tokens there, otherwise none. Errors: as
  // WriteBlocks; the check's; Aborted (the session wrote in a block meanwhile). REQUIRES: as many
  // of one as of the other, and places that are there.
  absl::Status ImportBlocks(SessionId session, std::span<const uint32_t> blocks,
                            const ImportSource& source);

  // Validates, writes the metadata ring, launches one graph per step. Allocates nothing,
  // synchronises nothing. Errors (nothing changed): NotFound session or row; FailedPrecondition
  // epoch, sequence, row has nothing to continue from, context that the session has not written,
  // drafts of a row that does not continue, several steps behind drafts that were not waited for;
  // InvalidArgument tokens, sampling, tables, duplicates, several steps or drafts of a row that
  // returns its logits, several steps with drafts; PermissionDenied a block of another session;
  // ResourceExhausted rows or pipeline depth; OutOfRange context, num_steps, step tokens, draft
  // tokens, counts and sizes of sampling; Unavailable after a device fault.
  absl::StatusOr<StepTicket> Submit(const StepRequest& request);
  // Submits requests of different sessions as one: one graph launch per step runs the rows of all,
  // each with the bits that it would have alone. Takes them in order; says of each what became of
  // it. One that cannot share a launch with those taken before it is left: of a session that one of
  // these is of; of another num_steps; a mode other than replay beside anything; together beyond a
  // limit of one step, or beyond what a graph has room for; the 65th. Refusals are Submit's, a full
  // pipeline's among them. The ticket stands for those taken; 0: none was. Errors, of all of them:
  // Unavailable after a device fault (nothing changed); the device's own when the launch fails,
  // which is such a fault. In an engine that is not batch invariant a row's bits depend on what
  // runs beside it here as in any step.
  absl::StatusOr<StepTicket> SubmitJoint(std::span<JointRequest> requests);
  // Blocks until the step's result is there. `ticket` must be the oldest in flight. Errors:
  // FailedPrecondition (order), DeadlineExceeded (watchdog), Internal (device fault); the two last
  // are sticky.
  absl::Status Wait(StepTicket ticket, StepResult* result);
  // The same of a SubmitJoint: one result for each request that was taken, in order. Errors, too:
  // InvalidArgument (another number of results).
  absl::Status WaitJoint(StepTicket ticket, std::span<StepResult> results);
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
