// SPDX-License-Identifier: Apache-2.0
// The kernels of Mamba-2 layers. Compiled once per target.
#include "kernels/device/define_instances.h"
#include "kernels/mamba/instances.h"
#include "kernels/mamba/mamba_body.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_MAMBA_INSTANCES(REPRISE_DEFINE_INSTANCE)

}  // namespace reprise::kernels::REPRISE_DEVICE_NS
