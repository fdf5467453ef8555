// SPDX-License-Identifier: Apache-2.0
// A validator for the part of JSON Schema (2020-12) that our schemas use: type, required,
// properties, additionalProperties: false, items, minItems, minimum, maximum, const, enum, and $ref
// into the schema's own $defs. A schema that says anything else is an error, so that nothing is
// passed over in silence.
#ifndef REPRISE_TESTS_TESTING_JSON_SCHEMA_H_
#define REPRISE_TESTS_TESTING_JSON_SCHEMA_H_

#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace reprise::testing {

// What `value` does against `schema`, one line each with the place ("/points/0/rows: ..."); empty
// when it is valid.
std::vector<std::string> SchemaErrors(const nlohmann::json& schema, const nlohmann::json& value);

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_JSON_SCHEMA_H_
