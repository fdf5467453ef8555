// SPDX-License-Identifier: Apache-2.0
// The page walk: reads the KV pages of a batch through a list of pages and does nothing else, so
// that a benchmark may set paged attention beside the least time in which anything can read the
// same bytes from the same places. Measuring work, never inside a step.
#ifndef REPRISE_KERNELS_PAGE_WALK_PAGE_WALK_H_
#define REPRISE_KERNELS_PAGE_WALK_PAGE_WALK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/kernel_set.h"
#include "kernels/page_walk/page_walk_args.h"
#include "runtime/device.h"

namespace reprise::kernels {

// Blocks of every launch on a device, whatever the batch.
uint32_t PageWalkGrid(const runtime::DeviceProperties& device);

// Reads K and V of the live tokens of all listed pages, every byte once. Run r = page * (2 *
// num_kv_heads) + (K before V, head within) is block r % grid's. A run has G = ceil(V / 8) groups,
// V its 16-byte vectors; the word of group g is the exclusive or of the 32-bit words of its vectors
// g, g + G, ... g + 7 G, without those of tokens that are not live. matches[b] = how many words of
// block b's runs equal `pattern`. Grid: PageWalkGrid. Errors: InvalidArgument on a head's token
// that is not a multiple of 16 bytes, on a run above kPageWalkMaxRunBytes, and on max_pages whose
// runs do not fit 31 bits.
absl::Status PageWalk(runtime::Stream& stream, const KernelSet& kernels, const PageWalkArgs& args,
                      uint32_t max_pages);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_PAGE_WALK_PAGE_WALK_H_
