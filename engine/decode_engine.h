// SPDX-License-Identifier: Apache-2.0
// DecodeEngine: a model, its KV-cache pool and its captured graphs on one device; runs steps. This
// is what a C++ program embeds and what the service drives. No protobuf, no gRPC.
//
//   REPRISE_ASSIGN_OR_RETURN(auto engine, DecodeEngine::Create(*device, source, options));
//
//   const SessionInfo session = engine->OpenSession();
//
//   REPRISE_ASSIGN_OR_RETURN(auto blocks, engine->AllocateBlocks(session.id, 4));
//
//   REPRISE_RETURN_IF_ERROR(engine->Step(request, &result));
//
// Pipelining: Submit returns after the graph launch; up to `limits.pipeline_depth` steps may be in
// flight. Step n+1 may be submitted before step n's result is read. Results are taken in submission
// order. Threads: every method may be called from any thread. Submit calls are serialised inside;
// Wait may block in one thread while another submits. Errors never change any row: a refused step
// leaves rows, blocks and sequence numbers as they were.
#ifndef REPRISE_ENGINE_DECODE_ENGINE_H_
#define REPRISE_ENGINE_DECODE_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/step.h"
#include "graphs/graph_manager.h"
#include "graphs/profiled_graphs.h"
#include "models/config/model_spec.h"
#include "models/model_source.h"
#include "runtime/device.h"
#include "runtime/dtype.h"

namespace reprise::engine {

// Which kernels compute linear layers. With either, a row's bits do not depend on the batch; the
// two differ from each other by rounding. Reported in EngineInfo.
enum class LinearPolicy : uint8_t {
  kTuned,     // the device's fastest: tensor cores, or the CPU's vector units
  kPortable,  // the reference kernels, the same source on every device; slow
};

struct DecodeEngineOptions {
  runtime::DType dtype = runtime::DType::kBf16;  // compute and KV dtype
  bool dtype_from_checkpoint = true;             // use the checkpoint's dtype instead of `dtype`
  uint32_t block_size = 16;                      // tokens of a KV block; any value >= 1
  uint64_t kv_cache_bytes =
      0;  // pool size; 0: what is left of the device times memory_fraction (host: 256 MiB)
  double memory_fraction = 0.9;              // of the device's memory that Reprise may use in all
  uint32_t max_rows = 256;                   // resident rows
  uint32_t max_context_length = 0;           // tokens; 0: the model's limit
  std::vector<int64_t> decode_buckets = {};  // rows; empty: powers of two up to max_rows
  std::vector<int64_t> mixed_buckets = {};   // query tokens; empty: 64, 256 and 1024 (host) or 256,
                                             // 512, 1024, 2048 (others)
  uint32_t pipeline_depth = 2;               // steps in flight, 1..8
  LinearPolicy linear = LinearPolicy::kTuned;
  // Penalties, logit bias, allowed tokens and min_tokens. Costs device memory per row: 8 bytes per
  // token of the vocabulary (adjusted logits, token history), a bit for the mask, 4 KiB of biases.
  bool adjust_logits = true;
  uint32_t max_logit_rows = 4;        // rows of a step that may return their logits, each 4 bytes x
                                      // vocabulary x pipeline_depth of pinned memory
  uint32_t max_prompt_logprobs = 64;  // prompt tokens of a step whose likelihood may be asked for,
                                      // each 4 bytes x vocabulary of logits
  bool poison = false;                // fill what must never be read with NaN (slow; a test mode)
  // Fill the pool with random numbers at start, for measuring: rows may then be added with a
  // context that nobody has written. Not together with `poison`.
  bool random_kv_cache = false;
  uint64_t watchdog_timeout_ms = 30000;  // a step without a result for this long is a fault
};

struct EngineLimits {
  uint32_t max_rows = 0;
  uint32_t max_context_length = 0;  // tokens
  uint32_t max_blocks_per_row = 0;
  uint32_t max_step_tokens = 0;  // query tokens of one step: the largest bucket
  uint32_t pipeline_depth = 0;
  bool adjust_logits = false;  // see DecodeEngineOptions
  uint32_t max_logit_rows = 0;
  uint32_t max_prompt_logprobs = 0;
  uint64_t max_sampling_bytes = 0;  // of parameters of rows that one step brings
  uint32_t max_stop_tokens = 0;     // of a row
  uint32_t max_logit_bias = 0;      // tokens of a row
  uint32_t max_logprobs = 0;        // num_logprobs
};

struct PoolInfo {
  uint32_t block_size = 0;   // tokens
  uint32_t num_blocks = 0;   // usable ids are 1 .. num_blocks - 1; block 0 is the scratch block
  uint32_t free_blocks = 0;  // right now
  uint64_t bytes = 0;        // of the whole pool
};

// Bytes on the device, exact for what we allocate, measured for what the driver takes.
struct MemoryInfo {
  uint64_t weights_bytes = 0;
  uint64_t kv_cache_bytes = 0;
  uint64_t workspace_bytes = 0;  // activations, plan, resident rows
  uint64_t graphs_bytes = 0;     // the driver's share for captured graphs
};

struct EngineInfo {
  models::ModelSpec model;
  runtime::DeviceProperties device;
  runtime::DType dtype = runtime::DType::kBf16;
  LinearPolicy linear = LinearPolicy::kTuned;
  EngineLimits limits;
  MemoryInfo memory;
  std::vector<graphs::CapturedBucket> decode_buckets;  // capacity in rows
  std::vector<graphs::CapturedBucket> mixed_buckets;   // capacity in query tokens
  uint64_t load_ns = 0;                                // weights
  uint64_t capture_ns = 0;                             // all buckets
};

struct SessionInfo {
  SessionId id = 0;
  uint64_t epoch = 0;
};

// Identifies a submitted step.
using StepTicket = uint64_t;

// Start-up progress: stage "load" counts bytes, stage "capture" counts buckets.
struct EngineProgress {
  std::string_view stage;
  std::string_view detail;
  uint64_t done = 0;
  uint64_t total = 0;
};

// When the kernels of a stamped step were done, nanoseconds on the device's clock.
struct StepStamps {
  std::span<const graphs::ProfiledLaunch> launches =
      {};                              // in order; valid until the next CaptureProfiledGraphs
  int num_kernel_nodes = 0;            // of the profiled graph: two per launch
  uint64_t begin_ns = 0;               // the first kernel's start
  std::vector<uint64_t> done_ns = {};  // by launch; capacity is kept
};

class DecodeEngine {
 public:
  // Loads, lays out, captures. `device` must outlive the engine. Errors: the model's and the
  // options' own, and ResourceExhausted with the exact byte budget when the pool does not fit.
  static absl::StatusOr<std::unique_ptr<DecodeEngine>> Create(
      runtime::Device& device, const models::ModelSource& source,
      const DecodeEngineOptions& options,
      const std::function<void(const EngineProgress&)>& progress = {});
  ~DecodeEngine();
  DecodeEngine(const DecodeEngine&) = delete;
  DecodeEngine& operator=(const DecodeEngine&) = delete;

