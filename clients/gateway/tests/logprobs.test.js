// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of tokens that are parts of characters.
import assert from 'node:assert/strict';
import {join} from 'node:path';
import {test} from 'node:test';

import {repository} from '../../node/testing/server.js';
import {Answer} from '../src/answer.js';
import {Choice} from '../src/choice.js';
import {TextModel} from '../src/text_model.js';

const textModel = new TextModel(join(repository, 'examples/byte-llama'));
const [first, second] = Buffer.from('é');

// Entries of an answer of two tokens that are one character.
function entriesOf() {
  const entries = [];
  const request = {stops: [], numLogprobs: 2, maxNewTokens: 8, sampling: {}, seed: 1};
  const onPiece = ({logprobs}) => entries.push(...logprobs);
  const {generation} = new Choice({index: 0, prompt: [1], request, textModel, onPiece});
  const pairs = [
    [first, second],
    [second, 256],
  ];
  for (const [token, other] of pairs) {
    const top = [token, other].map((id, i) => ({token: id, logprob: -1 - i}));
    generation.onToken({token, logprob: -1, top});
  }
  return entries;
}

test('bytes are those of the token, of a special one those of its text', () => {
  const entries = entriesOf();
  const bytesOf = (some) => some.map(({bytes}) => bytes);
  assert.deepEqual(bytesOf(entries), [[first], [second]]);
  assert.deepEqual(bytesOf(entries[0].top_logprobs), [[first], [second]]);
  assert.deepEqual(entries[1].top_logprobs[1].bytes, [...Buffer.from('<|endoftext|>')]);
});

test('parts of characters are told apart by their names', () => {
  const choice = {index: 0, text: 'é', logprobs: entriesOf(), finish_reason: 'stop'};
  const {logprobs} = new Answer('completion', 'model').whole([choice], {}).choices[0];
  assert.deepEqual(logprobs.tokens, ['bytes:\\xc3', 'bytes:\\xa9']);
  assert.deepEqual(logprobs.top_logprobs[0], {'bytes:\\xc3': -1, 'bytes:\\xa9': -2});
});
