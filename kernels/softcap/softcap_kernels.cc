// SPDX-License-Identifier: Apache-2.0
// The kernel of the soft cap. Compiled once per target.
#include "kernels/device/define_instances.h"
#include "kernels/softcap/instances.h"
#include "kernels/softcap/softcap_body.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_SOFTCAP_INSTANCES(REPRISE_DEFINE_INSTANCE)

}  // namespace reprise::kernels::REPRISE_DEVICE_NS
