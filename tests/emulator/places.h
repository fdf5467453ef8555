// SPDX-License-Identifier: Apache-2.0
// Places in the program as people name them: file:line (function), by addr2line, with the functions
// that were inlined there. Slow, and asked only when something has gone wrong or looks as if.
#ifndef REPRISE_TESTS_EMULATOR_PLACES_H_
#define REPRISE_TESTS_EMULATOR_PLACES_H_

#include <cstdint>
#include <string>

#include "tests/emulator/shadow.h"

namespace reprise::emulator {

// The place of the call that returns to this address.
inline Place PlaceOf(const void* return_address) {
  return static_cast<Place>(reinterpret_cast<uintptr_t>(return_address)) - 1;
}

// "kernels/device/thread.h:40 (SyncBlock) from kernels/fill/fill_body.h:12 (FillBody)", or
// "module+0x..." where there is no line.
std::string Describe(Place place);

// Whether two places are the same place of the source: compilers copy code, when they unroll a
// loop. Places without a line are taken for the same.
bool IsSameSource(Place a, Place b);

}  // namespace reprise::emulator

#endif  // REPRISE_TESTS_EMULATOR_PLACES_H_
