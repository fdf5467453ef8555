// SPDX-License-Identifier: Apache-2.0
// Single files and sharded indexes, honest and lying.
#include "models/weights/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/models/model_files.h"
#include "tests/testing/tiny_model.h"

namespace reprise::models {
namespace {

using ::reprise::testing::ExpectError;
using ::reprise::testing::ExpectInvalid;
using ::reprise::testing::SafetensorsBytes;
using ::reprise::testing::TemporaryDirectory;
using ::reprise::testing::WriteBytes;

class CheckpointTest : public ::testing::Test {
 protected:
  const std::string& directory() const { return directory_.path(); }
  void Write(const std::string& name, const std::string& bytes) {
    WriteBytes(directory() + "/" + name, bytes);
  }
  // A shard of one-element f32 tensors.
  void WriteShard(const std::string& file, const std::vector<std::string>& names) {
    std::vector<testing::FileTensor> tensors;
    tensors.reserve(names.size());
    for (const std::string& name : names) tensors.push_back({name, "F32", {1}, "data"});
    Write(file, SafetensorsBytes(tensors));
  }
  void WriteIndex(const std::string& weight_map) {
    Write("model.safetensors.index.json",
          "{\"metadata\":{\"total_size\":8},\"weight_map\":" + weight_map + "}");
  }
  absl::Status Open() { return Checkpoint::Open(directory()).status(); }

 private:
  TemporaryDirectory directory_;
};

TEST_F(CheckpointTest, FindsTensorsOfASingleFile) {
  WriteShard("model.safetensors", {"b", "a"});
  const auto checkpoint = Checkpoint::Open(directory());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->Names(), (std::vector<std::string>{"a", "b"}));
  ASSERT_NE((*checkpoint)->Find("a"), nullptr);
  EXPECT_EQ((*checkpoint)->Find("a")->data.size(), 4u);
  EXPECT_EQ((*checkpoint)->Find("c"), nullptr);
}

TEST_F(CheckpointTest, FindsTensorsOfAllShards) {
  WriteShard("model-00001-of-00002.safetensors", {"a", "c"});
  WriteShard("model-00002-of-00002.safetensors", {"b"});
  WriteIndex(R"({"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors",)"
             R"("c":"model-00001-of-00002.safetensors"})");
  const auto checkpoint = Checkpoint::Open(directory());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->Names(), (std::vector<std::string>{"a", "b", "c"}));
  for (const char* name : {"a", "b", "c"}) EXPECT_NE((*checkpoint)->Find(name), nullptr);
}

TEST_F(CheckpointTest, ASingleFileWinsOverAnIndex) {
  WriteShard("model.safetensors", {"single"});
  WriteIndex(R"({"a":"missing.safetensors"})");
  const auto checkpoint = Checkpoint::Open(directory());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->Names(), (std::vector<std::string>{"single"}));
}

TEST_F(CheckpointTest, ADirectoryWithoutWeightsIsNotFound) {
  ExpectError(Open(), absl::StatusCode::kNotFound,
              {directory().c_str(), "model.safetensors", "model.safetensors.index.json"});
  ExpectError(Checkpoint::Open(directory() + "/nowhere").status(), absl::StatusCode::kNotFound,
              {"nowhere"});
}

TEST_F(CheckpointTest, ADamagedSingleFileIsRefusedAndNotPassedOver) {
  Write("model.safetensors", "short");
  WriteShard("s.safetensors", {"a"});
  WriteIndex(R"({"a":"s.safetensors"})");
  ExpectInvalid(Open(), {"model.safetensors: got 5 bytes"});
}

TEST_F(CheckpointTest, AMissingShardIsNamed) {
  WriteShard("model-00001-of-00002.safetensors", {"a"});
  WriteIndex(R"({"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"})");
  ExpectError(Open(), absl::StatusCode::kNotFound, {"model-00002-of-00002.safetensors"});
}

TEST_F(CheckpointTest, ATensorThatItsShardLacksIsNamed) {
  WriteShard("s.safetensors", {"a"});
  WriteIndex(R"({"a":"s.safetensors","b":"s.safetensors"})");
  ExpectInvalid(Open(), {"s.safetensors: lacks tensor \"b\""});
}

TEST_F(CheckpointTest, ATensorInTwoShardsIsNamed) {
  WriteShard("s1.safetensors", {"a"});
  WriteShard("s2.safetensors", {"a", "b"});
  WriteIndex(R"({"a":"s1.safetensors","b":"s2.safetensors"})");
  ExpectInvalid(Open(), {"s2.safetensors: got tensor \"a\""});
}

TEST_F(CheckpointTest, ATensorThatTheIndexGivesTwiceIsNamed) {
  WriteShard("s1.safetensors", {"a"});
  WriteShard("s2.safetensors", {"a"});
  WriteIndex(R"({"a":"s1.safetensors","a":"s2.safetensors"})");
  ExpectInvalid(Open(), {"\"a\" twice"});
}

// The files that a traversal would reach exist, so that only the check can refuse.
TEST_F(CheckpointTest, ShardNamesCannotLeaveTheDirectory) {
  const std::string inner = directory() + "/inner";
  std::filesystem::create_directories(inner + "/sub.safetensors");
  WriteShard("outside.safetensors", {"a"});
  WriteShard("inner/sub.safetensors/s.safetensors", {"a"});
  for (const std::string& name :
       {std::string("../outside.safetensors"), directory() + "/outside.safetensors",
        std::string("sub.safetensors/s.safetensors"), std::string("..\\\\outside.safetensors"),
        std::string("./s.safetensors"), std::string(".safetensors"), std::string(".."),
        std::string(), std::string("outside.bin"), std::string("s\\u0000.safetensors"),
        std::string("s\\n.safetensors")}) {
    WriteBytes(inner + "/model.safetensors.index.json",
               "{\"weight_map\":{\"a\":\"" + name + "\"}}");
    ExpectInvalid(Checkpoint::Open(inner).status(), {"weight_map of \"a\"", "without a path"});
  }
}

TEST_F(CheckpointTest, IndexesOfAnotherFormAreRefused) {
  for (const char* map : {"{}", "[]", "null", "3"}) {
    WriteIndex(map);
    ExpectInvalid(Open(), {"weight_map"});
  }
  WriteIndex(R"({"a":3})");
  ExpectInvalid(Open(), {"weight_map of \"a\": got 3"});
  Write("model.safetensors.index.json", "{");
  ExpectInvalid(Open(), {"model.safetensors.index.json", "not JSON"});
  Write("model.safetensors.index.json", "[]");
  ExpectInvalid(Open(), {"model.safetensors.index.json", "got array"});
}

}  // namespace
}  // namespace reprise::models
