// SPDX-License-Identifier: Apache-2.0
// The Node client against `reprise serve` with a fixture model.
import assert from 'node:assert/strict';
import {execFile} from 'node:child_process';
import {readFileSync, rmSync} from 'node:fs';
import {join} from 'node:path';
import {after, before, describe, test} from 'node:test';
import {fileURLToPath} from 'node:url';
import {promisify} from 'node:util';

import {
  AlreadyExistsError,
  Client,
  FailedPreconditionError,
  InvalidArgumentError,
  NotFoundError,
  PermissionDeniedError,
  ResourceExhaustedError,
  SessionEndedError,
  UnauthenticatedError,
  UnavailableError,
  rowsOf,
} from 'reprise-client';

import {
  Proxy,
  Server,
  eventually,
  llamaTiny,
  makeIdentities,
  referenceOf,
  scratchFolder,
} from '../testing/server.js';

const small = ['--kv-cache', '4MiB', '--max-rows', '8', '--block-size', '5'];
const entry = referenceOf(llamaTiny)[1];
const greedy = entry.greedy_tokens;
const example = fileURLToPath(new URL('../examples/generate.js', import.meta.url));

// The step that adds the reference's prompt as a row, with blocks for all of its tokens.
async function addPrompt(session, row = 1) {
  const blocks = await session.allocate(24);
  return {add: [{row, blocks}], chunks: [{row, tokens: entry.tokens, sample: true}]};
}

function* promptAndContinues(first, count) {
  yield first;
  for (let i = 1; i < count; ++i) yield {continueAll: true};
}

const tokensOf = (answers) => answers.flatMap(rowsOf).map((row) => row.token);

async function collect(iterable) {
  const all = [];
  for await (const item of iterable) all.push(item);
  return all;
}

