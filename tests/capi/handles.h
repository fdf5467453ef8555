// SPDX-License-Identifier: Apache-2.0
// Handles of reprise.h that end with their scope, the model of the tests, and calls that they take
// for granted.
#ifndef REPRISE_TESTS_CAPI_HANDLES_H_
#define REPRISE_TESTS_CAPI_HANDLES_H_

#include <gtest/gtest.h>
#include <reprise.h>

#include <memory>
#include <string>

#include "tests/testing/source_dir.h"

namespace reprise::capi {

inline const char* Model() {
  static const std::string path = testing::SourceDir() + "/tests/fixtures/llama-tiny";
  return path.c_str();
}

template <typename T, reprise_code (*kDestroy)(T*)>
struct Destroyer {
  void operator()(T* handle) const { EXPECT_EQ(kDestroy(handle), REPRISE_OK); }
};
template <typename T, reprise_code (*kDestroy)(T*)>
using Owned = std::unique_ptr<T, Destroyer<T, kDestroy>>;

using DeviceHandle = Owned<reprise_device, reprise_device_destroy>;
using BufferHandle = Owned<reprise_buffer, reprise_buffer_destroy>;
using StreamHandle = Owned<reprise_stream, reprise_stream_destroy>;
using ManagerHandle = Owned<reprise_graph_manager, reprise_graph_manager_destroy>;
using EngineHandle = Owned<reprise_engine, reprise_engine_destroy>;
using SessionHandle = Owned<reprise_session, reprise_session_destroy>;
using StepHandle = Owned<reprise_step, reprise_step_destroy>;
using ResultHandle = Owned<reprise_result, reprise_result_destroy>;

// What `create(&handle, &error)` makes.
template <typename Handle, typename Create>
Handle Make(const Create& create) {
  typename Handle::pointer made = nullptr;
  reprise_error error;
  EXPECT_EQ(create(&made, &error), REPRISE_OK) << error.message;
  return Handle(made);
}

inline DeviceHandle HostDevice() {
  reprise_device_options options = {};
  options.struct_size = sizeof(options);
  options.kind = REPRISE_DEVICE_HOST;
  options.host_threads = 2;
  return Make<DeviceHandle>([&](reprise_device** device, reprise_error* error) {
    return reprise_device_create(&options, device, error);
  });
}

inline StreamHandle HostStream(reprise_device* device) {
  return Make<StreamHandle>([&](reprise_stream** stream, reprise_error* error) {
    return reprise_stream_create(device, stream, error);
  });
}

// A small Llama of four rows.
inline reprise_engine_options TinyOptions(const char* directory) {
  reprise_engine_options options;
  EXPECT_EQ(reprise_engine_options_init(&options, sizeof(options), nullptr), REPRISE_OK);
  static constexpr int64_t kMixed[] = {32};
  options.directory = directory;
  options.kv_cache_bytes = 1 << 20;
  options.max_rows = 4;
  options.mixed_buckets = kMixed;
  options.num_mixed_buckets = 1;
  options.max_steps_per_request = 4;
  return options;
}

}  // namespace reprise::capi

// The call fails with this code, and its message has these words.
#define EXPECT_REFUSED(call, wanted_code, words)                         \
  do {                                                                   \
    reprise_error error = {};                                            \
    EXPECT_EQ((call), wanted_code);                                      \
    EXPECT_EQ(error.code, wanted_code);                                  \
    EXPECT_NE(std::string(error.message).find(words), std::string::npos) \
        << "it says: " << error.message;                                 \
  } while (false)
// The call, which is given &error, succeeds.
#define EXPECT_DONE(call)                           \
  do {                                              \
    reprise_error error = {};                       \
    EXPECT_EQ((call), REPRISE_OK) << error.message; \
    EXPECT_EQ(error.code, REPRISE_OK);              \
  } while (false)

#endif  // REPRISE_TESTS_CAPI_HANDLES_H_
