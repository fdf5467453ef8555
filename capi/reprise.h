// SPDX-License-Identifier: Apache-2.0
// reprise.h: Reprise inside a program, for C and for languages that call C. Graphs of anyone's work
// (reprise_graph_manager) and decode steps of models (reprise_engine). C11 and C++.
//
//   reprise_error error;
//   reprise_engine_options options;
//   reprise_engine_options_init(&options, sizeof(options), &error);
//   options.directory = "examples/byte-llama";
//   reprise_engine* engine = NULL;
//   if (reprise_engine_create(device, &options, &engine, &error) != REPRISE_OK) {
//     fprintf(stderr, "%s: %s\n", reprise_code_name(error.code), error.message);
//   }
//
// docs/embedding.md has whole programs.
//
// Errors: a function that can fail returns a code and says more in the reprise_error that its
// caller gives it, or NULL. There is no global or per-thread error. After an error nothing has
// changed and nothing was written to outputs but the error, unless it says otherwise.
//
// Handles: made by ..._create, ..._wrap and ..._open, ended by ..._destroy, which takes NULL too. A
// handle keeps what it was made of: destroying a device's handle ends the device only when its
// engines, streams and buffers are gone. NULL, or a handle of another kind, is INVALID_ARGUMENT; a
// handle that was destroyed must not be used.
//
// Structs: the first field of each is its size, `sizeof` of the struct as the caller knows it. It
// is how programs and libraries of different versions understand each other: structs grow at their
// end; a smaller size is one of an earlier version, and what a caller knows beyond this library has
// to be zero. Where zero is not every field's default, an ..._init function sets size and defaults.
//
// Strings are UTF-8 and end with a NUL. Pointers that are given are read until the call returns;
// pointers that are returned say how long they are valid. Arrays go with a count; with a count of 0
// the pointer may be NULL.
//
// Threads: devices, engines and sessions may be used by several threads at a time, all other
// handles by one at a time. No call may be made from a function that runs on a stream
// (reprise_host_fn). Functions that are given to the library return; they neither throw nor jump.
//
// Versions: fields and functions that are said to be of REPRISE_0.2 are not in a library that
// exports REPRISE_0.1 alone. A program that uses none of them runs with both.
#ifndef REPRISE_H_
#define REPRISE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// "0.1.0": of the library that is loaded. Static.
const char* reprise_version(void);

// ---- Errors ----

typedef int32_t reprise_code;
enum {
  REPRISE_OK = 0,
  REPRISE_CANCELLED = 1,
  REPRISE_UNKNOWN = 2,
  REPRISE_INVALID_ARGUMENT = 3,
  REPRISE_DEADLINE_EXCEEDED = 4,
  REPRISE_NOT_FOUND = 5,
  REPRISE_ALREADY_EXISTS = 6,
  REPRISE_PERMISSION_DENIED = 7,
  REPRISE_RESOURCE_EXHAUSTED = 8,
  REPRISE_FAILED_PRECONDITION = 9,
  REPRISE_ABORTED = 10,
  REPRISE_OUT_OF_RANGE = 11,
  REPRISE_UNIMPLEMENTED = 12,
  REPRISE_INTERNAL = 13,
  REPRISE_UNAVAILABLE = 14,
  REPRISE_DATA_LOSS = 15,
  REPRISE_UNAUTHENTICATED = 16
};

// What a call says of its failure: what, got, allowed. The caller's, and need not be initialised;
// every call that is given one sets it, to REPRISE_OK and "" where it succeeds. A message that is
// too long ends with "...". This struct never changes.
typedef struct reprise_error {
  reprise_code code;
  char message[1020];
} reprise_error;

// "INVALID_ARGUMENT" and so on; "UNKNOWN" for a number that is no code. Static.
const char* reprise_code_name(reprise_code code);

// ---- Devices ----

typedef struct reprise_device reprise_device;

typedef int32_t reprise_device_kind;
enum {
  REPRISE_DEVICE_AUTO = 0,  // cuda or hip where a usable GPU is there, else host
  REPRISE_DEVICE_HOST = 1,  // threads of this process
  REPRISE_DEVICE_CUDA = 2,
  REPRISE_DEVICE_HIP = 3
};

// Zero is every field's default.
typedef struct reprise_device_options {
  size_t struct_size;
  reprise_device_kind kind;
  int32_t ordinal;       // which CUDA or HIP device
  int32_t host_threads;  // worker threads of the host device; 0: one per core
  int32_t reserved;      // 0
  // HIP's library, by name or path; NULL: libamdhip64.so of ROCm 7, 6, 5.
  const char* hip_library;
} reprise_device_options;

// Strings are valid as long as the device's handle.
typedef struct reprise_device_info {
  size_t struct_size;
  reprise_device_kind kind;  // never auto
  int32_t ordinal;
  int32_t num_multiprocessors;  // worker threads on the host
  int32_t warp_size;            // 1 on the host
  int32_t compute_capability;   // 10 * major + minor on CUDA, else 0
  int32_t reserved;
  const char* name;          // "NVIDIA H200", or the CPU's model
  const char* driver;        // version; "" on the host
  const char* architecture;  // "sm_90", "gfx942"; "" on the host
  uint64_t total_bytes;      // memory of the device
} reprise_device_info;

// options: NULL for all defaults. Errors: UNAVAILABLE where the device, its driver or this
// library's code for it is missing, and says which; INVALID_ARGUMENT.
reprise_code reprise_device_create(const reprise_device_options* options, reprise_device** device,
                                   reprise_error* error);
// As all ..._destroy: OK, or INVALID_ARGUMENT (not such a handle; nothing was done).
reprise_code reprise_device_destroy(reprise_device* device);
reprise_code reprise_device_get_info(const reprise_device* device, reprise_device_info* info,
                                     reprise_error* error);

// ---- Memory ----

typedef struct reprise_buffer reprise_buffer;

typedef int32_t reprise_memory_kind;
enum {
  REPRISE_MEMORY_DEVICE = 0,  // of the device; contents undefined
  REPRISE_MEMORY_MAPPED = 1   // pinned memory of the host that the device addresses too; zeros
};

// Aligned to 256 bytes. Errors: RESOURCE_EXHAUSTED (asked, free); INVALID_ARGUMENT for 0 bytes.
reprise_code reprise_buffer_create(reprise_device* device, reprise_memory_kind kind, size_t bytes,
                                   reprise_buffer** buffer, reprise_error* error);
reprise_code reprise_buffer_destroy(reprise_buffer* buffer);
// The device's address. NULL: not a buffer.
void* reprise_buffer_device_data(const reprise_buffer* buffer);
// The host's address. NULL: the host has none (memory of a GPU), or not a buffer.
void* reprise_buffer_host_data(const reprise_buffer* buffer);
// 0: not a buffer.
size_t reprise_buffer_bytes(const reprise_buffer* buffer);

