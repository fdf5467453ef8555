// SPDX-License-Identifier: Apache-2.0
// The kernels of SiLU*up. Compiled once per target.
#include "kernels/device/define_instances.h"
#include "kernels/silu_mul/instances.h"
#include "kernels/silu_mul/silu_mul_body.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_SILU_MUL_INSTANCES(REPRISE_DEFINE_INSTANCE)

}  // namespace reprise::kernels::REPRISE_DEVICE_NS
