// SPDX-License-Identifier: Apache-2.0
// Tokens to text: tokenizers, chat templates, pieces of characters, stop strings.
import assert from 'node:assert/strict';
import {rmSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {test} from 'node:test';

import {repository, scratchFolder} from '../../node/testing/server.js';
import {ApiError} from '../src/api_error.js';
import {TextModel} from '../src/text_model.js';
import {DecodedStream, StopStrings} from '../src/text_stream.js';
import {llamaTinyText} from '../testing/gateway.js';
import {tokenizerText} from '../testing/tokenizer_text.js';

const bytes = new TextModel(join(repository, 'examples/byte-llama'));
const tiny = new TextModel(llamaTinyText);

test('a byte-level tokenizer has a token for every byte', () => {
  const text = 'You é☃😀\n';
  assert.deepEqual(bytes.encode(text), [...Buffer.from(text)]);
  assert.equal(bytes.decode([...Buffer.from(text), 256, 260]), text);
  assert.equal(bytes.tokenText(256), '<|endoftext|>');
});

test('byte pairs are merged', () => {
  assert.deepEqual(tiny.encode('the ring'), tiny.encode('the').concat(tiny.encode(' ring')));
  assert.equal(tiny.encode('the').length, 1);
  assert.equal(tiny.decode(tiny.encode('the other thing\né')), 'the other thing\né');
});

test('a chat is written as its template says', () => {
  const tokens = tiny.encodeChat([{role: 'user', content: ' hello '}]);
  assert.deepEqual(tokens, [1, 4, ...tiny.encode('hello'), 6, 5]);
  const refused = {status: 400, code: 'invalid_value', param: 'messages'};
  assert.throws(() => tiny.encodeChat([{role: 'x', content: ''}]), refused);
  assert.equal(bytes.hasChatTemplate, false);
  assert.throws(() => bytes.encodeChat([]), ApiError);
});

test('a directory without a tokenizer is refused', () => {
  assert.throws(() => new TextModel('/no/such/directory'), /tokenizer.json: no such file/);
});

test('tokens that the config alone calls special have no text', () => {
  const folder = scratchFolder();
  const text = tokenizerText({names: ['a', 'b', 'c'], specials: [], merges: []});
  writeFileSync(join(folder, 'tokenizer.json'), text);
  const config = {additional_special_tokens: ['b', {content: 'c'}, 'not there']};
  writeFileSync(join(folder, 'tokenizer_config.json'), JSON.stringify(config));
  const model = new TextModel(folder);
  rmSync(folder, {recursive: true});
  const stream = model.textStream();
  assert.deepEqual([0, 1, 2, 0].map((token) => stream.push(token)), ['a', '', '', 'a']);
  assert.equal(model.tokenText(1), 'b');
});

test('a character of several tokens comes out with its last one', () => {
  for (const stream of [bytes.textStream(), new DecodedStream(bytes)]) {
    const pieces = [...Buffer.from('a☃b')].map((byte) => stream.push(byte));
    assert.deepEqual(pieces, ['a', '', '', '☃', 'b']);
    assert.equal(stream.push(0xe2), '');
    assert.equal(stream.flush(), '\ufffd');
    assert.equal(stream.flush(), '');
  }
});

test('pieces of any tokens are the text of all', () => {
  let state = 1;
  const random = (bound) => {
    state = (state * 48271) % 2147483647;
    return state % bound;
  };
  for (let round = 0; round < 300; ++round) {
    const tokens = Array.from({length: 40}, () => random(199));
    for (const stream of [tiny.textStream(), new DecodedStream(tiny)]) {
      const pieces = tokens.map((token) => stream.push(token));
      assert.equal(pieces.join('') + stream.flush(), tiny.decode(tokens));
    }
  }
});

test('text ends before a stop string, however it is cut', () => {
  for (let length = 1; length < 8; ++length) {
    const stops = new StopStrings(['aab', 'xyz!']);
    let out = '';
    const text = 'xyaaxyzaaab and more';
    for (let i = 0; i < text.length; i += length) out += stops.push(text.slice(i, i + length));
    assert.equal(out + stops.flush(), 'xyaaxyza');
    assert.equal(stops.stopped, true);
  }
});

test('text that only begins a stop string comes out in the end', () => {
  const stops = new StopStrings(['abc']);
  assert.equal(stops.push('ab'), '');
  assert.equal(stops.push('ab'), 'ab');
  assert.equal(stops.flush(), 'ab');
  assert.equal(stops.stopped, false);
});
