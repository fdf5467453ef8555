// SPDX-License-Identifier: Apache-2.0
// JSON by masks: what is drawn under them parses and is right by its schema.
import assert from 'node:assert/strict';
import {join} from 'node:path';
import {describe, test} from 'node:test';

import Ajv from 'ajv/dist/2020.js';

import {repository} from '../../node/testing/server.js';
import {JsonFormats} from '../src/json_format.js';
import {JsonRules} from '../src/json_rules.js';
import {compileSchema} from '../src/json_schema.js';
import {TextModel} from '../src/text_model.js';
import {tokenBytesOf} from '../src/token_bytes.js';
import {Matcher, TokenMasks} from '../src/token_masks.js';
import {llamaTinyText} from '../testing/gateway.js';
import {
  allowedTokens,
  drawTokens,
  isAllowed,
  makeFormats,
  makeRandom,
} from '../testing/json_text.js';

const models = {
  'byte-llama': {directory: join(repository, 'examples/byte-llama'), vocabSize: 272, endToken: 256},
  'llama-tiny': {directory: llamaTinyText, vocabSize: 199, endToken: 2},
};
for (const model of Object.values(models)) {
  model.text = new TextModel(model.directory);
  model.formats = makeFormats(model.text, model.vocabSize, [model.endToken]);
}
const bytes = models['byte-llama'];

const $defs = {flags: {type: 'array', items: {type: 'boolean'}}};
const person = {
  type: 'object',
  properties: {
    name: {type: 'string', minLength: 1, maxLength: 12},
    age: {type: 'integer'},
    tags: {type: 'array', items: {enum: ['a', 'b"\n', '☃', 1, null]}, minItems: 1, maxItems: 3},
    home: {
      type: 'object',
      properties: {street: {type: ['string', 'null']}, of: {$ref: '#/$defs/flags'}},
      required: ['street'],
      additionalProperties: false,
    },
  },
  required: ['name', 'tags'],
  additionalProperties: false,
  $defs,
};
const tree = {
  type: 'object',
  properties: {
    value: {type: 'number'},
    children: {type: 'array', items: {$ref: '#'}, maxItems: 2},
  },
  required: ['value'],
  additionalProperties: false,
};
const schemas = {
  'any object': {type: 'object'},
  'any value': {},
  true: true,
  person,
  'a tree of itself': tree,
  alternatives: {anyOf: [{const: {x: [1, 2]}}, {type: 'integer'}, {items: person}], $defs},
  'a map': {type: 'object', additionalProperties: {type: 'array', items: {type: 'null'}}},
  'an object without members': {type: 'object', additionalProperties: false},
  'optional members': {
    properties: {a: {type: 'null'}, ab: {type: 'boolean'}, abc: {type: 'string'}, d: {const: 0}},
    required: ['abc'],
  },
  'long enough strings': {type: 'string', minLength: 3},
  'strings of one length': {type: 'string', minLength: 2, maxLength: 2},
  'an empty string': {maxLength: 0},
  'arrays of bounds': {type: 'array', items: {type: 'integer'}, minItems: 2, maxItems: 4},
  'arrays of three or more': {type: 'array', minItems: 3, items: {type: 'null'}},
  'no items': {type: 'array', maxItems: 0},
  'enum by type': {enum: [1, 'one', 1.5, null], type: ['integer', 'null']},
  'many choices, some the begin of others': {enum: Array.from({length: 3000}, (_, i) => i)},
  'a branch that never ends': {
    anyOf: [{$ref: '#/$defs/endless'}, {const: 'end'}],
    $defs: {
      endless: {type: 'object', properties: {a: {$ref: '#/$defs/endless'}}, required: ['a']},
    },
  },
};

for (const [modelName, {formats, text, endToken}] of Object.entries(models)) {
  describe(`under masks of ${modelName}`, () => {
    const closing = text.encode('"]}');
    for (const [name, schema] of Object.entries(schemas)) {
      test(`random tokens are JSON by a schema: ${name}`, () => {
        const validate = new Ajv({strict: false}).compile(schema);
        const random = makeRandom(name.length);
        const grammar = formats.schema(schema, []);
        const seen = new Set();
        for (let round = 0; round < 40; ++round) {
          const endTokens = [endToken];
          const patience = (37 * round) % 300;
          const tokens = drawTokens(formats.matcher(grammar), {
            random,
            endTokens,
            closing,
            patience,
          });
          const written = text.decode(tokens);
          assert.ok(
            validate(JSON.parse(written)),
            `${written}: ${JSON.stringify(validate.errors)}`,
          );
          seen.add(written);
        }
        if (name === 'person') assert.ok(seen.size > 30);
      });
    }
  });
}

