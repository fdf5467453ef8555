// SPDX-License-Identifier: Apache-2.0
// The gateway's metrics: what they count, by a clock of their own and after real requests.
import assert from 'node:assert/strict';
import {writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {after, before, describe, test} from 'node:test';

import {Server, eventually, llamaTiny, scratchFolder} from '../../node/testing/server.js';
import {Metrics} from '../src/metrics.js';
import {Gateway, llamaTinyText} from '../testing/gateway.js';

// Types by name, and values by name with labels, of Prometheus' text format.
function parse(text) {
  const types = {};
  const values = {};
  const helps = new Set();
  for (const line of text.split('\n').filter((one) => one !== '')) {
    const [, help] = /^# HELP (\w+) \S.*$/.exec(line) ?? [];
    const [, typed, type] = /^# TYPE (\w+) (counter|gauge|histogram)$/.exec(line) ?? [];
    const [, sample, value] = /^(\w+(?:\{\w+="[^"]*"(?:,\w+="[^"]*")*\})?) (\S+)$/.exec(line) ?? [];
    if (help) helps.add(help);
    else if (typed) types[typed] = type;
    else if (sample) values[sample] = Number(value);
    else assert.fail(`no metric: ${line}`);
  }
  assert.deepEqual([...helps].sort(), Object.keys(types).sort());
  assert.ok(text.endsWith('\n'));
  return {types, values};
}

const names = {
  reprise_gateway_requests_total: 'counter',
  reprise_gateway_answers_waiting: 'gauge',
  reprise_gateway_answers_running: 'gauge',
  reprise_gateway_connected: 'gauge',
  reprise_gateway_prompt_tokens_total: 'counter',
  reprise_gateway_answer_tokens_total: 'counter',
  reprise_gateway_queue_seconds: 'histogram',
  reprise_gateway_time_to_first_token_seconds: 'histogram',
  reprise_gateway_time_per_output_token_seconds: 'histogram',
};
// Values by what stands behind "reprise_gateway_".
const short = ({values}) =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name.slice(16), value]));

describe('metrics of answers', () => {
  test('an answer waits, has its first token, and tokens at a mean distance', async () => {
    const metrics = new Metrics();
    const generation = {prompt: [1, 2, 3, 4, 5], tokens: [], cachedTokens: 3, ended: false};
    const begin = performance.now();
    metrics.submitted(generation);
    const after = performance.now();
    const give = (count) => generation.tokens.push(...Array(count).fill(7));
    metrics.stepAnswered([generation], begin + 2000);
    let got = short(parse(await metrics.text()));
    assert.equal(got.queue_seconds_count, 1);
    const waited = got.queue_seconds_sum * 1000;
    assert.ok(waited >= begin + 2000 - after && waited <= 2000, `${waited}`);
    assert.equal(got['queue_seconds_bucket{le="1"}'], 0);
    assert.equal(got['queue_seconds_bucket{le="2.5"}'], 1);
    assert.equal(got['prompt_tokens_total{source="computed"}'], 0);
    give(1);
    metrics.stepAnswered([generation], begin + 9000);
    give(2);
    metrics.stepAnswered([generation], begin + 9000);
    got = short(parse(await metrics.text()));
    assert.equal(got.time_per_output_token_seconds_count, 0);
    generation.ended = true;
    give(1);
    metrics.stepAnswered([generation], begin + 9000);
    got = short(parse(await metrics.text()));
    assert.equal(got.queue_seconds_count, 1);
    assert.equal(got.time_to_first_token_seconds_count, 1);
    assert.equal(got.time_per_output_token_seconds_count, 1);
    assert.equal(got['prompt_tokens_total{source="computed"}'], 2);
    assert.equal(got['prompt_tokens_total{source="cached"}'], 3);
    assert.equal(got.answer_tokens_total, 4);
  });

  test('one that has a single token, or ends without, has no distance between tokens', async () => {
    const metrics = new Metrics();
    const generations = [[7], []].map((tokens) => {
      const generation = {prompt: [1, 2], tokens: [], cachedTokens: 0, ended: false};
      metrics.submitted(generation);
      return Object.assign(generation, {tokens, ended: true});
    });
    metrics.stepAnswered(generations, performance.now());
    const got = short(parse(await metrics.text()));
    assert.equal(got.time_to_first_token_seconds_count, 1);
    assert.equal(got.time_per_output_token_seconds_count, 0);
    assert.equal(got['prompt_tokens_total{source="computed"}'], 2);
  });
});

