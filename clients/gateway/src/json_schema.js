// SPDX-License-Identifier: Apache-2.0
// JSON Schema to the grammar of texts that are right by it (docs/clients.md says what is taken).
// A keyword that is not known is refused by name: none is passed over that a text may break.

import {shown} from './api_error.js';

const MAX_DEPTH = 100; // of schemas within each other
const MAX_COUNT = 512; // of maxLength, minLength, maxItems, minItems
const MAX_NODES = 50000; // of one schema's grammar

const annotations = [
  ...['title', 'description', 'default', 'examples', 'deprecated', 'readOnly', 'writeOnly'],
  ...['$schema', '$id', '$comment', '$defs', 'definitions'],
];
const keywordsOf = {
  object: ['properties', 'required', 'additionalProperties'],
  array: ['items', 'minItems', 'maxItems'],
  string: ['minLength', 'maxLength'],
  number: [],
  integer: [],
  boolean: [],
  null: [],
};
const types = Object.keys(keywordsOf);
const typed = Object.values(keywordsOf).flat();

// What is wrong with a schema, and where in it.
export class SchemaError extends Error {
  // path: of keys from the schema's root on.
  constructor(path, message) {
    super(message);
    this.path = path;
  }
}

function refuse(path, got, allowed) {
  throw new SchemaError(path, `got ${shown(got)}, allowed: ${allowed}`);
}

const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);

function isOfType(value, type) {
  if (type === 'integer') return Number.isInteger(value);
  if (type === 'null') return value === null;
  if (type === 'array') return Array.isArray(value);
  return type === 'object' ? isObject(value) : typeof value === type;
}

function countOf(schema, name, otherwise, path) {
  const value = schema[name] ?? otherwise;
  if (value === undefined) return value;
  const right = Number.isInteger(value) && value >= 0 && value <= MAX_COUNT;
  if (!right) refuse([...path, name], value, `a whole number from 0 to ${MAX_COUNT}`);
  return value;
}

function boundsOf(schema, least, most, path) {
  const bounds = {
    least: countOf(schema, least, 0, path),
    most: countOf(schema, most, undefined, path),
  };
  if (bounds.most < bounds.least) refuse([...path, most], bounds.most, `at least ${least}`);
  return bounds;
}

function typesOf(schema, path) {
  const {type} = schema;
  const at = [...path, 'type'];
  if (type !== undefined) {
    const list = Array.isArray(type) ? type : [type];
    const right = list.length > 0 && list.every((item) => types.includes(item));
    if (!right) refuse(at, type, `${types.join(', ')}, or a list of them`);
    return list;
  }
  // Values of other types would do as well.
  return types.filter((one) => keywordsOf[one].some((name) => name in schema));
}

class Compiler {
  #rules;
  #root;
  #depth = 0;
  #definitions = new Map(); // nodes by reference
  #open = new Set(); // references that are being followed and have not come to a byte yet

  constructor(rules, root) {
    this.#rules = rules;
    this.#root = root;
  }

  // The node where texts of the schema begin.
  compile(schema, path) {
    if (this.#depth === MAX_DEPTH) {
      throw new SchemaError(
        path,
        `got more schemas within each other than the ${MAX_DEPTH} allowed`,
      );
    }
    ++this.#depth;
    const entry = this.#compile(schema, path);
    --this.#depth;
    return entry;
  }

