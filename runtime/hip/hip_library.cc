// SPDX-License-Identifier: Apache-2.0
#include "runtime/hip/hip_library.h"

#include <dlfcn.h>

#include <array>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace reprise::runtime::hip {
namespace {

constexpr std::array<std::string_view, 4> kLibraryNames = {"libamdhip64.so.7", "libamdhip64.so.6",
                                                           "libamdhip64.so.5", "libamdhip64.so"};

std::string LoaderError() {
  const char* error = dlerror();
  return error == nullptr ? "the loader gave no reason" : error;
}

// What the loader said, once for all names in a row of which it said the same.
class Refusals {
 public:
  void Add(const std::string& name, const std::string& error) {
    const std::string reason(absl::StripPrefix(error, absl::StrCat(name, ": ")));
    if (groups_.empty() || groups_.back().reason != reason) groups_.push_back({{}, reason});
    groups_.back().names.push_back(name);
  }
  std::string ToString() const {
    return absl::StrJoin(groups_, "; ", [](std::string* out, const Group& group) {
      absl::StrAppend(out, absl::StrJoin(group.names, ", "), ": ", group.reason);
    });
  }

 private:
  struct Group {
    std::vector<std::string> names;
    std::string reason;
  };
  std::vector<Group> groups_;
};

template <typename Function>
void Resolve(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
}

// The first call that is missing, or null.
const char* ResolveAll(void* library, Api* api) {
#define REPRISE_HIP_RESOLVE(result, name, parameters) Resolve(library, #name, &api->name);
  REPRISE_HIP_OPTIONAL_CALLS(REPRISE_HIP_RESOLVE)
  REPRISE_HIP_REQUIRED_CALLS(REPRISE_HIP_RESOLVE)
#undef REPRISE_HIP_RESOLVE
#define REPRISE_HIP_CHECK(result, name, parameters) \
  if (api->name == nullptr) return #name;
  REPRISE_HIP_REQUIRED_CALLS(REPRISE_HIP_CHECK)
#undef REPRISE_HIP_CHECK
  return nullptr;
}

}  // namespace

std::span<const std::string_view> LibraryNames() { return kLibraryNames; }

absl::StatusOr<Library> OpenLibrary(std::string_view path) {
  const std::span<const std::string_view> names =
      path.empty() ? LibraryNames() : std::span<const std::string_view>(&path, 1);
  Refusals refusals;
  for (const std::string_view view : names) {
    const std::string name(view);
    void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      refusals.Add(name, LoaderError());
      continue;
    }
    Library library{.api = {}, .name = name};
    const char* missing = ResolveAll(handle, &library.api);
    if (missing == nullptr) return library;
    // Nothing of it has run but its constructors.
    dlclose(handle);
    return absl::UnavailableError(
        absl::StrCat("HIP library ", name, " lacks ", missing, "; needed: ROCm 5.2 or later"));
  }
  return absl::UnavailableError(absl::StrCat("no HIP library: ", refusals.ToString()));
}

}  // namespace reprise::runtime::hip
