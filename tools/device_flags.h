// SPDX-License-Identifier: Apache-2.0
// Which device a command runs on: its options, opening it, and what tables and JSON say of it.
#ifndef REPRISE_TOOLS_DEVICE_FLAGS_H_
#define REPRISE_TOOLS_DEVICE_FLAGS_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "runtime/device.h"
#include "tools/cli.h"
#include "tools/console.h"

namespace reprise::tools {

// Which device was asked for.
struct DeviceChoice {
  std::optional<runtime::DeviceKind> kind;  // unset: auto
  int ordinal = 0;
};

// "auto", "host", "cuda", "cuda:1", "hip", "hip:1". Errors: InvalidArgument with what, got,
// allowed.
absl::StatusOr<DeviceChoice> ParseDeviceChoice(std::string_view text);

struct DeviceFlags {
  DeviceChoice choice;
  int host_threads = 0;
  std::string hip_library;  // as runtime::DeviceOptions::hip_library
};

// `flags` must outlive `app`.
void AddDeviceOptions(CLI::App* app, DeviceFlags* flags);

// Picks the device, and says on stderr which and why where it was left open. Errors: the device's.
absl::StatusOr<std::unique_ptr<runtime::Device>> OpenDevice(const DeviceFlags& flags,
                                                            Console* console);

// "cuda:0, NVIDIA H200, driver 570.86".
std::string DeviceText(const runtime::DeviceProperties& device);
// {"kind", "name", "driver", "architecture", "multiprocessors"}.
nlohmann::json DeviceToJson(const runtime::DeviceProperties& device);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_DEVICE_FLAGS_H_
