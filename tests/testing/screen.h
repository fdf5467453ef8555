// SPDX-License-Identifier: Apache-2.0
// What a person sees of bytes that went to a terminal: a screen of a given width, endlessly high.
// It knows what our programs send, which is text in UTF-8, carriage return, newline, and "erase to
// the end of the line"; anything else is reported, so that no test passes on what it misread.
#ifndef REPRISE_TESTS_TESTING_SCREEN_H_
#define REPRISE_TESTS_TESTING_SCREEN_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::testing {

struct Screen {
  // Lines from the top, without spaces at their ends; the last one is the cursor's.
  std::vector<std::string> lines;
  // How often text ran over the right edge and the terminal broke it.
  size_t num_overflows = 0;
  // What the screen does not understand, escaped; empty when there is none.
  std::string unknown;

  // All lines, each with a newline.
  std::string text() const;
  // The same with broken lines joined again: what was written, whatever the width.
  std::string unbroken_text() const;

  std::vector<bool> continues;  // by line: the terminal broke it, the next one goes on
};

// `output`: as a terminal of `columns` gets it, newlines as "\r\n".
Screen ShownOn(size_t columns, std::string_view output);

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_SCREEN_H_
