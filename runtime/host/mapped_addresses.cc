// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/mapped_addresses.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace reprise::runtime {

// "7f52b2e00000-7f52b2e21000 rw-p ..."
MappedAddresses MappedAddresses::Read() {
  MappedAddresses addresses;
  std::ifstream file("/proc/self/maps");
  char dash = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
  while (file >> std::hex >> begin >> dash >> end) {
    addresses.ranges_.emplace_back(begin, end);
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return addresses;
}

bool MappedAddresses::Contains(uint64_t address) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), address,
                       [](uint64_t a, const auto& range) { return a < range.first; });
  return after != ranges_.begin() && address < std::prev(after)->second;
}

}  // namespace reprise::runtime