// ---- Streams ----

typedef struct reprise_stream reprise_stream;

// Work that the host device runs in stream order. Anything but REPRISE_OK is a fault: the stream
// runs nothing more, and says so at every further call, with the message in `error`.
typedef reprise_code (*reprise_host_fn)(void* context, reprise_error* error);

reprise_code reprise_stream_create(reprise_device* device, reprise_stream** stream,
                                   reprise_error* error);
// native: a cudaStream_t or hipStream_t of the caller's, not the default stream, which must outlive
// the handle. Errors: UNIMPLEMENTED on the host.
reprise_code reprise_stream_wrap(reprise_device* device, void* native, reprise_stream** stream,
                                 reprise_error* error);
reprise_code reprise_stream_destroy(reprise_stream* stream);
// Blocks until all work is done. Errors: a fault of that work.
reprise_code reprise_stream_synchronize(reprise_stream* stream, reprise_error* error);
// cudaStream_t on CUDA, hipStream_t on HIP, for the caller's own launches; NULL on the host.
void* reprise_stream_native_handle(const reprise_stream* stream);
// Runs `function(context)` in stream order, on a thread of the stream; under capture at every
// replay. `context` must live until then. Errors: UNIMPLEMENTED on devices other than host.
reprise_code reprise_stream_enqueue_function(reprise_stream* stream, reprise_host_fn function,
                                             void* context, reprise_error* error);
// Asynchronous: the host's memory must stay valid until the stream has passed the copy.
reprise_code reprise_stream_copy_to_device(reprise_stream* stream, void* destination,
                                           const void* source, size_t bytes, reprise_error* error);
reprise_code reprise_stream_copy_to_host(reprise_stream* stream, void* destination,
                                         const void* source, size_t bytes, reprise_error* error);

// ---- Graphs of the caller's own work ----

// Captures one graph per bucket, and replays the smallest that fits.
typedef struct reprise_graph_manager reprise_graph_manager;

// Enqueues the whole work of a bucket of `capacity` on `stream` (on a GPU by launches on
// reprise_stream_native_handle): no allocation, no waiting. Called by
// reprise_graph_manager_create for each bucket once to warm up, if asked for, and once under
// capture; later by every call that runs a bucket's work launch by launch or captures it; in the
// thread, and during the call, of these, and with REPRISE_CAPTURE_BACKGROUND in a thread of the
// manager's; never by two threads at once. What differs between replays has to be read from memory
// when the work runs. `stream` is the manager's, of use during the call, and not to be destroyed.
// Anything but REPRISE_OK ends the capture, and is the error that the call returns, with the
// bucket's name and the message in `error`.
typedef reprise_code (*reprise_enqueue_fn)(void* context, reprise_stream* stream, int64_t capacity,
                                           reprise_error* error);

// How much a batch needs, or a bucket has: rows, and tokens of each. Work that is batched by one
// thing leaves `tokens` at 1. This struct never changes.
typedef struct reprise_batch_shape {
  int64_t rows;
  int64_t tokens;
} reprise_batch_shape;

// Memory by name, as kernels address it. This struct never changes.
typedef struct reprise_memory_range {
  const char* name;
  void* data;
  size_t bytes;
} reprise_memory_range;

// What a function learns of the bucket whose work it is to enqueue. struct_size is the library's.
typedef struct reprise_bucket {
  size_t struct_size;
  const char* name;        // "<prefix>/<rows>", or "<prefix>/<rows>x<tokens>"
  int64_t rows;            // its capacity
  int64_t tokens;          // the second dimension; 1 where there is none
  void* workspace;         // memory of the device that all buckets share; NULL: none
  size_t workspace_bytes;  // how much of it this bucket asked for
  uint64_t index;          // by ascending rows x tokens
  uint64_t capturing;      // 1: the work is recorded; 0: it runs now, once
} reprise_bucket;

// As reprise_enqueue_fn.
typedef reprise_code (*reprise_enqueue_bucket_fn)(void* context, reprise_stream* stream,
                                                  const reprise_bucket* bucket,
                                                  reprise_error* error);

// Picks a bucket for a batch: its index, or a negative number where none will do. buckets:
// [num_buckets]. It is asked once for each use, in the thread of the call.
typedef int64_t (*reprise_bucket_policy_fn)(void* context, const reprise_batch_shape* buckets,
                                            size_t num_buckets, const reprise_batch_shape* batch);

// How many bytes of workspace a bucket's work needs. Called by reprise_graph_manager_create.
typedef size_t (*reprise_workspace_fn)(void* context, const reprise_batch_shape* bucket);

// Of `total` buckets `done` have been captured, `bucket` last. Called after each capture that
// reprise_graph_manager_create does; with REPRISE_CAPTURE_BACKGROUND by the next call that sees it.
typedef void (*reprise_capture_progress_fn)(void* context, const char* bucket, uint64_t done,
                                            uint64_t total);

typedef int32_t reprise_capture_mode;
enum {
  REPRISE_CAPTURE_EAGER = 0,      // all buckets in reprise_graph_manager_create
  REPRISE_CAPTURE_LAZY = 1,       // each at its first use, which waits for the stream
  REPRISE_CAPTURE_BACKGROUND = 2  // all by a thread of the manager's, largest first
};

// What a use of a bucket does that REPRISE_CAPTURE_BACKGROUND has not captured yet. Its capture
// comes next in any case.
typedef int32_t reprise_while_pending;
enum {
  REPRISE_PENDING_WAIT = 0,      // waits for the capture
  REPRISE_PENDING_LARGER = 1,    // replays the smallest captured one that fits; waits without one
  REPRISE_PENDING_RUN_EAGER = 2  // runs the work launch by launch, and says so in its report
};

