// SPDX-License-Identifier: Apache-2.0
#include "runtime/device_telemetry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/shared_library.h"
#include "runtime/status_macros.h"

namespace reprise::runtime {
namespace {

// "0000:1b:00.0", from the CUDA driver: all its functions return 0 on success.
absl::StatusOr<std::string> PciBusId(const SharedLibrary& cuda, int ordinal) {
  int (*init)(unsigned) = nullptr;
  int (*device_get)(int*, int) = nullptr;
  int (*pci_bus_id)(char*, int, int) = nullptr;
  REPRISE_RETURN_IF_ERROR(cuda.Find("cuInit", &init));
  REPRISE_RETURN_IF_ERROR(cuda.Find("cuDeviceGet", &device_get));
  REPRISE_RETURN_IF_ERROR(cuda.Find("cuDeviceGetPCIBusId", &pci_bus_id));
  int device = 0;
  char text[32] = {};
  int error = init(0);
  if (error == 0) error = device_get(&device, ordinal);
  if (error == 0) error = pci_bus_id(text, sizeof(text), device);
  if (error == 0) return std::string(text);
  return absl::UnavailableError(
      absl::StrCat("the CUDA driver does not place device ", ordinal, " on the PCI bus: ", error));
}

// The few of NVML's functions that are needed, as its documentation gives them: all return 0 on
// success. Clock domains: 1 the multiprocessors, 2 memory; MHz. Power: milliwatts.
using NvmlDevice = struct NvmlDeviceStruct*;
constexpr unsigned kNvmlClockSm = 1;
constexpr unsigned kNvmlClockMemory = 2;

struct Nvml {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*handle_by_pci_bus_id)(const char*, NvmlDevice*) = nullptr;
  int (*clock_info)(NvmlDevice, unsigned, unsigned*) = nullptr;
  int (*power_usage)(NvmlDevice, unsigned*) = nullptr;
};

class NvmlTelemetry final : public DeviceTelemetry {
 public:
  explicit NvmlTelemetry(SharedLibrary library) : library_(std::move(library)) {}
  ~NvmlTelemetry() override {
    if (started_) nvml_.shutdown();
  }

  absl::Status Start(const std::string& pci_bus_id) {
    REPRISE_RETURN_IF_ERROR(library_.Find("nvmlInit_v2", &nvml_.init));
    REPRISE_RETURN_IF_ERROR(library_.Find("nvmlShutdown", &nvml_.shutdown));
    REPRISE_RETURN_IF_ERROR(library_.Find("nvmlErrorString", &nvml_.error_string));
    REPRISE_RETURN_IF_ERROR(
        library_.Find("nvmlDeviceGetHandleByPciBusId_v2", &nvml_.handle_by_pci_bus_id));
    REPRISE_RETURN_IF_ERROR(library_.Find("nvmlDeviceGetClockInfo", &nvml_.clock_info));
    REPRISE_RETURN_IF_ERROR(library_.Find("nvmlDeviceGetPowerUsage", &nvml_.power_usage));
    REPRISE_RETURN_IF_ERROR(ToStatus("nvmlInit_v2", nvml_.init()));
    started_ = true;
    return ToStatus("nvmlDeviceGetHandleByPciBusId_v2",
                    nvml_.handle_by_pci_bus_id(pci_bus_id.c_str(), &device_));
  }

  std::string source() const override { return "nvml"; }

  TelemetrySample Read() override {
    TelemetrySample sample;
    unsigned value = 0;
    if (nvml_.clock_info(device_, kNvmlClockSm, &value) == 0) sample.sm_clock_mhz = value;
    if (nvml_.clock_info(device_, kNvmlClockMemory, &value) == 0) sample.memory_clock_mhz = value;
    if (nvml_.power_usage(device_, &value) == 0) sample.power_w = value / 1000.0;
    return sample;
  }

 private:
  absl::Status ToStatus(const char* call, int error) const {
    if (error == 0) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat(call, ": ", nvml_.error_string(error), " (", error, ")"));
  }

  SharedLibrary library_;
  Nvml nvml_;
  NvmlDevice device_ = nullptr;
  bool started_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceTelemetry>> DeviceTelemetry::Open(
    const DeviceProperties& device, const TelemetryLibraries& libraries) {
  if (device.kind != DeviceKind::kCuda) {
    return absl::UnimplementedError(absl::StrCat("device '", std::string(NameOf(device.kind)),
                                                 "' reports neither clocks nor power"));
  }
  REPRISE_ASSIGN_OR_RETURN(SharedLibrary opened, SharedLibrary::Open(libraries.nvml));
  REPRISE_ASSIGN_OR_RETURN(const SharedLibrary cuda, SharedLibrary::Open(libraries.cuda));
  REPRISE_ASSIGN_OR_RETURN(const std::string bus_id, PciBusId(cuda, device.ordinal));
  auto nvml = std::make_unique<NvmlTelemetry>(std::move(opened));
  REPRISE_RETURN_IF_ERROR(nvml->Start(bus_id));
  return nvml;
}

}  // namespace reprise::runtime