// Takes a text byte by byte: whether it may be written, and end.
function accepts(schema, text) {
  const matcher = bytes.formats.matcher(bytes.formats.schema(schema, []));
  for (const byte of Buffer.from(text)) {
    if (!isAllowed(matcher.mask, byte)) return false;
    assert.ok(matcher.advance(byte));
  }
  return matcher.isDone || isAllowed(matcher.mask, bytes.endToken);
}

describe('a grammar', () => {
  test('takes JSON as it is usually written', () => {
    const values = [
      {},
      [],
      {a: [1, -2.5e-7, 'x\u00e9\n', {b: null}]},
      [[true], false, '\u{1f600}'],
    ];
    for (const value of values) {
      for (const indent of [0, 2, '\t'])
        assert.ok(accepts({}, JSON.stringify(value, null, indent)));
    }
    assert.ok(accepts({}, '"\\u00e9\\ud83d\\ude00\\/"'));
    assert.ok(accepts({type: 'object'}, '{"a": 1, "b" : [ 1, 2 ]}'));
    assert.ok(accepts(person, '{"name": "Ada", "age": 36, "tags": ["a", null]}'));
    assert.ok(accepts(person, '{"name":"Ada","tags":[1]}'));
  });

  const wrong = [
    [{}, '01'],
    [{}, '1.'],
    [{}, '[1,]'],
    [{}, '{"a":1,}'],
    [{}, '"\u0001"'],
    [{}, '"\\ud83d"'],
    [{}, '"\\x"'],
    [{}, '{a:1}'],
    [{}, 'nul'],
    [{type: 'object'}, '[]'],
    [{type: 'integer'}, '1.5'],
    [{type: 'string', maxLength: 2}, '"\u00e9\u00e9\u00e9"'],
    [{type: 'string', minLength: 2}, '"a"'],
    [{const: 'a'}, '"b"'],
    [person, '{"name": "Ada"}'],
    [person, '{"tags": ["a"], "name": "Ada"}'],
    [person, '{"name": "Ada", "tags": ["c"]}'],
    [person, '{"name": "Ada", "tags": ["a"], "more": 1}'],
  ];
  test('takes nothing else', () => {
    for (const [schema, text] of wrong) assert.equal(accepts(schema, text), false, text);
  });

  test('takes bytes that are no UTF-8 nowhere', () => {
    for (const tail of [[0xc0, 0x80], [0xed, 0xa0], [0xf4, 0x90], [0xff], [0xc3, 0x22], [0x80]]) {
      const matcher = bytes.formats.matcher(bytes.formats.schema({type: 'string'}, []));
      assert.ok(matcher.advance(0x22));
      assert.ok(!tail.every((byte) => matcher.advance(byte)), `${tail}`);
    }
  });
});

test('a mask has exactly the tokens that the grammar takes', () => {
  const {text, vocabSize, endToken} = models['llama-tiny'];
  const random = makeRandom(11);
  const options = {tokenBytes: text.tokenBytes(), vocabSize, endTokens: [endToken]};
  const masks = new TokenMasks(options);
  const schema = {anyOf: [tree, {type: 'object', properties: {the: person, ther: tree}}], $defs};
  const {entry} = compileSchema(schema, new JsonRules(masks.alphabet));
  for (let round = 0; round < 20; ++round) {
    for (let state = masks.begin(entry), i = 0; i < 80 && !state.isEnd; ++i) {
      const mask = masks.maskOf(state);
      for (let token = 0; token < vocabSize; ++token) {
        const isTaken = masks.advance(state, token) !== null;
        assert.equal(isAllowed(mask, token), isTaken, `token ${token}`);
      }
      const allowed = allowedTokens(mask).filter((token) => token !== endToken);
      state = masks.advance(state, allowed[Math.floor(random() * allowed.length)]);
    }
  }
});