  const EngineInfo& info() const;
  PoolInfo pool() const;
  // OK, or the sticky fault after which every step is refused.
  absl::Status health() const;

  // A session owns rows and blocks.
  SessionInfo OpenSession();
  // Drops the session's rows and frees its blocks, after its steps in flight. Errors: NotFound.
  absl::Status CloseSession(SessionId session);
  // Block ids, never 0. Errors: NotFound (session), InvalidArgument (zero), ResourceExhausted
  // (asked, free): all or nothing.
  absl::StatusOr<std::vector<uint32_t>> AllocateBlocks(SessionId session, uint32_t count);
  // Errors: all or nothing; InvalidArgument / PermissionDenied (id not held by the session, or
  // named twice), FailedPrecondition (a resident row's table names it).
  absl::Status FreeBlocks(SessionId session, std::span<const uint32_t> blocks);

  // Validates, writes the metadata ring, launches one graph. Allocates nothing, synchronises
  // nothing. Errors (nothing changed): NotFound session or row; FailedPrecondition epoch, sequence,
  // row has nothing to continue from; InvalidArgument tokens, sampling, tables, duplicates;
  // PermissionDenied a block of another session; ResourceExhausted rows or pipeline depth;
  // OutOfRange context, step tokens, counts and sizes of sampling; Unavailable after a device
  // fault.
  absl::StatusOr<StepTicket> Submit(const StepRequest& request);
  // Blocks until the step's result is there. `ticket` must be the oldest in flight. Errors:
  // FailedPrecondition (order), DeadlineExceeded (watchdog), Internal (device fault); the two last
  // are sticky.
  absl::Status Wait(StepTicket ticket, StepResult* result);
  // Submit and Wait. FailedPrecondition while other steps are in flight.
  absl::Status Step(const StepRequest& request, StepResult* result);

  // For measuring. Captures profiled graphs (graphs/profiled_graphs.h) of the decode graphs that
  // steps of so many rows replay; steps of mode kStamped replay them from then on. Earlier ones go.
  // Allocates and synchronises. Errors: InvalidArgument none or 0 rows; OutOfRange beyond the
  // largest decode bucket; FailedPrecondition while steps are in flight; Unavailable after a device
  // fault; those of the capture.
  absl::Status CaptureProfiledGraphs(std::span<const uint32_t> rows);
  // The stamps of the last step if it was a stamped one of so many rows. Waits for the device.
  // Errors: FailedPrecondition while steps are in flight, or without that graph.
  absl::Status ReadStamps(uint32_t rows, StepStamps* stamps);

 private:
  class Impl;
  explicit DecodeEngine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_DECODE_ENGINE_H_
