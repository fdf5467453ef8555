// SPDX-License-Identifier: Apache-2.0
// Choice: one answer to a prompt, from tokens to text.
import {ApiError} from './api_error.js';
import {Generation} from './generation.js';
import {tooAmbiguous} from './json_format.js';
import {StopStrings} from './text_stream.js';

export class Choice {
  finishReason = null;
  error; // ApiError, where finishReason is 'error'
  #textModel;
  #text;
  #stops;
  #matcher;
  #numLogprobs;
  #logprobs = []; // of tokens whose text is not out yet
  #length = 0; // of the text, that which is held back included
  #onPiece;

  // onPiece({text, logprobs}): called with every piece of text, and once without any at the end,
  // when finishReason is set. logprobs: of the tokens since the piece before, each with its offset
  // in the text. matcher: of a grammar that the text keeps to, or undefined. group: Generation's.
  constructor({index, prompt, request, textModel, matcher, group, onPiece}) {
    this.index = index;
    this.#textModel = textModel;
    // A completion goes on from its prompt; an answer in a chat is a text of its own.
    this.#text = textModel.textStream(request.kind === 'completion' ? prompt : []);
    this.#stops = new StopStrings(request.stops);
    this.#matcher = matcher;
    this.#numLogprobs = request.numLogprobs;
    this.#onPiece = onPiece;
    this.generation = new Generation({
      prompt,
      maxNewTokens: request.maxNewTokens,
      sampling: {...request.sampling, seed: request.seed + index},
      matcher,
      traceId: request.traceId,
      group,
      onToken: (row) => this.#take(row),
      onEnd: (reason, error) => this.#end(reason, error),
    });
  }

  #take(row) {
    const text = this.#text.push(row.token);
    if (this.#numLogprobs !== undefined) this.#logprobs.push(this.#describe(row, text));
    this.#length += text.length;
    this.#give(this.#stops.push(text));
    if (this.#matcher) this.#match(row.token);
    return this.#stops.stopped || (this.#matcher?.isDone ?? false);
  }

  // What may come next; ends the answer where that is not known.
  #match(token) {
    try {
      if (this.#matcher.advance(token)) return;
      const why = `got token ${token}, which its mask does not allow`;
      this.generation.end('error', new ApiError(500, `the step service: ${why}`));
    } catch (error) {
      this.generation.end('error', tooAmbiguous(error));
    }
  }

  #end(reason, error) {
    if (!this.#stops.stopped) {
      const rest = this.#stops.push(this.#text.flush());
      this.#give(rest + this.#stops.flush());
    }
    this.error = error;
    this.finishReason = this.#stops.stopped ? 'stop' : reason;
    this.#give('', true);
  }

  #give(text, last = false) {
    if (text === '' && !last) return;
    const logprobs = this.#logprobs;
    this.#logprobs = [];
    this.#onPiece({text, logprobs});
  }

  // added: to the text with the token. Bytes that never became a character may stand in it before
  // the token's own.
  #describe({token, logprob, top}, added) {
    const one = (id, value) => {
      const [text, bytes] = [this.#textModel.tokenText(id), this.#textModel.bytesOf(id)];
      return {token: text, logprob: value, bytes};
    };
    const likeliest = top.slice(0, this.#numLogprobs);
    const sampled = one(token, logprob);
    const isOwn = added.endsWith(sampled.token);
    return {
      ...sampled,
      offset: this.#length + (isOwn ? added.length - sampled.token.length : 0),
      top_logprobs: likeliest.map((other) => one(other.token, other.logprob)),
    };
  }
}
