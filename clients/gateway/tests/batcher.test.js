// SPDX-License-Identifier: Apache-2.0
// The scheduling policy, on a step service that checks what it is asked for.
import assert from 'node:assert/strict';
import {describe, test} from 'node:test';

import {applyOne, checkAll, finish, makeGeneration, planOne, setUp} from '../testing/batching.js';
import {expectedTokens} from '../testing/fake_service.js';
import {isAllowed, makeRandom} from '../testing/json_text.js';

describe('the batcher', () => {
  test('prompts are cut into chunks within the tokens of a step', () => {
    const all = setUp();
    const shapes = [
      [50, 5],
      [3, 7],
      [1, 1],
    ];
    const generations = shapes.map(([prompt, count], i) => makeGeneration(i + 1, prompt, count));
    for (const generation of generations) all.batcher.add(generation);
    finish(all);
    checkAll(all, generations);
    assert.equal(all.service.maxStepTokens, 16);
  });

  test('rows come and go while others run', () => {
    const all = setUp();
    const generations = [];
    for (let id = 1; id <= 30; ++id) {
      generations.push(makeGeneration(id, 1 + ((id * 7) % 23), 1 + ((id * 5) % 19)));
      all.batcher.add(generations.at(-1));
      planOne(all);
      if (all.flights.length === 2) applyOne(all);
    }
    finish(all);
    checkAll(all, generations);
  });

  test('rows beyond the limit wait', () => {
    const all = setUp({maxRows: 2});
    const generations = [1, 2, 3, 4].map((id) => makeGeneration(id, 4, 6));
    for (const generation of generations) all.batcher.add(generation);
    planOne(all);
    assert.equal(all.batcher.numResident, 2);
    finish(all);
    checkAll(all, generations);
  });

  test('a row without a block for its next token preempts the youngest', () => {
    const all = setUp({numBlocks: 7});
    const generations = [1, 2, 3].map((id) => makeGeneration(id, 4, 16));
    for (const generation of generations) all.batcher.add(generation);
    let most = 0;
    for (let i = 0; i < 400 && (all.flights.length > 0 || i === 0 || !all.batcher.isEmpty); ++i) {
      if (all.flights.length < 2 && planOne(all)) continue;
      most = Math.max(most, all.batcher.numWaiting);
      if (all.flights.length > 0) applyOne(all);
    }
    finish(all);
    assert.ok(most > 0, 'nobody was preempted');
    checkAll(all, generations);
  });

  // Allows tokens by the number of those that came: what a mask of any other moment forbids.
  function makeMatcher(step) {
    const count = {tokens: 0};
    const maskOf = (i) =>
      Uint8Array.from({length: 4}, (_, at) => (at === (step * i) % 4 ? 0x5a : 0));
    const masks = [0, 1, 2, 3].map(maskOf);
    return {
      get mask() {
        return masks[count.tokens % 4];
      },
      advance(token) {
        assert.ok(isAllowed(this.mask, token), `token ${token} under an old mask`);
        ++count.tokens;
      },
    };
  }

  test('rows with masks sample every token under its own, others are not kept waiting', () => {
    const all = setUp({numBlocks: 12});
    const masked = [1, 2].map((id) => {
      const matcher = makeMatcher(id);
      const onToken = ({token}) => void matcher.advance(token);
      return makeGeneration(id, 4 + 9 * id, 12, {matcher, onToken});
    });
    const free = makeGeneration(3, 4, 12);
    for (const generation of [...masked, free]) all.batcher.add(generation);
    finish(all);
    checkAll(all, [free]);
    for (const {tokens, ends} of masked) {
      assert.equal(tokens.length, 12);
      assert.deepEqual(ends, ['length']);
    }
  });

  test('masks of one step keep to their bytes', () => {
    const all = setUp({maxMaskBytes: 9});
    const masked = [1, 2, 3, 4, 5].map((id) => {
      const matcher = makeMatcher(id);
      return makeGeneration(id, 4, 6, {matcher, onToken: ({token}) => void matcher.advance(token)});
    });
    for (const generation of masked) all.batcher.add(generation);
    const {service} = all;
    const step = service.step.bind(service);
    service.step = (request) => {
      const {add, masks} = request;
      assert.ok(add.length + masks.length <= 2, 'masks of more than 9 bytes');
      return step(request);
    };
    finish(all);
    for (const {tokens} of masked) assert.equal(tokens.length, 6);
  });

  test('a mask goes along when it has changed, and is sent again after a refusal', () => {
    const all = setUp();
    const masks = [Uint8Array.of(2), Uint8Array.of(4)];
    const matcher = {mask: masks[0]};
    const generation = makeGeneration(1, 4, 8, {matcher});
    all.batcher.add(generation);
    const next = () => {
      const planned = all.batcher.plan({flush: true});
      assert.equal(all.batcher.plan({flush: true}), undefined);
      return planned;
    };
    const run = ({request, flight}) => all.batcher.apply(flight, all.service.step(request));
    const first = next();
    assert.equal(first.request.add[0].sampling.allowedTokens, masks[0]);
    run(first);
    const second = next();
    assert.deepEqual(second.request.masks, []);
    run(second);
    matcher.mask = masks[1];
    const third = next();
    assert.equal(third.request.masks[0].allowedTokens, masks[1]);
    all.batcher.undo(third.flight);
    const again = next();
    assert.equal(again.request.masks[0].allowedTokens, masks[1]);
    run(again);
    assert.equal(generation.tokens.at(-1), 2);
  });

  test('a refused step is taken back', () => {
    const all = setUp();
    const generations = [makeGeneration(1, 6, 4), makeGeneration(2, 30, 4)];
    all.batcher.add(generations[0]);
    planOne(all);
    applyOne(all);
    all.batcher.add(generations[1]);
    const refused = [];
    for (let i = 0; i < 2; ++i) refused.push(all.batcher.plan({flush: false}).flight);
    for (const flight of refused.reverse()) all.batcher.undo(flight);
    assert.equal(all.batcher.numResident, 1);
    assert.equal(all.batcher.numWaiting, 1);
    finish(all);
    checkAll(all, generations);
  });

  test('a row limit holds until it is raised', () => {
    const all = setUp();
    const generations = [makeGeneration(1, 4, 8), makeGeneration(2, 4, 2)];
    all.batcher.add(generations[0]);
    planOne(all);
    all.batcher.limitRows(2);
    all.batcher.add(generations[1]);
    planOne(all);
    assert.equal(all.batcher.numResident, 1);
    applyOne(all);
    assert.equal(all.batcher.raiseRowLimit(), true);
    planOne(all);
    assert.equal(all.batcher.numResident, 2);
    finish(all);
    checkAll(all, generations);
  });

  test('a cancelled row leaves, and its late tokens are thrown away', () => {
    const all = setUp();
    const generation = makeGeneration(1, 4, 100);
    all.batcher.add(generation);
    for (let i = 0; i < 2; ++i) planOne(all);
    applyOne(all);
    generation.ended = true;
    const had = generation.tokens.length;
    finish(all);
    assert.equal(generation.tokens.length, had);
    assert.equal(all.batcher.isEmpty, true);
    assert.equal(all.pool.size, all.numBlocks);
    assert.equal(all.service.rows.size, 0);
  });

  test('a row that is refused alone ends with the reason and the others go on', () => {
    const all = setUp();
    const errors = [];
    const bad = makeGeneration(1, 4, 4, {onEnd: (reason, error) => errors.push(reason, error)});
    const good = makeGeneration(2, 4, 4);
    for (const generation of [bad, good]) all.batcher.add(generation);
    const {request, flight} = all.batcher.plan({flush: true});
    const answer = all.service.step({
      ...request,
      add: request.add.slice(1),
      chunks: request.chunks.slice(1),
    });
    const {row} = request.add[0];
    all.batcher.apply(flight, {...answer, rowErrors: [{row, code: 3, message: 'for the test'}]});
    assert.equal(errors[0], 'error');
    assert.match(errors[1].message, /for the test/);
    const {request: next, flight: nextFlight} = all.batcher.plan({flush: true});
    assert.deepEqual(next.drop, [row]);
    all.batcher.apply(nextFlight, all.service.step({...next, drop: []}));
    finish(all);
    checkAll(all, [good]);
  });

  test('penalties of a row that is computed again see which tokens were sampled', () => {
    const all = setUp();
    const sampling = {presencePenalty: 1};
    const generation = makeGeneration(1, 4, 8, {sampling});
    generation.tokens.push(5, 6);
    all.batcher.add(generation);
    const {request} = all.batcher.plan({flush: true});
    assert.equal(request.add[0].promptLength, 4);
    assert.deepEqual(request.chunks[0].tokens, [...generation.prompt, 5, 6]);
  });

  test('a step names the trace of the row that was added last, of those that have one', () => {
    const all = setUp();
    const [older, newer] = [1, 2].map((byte) => Buffer.alloc(16, byte));
    const generations = [
      makeGeneration(1, 4, 6),
      makeGeneration(2, 4, 5, {traceId: older}),
      makeGeneration(3, 4, 3, {traceId: newer}),
      makeGeneration(4, 4, 5),
    ];
    const steps = [];
    for (const generation of [...generations, undefined, undefined, undefined, undefined]) {
      if (generation) all.batcher.add(generation);
      const {request, flight} = all.batcher.plan({flush: true});
      steps.push(request.traceId);
      all.batcher.apply(flight, all.service.step(request));
    }
    assert.deepEqual(steps, [undefined, older, newer, newer, newer, older, undefined, undefined]);
    finish(all);
    checkAll(all, generations);
  });

  describe('with prompts that begin alike', () => {
    // Prompts of `length` tokens, the first `shared` of which are those of all.
    const alike = (id, length, shared, count, more) =>
      makeGeneration(id, length, count, {
        prompt: Array.from({length}, (_, i) => (i < shared ? 7 + i : id * 100 + i)),
        ...more,
      });
    const tokensRun = (generations, cached) =>
      generations.reduce(
        (sum, {prompt, maxNewTokens}) => sum + prompt.length + maxNewTokens - 1,
        0,
      ) - cached;

    test('whole blocks are computed once for rows that come together', () => {
      const all = setUp({maxPrefixBlocks: 32});
      const generations = [1, 2, 3].map((id) => alike(id, 15, 10, 4));
      for (const generation of generations) all.batcher.add(generation);
      finish(all);
      assert.equal(all.service.tokensRun, tokensRun(generations, 16));
      assert.deepEqual(
        generations.map(({cachedTokens}) => cachedTokens),
        [0, 8, 8],
      );
      checkAll(all, generations);
    });

    test('blocks of a row that has ended are used again', () => {
      const all = setUp({maxPrefixBlocks: 32});
      for (const id of [1, 2]) {
        const generation = alike(id, 30, 24, 4);
        all.batcher.add(generation);
        finish(all);
        assert.equal(generation.cachedTokens, id === 1 ? 0 : 24);
        assert.deepEqual(generation.tokens, expectedTokens(generation.prompt, 4));
      }
      assert.ok(all.batcher.numPrefixBlocks > 0);
      checkAll(all, []);
    });

    test('two tokens of a prompt are computed at least', () => {
      const all = setUp({maxPrefixBlocks: 32});
      const cached = [8, 8, 9, 10, 1].map((length, i) => {
        const generation = alike(i + 1, length, length, 3);
        all.batcher.add(generation);
        finish(all);
        return generation.cachedTokens;
      });
      assert.deepEqual(cached, [0, 4, 4, 8, 0]);
      checkAll(all, []);
    });

    test('those that were used least recently go first, and no row for them', () => {
      const all = setUp({numBlocks: 12, maxPrefixBlocks: 12});
      const run = (id, more) => {
        const generation = alike(id, 14, 14, 2, more);
        all.batcher.add(generation);
        finish(all);
        return generation;
      };
      const other = {prompt: Array.from({length: 14}, (_, i) => 5000 + i)};
      run(1);
      run(2, other);
      assert.equal(run(3).cachedTokens, 12);
      assert.equal(all.batcher.numPrefixBlocks, 6);
      const large = makeGeneration(4, 20, 8);
      all.batcher.add(large);
      planOne(all);
      assert.equal(all.batcher.numResident, 1);
      finish(all);
      assert.equal(run(5, other).cachedTokens < 12, true);
      checkAll(all, [large]);
    });

    test('no more are kept than allowed, none where sharing is off', () => {
      const all = setUp({maxPrefixBlocks: 3});
      const generations = [1, 2].map((id) => alike(id, 30, 24, 4));
      for (const generation of generations) all.batcher.add(generation);
      finish(all);
      assert.equal(generations[1].cachedTokens, 24);
      assert.equal(all.batcher.numPrefixBlocks, 3);
      checkAll(all, generations);
      const off = setUp({maxPrefixBlocks: 0});
      const others = [1, 2].map((id) => alike(id, 30, 24, 4));
      for (const generation of others) off.batcher.add(generation);
      finish(off);
      assert.equal(off.service.tokensRun, tokensRun(others, 0));
      checkAll(off, others);
    });

    test('nothing is shared and nothing kept where rows carry state', () => {
      const all = setUp({maxPrefixBlocks: 32, maxCopies: 4, carriesState: true});
      const run = (ids) => {
        const generations = ids.map((id) => alike(id, 30, 24, 4));
        for (const generation of generations) all.batcher.add(generation);
        finish(all);
        return generations;
      };
      const generations = [...run([1, 2, 3]), ...run([4])];
      assert.equal(all.service.tokensRun, tokensRun(generations, 0));
      assert.ok(generations.every(({cachedTokens}) => cachedTokens === 0));
      assert.equal(all.batcher.numPrefixBlocks, 0);
      checkAll(all, generations);
    });

    test('a request that shares nothing passes by one that waits for its prefix', () => {
      const all = setUp({maxPrefixBlocks: 32, stepTokens: 64});
      const generations = [alike(1, 40, 32, 2), alike(2, 40, 32, 2), makeGeneration(3, 4, 2)];
      for (const generation of generations) all.batcher.add(generation);
      planOne(all);
      assert.deepEqual(
        generations.map(({row}) => row),
        [1, 0, 2],
      );
      planOne(all);
      assert.equal(generations[1].row, 3);
      finish(all);
      assert.equal(generations[1].cachedTokens, 32);
      checkAll(all, generations);
    });

    test('a prefix whose row was cancelled on the way is computed by the next', () => {
      const all = setUp({maxPrefixBlocks: 32, stepTokens: 12});
      const generations = [alike(1, 40, 32, 2), alike(2, 40, 32, 2)];
      for (const generation of generations) all.batcher.add(generation);
      planOne(all);
      generations[0].ended = true;
      finish(all);
      assert.equal(generations[1].cachedTokens, 12);
      checkAll(all, [generations[1]]);
    });

    test('a refused step takes back what it would have made ready', () => {
      const all = setUp({maxPrefixBlocks: 32});
      const generations = [alike(1, 20, 16, 2), alike(2, 20, 16, 2)];
      for (const generation of generations) all.batcher.add(generation);
      const refused = [];
      for (let i = 0; i < 2; ++i) refused.push(all.batcher.plan({flush: false}).flight);
      for (const flight of refused.reverse()) all.batcher.undo(flight);
      assert.equal(all.batcher.numPrefixBlocks, 0);
      finish(all);
      checkAll(all, generations);
    });

    test('what a row was to compute that is refused alone is used by nobody', () => {
      const all = setUp({maxPrefixBlocks: 32});
      const generations = [alike(1, 20, 16, 2), alike(2, 20, 16, 2)];
      all.batcher.add(generations[0]);
      const {request, flight} = all.batcher.plan({flush: true});
      const nothing = all.service.step({...request, add: [], chunks: []});
      const {row} = request.add[0];
      all.batcher.apply(flight, {...nothing, rowErrors: [{row, code: 3, message: 'for the test'}]});
      all.batcher.add(generations[1]);
      const next = all.batcher.plan({flush: true});
      assert.deepEqual(next.request.drop, [row]);
      all.batcher.apply(next.flight, all.service.step({...next.request, drop: []}));
      finish(all);
      assert.equal(generations[1].cachedTokens, 0);
      checkAll(all, [generations[1]]);
    });

    test('prompts that part in the middle of a block go on in a copy of it', () => {
      const all = setUp({maxPrefixBlocks: 32, maxCopies: 2});
      const run = (id, length, shared, more) => {
        const generation = alike(id, length, shared, 4, more);
        all.batcher.add(generation);
        finish(all);
        return generation;
      };
      const first = run(1, 20, 20);
      // 11 tokens alike: two blocks, and three tokens of the third.
      const parts = [run(2, 20, 11), run(3, 20, 10), run(4, 20, 3)];
      assert.deepEqual(
        parts.map(({cachedTokens}) => cachedTokens),
        [11, 10, 3],
      );
      assert.equal(all.service.copiesRun, 3);
      // The longest begin of several, with penalties, and two tokens to compute.
      const sampling = {presencePenalty: 1};
      assert.equal(run(5, 20, 11, {sampling}).cachedTokens, 11);
      assert.equal(run(6, 12, 12).cachedTokens, 10);
      assert.equal(run(7, 5, 5).cachedTokens, 3);
      assert.equal(run(8, 2, 2).cachedTokens, 0);
      checkAll(all, [first, ...parts]);
    });

    test('a step copies as many blocks as it may, and what the server has said is written', () => {
      const all = setUp({maxPrefixBlocks: 32, maxCopies: 1, stepTokens: 64});
      const first = alike(1, 20, 20, 2);
      all.batcher.add(first);
      planOne(all);
      const generations = [2, 3, 4].map((id) => alike(id, 20, 10, 2));
      all.batcher.add(generations[0]);
      planOne(all); // the first one's answer is not there
      assert.equal(generations[0].cachedTokens, 8);
      applyOne(all);
      for (const generation of generations.slice(1)) all.batcher.add(generation);
      planOne(all);
      assert.deepEqual(
        generations.map(({cachedTokens}) => cachedTokens),
        [8, 10, 8],
      );
      finish(all);
      checkAll(all, [first, ...generations]);
    });

    test('a refused step takes back its copies', () => {
      const all = setUp({maxPrefixBlocks: 32, maxCopies: 4});
      const first = alike(1, 20, 20, 2);
      all.batcher.add(first);
      finish(all);
      const second = alike(2, 20, 10, 2);
      all.batcher.add(second);
      const {request, flight} = all.batcher.plan({flush: false});
      assert.equal(request.copyBlocks.length, 2);
      all.batcher.undo(flight);
      finish(all);
      assert.equal(second.cachedTokens, 10);
      checkAll(all, [first, second]);
    });

    test('rows are preempted and go on over shared blocks, with penalties too', () => {
      const all = setUp({numBlocks: 14, maxPrefixBlocks: 14});
      const sampling = {presencePenalty: 1};
      const generations = [1, 2, 3].map((id) => alike(id, 10, 8, 24, {sampling}));
      for (const generation of generations) all.batcher.add(generation);
      finish(all);
      checkAll(all, generations);
    });

    test('many at random are answered as if each was alone', () => {
      const random = makeRandom(2);
      const below = (bound) => Math.floor(random() * bound);
      for (let round = 0; round < 10; ++round) {
        const numBlocks = 24 + below(30);
        const maxCopies = below(3);
        const sizes = {numBlocks, maxPrefixBlocks: below(20), stepTokens: 8 + below(20)};
        const all = setUp({...sizes, maxCopies});
        const generations = [];
        for (let id = 1; id <= 40; ++id) {
          const length = 1 + below(30);
          generations.push(alike(id, length, below(length + 1), 1 + below(15)));
          all.batcher.add(generations.at(-1));
          if (below(3) > 0) planOne(all);
          if (all.flights.length === 2) applyOne(all);
        }
        finish(all);
        checkAll(all, generations);
      }
    });
  });
});
