// SPDX-License-Identifier: Apache-2.0
// The kernels of rope + KV append. Compiled once per target.
#include "kernels/device/define_instances.h"
#include "kernels/rope_append/instances.h"
#include "kernels/rope_append/rope_append_body.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_ROPE_APPEND_INSTANCES(REPRISE_DEFINE_INSTANCE)

}  // namespace reprise::kernels::REPRISE_DEVICE_NS
