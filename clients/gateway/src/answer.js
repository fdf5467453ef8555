// SPDX-License-Identifier: Apache-2.0
// Answers in OpenAI's formats: whole objects, and the chunks of a stream.
import {randomBytes} from 'node:crypto';

const chatLogprobs = (entries) => (entries ? {content: entries, refusal: null} : null);

// A token in the older format, which has no bytes beside it: parts of characters are told apart.
function nameOf({token, bytes}) {
  const raw = Buffer.from(bytes);
  const isText = Buffer.from(raw.toString()).equals(raw);
  return isText ? token : `bytes:${raw.toString('hex').replace(/../g, '\\x$&')}`;
}

// The older format: columns. offsets: of each choice's text so far, by its index.
function completionLogprobs(entries, index, offsets) {
  if (!entries) return null;
  const columns = {tokens: [], token_logprobs: [], top_logprobs: [], text_offset: []};
  let offset = offsets.get(index) ?? 0;
  for (const entry of entries) {
    const {token, logprob, top_logprobs: top} = entry;
    columns.tokens.push(nameOf(entry));
    columns.token_logprobs.push(logprob);
    columns.top_logprobs.push(Object.fromEntries(top.map((one) => [nameOf(one), one.logprob])));
    columns.text_offset.push(offset);
    offset += token.length;
  }
  offsets.set(index, offset);
  return columns;
}

const completionChoice = ({index, logprobs, ...rest}, offsets) => ({
  index,
  ...rest,
  logprobs: completionLogprobs(logprobs, index, offsets),
});

const formats = {
  chat: {
    prefix: 'chatcmpl-',
    object: 'chat.completion',
    chunk: 'chat.completion.chunk',
    whole: ({text, logprobs, ...rest}) => ({
      ...rest,
      message: {role: 'assistant', content: text, refusal: null},
      logprobs: chatLogprobs(logprobs),
    }),
    piece: ({text, logprobs, isFirst, ...rest}) => ({
      ...rest,
      delta: {...(isFirst && {role: 'assistant'}), ...((text || isFirst) && {content: text})},
      logprobs: chatLogprobs(logprobs),
    }),
  },
  completion: {
    prefix: 'cmpl-',
    object: 'text_completion',
    chunk: 'text_completion',
    whole: completionChoice,
    piece: ({isFirst, ...choice}, offsets) => completionChoice(choice, offsets),
  },
};

// One answer: its id and what all of its objects have in common.
export class Answer {
  #format;
  #common;
  #offsets = new Map();

  // kind: 'completion' or 'chat'.
  constructor(kind, model) {
    this.#format = formats[kind];
    const id = this.#format.prefix + randomBytes(12).toString('hex');
    this.#common = {id, created: Math.floor(Date.now() / 1000), model};
  }

  // choices: {index, text, logprobs, finish_reason} each; logprobs undefined: not asked for.
  whole(choices, usage) {
    const {object, whole} = this.#format;
    const shown = choices.map((choice) => whole(choice, this.#offsets));
    return {...this.#common, object, choices: shown, usage};
  }

  // A chunk with a piece of one choice: {index, text, logprobs, finish_reason, isFirst}.
  piece(choice) {
    const {chunk, piece} = this.#format;
    return {...this.#common, object: chunk, choices: [piece(choice, this.#offsets)]};
  }

  // The chunk with the usage, behind all others.
  usage(usage) {
    return {...this.#common, object: this.#format.chunk, choices: [], usage};
  }
}