// Every function here is given the `context` of reprise_graph_manager_create.
typedef struct reprise_graph_options {
  size_t struct_size;
  const int64_t* buckets;   // capacities, each at least 1, in any order
  const char* name_prefix;  // NULL: "graph"; a bucket is "<prefix>/<capacity>"
  size_t num_buckets;
  // Run each bucket once before capturing it, in reprise_graph_manager_create whatever the mode; by
  // default true: drivers load some things at their first use.
  uint64_t warm_up;
  // Of REPRISE_0.2; zero is the default of each.
  const reprise_batch_shape* shapes;  // [num_shapes] instead of `buckets`, in any order
  size_t num_shapes;
  // Instead of the `enqueue` of reprise_graph_manager_create, which is NULL then.
  reprise_enqueue_bucket_fn enqueue_bucket;
  reprise_bucket_policy_fn policy;  // NULL: the bucket of the fewest rows x tokens that fits
  reprise_capture_mode capture;
  reprise_while_pending while_pending;
  // The most memory that graphs may take of the device, as measured, and the most graphs; 0: no
  // limit. Beyond it the least recently used one goes, once it does not run any more; the next use
  // of its bucket captures it again. What is captured ahead of its use stops at the limit.
  uint64_t max_graph_bytes;
  uint64_t max_graphs;
  // One workspace of the largest is allocated, which all buckets share: replays run one after
  // another. Contents are undefined at the begin of each. NULL: none.
  reprise_workspace_fn workspace_bytes;
  // [num_buffers] the memory that the work may use, for reprise_graph_manager_audit and
  // reprise_graph_manager_move_buffer; names are distinct. Graphs keep more host memory then.
  const reprise_memory_range* buffers;
  size_t num_buffers;
  // With REPRISE_CAPTURE_BACKGROUND: called once on the thread that captures, ahead of its first
  // capture; its error is that of every capture. A program with a CUDA context of its own makes it
  // current here.
  reprise_host_fn on_capture_thread;
  reprise_capture_progress_fn progress;
} reprise_graph_options;

// What was captured; without nodes where nothing was yet. `name` is valid as long as the handle
// that was asked.
typedef struct reprise_bucket_info {
  size_t struct_size;
  const char* name;
  int64_t capacity;
  int32_t num_kernel_nodes;
  int32_t num_other_nodes;
  uint64_t capture_ns;    // capture, instantiation and upload
  uint64_t device_bytes;  // that the driver took for it, as measured
  int64_t tokens;         // the second dimension; 1 where there is none. Of REPRISE_0.2
} reprise_bucket_info;

// What a replay was. `graph` is valid as long as the manager's handle.
typedef struct reprise_replay_report {
  size_t struct_size;
  const char* graph;
  int64_t capacity;
  int64_t padding;  // capacity - size; in two dimensions rows x tokens that the batch leaves empty
  // Of REPRISE_0.2.
  int64_t tokens;     // the bucket's second dimension; 1 where there is none
  uint64_t replayed;  // 0: it ran launch by launch
} reprise_replay_report;

typedef int32_t reprise_bucket_state;
enum {
  REPRISE_BUCKET_PENDING = 0,   // not captured yet
  REPRISE_BUCKET_CAPTURED = 1,  // has a graph
  REPRISE_BUCKET_FAILED = 2,    // its capture ended with an error, which every use of it returns
  REPRISE_BUCKET_EVICTED = 3    // had a graph, which made room for others
};

// One bucket, from the manager's creation on. `name` is valid as long as the manager's handle,
// error_message until the next report on the same bucket.
typedef struct reprise_bucket_report {
  size_t struct_size;
  const char* name;
  int64_t rows;
  int64_t tokens;
  reprise_bucket_state state;
  reprise_code error_code;  // of a bucket that has failed
  const char* error_message;
  // Of the last capture that ended well.
  int32_t num_kernel_nodes;
  int32_t num_other_nodes;
  uint64_t capture_ns;
  uint64_t graph_bytes;  // of the device, that its graph holds now, as measured
  uint64_t num_captures;
  uint64_t num_evictions;
  uint64_t num_replays;
  uint64_t num_eager_runs;  // warm-up aside
  uint64_t used_cells;      // rows x tokens that batches asked for, over all runs
  uint64_t padding_cells;   // and that were left empty
  uint64_t workspace_bytes;
} reprise_bucket_report;

// What was compared. `graph` is valid as long as the manager's handle.
typedef struct reprise_verify_report {
  size_t struct_size;
  const char* graph;
  uint64_t bytes;
} reprise_verify_report;

// Addresses that a bucket's kernels, copies and fills were given. `graph` is valid as long as the
// manager's handle, the columns until its next audit.
typedef struct reprise_audit_report {
  size_t struct_size;
  const char* graph;
  uint64_t num_kernels;
  uint64_t num_pointers;  // in all kernels, copies and fills
  uint64_t num_untold;    // nodes that cannot be told: host functions, and others
  // Those that are in no registered buffer, nor in the workspace: [num_foreign].
  size_t num_foreign;
  const int32_t* foreign_node;        // of all nodes of the graph
  const char* const* foreign_kernel;  // as the driver calls it, or "copy" or "fill"
  const uint64_t* foreign_offset;  // in a kernel's arguments, in bytes; 0 is where a copy or a fill
                                   // writes, 8 where a copy reads
  const uint64_t* foreign_address;
} reprise_audit_report;

// What moving a buffer has done.
typedef struct reprise_move_report {
  size_t struct_size;
  uint64_t num_graphs;      // that were changed in place
  uint64_t num_nodes;       // in them
  uint64_t update_ns;       // for all of these nodes
  uint64_t num_recaptured;  // graphs that could not be changed in place
} reprise_move_report;

reprise_code reprise_graph_options_init(reprise_graph_options* options, size_t struct_size,
                                        reprise_error* error);
// By default captures every bucket, largest first. The stream belongs to the manager's thread from
// here on. `context` must outlive the manager. Errors: `enqueue`'s, the capture's, with the
// bucket's name; INVALID_ARGUMENT for options that exclude each other; those of the device's
// memory, streams and threads.
reprise_code reprise_graph_manager_create(reprise_stream* stream,
                                          const reprise_graph_options* options,
                                          reprise_enqueue_fn enqueue, void* context,
                                          reprise_graph_manager** manager, reprise_error* error);
// Waits for a capture that is under way.
reprise_code reprise_graph_manager_destroy(reprise_graph_manager* manager);
// Enqueues one replay of the smallest bucket that fits `size`, or of what the policy picks, and
// does not wait for it; captures the bucket first where it has no graph. report: may be NULL.
// Errors: OUT_OF_RANGE where none fits; INVALID_ARGUMENT below 1; the error of the bucket's
// capture, until reprise_graph_manager_recapture; nothing was enqueued then.
reprise_code reprise_graph_manager_replay(reprise_graph_manager* manager, int64_t size,
                                          reprise_replay_report* report, reprise_error* error);
// The same work, enqueued piece by piece.
reprise_code reprise_graph_manager_run_eager(reprise_graph_manager* manager, int64_t size,
                                             reprise_replay_report* report, reprise_error* error);
// 0: not a manager.
size_t reprise_graph_manager_num_buckets(const reprise_graph_manager* manager);
// By ascending rows x tokens. Errors: OUT_OF_RANGE.
reprise_code reprise_graph_manager_get_bucket(const reprise_graph_manager* manager, size_t index,
                                              reprise_bucket_info* bucket, reprise_error* error);

// What follows is of REPRISE_0.2. A batch is `rows` of `tokens` each; in one dimension `tokens` is
// 1. Errors of all that name one: those of reprise_graph_manager_replay.

