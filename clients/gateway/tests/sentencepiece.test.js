// SPDX-License-Identifier: Apache-2.0
// Tokenizers of SentencePiece's kind: spaces, characters of several bytes, stop strings, bytes of
// log-probabilities.
import assert from 'node:assert/strict';
import {cpSync, rmSync} from 'node:fs';
import {join} from 'node:path';
import {after, before, describe, test} from 'node:test';

import {Server, repository, scratchFolder} from '../../node/testing/server.js';
import {Choice} from '../src/choice.js';
import {Gateway, eventsOf} from '../testing/gateway.js';
import {makeRandom} from '../testing/json_text.js';
import {ids, numTokens, textModelOf, tokenizers, writeTokenizer} from '../testing/sentencepiece.js';

const bytesOf = (text) =>
  [...Buffer.from(text)].map(
    (byte) => ids[`<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`],
  );

const textOf = (bytes) =>
  new TextDecoder('utf-8', {ignoreBOM: true}).decode(Buffer.concat(bytes));

// Pieces of text of an answer of tokens, and what was left at its end.
function piecesOf(stream, tokens) {
  return [...tokens.map((token) => stream.push(token)), stream.flush()];
}

// {text, pieces, logprobs, stopped} of a choice whose row samples the tokens. more: of the request.
function choose(textModel, tokens, {prompt = [ids['<s>'], ids['▁hi']], ...more} = {}) {
  const answer = {text: '', pieces: [], logprobs: [], stopped: false};
  const request = {kind: 'completion', stops: [], numLogprobs: 0, maxNewTokens: 100, ...more};
  const onPiece = ({text, logprobs}) => {
    answer.text += text;
    answer.pieces.push(text);
    answer.logprobs.push(...logprobs);
  };
  const all = {sampling: {}, seed: 1, ...request};
  const {generation} = new Choice({index: 0, prompt, request: all, textModel, onPiece});
  for (const token of tokens) {
    if (generation.onToken({token, logprob: -1, top: []})) {
      answer.stopped = true;
      break;
    }
  }
  generation.end('length');
  return answer;
}

for (const [name, tokenizer] of Object.entries(tokenizers)) {
  describe(`a tokenizer of SentencePiece's kind, ${name}`, () => {
    const model = textModelOf(tokenizer);
    const space = name === 'plain' ? [] : ['▁'];

    test('text becomes tokens, characters without one their bytes', () => {
      const named = (tokens) => tokens.map((id) => Object.keys(ids)[id]);
      const first = name === 'plain' ? 'hi' : '▁hi';
      assert.deepEqual(named(model.encode('hi the')), ['<s>', first, '▁the']);
      const snowman = bytesOf('☃').map((id) => Object.keys(ids)[id]);
      assert.deepEqual(named(model.encode('☃é')), ['<s>', ...space, ...snowman, 'é']);
      assert.deepEqual(model.encode('☃').slice(-3), bytesOf('☃'));
    });

    test('text and back', () => {
      // Metaspace puts no space before a text that has one, and takes that one off.
      const losesOne = ['metaspace', 'unigram'].includes(name);
      for (const text of ['hi', ' hi', '  the é', '☃😀 hi\n', 'x', 'the the ☃☃']) {
        const pieces = piecesOf(model.textStream(), model.encode(text));
        assert.equal(pieces.join(''), losesOne ? text.replace(/^ /, '') : text);
        assert.ok(pieces.every((piece) => !piece.includes('\ufffd')));
      }
    });

    test('a completion keeps the space that it begins with', () => {
      const tokens = [ids['▁the'], ids['▁hi'], ids['▁'], ids['▁hi']];
      assert.equal(choose(model, tokens).text, ' the hi  hi');
      assert.deepEqual(choose(model, tokens).pieces.slice(0, 2), [' the', ' hi']);
      const alone = name === 'plain' ? ' the hi  hi' : 'the hi  hi';
      assert.equal(choose(model, tokens, {kind: 'chat'}).text, alone);
      assert.equal(choose(model, tokens, {prompt: [ids['<s>']]}).text, alone);
    });

    test('a special token takes no space from the one behind it', () => {
      const tokens = [ids.hi, ids['<s>'], ids['▁hi'], ids['</s>'], ids['▁the']];
      assert.deepEqual(piecesOf(model.textStream(), tokens), ['hi', '', ' hi', '', ' the', '']);
    });

    test('a character comes out with its last byte', () => {
      const tokens = [ids.hi, ...bytesOf('😀'), ...bytesOf('é'), ids['▁hi']];
      const pieces = piecesOf(model.textStream(), tokens);
      assert.deepEqual(pieces, ['hi', '', '', '', '😀', '', 'é', ' hi', '']);
    });

    test('bytes that are no character stand for themselves alone', () => {
      const [first, second] = bytesOf('é');
      // Behind a whole character, before a piece, and at the end.
      const tokens = [...bytesOf('😀'), first, ids['▁hi'], second, ids.hi, first];
      const pieces = piecesOf(model.textStream([ids.hi]), tokens);
      assert.deepEqual(pieces, ['', '', '', '😀', '', '\ufffd hi', '\ufffd', 'hi', '', '\ufffd']);
    });

    test('any tokens are the text of their bytes, however they come', () => {
      const random = makeRandom(7);
      for (let round = 0; round < 200; ++round) {
        const tokens = Array.from({length: 30}, () => Math.floor(random() * numTokens));
        const {text, pieces, logprobs} = choose(model, tokens);
        const isText = ({token}) => !['<unk>', '<s>', '</s>'].includes(token);
        const bytes = logprobs.filter(isText).map((entry) => Buffer.from(entry.bytes));
        assert.equal(text, textOf(bytes));
        for (const piece of pieces) assert.ok(piece.isWellFormed?.() ?? true);
      }
    });

    test('stop strings hold across tokens, spaces and bytes', () => {
      const smile = [ids.hi, ids['▁the'], ids['▁hi'], ...bytesOf('😀'), ids.hi];
      const stopsAt = (stop, tokens = smile) => choose(model, tokens, {stops: [stop]});
      for (const [stop, text] of [
        [' the hi', 'hi'],
        ['i the', 'h'],
        ['e hi😀h', 'hi th'],
        ['😀', 'hi the hi'],
        [' ', 'hi'],
      ]) {
        const {text: got, stopped} = stopsAt(stop);
        assert.equal(got, text);
        assert.equal(stopped, true);
      }
      assert.equal(stopsAt(' the h!').text, 'hi the hi😀hi');
      // The space before the first word of a completion counts.
      assert.equal(stopsAt(' the', [ids['▁the'], ids.hi]).text, '');
    });

    test('bytes of log-probabilities are those of the text', () => {
      const tokens = [ids['▁hi'], ...bytesOf('☃'), ids['é'], ids['</s>'], ids['▁'], ids.t];
      const {logprobs} = choose(model, tokens);
      const shown = logprobs.map(({token, bytes, offset}) => [token, bytes, offset]);
      const bytes = (text) => [...Buffer.from(text)];
      assert.deepEqual(shown, [
        [' hi', bytes(' hi'), 0],
        ['\ufffd', [0xe2], 3],
        ['\ufffd', [0x98], 3],
        ['\ufffd', [0x83], 3],
        ['é', bytes('é'), 4],
        ['</s>', bytes('</s>'), 5],
        [' ', bytes(' '), 5],
        ['t', bytes('t'), 6],
      ]);
    });
  });
}

