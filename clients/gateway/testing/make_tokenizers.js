// SPDX-License-Identifier: Apache-2.0
// Writes the tokenizers of the models that the repository has: node testing/make_tokenizers.js
//   examples/byte-llama/tokenizer.json           a token for every byte
//   clients/gateway/testing/llama-tiny/tokenizer.json  byte-level BPE of 199 tokens
import {mkdirSync, writeFileSync} from 'node:fs';

import {byteNames} from '../src/token_bytes.js';
import {tokenizerText} from './tokenizer_text.js';

const repository = new URL('../../../', import.meta.url);

const write = (path, tokenizer) =>
  writeFileSync(new URL(path, repository), tokenizerText(tokenizer));

function range(first, last) {
  return Array.from({length: last - first + 1}, (_, i) => first + i);
}

const bytes = byteNames();
const unused = range(1, 15).map((i) => `<|unused${i}|>`);
write('examples/byte-llama/tokenizer.json', {
  names: [...bytes, '<|endoftext|>', ...unused],
  specials: range(256, 271),
  merges: [],
});

const specials = ['<unk>', '<s>', '</s>'];
const roles = ['<|system|>', '<|user|>', '<|assistant|>', '<|end|>'];
// ASCII, and the bytes of two-byte and some longer characters.
const known = [0x0a, ...range(0x20, 0x7e), ...range(0x80, 0xbf), 0xc3, 0xe2, 0xf0];
const space = bytes[0x20];
const merges = [
  ['t', 'h'],
  ['th', 'e'],
  ['i', 'n'],
  ['e', 'r'],
  ['a', 'n'],
  ['r', 'e'],
  ['o', 'n'],
  [space, 't'],
  [space, 'the'],
  [space, 'a'],
  ['o', 'u'],
  ['in', 'g'],
  ['an', 'd'],
  ['e', 'n'],
  ['o', 'r'],
];
const names = [
  ...specials,
  ...roles,
  ...known.map((byte) => bytes[byte]),
  ...merges.map((pair) => pair.join('')),
];
const rest = range(names.length, 198).map((id) => `<|unused${id}|>`);
mkdirSync(new URL('llama-tiny/', import.meta.url), {recursive: true});
write('clients/gateway/testing/llama-tiny/tokenizer.json', {
  names: [...names, ...rest],
  specials: [0, 1, 2, 3, 4, 5, 6, ...range(names.length, 198)],
  merges,
  unknown: '<unk>',
});
