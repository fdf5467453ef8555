// SPDX-License-Identifier: Apache-2.0
// What a server's metrics say, read over HTTP as a scraper does.
#ifndef REPRISE_TESTS_SERVICE_SCRAPE_H_
#define REPRISE_TESTS_SERVICE_SCRAPE_H_

#include <map>
#include <string>
#include <string_view>

namespace reprise::service {

// Sends `request`, bytes as they are, and returns all that comes back until the server ends the
// connection; "" (and a test failure) when it does not.
std::string HttpExchange(const std::string& address, std::string_view request);

// Samples by name and labels, as the text writes them: `reprise_steps_total{graph="decode/1"}`.
class Scrape {
 public:
  // GET /metrics from `address`.
  explicit Scrape(const std::string& address);

  bool Has(const std::string& sample) const { return samples_.contains(sample); }
  // A test failure, and -1, where there is none.
  double operator[](const std::string& sample) const;
  // Of all samples of a metric, whatever their labels.
  double Sum(const std::string& name) const;

 private:
  std::map<std::string, double> samples_;
};

}  // namespace reprise::service

#endif  // REPRISE_TESTS_SERVICE_SCRAPE_H_
