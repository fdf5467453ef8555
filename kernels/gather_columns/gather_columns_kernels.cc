// SPDX-License-Identifier: Apache-2.0
// The kernels that gather columns. Compiled once per target.
#include "kernels/device/define_instances.h"
#include "kernels/gather_columns/gather_columns_body.h"
#include "kernels/gather_columns/instances.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_GATHER_COLUMNS_INSTANCES(REPRISE_DEFINE_INSTANCE)

}  // namespace reprise::kernels::REPRISE_DEVICE_NS
