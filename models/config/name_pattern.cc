// SPDX-License-Identifier: Apache-2.0
// Both notations become steps of an automaton; see name_pattern.h. All states that a name can be in
// are followed at once.
#include "models/config/name_pattern.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

using Step = NamePattern::Step;
using Kind = Step::Kind;
using Steps = std::vector<Step>;
using Set = std::bitset<256>;

constexpr size_t kMaxSteps = 4000;  // far above any published expression
constexpr int kMaxDepth = 64;       // of groups
constexpr int32_t kMaxRepeats = 1000;

size_t IndexOf(char c) { return static_cast<unsigned char>(c); }

Set Just(char c) { return Set().set(IndexOf(c)); }

Set Range(char first, char last) {
  Set set;
  for (size_t c = IndexOf(first); c <= IndexOf(last); ++c) set.set(c);
  return set;
}

// All but the end of a line.
Set AnyCharacter() { return ~Just('\n'); }

// What a letter behind a backslash stands for.
std::optional<Set> ClassOf(char letter) {
  const Set digits = Range('0', '9');
  const Set word = digits | Range('a', 'z') | Range('A', 'Z') | Just('_');
  const Set space = Range('\t', '\r') | Just(' ');
  switch (letter) {
    case 'd':
      return digits;
    case 'D':
      return ~digits;
    case 'w':
      return word;
    case 'W':
      return ~word;
    case 's':
      return space;
    case 'S':
      return ~space;
    default:
      break;
  }
  if (word.test(IndexOf(letter))) return std::nullopt;
  return Just(letter);
}

Steps OneOf(const Set& set) { return {{.kind = Kind::kCharacter, .set = set}}; }

Step Fork(size_t first, size_t second) {
  return {.kind = Kind::kFork,
          .first = static_cast<int32_t>(first),
          .second = static_cast<int32_t>(second)};
}

Step Back(size_t by) {
  return {
      .kind = Kind::kFork, .first = -static_cast<int32_t>(by), .second = -static_cast<int32_t>(by)};
}

void Append(const Steps& from, Steps* to) { to->insert(to->end(), from.begin(), from.end()); }

// Once, or not at all.
Steps Optional(const Steps& steps) {
  Steps all = {Fork(1, steps.size() + 1)};
  Append(steps, &all);
  return all;
}

// Any number of times.
Steps Star(const Steps& steps) {
  Steps all = {Fork(1, steps.size() + 2)};
  Append(steps, &all);
  all.push_back(Back(steps.size() + 1));
  return all;
}

Steps Either(const Steps& one, const Steps& other) {
  Steps all = {Fork(1, one.size() + 2)};
  Append(one, &all);
  all.push_back(Fork(other.size() + 1, other.size() + 1));
  Append(other, &all);
  return all;
}

struct Repeats {
  int32_t least = 1;
  std::optional<int32_t> most = 1;  // unset: any number
};

