// SPDX-License-Identifier: Apache-2.0
// The reference scheduler is a client like any other: it talks to a server through the wire alone.
// What it includes of the project, directly or through others, is the wire contract and the headers
// that define a step's vocabulary: structs, no engine, no model, no device, no server.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/source_dir.h"

namespace reprise::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::IsEmpty;

const fs::path kRoot = testing::SourceDir();

constexpr const char* kInnerFolders[] = {"runtime/", "kernels/", "graphs/",
                                         "models/",  "engine/",  "service/"};
// Structs and what they are made of, and two headers of macros.
const std::set<std::string> kAllowed = {
    "engine/sampling_params.h",     "engine/session_info.h",      "engine/step_draft.h",
    "engine/step_form.h",           "engine/step_request.h",      "engine/step_result.h",
    "kernels/step/finish_reason.h", "kernels/step/step_limits.h", "runtime/check.h",
    "runtime/status_macros.h",
};

std::vector<std::string> QuotedIncludes(const fs::path& file) {
  std::vector<std::string> headers;
  std::ifstream source(file);
  constexpr std::string_view kInclude = "#include \"";
  for (std::string line; std::getline(source, line);) {
    if (!line.starts_with(kInclude)) continue;
    const size_t end = line.find('"', kInclude.size());
    if (end != std::string::npos) {
      headers.push_back(line.substr(kInclude.size(), end - kInclude.size()));
    }
  }
  return headers;
}

void Follow(const fs::path& file, std::set<std::string>* seen) {
  for (const std::string& header : QuotedIncludes(file)) {
    if (seen->insert(header).second && fs::exists(kRoot / header)) Follow(kRoot / header, seen);
  }
}

TEST(SchedulerSources, KnowTheServerThroughTheWireContractAlone) {
  std::set<std::string> headers;
  Follow(kRoot / "tools/cli_sched.cc", &headers);
  for (const auto& entry : fs::directory_iterator(kRoot / "tools/sched")) {
    Follow(entry.path(), &headers);
  }
  EXPECT_THAT(headers, Contains("reprise/v1/step_service.grpc.pb.h"));
  std::vector<std::string> foreign;
  for (const std::string& header : headers) {
    const bool inner = std::any_of(std::begin(kInnerFolders), std::end(kInnerFolders),
                                   [&](const char* folder) { return header.starts_with(folder); });
    if (inner && !kAllowed.contains(header)) foreign.push_back(header);
  }
  EXPECT_THAT(foreign, IsEmpty());
}

}  // namespace
}  // namespace reprise::tools