reprise_code reprise_graph_manager_replay_batch(reprise_graph_manager* manager, int64_t rows,
                                                int64_t tokens, reprise_replay_report* report,
                                                reprise_error* error);
reprise_code reprise_graph_manager_run_eager_batch(reprise_graph_manager* manager, int64_t rows,
                                                   int64_t tokens, reprise_replay_report* report,
                                                   reprise_error* error);
// Captures the batch's bucket now, also where it has a graph or an error: after what its work is
// has changed. Waits for the stream. Errors: the capture's; the bucket has it then, and no graph.
reprise_code reprise_graph_manager_recapture(reprise_graph_manager* manager, int64_t rows,
                                             int64_t tokens, reprise_error* error);
// Waits until REPRISE_CAPTURE_BACKGROUND has nothing more to capture. Errors: that of the first
// bucket that has one.
reprise_code reprise_graph_manager_wait_for_captures(reprise_graph_manager* manager,
                                                     reprise_error* error);
// Runs the work of the batch's bucket both ways from the same contents of `memory` ([num_ranges],
// all that the work reads and writes), and compares what is there afterwards, bit for bit. The
// contents are as before in the end. Waits for the stream. report: may be NULL. Errors: DATA_LOSS
// names the range and the first byte that differs; INVALID_ARGUMENT without memory.
reprise_code reprise_graph_manager_verify(reprise_graph_manager* manager, int64_t rows,
                                          int64_t tokens, const reprise_memory_range* memory,
                                          size_t num_ranges, reprise_verify_report* report,
                                          reprise_error* error);
// Looks through the arguments of the kernels of the batch's bucket for addresses in none of the
// options' buffers, nor in the workspace. Errors: FAILED_PRECONDITION without buffers;
// UNIMPLEMENTED where the device does not tell arguments (HIP).
reprise_code reprise_graph_manager_audit(reprise_graph_manager* manager, int64_t rows,
                                         int64_t tokens, reprise_audit_report* report,
                                         reprise_error* error);
// One of the options' buffers lies at `data` now: graphs that are replayed from here on use that
// instead, those in flight what they had. Kernels are changed in place; a graph with nodes that
// cannot be told, or that the driver does not change, is captured again, for which the work has to
// use the new address already. Contents are the caller's business. Waits for captures that are
// under way. report: may be NULL. Errors: NOT_FOUND names the buffers; INVALID_ARGUMENT for NULL;
// the first capture's, whose bucket has it then and no graph, while all others have moved.
reprise_code reprise_graph_manager_move_buffer(reprise_graph_manager* manager, const char* name,
                                               void* data, reprise_move_report* report,
                                               reprise_error* error);
// What is so now, by index as above. Errors: OUT_OF_RANGE.
reprise_code reprise_graph_manager_get_report(reprise_graph_manager* manager, size_t index,
                                              reprise_bucket_report* report, reprise_error* error);
// Of the memory that all buckets share. 0: none, or not a manager.
size_t reprise_graph_manager_workspace_bytes(const reprise_graph_manager* manager);

// ---- Engines ----

// A model, its KV-cache pool and its captured graphs on one device.
typedef struct reprise_engine reprise_engine;

// stage "load" counts bytes, stage "capture" graphs. Called in the thread of reprise_engine_create.
typedef void (*reprise_progress_fn)(void* context, const char* stage, const char* detail,
                                    uint64_t done, uint64_t total);

// engine/engine_options.h says more of each field. Fields of 64 bits that say "true" are 1 or 0.
typedef struct reprise_engine_options {
  size_t struct_size;
  // The model: exactly one of the first two.
  const char* directory;  // of Hugging Face: config.json and safetensors files
  const char* preset;     // a published shape with random weights: "llama-3.1-8b"
  uint64_t random_seed;   // of a preset's weights
  const char* dtype;      // of compute: NULL or "auto" (the checkpoint's), "bf16", "f16", "f32"
  const char* kv_dtype;   // NULL or "auto", "fp8_e4m3", "fp8_e5m2", or that of compute
  const char* linear;     // NULL or "tuned", "row-major", "packed", "portable"
  const char* attention_tree;     // text of a tree; NULL: the default one
  uint64_t kv_cache_bytes;        // 0: what memory_fraction leaves; on the host 256 MiB
  double memory_fraction;         // of the device's memory, in all
  const int64_t* decode_buckets;  // rows; none: powers of two up to max_rows
  const int64_t* mixed_buckets;   // query tokens; none: by device
  size_t num_decode_buckets;
  size_t num_mixed_buckets;
  uint32_t block_size;          // tokens of a KV block
  uint32_t max_rows;            // resident rows
  uint32_t max_context_length;  // tokens of a row; 0: the model's limit. Chooses longrope's factors
  uint32_t pipeline_depth;      // step requests in flight, 1 to 8
  uint32_t max_steps_per_request;  // 1 to 32
  uint32_t min_shared_tokens;      // from which length on a shared prefix is read once; 0: never
  uint32_t max_logit_rows;         // rows of a step that may return their logits
  uint32_t max_prompt_logprobs;    // prompt tokens of a step whose likelihood may be asked for
  uint64_t adjust_logits;          // true: penalties, logit bias, allowed tokens and min_tokens
  uint64_t batch_invariant;        // true: a row's bits do not depend on its neighbours
  uint64_t watchdog_timeout_ms;    // a step without a result for this long is a fault
  reprise_progress_fn progress;    // NULL: none
  void* progress_context;
  // Of REPRISE_0.2; zero is the default of each.
  const char* decode;          // NULL or "tuned", "chain", "step-kernel"
  uint64_t swap_bytes;         // of the host's pinned memory, for blocks that are swapped; 0: none
  uint64_t max_draft_tokens;   // of a step, all rows together, at most 65535; 0: none may come
  uint64_t round_activations;  // true: linear layers of E4M3 weights round what they read to E4M3
  const char* linear_table;    // text of a linear table (docs/tune_linear.md); NULL: none
} reprise_engine_options;

