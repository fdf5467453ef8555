// SPDX-License-Identifier: Apache-2.0
// The kernel of the page walk. Compiled once per target.
#include "kernels/device/define_instances.h"
#include "kernels/page_walk/instances.h"
#include "kernels/page_walk/page_walk_body.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_PAGE_WALK_INSTANCES(REPRISE_DEFINE_INSTANCE)

}  // namespace reprise::kernels::REPRISE_DEVICE_NS
