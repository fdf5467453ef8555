// SPDX-License-Identifier: Apache-2.0
// The gateway against `reprise serve` with a fixture model: requests as curl sends them, and the
// official openai client.
import assert from 'node:assert/strict';
import {once} from 'node:events';
import {writeFileSync} from 'node:fs';
import {request as httpRequest} from 'node:http';
import {connect} from 'node:net';
import {join} from 'node:path';
import {after, before, describe, test} from 'node:test';
import {setTimeout as sleep} from 'node:timers/promises';

import OpenAI from 'openai';
import {Client} from 'reprise-client';

import {
  Proxy,
  Server,
  eventually,
  llamaTiny,
  makeIdentities,
  referenceOf,
  repository,
  scratchFolder,
} from '../../node/testing/server.js';
import {TextModel} from '../src/text_model.js';
import {Gateway, eventsOf, llamaTinyText} from '../testing/gateway.js';

const small = ['--max-rows', '4', '--block-size', '5', '--kv-cache'];
const textModel = new TextModel(llamaTinyText);
const endOfText = 2;
const reference = referenceOf(llamaTiny).map(({tokens, greedy_tokens: greedy}) => {
  const end = greedy.indexOf(endOfText);
  const answer = end < 0 ? greedy : greedy.slice(0, end + 1);
  return {tokens, answer, text: textModel.decode(answer), finish: end < 0 ? 'length' : 'stop'};
});
const numTokens = 24; // of each answer
const model = 'llama-tiny';
const ask = (i, more) => {
  return {model, prompt: reference[i].tokens, max_tokens: numTokens, temperature: 0, ...more};
};

function startGateway(server, ...more) {
  const flags = ['--address', server.socket, '--model', llamaTinyText, '--model-name', model];
  return new Gateway([...flags, ...more]).start();
}

// Requests that are refused: what is asked, the status, and `param` and `code` of the error.
const refusals = [
  [{model: 'other', prompt: 'a'}, 404, 'model', 'model_not_found'],
  [{prompt: 'a'}, 400, 'model', 'invalid_value'],
  [{model}, 400, 'prompt', 'invalid_value'],
  [{model, prompt: ''}, 400, 'prompt', 'invalid_value'],
  [{model, prompt: []}, 400, 'prompt', 'invalid_value'],
  [{model, prompt: [1, 199]}, 400, 'prompt', 'invalid_value'],
  [{model, prompt: 'a'.repeat(300)}, 400, 'prompt', 'context_length_exceeded'],
  [{model, prompt: 'a', max_tokens: 256}, 400, 'prompt', 'context_length_exceeded'],
  [{model, prompt: 'a', max_tokens: 0}, 400, 'max_tokens', 'invalid_value'],
  [{model, prompt: 'a', max_tokens: '5'}, 400, 'max_tokens', 'invalid_value'],
  [{model, prompt: 'a', temperature: 3}, 400, 'temperature', 'invalid_value'],
  [{model, prompt: 'a', top_p: -1}, 400, 'top_p', 'invalid_value'],
  [{model, prompt: 'a', n: 1.5}, 400, 'n', 'invalid_value'],
  [{model, prompt: 'a', stop: ['']}, 400, 'stop', 'invalid_value'],
  [{model, prompt: 'a', logit_bias: {199: 1}}, 400, 'logit_bias', 'invalid_value'],
  [{model, prompt: 'a', logit_bias: 'none'}, 400, 'logit_bias', 'invalid_value'],
  [{model, prompt: 'a', logit_bias: [1]}, 400, 'logit_bias', 'invalid_value'],
  [{model, prompt: 'a', logit_bias: {'': 1}}, 400, 'logit_bias', 'invalid_value'],
  [{model, prompt: 'a', logit_bias: {'0x5': 1}}, 400, 'logit_bias', 'invalid_value'],
  [{model, prompt: 'a', logit_bias: {'05': 1}}, 400, 'logit_bias', 'invalid_value'],
  [{model, prompt: 'a', logprobs: 1000}, 400, 'logprobs', 'invalid_value'],
  [{model, prompt: 'a', stream: 1}, 400, 'stream', 'invalid_value'],
  [{model, prompt: 'a', stream_options: {}}, 400, 'stream_options', 'invalid_value'],
  [{model, prompt: 'a', best_of: 2}, 400, 'best_of', 'unsupported_parameter'],
  [{model, prompt: 'a', echo: true}, 400, 'echo', 'unsupported_parameter'],
  [{model, prompt: 'a', temprature: 1}, 400, 'temprature', 'unknown_parameter'],
  [[], 400, 'body', 'invalid_value'],
];

