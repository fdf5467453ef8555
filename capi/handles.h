// SPDX-License-Identifier: Apache-2.0
// What stands behind the handles of reprise.h. Each shares what it was made of, so that handles may
// be destroyed in any order.
#ifndef REPRISE_CAPI_HANDLES_H_
#define REPRISE_CAPI_HANDLES_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "capi/call.h"
#include "capi/reprise.h"
#include "engine/decode_engine.h"
#include "engine/sampling_params.h"
#include "engine/session_info.h"
#include "engine/step_draft.h"
#include "graphs/graph_manager.h"
#include "runtime/device.h"
#include "runtime/memory/buffer.h"

struct reprise_device {
  static constexpr std::string_view kName = "device";
  reprise::capi::Tag<0x6563697665640001> tag;
  std::shared_ptr<reprise::runtime::Device> device;
};

struct reprise_buffer {
  static constexpr std::string_view kName = "buffer";
  reprise::capi::Tag<0x7265666675620002> tag;
  std::shared_ptr<reprise::runtime::Device> device;
  // One of them has memory.
  reprise::runtime::DeviceBuffer memory;
  reprise::runtime::MappedBuffer mapped;
};

namespace reprise::capi {

// A stream and its device, which must go after it.
struct SharedStream {
  std::shared_ptr<runtime::Device> device;
  std::unique_ptr<runtime::Stream> owned;  // empty where `stream` is a manager's own
  runtime::Stream* stream = nullptr;
};

// An engine and its device, which must go after it.
struct SharedEngine {
  std::shared_ptr<runtime::Device> device;
  std::unique_ptr<engine::DecodeEngine> engine;
  std::mutex stepping;  // threads that step and wait take turns
  // Accounts are numbered from 1 on, and opened here alone.
  std::atomic<uint32_t> num_accounts = 0;
  // Names of buckets that were told of, which stay when their graphs go.
  std::mutex naming;
  std::set<std::string> bucket_names;
};

}  // namespace reprise::capi

struct reprise_stream {
  static constexpr std::string_view kName = "stream";
  reprise::capi::Tag<0x6d61657274730003> tag;
  std::shared_ptr<reprise::capi::SharedStream> shared;
};

struct reprise_graph_manager {
  static constexpr std::string_view kName = "graph manager";
  reprise::capi::Tag<0x7368706172670004> tag;
  std::shared_ptr<reprise::capi::SharedStream> shared;
  // What the caller's functions are given: the stream, also when the handle that it came by is
  // gone; that on which the manager's thread captures, which is made there; and all buckets.
  reprise_stream stream;
  reprise_stream capture_stream;
  std::vector<reprise_batch_shape> shapes;

  // What reports point to: errors by bucket, and the last audit.
  std::vector<std::string> errors;
  struct Audit {
    std::vector<int32_t> node;
    std::vector<std::string> kernel;
    std::vector<const char*> kernel_text;
    std::vector<uint64_t> offset, address;
  };
  Audit audit;

  std::unique_ptr<reprise::graphs::GraphManager> manager;  // its thread ends before the rest goes
};

struct reprise_engine {
  static constexpr std::string_view kName = "engine";
  reprise::capi::Tag<0x656e69676e650005> tag;
  std::shared_ptr<reprise::capi::SharedEngine> shared;
};

struct reprise_session {
  static constexpr std::string_view kName = "session";
  reprise::capi::Tag<0x6f69737365730006> tag;
  std::shared_ptr<reprise::capi::SharedEngine> shared;
  reprise::engine::SessionInfo info;
  std::mutex numbering;  // from asking for the last step's number to submitting the next one

  ~reprise_session();
};

struct reprise_step {
  static constexpr std::string_view kName = "step";
  reprise::capi::Tag<0x0000007065740007> tag;
  reprise::engine::StepDraft draft;

  // The lists that a row's sampling views.
  struct SamplingLists {
    std::vector<reprise::engine::TokenBias> biases;
    std::vector<std::byte> allowed_tokens;
    std::vector<uint32_t> stop_tokens;
  };
  std::deque<SamplingLists> lists;
};

struct reprise_result {
  static constexpr std::string_view kName = "result";
  reprise::capi::Tag<0x746c757365720008> tag;
  reprise::engine::StepResult result;

  // The same as columns; see reprise_result_view.
  struct Columns {
    std::vector<uint32_t> row, token, context_length, rank, top_begin, top_count;
    std::vector<int32_t> status, finish;
    std::vector<uint8_t> sampled, has_logits;
    std::vector<float> logprob;
    std::vector<uint32_t> accepted_begin, accepted_count;
    std::vector<uint32_t> accepted_token, accepted_rank, accepted_top_begin, accepted_top_count;
    std::vector<float> accepted_logprob;
    std::vector<uint32_t> top_token;
    std::vector<float> top_logprob;
    std::vector<uint32_t> step_num_rows, step_padding_rows, step_padding_tokens;
    std::vector<std::string> step_graph;
    std::vector<const char*> step_graph_text;
    std::vector<uint8_t> step_replayed;
    std::vector<uint64_t> step_device_ns, step_attention_tree;
    std::vector<uint32_t> step_query_tokens;
    std::vector<uint32_t> prompt_row, prompt_position, prompt_rank, prompt_top_begin,
        prompt_top_count;
    std::vector<float> prompt_logprob;
    std::vector<uint32_t> refused_row;
    std::vector<int32_t> refused_code;
    std::vector<std::string> refused_message;
    std::vector<const char*> refused_message_text;
  };
  Columns columns;
  size_t num_logit_rows = 0;

  // Brings the columns up to date with `result`.
  void Fill();
};

#endif  // REPRISE_CAPI_HANDLES_H_
