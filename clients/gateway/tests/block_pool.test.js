// SPDX-License-Identifier: Apache-2.0
// Blocks that are asked for ahead of their use, from a server that has few.
import assert from 'node:assert/strict';
import {test} from 'node:test';

import {ResourceExhaustedError} from 'reprise-client';

import {BlockPool} from '../src/block_pool.js';

// A session of a server with `free` blocks; asked: how many each call wanted.
function sessionOf(free) {
  const asked = [];
  let left = free;
  return {
    asked,
    async allocate(count) {
      asked.push(count);
      if (count > left) throw new ResourceExhaustedError('for the test');
      left -= count;
      return Array.from({length: count}, (_, i) => left + i);
    },
  };
}

const none = () => 0;

test('what is wanted beside comes with it, else half of it, else what is wanted alone', async () => {
  for (const [free, asked, size] of [
    [100, [50], 50],
    [30, [50, 30], 30],
    [12, [50, 30, 10], 10],
    [9, [50, 30, 10], 0],
  ]) {
    const session = sessionOf(free);
    const pool = new BlockPool(session);
    await pool.reserve(10, none, 40);
    assert.deepEqual(session.asked, asked);
    assert.equal(pool.size, size);
  }
});

test('a refusal of what is wanted beside keeps nobody from asking', async () => {
  const session = sessionOf(3);
  const pool = new BlockPool(session);
  pool.release([91, 92]);
  await pool.reserve(2, none, 20);
  assert.deepEqual(session.asked, [20, 10]);
  await pool.reserve(3, none);
  await pool.reserve(3, none);
  assert.deepEqual(session.asked, [20, 10, 16, 1]);
  assert.equal(pool.size, 3);
});

test('a refusal of what is wanted is not asked again at once', async () => {
  const session = sessionOf(0);
  const pool = new BlockPool(session);
  await pool.reserve(1, none);
  await pool.reserve(1, none, 5);
  assert.deepEqual(session.asked, [16, 1]);
});
