// SPDX-License-Identifier: Apache-2.0
// Log-probabilities: the names, bytes and offsets of tokens, also of those that are parts of
// characters.
import assert from 'node:assert/strict';
import {rmSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {test} from 'node:test';

import {repository, scratchFolder} from '../../node/testing/server.js';
import {Answer} from '../src/answer.js';
import {Choice} from '../src/choice.js';
import {TextModel} from '../src/text_model.js';

const byteLlama = new TextModel(join(repository, 'examples/byte-llama'));
const [first, second] = Buffer.from('é');

// {text, logprobs} of an answer of tokens. rows: each a token and others that are likely.
function answerOf(rows, textModel = byteLlama) {
  const answer = {text: '', logprobs: []};
  const request = {stops: [], numLogprobs: 2, maxNewTokens: 100, sampling: {}, seed: 1};
  const onPiece = ({text, logprobs}) => {
    answer.text += text;
    answer.logprobs.push(...logprobs);
  };
  const {generation} = new Choice({index: 0, prompt: [1], request, textModel, onPiece});
  for (const tokens of rows) {
    const top = tokens.map((id, i) => ({token: id, logprob: -1 - i}));
    generation.onToken({token: tokens[0], logprob: -1, top});
  }
  generation.end('length');
  return answer;
}

// Two tokens that are one character.
const character = () =>
  answerOf([
    [first, second],
    [second, 256],
  ]);

function shownAs(kind, {text, logprobs}) {
  const choice = {index: 0, text, logprobs, finish_reason: 'stop'};
  return new Answer(kind, 'model').whole([choice], {}).choices[0].logprobs;
}

// A tokenizer of SentencePiece's kind, and the ids of its tokens.
function sentencePiece() {
  const bytes = [...Buffer.from('☃')].map((byte) => `<0x${byte.toString(16).toUpperCase()}>`);
  const names = ['<s>', '▁hi', 'hi', '▁', 'é', ...bytes];
  const replace = {type: 'Replace', pattern: {String: '▁'}, content: ' '};
  const strip = {type: 'Strip', content: ' ', start: 1, stop: 0};
  const steps = [replace, {type: 'ByteFallback'}, {type: 'Fuse'}, strip];
  const vocab = Object.fromEntries(names.map((name, id) => [name, id]));
  const tokenizer = {
    added_tokens: [{id: 0, content: '<s>', special: true}],
    ...{normalizer: null, pre_tokenizer: null, post_processor: null},
    decoder: {type: 'Sequence', decoders: steps},
    model: {type: 'BPE', vocab, merges: [], byte_fallback: true, unk_token: '<s>'},
  };
  const folder = scratchFolder();
  writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify(tokenizer));
  const textModel = new TextModel(folder);
  rmSync(folder, {recursive: true});
  return {textModel, ids: vocab};
}

test('bytes are those of the token, of a special one those of its text', () => {
  const {logprobs: entries} = character();
  const bytesOf = (some) => some.map(({bytes}) => bytes);
  assert.deepEqual(bytesOf(entries), [[first], [second]]);
  assert.deepEqual(bytesOf(entries[0].top_logprobs), [[first], [second]]);
  assert.deepEqual(entries[1].top_logprobs[1].bytes, [...Buffer.from('<|endoftext|>')]);
});

test('parts of characters are told apart by their names', () => {
  const {tokens, top_logprobs: top} = shownAs('completion', character());
  assert.deepEqual(tokens, ['bytes:\\xc3', 'bytes:\\xa9']);
  assert.deepEqual(top[0], {'bytes:\\xc3': -1, 'bytes:\\xa9': -2});
});

test('offsets are those in the text, in which parts of a character count with its last', () => {
  const tokens = [...Buffer.from('aé☃b😀c'), 256, 0x64];
  const answer = answerOf(tokens.map((token) => [token]));
  assert.equal(answer.text, 'aé☃b😀cd');
  const {text_offset: offsets} = shownAs('completion', answer);
  assert.deepEqual(offsets, [0, 1, 1, 2, 2, 2, 3, 4, 4, 4, 4, 6, 7, 7]);
  for (const [i, {token, bytes}] of answer.logprobs.entries()) {
    if (bytes.length === 1 && bytes[0] < 0x80) {
      assert.ok(answer.text.slice(offsets[i]).startsWith(token));
    }
  }
});

test('bytes that never become a character count before the token behind them', () => {
  const answer = answerOf([0x61, 0xe2, 0x62, 0x63].map((token) => [token]));
  assert.equal(answer.text, 'a\ufffdbc');
  assert.deepEqual(shownAs('completion', answer).text_offset, [0, 1, 2, 3]);
});

test("SentencePiece's tokens have their spaces, and offsets in a text without the first", () => {
  const {textModel, ids} = sentencePiece();
  const names = ['▁hi', '▁hi', 'hi', '<0xE2>', '<0x98>', '<0x83>', 'é', '▁', '<s>'];
  const answer = answerOf(names.map((name) => [ids[name], ids.hi]), textModel);
  assert.equal(answer.text, 'hi hihi☃é ');
  const {content} = shownAs('chat', answer);
  const shown = content.map(({token}) => token);
  const parts = ['\ufffd', '\ufffd', '\ufffd'];
  assert.deepEqual(shown, [' hi', ' hi', 'hi', ...parts, 'é', ' ', '<s>']);
  assert.deepEqual(content[0].bytes, [...Buffer.from(' hi')]);
  assert.ok(!('offset' in content[0]));
  const {text_offset: offsets, top_logprobs: top} = shownAs('completion', answer);
  assert.deepEqual(offsets, [0, 2, 5, 7, 7, 7, 8, 9, 10]);
  assert.deepEqual(top[0], {' hi': -1, hi: -2});
});
