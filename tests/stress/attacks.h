// SPDX-License-Identifier: Apache-2.0
// What a hostile or broken client does to a server, as fast as it can, until its process is ended.
#ifndef REPRISE_TESTS_STRESS_ATTACKS_H_
#define REPRISE_TESTS_STRESS_ATTACKS_H_

#include <span>
#include <string>
#include <string_view>

namespace reprise::stress {

struct Attack {
  std::string_view name;
  std::string_view what;
  // Attacks the server at this address and never returns, unless something was had that must not
  // be: then it returns what.
  std::string (*run)(const std::string& address);
};

std::span<const Attack> Attacks();

}  // namespace reprise::stress

#endif  // REPRISE_TESTS_STRESS_ATTACKS_H_