// Strings and arrays are valid as long as the engine's handle.
typedef struct reprise_engine_info {
  size_t struct_size;
  // The model.
  const char* model;
  const char* architecture;
  uint64_t vocab_size;
  uint64_t hidden_size;
  uint64_t num_layers;
  uint64_t num_heads;
  uint64_t num_kv_heads;
  uint64_t head_dim;
  const uint32_t* eos_token_ids;  // [num_eos_token_ids]
  size_t num_eos_token_ids;
  uint64_t tokens_are_bytes;  // 1: ids below 256 are bytes
  // What runs.
  const char* dtype;
  const char* kv_dtype;
  const char* linear;
  // Limits of one step request.
  uint32_t block_size;  // tokens of a KV block
  uint32_t max_rows;    // resident, of all sessions together
  uint32_t max_context_length;
  uint32_t max_blocks_per_row;
  uint32_t max_step_tokens;    // query tokens of a step
  uint32_t max_prompt_tokens;  // of a step with chunks
  uint32_t pipeline_depth;
  uint32_t max_steps_per_request;
  uint32_t min_shared_tokens;
  uint32_t max_logit_rows;
  uint32_t max_prompt_logprobs;
  uint32_t max_stop_tokens;  // of a row
  uint32_t max_logit_bias;   // of a row
  uint32_t max_logprobs;     // of a row
  // Bytes on the device.
  uint64_t weights_bytes;
  uint64_t kv_cache_bytes;
  uint64_t workspace_bytes;
  uint64_t graphs_bytes;  // the driver's share
  // Graphs that steps replay now.
  uint64_t num_decode_buckets;
  uint64_t num_mixed_buckets;
  uint64_t load_ns;
  uint64_t capture_ns;
  // Of REPRISE_0.2.
  uint32_t max_draft_tokens;  // of a step, all rows together
  uint32_t step_kernel_rows;  // of the largest decode bucket whose layers are one kernel; 0: none
  // Of KV contents, as reprise_session_read_blocks has them.
  uint32_t kv_num_layers;
  uint32_t kv_num_heads;
  uint32_t kv_head_dim;
  uint32_t max_kv_blocks_per_call;  // of calls that read, write or swap
  uint64_t kv_token_bytes;          // K and V of a token in one layer
  uint64_t max_kv_transfer_bytes;   // of whole blocks that one call reads or writes
  uint64_t swap_bytes;              // pinned memory of the host
  uint64_t row_state_bytes;         // that a row carries beside its KV; 0: nothing
} reprise_engine_info;

typedef struct reprise_pool_info {
  size_t struct_size;
  uint32_t block_size;  // tokens
  uint32_t num_blocks;  // usable ids are 1 .. num_blocks - 1
  uint32_t free_blocks;
  uint32_t reserved;
  uint64_t bytes;
  // Of REPRISE_0.2.
  uint32_t swap_blocks;  // room in swap space
  uint32_t free_swap_blocks;
  uint64_t num_resident_rows;  // of all sessions
  // Rows whose state swap space has room for, in models whose rows carry some beside their KV.
  uint32_t swap_states;
  uint32_t free_swap_states;
} reprise_pool_info;

typedef int32_t reprise_bucket_kind;
enum {
  REPRISE_BUCKET_DECODE = 0,  // one query token per row; capacity in rows
  REPRISE_BUCKET_MIXED = 1    // steps with chunks; capacity in query tokens
};

reprise_code reprise_engine_options_init(reprise_engine_options* options, size_t struct_size,
                                         reprise_error* error);
// Loads the model, lays out memory, captures graphs. Errors: the model's and the options' own;
// RESOURCE_EXHAUSTED with the budget in bytes.
reprise_code reprise_engine_create(reprise_device* device, const reprise_engine_options* options,
                                   reprise_engine** engine, reprise_error* error);
reprise_code reprise_engine_destroy(reprise_engine* engine);
reprise_code reprise_engine_get_info(const reprise_engine* engine, reprise_engine_info* info,
                                     reprise_error* error);
reprise_code reprise_engine_get_pool(const reprise_engine* engine, reprise_pool_info* pool,
                                     reprise_error* error);
// By ascending capacity. Errors: OUT_OF_RANGE.
reprise_code reprise_engine_get_bucket(const reprise_engine* engine, reprise_bucket_kind kind,
                                       size_t index, reprise_bucket_info* bucket,
                                       reprise_error* error);
// OK, or the fault after which every step is refused.
reprise_code reprise_engine_check_health(const reprise_engine* engine, reprise_error* error);

// What follows is of REPRISE_0.2.

// The tree by which attention's plan decides for steps that are submitted from here on, as
// docs/attention_tree.md has it. version: 1 for the one that the engine started with, and one more
// with every replacement. text: [capacity] bytes for the text with its NUL; bytes: how many it has,
// also where they do not fit. version, bytes, and with a capacity of 0 text, may be NULL. Errors:
// OUT_OF_RANGE capacity, unless it is 0.
reprise_code reprise_engine_get_attention_tree(const reprise_engine* engine, char* text,
                                               size_t capacity, size_t* bytes, uint64_t* version,
                                               reprise_error* error);
// Replaces it. Steps in flight are not waited for, and nothing is captured again. version: of the
// new one; may be NULL. Errors: INVALID_ARGUMENT for text that is no tree; FAILED_PRECONDITION for
// one that was made for something else, or that would change the bits of rows in an engine that is
// batch invariant; UNAVAILABLE after a fault of the device.
reprise_code reprise_engine_set_attention_tree(reprise_engine* engine, const char* text,
                                               uint64_t* version, reprise_error* error);

// Captures graphs of other buckets while steps go on, and replays them from then on. Capacities
// come in any order; a kind with none keeps what it has. Device memory has to hold both sets for
// that time. Changes no row's bits in an engine that is batch invariant. version: of the new set, 2
// after the first call; may be NULL. get_info and get_bucket tell of the graphs that there are.
// Errors (nothing changed): INVALID_ARGUMENT for no buckets at all, one below 1 or beyond max_rows
// or max_prompt_tokens, or sets with which a step could have fewer rows or query tokens than
// before; UNAVAILABLE after a fault of the device; those of capturing, RESOURCE_EXHAUSTED among
// them.
reprise_code reprise_engine_set_buckets(reprise_engine* engine, const int64_t* decode,
                                        size_t num_decode, const int64_t* mixed, size_t num_mixed,
                                        uint64_t* version, reprise_error* error);

// ---- Sessions ----

// Owns rows and KV blocks, and numbers its steps.
typedef struct reprise_session reprise_session;

// Zero is every field's default: as much as there is.
typedef struct reprise_session_limits {
  size_t struct_size;
  uint32_t max_rows;
  uint32_t max_blocks;
  // Of REPRISE_0.2.
  uint32_t max_swapped;  // KV blocks and states of rows in swap space
  uint32_t account;      // of reprise_engine_open_account; 0: of none
} reprise_session_limits;

typedef struct reprise_session_use {
  size_t struct_size;
  uint32_t num_rows;    // resident
  uint32_t num_blocks;  // KV blocks that are its own
  uint64_t num_steps;   // requests that were taken
  // Of REPRISE_0.2.
  uint32_t num_shared;   // KV blocks that it uses with others
  uint32_t num_swapped;  // KV blocks and states of rows that wait in swap space
} reprise_session_use;

