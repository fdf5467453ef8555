// SPDX-License-Identifier: Apache-2.0
// Addresses to lines of the source; see places.h.
#include "tests/emulator/places.h"

#include <link.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace reprise::emulator {
namespace {

constexpr size_t kMaxFrames = 5;

struct Located {
  std::string text;
  bool has_line = false;
};

// A place is the low half of an address: the module whose code holds one such address.
struct Module {
  Place place = 0;
  std::string path;  // "": nowhere
  uintptr_t offset = 0;
};

int FindIn(dl_phdr_info* info, size_t, void* data) {
  auto* const found = static_cast<Module*>(data);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
    const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    const uintptr_t address = begin + static_cast<Place>(found->place - static_cast<Place>(begin));
    if (address >= begin + segment.p_memsz) continue;
    found->path = info->dlpi_name;
    found->offset = address - info->dlpi_addr;
    if (found->path.empty()) {
      std::array<char, 4096> self;
      const ssize_t length = readlink("/proc/self/exe", self.data(), self.size());
      if (length > 0) found->path.assign(self.data(), static_cast<size_t>(length));
    }
    return 1;
  }
  return 0;
}

std::vector<std::string> LinesOf(const std::string& command) {
  std::string output;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  std::array<char, 4096> buffer;
  while (const size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) {
    output.append(buffer.data(), n);
  }
  pclose(pipe);
  return absl::StrSplit(output, '\n', absl::SkipEmpty());
}

// Without parameters, template arguments and our own namespaces.
std::string ShortName(absl::string_view function) {
  std::string name = absl::StrReplaceAll(
      function, {{"(anonymous namespace)::", ""}, {"reprise::", ""}, {"testing::", ""}});
  if (absl::StartsWith(name, "operator")) return "operator";
  return name.substr(0, name.find_first_of("(<", 1));
}

std::string ShortFile(absl::string_view file) {
  file = file.substr(0, file.find(" (discriminator"));
  const std::filesystem::path path(std::string(file), std::filesystem::path::native_format);
  const std::string normal = path.lexically_normal().string();
  return std::string(absl::StripPrefix(normal, REPRISE_DEBUG_SOURCE_DIR "/"));
}

Located Locate(Place place) {
  Module module{.place = place, .path = "", .offset = 0};
  dl_iterate_phdr(FindIn, &module);
  if (module.path.empty()) return {.text = absl::StrCat("0x", absl::Hex(place)), .has_line = false};
  const std::vector<std::string> lines =
      LinesOf(absl::StrCat(REPRISE_ADDR2LINE " -f -i -C -e '", module.path, "' 0x",
                           absl::Hex(module.offset), " 2>/dev/null"));
  std::vector<std::string> frames;
  for (size_t i = 0; i + 1 < lines.size() && frames.size() < kMaxFrames; i += 2) {
    if (absl::StartsWith(lines[i + 1], "??")) break;
    frames.push_back(absl::StrCat(ShortFile(lines[i + 1]), " (", ShortName(lines[i]), ")"));
  }
  if (frames.empty()) {
    return {.text = absl::StrCat(module.path, "+0x", absl::Hex(module.offset)), .has_line = false};
  }
  return {.text = absl::StrJoin(frames, " from "), .has_line = true};
}

const Located& LocateOnce(Place place) {
  static std::mutex* const mutex = new std::mutex;
  static auto* const located = new std::map<Place, Located>;
  std::lock_guard<std::mutex> lock(*mutex);
  const auto [it, is_new] = located->try_emplace(place);
  if (is_new) it->second = Locate(place);
  return it->second;
}

}  // namespace

std::string Describe(Place place) { return LocateOnce(place).text; }

bool IsSameSource(Place a, Place b) {
  if (a == b) return true;
  const Located& first = LocateOnce(a);
  const Located& second = LocateOnce(b);
  return !first.has_line || !second.has_line || first.text == second.text;
}

}  // namespace reprise::emulator
