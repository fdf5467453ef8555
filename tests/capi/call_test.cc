// SPDX-License-Identifier: Apache-2.0
// What holds for every call of reprise.h: errors, sizes of structs, handles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <reprise.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "tests/capi/handles.h"

namespace reprise::capi {
namespace {

TEST(CApiVersion, IsThatOfTheProject) { EXPECT_STREQ(reprise_version(), REPRISE_PROJECT_VERSION); }

TEST(CApiErrors, CodesHaveTheNumbersAndNamesOfAbsl) {
  for (int code = 0; code <= 16; ++code) {
    EXPECT_EQ(absl::StatusCodeToString(static_cast<absl::StatusCode>(code)),
              reprise_code_name(code));
  }
  EXPECT_STREQ(reprise_code_name(17), "UNKNOWN");
  EXPECT_STREQ(reprise_code_name(-1), "UNKNOWN");
}

TEST(CApiErrors, AreSetByEveryCallAndMayBeLeftOut) {
  reprise_error error;
  std::memset(&error, 0x55, sizeof(error));
  reprise_step* step = nullptr;
  ASSERT_EQ(reprise_step_create(&step, &error), REPRISE_OK);
  EXPECT_EQ(error.code, REPRISE_OK);
  EXPECT_STREQ(error.message, "");
  EXPECT_EQ(reprise_step_set_mode(step, 7, &error), REPRISE_INVALID_ARGUMENT);
  EXPECT_EQ(error.code, REPRISE_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "step mode is 7; allowed: 0 (replay), 1 (eager)");
  EXPECT_EQ(reprise_step_set_mode(step, 7, nullptr), REPRISE_INVALID_ARGUMENT);
  EXPECT_EQ(reprise_step_destroy(step), REPRISE_OK);
}

TEST(CApiErrors, LongMessagesEndWithDotsBehindAWholeCharacter) {
  const DeviceHandle device = HostDevice();
  reprise_engine_options options;
  ASSERT_EQ(reprise_engine_options_init(&options, sizeof(options), nullptr), REPRISE_OK);
  std::string name;
  for (int i = 0; i < 900; ++i) name += "\u00e9";
  // Wherever the cut falls.
  for (int i = 0; i < 2; ++i) {
    name.insert(0, "x");
    options.dtype = name.c_str();
    reprise_engine* engine = nullptr;
    reprise_error error;
    ASSERT_EQ(reprise_engine_create(device.get(), &options, &engine, &error),
              REPRISE_INVALID_ARGUMENT);
    const std::string message = error.message;
    EXPECT_GE(message.size(), sizeof(error.message) - 3);
    EXPECT_LT(message.size(), sizeof(error.message));
    EXPECT_THAT(message, ::testing::EndsWith("\u00e9..."));
  }
}

TEST(CApiStructs, OfSizesThatNoVersionHasAreRefused) {
  reprise_device* device = nullptr;
  reprise_device_options options = {};
  EXPECT_REFUSED(reprise_device_create(&options, &device, &error), REPRISE_INVALID_ARGUMENT,
                 "device options: struct_size is 0; allowed: sizeof the struct, 32 to 4096");
  options.struct_size = SIZE_MAX;  // as what was not initialised may have
  EXPECT_REFUSED(reprise_device_create(&options, &device, &error), REPRISE_INVALID_ARGUMENT,
                 "allowed: sizeof the struct, 32 to 4096");
  options.struct_size = sizeof(options) - 1;
  EXPECT_REFUSED(reprise_device_create(&options, &device, &error), REPRISE_INVALID_ARGUMENT,
                 "struct_size is 31");
  EXPECT_EQ(device, nullptr);
  reprise_engine_options engine_options;
  EXPECT_REFUSED(reprise_engine_options_init(&engine_options, 8, &error), REPRISE_INVALID_ARGUMENT,
                 "engine options: struct_size is 8");
  const DeviceHandle host = HostDevice();
  reprise_device_info info = {};
  EXPECT_REFUSED(reprise_device_get_info(host.get(), &info, &error), REPRISE_INVALID_ARGUMENT,
                 "device info: struct_size is 0");
}

// Structs as a later version may have them.
struct LaterDeviceOptions {
  reprise_device_options known;
  uint64_t unknown;
};
struct LaterDeviceInfo {
  reprise_device_info known;
  uint64_t unknown;
};

TEST(CApiStructs, OfALaterVersionAreTakenWhereWhatIsUnknownIsZero) {
  LaterDeviceOptions options = {};
  options.known.struct_size = sizeof(options);
  options.known.kind = REPRISE_DEVICE_HOST;
  reprise_device* device = nullptr;
  EXPECT_DONE(reprise_device_create(&options.known, &device, &error));
  LaterDeviceInfo info;
  std::memset(static_cast<void*>(&info), 0x55, sizeof(info));
  info.known.struct_size = sizeof(info);
  EXPECT_DONE(reprise_device_get_info(device, &info.known, &error));
  EXPECT_EQ(info.known.struct_size, sizeof(info));
  EXPECT_EQ(info.known.kind, REPRISE_DEVICE_HOST);
  EXPECT_EQ(info.unknown, 0u);
  EXPECT_EQ(reprise_device_destroy(device), REPRISE_OK);

  device = nullptr;
  options.unknown = uint64_t{1} << 63;
  EXPECT_REFUSED(reprise_device_create(&options.known, &device, &error), REPRISE_INVALID_ARGUMENT,
                 "beyond the 32 bytes that reprise " REPRISE_PROJECT_VERSION " knows");
  EXPECT_EQ(device, nullptr);
}

TEST(CApiHandles, NullIsRefusedByName) {
  reprise_stream* stream = nullptr;
  EXPECT_REFUSED(reprise_stream_create(nullptr, &stream, &error), REPRISE_INVALID_ARGUMENT,
                 "device: got NULL");
  EXPECT_REFUSED(reprise_stream_synchronize(nullptr, &error), REPRISE_INVALID_ARGUMENT,
                 "stream: got NULL");
  EXPECT_REFUSED(reprise_graph_manager_replay(nullptr, 1, nullptr, &error),
                 REPRISE_INVALID_ARGUMENT, "graph manager: got NULL");
  EXPECT_REFUSED(reprise_engine_check_health(nullptr, &error), REPRISE_INVALID_ARGUMENT,
                 "engine: got NULL");
  EXPECT_REFUSED(reprise_session_free_blocks(nullptr, nullptr, 0, &error), REPRISE_INVALID_ARGUMENT,
                 "session: got NULL");
  EXPECT_REFUSED(reprise_step_continue_all(nullptr, &error), REPRISE_INVALID_ARGUMENT,
                 "step: got NULL");
  reprise_result_view view = {};
  EXPECT_REFUSED(reprise_result_get(nullptr, &view, &error), REPRISE_INVALID_ARGUMENT,
                 "result: got NULL");
  EXPECT_EQ(reprise_stream_native_handle(nullptr), nullptr);
  EXPECT_EQ(reprise_buffer_host_data(nullptr), nullptr);
  EXPECT_EQ(reprise_buffer_device_data(nullptr), nullptr);
  EXPECT_EQ(reprise_buffer_bytes(nullptr), 0u);
  EXPECT_EQ(reprise_graph_manager_num_buckets(nullptr), 0u);
}

TEST(CApiHandles, OutputsThatAreNullAreRefused) {
  const DeviceHandle device = HostDevice();
  EXPECT_REFUSED(reprise_device_create(nullptr, nullptr, &error), REPRISE_INVALID_ARGUMENT,
                 "device: got NULL");
  EXPECT_REFUSED(reprise_device_get_info(device.get(), nullptr, &error), REPRISE_INVALID_ARGUMENT,
                 "device info: got NULL");
  EXPECT_REFUSED(reprise_stream_create(device.get(), nullptr, &error), REPRISE_INVALID_ARGUMENT,
                 "stream: got NULL");
  EXPECT_REFUSED(reprise_step_create(nullptr, &error), REPRISE_INVALID_ARGUMENT, "step: got NULL");
  EXPECT_REFUSED(reprise_result_create(nullptr, &error), REPRISE_INVALID_ARGUMENT,
                 "result: got NULL");
}

TEST(CApiHandles, OfAnotherKindAreRefused) {
  const DeviceHandle device = HostDevice();
  const StreamHandle stream = HostStream(device.get());
  // As a language without types for them would hand them over.
  auto* wrong = reinterpret_cast<reprise_device*>(stream.get());
  reprise_stream* made = nullptr;
  EXPECT_REFUSED(reprise_stream_create(wrong, &made, &error), REPRISE_INVALID_ARGUMENT,
                 "device: got a handle of another kind");
  EXPECT_EQ(made, nullptr);
  EXPECT_EQ(reprise_device_destroy(wrong), REPRISE_INVALID_ARGUMENT);
  EXPECT_DONE(reprise_stream_synchronize(stream.get(), &error));
}

TEST(CApiHandles, DestroyTakesNull) {
  EXPECT_EQ(reprise_device_destroy(nullptr), REPRISE_OK);
  EXPECT_EQ(reprise_buffer_destroy(nullptr), REPRISE_OK);
  EXPECT_EQ(reprise_stream_destroy(nullptr), REPRISE_OK);
  EXPECT_EQ(reprise_graph_manager_destroy(nullptr), REPRISE_OK);
  EXPECT_EQ(reprise_engine_destroy(nullptr), REPRISE_OK);
  EXPECT_EQ(reprise_session_destroy(nullptr), REPRISE_OK);
  EXPECT_EQ(reprise_step_destroy(nullptr), REPRISE_OK);
  EXPECT_EQ(reprise_result_destroy(nullptr), REPRISE_OK);
}

}  // namespace
}  // namespace reprise::capi
