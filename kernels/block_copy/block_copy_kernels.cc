// SPDX-License-Identifier: Apache-2.0
// The kernels of the block copies. Compiled once per target.
#include "kernels/block_copy/block_copy_body.h"
#include "kernels/block_copy/instances.h"
#include "kernels/device/define_instances.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_BLOCK_COPY_INSTANCES(REPRISE_DEFINE_INSTANCE)

}  // namespace reprise::kernels::REPRISE_DEVICE_NS
