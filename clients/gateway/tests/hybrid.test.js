// SPDX-License-Identifier: Apache-2.0
// The gateway over models whose rows carry state beside their KV: Mamba-2 in some of their layers.
import assert from 'node:assert/strict';
import {cpSync, rmSync, writeFileSync} from 'node:fs';
import {get} from 'node:http';
import {join} from 'node:path';
import {after, before, describe, test} from 'node:test';

import {Client} from 'reprise-client';

import {Server, eventually, repository, scratchFolder} from '../../node/testing/server.js';
import {byteNames} from '../src/token_bytes.js';
import {Gateway} from '../testing/gateway.js';
import {tokenizerText} from '../testing/tokenizer_text.js';

// A tokenizer of the fixtures' 65 tokens: three special ones and 62 characters.
function writeTokenizer(folder) {
  const bytes = byteNames();
  const characters = [...'abcdefghijklmnopqrstuvwxyz0123456789 .,:;!?()[]{}"\'+-*/=<>_|&'];
  const names = ['<unk>', '<s>', '</s>', ...characters.map((text) => bytes[text.charCodeAt(0)])];
  while (names.length < 65) names.push(`<|unused${names.length}|>`);
  const specials = names.flatMap((name, id) => (name.length > 1 ? [id] : []));
  const text = tokenizerText({names, specials, merges: [], unknown: '<unk>'});
  writeFileSync(join(folder, 'tokenizer.json'), text);
}

const shared = 'the same rules for all of them, and then: ';
const prompts = Array.from({length: 6}, (_, i) => shared + 'abcdef'[i].repeat(1 + 3 * i));
const request = (prompt, more) => {
  const sampling = {temperature: 1, seed: 5, logit_bias: {2: -100}, logprobs: 1};
  return {model: 'm', prompt, max_tokens: 24, ...sampling, ...more};
};

// What the server at a unix socket says of its metrics.
function metricsAt(socketPath) {
  return new Promise((resolve, reject) => {
    const asked = get({socketPath, path: '/metrics'}, async (response) => {
      const parts = await response.setEncoding('utf8').toArray();
      resolve(parts.join(''));
    });
    asked.on('error', reject);
  });
}

const numberIn = (text, name) =>
  Number(text.split('\n').find((line) => line.startsWith(`${name} `))?.split(' ')[1] ?? NaN);

for (const fixture of ['granite-hybrid-tiny', 'granite-hybrid-moe-tiny', 'bamba-tiny']) {
  describe(`${fixture} behind the gateway`, () => {
    const directory = scratchFolder();
    let server;
    let right; // three choices of each prompt, one request for each at a time
    const metricsPath = join(directory, 'metrics');
    const startServer = (kvCache, ...more) => {
      const flags = ['--max-rows', '4', '--block-size', '5', '--kv-cache', kvCache, ...more];
      return new Server(directory, flags).start();
    };
    const startGateway = ({socket}, ...more) => {
      const flags = ['--address', socket, '--model', directory, '--model-name', 'm'];
      return new Gateway([...flags, ...more]).start();
    };
    const check = ({status, body}, choices) => {
      assert.equal(status, 200, JSON.stringify(body));
      assert.deepEqual(body.choices, choices);
      assert.equal(body.usage.prompt_tokens_details.cached_tokens, 0);
    };

    before(async () => {
      cpSync(join(repository, 'tests/fixtures', fixture), directory, {recursive: true});
      writeTokenizer(directory);
      server = await startServer('256KiB', '--metrics', `unix:${metricsPath}`);
      const gateway = await startGateway(server, '--prefix-blocks', '0', '--max-rows', '1');
      right = prompts.map(() => []);
      for (const [i, prompt] of prompts.entries()) {
        for (let index = 0; index < 3; ++index) {
          const {body} = await gateway.complete(request(prompt, {seed: 5 + index}));
          right[i].push({...body.choices[0], index});
        }
      }
      assert.equal(await gateway.stop(), 0, gateway.output);
      assert.doesNotMatch(gateway.output, /carry state/);
    });
    after(async () => {
      assert.equal(await server.remove(), 0, server.output);
      rmSync(directory, {recursive: true, force: true});
    });

    test('prompts that begin alike and n choices are answered as one at a time', async () => {
      const gateway = await startGateway(server);
      const ask = (prompt) => gateway.complete(request(prompt, {n: 3}));
      const together = await Promise.all(prompts.map(ask));
      for (const [i, answer] of together.entries()) check(answer, right[i]);
      for (const [i, prompt] of prompts.entries()) check(await ask(prompt), right[i]);
      const client = new Client(server.socket);
      const {limits, pool} = await client.describe();
      assert.ok(limits.rowStateBytes > 0);
      const freeBlocks = async () => (await client.describe()).pool.freeBlocks;
      await eventually(async () => (await freeBlocks()) === pool.numBlocks - 1, 'none is kept');
      client.close();
      assert.equal(await gateway.stop(), 0, gateway.output);
      const said = gateway.output.match(/carry state beside their KV: prompts of different/g);
      assert.equal(said?.length, 1, gateway.output);
    });

    test('the prompt of n choices is computed once', async () => {
      const gateway = await startGateway(server);
      const given = async () =>
        numberIn(await metricsAt(metricsPath), 'reprise_prompt_tokens_total');
      for (const [i, prompt] of prompts.entries()) {
        const before = await given();
        check(await gateway.complete(request(prompt, {n: 3})), right[i]);
        // And of the two others two tokens each.
        assert.equal((await given()) - before, prompt.length + 4);
      }
      const body = await (await fetch(gateway.url.replace('/v1', '/metrics'))).text();
      const total = prompts.reduce((sum, {length}) => sum + length, 0);
      const counted = (source) =>
        numberIn(body, `reprise_gateway_prompt_tokens_total{source="${source}"}`);
      assert.equal(counted('computed'), total + 4 * prompts.length);
      assert.equal(counted('cached'), 2 * total - 4 * prompts.length);
      assert.equal(await gateway.stop(), 0, gateway.output);
    });

    test('in steps of a few tokens too', async () => {
      const gateway = await startGateway(server, '--step-tokens', '9');
      const asked = prompts.map((prompt) => gateway.complete(request(prompt, {n: 3})));
      for (const [i, answer] of (await Promise.all(asked)).entries()) check(answer, right[i]);
      assert.equal(await gateway.stop(), 0, gateway.output);
    });

    test('rows that are preempted for others are answered the same', async () => {
      const tight = await startServer('16KiB'); // of 33 blocks, where four rows want 60
      const gateway = await startGateway(tight, '--prefix-blocks', '100');
      const asked = prompts.map((prompt) => gateway.complete(request(prompt, {n: 3})));
      for (const [i, answer] of (await Promise.all(asked)).entries()) check(answer, right[i]);
      assert.equal(await gateway.stop(), 0, gateway.output);
      assert.equal(await tight.remove(), 0, tight.output);
    });
  });
}
