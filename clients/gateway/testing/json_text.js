// SPDX-License-Identifier: Apache-2.0
// Texts that are drawn at random under masks, as a row draws them at a high temperature.
import {JsonFormats} from '../src/json_format.js';

// Numbers from 0 up to 1; the same for the same seed.
export function makeRandom(seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9) | 0;
    return (Math.imul(state ^ (state >>> 12), 0x297a2d39) >>> 0) / 2 ** 32;
  };
}

export const isAllowed = (mask, token) => ((mask[token >> 3] >> (token & 7)) & 1) === 1;

export function allowedTokens(mask) {
  const tokens = [];
  mask.forEach((byte, i) => {
    for (let bit = 0; bit < 8; ++bit) if ((byte >> bit) & 1) tokens.push(8 * i + bit);
  });
  return tokens;
}

export function makeFormats(textModel, vocabSize, endTokens) {
  const model = {vocabSize, eosTokenIds: endTokens};
  return new JsonFormats(textModel, {model, limits: {adjustLogits: true}});
}

// Draws tokens until the text ends, every one that is allowed alike. After `patience` tokens those
// go before that end strings and lists, so that an end comes. Throws Error where none does.
export function drawTokens(matcher, {random, endTokens, closing, patience = 400}) {
  const tokens = [];
  while (!matcher.isDone) {
    if (tokens.length > patience + 2000) throw new Error('the text does not end');
    const allowed = allowedTokens(matcher.mask);
    if (allowed.length === 0) throw new Error('no token is allowed');
    const ends = allowed.filter((token) => endTokens.includes(token) || closing.includes(token));
    const choices = tokens.length > patience && ends.length > 0 ? ends : allowed;
    const token = choices[Math.floor(random() * choices.length)];
    if (!matcher.advance(token)) throw new Error(`token ${token} is allowed and not taken`);
    if (endTokens.includes(token)) return tokens;
    tokens.push(token);
  }
  return tokens;
}
