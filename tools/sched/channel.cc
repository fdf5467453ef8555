// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/channel.h"

namespace reprise::tools {
namespace {

absl::Status NoSwapSpace() { return absl::UnimplementedError("there is no swap space"); }

}  // namespace

absl::StatusOr<std::vector<uint32_t>> BlockSource::SwapOut(const std::vector<uint32_t>&) {
  return NoSwapSpace();
}
absl::StatusOr<std::vector<uint32_t>> BlockSource::SwapIn(const std::vector<uint32_t>&) {
  return NoSwapSpace();
}
absl::Status BlockSource::FreeSwapped(const std::vector<uint32_t>&) { return NoSwapSpace(); }
absl::StatusOr<uint32_t> BlockSource::SwapOutState(uint32_t) { return NoSwapSpace(); }
absl::Status BlockSource::FreeSwappedState(uint32_t) { return NoSwapSpace(); }

}  // namespace reprise::tools