describe('the gateway', () => {
  let server;
  let gateway;
  let client; // of the step service

  before(async () => {
    server = await new Server(llamaTiny, [...small, '256KiB']).start();
    gateway = await startGateway(server, '--prefix-blocks', '0');
    client = new Client(server.socket);
  });
  after(async () => {
    client.close();
    assert.equal(await gateway.stop(), 0, gateway.output);
    assert.equal(await server.remove(), 0, server.output);
  });
  const freeBlocks = async () => (await client.describe()).pool.freeBlocks;

  test('lists its model', async () => {
    const {body} = await gateway.ask('/models');
    assert.equal(body.object, 'list');
    assert.equal(body.data[0].id, model);
    assert.equal((await gateway.ask(`/models/${model}`)).body.max_model_len, 256);
    assert.equal((await gateway.ask('/models/other')).body.error.code, 'model_not_found');
  });

  test('completions in one batch are those of the reference', async () => {
    const asked = reference.map((_, i) => gateway.complete(ask(i)));
    for (const [i, {status, body}] of (await Promise.all(asked)).entries()) {
      const {text, finish, tokens, answer} = reference[i];
      assert.equal(status, 200);
      assert.equal(body.object, 'text_completion');
      assert.deepEqual(body.choices, [{index: 0, text, finish_reason: finish, logprobs: null}]);
      const {prompt_tokens: prompt, completion_tokens: completion} = body.usage;
      assert.deepEqual([prompt, completion], [tokens.length, answer.length]);
    }
  });

  test('a stream has the same text in pieces, then the usage, then its end', async () => {
    const stream = {stream: true, stream_options: {include_usage: true}};
    const {body} = await gateway.complete(ask(2, stream));
    const events = eventsOf(body);
    assert.equal(events.pop(), '[DONE]');
    const usage = events.pop();
    assert.deepEqual(usage.choices, []);
    assert.equal(usage.usage.completion_tokens, reference[2].answer.length);
    const pieces = events.map((event) => event.choices[0]);
    assert.ok(pieces.length > 5);
    assert.equal(pieces.map((piece) => piece.text).join(''), reference[2].text);
    const last = pieces.pop();
    assert.equal(last.finish_reason, reference[2].finish);
    assert.ok(pieces.every((piece) => piece.finish_reason === null));
  });

  test('text ends before a stop string', async () => {
    const {text} = reference[1];
    const stop = text.slice(5, 8);
    const {body} = await gateway.complete(ask(1, {stop: ['never there', stop]}));
    assert.equal(body.choices[0].text, text.slice(0, text.indexOf(stop)));
    assert.equal(body.choices[0].finish_reason, 'stop');
    assert.ok(body.usage.completion_tokens < numTokens);
  });

  test('several prompts and choices are answered in order, seeds again the same', async () => {
    const prompt = [reference[0].tokens, reference[1].tokens];
    const body = {model, prompt, n: 2, max_tokens: 8, temperature: 1, seed: 7};
    const [first, second] = [await gateway.complete(body), await gateway.complete(body)];
    assert.deepEqual(first.body.choices.map(({index}) => index), [0, 1, 2, 3]);
    assert.deepEqual(first.body.choices, second.body.choices);
    assert.notEqual(first.body.choices[0].text, first.body.choices[1].text);
    const total = first.body.usage.prompt_tokens;
    assert.equal(total, prompt[0].length + prompt[1].length);
  });

  test('log-probabilities come with the tokens that were asked for', async () => {
    const {body} = await gateway.complete(ask(1, {logprobs: 2, max_tokens: 3}));
    const {logprobs} = body.choices[0];
    const expected = reference[1].answer.slice(0, 3).map((id) => textModel.tokenText(id));
    assert.deepEqual(logprobs.tokens, expected);
    assert.ok(logprobs.token_logprobs.every((value) => value < 0));
    assert.equal(Object.keys(logprobs.top_logprobs[0]).length, 2);
  });

  test('text offsets of a stream go on from piece to piece, by choice', async () => {
    const request = ask(1, {logprobs: 0, n: 2, temperature: 1, seed: 3, max_tokens: 12});
    const {body} = await gateway.complete(request);
    const stream = await gateway.complete({...request, stream: true});
    const pieces = eventsOf(stream.body).flatMap((event) => event.choices ?? []);
    for (const {index, logprobs} of body.choices) {
      const own = pieces.filter((piece) => piece.index === index);
      assert.ok(own.length > 2);
      assert.deepEqual(own.flatMap((piece) => piece.logprobs.text_offset), logprobs.text_offset);
    }
  });

  for (const [body, status, param, code] of refusals) {
    test(`refuses ${JSON.stringify(body).slice(0, 60)}`, async () => {
      const got = await gateway.complete(body);
      assert.equal(got.status, status);
      const {error} = got.body;
      assert.deepEqual([error.param, error.code], [param, code]);
      assert.equal(error.type, 'invalid_request_error');
      assert.ok(error.message.length > 10);
    });
  }

  test('refuses what is no JSON, no path, no method', async () => {
    const bad = await gateway.ask('/completions', undefined, {method: 'POST', body: '{"a"'});
    assert.deepEqual([bad.status, bad.body.error.code], [400, 'invalid_json']);
    assert.equal((await gateway.ask('/embeddings', {})).body.error.code, 'unknown_url');
    assert.equal((await gateway.ask('/completions')).status, 405);
    const large = {model, prompt: 'a'.repeat(9 << 20)};
    assert.equal((await gateway.complete(large)).status, 413);
  });

  for (const field of ['stop', 'suffix']) {
    test(`refuses ${field} nested too deeply`, async () => {
      const deep = '['.repeat(100000) + ']'.repeat(100000);
      const body = `{"model": "${model}", "prompt": "a", "${field}": [1, ${deep}]}`;
      const got = await gateway.ask('/completions', undefined, {method: 'POST', body});
      assert.deepEqual([got.status, got.body.error.param], [400, field]);
    });
  }

  test('refuses more answers than may wait before it makes them', async () => {
    for (const [n, length, param, count] of [
      [128, 200000, 'n', 25600000],
      [1, 1025, 'prompt', 1025],
    ]) {
      const prompt = Array.from({length}, () => [5]);
      const {status, body} = await gateway.complete({model, n, max_tokens: 1, prompt});
      const {error} = body;
      assert.deepEqual([status, error.code, error.param], [400, 'invalid_value', param]);
      assert.match(error.message, new RegExp(`got ${count} answers.*allowed: at most 1024`));
    }
  });

  test('a client that goes away frees its row and its blocks', async () => {
    const before = (await client.describe()).pool.numBlocks - 1;
    await eventually(async () => (await freeBlocks()) === before);
    const gone = new AbortController();
    const long = ask(0, {max_tokens: 200, stream: true, temperature: 1, logit_bias: {2: -100}});
    const body = JSON.stringify(long);
    const signal = gone.signal;
    const taken = eventually(async () => (await freeBlocks()) < before);
    const response = await fetch(`${gateway.url}/completions`, {method: 'POST', body, signal});
    await response.body.getReader().read();
    await taken;
    gone.abort();
    await eventually(async () => (await freeBlocks()) === before);
    assert.equal((await gateway.complete(ask(1))).body.choices[0].text, reference[1].text);
  });

  describe('with the openai client', () => {
    let openai;
    const messages = [
      {role: 'system', content: 'the rules'},
      {role: 'user', content: [{type: 'text', text: 'hello'}]},
    ];
    before(() => {
      openai = new OpenAI({baseURL: gateway.url, apiKey: 'none', maxRetries: 0});
    });

    test('a chat is answered at once and as a stream alike', async () => {
      const request = {model, messages, temperature: 0, max_completion_tokens: 20};
      const whole = await openai.chat.completions.create(request);
      assert.equal(whole.object, 'chat.completion');
      assert.equal(whole.choices[0].message.role, 'assistant');
      const prompt = textModel.encodeChat([messages[0], {role: 'user', content: 'hello'}]);
      assert.equal(whole.usage.prompt_tokens, prompt.length);
      const raw = await gateway.complete({model, prompt, temperature: 0, max_tokens: 20});
      assert.equal(whole.choices[0].message.content, raw.body.choices[0].text);

      const options = {stream: true, stream_options: {include_usage: true}};
      const stream = await openai.chat.completions.create({...request, ...options});
      let text = '';
      let last;
      let usage;
      for await (const {choices, usage: told} of stream) {
        if (text === '' && choices[0]?.delta.role) assert.equal(choices[0].delta.role, 'assistant');
        text += choices[0]?.delta.content ?? '';
        last = choices[0]?.finish_reason ?? last;
        usage = told ?? usage;
      }
      assert.equal(text, whole.choices[0].message.content);
      assert.equal(last, whole.choices[0].finish_reason);
      assert.equal(usage.total_tokens, whole.usage.total_tokens);
    });

    test('log-probabilities of a chat', async () => {
      const more = {logprobs: true, top_logprobs: 3, max_tokens: 4, temperature: 0};
      const {choices} = await openai.chat.completions.create({model, messages, ...more});
      const {content} = choices[0].logprobs;
      assert.equal(content[0].top_logprobs.length, 3);
      assert.equal(content[0].logprob, content[0].top_logprobs[0].logprob);
    });

    test('errors are those of its classes', async () => {
      const create = (more) => openai.chat.completions.create({model, messages, ...more});
      await assert.rejects(create({model: 'other'}), OpenAI.NotFoundError);
      await assert.rejects(create({messages: []}), OpenAI.BadRequestError);
      const tooLong = {status: 400, code: 'context_length_exceeded'};
      await assert.rejects(create({max_tokens: 300}), tooLong);
      const tools = [{type: 'function', function: {name: 'f'}}];
      await assert.rejects(create({tools}), {status: 400, code: 'unsupported_parameter'});
      const format = {response_format: {type: 'xml'}};
      await assert.rejects(create(format), {status: 400, param: 'response_format'});
      await assert.rejects(create({messages: [{role: 'critic', content: ''}]}), /role critic/);
      const url = `data:image/png;base64,${'A'.repeat(999)}`;
      const image = {type: 'image_url', image_url: {url}};
      const seen = [{role: 'user', content: [{type: 'text', text: 'what is it?'}, image]}];
      await assert.rejects(create({messages: seen}), {
        status: 400,
        param: 'messages[0].content[1].type',
        message:
          '400 messages[0].content[1].type: got "image_url", allowed: "text": models are given ' +
          'text alone, no images',
      });
      const untold = [{role: 'user', content: [{type: 'text'}]}];
      await assert.rejects(create({messages: untold}), {param: 'messages[0].content[0].text'});
      const number = [{role: 'user', content: 3}];
      await assert.rejects(create({messages: number}), {param: 'messages[0].content'});
    });

    test('lists models', async () => {
      const ids = [];
      for await (const {id} of openai.models.list()) ids.push(id);
      assert.deepEqual(ids, [model]);
    });
  });
});

