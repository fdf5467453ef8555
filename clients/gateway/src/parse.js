// SPDX-License-Identifier: Apache-2.0
// Bodies of /v1/completions and /v1/chat/completions: every field is read, known to do nothing
// here, or refused by name.
import {ApiError, invalid, shown} from './api_error.js';

const MAX_CHOICES = 128;
const MAX_STOPS = 16;

// Fields that change nothing about the answer.
const inert = ['user', 'metadata', 'service_tier', 'safety_identifier', 'prompt_cache_key'];

// Fields whose only value that is served is the one that asks for nothing.
const neutral = {
  audio: [null],
  best_of: [null, 1],
  echo: [null, false],
  function_call: [null, 'none'],
  functions: [null],
  modalities: [null],
  parallel_tool_calls: [null, true, false],
  prediction: [null],
  reasoning_effort: [null], // and efforts, of models that think
  store: [null, false],
  suffix: [null, ''],
  tool_choice: [null, 'none'],
  tools: [null],
  verbosity: [null],
  web_search_options: [null],
};

const efforts = ['low', 'medium', 'high'];

const shared = [
  'frequency_penalty',
  'logit_bias',
  'logprobs',
  'max_tokens',
  'min_p',
  'model',
  'n',
  'presence_penalty',
  'repetition_penalty',
  'response_format',
  'seed',
  'stop',
  'stream',
  'stream_options',
  'temperature',
  'top_k',
  'top_p',
];
const own = {
  completion: ['prompt', 'best_of', 'echo', 'suffix'],
  chat: [
    'messages',
    'max_completion_tokens',
    'top_logprobs',
    ...Object.keys(neutral).filter((name) => !['best_of', 'echo', 'suffix'].includes(name)),
  ],
};

function refuse(status, message, param, code) {
  return new ApiError(status, message, {param, code});
}

function checkFields(body, kind, {thinks}) {
  const known = new Set([...shared, ...own[kind], ...inert]);
  for (const [name, value] of Object.entries(body)) {
    if (!known.has(name)) {
      const message = `${name}: got a field that is not known, allowed: ${[...known].sort()}`;
      throw refuse(400, message, name, 'unknown_parameter');
    }
    const allowed = name === 'reasoning_effort' && thinks ? [null, ...efforts] : neutral[name];
    const isNothing = Array.isArray(value) && value.length === 0;
    if (allowed && !isNothing && !allowed.includes(value)) {
      const others = allowed.filter((one) => efforts.includes(one));
      const what = others.length > 0 ? `allowed: ${others.join(', ')}` : 'not supported';
      const message = `${name}: got ${shown(value)}, ${what}`;
      throw refuse(400, message, name, 'unsupported_parameter');
    }
  }
}

// A number of the body between two bounds, or `otherwise` where it is left out.
function numberOf(body, name, {least, most, whole = false, otherwise}) {
  const value = body[name] ?? otherwise;
  if (value === otherwise) return value;
  const right = typeof value === 'number' && value >= least && value <= most;
  if (right && (!whole || Number.isInteger(value))) return value;
  throw invalid(name, value, `${whole ? 'a whole number' : 'a number'} from ${least} to ${most}`);
}

function flagOf(body, name) {
  const value = body[name] ?? false;
  if (typeof value !== 'boolean') throw invalid(name, value, 'true or false');
  return value;
}

function stopsOf(body) {
  const value = body.stop ?? [];
  const stops = Array.isArray(value) ? value : [value];
  const right = stops.every((stop) => typeof stop === 'string' && stop.length > 0);
  if (right && stops.length <= MAX_STOPS) return stops;
  throw invalid('stop', value, `text that is not empty, or a list of at most ${MAX_STOPS} of them`);
}

function biasOf(body, vocabulary) {
  const bias = body.logit_bias ?? {};
  const names = Object.keys(bias);
  const values = Object.values(bias);
  const right =
    names.every((name) => /^(0|[1-9]\d*)$/.test(name) && Number(name) < vocabulary) &&
    values.every((value) => typeof value === 'number' && Math.abs(value) <= 100);
  if (typeof bias === 'object' && !Array.isArray(bias) && right) {
    return {logitBiasToken: names.map(Number), logitBias: values};
  }
  throw invalid('logit_bias', bias, `token ids below ${vocabulary} and numbers from -100 to 100`);
}