// Sessions that are opened with this account hold no more than `limits` together, besides their
// own, and may share blocks. Accounts last as long as the engine. limits: NULL for none;
// max_swapped and account are 0. account: the number, never 0. Of REPRISE_0.2.
reprise_code reprise_engine_open_account(reprise_engine* engine,
                                         const reprise_session_limits* limits, uint32_t* account,
                                         reprise_error* error);
// Other limits from the next call on; what sessions hold beyond them stays theirs. Errors:
// NOT_FOUND account. Of REPRISE_0.2.
reprise_code reprise_engine_set_account_limits(reprise_engine* engine, uint32_t account,
                                               const reprise_session_limits* limits,
                                               reprise_error* error);
// limits: NULL for none. Errors: NOT_FOUND account.
reprise_code reprise_session_open(reprise_engine* engine, const reprise_session_limits* limits,
                                  reprise_session** session, reprise_error* error);
// Drops the session's rows and frees its blocks, after its steps in flight.
reprise_code reprise_session_destroy(reprise_session* session);
reprise_code reprise_session_get_use(const reprise_session* session, reprise_session_use* use,
                                     reprise_error* error);
// blocks: [count] ids out. Errors: RESOURCE_EXHAUSTED (asked, free), all or nothing;
// INVALID_ARGUMENT for 0.
reprise_code reprise_session_allocate_blocks(reprise_session* session, uint32_t count,
                                             uint32_t* blocks, reprise_error* error);
// All or nothing. Errors: PERMISSION_DENIED (not the session's), INVALID_ARGUMENT (named twice),
// FAILED_PRECONDITION (a resident row's table names it).
reprise_code reprise_session_free_blocks(reprise_session* session, const uint32_t* blocks,
                                         size_t num_blocks, reprise_error* error);

// What follows is of REPRISE_0.2. Errors of all: those of reprise_session_free_blocks about blocks
// that are not the session's; UNAVAILABLE after a fault of the device.

// Shares full blocks under a name of the account's, or of all sessions that have none: from here on
// nobody writes them, and they stay until the last session that uses them has released them or
// ended (docs/kv.md). name: 1 to 64 bytes. Errors: INVALID_ARGUMENT name, a block named twice;
// OUT_OF_RANGE no block, or more than max_blocks_per_row; FAILED_PRECONDITION a block that is not
// full, or shared already; ALREADY_EXISTS the name.
reprise_code reprise_session_share_blocks(reprise_session* session, const char* name,
                                          const uint32_t* blocks, size_t num_blocks,
                                          reprise_error* error);
// What has been shared under the name, for this session to use: [*num_blocks] ids to `blocks`,
// which has room for `capacity`, at least max_blocks_per_row. Errors: NOT_FOUND;
// RESOURCE_EXHAUSTED; OUT_OF_RANGE capacity.
reprise_code reprise_session_adopt_blocks(reprise_session* session, const char* name,
                                          uint32_t* blocks, size_t capacity, size_t* num_blocks,
                                          reprise_error* error);
// Errors: NOT_FOUND; FAILED_PRECONDITION (a resident row of the session has one in its table).
reprise_code reprise_session_release_blocks(reprise_session* session, const char* name,
                                            reprise_error* error);

// A part of a block: its first num_tokens tokens in some layers. Contents are [num_layers, 2 (K,
// V), kv_num_heads, num_tokens, kv_head_dim] elements of the engine's kv_dtype, little-endian,
// nothing between them, the same for every device. This struct never changes.
typedef struct reprise_kv_part {
  uint32_t block;
  uint32_t first_layer;
  uint32_t num_layers;
  uint32_t num_tokens;  // when reading: says how many the session has written in the block
} reprise_kv_part;

// Contents of parts of blocks, one behind the other, in order with steps; waits for the device.
// contents: room for `capacity` bytes; kv_token_bytes x block_size x layers for each part are
// enough. bytes: how many they are; may be NULL. Errors: OUT_OF_RANGE layers, capacity, no part,
// more than max_kv_blocks_per_call or max_kv_transfer_bytes; a fault of the device.
reprise_code reprise_session_read_blocks(reprise_session* session, reprise_kv_part* parts,
                                         size_t num_parts, void* contents, size_t capacity,
                                         size_t* bytes, reprise_error* error);
// Writes them. A block's layers come in ascending order, from layer 0 on, one block of a session at
// a time; with the last of them the session has written num_tokens tokens there, and until then
// none. Errors, too: INVALID_ARGUMENT contents of another size; OUT_OF_RANGE tokens;
// FAILED_PRECONDITION layers out of order, or a block that a resident row's table names.
reprise_code reprise_session_write_blocks(reprise_session* session, const reprise_kv_part* parts,
                                          size_t num_parts, const void* contents, size_t bytes,
                                          reprise_error* error);

// Moves blocks to swap space and frees them, in order with steps, and does not wait. swapped:
// [num_blocks] what they are called there, the session's alone until one of the next two calls
// names it or the session ends. Errors: RESOURCE_EXHAUSTED swap space; OUT_OF_RANGE no block, or
// more than max_kv_blocks_per_call; FAILED_PRECONDITION (a resident row's table names one).
reprise_code reprise_session_swap_out(reprise_session* session, const uint32_t* blocks,
                                      size_t num_blocks, uint32_t* swapped, reprise_error* error);
// Takes blocks from the pool and moves contents back. blocks: [num_swapped] out. Errors:
// PERMISSION_DENIED (not the session's); INVALID_ARGUMENT (named twice); OUT_OF_RANGE;
// RESOURCE_EXHAUSTED blocks.
reprise_code reprise_session_swap_in(reprise_session* session, const uint32_t* swapped,
                                     size_t num_swapped, uint32_t* blocks, reprise_error* error);
// Copies what a resident row carries beside its KV to swap space, for a row that is added later in
// its place (reprise_row_add's swapped_state). The row stays. context_length: tokens that it is the
// state of; may be NULL. Asked again before the row has run, says the same copy. Errors: NOT_FOUND
// row; FAILED_PRECONDITION where rows of the model carry nothing, the row has no tokens or has
// steps in flight, or that copy is not there any more; RESOURCE_EXHAUSTED swap space.
reprise_code reprise_session_swap_out_state(reprise_session* session, uint32_t row,
                                            uint32_t* swapped_state, uint32_t* context_length,
                                            reprise_error* error);
// Forgets such copies. Errors: as of blocks.
reprise_code reprise_session_free_swapped_states(reprise_session* session,
                                                 const uint32_t* swapped_states,
                                                 size_t num_swapped_states, reprise_error* error);
// Forgets swapped blocks. Errors: as above.
reprise_code reprise_session_free_swapped(reprise_session* session, const uint32_t* swapped,
                                          size_t num_swapped, reprise_error* error);

// ---- Step requests ----