  #compile(schema, path) {
    if (schema === true) return this.#rules.value;
    if (!isObject(schema)) refuse(path, schema, 'a schema, which is an object or true');
    if ('$ref' in schema) return this.#reference(schema, path);
    if ('anyOf' in schema) return this.#anyOf(schema, path);
    if ('enum' in schema || 'const' in schema) return this.#choice(schema, path);
    this.#checkKeywords(schema, typed, path);
    const names = typesOf(schema, path);
    if (names.length === 0) return this.#rules.value;
    const wrong = Object.keys(schema).find(
      (name) => typed.includes(name) && !names.some((type) => keywordsOf[type].includes(name)),
    );
    if (wrong) refuse([...path, wrong], schema[wrong], 'only with a type that has it');
    return this.#oneOf(names.map((type) => this.#ofType(type, schema, path)));
  }

  #checkKeywords(schema, known, path) {
    const wrong = Object.keys(schema).find(
      (name) => name !== 'type' && !known.includes(name) && !annotations.includes(name),
    );
    if (wrong === undefined) return;
    const listed = ['type', 'enum', 'const', 'anyOf', '$ref', ...typed];
    const allowed = known === typed ? listed.join(', ') : 'nothing but type beside it';
    const keyword = known === typed ? '' : ` beside ${known.join(', ')}`;
    refuse([...path, wrong], schema[wrong], `${allowed}; ${wrong}${keyword} is not supported`);
  }

  #oneOf(entries) {
    if (entries.length === 1) return entries[0];
    const entry = this.#rules.node();
    entry.jumps.push(...entries);
    return entry;
  }

  #reference(schema, path) {
    this.#checkKeywords(schema, ['$ref'], path);
    const reference = schema.$ref;
    if (this.#open.has(reference)) {
      refuse([...path, '$ref'], reference, 'no reference that leads to itself at once');
    }
    let entry = this.#definitions.get(reference);
    if (entry) return entry;
    const target = this.#resolve(reference, [...path, '$ref']);
    this.#definitions.set(reference, (entry = this.#rules.node()));
    this.#open.add(reference);
    entry.jumps.push(this.compile(target, reference.split('/').slice(1)));
    this.#open.delete(reference);
    return entry;
  }

  #resolve(reference, path) {
    const allowed = '"#", or "#/$defs/NAME" or "#/definitions/NAME" of one that is there';
    if (reference === '#') return this.#root;
    const [, place, name] = /^#\/(\$defs|definitions)\/([^/]+)$/.exec(reference) ?? [];
    if (place === undefined) refuse(path, reference, allowed);
    const plain = name.replaceAll('~1', '/').replaceAll('~0', '~');
    const definitions = this.#root[place];
    if (isObject(definitions) && Object.hasOwn(definitions, plain)) return definitions[plain];
    return refuse(path, reference, allowed);
  }

  #anyOf(schema, path) {
    this.#checkKeywords(schema, ['anyOf'], path);
    const at = [...path, 'anyOf'];
    if ('type' in schema) refuse([...path, 'type'], schema.type, 'no type beside anyOf');
    const {anyOf} = schema;
    if (!Array.isArray(anyOf) || anyOf.length === 0) refuse(at, anyOf, 'a list of schemas');
    return this.#oneOf(anyOf.map((one, i) => this.compile(one, [...at, i])));
  }

  #choice(schema, path) {
    this.#checkKeywords(schema, ['enum', 'const'], path);
    const listed = schema.enum ?? [schema.const];
    const isList = Array.isArray(listed) && listed.length > 0;
    if (!isList) refuse([...path, 'enum'], listed, 'a list of values that is not empty');
    const names = 'type' in schema ? typesOf(schema, path) : types;
    const one = 'const' in schema ? JSON.stringify(schema.const) : undefined;
    const texts = listed
      .filter((value) => names.some((type) => isOfType(value, type)))
      .map((value) => JSON.stringify(value))
      .filter((text) => one === undefined || text === one);
    if (texts.length === 0) {
      refuse([...path, 'enum' in schema ? 'enum' : 'const'], listed, 'a value of the type');
    }
    return this.#rules.choice(new Set(texts));
  }

  #ofType(type, schema, path) {
    switch (type) {
      case 'object':
        return this.#guarded(() => this.#object(schema, path));
      case 'array':
        return this.#guarded(() => this.#array(schema, path));
      case 'string':
        return this.#string(schema, path);
      case 'boolean':
        return this.#oneOf([this.#rules.literal('true'), this.#rules.literal('false')]);
      case 'null':
        return this.#rules.literal('null');
      default:
        return this.#rules[type];
    }
  }

  // References within come behind a byte.
  #guarded(compile) {
    const open = this.#open;
    this.#open = new Set();
    const entry = compile();
    this.#open = open;
    return entry;
  }

  #string(schema, path) {
    const {least, most} = boundsOf(schema, 'minLength', 'maxLength', path);
    if (most === undefined && least === 0) return this.#rules.string;
    return this.#rules.boundedString(least, most);
  }

  #array(schema, path) {
    const bounds = boundsOf(schema, 'minItems', 'maxItems', path);
    const item = this.compile(schema.items ?? true, [...path, 'items']);
    return this.#rules.array(item, bounds);
  }

  #object(schema, path) {
    const {properties = {}, required = [], additionalProperties: more = true} = schema;
    if (!isObject(properties)) refuse([...path, 'properties'], properties, 'schemas by name');
    const names = Object.keys(properties);
    const isKnown = (name) => typeof name === 'string' && Object.hasOwn(properties, name);
    if (!Array.isArray(required) || !required.every(isKnown)) {
      refuse([...path, 'required'], required, 'a list of names in properties');
    }
    if (names.length === 0 && more !== false) {
      return this.#rules.map(this.compile(more, [...path, 'additionalProperties']));
    }
    if (typeof more !== 'boolean') {
      const allowed = 'true or false, or a schema where there are no properties';
      refuse([...path, 'additionalProperties'], more, allowed);
    }
    return this.#rules.record(
      names.map((name) => ({
        name,
        value: this.compile(properties[name], [...path, 'properties', name]),
        isRequired: required.includes(name),
      })),
    );
  }
}

// Nodes that are reached from `entry`, each once.
function nodesOf(entry) {
  const nodes = new Set([entry]);
  for (const {edges, calls, jumps} of nodes) {
    for (const {to} of edges) nodes.add(to);
    for (const {entry: called, back} of calls) nodes.add(called).add(back);
    for (const to of jumps) nodes.add(to);
  }
  return [...nodes];
}

// Takes away the ways from which no text ever ends. False: there is no other.
function prune(entry) {
  const nodes = nodesOf(entry).reverse();
  const ends = new Set();
  const leads = {
    edges: ({to}) => ends.has(to),
    calls: ({entry: called, back}) => ends.has(called) && ends.has(back),
    jumps: (to) => ends.has(to),
  };
  for (let before = -1; before < ends.size;) {
    before = ends.size;
    for (const node of nodes) {
      const {edges, calls, jumps, returns} = node;
      if (ends.has(node)) continue;
      const found = edges.some(leads.edges) || calls.some(leads.calls) || jumps.some(leads.jumps);
      if (returns || found) ends.add(node);
    }
  }
  for (const node of nodes) {
    for (const kind of ['edges', 'calls', 'jumps']) node[kind] = node[kind].filter(leads[kind]);
  }
  return ends.has(entry);
}

function compileWithin(maxNodes, schema, rules) {
  rules.limitNodes(maxNodes);
  try {
    return new Compiler(rules, schema).compile(schema, []);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new SchemaError([], `got too large a schema, allowed: a grammar of ${maxNodes} nodes`);
  }
}

// The node where texts of a schema begin, and how many nodes were made for it. rules: JsonRules.
// Throws SchemaError; Error where the vocabulary cannot write it.
export function compileSchema(schema, rules) {
  const entry = compileWithin(MAX_NODES, schema, rules);
  if (!prune(entry)) {
    throw new SchemaError([], 'got a schema whose values never end, allowed: one that has any');
  }
  return {entry, numNodes: MAX_NODES - rules.nodesLeft};
}
