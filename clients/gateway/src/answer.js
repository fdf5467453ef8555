// SPDX-License-Identifier: Apache-2.0
// Answers in OpenAI's formats: whole objects, and the chunks of a stream.
import {randomBytes} from 'node:crypto';

function chatLogprobs(entries) {
  if (!entries) return null;
  return {content: entries.map(({offset, ...entry}) => entry), refusal: null};
}

// A token in the older format, which has no bytes beside it: parts of characters are told apart.
function nameOf({token, bytes}) {
  const raw = Buffer.from(bytes);
  const isText = Buffer.from(raw.toString()).equals(raw);
  return isText ? token : `bytes:${raw.toString('hex').replace(/../g, '\\x$&')}`;
}

// The older format: columns.
function completionLogprobs(entries) {
  if (!entries) return null;
  const columns = {tokens: [], token_logprobs: [], top_logprobs: [], text_offset: []};
  for (const entry of entries) {
    const {logprob, top_logprobs: top, offset} = entry;
    columns.tokens.push(nameOf(entry));
    columns.token_logprobs.push(logprob);
    columns.top_logprobs.push(Object.fromEntries(top.map((one) => [nameOf(one), one.logprob])));
    columns.text_offset.push(offset);
  }
  return columns;
}

const completionChoice = ({logprobs, ...rest}) => ({
  ...rest,
  logprobs: completionLogprobs(logprobs),
});

// What a model thought, named as other servers of OpenAI's API do.
const thoughts = (reasoning) => (reasoning === undefined ? {} : {reasoning_content: reasoning});

const formats = {
  chat: {
    prefix: 'chatcmpl-',
    object: 'chat.completion',
    chunk: 'chat.completion.chunk',
    whole: ({text, reasoning, logprobs, ...rest}) => ({
      ...rest,
      message: {role: 'assistant', content: text, refusal: null, ...thoughts(reasoning)},
      logprobs: chatLogprobs(logprobs),
    }),
    piece: ({text, reasoning, logprobs, isFirst, ...rest}) => ({
      ...rest,
      delta: {
        ...(isFirst && {role: 'assistant'}),
        ...((text || isFirst) && {content: text}),
        ...thoughts(reasoning || undefined),
      },
      logprobs: chatLogprobs(logprobs),
    }),
  },
  completion: {
    prefix: 'cmpl-',
    object: 'text_completion',
    chunk: 'text_completion',
    whole: completionChoice,
    piece: ({isFirst, reasoning, ...choice}) => completionChoice(choice),
  },
};

// One answer: its id and what all of its objects have in common.
export class Answer {
  #format;
  #common;

  // kind: 'completion' or 'chat'.
  constructor(kind, model) {
    this.#format = formats[kind];
    const id = this.#format.prefix + randomBytes(12).toString('hex');
    this.#common = {id, created: Math.floor(Date.now() / 1000), model};
  }

  // choices: {index, text, reasoning, logprobs, finish_reason} each; logprobs undefined: not asked
  // for; reasoning undefined: the model does not think.
  whole(choices, usage) {
    const {object, whole} = this.#format;
    return {...this.#common, object, choices: choices.map(whole), usage};
  }

  // A chunk with a piece of one choice: {index, text, reasoning, logprobs, finish_reason,
  // isFirst}.
  piece(choice) {
    const {chunk, piece} = this.#format;
    return {...this.#common, object: chunk, choices: [piece(choice)]};
  }

  // The chunk with the usage, behind all others.
  usage(usage) {
    return {...this.#common, object: this.#format.chunk, choices: [], usage};
  }
}