// What one step, or several in a row, is to do: filled in by the functions below, which copy what
// they are given, and handed to reprise_session_step or reprise_session_submit any number of times.
// Whatever order they were called in, within a step rows are dropped, blocks copied, rows added,
// blocks appended, and then rows run: chunks, and rows that continue. engine/step_request.h says
// more. What is said of rows and blocks is checked when the request is submitted, all of it before
// anything changes.
typedef struct reprise_step reprise_step;

// How a row samples, and when it stops by itself. engine/sampling_params.h says more.
typedef struct reprise_sampling {
  size_t struct_size;
  uint64_t seed;      // of the row's random numbers
  float temperature;  // [0, inf); 0: greedy
  float top_p;        // (0, 1]
  float min_p;        // [0, 1]
  float repetition_penalty;
  float presence_penalty;
  float frequency_penalty;
  uint32_t top_k;                 // 0: all
  uint32_t max_new_tokens;        // the row stops when it has sampled so many; 0: no such limit
  uint32_t min_tokens;            // no stop token before so many
  uint32_t num_logprobs;          // [0, 32] likeliest tokens to report
  uint32_t stop_at_eos;           // 1: at the model's own stop tokens too
  uint32_t return_logits;         // 1: all the model's logits
  const uint32_t* stop_tokens;    // [num_stop_tokens]
  const uint32_t* bias_tokens;    // [num_biases], each once
  const float* biases;            // [num_biases] added to these tokens' logits
  const uint8_t* allowed_tokens;  // a bit per token, bit t % 8 of byte t / 8; none: all
  size_t num_stop_tokens;
  size_t num_biases;
  size_t num_allowed_bytes;  // 0, or (vocab_size + 7) / 8
} reprise_sampling;

// Zero is every field's default.
typedef struct reprise_row_add {
  size_t struct_size;
  uint32_t row;                      // the caller's number, unique within its session
  uint32_t context_length;           // tokens whose KV the blocks already hold
  const reprise_sampling* sampling;  // NULL: greedy, no end
  const uint32_t* blocks;            // [num_blocks] position p lies in blocks[p / block_size]
  size_t num_blocks;
  // For penalties: those context_length tokens, and from which position on tokens count as sampled.
  const uint32_t* history;
  size_t num_history;
  uint64_t prompt_length;
  // Of REPRISE_0.2. In models whose rows carry state beside their KV, of a row with context: 1, and
  // the row whose state it begins with, which is resident before the step and in it, and has as
  // many tokens of context, by steps that have been waited for.
  uint32_t is_fork;
  uint32_t fork_of;
  // Instead of these: 1, and what reprise_session_swap_out_state gave, of a row with as many
  // tokens.
  uint32_t has_swapped_state;
  uint32_t swapped_state;
} reprise_row_add;

// Zero is every field's default.
typedef struct reprise_row_chunk {
  size_t struct_size;
  uint32_t row;
  uint32_t sample;         // 1: a next token is sampled after the last of these
  const uint32_t* tokens;  // [num_tokens] at the row's next positions
  size_t num_tokens;
  uint32_t prompt_logprobs;  // 1: report how likely each token but the first was
  uint32_t has_next_token;   // 1: and `next_token`, behind the last
  uint64_t next_token;
} reprise_row_chunk;

typedef int32_t reprise_step_mode;
enum {
  REPRISE_STEP_REPLAY = 0,  // one captured graph per step
  REPRISE_STEP_EAGER = 1    // the same kernels launched one by one; the same bits
};

reprise_code reprise_sampling_init(reprise_sampling* sampling, size_t struct_size,
                                   reprise_error* error);
reprise_code reprise_step_create(reprise_step** step, reprise_error* error);
reprise_code reprise_step_destroy(reprise_step* step);
// As it was when it was made.
reprise_code reprise_step_clear(reprise_step* step, reprise_error* error);
reprise_code reprise_step_drop_row(reprise_step* step, uint32_t row, reprise_error* error);
reprise_code reprise_step_copy_block(reprise_step* step, uint32_t source, uint32_t destination,
                                     reprise_error* error);
reprise_code reprise_step_add_row(reprise_step* step, const reprise_row_add* add,
                                  reprise_error* error);
reprise_code reprise_step_append_blocks(reprise_step* step, uint32_t row, const uint32_t* blocks,
                                        size_t num_blocks, reprise_error* error);
// Replaces the tokens that a row may sample; as reprise_sampling's allowed_tokens, none: all.
reprise_code reprise_step_set_allowed_tokens(reprise_step* step, uint32_t row,
                                             const uint8_t* allowed_tokens,
                                             size_t num_allowed_bytes, reprise_error* error);
// Rows whose tables begin with the same num_blocks blocks. group 0: of no group.
reprise_code reprise_step_set_prefix_group(reprise_step* step, uint32_t group, uint32_t num_blocks,
                                           const uint32_t* rows, size_t num_rows,
                                           reprise_error* error);
reprise_code reprise_step_run_chunk(reprise_step* step, const reprise_row_chunk* chunk,
                                    reprise_error* error);
// Runs a row's next token from its last sampled one.
reprise_code reprise_step_continue_row(reprise_step* step, uint32_t row, reprise_error* error);
// Continues every row of the session that can, in the order in which they were added.
reprise_code reprise_step_continue_all(reprise_step* step, reprise_error* error);
// Tokens that a row is expected to sample next, in order; it has to continue in this step, and once
// alone may be given any. The step verifies them at once: those that the row would have sampled
// anyway are accepted, up to the first that it would not (docs/wire.md, "Draft tokens"). The row
// needs room for all of them. num_tokens: at least 1, of all rows at most max_draft_tokens. Not
// with several steps, nor for rows that return their logits. Of REPRISE_0.2.
reprise_code reprise_step_draft_tokens(reprise_step* step, uint32_t row, const uint32_t* tokens,
                                       size_t num_tokens, reprise_error* error);
// Steps that the request runs, 1 to max_steps_per_request; rows that sample in the first continue.
reprise_code reprise_step_set_num_steps(reprise_step* step, uint32_t num_steps,
                                        reprise_error* error);
reprise_code reprise_step_set_mode(reprise_step* step, reprise_step_mode mode,
                                   reprise_error* error);
// Whether a row with an entry that is wrong is refused alone, and named in the result.
reprise_code reprise_step_set_isolate_bad_rows(reprise_step* step, uint32_t isolate,
                                               reprise_error* error);

// ---- Results ----

typedef struct reprise_result reprise_result;

typedef int32_t reprise_row_status;
enum {
  REPRISE_ROW_RAN = 0,
  REPRISE_ROW_STOPPED = 1,  // had stopped in an earlier step and did nothing
  REPRISE_ROW_PAUSED = 2    // had no room for its next token; in later steps of a request
};

