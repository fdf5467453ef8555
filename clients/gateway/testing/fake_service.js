// SPDX-License-Identifier: Apache-2.0
// The step service as the batcher sees it: rows, tables and lengths are checked as the server does,
// and a row's tokens depend alone on what is in its blocks, so that a row that is computed again,
// or over blocks that others have filled, can be compared.
import {allowedTokens} from './json_text.js';

// The token after a context. mask: tokens that may come, or none: all.
function tokenAfter(context, mask) {
  const token = context.reduce((hash, token) => (hash * 31 + token + 1) % 9973, 7);
  if (!mask) return token;
  const allowed = allowedTokens(mask);
  return allowed[token % allowed.length];
}

function check(condition, what) {
  if (!condition) throw new Error(`the batcher asked for what the server refuses: ${what}`);
}

export class FakeService {
  rows = new Map(); // number to {blocks, length, last, mask, state}, state the tokens it is of
  contents = new Map(); // block to tokens
  tokensRun = 0;
  copiesRun = 0;
  maxStepTokens = 0; // seen

  // carriesState: rows do, beside their KV, and so begin without context or as copies of others.
  constructor(blockSize, {carriesState = false} = {}) {
    this.blockSize = blockSize;
    this.carriesState = carriesState;
  }

  // The answer to a request, as reprise-client gives it.
  step(request) {
    for (const row of request.drop) check(this.rows.delete(row), `drop of row ${row}`);
    this.#copy(request.copyBlocks ?? []);
    const written = new Map([...this.contents].map(([block, tokens]) => [block, tokens.length]));
    for (const {row, blocks, contextLength, sampling, history, forkOf} of request.add) {
      check(!this.rows.has(row), `add of row ${row}`);
      const state = this.#stateOf(row, contextLength, forkOf);
      const mask = sampling?.allowedTokens;
      for (let at = 0; at < contextLength; ++at) {
        const place = at % this.blockSize;
        const known = written.get(blocks[Math.floor(at / this.blockSize)]) ?? 0;
        check(place < known, `context ${contextLength} of row ${row}, not written at ${at}`);
      }
      check(!history || history.length === contextLength, `history of row ${row}`);
      const added = {blocks: [...blocks], length: contextLength, last: undefined, mask, state};
      this.rows.set(row, added);
    }
    for (const {row, blocks} of request.append) this.#row(row).blocks.push(...blocks);
    for (const {row, allowedTokens: mask} of request.masks) {
      check(!request.add.some((added) => added.row === row), `mask of row ${row}, just added`);
      this.#row(row).mask = mask;
    }
    const ran = [];
    let tokens = 0;
    for (const chunk of request.chunks) {
      tokens += chunk.tokens.length;
      ran.push(this.#run(chunk.row, chunk.tokens, chunk.sample));
    }
    for (const row of request.continueRows) {
      const {last} = this.#row(row);
      check(last !== undefined, `continue of row ${row}, which has not sampled`);
      ++tokens;
      ran.push(this.#run(row, [last], true));
    }
    this.maxStepTokens = Math.max(this.maxStepTokens, tokens);
    this.tokensRun += tokens;
    return {rowErrors: [], rows: this.#columns(ran)};
  }

  // What a row that is added begins with.
  #stateOf(row, contextLength, forkOf) {
    if (forkOf === undefined) {
      check(!this.carriesState || contextLength === 0, `context of row ${row} without its state`);
      return [];
    }
    const {length, state} = this.#row(forkOf);
    check(this.carriesState, `row ${row} as a fork, where rows carry no state`);
    check(length === contextLength, `context ${contextLength} of row ${row}, not ${length}`);
    return [...state];
  }

  #copy(pairs) {
    this.copiesRun += pairs.length / 2;
    const to = pairs.filter((_, i) => i % 2 === 1);
    check(new Set(to).size === to.length, `copies to ${to}`);
    for (const block of to) {
      const inUse = [...this.rows.values()].some(({blocks}) => blocks.includes(block));
      const isCopied = pairs.some((other, i) => i % 2 === 0 && other === block);
      check(!inUse && !isCopied, `copy to ${block}`);
    }
    for (let i = 0; i < pairs.length; i += 2) {
      check(this.contents.has(pairs[i]), `copy of block ${pairs[i]}, in which nothing is written`);
      this.contents.set(pairs[i + 1], [...this.contents.get(pairs[i])]);
    }
  }

  #row(row) {
    check(this.rows.has(row), `row ${row}, which is not resident`);
    return this.rows.get(row);
  }

  #run(row, tokens, sample) {
    const state = this.#row(row);
    for (const token of tokens) this.#write(row, state, token);
    state.last = sample ? tokenAfter(this.#contextOf(state), state.mask) : undefined;
    return {row, token: state.last, length: state.length};
  }

  #write(row, state, token) {
    const {blocks, length} = state;
    const room = blocks.length * this.blockSize;
    check(length < room, `${length + 1} tokens in room for ${room}`);
    const block = blocks[Math.floor(length / this.blockSize)];
    for (const [other, {blocks: table}] of this.rows) {
      check(
        other === row || !table.includes(block),
        `row ${row} writes to a block of row ${other}`,
      );
    }
    const place = length % this.blockSize;
    const before = this.contents.get(block) ?? [];
    this.contents.set(block, [...before.slice(0, place), token]);
    state.state.push(token);
    ++state.length;
  }

  #contextOf({blocks, length, state}) {
    const tokens = blocks.flatMap((block) => this.contents.get(block) ?? []);
    const context = tokens.slice(0, length);
    check(!this.carriesState || String(state) === String(context), 'state of another context');
    return context;
  }

  #columns(ran) {
    return {
      row: ran.map(({row}) => row),
      status: ran.map(() => 'ROW_STATUS_RAN'),
      sampled: ran.map(({token}) => token !== undefined),
      token: ran.map(({token}) => token ?? 0),
      logprob: ran.map(() => 0),
      contextLength: ran.map(({length}) => length),
      finishReason: [],
      rank: [],
      numTop: [],
      topToken: [],
      topLogprob: [],
    };
  }
}

// What a prompt alone on a server is answered.
export function expectedTokens(prompt, count) {
  const context = [...prompt];
  while (context.length < prompt.length + count) context.push(tokenAfter(context));
  return context.slice(prompt.length);
}
