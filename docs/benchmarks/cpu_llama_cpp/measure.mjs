// SPDX-License-Identifier: Apache-2.0
// Times llama.cpp on the CPU through node-llama-cpp: prompts of 512 tokens in one batch, decode of 1
// and of 8 sequences, one batch a step, around 512 tokens of context. Prints a line of JSON. Times
// are those of llama_decode alone; sampling is given apart. See ../cpu_llama_cpp.md.
//
// usage: node measure.mjs FILE.gguf [THREADS=2] [MMAP=1]
import {getLlama} from "node-llama-cpp";

const file = process.argv[2];
const threads = Number(process.argv[3] ?? 2);
const useMmap = Number(process.argv[4] ?? 1) === 1;
const PROMPT = 512;
const STEPS = 16;
const FIRST = PROMPT - STEPS;  // context at which decode begins
const WARMUP = 2;

const llama = await getLlama({gpu: false, build: "never", maxThreads: threads});
const model = await llama.loadModel({modelPath: file, useMmap});

function randomTokens(n) {
    return Uint32Array.from({length: n}, () => 300 + Math.floor(Math.random() * 127000));
}

// One batch of [sequence, position, tokens]. Returns its time and where each one's logits lie.
async function decode(context, entries) {
    const begin = performance.now();
    context.initBatch(entries.reduce((n, [, , tokens]) => n + tokens.length, 0));
    const logits = entries.map(([sequence, position, tokens]) =>
        context.addToBatch(sequence, position, tokens, Uint32Array.of(tokens.length - 1))[0]);
    await context.decodeBatch();
    return {ms: performance.now() - begin, logits};
}

async function timePrompts(context, count) {
    const times = [];
    for (let i = 0; i <= count; ++i) {
        const {ms} = await decode(context, [[0, 0, randomTokens(PROMPT)]]);
        if (i > 0) times.push(ms);  // the first one touches memory that is not there yet
        context.disposeSequence(0);
    }
    return times;
}

async function timeDecode(context, rows) {
    const sampler = new llama._bindings.AddonSampler(model._model);
    sampler.applyConfig({temperature: 0});
    await decode(context, [[0, 0, randomTokens(FIRST)]]);
    for (let s = 1; s < rows; ++s) await context.copySequenceStateFromOtherSequence(s, 0);
    const chosen = [...randomTokens(rows)];
    const times = [], sampling = [];
    for (let i = 0; i < STEPS + WARMUP; ++i) {
        const {ms, logits} =
            await decode(context, chosen.map((token, s) => [s, FIRST + i, Uint32Array.of(token)]));
        const begin = performance.now();
        for (let s = 0; s < rows; ++s) chosen[s] = await context.sampleToken(logits[s], sampler);
        if (i < WARMUP) continue;
        times.push(ms);
        sampling.push(performance.now() - begin);
    }
    return {times, sampling};
}

const out = {system: llama.systemInfo, mmap: useMmap};
for (const rows of [1, 8]) {
    const made = await model.createContext({sequences: rows, contextSize: 576, batchSize: PROMPT,
        threads: {ideal: threads, min: threads}, flashAttention: true});
    const context = made._ctx;
    context.setThreads(threads);
    out.threads = context.getThreads();
    if (rows === 1) out.prompt_ms = await timePrompts(context, 2);
    const {times, sampling} = await timeDecode(context, rows);
    out[`decode_${rows}_ms`] = times;
    out[`sampling_${rows}_ms`] = sampling;
    await made.dispose();
}
console.log(JSON.stringify(out, (_, x) => typeof x === "number" ? Number(x.toFixed(2)) : x));
process.exit(0);
