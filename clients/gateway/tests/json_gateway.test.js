// SPDX-License-Identifier: Apache-2.0
// JSON by `response_format` through the gateway and `reprise serve`, asked for by the openai
// client.
import assert from 'node:assert/strict';
import {join} from 'node:path';
import {after, before, describe, test} from 'node:test';

import Ajv from 'ajv/dist/2020.js';
import OpenAI from 'openai';

import {Server, llamaTiny, repository} from '../../node/testing/server.js';
import {Gateway, llamaTinyText} from '../testing/gateway.js';

const ajv = new Ajv({strict: false});
const formatOf = (schema) => ({type: 'json_schema', json_schema: {name: 'answer', schema}});
const entry = {
  type: 'object',
  properties: {
    verdict: {enum: ['yes', 'no', 'perhaps']},
    score: {type: 'integer'},
    words: {type: 'array', items: {type: 'string', maxLength: 6}, maxItems: 3},
  },
  required: ['verdict', 'score', 'words'],
  additionalProperties: false,
};
const point = {
  type: 'object',
  properties: {x: {type: 'number'}, y: {type: ['number', 'null']}},
  required: ['x'],
  additionalProperties: false,
};

function check(schema, text) {
  const validate = ajv.compile(schema);
  assert.ok(validate(JSON.parse(text)), `${text}: ${ajv.errorsText(validate.errors)}`);
}

async function startBoth(directory, tokenizer, flags = []) {
  const server = await new Server(directory, ['--kv-cache', '8MiB', ...flags]).start();
  const names = ['--model', tokenizer, '--model-name', 'm'];
  const gateway = await new Gateway(['--address', server.socket, ...names]).start();
  const openai = new OpenAI({baseURL: gateway.url, apiKey: 'none', maxRetries: 0});
  const stop = async () => {
    assert.equal(await gateway.stop(), 0, gateway.output);
    assert.equal(await server.remove(), 0, server.output);
  };
  return {openai, gateway, stop};
}

