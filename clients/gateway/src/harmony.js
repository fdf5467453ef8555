// SPDX-License-Identifier: Apache-2.0
// gpt-oss's harmony format: the tokens of an answer to what it says and what it thinks.
//
//   <|channel|>analysis<|message|>A greeting.<|end|>
//   <|start|>assistant<|channel|>final<|message|>Hello!<|return|>
//
// An answer is a row of messages. Behind <|start|> a header says who speaks, behind <|channel|> for
// what: `final` is for the user, `analysis` and `commentary` (calls of tools and what is said about
// them) are not. The begin of the first header stands in the prompt.
// Source: OpenAI, "OpenAI harmony response format".

const names = {
  start: '<|start|>',
  end: '<|end|>',
  message: '<|message|>',
  channel: '<|channel|>',
  constrain: '<|constrain|>',
  return: '<|return|>',
  call: '<|call|>',
};
const needed = ['start', 'end', 'message', 'channel'];
const thoughts = ['analysis', 'commentary'];

// What stands behind a prompt for an answer that is said at once, without thoughts.
export const FINAL_HEADER = '<|channel|>final<|message|>';

// Names by the ids of the format's tokens; undefined where a tokenizer does not have them.
// idOf(text): the id of a token, or undefined.
export function harmonyTokens(idOf) {
  const tokens = new Map();
  for (const [name, text] of Object.entries(names)) {
    const id = idOf(text);
    if (id === undefined && needed.includes(name)) return undefined;
    if (id !== undefined) tokens.set(id, name);
  }
  return tokens;
}

// One answer. What it gives are pieces, {part, text, isFrame}: `content` is what the answer says,
// `reasoning` what it thinks; isFrame: the token is none of either.
export class HarmonyReader {
  reasoningTokens = 0;
  isDone = false; // <|return|> or <|call|> has come
  #tokens;
  #openStream;
  #stream; // of the text since the last token of the format
  #where = 'outside'; // or 'header', 'message'
  #header = ''; // its text since the last token of the format
  #hasChannel = false; // the header is behind its <|channel|>
  #channel = '';
  #isBare = false; // nothing but text has come behind the prompt
  #begun = {content: false, reasoning: false}; // parts that have text
  #isFresh = false; // no text of the message has come

  // tokens: of harmonyTokens. openStream(): for the text of tokens, as of text_stream.js. prompt:
  // token ids; the answer goes on from its last <|start|>.
  constructor({tokens, openStream, prompt}) {
    this.#tokens = tokens;
    this.#openStream = openStream;
    this.#stream = openStream();
    const begin = prompt.findLastIndex((token) => tokens.get(token) === 'start');
    for (const token of begin < 0 ? [] : prompt.slice(begin)) this.push(token);
    this.#isBare = this.#where === 'header' && !this.#hasChannel;
    if (this.#isBare) this.#header = ''; // who speaks
    this.#begun = {content: false, reasoning: false};
    this.#isFresh = this.#where === 'message';
    this.reasoningTokens = 0;
  }

  // Text that is complete with this token; may be empty.
  push(token) {
    const name = this.#tokens.get(token);
    if (name === undefined) {
      if (this.#part === 'reasoning') ++this.reasoningTokens;
      return this.#take(this.#stream.push(token));
    }
    const rest = this.#take(this.#stream.flush());
    this.#stream = this.#openStream();
    this.#enter(name);
    this.#isBare = false;
    return {...rest, isFrame: true};
  }

  // What was held back. An answer that is nothing but text is no message, and said as it is; a
  // header that was cut off says nothing.
  flush() {
    const rest = this.#take(this.#stream.flush());
    return this.#isBare ? {...rest, text: this.#header} : rest;
  }

  get #part() {
    return this.#where === 'message' && thoughts.includes(this.#channel) ? 'reasoning' : 'content';
  }

  #enter(name) {
    if (name === 'message' || name === 'constrain') this.#endChannel();
    if (name === 'start') this.#channel = '';
    if (name === 'return' || name === 'call') this.isDone = true;
    this.#hasChannel = name === 'channel';
    this.#header = '';
    if (name === 'message') this.#where = 'message';
    else this.#where = ['end', 'return', 'call'].includes(name) ? 'outside' : 'header';
    if (this.#where === 'outside') this.#channel = '';
    this.#isFresh = this.#where === 'message';
  }

  // Behind the channel's name may stand whom the message is for: `commentary to=functions.f`.
  #endChannel() {
    if (this.#hasChannel) [this.#channel] = this.#header.trim().split(/\s/);
  }

  #take(text) {
    const part = this.#part;
    const isFrame = this.#where === 'header';
    if (isFrame) this.#header += text;
    if (isFrame || text === '') return {part, text: '', isFrame};
    const isNext = this.#isFresh && this.#begun[part]; // a line for each message
    this.#isFresh = false;
    this.#begun[part] = true;
    return {part, text: isNext ? `\n${text}` : text, isFrame};
  }
}
