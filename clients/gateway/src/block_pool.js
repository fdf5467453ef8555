// SPDX-License-Identifier: Apache-2.0
// BlockPool: KV blocks that the session holds and no row of ours uses. Taking is synchronous, so
// that a step is planned in one go; asking the server is not, and happens between plans.
import {ResourceExhaustedError, UnavailableError} from 'reprise-client';

const SPARE = 16; // blocks asked for at a time
const RETRY_MS = 20; // how long a server without blocks is not asked again

export class BlockPool {
  #session;
  #free = [];
  #askAgainAt = 0;

  // An answer of the server was lost: the session may hold blocks that nobody here knows of.
  mayLeak = false;

  constructor(session) {
    this.#session = session;
  }

  get size() {
    return this.#free.length;
  }

  // `count` blocks, or undefined.
  take(count) {
    return count <= this.#free.length ? this.#free.splice(this.#free.length - count) : undefined;
  }

  release(blocks) {
    this.#free.push(...blocks);
  }

  // Asks the server for what is missing of `count` blocks, and of `more` beside them; there may be
  // fewer afterwards. kept(): how many of `count` the caller can do without where the server
  // refuses.
  async reserve(count, kept, more = 0) {
    const missing = count - this.#free.length;
    if (missing + more <= 0 || performance.now() < this.#askAgainAt) return;
    const all = Math.max(SPARE, missing + more);
    const half = missing + Math.floor(more / 2);
    for (const wanted of new Set([all, half, missing, missing - kept()])) {
      if (wanted <= 0) break;
      try {
        this.#free.push(...(await this.#session.allocate(wanted)));
        return;
      } catch (error) {
        if (error instanceof UnavailableError) {
          this.mayLeak = true;
          break;
        }
        if (!(error instanceof ResourceExhaustedError)) throw error;
      }
    }
    if (missing > 0) this.#askAgainAt = performance.now() + RETRY_MS;
  }

  // Gives everything back. No resident row's table may name one of the blocks.
  async giveBack() {
    const blocks = this.#free;
    this.#free = [];
    if (blocks.length === 0) return;
    try {
      await this.#session.free(blocks);
    } catch (error) {
      if (!(error instanceof UnavailableError)) throw error;
      this.mayLeak = true;
    }
  }
}