// How rows sample, as the wire contract has it. OpenAI's defaults.
function samplingOf(body, {model, limits}) {
  const sampling = {
    temperature: numberOf(body, 'temperature', {least: 0, most: 2, otherwise: 1}),
    topP: numberOf(body, 'top_p', {least: 0, most: 1, otherwise: 1}),
    topK: numberOf(body, 'top_k', {least: -1, most: 2 ** 31, whole: true, otherwise: 0}),
    minP: numberOf(body, 'min_p', {least: 0, most: 1, otherwise: 0}),
    presencePenalty: numberOf(body, 'presence_penalty', {least: -2, most: 2, otherwise: 0}),
    frequencyPenalty: numberOf(body, 'frequency_penalty', {least: -2, most: 2, otherwise: 0}),
    repetitionPenalty: numberOf(body, 'repetition_penalty', {least: 0.01, most: 10, otherwise: 1}),
    stopAtEos: true,
    ...biasOf(body, model.vocabSize),
  };
  sampling.topK = Math.max(0, sampling.topK);
  // 0 stands for 1 on the wire; the likeliest token alone is what 0 means.
  if (sampling.topP === 0) sampling.topK = 1;
  if (sampling.logitBias.length > limits.maxLogitBias) {
    throw invalid('logit_bias', sampling.logitBias.length, `at most ${limits.maxLogitBias} tokens`);
  }
  return sampling;
}

function seedOf(body) {
  const {MIN_SAFE_INTEGER: least, MAX_SAFE_INTEGER: most} = Number;
  const seed = numberOf(body, 'seed', {least, most, whole: true, otherwise: undefined});
  return seed ?? Math.floor(Math.random() * 2 ** 48);
}

// How many of the likeliest tokens come with each; undefined: none, not even the sampled one's.
function logprobsOf(body, kind, {limits}) {
  const most = Math.min(20, limits.maxLogprobs);
  const bounds = {least: 0, most, whole: true, otherwise: undefined};
  if (kind === 'completion') return numberOf(body, 'logprobs', bounds);
  const top = numberOf(body, 'top_logprobs', bounds);
  const asked = flagOf(body, 'logprobs');
  if (top !== undefined && !asked) throw invalid('top_logprobs', top, 'only with logprobs: true');
  return asked ? (top ?? 0) : undefined;
}

const formats = ['text', 'json_object', 'json_schema'];
const formatFields = {
  text: ['type'],
  json_object: ['type'],
  json_schema: ['type', 'json_schema'],
};
const schemaFields = ['name', 'description', 'strict', 'schema'];

// The grammar that the answer has to keep to; undefined: none.
function grammarOf(body, jsonFormats) {
  const format = body.response_format ?? {type: 'text'};
  const name = 'response_format';
  if (!formats.includes(format.type)) throw invalid(name, format, `type: ${formats.join(', ')}`);
  checkNames(format, formatFields[format.type], name);
  if (format.type === 'text') return undefined;
  if (format.type === 'json_object') return jsonFormats.object();
  const wrapped = format.json_schema;
  const isRight = typeof wrapped === 'object' && wrapped !== null;
  if (!isRight || typeof wrapped.name !== 'string' || wrapped.schema == null) {
    throw invalid(name, format, 'json_schema: an object with name, and schema, a JSON Schema');
  }
  checkNames(wrapped, schemaFields, name);
  if (![undefined, null, true, false].includes(wrapped.strict)) {
    throw invalid(name, wrapped.strict, 'strict: true or false, which are the same here');
  }
  return jsonFormats.schema(wrapped.schema, ['json_schema', 'schema']);
}

function checkNames(value, known, param) {
  const wrong = Object.keys(value).find((name) => !known.includes(name));
  if (wrong) throw invalid(param, wrong, `the fields ${known.join(', ')}`);
}

function streamOptionsOf(body, stream) {
  const options = body.stream_options ?? undefined;
  if (options === undefined) return {includeUsage: false};
  if (!stream) throw invalid('stream_options', options, 'only with stream: true');
  const wrong = Object.keys(options).find((name) => name !== 'include_usage');
  if (wrong) throw invalid(`stream_options.${wrong}`, options[wrong], 'include_usage alone');
  return {includeUsage: flagOf(options, 'include_usage')};
}

// ---- prompts ----

const isTokens = (value) =>
  Array.isArray(value) && value.length > 0 && value.every((item) => Number.isInteger(item));

