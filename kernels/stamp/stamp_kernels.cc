// SPDX-License-Identifier: Apache-2.0
// The kernel of the stamp. Compiled once per target.
#include "kernels/device/define_instances.h"
#include "kernels/stamp/instances.h"
#include "kernels/stamp/stamp_body.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_STAMP_INSTANCES(REPRISE_DEFINE_INSTANCE)

}  // namespace reprise::kernels::REPRISE_DEVICE_NS
