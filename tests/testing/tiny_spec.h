// SPDX-License-Identifier: Apache-2.0
// A model so small that what its steps move can be worked out by hand.
#ifndef REPRISE_TESTS_TESTING_TINY_SPEC_H_
#define REPRISE_TESTS_TESTING_TINY_SPEC_H_

#include "models/config/model_spec.h"

namespace reprise::testing {

// Rows of q are 4 wide, of k and v 2, of all three 8.
inline models::ModelSpec TinySpec() {
  models::ModelSpec spec;
  spec.architecture = "llama";
  spec.max_position_embeddings = 8;
  spec.attention_multiplier = 1.0;
  spec.vocab_size = 10;
  spec.hidden_size = 4;
  spec.intermediate_size = 6;
  spec.num_layers = 2;
  spec.num_heads = 2;
  spec.num_kv_heads = 1;
  spec.head_dim = 2;
  return spec;
}

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_TINY_SPEC_H_
