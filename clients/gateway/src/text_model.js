// SPDX-License-Identifier: Apache-2.0
// Text of a model: tokenizer and chat template of its Hugging Face directory.
//
//   tokenizer.json         the tokenizer
//   tokenizer_config.json  special tokens and, in most directories, chat_template
//   chat_template.jinja    the template of newer directories; goes before the other
//   config.json            the architecture
import {readFileSync} from 'node:fs';
import {join} from 'node:path';

import {Template} from '@huggingface/jinja';
import {Tokenizer} from '@huggingface/tokenizers';

import {ApiError} from './api_error.js';
import {FINAL_HEADER, HarmonyReader, harmonyTokens} from './harmony.js';
import {ByteStream, DecodedStream, PlainReader} from './text_stream.js';
import {leadingSpacesOf, tokenBytesOf} from './token_bytes.js';

function readText(directory, name) {
  try {
    return readFileSync(join(directory, name), 'utf8');
  } catch (error) {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  }
}

function readJson(directory, name) {
  const text = readText(directory, name);
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${join(directory, name)}: ${error.message}`);
  }
}

// How SentencePiece names a single byte.
const nameOfByte = (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`;

// A special token is text, or an object that holds it.
const textOf = (token) => token?.content ?? token ?? undefined;

function templateOf(directory, config) {
  const own = readText(directory, 'chat_template.jinja');
  if (own !== undefined) return own;
  const named = config.chat_template;
  return Array.isArray(named) ? named.find(({name}) => name === 'default')?.template : named;
}

export class TextModel {
  #tokenizer;
  #tokenizerJson;
  #bytes; // {known}, or {error} where the kind of vocabulary is not known
  #template;
  #specials;
  #moreSpecials; // that tokenizer_config.json alone calls special
  #harmony; // tokens of gpt-oss's format, where answers have it

  // Throws Error where tokenizer.json is missing or a file is broken.
  constructor(directory) {
    const tokenizer = readJson(directory, 'tokenizer.json');
    if (!tokenizer) throw new Error(`${join(directory, 'tokenizer.json')}: no such file`);
    const config = readJson(directory, 'tokenizer_config.json') ?? {};
    this.#tokenizer = new Tokenizer(tokenizer, config);
    this.#tokenizerJson = tokenizer;
    const template = templateOf(directory, config);
    if (template !== undefined) this.#template = new Template(template);
    this.#specials = {};
    for (const name of ['bos_token', 'eos_token', 'pad_token', 'unk_token']) {
      this.#specials[name] = textOf(config[name]);
    }
    const more = (config.additional_special_tokens ?? []).map(textOf);
    this.#moreSpecials = more.filter((token) => this.#tokenizer.token_to_id(token) !== undefined);
    const isGptOss = readJson(directory, 'config.json')?.model_type === 'gpt_oss';
    if (isGptOss || template?.includes('<|channel|>')) {
      this.#harmony = harmonyTokens((text) => this.#tokenizer.token_to_id(text));
    }
  }

  get hasChatTemplate() {
    return this.#template !== undefined;
  }

  // Answers in a chat are in gpt-oss's format: they think before they speak.
  get thinks() {
    return this.#harmony !== undefined;
  }

  // As tokenBytesOf.
  tokenBytes() {
    this.#readBytes();
    if (this.#bytes.error) throw this.#bytes.error;
    return this.#bytes.known;
  }

  #readBytes() {
    if (this.#bytes) return;
    try {
      const known = tokenBytesOf(this.#tokenizerJson);
      for (const token of this.#moreSpecials) known[this.#tokenizer.token_to_id(token)] = undefined;
      this.#bytes = {known};
    } catch (error) {
      this.#bytes = {error};
    }
  }

  // Token ids of a text, with those that the tokenizer puts before or behind one.
  encode(text) {
    return this.#encode(text, true);
  }

  #encode(text, withSpecials) {
    const {ids, tokens} = this.#tokenizer.encode(text, {add_special_tokens: withSpecials});
    const {model} = this.#tokenizerJson;
    const inBytes = model.type === 'Unigram' && model.byte_fallback;
    return inBytes ? ids.flatMap((id, i) => this.#fallBack(id, tokens[i])) : ids;
  }

  // The tokenizers package has no byte fallback of Unigram: text that no token has is named as it
  // stands, with the id of the unknown token.
  #fallBack(id, text) {
    const {unk_id: unknown, vocab} = this.#tokenizerJson.model;
    if (id !== unknown || text === vocab[unknown][0]) return [id];
    const names = [...Buffer.from(text)].map(nameOfByte);
    const bytes = names.map((name) => this.#tokenizer.token_to_id(name));
    return bytes.includes(undefined) ? [id] : bytes;
  }

  // Token ids of a chat, up to where the assistant's answer begins. effort: of thinking, for the
  // template; undefined: its own. saysAtOnce: an answer that could think does not. Throws ApiError
  // for messages that the template refuses.
  encodeChat(messages, {effort, saysAtOnce = false} = {}) {
    if (!this.#template) {
      throw new ApiError(400, 'messages: the model has no chat template, use /v1/completions', {
        param: 'messages',
        code: 'no_chat_template',
      });
    }
    let text;
    try {
      const asked = effort === undefined ? {} : {reasoning_effort: effort};
      const values = {...this.#specials, ...asked, messages, add_generation_prompt: true};
      text = this.#template.render(values);
    } catch (error) {
      throw new ApiError(400, `messages: the model's chat template: ${error.message}`, {
        param: 'messages',
        code: 'invalid_value',
      });
    }
    if (this.thinks && saysAtOnce) text += FINAL_HEADER;
    // The template has written the special tokens itself.
    return this.#encode(text, false);
  }

  // For the pieces of an answer to a prompt, whose tokens come one by one. kind: 'completion',
  // which goes on from its prompt, or 'chat', in which an answer is a text of its own.
  reader(kind, prompt) {
    if (kind === 'completion') return new PlainReader(this.textStream(prompt));
    if (!this.thinks) return new PlainReader(this.textStream());
    const openStream = () => this.textStream();
    return new HarmonyReader({tokens: this.#harmony, openStream, prompt});
  }

  // For the text of tokens that come one by one. before: tokens that it goes on from; without any
  // the text stands alone, and has no space of the tokenizer's own at its begin.
  textStream(before = []) {
    this.#readBytes();
    if (this.#bytes.error) return new DecodedStream(this);
    const bytesOf = (token) => this.#knownBytes(token);
    const goesOn = before.some((token) => bytesOf(token)?.length > 0);
    return new ByteStream(bytesOf, goesOn ? 0 : leadingSpacesOf(this.#tokenizerJson));
  }

  // Text of tokens; special ones have none.
  decode(tokens) {
    if (tokens.length === 0) return '';
    return this.#tokenizer.decode(tokens, {
      skip_special_tokens: true,
      clean_up_tokenization_spaces: false,
    });
  }

  // Bytes of one token: those of its text where it is a special one, or the kind of vocabulary is
  // not known.
  bytesOf(token) {
    return [...(this.#knownBytes(token) ?? Buffer.from(this.tokenText(token)))];
  }

  #knownBytes(token) {
    this.#readBytes();
    return this.#bytes.known?.[token];
  }

  // One token as it is written, special ones and spaces at its begin too.
  tokenText(token) {
    const known = this.#knownBytes(token);
    const text = known?.toString();
    if (known && Buffer.from(text).equals(known)) return text;
    return this.#tokenizer.decode([token], {clean_up_tokenization_spaces: false});
  }
}
