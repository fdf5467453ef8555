// SPDX-License-Identifier: Apache-2.0
// One test per way in which a safetensors file can lie.
#include "models/weights/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string>

#include "tests/models/model_files.h"
#include "tests/testing/tiny_model.h"

namespace reprise::models {
namespace {

using ::reprise::testing::BytesOf;
using ::reprise::testing::ExpectError;
using ::reprise::testing::ExpectInvalid;
using ::reprise::testing::SafetensorsBytes;
using ::reprise::testing::TemporaryDirectory;
using ::reprise::testing::WriteBytes;

class SafetensorsTest : public ::testing::Test {
 protected:
  std::string path() const { return directory_.path() + "/x.safetensors"; }

  absl::StatusOr<std::unique_ptr<SafetensorsFile>> OpenBytes(const std::string& bytes) {
    WriteBytes(path(), bytes);
    return SafetensorsFile::Open(path());
  }
  // A header around entries, followed by `data_bytes` of data. Errors must name the file.
  absl::Status OpenHeader(const std::string& header, size_t data_bytes) {
    absl::Status status =
        OpenBytes(SafetensorsBytes(header, std::string(data_bytes, '\1'))).status();
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(path()));
    return status;
  }

 private:
  TemporaryDirectory directory_;
};

TEST_F(SafetensorsTest, ReadsTensorsOfAllUsableTypes) {
  const std::vector<float> f32 = {1.5f, -2.0f, 3.0f, 4.0f, 5.0f, 6.0f};
  const std::vector<uint16_t> bf16 = {0x3f80, 0x4000};
  const std::vector<uint16_t> f16 = {0x3c00};
  const auto file = OpenBytes(SafetensorsBytes({{"a", "F32", {2, 3}, BytesOf(f32)},
                                                {"b", "BF16", {2}, BytesOf(bf16)},
                                                {"scalar", "F16", {}, BytesOf(f16)},
                                                {"empty", "F32", {4, 0}, ""}}));
  ASSERT_TRUE(file.ok()) << file.status();
  const auto& tensors = (*file)->tensors();
  ASSERT_EQ(tensors.size(), 4u);
  const TensorView& a = tensors.at("a");
  EXPECT_EQ(a.dtype, runtime::DType::kF32);
  EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 3}));
  ASSERT_EQ(a.data.size(), 24u);
  std::vector<float> seen(6);
  std::memcpy(seen.data(), a.data.data(), 24);
  EXPECT_EQ(seen, f32);
  EXPECT_EQ(tensors.at("b").dtype, runtime::DType::kBf16);
  EXPECT_EQ(std::memcmp(tensors.at("b").data.data(), bf16.data(), 4), 0);
  EXPECT_EQ(tensors.at("scalar").dtype, runtime::DType::kF16);
  EXPECT_TRUE(tensors.at("scalar").shape.empty());
  EXPECT_EQ(tensors.at("scalar").data.size(), 2u);
  EXPECT_TRUE(tensors.at("empty").data.empty());
}

TEST_F(SafetensorsTest, AcceptsMetadataPaddingAndAnyOrder) {
  const auto file = OpenBytes(SafetensorsBytes(
      R"({"z":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"__metadata__":{"format":"pt"},)"
      R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}     )",
      BytesOf(std::vector<float>{7.0f, 8.0f})));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->tensors().size(), 2u);
  float z;
  std::memcpy(&z, (*file)->tensors().at("z").data.data(), 4);
  EXPECT_EQ(z, 7.0f);
}

TEST_F(SafetensorsTest, AcceptsAFileWithoutTensors) {
  const auto file = OpenBytes(SafetensorsBytes("{}", ""));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->tensors().empty());
}

TEST_F(SafetensorsTest, MissingFileIsNotFound) {
  ExpectError(SafetensorsFile::Open(path()).status(), absl::StatusCode::kNotFound,
              {"x.safetensors"});
}

TEST_F(SafetensorsTest, DirectoryIsRefused) {
  std::filesystem::create_directory(path());
  ExpectInvalid(SafetensorsFile::Open(path()).status(), {"x.safetensors", "a directory"});
}

TEST_F(SafetensorsTest, PipeIsRefusedWithoutWaiting) {
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  ExpectInvalid(SafetensorsFile::Open(path()).status(), {"a special file"});
}

TEST_F(SafetensorsTest, EmptyFileIsRefused) {
  ExpectInvalid(OpenBytes("").status(), {"x.safetensors", "got 0 bytes", "at least 8"});
}

