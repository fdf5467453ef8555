// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/json_schema.h"

#include <string_view>

#include "absl/strings/str_cat.h"

namespace reprise::testing {
namespace {

using nlohmann::json;

bool IsOfType(const json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  return type == "null" && value.is_null();
}

class Validator {
 public:
  explicit Validator(const json& root) : root_(root) {}

  void Check(const json& schema, const json& value, const std::string& at) {
    for (const auto& [keyword, rule] : schema.items()) {
      if (!CheckKeyword(keyword, rule, value, at, schema))
        Error(at, "the schema says \"" + keyword + "\", which is not understood");
    }
  }

  std::vector<std::string> errors;

 private:
  void Error(const std::string& at, const std::string& what) { errors.push_back(at + ": " + what); }

  // False for an unknown keyword.
  bool CheckKeyword(const std::string& keyword, const json& rule, const json& value,
                    const std::string& at, const json& schema) {
    if (keyword == "$schema" || keyword == "$defs" || keyword == "title" ||
        keyword == "description") {
      return true;
    }
    if (keyword == "$ref") return CheckRef(rule.get<std::string>(), value, at);
    if (keyword == "type") return CheckType(rule, value, at);
    if (keyword == "const") return Expect(value == rule, at, "is not " + rule.dump());
    if (keyword == "enum") return CheckEnum(rule, value, at);
    if (keyword == "minimum")
      return Expect(!value.is_number() || value >= rule, at, "is below " + rule.dump());
    if (keyword == "maximum")
      return Expect(!value.is_number() || value <= rule, at, "is above " + rule.dump());
    if (keyword == "minItems")
      return Expect(!value.is_array() || value.size() >= rule, at, "has too few items");
    if (keyword == "items") return CheckItems(rule, value, at);
    if (keyword == "required") return CheckRequired(rule, value, at);
    if (keyword == "properties") return CheckProperties(rule, value, at);
    if (keyword == "additionalProperties" && rule == false)
      return CheckNoOthers(schema.value("properties", json::object()), value, at);
    return false;
  }

  bool Expect(bool holds, const std::string& at, const std::string& otherwise) {
    if (!holds) Error(at, otherwise);
    return true;
  }
  bool CheckRef(const std::string& ref, const json& value, const std::string& at) {
    constexpr std::string_view kHere = "#/$defs/";
    if (!ref.starts_with(kHere)) return false;
    const auto name = ref.substr(kHere.size());
    if (!root_.contains("$defs") || !root_["$defs"].contains(name)) return false;
    Check(root_["$defs"][name], value, at);
    return true;
  }
  bool CheckType(const json& rule, const json& value, const std::string& at) {
    bool one = false;
    for (const json& type : rule.is_array() ? rule : json::array({rule}))
      one |= IsOfType(value, type.get<std::string>());
    return Expect(one, at, "is not of type " + rule.dump());
  }
  bool CheckEnum(const json& rule, const json& value, const std::string& at) {
    bool one = false;
    for (const json& allowed : rule) one |= value == allowed;
    return Expect(one, at, "is none of " + rule.dump());
  }
  bool CheckItems(const json& rule, const json& value, const std::string& at) {
    if (!value.is_array()) return true;
    for (size_t i = 0; i < value.size(); ++i) Check(rule, value[i], absl::StrCat(at, "/", i));
    return true;
  }
  bool CheckRequired(const json& rule, const json& value, const std::string& at) {
    if (!value.is_object()) return true;
    for (const json& name : rule)
      Expect(value.contains(name.get<std::string>()), at, "lacks " + name.dump());
    return true;
  }
  bool CheckProperties(const json& rule, const json& value, const std::string& at) {
    if (!value.is_object()) return true;
    for (const auto& [name, schema] : rule.items()) {
      if (value.contains(name)) Check(schema, value[name], absl::StrCat(at, "/", name));
    }
    return true;
  }
  bool CheckNoOthers(const json& known, const json& value, const std::string& at) {
    if (!value.is_object()) return true;
    for (const auto& [name, unused] : value.items())
      Expect(known.contains(name), at, "has \"" + name + "\", which the schema does not know");
    return true;
  }

  const json& root_;
};

}  // namespace

std::vector<std::string> SchemaErrors(const json& schema, const json& value) {
  Validator validator(schema);
  validator.Check(schema, value, "");
  return validator.errors;
}

}  // namespace reprise::testing
