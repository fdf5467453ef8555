// SPDX-License-Identifier: Apache-2.0
// The kernels that frame a step. Compiled once per target.
#include "kernels/device/define_instances.h"
#include "kernels/step/fetch_body.h"
#include "kernels/step/instances.h"
#include "kernels/step/publish_body.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_STEP_INSTANCES(REPRISE_DEFINE_INSTANCE)

}  // namespace reprise::kernels::REPRISE_DEVICE_NS
