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
  bool simulated = false;  // by `kind`, which is host then
};

// "auto", "host", "cuda", "cuda:1", "hip", "hip:1"; "sim" where that is offered. Errors:
// InvalidArgument with what, got, allowed.
absl::StatusOr<DeviceChoice> ParseDeviceChoice(std::string_view text,
                                               bool offers_simulation = false);

struct DeviceFlags {
  DeviceChoice choice;
  int host_threads = 0;
  std::string hip_library;   // as runtime::DeviceOptions::hip_library
  std::string profile_file;  // of a simulated device; see simulated_device.h
};

// `flags` must outlive `app`. offers_simulation: with --device sim and --profile, for commands that
// serve or generate.
void AddDeviceOptions(CLI::App* app, DeviceFlags* flags, bool offers_simulation = false);
// Usage error unless a simulated device was given a profile, and no other one.
absl::Status CheckDeviceFlags(const DeviceFlags& flags);

// Picks the device, and says on stderr which and why where it was left open. Errors: the device's.
absl::StatusOr<std::unique_ptr<runtime::Device>> OpenDevice(const DeviceFlags& flags,
                                                            Console* console);

// "cuda:0, NVIDIA H200, driver 570.86".
std::string DeviceText(const runtime::DeviceProperties& device);
// {"kind", "name", "driver", "architecture", "multiprocessors"}.
nlohmann::json DeviceToJson(const runtime::DeviceProperties& device);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_DEVICE_FLAGS_H_
