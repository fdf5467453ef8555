// SPDX-License-Identifier: Apache-2.0
// The catalogue: every kernel that exists, in one visible list.
#ifndef REPRISE_KERNELS_CATALOG_H_
#define REPRISE_KERNELS_CATALOG_H_

#include "runtime/device.h"

namespace reprise::kernels {

// Names, host functions, and the device code of this build. Static storage.
const runtime::KernelImage& Catalog();

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_CATALOG_H_
