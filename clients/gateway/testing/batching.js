// SPDX-License-Identifier: Apache-2.0
// A batcher on a step service that checks what it is asked for, and generations for it.
import assert from 'node:assert/strict';

import {Batcher} from '../src/batcher.js';
import {BlockPool} from '../src/block_pool.js';
import {Generation} from '../src/generation.js';
import {FakeService, expectedTokens} from './fake_service.js';

export const blockSize = 4;

export function makeGeneration(id, promptLength, maxNewTokens, more = {}) {
  const prompt = Array.from({length: promptLength}, (_, i) => id * 100 + i);
  const ends = [];
  const onEnd = (reason) => ends.push(reason);
  const onToken = () => false;
  const made = new Generation({prompt, maxNewTokens, sampling: {}, onToken, onEnd, ...more});
  return Object.assign(made, {id, ends});
}

// A batcher with its blocks, the service, and steps in flight.
export function setUp({numBlocks = 64, stepTokens = 16, maxRows = 8, ...more} = {}) {
  const pool = new BlockPool(undefined);
  pool.release(Array.from({length: numBlocks}, (_, i) => i + 1));
  const batcher = new Batcher({pool, blockSize, stepTokens, maxRows, ...more});
  return {pool, batcher, service: new FakeService(blockSize, more), flights: [], numBlocks};
}

// No step whose answer is not there has run a row that is copied.
function checkForks({add}, flights) {
  const inFlight = flights.flatMap(({answer}) => answer.rows.row);
  for (const {row, forkOf} of add) assert.ok(!inFlight.includes(forkOf), `${row} of ${forkOf}`);
}

export function planOne({batcher, service, flights}) {
  const planned = batcher.plan({flush: flights.length === 0});
  if (!planned) return false;
  checkForks(planned.request, flights);
  flights.push({flight: planned.flight, answer: service.step(planned.request)});
  return true;
}

export function applyOne({batcher, flights}) {
  const {flight, answer} = flights.shift();
  batcher.apply(flight, answer);
}

// Runs until nothing is left to do, with up to two steps in flight.
export function finish(all, maxSteps = 1000) {
  for (let i = 0; i < maxSteps; ++i) {
    if (all.flights.length < 2 && planOne(all)) continue;
    if (all.flights.length === 0) return;
    applyOne(all);
  }
  assert.fail(`not done after ${maxSteps} steps`);
}

export function checkAll({batcher, pool, service, numBlocks}, generations) {
  for (const {prompt, tokens, maxNewTokens, ends} of generations) {
    assert.deepEqual(tokens, expectedTokens(prompt, maxNewTokens));
    assert.deepEqual(ends, ['length']);
  }
  assert.equal(batcher.isEmpty, true);
  assert.equal(pool.size + batcher.numPrefixBlocks, numBlocks);
  batcher.forgetPrefixes();
  const all = pool.take(numBlocks);
  assert.equal(new Set(all).size, numBlocks);
  pool.release(all);
  assert.equal(service.rows.size, 0);
}
