// SPDX-License-Identifier: Apache-2.0
// Generation: one row to be generated, as the batcher sees it, from its prompt to its end.

export class Generation {
  id = 0; // order of arrival
  tokens = []; // sampled so far
  ended = false;

  // The batcher's: what is planned, which is ahead of what is known.
  row = 0; // 0: not resident
  blocks = [];
  prefix = []; // of the cache, those that its first blocks are
  numShared = 0; // of them, how many were there before
  cachedTokens = 0; // of the prompt, that were not computed when it was admitted first
  blocksSent = 0; // of them, how many the row's table has
  input = 0; // tokens that the row has to run before it samples
  context = 0; // tokens in the row's KV
  maskSent; // of the matcher, what the row has
  samples = 0; // tokens sampled, in steps that are answered or in flight
  inFlight = 0; // steps that name the row
  preempted = false;
  forkAt = 0; // tokens of context with which others begin as copies of the row; 0: none do

  // prompt: token ids, at least one. maxNewTokens: at least 1. sampling: of the wire contract.
  // matcher: has `mask`, the tokens that may come next, which changes with each token; may be
  // undefined. traceId: 16 bytes, or undefined. group: the same object for generations of the same
  // prompt that came together; may be undefined.
  // onToken(row): takes a RowResult with a token; returns true to end the row there. onEnd(reason,
  // error): called once; reason is 'stop', 'length' or 'error'. Neither may throw.
  constructor({prompt, maxNewTokens, sampling, matcher, traceId, group, onToken, onEnd}) {
    this.prompt = prompt;
    this.maxNewTokens = maxNewTokens;
    this.sampling = sampling;
    this.matcher = matcher;
    this.traceId = traceId;
    this.group = group;
    this.onToken = onToken;
    this.onEnd = onEnd;
  }

  // The last token is never written to the KV cache.
  get finalContext() {
    return this.prompt.length + this.maxNewTokens - 1;
  }

  // Has sampled and has tokens left to sample, as far as is known. With a grammar, what may come
  // next is known only when the token before is.
  get continues() {
    const {ended, preempted, samples, context, input, matcher, inFlight} = this;
    if (ended || preempted || (matcher && inFlight > 0)) return false;
    return context >= input && samples > 0 && samples < this.maxNewTokens;
  }

  inputToken(position) {
    const length = this.prompt.length;
    return position < length ? this.prompt[position] : this.tokens[position - length];
  }

  get hasPenalties() {
    const {repetitionPenalty = 1, presencePenalty = 0, frequencyPenalty = 0} = this.sampling;
    return repetitionPenalty !== 1 || presencePenalty !== 0 || frequencyPenalty !== 0;
  }

  end(reason, error) {
    if (this.ended) return;
    this.ended = true;
    this.onEnd(reason, error);
  }
}
