// SPDX-License-Identifier: Apache-2.0
// KV blocks of reprise.h beyond a session's own use of them: shared, read and written, swapped.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "capi/call.h"
#include "capi/handles.h"
#include "capi/reprise.h"
#include "engine/decode_engine.h"
#include "engine/kv_part.h"
#include "runtime/status_macros.h"

namespace reprise::capi {
namespace {

using engine::DecodeEngine;

absl::StatusOr<DecodeEngine*> EngineOf(const reprise_session* session) {
  REPRISE_RETURN_IF_ERROR(CheckHandle(session));
  return session->shared->engine.get();
}

absl::Status Adopt(const reprise_session* session, const char* name, uint32_t* blocks,
                   size_t capacity, size_t* num_blocks) {
  REPRISE_ASSIGN_OR_RETURN(DecodeEngine * engine, EngineOf(session));
  REPRISE_RETURN_IF_ERROR(CheckNotNull("name", name));
  REPRISE_RETURN_IF_ERROR(CheckArray("blocks", blocks, capacity));
  REPRISE_RETURN_IF_ERROR(CheckNotNull("num_blocks", num_blocks));
  const uint32_t most = engine->info().limits.max_blocks_per_row;
  if (capacity < most) {
    return absl::OutOfRangeError(absl::StrCat("blocks: capacity is ", capacity,
                                              "; allowed: at least max_blocks_per_row, ", most));
  }
  REPRISE_ASSIGN_OR_RETURN(const std::vector<uint32_t> adopted,
                           engine->AdoptBlocks(session->info.id, name));
  std::copy(adopted.begin(), adopted.end(), blocks);
  *num_blocks = adopted.size();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<engine::KvPart>> Parts(const reprise_kv_part* parts, size_t num_parts) {
  REPRISE_RETURN_IF_ERROR(CheckArray("parts", parts, num_parts));
  std::vector<engine::KvPart> list;
  for (const reprise_kv_part& part : std::span(parts, num_parts)) {
    list.push_back({.block = part.block,
                    .first_layer = part.first_layer,
                    .num_layers = part.num_layers,
                    .num_tokens = part.num_tokens});
  }
  return list;
}

absl::Status Read(const reprise_session* session, reprise_kv_part* parts, size_t num_parts,
                  void* contents, size_t capacity, size_t* bytes) {
  REPRISE_ASSIGN_OR_RETURN(DecodeEngine * engine, EngineOf(session));
  REPRISE_ASSIGN_OR_RETURN(std::vector<engine::KvPart> list, Parts(parts, num_parts));
  REPRISE_RETURN_IF_ERROR(CheckArray("contents", contents, capacity));
  std::vector<std::byte> read;
  REPRISE_RETURN_IF_ERROR(engine->ReadBlocks(session->info.id, list, &read));
  if (read.size() > capacity) {
    return absl::OutOfRangeError(absl::StrCat("contents: capacity is ", capacity,
                                              "; allowed: at least ", read.size(), " bytes"));
  }
  std::copy(read.begin(), read.end(), static_cast<std::byte*>(contents));
  for (size_t i = 0; i < num_parts; ++i) parts[i].num_tokens = list[i].num_tokens;
  if (bytes != nullptr) *bytes = read.size();
  return absl::OkStatus();
}

absl::Status Write(const reprise_session* session, const reprise_kv_part* parts, size_t num_parts,
                   const void* contents, size_t bytes) {
  REPRISE_ASSIGN_OR_RETURN(DecodeEngine * engine, EngineOf(session));
  REPRISE_ASSIGN_OR_RETURN(const std::vector<engine::KvPart> list, Parts(parts, num_parts));
  REPRISE_RETURN_IF_ERROR(CheckArray("contents", contents, bytes));
  return engine->WriteBlocks(session->info.id, list,
                             {static_cast<const std::byte*>(contents), bytes});
}

// Both ways between the pool and swap space: as many numbers in as out.
using Move = absl::StatusOr<std::vector<uint32_t>> (DecodeEngine::*)(engine::SessionId,
                                                                     std::span<const uint32_t>);
absl::Status Swap(const reprise_session* session, Move move, const uint32_t* from, size_t count,
                  std::string_view to_name, uint32_t* to) {
  REPRISE_ASSIGN_OR_RETURN(DecodeEngine * engine, EngineOf(session));
  REPRISE_RETURN_IF_ERROR(CheckArray("blocks", from, count));
  REPRISE_RETURN_IF_ERROR(CheckArray(to_name, to, count));
  REPRISE_ASSIGN_OR_RETURN(const std::vector<uint32_t> moved,
                           (engine->*move)(session->info.id, {from, count}));
  std::copy(moved.begin(), moved.end(), to);
  return absl::OkStatus();
}

}  // namespace
}  // namespace reprise::capi

using reprise::capi::Call;
using reprise::capi::CheckArray;
using reprise::capi::CheckNotNull;
using reprise::capi::EngineOf;
using reprise::engine::DecodeEngine;

reprise_code reprise_session_share_blocks(reprise_session* session, const char* name,
                                          const uint32_t* blocks, size_t num_blocks,
                                          reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_ASSIGN_OR_RETURN(DecodeEngine * engine, EngineOf(session));
    REPRISE_RETURN_IF_ERROR(CheckNotNull("name", name));
    REPRISE_RETURN_IF_ERROR(CheckArray("blocks", blocks, num_blocks));
    return engine->ShareBlocks(session->info.id, name, {blocks, num_blocks});
  });
}