describe('a gateway whose server has little room', () => {
  test('finishes more than fits at a time, and refuses what never finds room', async () => {
    const server = await new Server(llamaTiny, [...small, '64KiB']).start();
    const gateway = await startGateway(server, '--queue-timeout', '60', '--step-tokens', '24');
    const asked = Array.from({length: 24}, (_, i) => gateway.complete(ask(i % 3)));
    for (const [i, {body}] of (await Promise.all(asked)).entries()) {
      assert.equal(body.choices?.[0].text, reference[i % 3].text, JSON.stringify(body));
    }
    assert.equal(await gateway.stop(), 0, gateway.output);

    const impatient = await startGateway(server, '--queue-timeout', '0.2', '--max-queue', '1');
    const client = new Client(server.socket);
    const session = await client.openSession();
    await session.allocate((await client.describe()).pool.freeBlocks);
    const first = impatient.complete(ask(0));
    await eventually(async () => (await impatient.complete(ask(0))).status === 503);
    const refused = await first;
    assert.deepEqual([refused.status, refused.body.error.code], [503, 'overloaded']);
    assert.equal(refused.body.error.type, 'server_error');
    await session.close();
    const text = async () => (await impatient.complete(ask(1))).body.choices?.[0].text;
    await eventually(async () => (await text()) === reference[1].text);
    client.close();
    assert.equal(await impatient.stop(), 0, impatient.output);
    assert.equal(await server.remove(), 0, server.output);
  });

  test('shares rows with other sessions', async () => {
    const server = await new Server(llamaTiny, [...small, '256KiB']).start();
    const gateway = await startGateway(server);
    const client = new Client(server.socket);
    const session = await client.openSession();
    const blocks = await session.allocate(3);
    const add = blocks.map((block, row) => ({row, blocks: [block]}));
    const chunks = blocks.map((_, row) => ({row, tokens: [1], sample: true}));
    await session.step({add, chunks});
    const asked = Array.from({length: 6}, (_, i) => gateway.complete(ask(i % 3)));
    for (const [i, {body}] of (await Promise.all(asked)).entries()) {
      assert.equal(body.choices?.[0].text, reference[i % 3].text, JSON.stringify(body));
    }
    await session.close();
    client.close();
    assert.equal(await gateway.stop(), 0, gateway.output);
    assert.equal(await server.remove(), 0, server.output);
  });

  test('refuses what waits too long for a row of other sessions', async () => {
    const server = await new Server(llamaTiny, [...small, '256KiB']).start();
    const gateway = await startGateway(server, '--queue-timeout', '0.5');
    const client = new Client(server.socket);
    const session = await client.openSession();
    const blocks = await session.allocate(4);
    const add = blocks.map((block, row) => ({row, blocks: [block]}));
    await session.step({add, chunks: [{row: 0, tokens: [1], sample: true}]});
    const refused = await gateway.complete(ask(0));
    assert.deepEqual([refused.status, refused.body.error?.code], [503, 'overloaded']);
    await session.close();
    assert.equal((await gateway.complete(ask(1))).body.choices?.[0].text, reference[1].text);
    client.close();
    assert.equal(await gateway.stop(), 0, gateway.output);
    assert.equal(await server.remove(), 0, server.output);
  });
});

