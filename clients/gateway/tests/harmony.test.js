// SPDX-License-Identifier: Apache-2.0
// gpt-oss's format: what an answer says and what it thinks, at once and as a stream.
import assert from 'node:assert/strict';
import {cpSync, rmSync} from 'node:fs';
import {join} from 'node:path';
import {after, before, describe, test} from 'node:test';

import OpenAI from 'openai';

import {Server, repository, scratchFolder} from '../../node/testing/server.js';
import {Choice} from '../src/choice.js';
import {parse} from '../src/parse.js';
import {Gateway, eventsOf} from '../testing/gateway.js';
import {ids, otherNames, template, textModelOf, writeText} from '../testing/harmony.js';

const model = textModelOf({modelType: 'gpt_oss'});
const messages = [{role: 'user', content: 'hi'}];
const prompt = model.encodeChat(messages);

// What a reader gives for tokens, or a text's, that come one by one: {content, reasoning, pieces}.
// before: the prompt. count: of the tokens.
function read(text, {before = prompt, count = Infinity} = {}) {
  const reader = model.reader('chat', before);
  const tokens = Array.isArray(text) ? text : model.encode(text);
  const pieces = tokens.slice(0, count).map((token) => reader.push(token));
  pieces.push(reader.flush());
  const join = (part) => pieces.map((piece) => (piece.part === part ? piece.text : '')).join('');
  return {content: join('content'), reasoning: join('reasoning'), pieces, reader};
}

function check(text, content, reasoning, more) {
  const got = read(text, more);
  assert.deepEqual([got.content, got.reasoning], [content, reasoning], text);
  return got;
}

const thought = '<|channel|>analysis<|message|>a greeting.<|end|>';
const answer = `${thought}<|start|>assistant<|channel|>final<|message|>hi there!<|return|>`;

describe('an answer in the harmony format', () => {
  test('says what is in its final message and thinks the rest', () => {
    const {reader} = check(answer, 'hi there!', 'a greeting.');
    assert.equal(reader.isDone, true);
    assert.equal(reader.reasoningTokens, 'a greeting.'.length);
    check('<|channel|>final<|message|>hi<|return|>', 'hi', '');
    check('<|message|>hi<|return|>', 'hi', '');
    check('<|channel|>other<|message|>hi<|return|>', 'hi', '');
    check(thought.replace('<|end|>', ''), '', 'a greeting.');
  });

  test('comes out token by token, and cut anywhere is the begin of itself', () => {
    const {pieces} = read(answer);
    const shown = pieces.filter(({text}) => text !== '').map(({part, text}) => part[0] + text);
    const letters = [...'a greeting.'].map((letter) => `r${letter}`);
    assert.deepEqual(shown, [...letters, ...[...'hi there!'].map((letter) => `c${letter}`)]);
    for (let count = 0; count < model.encode(answer).length; ++count) {
      const {content, reasoning} = read(answer, {count});
      assert.ok('hi there!'.startsWith(content), content);
      assert.ok('a greeting.'.startsWith(reasoning), reasoning);
    }
  });

  test('thinks what it says of tools, and ends with a call of one', () => {
    const header = '<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json';
    const call = `${header}<|message|>{"a":"b"}<|call|>`;
    const {reader} = check(`${thought}${call}`, '', 'a greeting.\n{"a":"b"}');
    assert.equal(reader.isDone, true);
    const early = ' to=functions.f<|channel|>commentary<|message|>{}<|call|>';
    check(early, '', '{}');
  });

  test('has a line for each message of a part', () => {
    const more = '<|start|>assistant<|channel|>analysis<|message|>more<|end|>';
    const said = '<|start|>assistant<|channel|>final<|message|>';
    check(`${thought}${more}${said}a<|end|>${said}b<|return|>`, 'a\nb', 'a greeting.\nmore');
    check(`${thought}${said}<|end|>${said}b<|return|>`, 'b', 'a greeting.');
  });

  test('that is nothing but text is said as it is; a header that is cut off says nothing', () => {
    check('hi there', 'hi there', '');
    check('<|channel|>ana', '', '');
    check(`${thought}<|start|>assi`, '', 'a greeting.');
    check('hi<|channel|>final<|message|>there', 'there', '');
  });

  test('goes on from its prompt', () => {
    const said = model.encodeChat(messages, {saysAtOnce: true});
    check('hi<|return|>', 'hi', '', {before: said});
    const begun = [...prompt, ...model.encode('<|channel|>analysis<|message|>so')];
    check(` be it<|end|>${answer}`, 'hi there!', ' be it\na greeting.', {before: begun});
    const opened = [...prompt, ids['<|channel|>'], ids.final];
    check('<|message|>hi<|return|>', 'hi', '', {before: opened});
    check('hi', 'hi', '', {before: []});
    check('<|channel|>analysis<|message|>hi', '', 'hi', {before: []});
  });

  test('has names of channels of any tokens, and whole characters', () => {
    const tokens = [ids['<|channel|>'], ids.analysis, ids['<|message|>'], ...model.encode('é')];
    check(tokens, '', 'é');
    const [first] = model.encode('é');
    const cut = [...tokens.slice(0, 3), first, ids['<|end|>'], ...model.encode(answer)];
    check(cut, 'hi there!', '\ufffd\na greeting.');
    check([...tokens.slice(0, 3), first], '', '\ufffd');
  });
});

