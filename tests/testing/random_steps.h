// SPDX-License-Identifier: Apache-2.0
// RandomSteps: steps for fetch, plan and publish, as a scheduler with no plan would make them. Says
// nothing about what they must lead to: that is step_oracle.h.
#ifndef REPRISE_TESTS_TESTING_RANDOM_STEPS_H_
#define REPRISE_TESTS_TESTING_RANDOM_STEPS_H_

#include <cstdint>
#include <vector>

#include "tests/testing/cases/step_cases.h"
#include "tests/testing/number.h"
#include "tests/testing/step_oracle.h"

namespace reprise::testing {

// A random life of rows: added with a context or without, continued with given tokens or the last
// sampled one, extended by blocks, dropped and added again. Where the case has features: with
// parameters of all kinds that come with the row and change as it runs, prompt tokens asked about,
// rows that stop and are named all the same; rows that have no room and pause. Every step that it
// makes is valid.
class RandomSteps {
 public:
  RandomSteps(const kernels::StepCase& c, uint64_t seed);
  // `rows` as they will be when the step runs; last_token decides nothing.
  OracleStep Next(const OracleRows& rows);
  // What later replays run: the rows that sample in it, as far as their tables
  // have room.
  OracleStep Repeat(const OracleStep& first);

  // Words of sampling data that a step has at most.
  static uint32_t MaxSamplingWords(const kernels::StepCase& c);

 private:
  // What has been written for a slot, by this row or one before it.
  struct Written {
    bool kind[kernels::kSamplingUpdatesPerRow] = {};
    bool min_tokens = false;  // of the last RowSampling
    uint32_t num_stop = 0;
  };

  void AddRow(uint32_t slot, uint32_t budget, const OracleRows& rows, OracleStep& step);
  void GiveTokens(uint32_t most, kernels::RowEntry& entry, OracleStep& step);
  // Whether it gave any.
  bool GiveDrafts(uint32_t most, kernels::RowEntry& entry, OracleStep& step);
  void GiveBlocks(uint32_t slot, uint32_t length, OracleStep& step);
  void GiveFeatures(uint32_t slot, kernels::RowEntry& entry, OracleStep& step);
  void AddPrefixes(OracleStep& step);
  // Each kind with a probability of one in `odds`. `fresh`: the row is new.
  void UpdateSampling(uint32_t slot, uint32_t odds, bool fresh, OracleStep& step);
  std::vector<uint32_t> DataOf(kernels::SamplingUpdateKind kind, bool fresh, Written& written);
  std::vector<uint32_t> RandomSampling(bool fresh, Written& written);
  // Features whose parameters are there.
  uint32_t RandomFeatures(uint32_t slot);
  // Few tokens come often.
  uint32_t Token();
  std::vector<uint32_t> Words(uint32_t n);

  const kernels::StepCase& c_;
  Random random_;
  std::vector<bool> live_, sampled_;                     // by slot
  std::vector<uint32_t> num_blocks_;                     // by slot: in the table
  std::vector<Written> written_;                         // by slot
  uint32_t prompt_logprobs_left_ = 0, drafts_left_ = 0;  // of the step
};

// What sampling might leave: a token and log-probability for each that a step can sample, now and
// then none.
void RandomSampled(const kernels::StepCase& c, Random& random, std::vector<uint32_t>* token,
                   std::vector<float>* logprob);

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_RANDOM_STEPS_H_