describe('a gateway whose session has a quota', () => {
  test('refuses at once what needs more blocks, and serves others', async () => {
    const quota = ['--max-session-blocks', '3']; // 15 tokens
    const server = await new Server(llamaTiny, [...small, '256KiB', ...quota]).start();
    const gateway = await startGateway(server, '--queue-timeout', '60');
    const prompts = [30, 4].map((length) => Array.from({length}, (_, i) => 10 + i));
    const more = {model, temperature: 0, logit_bias: {2: -100}};
    const begin = performance.now();
    // The first never fits, the second grows too long, the others fit.
    const asked = [
      gateway.complete({...more, prompt: prompts[0], max_tokens: 4}),
      gateway.complete({...more, prompt: prompts[1], max_tokens: 40}),
      ...[1, 2, 3].map(() => gateway.complete({...more, prompt: prompts[1], max_tokens: 11})),
    ];
    const answers = await Promise.all(asked);
    for (const {status, body} of answers.splice(0, 2)) {
      assert.deepEqual([status, body.error?.code], [400, 'context_length_exceeded']);
      assert.match(body.error.message, /15/);
    }
    for (const {status, body} of answers) assert.equal(status, 200, JSON.stringify(body));
    assert.ok(performance.now() - begin < 30000);
    assert.equal(await gateway.stop(), 0, gateway.output);
    assert.equal(await server.remove(), 0, server.output);
  });

  test('keeps half of it for prompts that begin alike', async () => {
    const quota = ['--max-session-blocks', '20'];
    const server = await new Server(llamaTiny, [...small, '256KiB', ...quota]).start();
    const gateway = await startGateway(server);
    const client = new Client(server.socket);
    for (let i = 0; i < 6; ++i) {
      const prompt = Array.from({length: 30}, (_, j) => 10 + 20 * i + j);
      const {status, body} = await gateway.complete({model, prompt, max_tokens: 2});
      assert.equal(status, 200, JSON.stringify(body));
    }
    const heldBlocks = async () => {
      const {numBlocks, freeBlocks} = (await client.describe()).pool;
      return numBlocks - 1 - freeBlocks;
    };
    await eventually(async () => (await heldBlocks()) <= 10, 'half is given back');
    assert.equal(await heldBlocks(), 10);
    client.close();
    assert.equal(await gateway.stop(), 0, gateway.output);
    assert.equal(await server.remove(), 0, server.output);
  });
});