test('masks are right after all that was found out is forgotten', () => {
  const {text, vocabSize, endToken} = models['llama-tiny'];
  const options = {tokenBytes: text.tokenBytes(), vocabSize, endTokens: [endToken]};
  const [kept, forgetful] = [
    new TokenMasks(options),
    new TokenMasks({...options, maxMaskBytes: 1}),
  ];
  const {entry} = compileSchema(person, new JsonRules(kept.alphabet));
  const random = makeRandom(5);
  for (let round = 0; round < 20; ++round) {
    const [one, other] = [new Matcher(kept, entry), new Matcher(forgetful, entry)];
    for (let i = 0; i < 60 && !one.isDone; ++i) {
      assert.deepEqual(one.mask, other.mask);
      const allowed = allowedTokens(one.mask);
      const token = allowed[Math.floor(random() * allowed.length)];
      assert.equal(one.advance(token), other.advance(token));
    }
  }
});

describe('a schema is refused', () => {
  const refused = [
    [
      {type: 'string', pattern: 'a'},
      /schema\.pattern: got "a", allowed: .*pattern is not supported/,
    ],
    [{properties: {a: {type: 'integer', minimum: 1}}}, /schema\.properties\.a\.minimum: got 1/],
    [{type: 'text'}, /schema\.type: got "text", allowed: object, array/],
    [{type: []}, /schema\.type: got \[\]/],
    [{type: 'string', items: {}}, /schema\.items: got \{\}, allowed: only with a type/],
    [false, /schema: got false/],
    [{items: 3}, /schema\.items: got 3, allowed: a schema/],
    [{maxLength: -1}, /schema\.maxLength: got -1, allowed: a whole number from 0 to 512/],
    [{maxItems: 1e9}, /schema\.maxItems: got 1000000000/],
    [{minItems: 2, maxItems: 1}, /schema\.maxItems: got 1, allowed: at least minItems/],
    [{required: ['a']}, /schema\.required: got \["a"\], allowed: a list of names in properties/],
    [{properties: {a: {}}, additionalProperties: {}}, /schema\.additionalProperties: got \{\}/],
    [{enum: []}, /schema\.enum: got \[\]/],
    [{enum: ['a'], type: 'null'}, /schema\.enum: got \["a"\], allowed: a value of the type/],
    [{enum: ['a'], maxLength: 3}, /schema\.maxLength: .* beside enum, const is not supported/],
    [{anyOf: []}, /schema\.anyOf: got \[\]/],
    [{anyOf: [{}], type: 'null'}, /schema\.type: got "null", allowed: no type beside anyOf/],
    [{oneOf: [{}]}, /oneOf is not supported/],
    [{$ref: '#'}, /schema\.\$ref: got "#", allowed: no reference that leads to itself/],
    [{$ref: '#/$defs/none'}, /schema\.\$ref: got "#\/\$defs\/none"/],
    [{$ref: 'http://a/b'}, /schema\.\$ref: got "http/],
    [
      {type: 'object', properties: {a: {$ref: '#'}}, required: ['a']},
      /schema: got a schema whose values never end/,
    ],
  ];
  for (const [schema, message] of refused) {
    test(JSON.stringify(schema).slice(0, 60), () => {
      const compile = () => bytes.formats.schema(schema, ['schema']);
      assert.throws(compile, {
        status: 400,
        code: 'invalid_value',
        param: 'response_format',
        message,
      });
    });
  }

  test('that could go on in too many ways, when it is written', () => {
    const lists = [1, 2, 3].map((maxItems) => ({maxItems, items: {$ref: '#/$defs/a'}}));
    const schema = {$ref: '#/$defs/a', $defs: {a: {anyOf: lists}}};
    const matcher = bytes.formats.matcher(bytes.formats.schema(schema, []));
    const write = () => {
      for (let i = 0; i < 50; ++i) matcher.advance(0x5b);
    };
    assert.throws(write, RangeError);
    const choices = {anyOf: Array.from({length: 1001}, (_, i) => ({const: i}))};
    const refused = {status: 400, param: 'response_format', message: /in more than 1000 ways/};
    assert.throws(() => bytes.formats.matcher(bytes.formats.schema(choices, [])), refused);
  });

  test('deep or large', () => {
    let deep = {};
    for (let i = 0; i < 200; ++i) deep = {items: deep};
    assert.throws(() => bytes.formats.schema(deep, []), /more schemas within each other/);
    const large = {
      properties: Object.fromEntries(Array.from({length: 9000}, (_, i) => [`name ${i}`, {}])),
    };
    assert.throws(() => bytes.formats.schema(large, []), /too large a schema/);
  });
});

test('schemas that are asked for in turn are forgotten and made again', () => {
  const schemaOf = (i) => ({properties: {[`a${i}`]: {type: 'string', minLength: 500}}});
  for (let round = 0; round < 2; ++round) {
    for (let i = 0; i < 30; ++i) {
      const matcher = bytes.formats.matcher(bytes.formats.schema(schemaOf(i), []));
      assert.ok(Buffer.from(`{"a${i}": "`).every((byte) => matcher.advance(byte)));
    }
  }
});

describe('a vocabulary', () => {
  const without = (lost) => {
    const tokenBytes = () =>
      bytes.text.tokenBytes().map((one, id) => (lost.includes(id) ? undefined : one));
    return makeFormats({tokenBytes}, 272, [256]);
  };

  test('that cannot write JSON is refused by the byte that it lacks', () => {
    const message = /the model's tokenizer: .*no token for byte 0x7b, which \{ needs/;
    assert.throws(() => without([0x7b]).object(), {status: 400, param: 'response_format', message});
  });

  test('that lacks a byte of a schema is refused for that schema alone', () => {
    const formats = without([0x71]);
    assert.throws(
      () => formats.schema({const: 'quux'}, []),
      /no token for byte 0x71, which "quux"/,
    );
    assert.ok(formats.object());
  });

  test('that lacks bytes writes no character that begins with others', () => {
    const random = makeRandom(3);
    const formats = without([0x98, 0x62]); // of the snowman, and b
    const grammar = formats.schema({type: 'string', minLength: 30, maxLength: 30}, []);
    for (let round = 0; round < 30; ++round) {
      const options = {random, endTokens: [256], closing: []};
      const written = bytes.text.decode(drawTokens(formats.matcher(grammar), options));
      assert.equal([...JSON.parse(written)].length, 30);
    }
  });

  test('of a server without masks is refused', () => {
    const described = {model: {vocabSize: 272, eosTokenIds: [256]}, limits: {adjustLogits: false}};
    assert.throws(() => new JsonFormats(bytes.text, described).object(), /--no-adjust-logits/);
  });
});

describe('the bytes of a token', () => {
  test('are those of its text', () => {
    const {text} = models['llama-tiny'];
    const known = text.tokenBytes();
    for (const token of text.encode('the other thing\n\u00e9 and "so on"')) {
      const shown = text.decode([token]);
      if (!shown.includes('\ufffd')) assert.equal(known[token].toString(), shown);
    }
    assert.deepEqual([...known[text.encode('\u00e9')[1]]], [0xa9]);
    assert.equal(known[1], undefined); // <s>
  });

  test('of SentencePiece have spaces and single bytes', () => {
    const replace = {type: 'Replace', pattern: {String: '\u2581'}, content: ' '};
    const decoder = {type: 'Sequence', decoders: [replace, {type: 'ByteFallback'}, {type: 'Fuse'}]};
    const vocab = {'<s>': 0, '<0x0A>': 1, '\u2581the': 2, '\u00e9': 3};
    const added = [
      {id: 0, content: '<s>', special: true},
      {id: 4, content: '<tool>', special: false},
    ];
    const found = tokenBytesOf({model: {type: 'BPE', vocab}, decoder, added_tokens: added});
    assert.deepEqual(found.map(String), ['undefined', '\n', ' the', '\u00e9', '<tool>']);
    const unigram = {
      type: 'Unigram',
      vocab: [
        ['a', 0],
        ['\u2581b', -1],
      ],
    };
    const pieces = tokenBytesOf({model: unigram, decoder: {type: 'Metaspace'}});
    assert.deepEqual(pieces.map(String), ['a', ' b']);
  });

  test('of other tokenizers are not known', () => {
    const tokenizer = {model: {type: 'WordPiece', vocab: {}}, decoder: {type: 'WordPiece'}};
    assert.throws(
      () => tokenBytesOf(tokenizer),
      /got a WordPiece tokenizer whose decoder is WordPiece/,
    );
  });
});