TEST_F(SafetensorsTest, EveryTruncationOfAGoodFileIsRefused) {
  const std::string good =
      SafetensorsBytes({{"a", "F32", {2}, std::string(8, 'a')}, {"b", "BF16", {1}, "bb"}});
  ASSERT_TRUE(OpenBytes(good).ok());
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_EQ(OpenBytes(good.substr(0, bytes)).status().code(), absl::StatusCode::kInvalidArgument)
        << bytes;
  }
}

TEST_F(SafetensorsTest, HeaderLengthBeyondTheFileIsRefused) {
  for (const uint64_t length : {uint64_t{3}, uint64_t{1} << 40, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
    ExpectInvalid(OpenBytes(bytes + "{}").status(), {"header length: got", "allowed at most 2"});
  }
}

TEST_F(SafetensorsTest, HeaderAboveTheFormatsLimitIsRefused) {
  const uint64_t length = (uint64_t{100} << 20) + 1;
  WriteBytes(path(), std::string(reinterpret_cast<const char*>(&length), sizeof(length)));
  std::filesystem::resize_file(path(), length + 8);  // sparse
  ExpectInvalid(SafetensorsFile::Open(path()).status(), {"header length: got", "104857600"});
}

TEST_F(SafetensorsTest, HeaderThatIsNotAJsonObjectIsRefused) {
  ExpectInvalid(OpenHeader("", 0), {"not JSON"});
  ExpectInvalid(OpenHeader("{\"a\":", 0), {"not JSON"});
  ExpectInvalid(OpenHeader("{} {}", 0), {"not JSON"});
  ExpectInvalid(OpenHeader("\xff\xfe{}", 0), {"not JSON"});
  ExpectInvalid(OpenHeader("[1,2]", 0), {"got array", "a JSON object"});
  ExpectInvalid(OpenHeader("null", 0), {"got null", "a JSON object"});
}

TEST_F(SafetensorsTest, DeepNestingIsRefusedAndDoesNotCrash) {
  const int depth = 1'000'000;
  std::string arrays = "{\"a\":" + std::string(depth, '[');
  ExpectInvalid(OpenHeader(arrays, 0), {"nests deeper"});
  std::string objects;
  for (int i = 0; i < depth; ++i) objects += "{\"a\":";
  ExpectInvalid(OpenHeader(objects, 0), {"nests deeper"});
}

TEST_F(SafetensorsTest, NameGivenTwiceIsRefused) {
  ExpectInvalid(OpenHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                           R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                           8),
                {"\"a\" twice"});
}

// One tensor "t" over four data bytes, with one field replaced.
std::string Entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{\"t\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
         "}}";
}

TEST_F(SafetensorsTest, UnusableOrUnknownTypesAreRefusedByName) {
  for (const char* dtype : {"\"I16\"", "\"U16\"", "\"F8_E5M2\"", "\"BOOL\"", "\"F64\"",
                            "\"nonsense\"", "\"f32\"", "3", "null"}) {
    ExpectInvalid(OpenHeader(Entry(dtype, "[1]", "[0,4]"), 4),
                  {"tensor \"t\"", dtype, "F32, BF16, F16, F8_E4M3, U8, I32 or I64"});
  }
}

TEST_F(SafetensorsTest, BadShapesAreRefused) {
  for (const char* shape : {"[-1]", "[1.0]", "[\"1\"]", "[null]", "[18446744073709551615]", "7",
                            "{}", "null", "[[1]]", "[1e2]"}) {
    ExpectInvalid(OpenHeader(Entry("\"F32\"", shape, "[0,4]"), 4), {"tensor \"t\"", "shape: got"});
  }
}

TEST_F(SafetensorsTest, ShapeProductsThatOverflowAreRefused) {
  for (const char* shape :
       {"[9223372036854775807]", "[4294967296,4294967296]", "[4611686018427387904,4,1]"}) {
    ExpectInvalid(OpenHeader(Entry("\"F32\"", shape, "[0,4]"), 4),
                  {"tensor \"t\"", "a product of sizes that int64 holds"});
  }
}

TEST_F(SafetensorsTest, BadOffsetsAreRefused) {
  for (const char* offsets : {"[0]", "[0,4,8]", "[-4,0]", "[0.0,4.0]", "4", "null", "[\"0\",\"4\"]",
                              "[0,18446744073709551615]"}) {
    ExpectInvalid(OpenHeader(Entry("\"F32\"", "[1]", offsets), 4),
                  {"tensor \"t\"", "data_offsets: got", "two byte offsets"});
  }
}

TEST_F(SafetensorsTest, ReversedOffsetsAreRefused) {
  ExpectInvalid(OpenHeader(Entry("\"F32\"", "[1]", "[4,0]"), 4), {"[4,0]", "begin <= end"});
}

