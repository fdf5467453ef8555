// SPDX-License-Identifier: Apache-2.0
#include "tools/device_flags.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "engine/default_device.h"
#include "runtime/status_macros.h"
#include "tools/connection_flags.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

absl::StatusOr<runtime::DeviceOptions> ChooseDevice(const DeviceFlags& flags, Console* console) {
  runtime::DeviceOptions options{.ordinal = flags.choice.ordinal,
                                 .host_threads = flags.host_threads,
                                 .hip_library = flags.hip_library};
  if (flags.choice.kind) {
    options.kind = *flags.choice.kind;
    return options;
  }
  const engine::DefaultDevice choice = engine::ChooseDefaultDevice(flags.hip_library);
  options.kind = choice.kind;
  const std::string name(runtime::NameOf(choice.kind));
  console->Note(
      choice.kind == runtime::DeviceKind::kHost
          ? absl::StrCat("device: host, because cuda: ", choice.no_cuda, "; hip: ", choice.no_hip,
                         " (--device auto)")
          : absl::StrCat("device: ", name, ":0, because a usable GPU is there (--device auto)"));
  return options;
}

}  // namespace

absl::StatusOr<DeviceChoice> ParseDeviceChoice(std::string_view text, bool offers_simulation) {
  if (text == "auto") return DeviceChoice{};
  if (text == "sim" && offers_simulation)
    return DeviceChoice{.kind = runtime::DeviceKind::kHost, .simulated = true};
  if (text == "host") return DeviceChoice{.kind = runtime::DeviceKind::kHost};
  for (const runtime::DeviceKind kind : {runtime::DeviceKind::kCuda, runtime::DeviceKind::kHip}) {
    const std::string_view name = runtime::NameOf(kind);
    if (!text.starts_with(name)) continue;
    const std::string_view rest = text.substr(name.size());
    if (rest.empty()) return DeviceChoice{.kind = kind};
    if (rest[0] != ':') continue;
    const absl::StatusOr<uint64_t> ordinal = ParseUnsigned(rest.substr(1), 0, 1023);
    if (ordinal.ok()) return DeviceChoice{.kind = kind, .ordinal = static_cast<int>(*ordinal)};
  }
  return absl::InvalidArgumentError(absl::StrCat("device: got \"", std::string(text),
                                                 "\", allowed: auto, host, cuda, cuda:N, hip, "
                                                 "hip:N",
                                                 offers_simulation ? ", sim" : ""));
}

void AddDeviceOptions(CLI::App* app, DeviceFlags* flags, bool offers_simulation) {
  AddOption(
      app, "--device", &flags->choice,
      [offers_simulation](std::string_view text) {
        return ParseDeviceChoice(text, offers_simulation);
      },
      "DEVICE", "auto",
      absl::StrCat(
          "auto (cuda or hip where it can be used, else host), host, cuda, cuda:N, hip",
          offers_simulation ? ", hip:N, or sim (measured times and made-up tokens)" : " or hip:N"));
  if (offers_simulation) {
    AddFileOption(app, "--profile", &flags->profile_file,
                  "What a step costs the simulated device: JSON of `reprise profile`");
  }
  AddOption(
      app, "--host-threads", &flags->host_threads,
      [](std::string_view text) { return ParseUnsigned(text, 0, 1024); }, "N", "0",
      "Worker threads of the host device; 0: one per core");
  app->add_option("--hip-library", flags->hip_library,
                  "HIP runtime library to open, by path or name (default: libamdhip64.so of ROCm "
                  "7, 6, 5)")
      ->type_name("PATH");
}

absl::Status CheckDeviceFlags(const DeviceFlags& flags) {
  if (flags.choice.simulated == !flags.profile_file.empty()) return absl::OkStatus();
  return UsageError(flags.choice.simulated
                        ? "device: got sim without --profile, allowed: with --profile FILE"
                        : "profile: got --profile without --device sim, allowed: with it");
}

absl::StatusOr<std::unique_ptr<runtime::Device>> OpenDevice(const DeviceFlags& flags,
                                                            Console* console) {
  REPRISE_ASSIGN_OR_RETURN(const runtime::DeviceOptions options, ChooseDevice(flags, console));
  return runtime::Device::Create(options);
}

std::string DeviceText(const runtime::DeviceProperties& device) {
  return absl::StrCat(std::string(runtime::NameOf(device.kind)), ":", device.ordinal, ", ",
                      device.name, device.driver.empty() ? "" : ", driver ", device.driver);
}

nlohmann::json DeviceToJson(const runtime::DeviceProperties& device) {
  return {{"kind", std::string(runtime::NameOf(device.kind))},
          {"name", device.name},
          {"driver", device.driver},
          {"architecture", device.architecture},
          {"multiprocessors", device.num_multiprocessors}};
}

}  // namespace reprise::tools
