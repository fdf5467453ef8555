// SPDX-License-Identifier: Apache-2.0
#include "service/metrics/exposition.h"

#include <array>
#include <charconv>

#include "absl/strings/str_cat.h"

namespace reprise::service {
namespace {

// Backslashes and line ends in help; quotes in a label's value too.
void AppendEscaped(std::string_view text, bool quotes, std::string* out) {
  for (const char c : text) {
    if (c == '\n') {
      *out += "\\n";
    } else if (c == '\\' || (quotes && c == '"')) {
      *out += '\\';
      *out += c;
    } else {
      *out += c;
    }
  }
}

// The shortest text that reads as the same number.
std::string SecondsText(uint64_t ns) {
  std::array<char, 32> text;
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), static_cast<double>(ns) / 1e9);
  return {text.data(), end.ptr};
}

}  // namespace

void Exposition::Family(std::string_view name, std::string_view type, std::string_view help) {
  family_ = name;
  absl::StrAppend(&text_, "# HELP ", family_, " ");
  AppendEscaped(help, /*quotes=*/false, &text_);
  absl::StrAppend(&text_, "\n# TYPE ", family_, " ", std::string(type), "\n");
}

void Exposition::AddLine(std::string_view suffix, Labels labels, std::string_view edge,
                         std::string_view value) {
  text_ += family_;
  text_ += suffix;
  char before = '{';
  const auto add_label = [&](std::string_view name, std::string_view label) {
    text_ += before;
    text_ += name;
    text_ += "=\"";
    AppendEscaped(label, /*quotes=*/true, &text_);
    text_ += '"';
    before = ',';
  };
  for (const auto& [name, label] : labels) add_label(name, label);
  if (!edge.empty()) add_label("le", edge);
  if (before == ',') text_ += '}';
  text_ += ' ';
  text_ += value;
  text_ += '\n';
}

void Exposition::Add(Labels labels, uint64_t value) {
  AddLine("", labels, "", std::to_string(value));
}

void Exposition::AddSeconds(Labels labels, uint64_t ns) {
  AddLine("", labels, "", SecondsText(ns));
}

void Exposition::AddHistogram(Labels labels, const Histogram::Snapshot& histogram) {
  uint64_t below = 0;
  for (size_t i = 0; i < Histogram::kNumBuckets; ++i) {
    below += histogram.counts[i];
    const std::string edge =
        i < Histogram::kNumEdges ? SecondsText(Histogram::EdgeNs(i)) : std::string("+Inf");
    AddLine("_bucket", labels, edge, std::to_string(below));
  }
  AddLine("_sum", labels, "", SecondsText(histogram.sum_ns));
  AddLine("_count", labels, "", std::to_string(below));
}

}  // namespace reprise::service
