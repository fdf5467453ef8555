// SPDX-License-Identifier: Apache-2.0
// The kernels of sampling. Compiled once per target.
#include "kernels/device/define_instances.h"
#include "kernels/sample/instances.h"
#include "kernels/sample/sample_body.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_SAMPLE_INSTANCES(REPRISE_DEFINE_INSTANCE)

}  // namespace reprise::kernels::REPRISE_DEVICE_NS
