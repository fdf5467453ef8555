// SPDX-License-Identifier: Apache-2.0
// JSON from outside, parsed without exceptions, and typed access to its fields with errors that say
// what, got, allowed. For the .cc files that read model directories; no public header includes it.
#ifndef REPRISE_MODELS_CONFIG_JSON_INPUT_H_
#define REPRISE_MODELS_CONFIG_JSON_INPUT_H_

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"

namespace reprise::models {

using Json = nlohmann::json;

// Objects and arrays may nest this deep, so that recursion over a parsed value is bounded.
inline constexpr int kMaxJsonDepth = 64;

// Parses a JSON object. `where` begins the error messages. Errors: InvalidArgument for text that is
// not one JSON object, nests deeper than kMaxJsonDepth, or names a key twice in one object.
absl::StatusOr<Json> ParseJsonObject(std::string_view text, std::string_view where);

// The value as compact JSON, cut to a length that fits an error message.
std::string ShowJson(const Json& value);

// Typed fields of one object. An absent field and null are the same. Errors: InvalidArgument.
class JsonFields {
 public:
  // `object` must be a JSON object and outlive this. `prefix` begins every message, for instance
  // "config.json: rope_scaling.".
  JsonFields(const Json& object, std::string prefix)
      : object_(object), prefix_(std::move(prefix)) {}

  // nullptr when absent or null.
  const Json* Find(const char* name) const;
  // Whether it is there, null or not.
  bool Names(const char* name) const { return object_.contains(name); }
  const std::string& prefix() const { return prefix_; }
  // An integer in [min, max]; a number written with a fraction or an exponent is none.
  absl::StatusOr<int64_t> Integer(const char* name, int64_t min, int64_t max) const;
  absl::StatusOr<int64_t> IntegerOr(const char* name, int64_t fallback, int64_t min,
                                    int64_t max) const;
  // A finite number > 0.
  absl::StatusOr<double> Positive(const char* name) const;
  absl::StatusOr<double> PositiveOr(const char* name, double fallback) const;
  absl::StatusOr<bool> BooleanOr(const char* name, bool fallback) const;
  absl::StatusOr<std::string> StringOr(const char* name, std::string_view fallback) const;

  // InvalidArgument on the first field that is in none of these lists.
  absl::Status RefuseAllBut(std::initializer_list<std::span<const std::string_view>> known) const;
  // "<prefix><name>: got <value>, allowed <allowed>".
  absl::Status Refuse(const char* name, const std::string& allowed) const;

 private:
  const Json& object_;
  std::string prefix_;
};

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_JSON_INPUT_H_
