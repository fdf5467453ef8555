// SPDX-License-Identifier: Apache-2.0
// Decode steps of a GGUF file by llama.cpp on a GPU, through node-llama-cpp, for the table of peers.
//
//   node llama_cpp.mjs FILE.gguf [ROWS=1,8,64,128] [CONTEXT=512] > llama_cpp.json
//
// Every row is a sequence of its own whose prompt was decoded before; a step is one batch with a
// token for each, around so many tokens of context. Times are of the host: "decode_ms" from the call
// that decodes to its end, "step_ms" from there to the first row's token, chosen greedily by the
// processor, so that the device has certainly finished. KV is f16, flash attention is on, all layers
// are on the device.
import {getLlama} from "node-llama-cpp";

const file = process.argv[2];
const rowCounts = (process.argv[3] ?? "1,8,64,128").split(",").map(Number);
const CONTEXT = Number(process.argv[4] ?? 512);
const STEPS = 48;
const WARMUP = 8;
const FIRST = CONTEXT - STEPS / 2 - WARMUP;  // context at which decode begins
const BATCH = 2048;

const llama = await getLlama({gpu: "cuda", build: "never", progressLogs: false});
const model = await llama.loadModel({modelPath: file, gpuLayers: "max", useMmap: false});
const sampler = new llama._bindings.AddonSampler(model._model);
sampler.applyConfig({temperature: 0});

function randomTokens(n) {
    return Uint32Array.from({length: n}, () => 300 + Math.floor(Math.random() * 127000));
}

// One batch of [sequence, position, tokens]. Returns where each one's logits lie.
async function decode(context, entries) {
    context.initBatch(entries.reduce((n, [, , tokens]) => n + tokens.length, 0));
    const logits = entries.map(([sequence, position, tokens]) =>
        context.addToBatch(sequence, position, tokens, Uint32Array.of(tokens.length - 1))[0]);
    await context.decodeBatch();
    return logits;
}

async function timeRows(rows) {
    const made = await model.createContext({sequences: rows, contextSize: CONTEXT + STEPS,
        batchSize: BATCH, flashAttention: true});
    const context = made._ctx;
    for (let row = 0; row < rows; ++row) await decode(context, [[row, 0, randomTokens(FIRST)]]);
    const decode_ms = [], step_ms = [];
    for (let i = 0; i < WARMUP + STEPS; ++i) {
        const entries = [...randomTokens(rows)].map((token, row) =>
            [row, FIRST + i, Uint32Array.of(token)]);
        const begin = performance.now();
        const logits = await decode(context, entries);
        const decoded = performance.now();
        await context.sampleToken(logits[0], sampler);
        if (i < WARMUP) continue;
        decode_ms.push(decoded - begin);
        step_ms.push(performance.now() - begin);
    }
    await made.dispose();
    return {rows, context: CONTEXT, decode_ms, step_ms};
}

const out = {llama_cpp: llama.llamaCppRelease, system: llama.systemInfo,
    device: await llama.getGpuDeviceNames(), cells: []};
for (const rows of rowCounts) out.cells.push(await timeRows(rows));
for (const {rows, decode_ms, step_ms} of out.cells) {
    const at = (times, share) => [...times].sort((a, b) => a - b)[Math.floor(share * times.length)];
    console.error(`${rows}@${CONTEXT}: decode p50 ${at(decode_ms, 0.5).toFixed(2)} ms (p10 ` +
        `${at(decode_ms, 0.1).toFixed(2)}, p90 ${at(decode_ms, 0.9).toFixed(2)}), with one token ` +
        `chosen ${at(step_ms, 0.5).toFixed(2)}`);
}
console.log(JSON.stringify(out, (_, x) => typeof x === "number" ? Number(x.toFixed(3)) : x));
process.exit(0);
