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
  #reader;
  #stops;
  #matcher;
  #numLogprobs;
  #logprobs = []; // of tokens whose text is not out yet
  #length = 0; // of the content, that which is held back included
  #onPiece;

  // onPiece({text, reasoning, logprobs}): called with every piece of text, and once without any at
  // the end, when finishReason is set. reasoning: text that is thought and not said. logprobs: of
  // the tokens of what is said since the piece before, each with its offset in the text. matcher:
  // of a grammar that the text keeps to, or undefined. group: Generation's.
  constructor({index, prompt, request, textModel, matcher, group, onPiece}) {
    this.index = index;
    this.#textModel = textModel;
    this.#reader = textModel.reader(request.kind, prompt);
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

  // Tokens sampled for what is thought; undefined where the model does not think.
  get reasoningTokens() {
    return this.#reader.reasoningTokens;
  }

  // Stop strings are looked for in what is said alone.
  #take(row) {
    const {part, text, isFrame} = this.#reader.push(row.token);
    if (part === 'reasoning') {
      this.#give({reasoning: text});
    } else {
      const isAsked = this.#numLogprobs !== undefined && !isFrame;
      if (isAsked) this.#logprobs.push(this.#describe(row, text));
      this.#length += text.length;
      this.#give({text: this.#stops.push(text)});
    }
    if (this.#matcher) this.#match(row.token);
    return this.#stops.stopped || this.#reader.isDone || (this.#matcher?.isDone ?? false);
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
      const {part, text} = this.#reader.flush();
      if (part === 'reasoning') this.#give({reasoning: text});
      const rest = this.#stops.push(part === 'content' ? text : '');
      this.#give({text: rest + this.#stops.flush()});
    }
    this.error = error;
    this.finishReason = this.#stops.stopped ? 'stop' : reason;
    this.#give({}, true);
  }

  #give({text = '', reasoning = ''}, last = false) {
    if (text === '' && reasoning === '' && !last) return;
    const logprobs = this.#logprobs;
    this.#logprobs = [];
    this.#onPiece({text, reasoning, logprobs});
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
