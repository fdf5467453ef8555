// SPDX-License-Identifier: Apache-2.0
// A range of device memory that an embedder names.
#ifndef REPRISE_GRAPHS_MEMORY_RANGE_H_
#define REPRISE_GRAPHS_MEMORY_RANGE_H_

#include <cstddef>
#include <string>

namespace reprise::graphs {

struct MemoryRange {
  std::string name;
  void* data = nullptr;  // as kernels address it
  size_t bytes = 0;
};

}  // namespace reprise::graphs

#endif  // REPRISE_GRAPHS_MEMORY_RANGE_H_
