// SPDX-License-Identifier: Apache-2.0
// What tests set and ask of the emulator; kernel_interface.h is its contract with kernels.
// A test runs emulated kernels as it runs any kernel of the host device: the KernelDef's host
// function calls RunBlock.
#ifndef REPRISE_TESTS_EMULATOR_EMULATOR_H_
#define REPRISE_TESTS_EMULATOR_EMULATOR_H_

#include <cstdint>

namespace reprise::emulator {

// Chooses the schedules of all blocks that start from now on, in every thread, and starts the count
// of blocks anew: the same seed, followed by the same blocks on one host thread, gives the same
// schedules. A violation's message names the seed.
void SetScheduleSeed(uint64_t seed);

// Whether races, uninitialised reads, accesses out of bounds and accesses to copies in flight are
// found and thrown: true but for AddressSanitizer's builds, where kernels carry that
// instrumentation instead and an access out of bounds ends the program.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kChecksAccesses = false;
#else
inline constexpr bool kChecksAccesses = true;
#endif

// Limits of one block, or of the blocks of a cluster together; exceeding one is a violation with
// that message.
inline constexpr unsigned kMaxThreads = 1024;
inline constexpr unsigned kMaxBarriers = 128;
inline constexpr unsigned kMaxClusterBlocks = 8;
// Of each block.
inline constexpr unsigned kMaxDynamicBytes = 1 << 20;
inline constexpr unsigned kMaxStaticBytes = 256 << 10;

}  // namespace reprise::emulator

#endif  // REPRISE_TESTS_EMULATOR_EMULATOR_H_
