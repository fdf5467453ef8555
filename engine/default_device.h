// SPDX-License-Identifier: Apache-2.0
// Which device runs where nobody has said.
#ifndef REPRISE_ENGINE_DEFAULT_DEVICE_H_
#define REPRISE_ENGINE_DEFAULT_DEVICE_H_

#include <string>
#include <string_view>

#include "runtime/device.h"

namespace reprise::engine {

struct DefaultDevice {
  runtime::DeviceKind kind = runtime::DeviceKind::kHost;
  // Why it is none of these, where it is not.
  std::string no_cuda = {};
  std::string no_hip = {};
};

// cuda or hip, in this order, where a GPU is usable and this build has code for it, else host.
// hip_library: as DeviceOptions::hip_library.
DefaultDevice ChooseDefaultDevice(std::string_view hip_library);

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_DEFAULT_DEVICE_H_
