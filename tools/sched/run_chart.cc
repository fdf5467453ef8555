// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/run_chart.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/samples.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr size_t kNumBins = 30;
constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

// Equal parts of the run.
class Bins {
 public:
  explicit Bins(uint64_t wall_ns)
      : bin_ns_(static_cast<double>(std::max<uint64_t>(wall_ns, kNumBins)) / kNumBins) {}

  double seconds() const { return bin_ns_ * 1e-9; }
  size_t Of(uint64_t time_ns) const {
    return std::min(kNumBins - 1, static_cast<size_t>(static_cast<double>(time_ns) / bin_ns_));
  }
  double Begin(size_t bin) const { return static_cast<double>(bin) * bin_ns_; }
  // The part of a bin that lies within [begin, end).
  double Share(size_t bin, double begin, double end) const {
    const double within = std::min(end, Begin(bin + 1)) - std::max(begin, Begin(bin));
    return std::max(0.0, within) / bin_ns_;
  }
  // Adds what of each bin lies within.
  void AddShares(double begin, double end, std::vector<double>* values) const {
    if (end <= begin) return;
    const size_t last = Of(static_cast<uint64_t>(end));
    for (size_t bin = Of(static_cast<uint64_t>(begin)); bin <= last; ++bin)
      (*values)[bin] += Share(bin, begin, end);
  }

 private:
  double bin_ns_;
};

using List = std::vector<const Request*>;

std::vector<double> TokenRates(const List& requests, const Bins& bins) {
  std::vector<double> rates(kNumBins);
  for (const Request* request : requests) {
    for (const uint64_t time : request->token_times_ns) rates[bins.Of(time)] += 1 / bins.seconds();
  }
  return rates;
}

// On average over each bin, from arrival to the last token of those that ended, or the run's end.
std::vector<double> UnderWay(const List& requests, const Bins& bins) {
  std::vector<double> counts(kNumBins);
  for (const Request* request : requests) {
    const bool ended = request->finished() && !request->token_times_ns.empty();
    const double end =
        ended ? static_cast<double>(request->token_times_ns.back()) : bins.Begin(kNumBins);
    bins.AddShares(static_cast<double>(request->arrival_ns), end, &counts);
  }
  return counts;
}

// Likewise, from arrival to the first token.
std::vector<double> Waiting(const List& requests, const Bins& bins) {
  std::vector<double> counts(kNumBins);
  for (const Request* request : requests) {
    if (request->failed() && request->token_times_ns.empty()) continue;
    const double end = request->token_times_ns.empty()
                           ? bins.Begin(kNumBins)
                           : static_cast<double>(request->token_times_ns.front());
    bins.AddShares(static_cast<double>(request->arrival_ns), end, &counts);
  }
  return counts;
}

// Of the requests that arrived in each bin.
std::vector<double> MedianTtft(const List& requests, const Bins& bins) {
  std::vector<Samples> samples(kNumBins);
  for (const Request* request : requests) {
    if (request->token_times_ns.empty()) continue;
    const uint64_t first = std::max(request->token_times_ns.front(), request->arrival_ns);
    samples[bins.Of(request->arrival_ns)].Add(static_cast<double>(first - request->arrival_ns));
  }
  std::vector<double> medians;
  for (const Samples& bin : samples)
    medians.push_back(bin.empty() ? kNoValue : bin.Percentile(50) * 1e-6);
  return medians;
}

}  // namespace

Chart RunChart(const std::vector<Request>& requests, uint64_t wall_ns, const std::string& title) {
  const Bins bins(wall_ns);
  std::set<int32_t, std::greater<>> priorities;
  for (const Request& request : requests) priorities.insert(request.priority);
  Chart chart{.title = title,
              .subtitle = absl::StrCat(FormatCount(requests.size()), " requests in ",
                                       FormatDuration(static_cast<double>(wall_ns)),
                                       ", by parts of ", FormatDuration(bins.seconds() * 1e9),
                                       "; below: seconds since the start"),
              .panels = {{.axis = "new tokens/s"},
                         {.axis = "requests under way"},
                         {.axis = "waiting for their first token"},
                         {.axis = "median TTFT by arrival (ms)"}}};
  for (size_t bin = 0; bin < kNumBins; ++bin)
    chart.categories.push_back(absl::StrFormat("%.3g", bins.Begin(bin) * 1e-9));
  for (const int32_t priority : priorities) {
    const std::string name =
        priorities.size() == 1 ? std::string("all requests") : absl::StrCat("priority ", priority);
    List list;
    for (const Request& request : requests) {
      if (request.priority == priority && request.arrival_ns < wall_ns) list.push_back(&request);
    }
    chart.panels[0].series.push_back({.name = name, .values = TokenRates(list, bins)});
    chart.panels[1].series.push_back({.name = name, .values = UnderWay(list, bins)});
    chart.panels[2].series.push_back({.name = name, .values = Waiting(list, bins)});
    chart.panels[3].series.push_back({.name = name, .values = MedianTtft(list, bins)});
  }
  return chart;
}

}  // namespace reprise::tools
