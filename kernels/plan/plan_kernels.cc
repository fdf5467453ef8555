// SPDX-License-Identifier: Apache-2.0
// The kernel of the plan. Compiled once per target.
#include "kernels/device/define_instances.h"
#include "kernels/plan/instances.h"
#include "kernels/plan/plan_body.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_PLAN_INSTANCES(REPRISE_DEFINE_INSTANCE)

}  // namespace reprise::kernels::REPRISE_DEVICE_NS