Steps Repeat(const Steps& steps, const Repeats& repeats) {
  Steps all;
  for (int32_t i = 0; i < repeats.least; ++i) Append(steps, &all);
  if (!repeats.most.has_value()) Append(Star(steps), &all);
  for (int32_t i = repeats.least; i < repeats.most.value_or(0); ++i) Append(Optional(steps), &all);
  return all;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  absl::StatusOr<Steps> ParseAll() {
    REPRISE_ASSIGN_OR_RETURN(Steps steps, ParseAlternatives(0));
    if (!AtEnd()) return Refuse("a ')' without a '('");
    return steps;
  }

 private:
  bool AtEnd() const { return at_ == text_.size(); }
  char Next() const { return text_[at_]; }
  bool Take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  static absl::Status Refuse(const std::string& what) { return absl::InvalidArgumentError(what); }

  absl::StatusOr<Steps> ParseAlternatives(int depth) {
    if (depth > kMaxDepth) return Refuse(absl::StrCat("groups nested deeper than ", kMaxDepth));
    REPRISE_ASSIGN_OR_RETURN(Steps all, ParseSequence(depth));
    while (Take("|")) {
      REPRISE_ASSIGN_OR_RETURN(const Steps other, ParseSequence(depth));
      all = Either(all, other);
      if (all.size() > kMaxSteps) return Refuse(TooLong());
    }
    return all;
  }

  absl::StatusOr<Steps> ParseSequence(int depth) {
    Steps all;
    while (!AtEnd() && Next() != '|' && Next() != ')') {
      REPRISE_ASSIGN_OR_RETURN(const Steps item, ParseItem(depth));
      REPRISE_ASSIGN_OR_RETURN(const Repeats repeats, ParseRepeats());
      const auto times = static_cast<size_t>(repeats.most.value_or(repeats.least + 1));
      if (all.size() + (item.size() + 2) * times > kMaxSteps) return Refuse(TooLong());
      Append(Repeat(item, repeats), &all);
    }
    return all;
  }

  absl::StatusOr<Steps> ParseItem(int depth) {
    if (Take("(")) return ParseGroup(depth);
    if (Take("[")) {
      REPRISE_ASSIGN_OR_RETURN(const Set set, ParseClass());
      return OneOf(set);
    }
    if (Take(".")) return OneOf(AnyCharacter());
    if (Take("^")) return Steps{{.kind = Kind::kBegin}};
    if (Take("$")) return Steps{{.kind = Kind::kEnd}};
    if (Take("\\")) {
      REPRISE_ASSIGN_OR_RETURN(const Set set, ParseEscape());
      return OneOf(set);
    }
    const size_t begin = at_;
    if (Next() == '*' || Next() == '+' || Next() == '?' || ParseCounts().has_value())
      return Refuse(absl::StrCat("'", std::string(1, text_[begin]), "' with nothing to repeat"));
    at_ = begin + 1;
    return OneOf(Just(text_[begin]));
  }

  // Behind its '('.
  absl::StatusOr<Steps> ParseGroup(int depth) {
    if (Take("?P<")) {
      const size_t end = text_.find('>', at_);
      if (end == std::string_view::npos) return Refuse("a group without the end of its name");
      at_ = end + 1;
    } else if (!Take("?:") && Take("?")) {
      return Refuse("'(?' of another kind than '(?:' and '(?P<'");
    }
    REPRISE_ASSIGN_OR_RETURN(Steps steps, ParseAlternatives(depth + 1));
    if (!Take(")")) return Refuse("a '(' without a ')'");
    return steps;
  }

  // Behind its backslash.
  absl::StatusOr<Set> ParseEscape() {
    if (AtEnd()) return Refuse("a backslash with nothing behind it");
    const char letter = text_[at_++];
    const std::optional<Set> set = ClassOf(letter);
    if (!set.has_value()) return Refuse(absl::StrCat("'\\", std::string(1, letter), "'"));
    return *set;
  }

  // Behind its '['. A ']' in the first place is one of the characters.
  absl::StatusOr<Set> ParseClass() {
    const bool negated = Take("^");
    Set set;
    for (bool first = true; first || AtEnd() || Next() != ']'; first = false) {
      if (AtEnd()) return Refuse("a '[' without a ']'");
      REPRISE_ASSIGN_OR_RETURN(const Set one, ParseOfClass());
      const bool range = text_.substr(at_).size() >= 2 && Next() == '-' && text_[at_ + 1] != ']';
      if (!range) {
        set |= one;
        continue;
      }
      ++at_;
      REPRISE_ASSIGN_OR_RETURN(const Set last, ParseOfClass());
      if (one.count() != 1 || last.count() != 1) return Refuse("a range without two ends");
      const Set between = Range(OnlyOne(one), OnlyOne(last));
      if (between.none()) return Refuse("a range that ends before it begins");
      set |= between;
    }
    ++at_;
    return negated ? ~set : set;
  }
  absl::StatusOr<Set> ParseOfClass() {
    if (Take("\\")) return ParseEscape();
    return Just(text_[at_++]);
  }
  static char OnlyOne(const Set& set) {
    size_t c = 0;
    while (!set.test(c)) ++c;
    return static_cast<char>(c);
  }

  // Behind what is repeated, which may not be at all.
  absl::StatusOr<Repeats> ParseRepeats() {
    Repeats repeats;
    if (Take("*")) {
      repeats = {.least = 0, .most = std::nullopt};
    } else if (Take("+")) {
      repeats = {.least = 1, .most = std::nullopt};
    } else if (Take("?")) {
      repeats = {.least = 0, .most = 1};
    } else {
      const size_t begin = at_;
      const std::optional<Repeats> counted = ParseCounts();
      if (!counted.has_value()) {
        at_ = begin;  // a brace is a character then
        return repeats;
      }
      repeats = *counted;
      if (repeats.least > kMaxRepeats || repeats.most.value_or(0) > kMaxRepeats)
        return Refuse(absl::StrCat("more than ", kMaxRepeats, " repeats"));
      if (repeats.most.has_value() && *repeats.most < repeats.least)
        return Refuse("repeats that are fewer at most than at least");
    }
    Take("?");  // as few as possible: of the same names
    if (!AtEnd() && (Next() == '*' || Next() == '+' || Next() == '?'))
      return Refuse("a repeat of a repeat");
    return repeats;
  }
  std::optional<Repeats> ParseCounts() {
    if (!Take("{")) return std::nullopt;
    const std::optional<int32_t> least = ParseNumber();
    if (Take("}")) {
      if (!least.has_value()) return std::nullopt;
      return Repeats{.least = *least, .most = least};
    }
    if (!Take(",")) return std::nullopt;
    const std::optional<int32_t> most = ParseNumber();
    if (!Take("}")) return std::nullopt;
    return Repeats{.least = least.value_or(0), .most = most};
  }
  std::optional<int32_t> ParseNumber() {
    std::optional<int32_t> number;
    while (!AtEnd() && Next() >= '0' && Next() <= '9') {
      const int32_t digit = text_[at_++] - '0';
      number = std::min(number.value_or(0) * 10 + digit, kMaxRepeats + 1);
    }
    return number;
  }
  static std::string TooLong() {
    return absl::StrCat("more than ", kMaxSteps, " characters, repeats counted");
  }

  const std::string_view text_;
  size_t at_ = 0;
};

