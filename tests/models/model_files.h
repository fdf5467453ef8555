// SPDX-License-Identifier: Apache-2.0
// For the tests of models on disk: building safetensors files byte by byte, well-formed or not, and
// expecting typed errors.
#ifndef REPRISE_TESTS_MODELS_MODEL_FILES_H_
#define REPRISE_TESTS_MODELS_MODEL_FILES_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace reprise::testing {

inline void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  ASSERT_TRUE(file.good()) << path;
}

// A safetensors file of a header as given, which may lie, and data as given.
inline std::string SafetensorsBytes(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  return file + header + data;
}

struct FileTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string data;
};

// A well-formed file.
inline std::string SafetensorsBytes(const std::vector<FileTensor>& tensors) {
  std::vector<std::string> entries;
  std::string data;
  for (const FileTensor& tensor : tensors) {
    entries.push_back(absl::StrCat("\"", tensor.name, "\":{\"dtype\":\"", tensor.dtype,
                                   "\",\"shape\":[", absl::StrJoin(tensor.shape, ","),
                                   "],\"data_offsets\":[", data.size(), ",",
                                   data.size() + tensor.data.size(), "]}"));
    data += tensor.data;
  }
  return SafetensorsBytes(absl::StrCat("{", absl::StrJoin(entries, ","), "}"), data);
}

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// `status` has this code, and its message holds every one of `parts`.
inline void ExpectError(const absl::Status& status, absl::StatusCode code,
                        std::initializer_list<const char*> parts) {
  EXPECT_EQ(status.code(), code) << status;
  for (const char* part : parts) {
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(part));
  }
}

inline void ExpectInvalid(const absl::Status& status, std::initializer_list<const char*> parts) {
  ExpectError(status, absl::StatusCode::kInvalidArgument, parts);
}

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_MODELS_MODEL_FILES_H_
