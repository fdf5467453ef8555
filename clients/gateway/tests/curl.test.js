// SPDX-License-Identifier: Apache-2.0
// The gateway asked by curl itself, as docs/clients.md shows it.
import assert from 'node:assert/strict';
import {execFile, spawnSync} from 'node:child_process';
import {after, before, describe, test} from 'node:test';
import {promisify} from 'node:util';

import {Server, llamaTiny, referenceOf} from '../../node/testing/server.js';
import {TextModel} from '../src/text_model.js';
import {Gateway, eventsOf, llamaTinyText} from '../testing/gateway.js';

const run = promisify(execFile);
const skip = spawnSync('curl', ['--version']).error && 'there is no curl';

describe('curl', {skip}, () => {
  let server;
  let gateway;
  before(async () => {
    server = await new Server(llamaTiny, ['--kv-cache', '256KiB']).start();
    const flags = ['--address', server.socket, '--model', llamaTinyText, '--model-name', 'm'];
    gateway = await new Gateway(flags).start();
  });
  after(async () => {
    assert.equal(await gateway.stop(), 0, gateway.output);
    assert.equal(await server.remove(), 0, server.output);
  });

  const [, , {tokens: prompt, greedy_tokens: greedy}] = referenceOf(llamaTiny);
  const right = new TextModel(llamaTinyText).decode(greedy.slice(0, 8));
  const request = {model: 'm', prompt, max_tokens: 8, temperature: 0, logit_bias: {2: -100}};
  // Resolves to the type of the answer and its body.
  const curl = async (body, ...more) => {
    const url = `${gateway.url}/completions`;
    const plain = ['--disable', '--noproxy', '*', '--silent', '--show-error']; // no ~/.curlrc
    const flags = [...plain, '--write-out', '\n%{http_code} %{content_type}', ...more];
    const {stdout, stderr} = await run('curl', [...flags, url, '-d', JSON.stringify(body)]);
    assert.equal(stderr, '');
    const end = stdout.lastIndexOf('\n');
    return {answer: stdout.slice(0, end), said: stdout.slice(end + 1)};
  };

  test('gets a completion', async () => {
    const {answer, said} = await curl(request);
    assert.equal(said, '200 application/json');
    assert.equal(JSON.parse(answer).choices[0].text, right);
  });

  test('gets a stream', async () => {
    const {answer, said} = await curl({...request, stream: true}, '--no-buffer');
    assert.equal(said, '200 text/event-stream');
    const events = eventsOf(answer);
    assert.equal(events.pop(), '[DONE]');
    assert.ok(events.length > 2);
    assert.equal(events.map(({choices}) => choices[0].text).join(''), right);
  });
});
