// SPDX-License-Identifier: Apache-2.0
// JSON from outside; see json_input.h. A first pass that builds nothing rejects what must not be
// built (endless nesting) and what a built value no longer shows (a key given twice).
#include "models/config/json_input.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

constexpr size_t kMaxShownBytes = 80;

std::string Shortened(std::string text) {
  if (text.size() > kMaxShownBytes) {
    text.resize(kMaxShownBytes);
    text += "...";
  }
  return text;
}

// Stops at the first fault and keeps its description.
class StructureCheck : public nlohmann::json_sax<Json> {
 public:
  const std::string& fault() const { return fault_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override {
    keys_.emplace_back();
    return Deeper();
  }
  bool end_object() override {
    keys_.pop_back();
    --depth_;
    return true;
  }
  bool start_array(size_t) override { return Deeper(); }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(string_t& key) override {
    if (keys_.back().insert(key).second) return true;
    fault_ = absl::StrCat("got key ", ShowJson(key), " twice in one object, allowed once");
    return false;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    fault_ = absl::StrCat("not JSON at byte ", position);
    return false;
  }

 private:
  bool Deeper() {
    if (++depth_ <= kMaxJsonDepth) return true;
    fault_ = absl::StrCat("nests deeper than allowed (", kMaxJsonDepth, " levels)");
    return false;
  }

  std::vector<absl::flat_hash_set<std::string>> keys_;  // of the objects that are open
  int depth_ = 0;
  std::string fault_;
};

absl::Status Fault(std::string_view where, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat(absl::string_view(where.data(), where.size()), ": ", what));
}

}  // namespace

absl::StatusOr<Json> ParseJsonObject(std::string_view text, std::string_view where) {
  StructureCheck check;
  if (!Json::sax_parse(text.begin(), text.end(), &check)) return Fault(where, check.fault());
  Json value = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) {
    return Fault(where, absl::StrCat("got ", value.type_name(), ", allowed a JSON object"));
  }
  return value;
}

std::string ShowJson(const Json& value) {
  return Shortened(value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace));
}

const Json* JsonFields::Find(const char* name) const {
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

absl::Status JsonFields::Refuse(const char* name, const std::string& allowed) const {
  const Json* value = Find(name);
  return absl::InvalidArgumentError(absl::StrCat(prefix_, name, ": got ",
                                                 value == nullptr ? "nothing" : ShowJson(*value),
                                                 ", allowed ", allowed));
}

absl::Status JsonFields::RefuseAllBut(
    std::initializer_list<std::span<const std::string_view>> known) const {
  for (const auto& [name, value] : object_.items()) {
    const bool found = std::any_of(known.begin(), known.end(), [&name = name](const auto& names) {
      return std::find(names.begin(), names.end(), name) != names.end();
    });
    if (!found) return Refuse(name.c_str(), "only fields whose meaning is known; this one is not");
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> JsonFields::Integer(const char* name, int64_t min, int64_t max) const {
  const Json* value = Find(name);
  if (value != nullptr && value->is_number_integer()) {
    // A number above int64 is kept as unsigned and would turn negative.
    const bool fits =
        !value->is_number_unsigned() || value->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
    const int64_t number = fits ? value->get<int64_t>() : INT64_MAX;
    if (fits && number >= min && number <= max) return number;
  }
  return Refuse(name, absl::StrCat("an integer from ", min, " to ", max));
}

absl::StatusOr<int64_t> JsonFields::IntegerOr(const char* name, int64_t fallback, int64_t min,
                                              int64_t max) const {
  if (Find(name) == nullptr) return fallback;
  return Integer(name, min, max);
}

absl::StatusOr<double> JsonFields::Positive(const char* name) const {
  const Json* value = Find(name);
  if (value != nullptr && value->is_number()) {
    const double number = value->get<double>();
    if (std::isfinite(number) && number > 0) return number;
  }
  return Refuse(name, "a finite number > 0");
}

absl::StatusOr<double> JsonFields::PositiveOr(const char* name, double fallback) const {
  if (Find(name) == nullptr) return fallback;
  return Positive(name);
}

absl::StatusOr<bool> JsonFields::BooleanOr(const char* name, bool fallback) const {
  const Json* value = Find(name);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return Refuse(name, "true or false");
  return value->get<bool>();
}

absl::StatusOr<std::string> JsonFields::StringOr(const char* name,
                                                 std::string_view fallback) const {
  const Json* value = Find(name);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) return Refuse(name, "a string");
  return value->get<std::string>();
}

}  // namespace reprise::models
