// SPDX-License-Identifier: Apache-2.0
// One request that is right: its choices are generated and answered, at once or as a stream.
import {Answer} from './answer.js';
import {ApiError, toApiError} from './api_error.js';
import {Choice} from './choice.js';

function usageOf(request, choices) {
  const sum = (counts) => counts.reduce((a, b) => a + b, 0);
  const prompt = sum(request.prompts.map((tokens) => tokens.length));
  // Of each prompt by its first choice; the others share what that one computes.
  const first = choices.filter((_, i) => i % request.choices === 0);
  const cached = sum(first.map(({generation}) => generation.cachedTokens));
  const completion = sum(choices.map(({generation}) => generation.tokens.length));
  const thinks = choices.some(({reasoningTokens}) => reasoningTokens !== undefined);
  const thought = sum(choices.map(({reasoningTokens}) => reasoningTokens ?? 0));
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    prompt_tokens_details: {cached_tokens: cached},
    ...(thinks && {completion_tokens_details: {reasoning_tokens: thought}}),
  };
}

// How many choices a request asks for. Throws ApiError where so many never find room.
function countOf({prompts, choices}, {maxQueue}) {
  const count = prompts.length * choices;
  if (count <= maxQueue) return count;
  const param = choices > 1 ? 'n' : 'prompt';
  const got = `${count} answers, ${choices} to each of ${prompts.length} prompts`;
  throw new ApiError(400, `${param}: got ${got}, allowed: at most ${maxQueue}`, {
    param,
    code: 'invalid_value',
  });
}

// All choices of a request, submitted. onPiece(choice, piece): as of Choice. Throws ApiError where
// one of them cannot be queued; then none is.
function submit(request, {scheduler, textModel, jsonFormats}, onPiece) {
  // Before they are made: a small body may ask for millions.
  scheduler.checkRoom(countOf(request, scheduler));
  const choices = request.prompts.flatMap((prompt, i) => {
    const group = request.choices > 1 ? {} : undefined;
    return Array.from({length: request.choices}, (_, j) => {
      const index = i * request.choices + j;
      const choice = new Choice({
        index,
        prompt,
        request,
        textModel,
        matcher: request.grammar && jsonFormats.matcher(request.grammar),
        group,
        onPiece: (piece) => onPiece(choice, piece),
      });
      return choice;
    });
  });
  try {
    for (const {generation} of choices) scheduler.submit(generation);
  } catch (error) {
    for (const {generation} of choices) scheduler.cancel(generation);
    throw error;
  }
  return choices;
}

// Resolves to the choices when each has ended or `response` has lost its client; then the rest is
// cancelled. Rejects with the first error of one.
function generate(request, context, response, onPiece) {
  return new Promise((resolve, reject) => {
    let left = request.prompts.length * request.choices;
    const cancel = () => {
      for (const {generation} of choices) {
        if (!generation.ended) context.scheduler.cancel(generation);
      }
    };
    const choices = submit(request, context, (choice, piece) => {
      onPiece(choice, piece);
      if (choice.finishReason === 'error') {
        cancel();
        reject(choice.error);
      } else if (choice.finishReason !== null && --left === 0) {
        resolve(choices);
      }
    });
    response.on('close', () => {
      if (left === 0) return;
      cancel();
      resolve(choices);
    });
  });
}

async function answerWhole(request, context, response) {
  const texts = new Map();
  const choices = await generate(request, context, response, ({index}, piece) => {
    const so = texts.get(index) ?? {text: '', reasoning: '', logprobs: []};
    texts.set(index, {
      text: so.text + piece.text,
      reasoning: so.reasoning + piece.reasoning,
      logprobs: [...so.logprobs, ...piece.logprobs],
    });
  });
  if (response.destroyed) return;
  const asked = request.numLogprobs !== undefined;
  const whole = choices.map(({index, finishReason, reasoningTokens}) => {
    const {text, reasoning, logprobs} = texts.get(index);
    const thoughts = reasoningTokens === undefined ? {} : {reasoning};
    const rest = {logprobs: asked ? logprobs : undefined, finish_reason: finishReason};
    return {index, text, ...thoughts, ...rest};
  });
  const answer = new Answer(request.kind, context.modelName);
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify(answer.whole(whole, usageOf(request, choices))));
}

async function answerStream(request, context, response) {
  const answer = new Answer(request.kind, context.modelName);
  const asked = request.numLogprobs !== undefined;
  const begun = new Set();
  const send = (value) => {
    if (response.destroyed) return;
    if (!response.headersSent) {
      response.writeHead(200, {'content-type': 'text/event-stream', 'cache-control': 'no-cache'});
    }
    response.write(`data: ${typeof value === 'string' ? value : JSON.stringify(value)}\n\n`);
  };
  try {
    const choices = await generate(request, context, response, (choice, piece) => {
      const {index, finishReason} = choice;
      const {text, reasoning, logprobs} = piece;
      if (finishReason === 'error') return;
      const isFirst = !begun.has(index);
      begun.add(index);
      const rest = {logprobs: asked ? logprobs : undefined, finish_reason: finishReason};
      send(answer.piece({index, text, reasoning, isFirst, ...rest}));
    });
    if (request.includeUsage) send(answer.usage(usageOf(request, choices)));
    send('[DONE]');
  } catch (error) {
    if (!response.headersSent) throw error; // a status of its own
    send(toApiError(error).body);
  }
  response.end();
}

// context: {scheduler, textModel, jsonFormats, modelName}. Rejects with ApiError before anything is
// written.
export function serveRequest(request, context, response) {
  return request.stream
    ? answerStream(request, context, response)
    : answerWhole(request, context, response);
}
