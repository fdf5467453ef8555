// SPDX-License-Identifier: Apache-2.0
// The memory that this process has mapped, at a moment: on the host device, what a kernel's
// argument may point at.
#ifndef REPRISE_RUNTIME_HOST_MAPPED_ADDRESSES_H_
#define REPRISE_RUNTIME_HOST_MAPPED_ADDRESSES_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace reprise::runtime {

class MappedAddresses {
 public:
  // Of /proc/self/maps. Nothing is mapped where that cannot be read.
  static MappedAddresses Read();
  bool Contains(uint64_t address) const;

 private:
  std::vector<std::pair<uint64_t, uint64_t>> ranges_;  // [begin, end), ascending
};

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_HOST_MAPPED_ADDRESSES_H_
