// SPDX-License-Identifier: Apache-2.0
// Choices of one prompt where rows carry state: one computes the prompt, the others are copies.
import assert from 'node:assert/strict';
import {describe, test} from 'node:test';

import {
  applyOne,
  blockSize,
  checkAll,
  finish,
  makeGeneration,
  planOne,
  setUp,
} from '../testing/batching.js';
import {expectedTokens} from '../testing/fake_service.js';
import {makeRandom} from '../testing/json_text.js';

const carrying = (more) =>
  setUp({maxPrefixBlocks: 32, maxCopies: 8, carriesState: true, stepTokens: 32, ...more});

// `n` choices of one prompt, with ids from `id` on.
function choicesOf(n, length, count, {id = 1, ...more} = {}) {
  const prompt = Array.from({length}, (_, i) => 1000 * id + i);
  const group = {};
  return Array.from({length: n}, (_, i) =>
    makeGeneration(id + i, length, count, {prompt, group, ...more}),
  );
}

function addAll({batcher}, generations) {
  for (const generation of generations) batcher.add(generation);
}

const cachedOf = (generations) => generations.map(({cachedTokens}) => cachedTokens);

// Of one prompt that is computed once: the others compute its last two tokens.
const tokensOf = (n, length, count) => length + 2 * (n - 1) + n * (count - 1);

