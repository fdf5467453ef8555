// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/kernel_trace.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

using Launch = std::vector<const TracedKernel*>;  // the kernels of one graph launch

// In the order of the calls.
std::vector<Launch> LaunchesOf(std::span<const TracedKernel> traced) {
  std::map<uint64_t, Launch> launches;
  for (const TracedKernel& kernel : traced) launches[kernel.launch].push_back(&kernel);
  std::vector<Launch> ordered;
  for (auto& [id, launch] : launches) ordered.push_back(std::move(launch));
  std::sort(ordered.begin(), ordered.end(), [](const Launch& a, const Launch& b) {
    return a.front()->begin_ns < b.front()->begin_ns;
  });
  return ordered;
}

absl::Status CheckLaunch(const Launch& launch, std::span<const std::string> names) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (launch[i]->end_ns < launch[i]->begin_ns) {
      return absl::InternalError(absl::StrCat("kernel ", i, " of a traced step, ", launch[i]->name,
                                              ", ends before it begins"));
    }
    if (launch[i]->name == names[i]) continue;
    return absl::InternalError(absl::StrCat("kernel ", i, " of a traced step is ", launch[i]->name,
                                            ", expected ", names[i]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status KernelTrace::Add(std::span<const TracedKernel> traced,
                              std::span<const std::string> names, size_t steps) {
  if (steps == 0) return absl::OkStatus();
  std::vector<Launch> launches = LaunchesOf(traced);
  std::erase_if(launches, [&](const Launch& launch) { return launch.size() != names.size(); });
  if (launches.size() < steps) {
    return absl::InternalError(absl::StrCat(launches.size(), " launches of ", names.size(),
                                            " kernels were traced, expected ", steps));
  }
  launches.erase(launches.begin(), launches.end() - static_cast<std::ptrdiff_t>(steps));
  for (const Launch& launch : launches) {
    REPRISE_RETURN_IF_ERROR(CheckLaunch(launch, names));
  }
  sums_.resize(names.size());
  for (const Launch& launch : launches) AddStep(launch);
  return absl::OkStatus();
}

void KernelTrace::AddStep(std::span<const TracedKernel* const> kernels) {
  const uint64_t begin = kernels.front()->begin_ns;
  uint64_t done = begin;  // the latest end of the kernels so far
  double gaps = 0, overlaps = 0;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const TracedKernel& kernel = *kernels[i];
    const auto duration = static_cast<double>(kernel.end_ns - kernel.begin_ns);
    const double gap = kernel.begin_ns > done ? static_cast<double>(kernel.begin_ns - done) : 0;
    const uint64_t from = std::max(done, kernel.begin_ns);
    const double exposed = kernel.end_ns > from ? static_cast<double>(kernel.end_ns - from) : 0;
    sums_[i].begin_ns += static_cast<double>(kernel.begin_ns - begin);
    sums_[i].duration_ns += duration;
    sums_[i].gap_ns += gap;
    sums_[i].exposed_ns += exposed;
    gaps += gap;
    overlaps += duration - exposed;
    done = std::max(done, kernel.end_ns);
  }
  span_ns_.Add(static_cast<double>(done - begin));
  gap_ns_.Add(gaps);
  overlap_ns_.Add(overlaps);
}

std::vector<LaunchTrace> KernelTrace::MeanLaunches() const {
  std::vector<LaunchTrace> means = sums_;
  const auto steps = static_cast<double>(span_ns_.count());
  for (LaunchTrace& mean : means) {
    mean.begin_ns /= steps;
    mean.duration_ns /= steps;
    mean.gap_ns /= steps;
    mean.exposed_ns /= steps;
  }
  return means;
}

}  // namespace reprise::tools
