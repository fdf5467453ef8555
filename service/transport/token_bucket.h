// SPDX-License-Identifier: Apache-2.0
// TokenBucket: how much of something may happen: `burst` at once, `per_second` in the long run.
// Threads: one at a time.
#ifndef REPRISE_SERVICE_TRANSPORT_TOKEN_BUCKET_H_
#define REPRISE_SERVICE_TRANSPORT_TOKEN_BUCKET_H_

#include <algorithm>
#include <cstdint>

namespace reprise::service {

struct Rate {
  double per_second = 0;
  double burst = 0;
};

class TokenBucket {
 public:
  // Full at `now_ns` (clock.h).
  TokenBucket(const Rate& rate, uint64_t now_ns)
      : rate_(rate), tokens_(rate.burst), filled_ns_(now_ns) {}

  // False, and nothing taken, where fewer than `tokens` are there.
  bool Take(double tokens, uint64_t now_ns) {
    Fill(now_ns);
    if (tokens_ < tokens) return false;
    tokens_ -= tokens;
    return true;
  }
  // Takes them though they may not be there: what comes next waits until they are made up for. No
  // more than a burst is owed.
  void Charge(double tokens, uint64_t now_ns) {
    Fill(now_ns);
    tokens_ = std::max(tokens_ - tokens, -rate_.burst);
  }
  bool IsFull(uint64_t now_ns) {
    Fill(now_ns);
    return tokens_ >= rate_.burst;
  }

 private:
  void Fill(uint64_t now_ns) {
    if (now_ns <= filled_ns_) return;
    tokens_ = std::min(
        rate_.burst, tokens_ + rate_.per_second * 1e-9 * static_cast<double>(now_ns - filled_ns_));
    filled_ns_ = now_ns;
  }

  Rate rate_;
  double tokens_;
  uint64_t filled_ns_;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_TRANSPORT_TOKEN_BUCKET_H_