describe('choices of one prompt where rows carry state', () => {
  for (const length of [4, 5, 6, 7, 8, 9, 10, 13, 70]) {
    test(`a prompt of ${length} tokens is computed once`, () => {
      const all = carrying();
      const generations = choicesOf(4, length, 6);
      addAll(all, generations);
      finish(all);
      assert.equal(all.service.tokensRun, tokensOf(4, length, 6));
      assert.equal(all.service.copiesRun, (length - 2) % blockSize > 0 ? 3 : 0);
      assert.deepEqual(cachedOf(generations), [0, length - 2, length - 2, length - 2]);
      checkAll(all, generations);
    });
  }

  test('a prompt too short to leave two tokens twice is computed by each', () => {
    const all = carrying();
    const generations = choicesOf(3, 3, 4);
    addAll(all, generations);
    finish(all);
    assert.deepEqual(cachedOf(generations), [0, 0, 0]);
    checkAll(all, generations);
  });

  test('neither do choices of other requests share, nor any where sharing is off', () => {
    for (const maxPrefixBlocks of [32, 0]) {
      const all = carrying({maxPrefixBlocks});
      const [first] = choicesOf(1, 20, 4);
      const alike = [first, makeGeneration(2, 20, 4, {prompt: first.prompt, group: {}})];
      const generations = maxPrefixBlocks > 0 ? alike : choicesOf(3, 20, 4);
      addAll(all, generations);
      finish(all);
      assert.ok(cachedOf(generations).every((count) => count === 0));
      assert.equal(all.service.tokensRun, generations.length * 23);
      checkAll(all, generations);
    }
  });

  test('their rows are kept for them while others pass by', () => {
    const all = carrying({maxRows: 4, stepTokens: 64});
    const generations = [...choicesOf(3, 20, 4), ...choicesOf(3, 20, 4, {id: 11})];
    addAll(all, generations);
    planOne(all);
    assert.equal(all.batcher.numResident, 2);
    finish(all);
    assert.deepEqual(cachedOf(generations.slice(0, 3)), [0, 18, 18]);
    checkAll(all, generations);
  });

  test('those that find no row compute the prompt again, once for those that then do', () => {
    const all = carrying({maxRows: 3});
    const generations = choicesOf(6, 20, 4);
    addAll(all, generations);
    finish(all);
    assert.deepEqual(cachedOf(generations), [0, 18, 18, 0, 18, 18]);
    checkAll(all, generations);
    const alone = carrying({maxRows: 1});
    const others = choicesOf(3, 20, 4);
    addAll(alone, others);
    finish(alone);
    assert.deepEqual(cachedOf(others), [0, 0, 0]);
    checkAll(alone, others);
  });

  test('those that find no blocks wait, and nobody stays behind', () => {
    const all = carrying({numBlocks: 9});
    const generations = choicesOf(5, 14, 10);
    addAll(all, generations);
    finish(all);
    checkAll(all, generations);
  });

  test('the blocks that they need are asked for before they need them', () => {
    const all = carrying({maxRows: 4});
    const generations = choicesOf(5, 14, 3);
    addAll(all, generations);
    assert.equal(all.batcher.blocksForForks, 0);
    planOne(all);
    // 12 tokens are three blocks that are shared; of five choices one runs, and three find rows.
    assert.equal(all.batcher.blocksForForks, 3);
    assert.equal(all.batcher.blocksWanted, 0);
    finish(all);
    assert.equal(all.batcher.blocksForForks, 0);
    checkAll(all, generations);
  });

  test('a step copies as many blocks as it may', () => {
    const all = carrying({maxCopies: 2});
    const generations = choicesOf(5, 11, 4);
    addAll(all, generations);
    finish(all);
    assert.deepEqual(cachedOf(generations), [0, 9, 9, 0, 9]);
    checkAll(all, generations);
  });

  test('a leader that is cancelled leaves the prompt to the next', () => {
    const all = carrying();
    const generations = choicesOf(3, 70, 4);
    addAll(all, generations);
    planOne(all);
    generations[0].ended = true;
    finish(all);
    assert.deepEqual(cachedOf(generations.slice(1)), [0, 68]);
    checkAll(all, generations.slice(1));
  });

  test('a leader whose followers are cancelled goes on', () => {
    const all = carrying();
    const generations = choicesOf(3, 20, 4);
    addAll(all, generations);
    planOne(all);
    for (const generation of generations.slice(1)) {
      generation.ended = true;
      all.batcher.remove(generation);
    }
    finish(all);
    checkAll(all, generations.slice(0, 1));
  });

  test('a leader that is refused alone leaves the prompt to the next', () => {
    const all = carrying();
    const generations = choicesOf(3, 20, 4);
    addAll(all, generations);
    const {request, flight} = all.batcher.plan({flush: true});
    const nothing = all.service.step({...request, add: [], chunks: []});
    const {row} = request.add[0];
    all.batcher.apply(flight, {...nothing, rowErrors: [{row, code: 3, message: 'for the test'}]});
    const next = all.batcher.plan({flush: true});
    assert.deepEqual(next.request.drop, [row]);
    all.batcher.apply(next.flight, all.service.step({...next.request, drop: []}));
    finish(all);
    assert.deepEqual(cachedOf(generations.slice(1)), [0, 18]);
    checkAll(all, generations.slice(1));
  });

  test('a refused step takes its copies back, and they are made again', () => {
    const all = carrying();
    const generations = choicesOf(3, 20, 4);
    addAll(all, generations);
    planOne(all);
    applyOne(all);
    const refused = [];
    for (let i = 0; i < 2; ++i) {
      const planned = all.batcher.plan({flush: false});
      if (planned) refused.push(planned);
    }
    assert.equal(refused[0].request.add.length, 2);
    assert.ok(refused[0].request.add.every(({forkOf}) => forkOf === 1));
    for (const {flight} of refused.reverse()) all.batcher.undo(flight);
    assert.equal(all.batcher.numResident, 1);
    finish(all);
    assert.deepEqual(cachedOf(generations), [0, 18, 18]);
    checkAll(all, generations);
  });

  test('copies have their penalties and masks', () => {
    const all = carrying();
    const sampling = {presencePenalty: 1};
    const mask = Uint8Array.of(0xff);
    const generations = choicesOf(3, 20, 4, {sampling, matcher: {mask}});
    addAll(all, generations);
    planOne(all);
    applyOne(all);
    const {request} = all.batcher.plan({flush: true});
    for (const {history, promptLength, sampling: sent} of request.add) {
      assert.deepEqual(history, generations[0].prompt.slice(0, 18));
      assert.equal(promptLength, 20);
      assert.equal(sent.allowedTokens, mask);
    }
    assert.equal(request.add.length, 2);
  });

  test('no token of a prompt is left alone where the step has room', () => {
    // 31 tokens up to the last two, in steps of 30: 29 and 2, not 30 and 1.
    const all = carrying({stepTokens: 30});
    const generations = choicesOf(2, 33, 2);
    addAll(all, generations);
    const chunks = [];
    for (let step = 0; step < 6; ++step) {
      const planned = all.batcher.plan({flush: true});
      if (!planned) break;
      chunks.push(...planned.request.chunks.map(({tokens}) => tokens.length));
      all.batcher.apply(planned.flight, all.service.step(planned.request));
    }
    assert.deepEqual(chunks, [29, 2, 2, 2]);
    finish(all);
    checkAll(all, generations);
  });

  test('many at random are answered as if each was alone', () => {
    const random = makeRandom(3);
    const below = (bound) => Math.floor(random() * bound);
    for (let round = 0; round < 20; ++round) {
      const all = carrying({
        numBlocks: 20 + below(40),
        stepTokens: 8 + below(20),
        maxRows: 1 + below(8),
        maxCopies: below(4),
      });
      const generations = [];
      for (let id = 1; id <= 100; id += 10) {
        const group = choicesOf(1 + below(6), 1 + below(30), 1 + below(15), {id});
        generations.push(...group);
        addAll(all, group);
        for (let i = below(3); i > 0; --i) planOne(all);
        if (all.flights.length > 0 && below(2) > 0) applyOne(all);
        while (all.flights.length > 1) applyOne(all);
        if (below(4) === 0) refuseOne(all);
      }
      finish(all, 5000);
      for (const {prompt, tokens, maxNewTokens} of generations) {
        assert.deepEqual(tokens, expectedTokens(prompt, maxNewTokens));
      }
      checkAll(all, generations);
    }
  });
});

// Plans a step that the server refuses, behind those in flight.
function refuseOne({batcher}) {
  const planned = batcher.plan({flush: false});
  if (planned) batcher.undo(planned.flight);
}