reprise_code reprise_session_adopt_blocks(reprise_session* session, const char* name,
                                          uint32_t* blocks, size_t capacity, size_t* num_blocks,
                                          reprise_error* error) {
  return Call(error,
              [&] { return reprise::capi::Adopt(session, name, blocks, capacity, num_blocks); });
}

reprise_code reprise_session_release_blocks(reprise_session* session, const char* name,
                                            reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_ASSIGN_OR_RETURN(DecodeEngine * engine, EngineOf(session));
    REPRISE_RETURN_IF_ERROR(CheckNotNull("name", name));
    return engine->ReleaseBlocks(session->info.id, name);
  });
}

reprise_code reprise_session_read_blocks(reprise_session* session, reprise_kv_part* parts,
                                         size_t num_parts, void* contents, size_t capacity,
                                         size_t* bytes, reprise_error* error) {
  return Call(error, [&] {
    return reprise::capi::Read(session, parts, num_parts, contents, capacity, bytes);
  });
}

reprise_code reprise_session_write_blocks(reprise_session* session, const reprise_kv_part* parts,
                                          size_t num_parts, const void* contents, size_t bytes,
                                          reprise_error* error) {
  return Call(error,
              [&] { return reprise::capi::Write(session, parts, num_parts, contents, bytes); });
}

reprise_code reprise_session_swap_out(reprise_session* session, const uint32_t* blocks,
                                      size_t num_blocks, uint32_t* swapped, reprise_error* error) {
  return Call(error, [&] {
    return reprise::capi::Swap(session, &DecodeEngine::SwapOut, blocks, num_blocks, "swapped",
                               swapped);
  });
}

reprise_code reprise_session_swap_in(reprise_session* session, const uint32_t* swapped,
                                     size_t num_swapped, uint32_t* blocks, reprise_error* error) {
  return Call(error, [&] {
    return reprise::capi::Swap(session, &DecodeEngine::SwapIn, swapped, num_swapped, "blocks",
                               blocks);
  });
}

reprise_code reprise_session_free_swapped(reprise_session* session, const uint32_t* swapped,
                                          size_t num_swapped, reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_ASSIGN_OR_RETURN(DecodeEngine * engine, EngineOf(session));
    REPRISE_RETURN_IF_ERROR(CheckArray("swapped", swapped, num_swapped));
    return engine->FreeSwapped(session->info.id, {swapped, num_swapped});
  });
}

reprise_code reprise_session_swap_out_state(reprise_session* session, uint32_t row,
                                            uint32_t* swapped_state, uint32_t* context_length,
                                            reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_ASSIGN_OR_RETURN(DecodeEngine * engine, EngineOf(session));
    REPRISE_RETURN_IF_ERROR(CheckNotNull("swapped_state", swapped_state));
    REPRISE_ASSIGN_OR_RETURN(const reprise::engine::SwappedState state,
                             engine->SwapOutState(session->info.id, row));
    *swapped_state = state.place;
    if (context_length != nullptr) *context_length = state.context_length;
    return absl::OkStatus();
  });
}

reprise_code reprise_session_free_swapped_states(reprise_session* session,
                                                 const uint32_t* swapped_states,
                                                 size_t num_swapped_states, reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_ASSIGN_OR_RETURN(DecodeEngine * engine, EngineOf(session));
    REPRISE_RETURN_IF_ERROR(CheckArray("swapped_states", swapped_states, num_swapped_states));
    return engine->FreeSwapped(session->info.id, {}, {swapped_states, num_swapped_states});
  });
}
