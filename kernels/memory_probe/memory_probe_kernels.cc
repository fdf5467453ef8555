// SPDX-License-Identifier: Apache-2.0
// The kernels of the memory probes. Compiled once per target.
#include "kernels/device/define_instances.h"
#include "kernels/memory_probe/instances.h"
#include "kernels/memory_probe/memory_probe_body.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_MEMORY_PROBE_INSTANCES(REPRISE_DEFINE_INSTANCE)

}  // namespace reprise::kernels::REPRISE_DEVICE_NS