describe('a gateway that is told to stop', () => {
  test('sends what was accepted to a client that is slow', async () => {
    const flags = ['--max-rows', '64', '--kv-cache', '4MiB'];
    const server = await new Server(llamaTiny, flags).start();
    const gateway = await startGateway(server);
    // More than the system holds for a connection.
    const body = {model, prompt: [5], n: 128, max_tokens: 150, temperature: 1, logprobs: 20};
    const request = httpRequest(`${gateway.url}/completions`, {method: 'POST'});
    request.end(JSON.stringify({...body, logit_bias: {2: -100}}));
    const [response] = await once(request, 'response');
    const stopped = gateway.stop();
    await sleep(2500);
    const chunks = [];
    for await (const chunk of response) chunks.push(chunk);
    const {choices} = JSON.parse(Buffer.concat(chunks).toString());
    assert.deepEqual(choices.map(({logprobs}) => logprobs.tokens.length), Array(128).fill(150));
    assert.equal(await stopped, 0, gateway.output);
    assert.equal(await server.remove(), 0, server.output);
  });

  test('does not wait for a request that never comes whole', async () => {
    const server = await new Server(llamaTiny, [...small, '256KiB']).start();
    const gateway = await startGateway(server);
    const {hostname, port} = new URL(gateway.url);
    const socket = connect(Number(port), hostname);
    socket.on('error', () => {});
    socket.write('POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{');
    await gateway.complete(ask(0)); // by now the gateway has the other one
    const late = sleep(20000).then(() => gateway.stop('SIGKILL'));
    assert.equal(await Promise.race([gateway.stop(), late]), 0, gateway.output);
    socket.destroy();
    assert.equal(await server.remove(), 0, server.output);
  });
});

