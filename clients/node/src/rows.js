// SPDX-License-Identifier: Apache-2.0
// An answer's columns as one object per row.

// The answer's rows, in its order; of a request of several steps there is one per row and step.
// token and logprob are undefined where nothing was sampled; top has the likeliest tokens, in that
// order, for rows that asked.
export function rowsOf(answer) {
  const rows = answer.rows;
  if (!rows) return [];
  let top = 0;
  return rows.row.map((row, i) => {
    const begin = top;
    top += rows.numTop[i] ?? 0;
    const likeliest = [];
    for (let j = begin; j < top; ++j) {
      likeliest.push({token: rows.topToken[j], logprob: rows.topLogprob[j]});
    }
    return {
      row,
      status: rows.status[i],
      token: rows.sampled[i] ? rows.token[i] : undefined,
      logprob: rows.sampled[i] ? rows.logprob[i] : undefined,
      contextLength: rows.contextLength[i],
      finishReason: rows.finishReason[i] ?? 'FINISH_REASON_UNSPECIFIED',
      rank: rows.rank[i] ?? 0,
      top: likeliest,
    };
  });
}
