// SPDX-License-Identifier: Apache-2.0
#include "tests/service/scrape.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "tests/service/http2_client.h"

namespace reprise::service {

std::string HttpExchange(const std::string& address, std::string_view request) {
  Http2Client client(address);  // any bytes
  EXPECT_TRUE(client.connected()) << address;
  if (!client.connected() || !client.Send(request)) return "";
  EXPECT_TRUE(client.AwaitEnd());
  return client.received();
}

Scrape::Scrape(const std::string& address) {
  const std::string answer = HttpExchange(address, "GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer.substr(0, 200);
  const size_t body = answer.find("\r\n\r\n");
  if (body == std::string::npos) return;
  std::istringstream lines(answer.substr(body + 4));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#")) continue;
    const size_t space = line.rfind(' ');
    samples_[line.substr(0, space)] = std::strtod(line.c_str() + space + 1, nullptr);
  }
}

double Scrape::operator[](const std::string& sample) const {
  const auto found = samples_.find(sample);
  if (found != samples_.end()) return found->second;
  ADD_FAILURE() << "no sample " << sample;
  return -1;
}

double Scrape::Sum(const std::string& name) const {
  double sum = 0;
  for (const auto& [sample, value] : samples_) {
    if (sample.substr(0, sample.find('{')) == name) sum += value;
  }
  return sum;
}

}  // namespace reprise::service