describe('JSON of a model whose tokens are bytes', () => {
  let all;
  before(async () => {
    const directory = join(repository, 'examples/byte-llama');
    all = await startBoth(directory, directory);
  });
  after(() => all.stop());
  const prompt = 'You may copy and distribute';
  const complete = (more) => {
    const request = {model: 'm', prompt, temperature: 2, max_tokens: 300, seed: 1, ...more};
    return all.openai.completions.create(request);
  };

  test('is right by a schema at temperature 2, whatever the seed', async () => {
    const {choices} = await complete({n: 12, response_format: formatOf(entry)});
    for (const {text, finish_reason: reason} of choices) {
      check(entry, text);
      assert.equal(reason, 'stop');
    }
    assert.ok(new Set(choices.map(({text}) => text)).size > 6);
  });

  test('of rows with different schemas, and rows with none, side by side', async () => {
    const plain = {temperature: 0, max_tokens: 20};
    const alone = (await complete(plain)).choices[0].text;
    const asked = Array.from({length: 4}, (_, seed) => [
      complete({seed, response_format: formatOf(entry)}),
      complete({seed, response_format: formatOf(point)}),
      complete(plain),
    ]);
    const answers = await Promise.all(asked.flat());
    for (const [i, {choices}] of answers.entries()) {
      if (i % 3 === 2) assert.equal(choices[0].text, alone);
      else check(i % 3 === 0 ? entry : point, choices[0].text);
    }
  });

  test('streams in pieces', async () => {
    const more = {stream: true, response_format: formatOf(entry), seed: 3};
    let text = '';
    let pieces = 0;
    let reason;
    for await (const {choices} of await complete(more)) {
      pieces += choices[0].text !== '';
      text += choices[0].text;
      reason = choices[0].finish_reason ?? reason;
    }
    check(entry, text);
    assert.equal(reason, 'stop');
    assert.ok(pieces > 10);
    const {choices} = await complete({...more, stream: false});
    assert.equal(choices[0].text, text);
  });

  test('that is cut by max_tokens says so', async () => {
    const {choices} = await complete({max_tokens: 9, response_format: formatOf(entry)});
    assert.match(choices[0].text, /^\{\s*"verdi?/);
    assert.equal(choices[0].finish_reason, 'length');
  });

  test('keeps to a stop string, log-probabilities and a bias as text does', async () => {
    const more = {response_format: formatOf(entry), logprobs: 1, logit_bias: {121: 100}};
    const whole = (await complete(more)).choices[0];
    assert.match(whole.text, /"yes"/);
    assert.equal(whole.logprobs.tokens.join(''), whole.text);
    const cut = (await complete({...more, stop: '"words"'})).choices[0];
    assert.equal(cut.text, whole.text.slice(0, whole.text.indexOf('"words"')));
  });

  test('is refused where it turns out to go on in too many ways', async () => {
    const names = Array.from({length: 1001}, (_, i) => [`n${i}`, {const: 0}]);
    const schema = {properties: Object.fromEntries(names)};
    const refused = {status: 400, param: 'response_format', message: /in more than 1000 ways/};
    await assert.rejects(complete({response_format: formatOf(schema)}), refused);
    const {choices} = await complete({response_format: formatOf(entry)});
    check(entry, choices[0].text);
  });

  test('is refused by what is wrong with the format', async () => {
    const wrong = [
      [{type: 'xml'}, /response_format: got .*allowed: type: text, json_object, json_schema/],
      [
        {type: 'json_object', schema: {}},
        /response_format: got "schema", allowed: the fields type/,
      ],
      [{type: 'json_schema'}, /an object with name, and schema/],
      [{type: 'json_schema', json_schema: {schema: {}}}, /an object with name, and schema/],
      [{...formatOf({}), more: 1}, /got "more"/],
      [formatOf({type: 'string', format: 'date'}), /json_schema\.schema\.format: got "date"/],
    ];
    for (const [format, message] of wrong) {
      const refused = {status: 400, param: 'response_format', code: 'invalid_value', message};
      await assert.rejects(complete({response_format: format}), refused);
    }
  });
});

describe('JSON of a model with byte pairs', () => {
  let all;
  before(async () => {
    all = await startBoth(llamaTiny, llamaTinyText, ['--max-rows', '4', '--block-size', '5']);
  });
  after(() => all.stop());
  const messages = [{role: 'user', content: 'hello'}];
  const chat = (more) => {
    const request = {model: 'm', messages, temperature: 2, max_tokens: 230, ...more};
    return all.openai.chat.completions.create(request);
  };

  test('is right by a schema at temperature 2, more rows than fit', async () => {
    const schemas = Array.from({length: 10}, (_, i) => (i % 2 ? entry : point));
    const asked = schemas.map((schema, seed) => chat({seed, response_format: formatOf(schema)}));
    for (const [i, {choices}] of (await Promise.all(asked)).entries()) {
      check(schemas[i], choices[0].message.content);
      assert.equal(choices[0].finish_reason, 'stop');
    }
  });

  test('of any object parses where it is not cut', async () => {
    const answers = Array.from({length: 16}, (_, seed) =>
      chat({seed, response_format: {type: 'json_object'}}),
    );
    let whole = 0;
    for (const {choices} of await Promise.all(answers)) {
      const [{message, finish_reason: reason}] = choices;
      assert.equal(message.content[0], '{');
      if (reason === 'length') continue;
      assert.equal(typeof JSON.parse(message.content), 'object');
      ++whole;
    }
    assert.ok(whole > 0);
  });
});

test('a server that takes no masks is named', async () => {
  const all = await startBoth(llamaTiny, llamaTinyText, ['--no-adjust-logits']);
  const request = {model: 'm', prompt: 'a', response_format: {type: 'json_object'}};
  const refused = {status: 400, param: 'response_format', message: /--no-adjust-logits/};
  await assert.rejects(all.openai.completions.create(request), refused);
  await all.stop();
});
