// SPDX-License-Identifier: Apache-2.0
// SharedLibrary: a library that is opened at run time, such as one of a driver, and its functions.
#ifndef REPRISE_RUNTIME_SHARED_LIBRARY_H_
#define REPRISE_RUNTIME_SHARED_LIBRARY_H_

#include <dlfcn.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reprise::runtime {

class SharedLibrary {
 public:
  enum class Unload { kAtTheEnd, kNever };  // kNever: of one that leaves threads behind

  // Errors: Unavailable, with what the loader says.
  static absl::StatusOr<SharedLibrary> Open(const std::string& name,
                                            Unload unload = Unload::kAtTheEnd);

  // Errors: Unavailable, where the library has no such function.
  template <typename Function>
  absl::Status Find(const char* function_name, Function* function) const {
    *function = reinterpret_cast<Function>(dlsym(library_.get(), function_name));
    return *function != nullptr ? absl::OkStatus() : NotFound(function_name);
  }

  // As it was opened.
  const std::string& name() const { return name_; }

 private:
  struct Close {
    void operator()(void* library) const { dlclose(library); }
  };

  SharedLibrary(std::string name, void* library) : name_(std::move(name)), library_(library) {}
  absl::Status NotFound(const char* function_name) const;

  std::string name_;
  std::unique_ptr<void, Close> library_;
};

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_SHARED_LIBRARY_H_