describe('a gateway that loses its session', () => {
  let server;
  const texts = async (asked) => {
    for (const [i, {body}] of (await Promise.all(asked)).entries()) {
      assert.equal(body.choices?.[0].text, reference[i % 3].text, JSON.stringify(body));
    }
  };
  before(async () => {
    server = await new Server(llamaTiny, [...small, '256KiB', '--allow-administration']).start();
  });
  after(async () => assert.equal(await server.remove(), 0, server.output));

  test('goes on with it after a lost connection', async () => {
    const proxy = new Proxy();
    const gateway = await startGateway({socket: await proxy.start(server.tcp)});
    const asked = Array.from({length: 24}, (_, i) => gateway.complete(ask(i % 3)));
    for (let i = 0; i < 3; ++i) {
      await asked[4 * i];
      proxy.cut();
    }
    await texts(asked);
    assert.equal(await gateway.stop(), 0, gateway.output);
    proxy.stop();
  });

  test('opens another one where it was evicted', async () => {
    const gateway = await startGateway(server, '--prefix-seconds', '0.1');
    const client = new Client(server.socket);
    const asked = Array.from({length: 24}, (_, i) => gateway.complete(ask(i % 3)));
    await asked[0];
    for await (const {id} of client.listSessions()) await client.evictSession(id, 'for the test');
    await texts(asked);
    await eventually(() => /for the test/.test(gateway.output));
    const {pool} = await client.describe();
    await eventually(async () => (await client.describe()).pool.freeBlocks === pool.numBlocks - 1);
    client.close();
    assert.equal(await gateway.stop(), 0, gateway.output);
  });
});

describe('a gateway whose server dies', () => {
  test('finishes its requests on the next one', async () => {
    const folder = scratchFolder();
    const flags = [...small, '256KiB'];
    const first = await new Server(llamaTiny, flags, folder).start();
    const gateway = await startGateway(first);
    const asked = Array.from({length: 40}, (_, i) => gateway.complete(ask(i % 3)));
    await Promise.race(asked);
    await first.stop('SIGKILL');
    const second = await new Server(llamaTiny, flags, folder).start();
    for (const [i, {body}] of (await Promise.all(asked)).entries()) {
      assert.equal(body.choices?.[0].text, reference[i % 3].text, JSON.stringify(body));
    }
    assert.match(gateway.output, /a new session is open/);
    assert.equal(await gateway.stop(), 0, gateway.output);
    assert.equal(await second.remove(), 0, second.output);
  });

  test('says so where no other comes', async () => {
    const server = await new Server(llamaTiny, [...small, '256KiB']).start();
    const gateway = await startGateway(server, '--queue-timeout', '0.3');
    const health = () => fetch(gateway.url.replace('/v1', '/health'));
    assert.equal((await health()).status, 200);
    await server.stop('SIGKILL');
    const refused = await gateway.complete(ask(0));
    assert.deepEqual([refused.status, refused.body.error.code], [503, 'overloaded']);
    await eventually(async () => (await health()).status === 503);
    assert.equal(await gateway.stop(), 0, gateway.output);
    await server.remove();
  });
});