test('a token of spaces that was added is spaces', () => {
  const model = textModelOf(tokenizers.plain);
  const {text, logprobs} = choose(model, [ids.hi, numTokens, ids.hi]);
  assert.equal(text, 'hi  hi');
  assert.deepEqual(logprobs[1].bytes, [0x20, 0x20]);
});

describe("a gateway with a tokenizer of SentencePiece's kind", () => {
  const directory = scratchFolder();
  let server;
  let gateway;
  before(async () => {
    cpSync(join(repository, 'examples/byte-llama'), directory, {recursive: true});
    writeTokenizer(directory, tokenizers.prepended);
    server = await new Server(directory).start();
    const flags = ['--address', server.socket, '--model', directory, '--model-name', 'm'];
    gateway = await new Gateway(flags).start();
  });
  after(async () => {
    assert.equal(await gateway.stop(), 0, gateway.output);
    assert.equal(await server.remove(), 0, server.output);
    rmSync(directory, {recursive: true, force: true});
  });

  test('a stream is the text of the whole answer and of its bytes', async () => {
    // Pieces with spaces and the bytes of some characters alone.
    const liked = ['▁', '▁the', '▁hi', 'hi', 'é'].map((name) => ids[name]);
    const bias = Object.fromEntries([...liked, ...bytesOf('☃😀')].map((id) => [id, 100]));
    for (let seed = 0; seed < 4; ++seed) {
      const sampling = {temperature: 2, seed, logit_bias: bias, logprobs: 0, max_tokens: 60};
      const request = {model: 'm', prompt: 'hi', ...sampling};
      const {body} = await gateway.complete(request);
      const [{text, logprobs}] = body.choices;
      const streamed = await gateway.complete({...request, stream: true});
      const pieces = eventsOf(streamed.body).slice(0, -1);
      assert.equal(pieces.map(({choices}) => choices[0].text).join(''), text);
      const bytes = logprobs.tokens.map((token) =>
        token.startsWith('bytes:')
          ? Buffer.from(token.slice(6).replaceAll('\\x', ''), 'hex')
          : Buffer.from(token),
      );
      assert.equal(text, textOf(bytes));
      assert.match(text, / /);
    }
  });
});
