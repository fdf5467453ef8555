// SPDX-License-Identifier: Apache-2.0
// Which kernel a launch of the linear op takes: the built-in choice by format, layout, shape and
// rows, what a linear table says in its place, and which kernels there are to choose from. Choices
// change no bits: a row's are the same by all of LinearKernelsOfSameBits.
#ifndef REPRISE_KERNELS_LINEAR_LINEAR_CHOICE_H_
#define REPRISE_KERNELS_LINEAR_LINEAR_CHOICE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/kernel_set.h"
#include "kernels/linear/linear_table.h"
#include "kernels/linear/linear_weights.h"

namespace reprise::kernels {

// The families for weights of a format; nullptr: there is none.
struct LinearFamilies {
  const KernelFamily* portable = nullptr;
  const KernelFamily* native = nullptr;
  const KernelFamily* matrix = nullptr;
  const KernelFamily* packed = nullptr;
  const KernelFamily* stream = nullptr;
  const KernelFamily* group = nullptr;
  const KernelFamily* cluster = nullptr;
};
const LinearFamilies& LinearFamiliesOf(WeightFormat format, int32_t group_size);

// The loaded instance of a family that reads such weights, with the smallest tile of at least
// `rows`; of tile 0 where none is that large, or the family knows no tiles. nullptr: none, or
// no family.
const LoadedKernel* FindLinearTile(const KernelSet& kernels, const KernelFamily* family,
                                   WeightFormat format, uint32_t rows);

// 16-byte copies need rows that start at multiples of 16 bytes.
bool HasWholeChunks(const LinearWeights& weights);

// What a launch of at most so many rows takes where no table is asked. nullptr: no instance reads
// the format.
const LoadedKernel* BuiltInLinearKernel(const KernelSet& kernels, const LinearWeights& weights,
                                        uint32_t max_rows);
// What kernels.linear_table says of it; nullptr: nothing.
const LoadedKernel* TableLinearKernel(const KernelSet& kernels, const LinearWeights& weights,
                                      uint32_t max_rows);
// What it takes: by the table, else the built-in choice. nullptr: as above.
const LoadedKernel* ChosenLinearKernel(const KernelSet& kernels, const LinearWeights& weights,
                                       uint32_t max_rows);

// Whether a kernel can norm what it reads and add to what it writes (LinearArgs::norm_weight,
// adds_to_out).
bool TakesResidual(const KernelInstance& kernel);

// Every loaded kernel that can take such a launch with the bits of the built-in choice, which is
// among them, in the order of the op's list. One that can with max_rows can with fewer.
std::vector<const LoadedKernel*> LinearKernelsOfSameBits(const KernelSet& kernels,
                                                         const LinearWeights& weights,
                                                         uint32_t max_rows);

// Whether launches may follow the table: each of its kernels is loaded, and one of
// LinearKernelsOfSameBits for the entry's shape and rows. Errors: InvalidArgument says of which
// entry, what it names and what is allowed.
absl::Status CheckLinearTable(const KernelSet& kernels, const LinearTable& table);

// Whether a kernel reads packed weights, and not row-major ones. Of linear_portable, which reads
// both, false.
bool ReadsPackedWeights(const KernelInstance& kernel);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_CHOICE_H_
