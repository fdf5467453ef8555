// SPDX-License-Identifier: Apache-2.0
#include "runtime/shared_library.h"

#include "absl/strings/str_cat.h"

namespace reprise::runtime {

absl::StatusOr<SharedLibrary> SharedLibrary::Open(const std::string& name, Unload unload) {
  const int more = unload == Unload::kNever ? RTLD_NODELETE : 0;
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | more);
  if (library != nullptr) return SharedLibrary(name, library);
  return absl::UnavailableError(absl::StrCat("cannot open ", name, ": ", dlerror()));
}

absl::Status SharedLibrary::NotFound(const char* function_name) const {
  return absl::UnavailableError(absl::StrCat(name_, " has no function ", function_name));
}

}  // namespace reprise::runtime