typedef int32_t reprise_finish_reason;
enum {
  REPRISE_FINISH_NONE = 0,         // the row goes on
  REPRISE_FINISH_STOP_TOKEN = 1,   // sampled one of its stop tokens
  REPRISE_FINISH_LENGTH = 2,       // has sampled max_new_tokens
  REPRISE_FINISH_NO_CANDIDATE = 3  // no token had a logit above minus infinity
};

// All of a result, as columns. Valid until the result is written again or destroyed.
// engine/step_result.h says more.
typedef struct reprise_result_view {
  size_t struct_size;
  uint64_t sequence;  // of the request in its session, from 1 on; 0: nothing was written yet
  // Rows that ran, of all steps, one step after another: [num_rows].
  size_t num_rows;
  const uint32_t* row;
  const reprise_row_status* status;
  const uint8_t* sampled;          // 1: a token came out
  const uint32_t* token;           // where sampled
  const float* logprob;            // where sampled: under the model's own logits
  const uint32_t* context_length;  // tokens in the row's KV after the step
  const reprise_finish_reason* finish;
  const uint32_t* rank;       // with num_logprobs: of `token`, 1 for the likeliest
  const uint32_t* top_begin;  // with num_logprobs: the row's part of top_token
  const uint32_t* top_count;
  const uint8_t* has_logits;  // 1: its logits are the next row of `logits`
  // Likeliest tokens: [num_top].
  size_t num_top;
  const uint32_t* top_token;
  const float* top_logprob;
  // Steps that ran: [num_steps].
  size_t num_steps;
  const uint32_t* step_num_rows;  // of `row`, behind those of the steps before it
  const char* const* step_graph;  // "decode/8"
  const uint8_t* step_replayed;   // 0: eager
  const uint32_t* step_padding_rows;
  const uint32_t* step_padding_tokens;
  const uint64_t* step_device_ns;
  // Likelihood of prompt tokens: [num_prompt].
  size_t num_prompt;
  const uint32_t* prompt_row;
  const uint32_t* prompt_position;  // of the token, in the row's context
  const float* prompt_logprob;
  const uint32_t* prompt_rank;
  const uint32_t* prompt_top_begin;
  const uint32_t* prompt_top_count;
  // [num_logit_rows, vocab_size]
  size_t num_logit_rows;
  const float* logits;
  // Rows that were refused alone: [num_refused].
  size_t num_refused;
  const uint32_t* refused_row;
  const reprise_code* refused_code;
  const char* const* refused_message;
  // Where the request's time went.
  uint64_t validate_ns;  // checking and planning, on the host
  uint64_t ring_ns;      // writing the request where the device reads it
  uint64_t launch_ns;    // one graph launch per step
  uint64_t device_ns;    // by the device's clock
  uint64_t total_ns;     // submitted to seen
  // Of REPRISE_0.2. Drafts that were accepted: tokens that a row sampled before `token`.
  const uint32_t* accepted_begin;  // [num_rows] the row's part of accepted_token
  const uint32_t* accepted_count;  // [num_rows]
  size_t num_accepted;             // of all rows
  const uint32_t* accepted_token;  // [num_accepted], as these:
  const float* accepted_logprob;
  const uint32_t* accepted_rank;
  const uint32_t* accepted_top_begin;
  const uint32_t* accepted_top_count;
  uint64_t num_sampled;  // tokens that came out, of all rows and steps, drafts among them
  const uint32_t* step_query_tokens;    // [num_steps] that ran
  const uint64_t* step_attention_tree;  // [num_steps] version of the tree that was in force
} reprise_result_view;

reprise_code reprise_result_create(reprise_result** result, reprise_error* error);
reprise_code reprise_result_destroy(reprise_result* result);
reprise_code reprise_result_get(const reprise_result* result, reprise_result_view* view,
                                reprise_error* error);

// ---- Running ----

// Checks the request, launches one graph per step, and waits for the result. Threads that do so at
// once take turns. Errors (nothing changed, and the request's number is not used): NOT_FOUND row;
// FAILED_PRECONDITION row has nothing to continue from, context that the session has not written,
// requests that were submitted are in flight; INVALID_ARGUMENT tokens, sampling, tables,
// duplicates; PERMISSION_DENIED a block of another session; RESOURCE_EXHAUSTED rows; OUT_OF_RANGE
// context, steps, tokens, counts. After a fault of the device: INTERNAL or DEADLINE_EXCEEDED, then
// UNAVAILABLE.
reprise_code reprise_session_step(reprise_session* session, const reprise_step* step,
                                  reprise_result* result, reprise_error* error);
// The same without waiting; up to pipeline_depth requests of an engine may be in flight. Errors,
// too: RESOURCE_EXHAUSTED beyond that.
reprise_code reprise_session_submit(reprise_session* session, const reprise_step* step,
                                    uint64_t* ticket, reprise_error* error);
// Waits for the oldest request in flight, which `ticket` must be. Errors: FAILED_PRECONDITION
// (another one is); a fault of the device.
reprise_code reprise_engine_wait(reprise_engine* engine, uint64_t ticket, reprise_result* result,
                                 reprise_error* error);

// What became of one request of several.
typedef int32_t reprise_joint_outcome;
enum {
  REPRISE_JOINT_TAKEN = 0,    // submitted
  REPRISE_JOINT_REFUSED = 1,  // as reprise_session_submit would; nothing of it has changed
  REPRISE_JOINT_LEFT = 2      // does not fit beside those taken; may be submitted behind them
};

// Submits requests of different sessions of the engine as one: one graph launch per step runs the
// rows of all, each with the bits that it would have alone. Takes them in order, and leaves one of
// a session that another one taken is of, of another number of steps, of a mode other than replay
// beside anything, beyond a limit of one step, or beyond 64. sessions, steps: [count], request i is
// steps[i] of sessions[i]. outcomes: [count] out. errors: [count] out, why one was refused; may be
// NULL. ticket: stands for those taken; 0: none was. Errors, of all of them: INVALID_ARGUMENT a
// session of another engine; UNAVAILABLE after a fault of the device. Of REPRISE_0.2.
reprise_code reprise_engine_submit_joint(reprise_engine* engine, reprise_session* const* sessions,
                                         const reprise_step* const* steps, size_t count,
                                         reprise_joint_outcome* outcomes, reprise_error* errors,
                                         uint64_t* ticket, reprise_error* error);
// Waits for it: results: [num_results], one for each request that was taken, in order. Errors:
// those of reprise_engine_wait; INVALID_ARGUMENT another number of results, one that is there
// twice. Of REPRISE_0.2.
reprise_code reprise_engine_wait_joint(reprise_engine* engine, uint64_t ticket,
                                       reprise_result* const* results, size_t num_results,
                                       reprise_error* error);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // REPRISE_H_