describe('the client', () => {
  let server;
  let client;
  const freeBlocks = async () => (await client.describe()).pool.freeBlocks;

  before(async () => {
    const allowed = ['--allow-administration', '--allow-attention-trees'];
    server = await new Server(llamaTiny, [...small, ...allowed]).start();
    client = new Client(server.socket);
  });
  after(async () => {
    client.close();
    assert.equal(await server.remove(), 0, server.output);
  });

  test('describes what is served', async () => {
    assert.equal(await client.isServing(), true);
    const described = await client.describe({timeoutMs: 60000});
    assert.equal(described.model.architecture, 'llama');
    assert.equal(described.model.tokenEncoding, 'TOKEN_ENCODING_OPAQUE');
    assert.equal(described.pool.blockSize, 5);
    assert.deepEqual(described.model.eosTokenIds, [2]);
  });

  test('pipelined steps give the tokens of the reference', async () => {
    const free = await freeBlocks();
    for (const address of [server.socket, server.tcp]) {
      const own = new Client(address);
      const session = await own.openSession({name: 'node'});
      const steps = promptAndContinues(await addPrompt(session), greedy.length);
      const answers = await collect(session.run(steps));
      assert.deepEqual(tokensOf(answers), greedy);
      assert.deepEqual(answers.map((answer) => answer.sequence), greedy.map((_, i) => i + 1));
      await session.close();
      own.close();
      await eventually(async () => (await freeBlocks()) === free);
    }
  });

  test('blocks are shared, read, written, swapped and exported', async () => {
    const folder = scratchFolder();
    const exchange = ['--kv-exchange', folder, '--export-space', '64KiB', '--swap-space', '64KiB'];
    const exporting = await new Server(llamaTiny, [...small, ...exchange]).start();
    const own = new Client(exporting.socket);
    const session = await own.openSession();
    const goOn = async (other, blocks) => {
      const more = [...blocks, ...(await other.allocate(2))];
      const answer = await other.step({
        add: [{row: 2, blocks: more, contextLength: entry.tokens.length}],
        chunks: [{row: 2, tokens: greedy.slice(0, 1), sample: true}],
      });
      await other.step({drop: [2]});
      assert.deepEqual(tokensOf([answer]), greedy.slice(1, 2));
    };
    await session.step(await addPrompt(session));
    const {layout, parts} = await session.readBlocks(
      Array.from({length: 24}, (_, i) => ({block: i + 1})),
    );
    const filled = parts.filter((part) => part.numTokens > 0);
    const tickets = await session.exportBlocks(filled.map((part) => part.block));
    await session.step({drop: [1]});
    const swapped = await session.swapOut(filled.map((part) => part.block));
    await goOn(session, await session.swapIn(swapped));
    await assert.rejects(session.freeSwapped(swapped), PermissionDeniedError);
    await assert.rejects(session.swapOutState(1), /nothing beside their KV/);

    const other = await own.openSession();
    const blocks = await other.allocate(filled.length);
    const counts = await other.importBlocks(blocks, tickets);
    assert.deepEqual(counts, filled.map((part) => part.numTokens));
    await goOn(other, blocks);
    await session.freeExported(tickets);
    await assert.rejects(other.importBlocks(blocks, tickets), NotFoundError);
    await other.writeBlocks(layout, filled.map((part, i) => ({...part, block: blocks[i]})));
    await goOn(other, blocks);

    const whole = blocks.filter((_, i) => filled[i].numTokens === 5);
    await other.shareBlocks('begin', whole);
    assert.deepEqual(await session.adoptBlocks('begin'), whole);
    await assert.rejects(other.shareBlocks('again', whole), FailedPreconditionError);
    await session.releaseBlocks('begin');
    await assert.rejects(session.releaseBlocks('begin'), NotFoundError);
    await other.close();
    await session.close();
    own.close();
    assert.equal(await exporting.remove(), 0, exporting.output);
    rmSync(folder, {recursive: true});
  });

  test('refused steps reject with typed errors and the session goes on', async () => {
    const session = await client.openSession();
    const good = await addPrompt(session);
    const bad = {...good, chunks: [{...good.chunks[0], tokens: [1e6]}]};
    const [first, second] = await Promise.allSettled([
      session.step(bad),
      session.step(good),
    ]);
    assert.ok(first.reason instanceof InvalidArgumentError);
    assert.match(first.reason.message, /1000000/);
    assert.equal(first.reason.status, 'INVALID_ARGUMENT');
    assert.deepEqual([first.reason.sequence, first.reason.behind], [1, undefined]);
    assert.ok(second.reason instanceof FailedPreconditionError);
    assert.deepEqual([second.reason.sequence, second.reason.behind], [2, 1]);
    await assert.rejects(session.step({chunks: [{row: 1, tokens: 'no list'}]}), /array/);
    assert.deepEqual(tokensOf([await session.step(good)]), greedy.slice(0, 1));
    await assert.rejects(session.step({continueRows: [99]}), NotFoundError);
    await assert.rejects(session.step({...good, add: [{row: 1}]}), AlreadyExistsError);
    await assert.rejects(session.allocate(1e6), ResourceExhaustedError);
    await assert.rejects(session.free(good.add[0].blocks), FailedPreconditionError);
    await session.close();
  });

  test('a session resumes after a lost connection', async () => {
    const free = await freeBlocks();
    const proxy = new Proxy();
    const own = new Client(await proxy.start(server.tcp));
    const session = await own.openSession({resumeGraceMs: 20000});
    assert.equal(session.resumeGraceMs, 20000);
    const answers = [await session.step(await addPrompt(session))];
    for (let i = 1; i < greedy.length; ++i) {
      const answer = session.step({continueAll: true});
      if (i % 3 === 0) proxy.cut(); // with a step in flight
      answers.push(await answer);
    }
    assert.deepEqual(tokensOf(answers), greedy);
    await session.close();
    own.close();
    proxy.stop();
    await eventually(async () => (await freeBlocks()) === free);
  });

  test('a session without a grace time ends with its connection', async () => {
    const proxy = new Proxy();
    const own = new Client(await proxy.start(server.tcp));
    const session = await own.openSession();
    await session.step(await addPrompt(session));
    proxy.cut();
    await assert.rejects(async () => {
      for (let i = 0; i < 100; ++i) await session.step({continueAll: true});
    }, SessionEndedError);
    assert.equal((await session.ended).status, 'UNAVAILABLE');
    own.close();
    proxy.stop();
  });

  test('an evicted session ends with the reason', async () => {
    const session = await client.openSession({name: 'to be evicted', resumeGraceMs: 20000});
    const listed = await collect(client.listSessions());
    const {id} = listed.find((one) => one.client === 'to be evicted');
    await client.evictSession(id, 'for the test');
    const why = await session.ended;
    assert.equal(why.status, 'ABORTED');
    assert.match(why.message, /for the test/);
    await assert.rejects(session.close(), SessionEndedError);
  });

  test('buckets are set', async () => {
    const of = (buckets, kind) => buckets.filter((b) => b.kind === kind).map((b) => b.capacity);
    const before = await client.describe();
    const answer = await client.setBuckets({decode: [3], mixed: of(before.buckets, 'mixed')});
    assert.equal(answer.version, before.bucketsVersion + 1);
    assert.deepEqual(of(answer.buckets, 'decode'), [3]);
    await assert.rejects(client.setBuckets({}), /got neither decode nor mixed/);
    await client.setBuckets({decode: of(before.buckets, 'decode')});
  });

  test('the attention tree is replaced', async () => {
    const before = (await client.describe()).attentionTree;
    const tree = JSON.parse(before.text);
    const text = JSON.stringify({...tree, batch: {leaf: 'all', leaf_overhead: 0}});
    assert.equal(await client.setAttentionTree(text), before.version + 1);
    const session = await client.openSession();
    const {report} = await session.step(await addPrompt(session));
    assert.equal(report.attentionTree, before.version + 1);
    await session.close();
    assert.deepEqual((await client.describe()).attentionTree.batchLeaves, ['all']);
    const wrong = JSON.stringify({...tree, batch: {leaf: 'all', leaf_overhead: 7}});
    await assert.rejects(client.setAttentionTree(wrong), (error) => {
      assert.match(error.message, /batch: leaf "all": leaf_overhead is 7; allowed: /);
      return error instanceof InvalidArgumentError;
    });
    assert.equal(await client.setAttentionTree(before.text), before.version + 2);
  });

  test('what a device does not report is left out of its telemetry', async () => {
    const {smClockMhz, memoryClockMhz, powerW} = await client.readTelemetry();
    assert.deepEqual([smClockMhz, memoryClockMhz, powerW], [undefined, undefined, undefined]);
  });

  test('a server without files of identities or TLS has none to read again', async () => {
    await assert.rejects(client.reloadFiles(), FailedPreconditionError);
  });

  test('steps beyond what may be unanswered wait in this process', async () => {
    const session = await client.openSession();
    const first = await addPrompt(session);
    const steps = [...promptAndContinues(first, 3 * session.maxUnanswered)];
    const answers = await Promise.all(steps.map((step) => session.step(step)));
    assert.deepEqual(tokensOf(answers), greedy.slice(0, answers.length));
    await assert.rejects(collect(session.run([], {depth: 0})), /depth: got 0/);
    await session.close();
    await assert.rejects(session.step({continueAll: true}), {name: 'SessionEndedError', code: 0});
  });

  test('the example prints the tokens of the reference', async () => {
    const entries = referenceOf(llamaTiny).slice(0, 2);
    const tokens = entries.flatMap((one) => ['--tokens', one.tokens.join(',')]);
    const length = ['--max-new-tokens', `${greedy.length}`];
    const command = [example, '--address', server.socket, ...length, ...tokens];
    const {stdout} = await promisify(execFile)(process.execPath, command);
    const [endOfText] = (await client.describe()).model.eosTokenIds;
    const expected = entries.map(({greedy_tokens: all}) => {
      const end = all.indexOf(endOfText);
      return all.slice(0, end < 0 ? all.length : end + 1).join(',');
    });
    assert.deepEqual(stdout.trim().split('\n'), expected);
  });

  test('a server that is not there is unavailable', async () => {
    const own = new Client('unix:/no/such/socket');
    await assert.rejects(own.describe(), UnavailableError);
    assert.equal(await own.isServing(100), false);
    own.close();
  });
});

