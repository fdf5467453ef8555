// SPDX-License-Identifier: Apache-2.0
// reprise_fuzzer: one of the targets under libFuzzer, which is led by what the bytes reach.
//
//   cmake --preset fuzz && cmake --build --preset fuzz --target reprise_fuzzer
//   build/fuzz/tests/fuzz/reprise_fuzzer --target=frames -max_total_time=120
//
// A corpus may be named behind the options; the target's seeds are written there first.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "tests/fuzz/conversations.h"
#include "tests/fuzz/targets.h"

namespace {

const reprise::fuzz::Target* target = nullptr;

const reprise::fuzz::Target* Find(std::string_view name) {
  for (const reprise::fuzz::Target& each : reprise::fuzz::Targets())
    if (each.name == name) return &each;
  return nullptr;
}

[[noreturn]] void ShowTargets() {
  std::fprintf(stderr, "reprise_fuzzer: --target: got none of these:");
  for (const reprise::fuzz::Target& each : reprise::fuzz::Targets())
    std::fprintf(stderr, " %s", std::string(each.name).c_str());
  std::fprintf(stderr, "\n");
  std::exit(2);
}

void ShowRequests() {
  const reprise::fuzz::NumRequests requests = reprise::fuzz::RequestsOfConversations();
  if (requests.made == 0) return;
  std::fprintf(stderr, "requests: %llu, of these taken: %llu\n",
               static_cast<unsigned long long>(requests.made),
               static_cast<unsigned long long>(requests.taken));
}

void WriteSeeds(const std::filesystem::path& corpus) {
  std::filesystem::create_directories(corpus);
  int number = 0;
  for (const std::string& seed : target->seeds())
    std::ofstream(corpus / ("seed" + std::to_string(number++)), std::ios::binary) << seed;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  constexpr std::string_view kOption = "--target=";
  int kept = 1;
  for (int i = 1; i < *argc; ++i) {
    const std::string_view argument = (*argv)[i];
    if (argument.starts_with(kOption)) {
      target = Find(argument.substr(kOption.size()));
    } else {
      (*argv)[kept++] = (*argv)[i];
    }
  }
  *argc = kept;
  (*argv)[kept] = nullptr;
  if (target == nullptr) ShowTargets();
  std::atexit(ShowRequests);
  if (kept > 1 && (*argv)[kept - 1][0] != '-') WriteSeeds((*argv)[kept - 1]);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  target->take({reinterpret_cast<const char*>(data), size});
  return 0;
}
