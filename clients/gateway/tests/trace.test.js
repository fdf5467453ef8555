// SPDX-License-Identifier: Apache-2.0
// Traces: which headers are one, and where they arrive, by the server's access log.
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {join} from 'node:path';
import {after, before, describe, test} from 'node:test';

import {Server, eventually, llamaTiny, scratchFolder} from '../../node/testing/server.js';
import {traceIdOf} from '../src/trace.js';
import {Gateway, llamaTinyText} from '../testing/gateway.js';

const trace = '4bf92f3577b34da6a3ce929d0e0e4736';
const parent = '00f067aa0ba902b7';
const header = `00-${trace}-${parent}-01`;

describe('a traceparent header', () => {
  const hexOf = (traceparent) => traceIdOf({traceparent})?.toString('hex');

  test('names a trace, of later versions too', () => {
    for (const text of [header, header.replace(/1$/, '0'), `cc-${trace}-${parent}-01-more`]) {
      assert.equal(hexOf(text), trace);
    }
  });

  for (const text of [
    undefined,
    '',
    trace,
    `00-${trace}-${parent}`,
    `00-${trace}-${parent}-01-more`,
    `00-${trace}-${parent}-01-`,
    `cc-${trace}-${parent}-01.more`,
    `ff-${trace}-${parent}-01`,
    `00-${trace.toUpperCase()}-${parent}-01`,
    `00-${'0'.repeat(32)}-${parent}-01`,
    `00-${trace}-${'0'.repeat(16)}-01`,
    `00-${trace}0-${parent}-01`,
    `00-${trace}-${parent}-0g`,
    `${header}, ${header}`,
  ]) {
    test(`is ignored where it is ${text}`, () => assert.equal(hexOf(text), undefined));
  }
});

describe('a request with a trace', () => {
  const folder = scratchFolder();
  const log = join(folder, 'access');
  let server;
  let gateway;
  before(async () => {
    server = await new Server(llamaTiny, ['--access-log', log], folder).start();
    const names = ['--model', llamaTinyText, '--model-name', 'm'];
    gateway = await new Gateway(['--address', server.socket, ...names]).start();
  });
  after(async () => {
    assert.equal(await gateway.stop(), 0, gateway.output);
    assert.equal(await server.remove(), 0, server.output);
  });

  const steps = () => {
    const lines = readFileSync(log, 'utf8').split('\n').slice(0, -1); // whole ones
    return lines.map((line) => JSON.parse(line)).filter(({event}) => event === 'step');
  };
  // Traces of the steps that sampled in the request, once all are in the log.
  const tracesOf = async (traceparents) => {
    const before = steps().length;
    const headers = traceparents.map((text) => ['traceparent', text]);
    const body = {model: 'm', prompt: [5, 6, 7], max_tokens: 6, n: 2, logit_bias: {2: -100}};
    const {status} = await gateway.ask('/completions', body, {headers});
    assert.equal(status, 200);
    const ran = () => steps().slice(before).filter(({sampled}) => sampled > 0);
    const sampled = () => ran().reduce((sum, step) => sum + step.sampled, 0);
    await eventually(() => sampled() >= 12, 'all steps are in the log');
    return ran().map((step) => step.trace_id);
  };

  test('has it in all of its steps', async () => {
    const traces = await tracesOf([header]);
    assert.ok(traces.length >= 6);
    assert.deepEqual([...new Set(traces)], [trace]);
  });

  test('has none where the header is wrong, or there are two', async () => {
    for (const headers of [[], ['00-1-2-3'], [header, header]]) {
      assert.deepEqual([...new Set(await tracesOf(headers))], [undefined]);
    }
  });

  test('beside another one is named by the steps in which it was added last', async () => {
    const begin = steps().length;
    const answers = [['a', 200], ['b', 5]];
    const [first, second] = answers.map(([digit, tokens]) => {
      const body = {model: 'm', prompt: [5, 6, 7], max_tokens: tokens, logit_bias: {2: -100}};
      const headers = {traceparent: `00-${digit.repeat(32)}-${parent}-00`};
      return {method: 'POST', headers, body: JSON.stringify({...body, stream: true})};
    });
    const url = `${gateway.url}/completions`;
    const reader = (await fetch(url, first)).body.getReader();
    await reader.read();
    await (await fetch(url, second)).text();
    while (!(await reader.read()).done);
    // The first one's again behind the second's: of it are the steps that follow.
    const traces = () => steps().slice(begin).map((step) => step.trace_id?.[0]);
    const turns = () => traces().filter((trace, i, all) => trace !== all[i - 1]).join('');
    await eventually(() => turns() === 'aba');
  });
});