function completionPrompts(body, textModel, vocabulary) {
  const value = body.prompt ?? undefined;
  const several = Array.isArray(value) && !isTokens(value) ? value : [value];
  const right = (item) => (typeof item === 'string' && item.length > 0) || isTokens(item);
  if (several.length === 0 || !several.every(right)) {
    throw invalid('prompt', value, 'text or token ids, or a list of either, none of them empty');
  }
  const prompts = several.map((item) => (typeof item === 'string' ? textModel.encode(item) : item));
  const wrong = prompts.flat().find((token) => token < 0 || token >= vocabulary);
  if (wrong !== undefined) throw invalid('prompt', wrong, `token ids below ${vocabulary}`);
  return prompts;
}

// A message with its content as text, which is what templates take.
function plainMessage(message, i) {
  const param = `messages[${i}]`;
  if (typeof message?.role !== 'string') throw invalid(`${param}.role`, message?.role, 'text');
  const {content} = message;
  if (typeof content === 'string') return message;
  const isText = (part) => part?.type === 'text' && typeof part.text === 'string';
  if (!Array.isArray(content)) {
    throw invalid(`${param}.content`, content, 'text, or a list of parts of type "text"');
  }
  const wrong = content.findIndex((part) => !isText(part));
  if (wrong !== -1) {
    const part = content[wrong];
    const [field, got] = part?.type === 'text' ? ['.text', part.text] : ['.type', part?.type];
    const allowed = field === '.text' ? 'text' : '"text": models are given text alone, no images';
    throw invalid(`${param}.content[${wrong}]${field}`, got, allowed);
  }
  return {...message, content: content.map(({text}) => text).join('')};
}

// An answer that keeps to a grammar is said at once.
function chatPrompts(body, textModel, grammar) {
  const {messages} = body;
  if (!Array.isArray(messages) || messages.length === 0) {
    throw invalid('messages', messages, 'a list of messages that is not empty');
  }
  const options = {effort: body.reasoning_effort ?? undefined, saysAtOnce: grammar !== undefined};
  return [textModel.encodeChat(messages.map(plainMessage), options)];
}

function lengthOf(body, prompts, maxTokens) {
  const name = body.max_completion_tokens != null ? 'max_completion_tokens' : 'max_tokens';
  const bounds = {least: 1, most: 2 ** 31, whole: true, otherwise: undefined};
  const wanted = numberOf(body, name, bounds);
  if (prompts.some((tokens) => tokens.length === 0)) {
    throw invalid('prompt', '', 'text of at least one token');
  }
  const prompt = prompts.reduce((most, {length}) => Math.max(most, length), 0);
  const left = maxTokens - prompt;
  if (left >= (wanted ?? 1)) return {wanted, left};
  const completion = wanted ?? 1;
  const message =
    `This model's maximum context length is ${maxTokens} tokens. However, you requested ` +
    `${prompt + completion} tokens (${prompt} in the prompt, ${completion} in the completion).`;
  throw refuse(400, message, body.messages ? 'messages' : 'prompt', 'context_length_exceeded');
}

// A request that is right: what to generate and how to answer. kind: 'completion' or 'chat'.
// context: {modelName, textModel, jsonFormats, described, maxTokens}. Throws ApiError.
export function parse(body, kind, context) {
  const {modelName, textModel, jsonFormats, described, maxTokens} = context;
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw invalid('body', body, 'a JSON object');
  }
  if (typeof body.model !== 'string') throw invalid('model', body.model, `"${modelName}"`);
  if (body.model !== modelName) {
    const message = `The model \`${body.model}\` does not exist, allowed: \`${modelName}\``;
    throw refuse(404, message, 'model', 'model_not_found');
  }
  checkFields(body, kind, textModel);
  const grammar = grammarOf(body, jsonFormats);
  const vocabulary = described.model.vocabSize;
  const prompts =
    kind === 'chat'
      ? chatPrompts(body, textModel, grammar)
      : completionPrompts(body, textModel, vocabulary);
  const choices = numberOf(body, 'n', {least: 1, most: MAX_CHOICES, whole: true, otherwise: 1});
  const numLogprobs = logprobsOf(body, kind, described);
  const {wanted, left} = lengthOf(body, prompts, maxTokens);
  const stream = flagOf(body, 'stream');
  return {
    kind,
    prompts,
    choices,
    grammar,
    // OpenAI's default for completions; an answer in a chat may take what is left.
    maxNewTokens: wanted ?? (kind === 'chat' ? left : Math.min(16, left)),
    sampling: {...samplingOf(body, described), numLogprobs: numLogprobs ?? 0},
    numLogprobs,
    seed: seedOf(body),
    stops: stopsOf(body),
    stream,
    ...streamOptionsOf(body, stream),
  };
}
