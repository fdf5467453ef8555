// SPDX-License-Identifier: Apache-2.0
// NamePattern: a regular expression, or wildcards as a shell has them, that names of layers are
// held against. The time of a match grows with the product of both lengths, whatever the expression
// is: configs come from outside.
//
//   REPRISE_ASSIGN_OR_RETURN(const auto pattern, NamePattern::Expression(".*self_attn.*"));
//   pattern.Matches("model.layers.0.self_attn.q_proj");  // true
//
// Source: Thompson 1968 (regular expression search algorithm).
#ifndef REPRISE_MODELS_CONFIG_NAME_PATTERN_H_
#define REPRISE_MODELS_CONFIG_NAME_PATTERN_H_

#include <bitset>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace reprise::models {

class NamePattern {
 public:
  // A regular expression of Python, matched from the begin of a name on, not necessarily to its
  // end. Known are characters, '.', classes, groups, '|', '*', '+', '?', '{m,n}', '^' and '$'.
  // Errors: InvalidArgument with what is not known, or not right.
  static absl::StatusOr<NamePattern> Expression(std::string_view text);
  // '*', '?', '[...]' and '[!...]', matched against whole names. Anything is a pattern.
  static NamePattern Wildcards(std::string_view text);

  bool Matches(std::string_view name) const;

  // One step of the match. Jumps are relative.
  struct Step {
    enum class Kind : uint8_t {
      kCharacter,  // one of `set`
      kFork,       // goes on at both `first` and `second`
      kBegin,      // only at the name's begin
      kEnd,        // only at its end
    };
    Kind kind = Kind::kCharacter;
    std::bitset<256> set = {};
    int32_t first = 1, second = 1;
  };

 private:
  explicit NamePattern(std::vector<Step> steps) : steps_(std::move(steps)) {}
  // Adds `at`, and all that is reached from there without a character, to `reached`.
  void Reach(size_t at, bool is_begin, bool is_end, std::vector<bool>* reached) const;

  std::vector<Step> steps_;  // behind the last one a name has matched
};

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_NAME_PATTERN_H_
