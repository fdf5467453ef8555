// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/source_dir.h"

namespace reprise::testing {

std::string SourceDir() { return REPRISE_SOURCE_DIR; }

}  // namespace reprise::testing
