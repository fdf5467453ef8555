// SPDX-License-Identifier: Apache-2.0
// DeviceTelemetry: a device's clocks and power, where its platform reports them. NVIDIA GPUs do so
// through NVML, which comes with the driver and is opened at run time; the host reports nothing.
// Threads: one at a time.
#ifndef REPRISE_RUNTIME_DEVICE_TELEMETRY_H_
#define REPRISE_RUNTIME_DEVICE_TELEMETRY_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/device.h"

namespace reprise::runtime {

// What the platform reports at this moment; a value that it does not report is unset.
struct TelemetrySample {
  std::optional<double> sm_clock_mhz;
  std::optional<double> memory_clock_mhz;
  std::optional<double> power_w;
};

// Libraries of NVIDIA's driver.
struct TelemetryLibraries {
  std::string nvml = "libnvidia-ml.so.1";
  // Knows an ordinal's place on the PCI bus, by which NVML knows the device.
  std::string cuda = "libcuda.so.1";
};

class DeviceTelemetry {
 public:
  virtual ~DeviceTelemetry() = default;
  // "nvml".
  virtual std::string source() const = 0;
  virtual TelemetrySample Read() = 0;

  // Errors: Unimplemented on a device whose platform reports nothing; Unavailable with the reason
  // when a library is missing or refuses.
  static absl::StatusOr<std::unique_ptr<DeviceTelemetry>> Open(
      const DeviceProperties& device, const TelemetryLibraries& libraries = {});
};

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_DEVICE_TELEMETRY_H_
