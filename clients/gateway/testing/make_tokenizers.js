// SPDX-License-Identifier: Apache-2.0
// Writes the tokenizers of the models that the repository has: node testing/make_tokenizers.js
//   examples/byte-llama/tokenizer.json           a token for every byte
//   clients/gateway/testing/llama-tiny/tokenizer.json  byte-level BPE of 199 tokens
import {mkdirSync, writeFileSync} from 'node:fs';

import {byteNames} from '../src/token_bytes.js';

const repository = new URL('../../../', import.meta.url);

// Lines of at most 100 columns.
function wrap(items, indent) {
  const lines = [];
  for (const item of items.map((text, i) => (i + 1 < items.length ? `${text},` : text))) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + item.length < 99) lines[lines.length - 1] += ` ${item}`;
    else lines.push(indent + item);
  }
  return lines.join('\n');
}

// names: of tokens, by id. specials: their ids.
function write(path, {names, specials, merges, unknown}) {
  const added = specials.map((id) => {
    const flags = {single_word: false, lstrip: false, rstrip: false, normalized: false};
    const fields = Object.entries({id, content: names[id], ...flags, special: true});
    const written = fields.map(([name, value]) => `"${name}": ${JSON.stringify(value)}`);
    return `    {\n${wrap(written, '      ')}\n    }`;
  });
  const vocabulary = names.map((name, id) => `${JSON.stringify(name)}: ${id}`);
  const level = `{
    "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false
  }`;
  const text = `{
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [
${added.join(',\n')}
  ],
  "normalizer": null,
  "pre_tokenizer": ${level},
  "post_processor": null,
  "decoder": ${level},
  "model": {
    "type": "BPE",
    "dropout": null,
    "unk_token": ${JSON.stringify(unknown ?? null)},
    "continuing_subword_prefix": null,
    "end_of_word_suffix": null,
    "fuse_unk": false,
    "byte_fallback": false,
    "vocab": {
${wrap(vocabulary, '      ')}
    },
    "merges": [
${wrap(merges.map((pair) => JSON.stringify(pair)), '      ')}
    ]
  }
}
`;
  writeFileSync(new URL(path, repository), text);
}

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
