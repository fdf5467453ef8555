// SPDX-License-Identifier: Apache-2.0
// Exposition: metrics as text, in version 0.0.4 of Prometheus's format. Threads: one at a time.
//
//   Exposition text;
//   text.Family("reprise_steps_total", "counter", "Steps that ran");
//   text.Add({{"graph", "decode/8"}}, 12);
#ifndef REPRISE_SERVICE_METRICS_EXPOSITION_H_
#define REPRISE_SERVICE_METRICS_EXPOSITION_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "service/metrics/histogram.h"

namespace reprise::service {

class Exposition {
 public:
  // Of HTTP.
  static constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";
  // Name and value; values are escaped here.
  using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

  // Begins a metric: `type` is counter, gauge or histogram. A name is begun once.
  void Family(std::string_view name, std::string_view type, std::string_view help);
  // A sample of the metric that was begun last.
  void Add(Labels labels, uint64_t value);
  void AddSeconds(Labels labels, uint64_t ns);
  // All samples of a histogram: its buckets, cumulative, its sum and its count.
  void AddHistogram(Labels labels, const Histogram::Snapshot& histogram);

  const std::string& text() const { return text_; }

 private:
  // `edge`: of a bucket, or "".
  void AddLine(std::string_view suffix, Labels labels, std::string_view edge,
               std::string_view value);

  std::string family_;
  std::string text_;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_METRICS_EXPOSITION_H_