describe('metrics of a gateway', () => {
  const folder = scratchFolder();
  const key = 'the-key';
  let server;
  let gateway;
  before(async () => {
    const small = ['--max-rows', '4', '--block-size', '5', '--kv-cache', '256KiB'];
    server = await new Server(llamaTiny, small, folder).start();
    writeFileSync(join(folder, 'key'), key);
    const flags = ['--address', server.socket, '--model', llamaTinyText, '--model-name', 'm'];
    gateway = await new Gateway([...flags, '--api-key-file', join(folder, 'key')]).start();
  });
  after(async () => {
    assert.equal(await gateway.stop(), 0, gateway.output);
    assert.equal(await server.remove(), 0, server.output);
  });

  const headers = {authorization: `Bearer ${key}`};
  const url = () => gateway.url.replace('/v1', '/metrics');
  const read = async () => {
    const response = await fetch(url(), {headers});
    assert.equal(response.status, 200);
    assert.match(response.headers.get('content-type'), /^text\/plain; version=0\.0\.4/);
    return parse(await response.text());
  };
  const ask = (path, body) => gateway.ask(path, body, {headers});
  const prompt = Array.from({length: 40}, (_, i) => 10 + i);
  const request = {model: 'm', prompt, max_tokens: 6, logit_bias: {2: -100}};

  test('have their names and types before anything was asked', async () => {
    const got = await read();
    assert.deepEqual(got.types, names);
    const {connected, answers_waiting: waiting, answers_running: running} = short(got);
    assert.deepEqual([connected, waiting, running], [1, 0, 0]);
  });

  test('are refused without the key', async () => {
    assert.equal((await fetch(url())).status, 401);
  });

  test('count requests, tokens and times as the answers say', async () => {
    const first = short(await read());
    const bodies = [];
    for (let i = 0; i < 3; ++i) bodies.push((await ask('/completions', request)).body);
    const stream = {stream: true, stream_options: {include_usage: true}};
    await ask('/completions', {...request, ...stream, n: 2, prompt: [5, 6, 7], max_tokens: 1});
    const messages = [{role: 'user', content: 'hello'}];
    bodies.push((await ask('/chat/completions', {model: 'm', messages, max_tokens: 4})).body);
    await ask('/completions', {...request, model: 'other'});
    await ask('/completions', {...request, n: 'x'});
    const paths = ['/models', '/models/m', '/models/none', '/nothing', '/%zz'];
    for (const path of paths) await ask(path);

    const usage = bodies.map((body) => body.usage);
    const sum = (read) => usage.reduce((total, one) => total + read(one), 0);
    const cached = sum((one) => one.prompt_tokens_details.cached_tokens);
    assert.ok(cached > 0);
    const expected = {
      'requests_total{route="/v1/completions",code="200"}': 4,
      'requests_total{route="/v1/completions",code="404"}': 1,
      'requests_total{route="/v1/completions",code="400"}': 1,
      'requests_total{route="/v1/chat/completions",code="200"}': 1,
      'requests_total{route="/v1/models",code="200"}': 1,
      'requests_total{route="/v1/models/{model}",code="200"}': 1,
      'requests_total{route="/v1/models/{model}",code="404"}': 1,
      'requests_total{route="other",code="404"}': 1,
      'requests_total{route="other",code="400"}': 1,
      'prompt_tokens_total{source="computed"}': sum((one) => one.prompt_tokens) - cached + 2 * 3,
      'prompt_tokens_total{source="cached"}': cached,
      answer_tokens_total: sum((one) => one.completion_tokens) + 2,
      queue_seconds_count: 6,
      time_to_first_token_seconds_count: 6,
      time_per_output_token_seconds_count: 4,
    };
    let got;
    await eventually(async () => {
      got = short(await read());
      return got['requests_total{route="other",code="400"}'] === 1;
    });
    const grown = (name) => got[name] - (first[name] ?? 0);
    assert.deepEqual(
      Object.fromEntries(Object.keys(expected).map((name) => [name, grown(name)])),
      expected,
    );
    assert.ok(grown('requests_total{route="/metrics",code="200"}') >= 1);
    for (const name of ['queue', 'time_to_first_token', 'time_per_output_token']) {
      const total = got[`${name}_seconds_sum`];
      assert.ok(total > 0 && total < 60, `${name}: ${total}`);
      const all = got[`${name}_seconds_bucket{le="+Inf"}`];
      assert.equal(all, got[`${name}_seconds_count`]);
    }
  });

  test('say how many answers run and wait, and which clients went away', async () => {
    const gone = new AbortController();
    const long = {...request, n: 20, max_tokens: 150};
    const asked = ask('/completions', {...long, temperature: 1}).catch(() => {});
    const body = JSON.stringify({...long, temperature: 1});
    const options = {method: 'POST', body, headers, signal: gone.signal};
    const left = fetch(`${gateway.url}/completions`, options).catch(() => {});
    await eventually(async () => {
      const {answers_running: running, answers_waiting: waiting} = short(await read());
      return running === 4 && waiting > 20; // both requests are there
    });
    gone.abort();
    await Promise.all([asked, left]);
    await eventually(async () => {
      const got = short(await read());
      const {answers_running: running, answers_waiting: waiting} = got;
      const code = got['requests_total{route="/v1/completions",code="499"}'];
      return running === 0 && waiting === 0 && code === 1;
    });
  });
});
