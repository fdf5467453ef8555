#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0
// The program: flags, the connection to the step service, the HTTP server, and a clean stop.
import {readFileSync} from 'node:fs';
import {basename, resolve} from 'node:path';
import {parseArgs} from 'node:util';

import {Client, readToken} from 'reprise-client';

import {Drain} from './drain.js';
import {makeServer} from './http.js';
import {JsonFormats} from './json_format.js';
import {Metrics} from './metrics.js';
import {Scheduler} from './scheduler.js';
import {TextModel} from './text_model.js';

const usage = `usage: reprise-gateway --address ADDRESS --model DIRECTORY [option ...]

Serves OpenAI's API (/v1/models, /v1/completions, /v1/chat/completions) over a step service, and
/health and /metrics beside it.

  --address ADDRESS       of the step service: unix:/path or host:port
  --model DIRECTORY       Hugging Face directory of the model that is served: its tokenizer.json,
                          tokenizer_config.json and chat template
  --model-name NAME       what clients call the model; the directory's name unless set
  --listen HOST:PORT      where to serve HTTP (127.0.0.1:8000); port 0: any that is free
  --api-key-file FILE     clients must bring the key in the file
  --allow-anyone          serve other hosts without a key
  --token-file FILE       bearer token for the step service
  --tls-ca FILE           TLS to the step service; PEM file of the authority of its certificate
  --tls-certificate FILE  certificate that the gateway shows, PEM
  --tls-key FILE          its key
  --max-rows N            rows that run at a time; what the server allows unless set
  --step-tokens N         tokens of one step, prompts included; what the server allows unless set
  --max-queue N           answers that may wait (1024), n for each prompt of a request; a request
                          for more than N is refused, one that finds no room now gets a 503
  --queue-timeout S       seconds that a request waits to be admitted (60), then it is answered 503
  --prefix-blocks N       KV blocks that are kept for prompts that begin alike; half of those that
                          the gateway may hold unless set; 0: every prompt is computed whole
  --prefix-seconds S      how long they are kept after the last request (300)
  --help                  show this text
`;

const options = {
  address: {type: 'string'},
  model: {type: 'string'},
  'model-name': {type: 'string'},
  listen: {type: 'string', default: '127.0.0.1:8000'},
  'api-key-file': {type: 'string'},
  'allow-anyone': {type: 'boolean', default: false},
  'token-file': {type: 'string'},
  'tls-ca': {type: 'string'},
  'tls-certificate': {type: 'string'},
  'tls-key': {type: 'string'},
  'max-rows': {type: 'string', default: '0'},
  'step-tokens': {type: 'string', default: '0'},
  'max-queue': {type: 'string', default: '1024'},
  'queue-timeout': {type: 'string', default: '60'},
  'prefix-blocks': {type: 'string'},
  'prefix-seconds': {type: 'string', default: '300'},
  help: {type: 'boolean', default: false},
};

const log = (text) => process.stderr.write(`reprise-gateway: ${text}\n`);

function wholeNumber(flags, name, least = 0) {
  const value = Number(flags[name]);
  if (Number.isSafeInteger(value) && value >= least) return value;
  throw new Error(`--${name}: got ${flags[name]}, allowed: a whole number from ${least} on`);
}

function secondsOf(flags, name) {
  const value = Number(flags[name]);
  if (value > 0 && value < 1e6) return value;
  throw new Error(`--${name}: got ${flags[name]}, allowed: seconds above 0 and below 1000000`);
}

function listenOf(flags) {
  const [, host, port] = /^(.+):(\d+)$/.exec(flags.listen) ?? [];
  if (host === undefined || Number(port) > 65535) {
    throw new Error(`--listen: got ${flags.listen}, allowed: HOST:PORT`);
  }
  const plain = host.replace(/^\[|\]$/g, '');
  const isLocal = /^127\.|^localhost$|^::1$/.test(plain);
  if (!isLocal && !flags['api-key-file'] && !flags['allow-anyone']) {
    const allowed = 'with --api-key-file or --allow-anyone';
    throw new Error(`--listen: got ${host} without a key, allowed: ${allowed}`);
  }
  return {host: plain, port: Number(port)};
}

function tlsOf(flags) {
  const read = (name) => (flags[name] === undefined ? undefined : readFileSync(flags[name]));
  const [ca, certificate, key] = ['tls-ca', 'tls-certificate', 'tls-key'].map(read);
  return ca || certificate || key ? {ca, certificate, key} : undefined;
}

function readFlags() {
  const {values} = parseArgs({options});
  if (values.help) {
    process.stdout.write(usage);
    process.exit(0);
  }
  for (const name of ['address', 'model']) {
    if (values[name] === undefined) throw new Error(`--${name}: got nothing, allowed: see --help`);
  }
  return values;
}

function stopOnSignals(drain, scheduler, client) {
  const stop = async () => {
    log('stopping: requests that were accepted are finished');
    drain.stopListening();
    await scheduler.stop();
    await drain.close();
    client.close();
    process.exit(0);
  };
  let stopping = false;
  for (const signal of ['SIGINT', 'SIGTERM']) {
    process.on(signal, () => {
      if (stopping) process.exit(1); // the second time insists
      stopping = true;
      stop().catch((error) => {
        log(error.stack);
        process.exit(1);
      });
    });
  }
}

async function main() {
  const flags = readFlags();
  const {host, port} = listenOf(flags);
  const textModel = new TextModel(flags.model);
  const token = flags['token-file'] && readToken(flags['token-file']);
  const client = new Client(flags.address, {token, tls: tlsOf(flags)});
  const metrics = new Metrics();
  const scheduler = new Scheduler(client, {
    stepTokens: wholeNumber(flags, 'step-tokens'),
    maxRows: wholeNumber(flags, 'max-rows'),
    maxQueue: wholeNumber(flags, 'max-queue', 1),
    queueTimeoutMs: 1000 * secondsOf(flags, 'queue-timeout'),
    prefixBlocks: flags['prefix-blocks'] && wholeNumber(flags, 'prefix-blocks'),
    prefixMs: 1000 * secondsOf(flags, 'prefix-seconds'),
    metrics,
    log,
  });
  await scheduler.start().catch((error) => {
    throw new Error(`--address ${flags.address}: ${error.message}`);
  });
  metrics.watch({
    numAnswers: () => scheduler.numAnswers,
    isConnected: () => scheduler.isConnected,
  });
  const server = makeServer({
    scheduler,
    metrics,
    textModel,
    jsonFormats: new JsonFormats(textModel, scheduler.described),
    modelName: flags['model-name'] ?? basename(resolve(flags.model)),
    apiKey: flags['api-key-file'] && readToken(flags['api-key-file']),
    log,
  });
  const drain = new Drain(server);
  await new Promise((done, fail) => server.on('error', fail).listen(port, host, done));
  stopOnSignals(drain, scheduler, client);
  const shown = host.includes(':') ? `[${host}]` : host;
  process.stdout.write(`serving on http://${shown}:${server.address().port}/v1\n`);
}

main().catch((error) => {
  log(error.message);
  process.exit(1);
});
