// SPDX-License-Identifier: Apache-2.0
// The reference scheduler is a client like any other: what it includes, directly or through others,
// is the wire contract and nothing of the engine or the server.
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace reprise::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::IsEmpty;

const fs::path kRoot = REPRISE_SOURCE_DIR;

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
    const bool ours = header == "runtime/status_macros.h" || header == "runtime/check.h";
    const bool inner = header.starts_with("runtime/") || header.starts_with("kernels/") ||
                       header.starts_with("graphs/") || header.starts_with("service/");
    if (inner && !ours) foreign.push_back(header);
  }
  EXPECT_THAT(foreign, IsEmpty());
}

}  // namespace
}  // namespace reprise::tools