TEST_F(SafetensorsTest, OffsetsThatDisagreeWithTheShapeAreRefused) {
  ExpectInvalid(OpenHeader(Entry("\"F32\"", "[2]", "[0,4]"), 4), {"[0,4]", "8 bytes"});
  ExpectInvalid(OpenHeader(Entry("\"BF16\"", "[1]", "[0,4]"), 4), {"[0,4]", "2 bytes"});
}

TEST_F(SafetensorsTest, OffsetsBeyondTheFileAreRefused) {
  ExpectInvalid(OpenHeader(Entry("\"F32\"", "[2]", "[0,8]"), 4), {"[0,8]", "4 data bytes"});
  ExpectInvalid(OpenHeader(Entry("\"F32\"", "[1]", "[9223372036854775803,9223372036854775807]"), 4),
                {"tensor \"t\"", "4 data bytes"});
}

TEST_F(SafetensorsTest, OverlappingTensorsAreRefused) {
  ExpectInvalid(OpenHeader(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                           R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                           8),
                {"tensor \"b\"", "overlap"});
  ExpectInvalid(OpenHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                           R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                           4),
                {"overlap"});
}

TEST_F(SafetensorsTest, HolesAreRefused) {
  ExpectInvalid(OpenHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                           R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                           12),
                {"tensor \"b\"", "hole"});
  ExpectInvalid(OpenHeader(Entry("\"F32\"", "[1]", "[4,8]"), 8), {"tensor \"t\"", "hole"});
}

TEST_F(SafetensorsTest, TrailingBytesAreRefused) {
  ExpectInvalid(OpenHeader(Entry("\"F32\"", "[1]", "[0,4]"), 7), {"3 bytes after the last tensor"});
  ExpectInvalid(OpenHeader("{}", 1), {"1 bytes after the last tensor"});
}

TEST_F(SafetensorsTest, EntriesOfAnotherFormAreRefused) {
  for (const char* entry : {"3", "[]", "{}", "null", R"({"dtype":"F32","shape":[1]})",
                            R"({"dtype":"F32","shape":[1],"offsets":[0,4]})",
                            R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"stride":[1]})"}) {
    ExpectInvalid(OpenHeader(std::string("{\"t\":") + entry + "}", 4),
                  {"tensor \"t\"", "dtype, shape and data_offsets"});
  }
}

TEST_F(SafetensorsTest, MetadataMustBeStrings) {
  ExpectInvalid(OpenHeader(R"({"__metadata__":{"a":1}})", 0), {"__metadata__", "strings"});
  ExpectInvalid(OpenHeader(R"({"__metadata__":"pt"})", 0), {"__metadata__", "strings"});
}

// Any single changed byte leaves a file that opens or is refused, never one that crashes or whose
// views leave the mapping.
TEST_F(SafetensorsTest, NoSingleByteChangeEscapesTheChecks) {
  const std::string good =
      SafetensorsBytes({{"a", "F32", {2, 1}, std::string(8, 'a')}, {"b", "BF16", {3}, "bbbbbb"}});
  for (size_t i = 0; i + 14 < good.size(); ++i) {
    for (const int change : {1, 2, 4, 8, 16, 32, 64, 128}) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(bytes[i] ^ change);
      const auto file = OpenBytes(bytes);
      if (!file.ok()) {
        EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
        continue;
      }
      size_t total = 0;
      for (const auto& [name, view] : (*file)->tensors()) total += view.data.size();
      EXPECT_EQ(total, 14u) << i;
    }
  }
}

// Resident or not, the bytes are those of the file.
TEST_F(SafetensorsTest, ReleasedPagesAreReadFromTheFileAgain) {
  std::string data(3 << 20, 0);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 31 >> 8);
  const std::string header = R"({"a":{"dtype":"F32","shape":[786432],"data_offsets":[0,3145728]}})";
  const auto file = OpenBytes(SafetensorsBytes(header, data));
  ASSERT_TRUE(file.ok()) << file.status();
  const std::span<const std::byte> bytes = (*file)->tensors().at("a").data;
  const auto resident_pages = [] {
    uint64_t total = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> total >> resident;
    return resident;
  };
  EXPECT_EQ(std::memcmp(bytes.data(), data.data(), data.size()), 0);
  const uint64_t before = resident_pages();
  ReleasePages(bytes);
  EXPECT_LT(resident_pages() + 500, before);
  EXPECT_EQ(std::memcmp(bytes.data(), data.data(), data.size()), 0);
}

}  // namespace
}  // namespace reprise::models
