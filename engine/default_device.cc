// SPDX-License-Identifier: Apache-2.0
#include "engine/default_device.h"

#include "kernels/catalog.h"

namespace reprise::engine {

DefaultDevice ChooseDefaultDevice(std::string_view hip_library) {
  DefaultDevice choice;
  if (runtime::CountCudaDevices(&choice.no_cuda) > 0) {
    choice.kind = runtime::DeviceKind::kCuda;
    return choice;
  }
  if (kernels::Catalog().hip_code_objects.empty()) {
    choice.no_hip = "this build carries no HIP code";
  } else if (runtime::CountHipDevices(&choice.no_hip, hip_library) > 0) {
    choice.kind = runtime::DeviceKind::kHip;
  }
  return choice;
}

}  // namespace reprise::engine
