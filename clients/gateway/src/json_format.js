// SPDX-License-Identifier: Apache-2.0
// JsonFormats: the JSON that answers may be asked for, by the model's vocabulary.
import {ApiError} from './api_error.js';
import {JsonRules} from './json_rules.js';
import {SchemaError, compileSchema} from './json_schema.js';
import {Matcher, TokenMasks} from './token_masks.js';

const MAX_KEPT_NODES = 500000; // of the grammars of schemas that were asked for last

function refuse(message) {
  return new ApiError(400, message, {param: 'response_format', code: 'invalid_value'});
}

// What a matcher has thrown, as an ApiError.
export function tooAmbiguous(error) {
  if (!(error instanceof RangeError)) return error;
  const got = `a schema by which a text could go on in ${error.message}`;
  return refuse(`response_format: got ${got}, allowed: one with fewer at a time`);
}

export class JsonFormats {
  #masks;
  #rules;
  #unsupported; // why there is no JSON
  #grammars = new Map(); // by schema, the one asked for last at the end
  #keptNodes = 0;

  // textModel: TextModel. described: of the server.
  constructor(textModel, {model, limits}) {
    if (!limits.adjustLogits) {
      this.#unsupported = 'the step service was started with --no-adjust-logits';
      return;
    }
    try {
      const {vocabSize, eosTokenIds: endTokens} = model;
      this.#masks = new TokenMasks({tokenBytes: textModel.tokenBytes(), vocabSize, endTokens});
      this.#rules = new JsonRules(this.#masks.alphabet);
      this.#grammarOf({type: 'object'});
    } catch (error) {
      this.#unsupported = `the model's tokenizer: ${error.message}`;
    }
  }

  // A grammar of any object, for `matcher`. Throws ApiError where the model cannot write JSON.
  object() {
    return this.schema({type: 'object'}, []);
  }

  // Likewise of what is right by a JSON Schema. path: of keys, where the schema is.
  schema(schema, path) {
    if (this.#unsupported) {
      throw refuse(`response_format: got JSON, allowed: text alone: ${this.#unsupported}`);
    }
    try {
      return this.#grammarOf(schema);
    } catch (error) {
      const at = ['response_format', ...path, ...(error.path ?? [])].join('.');
      if (error instanceof SchemaError) throw refuse(`${at}: ${error.message}`);
      throw refuse(`${at}: got text that cannot be written, ${error.message}`);
    }
  }

  // A text of the grammar, to be written token by token.
  matcher(grammar) {
    try {
      return new Matcher(this.#masks, grammar.entry);
    } catch (error) {
      throw tooAmbiguous(error);
    }
  }

  #grammarOf(schema) {
    const name = JSON.stringify(schema);
    const grammar = this.#grammars.get(name) ?? compileSchema(schema, this.#rules);
    if (!this.#grammars.delete(name)) this.#keptNodes += grammar.numNodes;
    this.#grammars.set(name, grammar);
    for (const [oldest, {numNodes}] of this.#grammars) {
      if (this.#keptNodes <= MAX_KEPT_NODES) break;
      this.#grammars.delete(oldest);
      this.#keptNodes -= numNodes;
    }
    return grammar;
  }
}
