// SPDX-License-Identifier: Apache-2.0
#ifndef REPRISE_TESTS_TESTING_SOURCE_DIR_H_
#define REPRISE_TESTS_TESTING_SOURCE_DIR_H_

#include <string>

namespace reprise::testing {

// The folder of the sources, where fixtures, models and documents lie. A function, so that one file
// alone is compiled anew in another clone.
std::string SourceDir();

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_SOURCE_DIR_H_
