// SPDX-License-Identifier: Apache-2.0
// A small tokenizer and chat template in gpt-oss's format, for its fixture of 57 tokens.
import {rmSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';

import {scratchFolder} from '../../node/testing/server.js';
import {TextModel} from '../src/text_model.js';
import {byteNames} from '../src/token_bytes.js';
import {tokenizerText} from './tokenizer_text.js';

const frame = ['return', 'start', 'end', 'message', 'channel', 'call', 'constrain'];
const specials = ['<unk>', '<|startoftext|>', ...frame.map((name) => `<|${name}|>`)];
const bytes = byteNames();
// Letters, a few signs, and the two bytes of é.
const known = [...Buffer.from('abcdefghijklmnopqrstuvwxyz .!=_{}":é')].map((byte) => bytes[byte]);
const words = ['analysis', 'final', 'commentary'];
const names = [...specials, ...known, ...words];
while (names.length < 57) names.push(`<|unused${names.length}|>`);

// Ids by names.
export const ids = Object.fromEntries(names.map((name, id) => [name, id]));

export const template = `
{{- '<|start|>system<|message|>thinking: ' + (reasoning_effort or 'medium') + '<|end|>' }}
{%- for message in messages %}
    {{- '<|start|>' + message.role }}
    {{- '<|channel|>final' if message.role == 'assistant' else '' }}
    {{- '<|message|>' + message.content + '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant' }}
{%- endif %}`;

// tokens: names, unless those of the format.
export function writeText(folder, {chat = template, tokens = names} = {}) {
  const special = tokens.flatMap((name, id) => (/^<.+>$/.test(name) ? [id] : []));
  const text = tokenizerText({names: tokens, specials: special, merges: [], unknown: '<unk>'});
  writeFileSync(join(folder, 'tokenizer.json'), text);
  writeFileSync(join(folder, 'chat_template.jinja'), chat);
}

// modelType: of config.json; undefined: there is none.
export function textModelOf({modelType, ...more} = {}) {
  const folder = scratchFolder();
  writeText(folder, more);
  if (modelType) {
    writeFileSync(join(folder, 'config.json'), JSON.stringify({model_type: modelType}));
  }
  const textModel = new TextModel(folder);
  rmSync(folder, {recursive: true});
  return textModel;
}

// Names without those of the format.
export const otherNames = names.map((name, id) =>
  frame.includes(name.slice(2, -2)) ? `<|other${id}|>` : name,
);
