// SPDX-License-Identifier: Apache-2.0
// The kernels of embedding. Compiled once per target.
#include "kernels/device/define_instances.h"
#include "kernels/embedding/embedding_body.h"
#include "kernels/embedding/instances.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_EMBEDDING_INSTANCES(REPRISE_DEFINE_INSTANCE)

}  // namespace reprise::kernels::REPRISE_DEVICE_NS
