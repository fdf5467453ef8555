// SPDX-License-Identifier: Apache-2.0
// Small tokenizers of SentencePiece's kind, as the contents of a tokenizer.json: a token for every
// byte, and a few pieces in which a space is U+2581.
import {rmSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';

import {scratchFolder} from '../../node/testing/server.js';
import {TextModel} from '../src/text_model.js';

const specials = ['<unk>', '<s>', '</s>'];
const byteNames = Array.from(
  {length: 256},
  (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`,
);
const pieces = ['▁', 'h', 'i', 't', 'e', 'é', '▁t', 'hi', 'he', '▁the', '▁hi'];
const merges = ['▁ t', 'h i', 'h e', '▁t he', '▁ hi'];
const names = [...specials, ...byteNames, ...pieces];

// Ids by the names of tokens; 270 of them.
export const ids = Object.fromEntries(names.map((name, id) => [name, id]));
export const numTokens = names.length;

const toMeta = {type: 'Replace', pattern: {String: ' '}, content: '▁'};
const toSpace = {type: 'Replace', pattern: {String: '▁'}, content: ' '};
const fallback = [toSpace, {type: 'ByteFallback'}, {type: 'Fuse'}];
const strip = {type: 'Strip', content: ' ', start: 1, stop: 0};
const sequence = (kind, steps) => ({type: 'Sequence', [kind]: steps});
const begin = [
  {SpecialToken: {id: '<s>', type_id: 0}},
  {Sequence: {id: 'A', type_id: 0}},
];

const common = {
  added_tokens: specials.map((content, id) => ({id, content, special: true, normalized: false})),
  normalizer: null,
  pre_tokenizer: null,
  post_processor: {type: 'TemplateProcessing', single: begin, pair: begin, special_tokens: {}},
};
const bpe = {
  ...{type: 'BPE', vocab: ids, merges, unk_token: '<unk>', fuse_unk: true, byte_fallback: true},
};
// Longer pieces are likelier, bytes are never chosen by themselves.
const scoreOf = (name, id) => (id < 259 ? -100 : -10 / name.length);
const unigram = {
  ...{type: 'Unigram', unk_id: 0, byte_fallback: true},
  vocab: names.map((name, id) => [name, scoreOf(name, id)]),
};

export const tokenizers = {
  // As Llama 2's: a space before every text, taken off again.
  prepended: {
    ...common,
    normalizer: sequence('normalizers', [{type: 'Prepend', prepend: '▁'}, toMeta]),
    decoder: sequence('decoders', [...fallback, strip]),
    model: bpe,
  },
  // As Mistral's newer ones.
  metaspace: {
    ...common,
    pre_tokenizer: {type: 'Metaspace', replacement: '▁', prepend_scheme: 'first', split: false},
    decoder: sequence('decoders', [...fallback, strip]),
    model: bpe,
  },
  // As Gemma's: nothing is put before a text, and a few spaces are a token that was added.
  plain: {
    ...common,
    added_tokens: [
      ...common.added_tokens,
      {id: numTokens, content: '▁▁', special: false, normalized: false},
    ],
    normalizer: toMeta,
    decoder: sequence('decoders', fallback),
    model: bpe,
  },
  unigram: {
    ...common,
    pre_tokenizer: {type: 'Metaspace', replacement: '▁', prepend_scheme: 'always', split: true},
    decoder: sequence('decoders', [
      {type: 'ByteFallback'},
      {type: 'Metaspace', replacement: '▁', prepend_scheme: 'always', split: true},
    ]),
    model: unigram,
  },
};

// Writes a tokenizer into a model's directory.
export function writeTokenizer(folder, tokenizer) {
  writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify(tokenizer));
}

export function textModelOf(tokenizer) {
  const folder = scratchFolder();
  writeTokenizer(folder, tokenizer);
  const textModel = new TextModel(folder);
  rmSync(folder, {recursive: true});
  return textModel;
}
