// SPDX-License-Identifier: Apache-2.0
// Memory probes: read or copy a range of memory as fast as plain loads and stores can, the host's
// by its widest vectors, so that a profile may set a step's traffic beside what the device reaches
// on the spot. Measuring work, never inside a step.
#ifndef REPRISE_KERNELS_MEMORY_PROBE_MEMORY_PROBE_H_
#define REPRISE_KERNELS_MEMORY_PROBE_MEMORY_PROBE_H_

#include "absl/status/status.h"
#include "kernels/kernel_set.h"
#include "kernels/memory_probe/memory_probe_args.h"
#include "runtime/device.h"

namespace reprise::kernels {

// matches[p] = how many words of piece p equal `pattern`. Pieces are kMemoryProbePiece bytes, the
// last may be shorter. A piece of n * kMemoryProbeGroup bytes has n words; word g is the exclusive
// or of the 32-bit words of its 16-byte vectors g, g + n, g + 2n and g + 3n. Every byte is read
// once. data is 16-byte aligned. Grid: pieces. Errors: InvalidArgument on bytes, a multiple of
// kMemoryProbeGroup from 1 to 2^31 - 1 pieces.
absl::Status MemoryRead(runtime::Stream& stream, const KernelSet& kernels,
                        const MemoryReadArgs& args);
// to[i] = from[i], ranges that do not overlap, 16-byte aligned. Every byte is read once and written
// once. Grid and errors: as above.
absl::Status MemoryCopy(runtime::Stream& stream, const KernelSet& kernels,
                        const MemoryCopyArgs& args);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_MEMORY_PROBE_MEMORY_PROBE_H_