describe('identity', () => {
  test('TLS and bearer tokens', async () => {
    const token = 'a-token-for-tests-0123456789';
    assert.throws(() => new Client('example.org:50061', {token}), /without TLS/);
    const folder = scratchFolder();
    const flags = makeIdentities(folder, token);
    const server = await new Server(llamaTiny, [...small, ...flags], folder).start();
    const tls = {ca: readFileSync(join(folder, 'server.pem'))};
    const client = new Client(server.tcp, {token, tls});
    const session = await client.openSession();
    const answer = await session.step(await addPrompt(session));
    assert.deepEqual(tokensOf([answer]), greedy.slice(0, 1));
    await session.close();
    await assert.rejects(client.evictSession(1), PermissionDeniedError);
    await assert.rejects(client.setAttentionTree('{}'), PermissionDeniedError);
    await assert.rejects(client.reloadFiles(), PermissionDeniedError);
    client.close();
    const operator = new Client(server.socket);
    const {text, version} = (await operator.describe()).attentionTree;
    assert.equal(await operator.setAttentionTree(text), version + 1);
    const {identitiesChanged, identitiesRemoved, tls: read} = await operator.reloadFiles();
    assert.deepEqual([identitiesChanged, identitiesRemoved, read], [0, 0, true]);
    operator.close();
    for (const other of [undefined, 'wrong']) {
      const stranger = new Client(server.tcp, {token: other, tls});
      await assert.rejects(stranger.openSession(), UnauthenticatedError);
      stranger.close();
    }
    assert.equal(await server.remove(), 0, server.output);
  });
});

test('columns become rows', () => {
  const rows = {
    row: [4, 9],
    status: ['ROW_STATUS_RAN', 'ROW_STATUS_STOPPED'],
    sampled: [true, false],
    token: [7, 0],
    logprob: [-0.5, 0],
    contextLength: [3, 8],
    finishReason: [],
    rank: [1, 0],
    numTop: [2, 0],
    topToken: [7, 3],
    topLogprob: [-0.5, -1],
  };
  const [first, second] = rowsOf({rows});
  assert.deepEqual(first.top, [{token: 7, logprob: -0.5}, {token: 3, logprob: -1}]);
  assert.deepEqual([first.token, second.token, second.top], [7, undefined, []]);
  assert.deepEqual(rowsOf({rows: null}), []);
});
