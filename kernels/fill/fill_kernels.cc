// SPDX-License-Identifier: Apache-2.0
// The kernels of the fills. Compiled once per target.
#include "kernels/device/define_instances.h"
#include "kernels/fill/fill_body.h"
#include "kernels/fill/instances.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_FILL_INSTANCES(REPRISE_DEFINE_INSTANCE)

}  // namespace reprise::kernels::REPRISE_DEVICE_NS
