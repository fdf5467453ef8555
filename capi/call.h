// SPDX-License-Identifier: Apache-2.0
// What every function of reprise.h does with what it is given: handles and structs are checked,
// errors become codes and messages, and no exception passes.
#ifndef REPRISE_CAPI_CALL_H_
#define REPRISE_CAPI_CALL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "capi/reprise.h"

namespace reprise::capi {

// The code of `status`, whose message goes to `error`, where there is one.
reprise_code Report(const absl::Status& status, reprise_error* error);

// What a function of the caller's returned, as a status; `doing` is said where it gave no message.
absl::Status FromCaller(reprise_code code, const reprise_error& error, std::string_view doing);

// Runs the body of a call, which returns an absl::Status.
template <typename Body>
reprise_code Call(reprise_error* error, const Body& body) noexcept {
  try {
    return Report(body(), error);
  } catch (const std::bad_alloc&) {
    return Report(absl::ResourceExhaustedError("out of memory"), error);
  } catch (const std::exception& e) {
    return Report(absl::InternalError(e.what()), error);
  }
}

// "<name>: got NULL".
absl::Status CheckNotNull(std::string_view name, const void* pointer);
// An array of `count` elements.
absl::Status CheckArray(std::string_view name, const void* array, size_t count);

// A field that is 0 or 1. Errors: InvalidArgument (name, got, allowed).
absl::StatusOr<bool> ReadSwitch(std::string_view name, uint64_t value);

// Begins every handle, so that one of another kind is found. The word is gone with the handle.
template <uint64_t kValue>
class Tag {
 public:
  Tag() = default;
  ~Tag() { value_ = 0; }
  Tag(const Tag&) = delete;
  Tag& operator=(const Tag&) = delete;
  bool matches() const { return value_ == kValue; }

 private:
  volatile uint64_t value_ = kValue;
};

absl::Status NotSuchAHandle(std::string_view name);
template <typename Handle>
absl::Status CheckHandle(const Handle* handle) {
  if (handle == nullptr) return CheckNotNull(Handle::kName, handle);
  return handle->tag.matches() ? absl::OkStatus() : NotSuchAHandle(Handle::kName);
}

// The body of every ..._destroy.
template <typename Handle>
reprise_code Destroy(Handle* handle) noexcept {
  if (handle == nullptr) return REPRISE_OK;
  return Call(nullptr, [&] {
    absl::Status status = CheckHandle(handle);
    if (status.ok()) delete handle;
    return status;
  });
}

// Of every struct of reprise.h with a size: what it is called in messages, and its size in the
// first version that had it, which stays as it is when the struct grows. It has no padding at its
// end, where a new field would not change the size.
template <typename T>
struct StructOf;
#define REPRISE_STRUCT(type, last, name, first_bytes)                                        \
  template <>                                                                                \
  struct StructOf<type> {                                                                    \
    static constexpr std::string_view kName = name;                                          \
    static constexpr size_t kFirstBytes = first_bytes;                                       \
    static_assert(sizeof(type) >= (first_bytes));                                            \
    static_assert(sizeof(type) == offsetof(type, last) + sizeof(std::declval<type>().last)); \
  }
REPRISE_STRUCT(reprise_device_options, hip_library, "device options", 32);
REPRISE_STRUCT(reprise_device_info, total_bytes, "device info", 64);
REPRISE_STRUCT(reprise_graph_options, progress, "graph options", 40);
REPRISE_STRUCT(reprise_bucket_info, tokens, "bucket info", 48);
REPRISE_STRUCT(reprise_replay_report, replayed, "replay report", 32);
REPRISE_STRUCT(reprise_bucket_report, workspace_bytes, "bucket report", 128);
REPRISE_STRUCT(reprise_verify_report, bytes, "verify report", 24);
REPRISE_STRUCT(reprise_audit_report, foreign_address, "audit report", 80);
REPRISE_STRUCT(reprise_move_report, num_recaptured, "move report", 40);
REPRISE_STRUCT(reprise_engine_options, linear_table, "engine options", 184);
REPRISE_STRUCT(reprise_engine_info, row_state_bytes, "engine info", 240);
REPRISE_STRUCT(reprise_pool_info, free_swap_states, "pool info", 32);
REPRISE_STRUCT(reprise_session_limits, account, "session limits", 16);
REPRISE_STRUCT(reprise_session_use, num_swapped, "session use", 24);
REPRISE_STRUCT(reprise_sampling, num_allowed_bytes, "sampling", 120);
REPRISE_STRUCT(reprise_row_add, swapped_state, "row add", 64);
REPRISE_STRUCT(reprise_row_chunk, next_token, "row chunk", 48);
REPRISE_STRUCT(reprise_result_view, step_attention_tree, "result view", 336);
#undef REPRISE_STRUCT

// Of a caller's struct of `bytes` bytes, of which this library knows `known`. Errors:
// InvalidArgument (size, got, allowed).
absl::Status CheckStructSize(std::string_view name, size_t bytes, size_t first_bytes);
absl::Status CheckUnknownFields(std::string_view name, const void* given, size_t bytes,
                                size_t known);

// A caller's struct as this library knows it: fields that an earlier version lacks are zero.
template <typename T>
absl::Status ReadStruct(const T* given, T* read) {
  using S = StructOf<T>;
  absl::Status status = CheckNotNull(S::kName, given);
  if (!status.ok()) return status;
  const size_t bytes = given->struct_size;
  status = CheckStructSize(S::kName, bytes, S::kFirstBytes);
  if (status.ok()) status = CheckUnknownFields(S::kName, given, bytes, sizeof(T));
  if (!status.ok()) return status;
  *read = {};
  std::memcpy(static_cast<void*>(read), given, std::min(bytes, sizeof(T)));
  return absl::OkStatus();
}

// Fills in a caller's struct of `bytes` bytes: what this library does not know becomes zero, what
// an earlier version lacks is left out.
template <typename T>
absl::Status WriteStruct(T value, size_t bytes, T* out) {
  using S = StructOf<T>;
  absl::Status status = CheckNotNull(S::kName, out);
  if (status.ok()) status = CheckStructSize(S::kName, bytes, S::kFirstBytes);
  if (!status.ok()) return status;
  value.struct_size = bytes;
  std::memset(static_cast<void*>(out), 0, bytes);
  std::memcpy(static_cast<void*>(out), &value, std::min(bytes, sizeof(T)));
  return absl::OkStatus();
}
// The same of one whose size its caller has set.
template <typename T>
absl::Status WriteStruct(const T& value, T* out) {
  absl::Status status = CheckNotNull(StructOf<T>::kName, out);
  return status.ok() ? WriteStruct(value, out->struct_size, out) : status;
}

}  // namespace reprise::capi

#endif  // REPRISE_CAPI_CALL_H_