describe('a choice of a model that thinks', () => {
  // {text, reasoning, logprobs, tokens} of a chat whose row samples the tokens of a text.
  function choose(text, more) {
    const result = {text: '', reasoning: '', logprobs: [], tokens: 0};
    const request = {kind: 'chat', stops: [], numLogprobs: 0, maxNewTokens: 100, seed: 1, ...more};
    const onPiece = (piece) => {
      result.text += piece.text;
      result.reasoning += piece.reasoning;
      result.logprobs.push(...piece.logprobs);
    };
    const all = {index: 0, prompt, request: {...request, sampling: {}}, textModel: model, onPiece};
    const choice = new Choice(all);
    for (const token of model.encode(text)) {
      ++result.tokens;
      if (choice.generation.onToken({token, logprob: -1, top: []})) break;
    }
    choice.generation.end('length');
    return {...result, choice};
  }

  test('stops at strings in what it says alone', () => {
    const {text, reasoning, choice} = choose(answer, {stops: ['re']});
    assert.deepEqual([text, reasoning], ['hi the', 'a greeting.']);
    assert.equal(choice.finishReason, 'stop');
    const held = choose(`${answer.replace('<|return|>', '')}`, {stops: ['!?']});
    assert.deepEqual([held.text, held.reasoning], ['hi there!', 'a greeting.']);
  });

  test('ends with the token that returns, whatever the server takes for an end', () => {
    const {text, tokens} = choose(`${answer}${answer}`);
    assert.equal(text, 'hi there!');
    assert.equal(tokens, model.encode(answer).length);
  });

  test('has log-probabilities of what it says alone', () => {
    const {logprobs, choice} = choose(answer);
    assert.equal(logprobs.map(({token}) => token).join(''), 'hi there!');
    assert.equal(choice.reasoningTokens, 'a greeting.'.length);
  });

  test('says a completion as it is', () => {
    const {text, reasoning, choice} = choose(answer, {kind: 'completion'});
    assert.deepEqual([text, reasoning], ['analysisa greeting.assistantfinalhi there!', '']);
    assert.equal(choice.reasoningTokens, undefined);
  });
});