// Of wildcards: the set behind a '[' at `at`, which moves behind its ']'; unset: there is none.
std::optional<Set> SetOfWildcards(std::string_view text, size_t* at) {
  const bool negated = text.substr(*at).starts_with('!');
  const size_t first = *at + (negated ? 1 : 0);
  const size_t end = first < text.size() ? text.find(']', first + 1) : std::string_view::npos;
  if (end == std::string_view::npos) return std::nullopt;
  Set set;
  for (size_t i = first; i < end; ++i) {
    const bool range = i + 2 < end && text[i + 1] == '-';
    set |= Range(text[i], text[range ? i + 2 : i]);
    if (range) i += 2;
  }
  *at = end + 1;
  return negated ? ~set : set;
}

}  // namespace

absl::StatusOr<NamePattern> NamePattern::Expression(std::string_view text) {
  REPRISE_ASSIGN_OR_RETURN(std::vector<Step> steps, Parser(text).ParseAll());
  return NamePattern(std::move(steps));
}

NamePattern NamePattern::Wildcards(std::string_view text) {
  std::vector<Step> steps;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at++];
    if (c == '*') {
      Append(Star(OneOf(~Set())), &steps);
      continue;
    }
    std::optional<Set> set = c == '?' ? ~Set() : Just(c);
    if (c == '[') {
      set = SetOfWildcards(text, &at);
      if (!set.has_value()) set = Just('[');
    }
    Append(OneOf(*set), &steps);
  }
  steps.push_back({.kind = Kind::kEnd});
  return NamePattern(std::move(steps));
}

void NamePattern::Reach(size_t at, bool is_begin, bool is_end, std::vector<bool>* reached) const {
  std::vector<size_t> open = {at};
  while (!open.empty()) {
    const size_t state = open.back();
    open.pop_back();
    if ((*reached)[state]) continue;
    (*reached)[state] = true;
    if (state == steps_.size()) continue;
    const Step& step = steps_[state];
    const auto from = static_cast<int64_t>(state);
    if (step.kind == Kind::kFork) {
      open.push_back(static_cast<size_t>(from + step.first));
      open.push_back(static_cast<size_t>(from + step.second));
    } else if ((step.kind == Kind::kBegin && is_begin) || (step.kind == Kind::kEnd && is_end)) {
      open.push_back(state + 1);
    }
  }
}

bool NamePattern::Matches(std::string_view name) const {
  std::vector<bool> now(steps_.size() + 1, false);
  Reach(0, true, name.empty(), &now);
  for (size_t i = 0; i < name.size() && !now.back(); ++i) {
    std::vector<bool> next(steps_.size() + 1, false);
    for (size_t state = 0; state < steps_.size(); ++state) {
      const Step& step = steps_[state];
      if (now[state] && step.kind == Kind::kCharacter && step.set.test(IndexOf(name[i])))
        Reach(state + 1, false, i + 1 == name.size(), &next);
    }
    now = std::move(next);
  }
  return now.back();
}

}  // namespace reprise::models
