#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0
// Generates from several prompts at once, two steps in flight: the smallest scheduler there is.
//
//   generate.js --address unix:/run/reprise.sock --prompt "You may" --prompt "This License"
//   generate.js --address localhost:50061 --tls-ca ca.pem --token-file chat.token --tokens 5,80,33
//
// --prompt is for models whose tokens are bytes; all others take token ids and answer with ids.
import {readFileSync} from 'node:fs';
import {parseArgs} from 'node:util';

import {Client, readToken, rowsOf} from 'reprise-client';

const options = {
  address: {type: 'string'},
  'tls-ca': {type: 'string'},
  'token-file': {type: 'string'},
  prompt: {type: 'string', multiple: true, default: []},
  tokens: {type: 'string', multiple: true, default: []},
  'max-new-tokens': {type: 'string', default: '32'},
};

// All prompts in the first step, and then every row goes on until each has `count` tokens.
function* plan(prompts, tables, count) {
  yield {
    add: tables.map((blocks, row) => ({row, blocks, sampling: {stopAtEos: true}})),
    chunks: prompts.map((tokens, row) => ({row, tokens, sample: true})),
  };
  for (let i = 1; i < count; ++i) yield {continueAll: true};
}

// New tokens by prompt, up to an end-of-text token.
async function generate(client, prompts, count) {
  const {pool} = await client.describe();
  const tokens = prompts.map(() => []);
  const session = await client.openSession({name: 'generate.js', resumeGraceMs: 20000});
  const blocksFor = (prompt) => Math.ceil((prompt.length + count) / pool.blockSize);
  const tables = await Promise.all(prompts.map((prompt) => session.allocate(blocksFor(prompt))));
  for await (const answer of session.run(plan(prompts, tables, count))) {
    for (const {row, token} of rowsOf(answer)) {
      if (token !== undefined) tokens[row].push(token);
    }
  }
  await session.close();
  return tokens;
}

async function main() {
  const {values: flags} = parseArgs({options});
  const count = Number(flags['max-new-tokens']);
  if (!flags.address) throw new Error('--address: got nothing, allowed: unix:/path or host:port');
  if (!(Number.isInteger(count) && count > 0)) {
    throw new Error(`--max-new-tokens: got ${flags['max-new-tokens']}, allowed: at least 1`);
  }
  if (flags.prompt.length + flags.tokens.length === 0) {
    throw new Error('got no prompt, allowed: --prompt or --tokens, at least once');
  }
  const tls = flags['tls-ca'] && {ca: readFileSync(flags['tls-ca'])};
  const token = flags['token-file'] && readToken(flags['token-file']);
  const client = new Client(flags.address, {tls, token});
  try {
    const {model} = await client.describe();
    const isBytes = model.tokenEncoding === 'TOKEN_ENCODING_BYTES';
    if (flags.prompt.length > 0 && !isBytes) {
      throw new Error('--prompt: got a model whose tokens are not bytes, allowed: --tokens');
    }
    const prompts = flags.prompt.map((text) => [...Buffer.from(text)]);
    prompts.push(...flags.tokens.map((list) => list.split(',').map(Number)));
    const answers = await generate(client, prompts, count);
    for (const [i, answer] of answers.entries()) {
      const bytes = [...prompts[i], ...answer].filter((id) => id < 256);
      console.log(isBytes ? Buffer.from(bytes).toString() : answer.join(','));
    }
  } finally {
    client.close();
  }
}

main().catch((error) => {
  console.error(`generate.js: ${error.message}`);
  process.exitCode = 1;
});
