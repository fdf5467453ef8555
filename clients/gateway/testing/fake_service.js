// SPDX-License-Identifier: Apache-2.0
// The step service as the batcher sees it: rows, tables and lengths are checked as the server does,
// and a row's tokens depend on its context alone, so that a row that is computed again can be
// compared.
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
  rows = new Map(); // number to {blocks, context, last}
  maxStepTokens = 0; // seen

  constructor(blockSize) {
    this.blockSize = blockSize;
  }

  // The answer to a request, as reprise-client gives it.
  step(request) {
    for (const row of request.drop) check(this.rows.delete(row), `drop of row ${row}`);
    for (const {row, blocks, sampling} of request.add) {
      check(!this.rows.has(row), `add of row ${row}`);
      const mask = sampling?.allowedTokens;
      this.rows.set(row, {blocks: [...blocks], context: [], last: undefined, mask});
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
    this.#checkBlocks();
    return {rowErrors: [], rows: this.#columns(ran)};
  }

  #row(row) {
    check(this.rows.has(row), `row ${row}, which is not resident`);
    return this.rows.get(row);
  }

  #run(row, tokens, sample) {
    const state = this.#row(row);
    state.context.push(...tokens);
    const room = state.blocks.length * this.blockSize;
    check(state.context.length <= room, `${state.context.length} tokens in room for ${room}`);
    state.last = sample ? tokenAfter(state.context, state.mask) : undefined;
    return {row, token: state.last, length: state.context.length};
  }

  #checkBlocks() {
    const held = [...this.rows.values()].flatMap(({blocks}) => blocks);
    check(new Set(held).size === held.length, 'a block in two tables');
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