describe('a gateway whose prompts begin alike', () => {
  const shared = Array.from({length: 64}, (_, i) => 10 + ((i * 37) % 150));
  const prompts = Array.from({length: 6}, (_, i) => [
    ...shared,
    ...[...Array(7 + i)].map(() => 20 + i),
  ]);
  const request = (prompt, more) => {
    return {model, prompt, max_tokens: 24, temperature: 1, seed: 5, logit_bias: {2: -100}, ...more};
  };
  let server;
  let client;
  before(async () => {
    server = await new Server(llamaTiny, [...small, '256KiB']).start();
    client = new Client(server.socket);
  });
  after(async () => {
    client.close();
    assert.equal(await server.remove(), 0, server.output);
  });
  const pool = async () => (await client.describe()).pool;
  const cachedOf = ({body}) => body.usage.prompt_tokens_details.cached_tokens;

  // Choices of the prompts on a gateway that shares nothing.
  async function expected(more) {
    const gateway = await startGateway(server, '--prefix-blocks', '0');
    const answers = [];
    for (const prompt of prompts) answers.push(await gateway.complete(request(prompt, more)));
    assert.ok(answers.every((answer) => cachedOf(answer) === 0));
    assert.equal(await gateway.stop(), 0, gateway.output);
    return answers.map(({body}) => body.choices);
  }

  test('answers the same tokens, together and in turn, and frees all blocks', async () => {
    const more = {n: 2, logprobs: 1};
    const right = await expected(more);
    const gateway = await startGateway(server, '--prefix-seconds', '2');
    const together = await Promise.all(
      prompts.map((prompt) => gateway.complete(request(prompt, more))),
    );
    for (const [i, {body}] of together.entries()) assert.deepEqual(body.choices, right[i]);
    assert.ok(together.filter((answer) => cachedOf(answer) >= 60).length >= 5);
    const cached = [];
    for (const [i, prompt] of prompts.entries()) {
      const answer = await gateway.complete(request(prompt, more));
      assert.deepEqual(answer.body.choices, right[i]);
      assert.ok(cachedOf(answer) >= 60);
      cached.push(cachedOf(answer));
    }
    // Begins of blocks as well.
    assert.ok(cached.some((tokens) => tokens % 5 !== 0), `${cached}`);
    const {numBlocks} = await pool();
    await eventually(async () => (await pool()).freeBlocks === numBlocks - 1);
    assert.equal(await gateway.stop(), 0, gateway.output);
  });

  test('keeps blocks between requests until others need them', async () => {
    const right = await expected({});
    const gateway = await startGateway(server, '--prefix-blocks', '1000');
    for (const [i, prompt] of prompts.entries()) {
      const {body} = await gateway.complete(request(prompt));
      assert.deepEqual(body.choices, right[i]);
    }
    const {numBlocks} = await pool();
    await eventually(async () => (await pool()).freeBlocks > numBlocks / 2);
    assert.ok((await pool()).freeBlocks < numBlocks - 12);
    // Prompts of their own, more than the pool holds with what is kept.
    const others = Array.from({length: 30}, (_, i) =>
      Array.from({length: 200}, (_, j) => (i * 7 + j) % 190),
    );
    const asked = others.map((prompt) => gateway.complete(request(prompt, {max_tokens: 50})));
    for (const {status} of await Promise.all(asked)) assert.equal(status, 200);
    const again = await gateway.complete(request(prompts[0]));
    assert.deepEqual(again.body.choices, right[0]);
    assert.equal(await gateway.stop(), 0, gateway.output);
    assert.equal((await pool()).freeBlocks, numBlocks - 1);
  });

  test('a prompt of almost the whole pool takes what is kept', async () => {
    const tiny = await new Server(llamaTiny, [...small, '32KiB']).start();
    const gateway = await startGateway(tiny, '--prefix-blocks', '1000', '--queue-timeout', '5');
    // Of 11 blocks; the last one shares four of them.
    const [first, second] = [0, 1].map((i) => Array.from({length: 45}, (_, j) => 10 + i + j));
    for (const prompt of [first, second, [...second.slice(0, 20), ...first.slice(0, 25)]]) {
      const {status, body} = await gateway.complete({model, prompt, max_tokens: 4});
      assert.equal(status, 200, JSON.stringify(body));
    }
    assert.equal(await gateway.stop(), 0, gateway.output);
    assert.equal(await tiny.remove(), 0, tiny.output);
  });

  test('of JSON and with penalties too', async () => {
    const more = {
      ...{response_format: {type: 'json_object'}, temperature: 2, max_tokens: 60},
      ...{presence_penalty: 1, repetition_penalty: 1.2, logit_bias: {}},
    };
    const right = await expected(more);
    const gateway = await startGateway(server);
    const asked = prompts.map((prompt) => gateway.complete(request(prompt, more)));
    for (const [i, {body}] of (await Promise.all(asked)).entries()) {
      assert.deepEqual(body.choices, right[i]);
    }
    assert.equal(await gateway.stop(), 0, gateway.output);
  });
});