describe('a model in the harmony format', () => {
  const plain = "{{ messages[0]['content'] }}";

  test('is known by its architecture or its template, and by its tokens', () => {
    assert.equal(textModelOf({modelType: 'gpt_oss', chat: plain}).thinks, true);
    assert.equal(textModelOf({modelType: 'llama', chat: plain}).thinks, false);
    assert.equal(textModelOf({chat: "{{ '<|start|>assistant<|channel|>' }}"}).thinks, true);
    assert.equal(textModelOf({modelType: 'gpt_oss', tokens: otherNames}).thinks, false);
  });

  const context = {
    ...{modelName: 'm', textModel: model, maxTokens: 256},
    described: {model: {vocabSize: 57}, limits: {maxLogitBias: 9, maxLogprobs: 9}},
    jsonFormats: {object: () => ({})},
  };
  const parsed = (more, kind = 'chat') => parse({model: 'm', messages, ...more}, kind, context);

  test('thinks as much as is asked for', () => {
    const begins = (effort) => model.encode(`<|start|>system<|message|>thinking: ${effort}<|end|>`);
    for (const effort of ['low', 'high', null]) {
      const [tokens] = parsed({reasoning_effort: effort}).prompts;
      const begin = begins(effort ?? 'medium');
      assert.deepEqual(tokens.slice(0, begin.length), begin);
    }
    const refused = {status: 400, param: 'reasoning_effort', code: 'unsupported_parameter'};
    assert.throws(() => parsed({reasoning_effort: 'huge'}), {...refused, message: /low, medium/});
    const other = {...context, textModel: textModelOf({chat: plain})};
    const body = {model: 'm', messages, reasoning_effort: 'low'};
    const message = /not supported/;
    assert.throws(() => parse(body, 'chat', other), {...refused, message});
  });

  test('says JSON at once', () => {
    const [tokens] = parsed({response_format: {type: 'json_object'}}).prompts;
    const header = model.encode('<|channel|>final<|message|>');
    assert.deepEqual(tokens, [...prompt, ...header]);
    assert.deepEqual(parsed({}).prompts[0], prompt);
  });
});

describe('a gateway of gpt-oss', () => {
  const directory = scratchFolder();
  let server;
  let gateway;
  before(async () => {
    cpSync(join(repository, 'tests/fixtures/gpt-oss-tiny'), directory, {recursive: true});
    // A model of random weights: every answer begins with a thought.
    writeText(directory, {chat: `${template}<|channel|>analysis<|message|>`});
    server = await new Server(directory).start();
    const flags = ['--address', server.socket, '--model', directory, '--model-name', 'm'];
    gateway = await new Gateway(flags).start();
  });
  after(async () => {
    assert.equal(await gateway.stop(), 0, gateway.output);
    assert.equal(await server.remove(), 0, server.output);
    rmSync(directory, {recursive: true, force: true});
  });

  // Tokens that a channel is made of, and two letters.
  const frame = ['channel', 'message', 'end', 'start'].map((name) => `<|${name}|>`);
  const made = [...frame, 'analysis', 'final', 'a', 'b'];
  const bias = Object.fromEntries(made.map((name) => [ids[name], 100]));
  const request = (seed) => ({
    ...{model: 'm', messages, temperature: 2, seed, logit_bias: bias, max_tokens: 150, n: 2},
  });

  test('answers at once and as a stream alike', async () => {
    const seen = {content: 0, reasoning: 0};
    for (let seed = 0; seed < 5; ++seed) {
      const {body} = await gateway.ask('/chat/completions', request(seed));
      const options = {stream: true, stream_options: {include_usage: true}};
      const streamed = await gateway.ask('/chat/completions', {...request(seed), ...options});
      const events = eventsOf(streamed.body);
      assert.equal(events.pop(), '[DONE]');
      assert.deepEqual(events.pop().usage.completion_tokens_details, {
        reasoning_tokens: body.usage.completion_tokens_details.reasoning_tokens,
      });
      for (const {index, message} of body.choices) {
        const deltas = events
          .map(({choices}) => choices[0])
          .filter((choice) => choice.index === index)
          .map(({delta}) => delta);
        const joined = (name) => deltas.map((delta) => delta[name] ?? '').join('');
        assert.equal(joined('content'), message.content);
        assert.equal(joined('reasoning_content'), message.reasoning_content);
        assert.doesNotMatch(message.content + message.reasoning_content, /<\|/);
        seen.content += message.content.length;
        seen.reasoning += message.reasoning_content.length;
      }
    }
    assert.ok(seen.content > 0 && seen.reasoning > 0, JSON.stringify(seen));
  });

  test("OpenAI's client sees content and reasoning_content", async () => {
    const client = new OpenAI({baseURL: gateway.url, apiKey: 'none', maxRetries: 0});
    const {choices, usage} = await client.chat.completions.create({
      ...{model: 'm', messages, max_tokens: 20, temperature: 0, seed: 1},
      ...{logit_bias: {[ids.a]: 100}},
    });
    const [{message, finish_reason: finish}] = choices;
    assert.deepEqual([message.content, finish], ['', 'length']);
    assert.equal(message.reasoning_content, 'a'.repeat(20));
    assert.equal(usage.completion_tokens_details.reasoning_tokens, 20);
  });
});
