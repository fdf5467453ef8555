// SPDX-License-Identifier: Apache-2.0
// Answers in OpenAI's formats: whole objects, and the chunks of a stream.
import {randomBytes} from 'node:crypto';

const chatLogprobs = (entries) => (entries ? {content: entries, refusal: null} : null);

// The older format: columns.
function completionLogprobs(entries) {
  if (!entries) return null;
  const columns = {tokens: [], token_logprobs: [], top_logprobs: [], text_offset: []};
  let offset = 0;
  for (const {token, logprob, top_logprobs: top} of entries) {
    columns.tokens.push(token);
    columns.token_logprobs.push(logprob);
    columns.top_logprobs.push(Object.fromEntries(top.map((one) => [one.token, one.logprob])));
    columns.text_offset.push(offset);
    offset += token.length;
  }
  return columns;
}

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
    whole: ({logprobs, ...rest}) => ({...rest, logprobs: completionLogprobs(logprobs)}),
    piece: ({logprobs, isFirst, ...rest}) => ({...rest, logprobs: completionLogprobs(logprobs)}),
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

  // choices: {index, text, logprobs, finish_reason} each; logprobs undefined: not asked for.
  whole(choices, usage) {
    const {object, whole} = this.#format;
    return {...this.#common, object, choices: choices.map(whole), usage};
  }

  // A chunk with a piece of one choice: {index, text, logprobs, finish_reason, isFirst}.
  piece(choice) {
    const {chunk, piece} = this.#format;
    return {...this.#common, object: chunk, choices: [piece(choice)]};
  }

  // The chunk with the usage, behind all others.
  usage(usage) {
    return {...this.#common, object: this.#format.chunk, choices: [], usage};
  }
}