describe('identity', () => {
  test('keys of the gateway, TLS and tokens of the server', async () => {
    const folder = scratchFolder();
    const token = 'a-token-for-tests-0123456789';
    const flags = makeIdentities(folder, token);
    const server = await new Server(llamaTiny, [...small, '256KiB', ...flags], folder).start();
    writeFileSync(join(folder, 'token'), `${token}\n`);
    writeFileSync(join(folder, 'key'), 'the-key\n');
    const files = ['--token-file', join(folder, 'token'), '--tls-ca', join(folder, 'server.pem')];
    const keys = ['--api-key-file', join(folder, 'key')];
    const gateway = await startGateway({socket: server.tcp}, ...files, ...keys);
    const wrong = await gateway.complete(ask(0));
    assert.deepEqual([wrong.status, wrong.body.error.code], [401, 'invalid_api_key']);
    const openai = new OpenAI({baseURL: gateway.url, apiKey: 'the-key', maxRetries: 0});
    const {choices} = await openai.completions.create(ask(1));
    assert.equal(choices[0].text, reference[1].text);
    assert.equal(await gateway.stop(), 0, gateway.output);
    assert.equal(await server.remove(), 0, server.output);
  });

  test('flags that are wrong are refused', async () => {
    const known = ['--address', 'unix:/a', '--model', llamaTinyText];
    const wrong = [
      [[], /--address: got nothing/],
      [['--address', 'unix:/a'], /--model: got nothing/],
      [['--address', 'unix:/a', '--model', '/no/such'], /tokenizer.json: no such file/],
      [['--address', 'unix:/a', '--model', 'm', '--listen', '0.0.0.0:0'], /without a key/],
      [[...known, '--max-rows', 'x'], /--max-rows: got x/],
      [[...known, '--max-queue', '0'], /--max-queue: got 0, allowed: a whole number from 1 on/],
      [[...known, '--prefix-blocks', 'x'], /--prefix-blocks: got x/],
      [[...known, '--prefix-seconds', '0'], /--prefix-seconds: got 0/],
      [['--adress', 'unix:/a'], /Unknown option/],
      [['--address', 'unix:/no/such/socket', '--model', llamaTinyText], /--address/],
    ];
    const tryOne = async ([flags, message]) => {
      const gateway = await new Gateway(flags).start();
      assert.equal(await gateway.child.exited(), 1);
      assert.match(gateway.output, message);
    };
    await Promise.all(wrong.map(tryOne));
  });
});

test('a model that reads like its training text', async () => {
  const directory = join(repository, 'examples/byte-llama');
  const server = await new Server(directory, ['--kv-cache', '16MiB']).start();
  const gateway = await new Gateway(['--address', server.socket, '--model', directory]).start();
  const openai = new OpenAI({baseURL: gateway.url, apiKey: 'none', maxRetries: 0});
  const prompt = 'You may copy and distribute';
  const request = {model: 'byte-llama', prompt, temperature: 0, max_tokens: 20};
  const {choices} = await openai.completions.create(request);
  assert.equal(choices[0].text, ' the Program (or a p');
  const schema = {const: 'é☃ 😀!'};
  const format = {type: 'json_schema', json_schema: {name: 'a', schema}};
  const more = {logprobs: 0, max_tokens: 40, response_format: format};
  const [{text, logprobs}] = (await openai.completions.create({...request, ...more})).choices;
  assert.equal(text, '"é☃ 😀!"');
  for (const [i, token] of logprobs.tokens.entries()) {
    const rest = text.slice(logprobs.text_offset[i]);
    if (!token.startsWith('bytes:')) assert.ok(rest.startsWith(token), `${token} at ${rest}`);
  }
  assert.equal(logprobs.text_offset.at(-1), text.length - 1);
  const messages = [{role: 'user', content: 'hello'}];
  const chat = openai.chat.completions.create({model: 'byte-llama', messages});
  await assert.rejects(chat, {status: 400, code: 'no_chat_template'});
  assert.equal(await gateway.stop(), 0, gateway.output);
  assert.equal(await server.remove(), 0, server.output);
});
