// SPDX-License-Identifier: Apache-2.0
// The kernels that round rows. Compiled once per target.
#include "kernels/device/define_instances.h"
#include "kernels/round_rows/instances.h"
#include "kernels/round_rows/round_rows_body.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_ROUND_ROWS_INSTANCES(REPRISE_DEFINE_INSTANCE)

}  // namespace reprise::kernels::REPRISE_DEVICE_NS
