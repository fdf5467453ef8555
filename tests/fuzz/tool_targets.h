// SPDX-License-Identifier: Apache-2.0
// Targets of targets.h that read files and answers which the program is given, each with what it
// takes to begin with.
#ifndef REPRISE_TESTS_FUZZ_TOOL_TARGETS_H_
#define REPRISE_TESTS_FUZZ_TOOL_TARGETS_H_

#include <string>
#include <string_view>
#include <vector>

namespace reprise::fuzz {

// Arrivals of requests (`reprise sched --arrivals`).
bool TakeArrivals(std::string_view bytes);
std::vector<std::string> ArrivalSeeds();
// The model and the options of a server (`reprise serve --config`).
bool TakeServeConfig(std::string_view bytes);
std::vector<std::string> ServeConfigSeeds();
// Prompts in a file; lines that are no JSON are texts or tokens.
bool TakePrompts(std::string_view bytes);
std::vector<std::string> PromptSeeds();
// Sizes of steps (`reprise advise`).
bool TakeBatches(std::string_view bytes);
std::vector<std::string> BatchSeeds();
// A tree of the choices of attention.
bool TakeAttentionTree(std::string_view bytes);
std::vector<std::string> AttentionTreeSeeds();
// Which kernels linear layers go by (`--linear-table`).
bool TakeLinearTable(std::string_view bytes);
std::vector<std::string> LinearTableSeeds();
// What `reprise profile` wrote, for comparing and for simulated devices.
bool TakeProfile(std::string_view bytes);
std::vector<std::string> ProfileSeeds();
bool TakeSimulatedDevice(std::string_view bytes);
// What `reprise graph dump` wrote.
bool TakeGraph(std::string_view bytes);
std::vector<std::string> GraphSeeds();
// A tuner's journal, which may have been cut off.
bool TakeJournal(std::string_view bytes);
std::vector<std::string> JournalSeeds();
// What `reprise compare` compares.
bool TakeMeasuredRun(std::string_view bytes);
std::vector<std::string> MeasuredRunSeeds();
// Metrics of a server (`reprise top`).
bool TakeMetrics(std::string_view bytes);
std::vector<std::string> MetricsSeeds();

}  // namespace reprise::fuzz

#endif  // REPRISE_TESTS_FUZZ_TOOL_TARGETS_H_
