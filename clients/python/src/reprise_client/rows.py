# SPDX-License-Identifier: Apache-2.0
"""An answer's columns as one object per row."""
from __future__ import annotations

import dataclasses
from typing import Iterator, List, Optional, Tuple

from reprise.v1 import step_service_pb2 as pb


@dataclasses.dataclass(frozen=True)
class RowResult:
    """What one row did in one step; of a request of several steps there is one per row and step.

    token, logprob: None where nothing was sampled. finish_reason: a pb.FinishReason. rank: of the
    token among all, 1 for the likeliest; 0 where the row did not ask. top: (token, logprob) of the
    likeliest, in that order.
    """

    row: int
    status: int
    token: Optional[int]
    logprob: Optional[float]
    context_length: int
    finish_reason: int
    rank: int
    top: Tuple[Tuple[int, float], ...]


def rows_of(answer: pb.StepResponse) -> List[RowResult]:
    """The answer's rows, in its order."""
    rows = answer.rows
    top: Iterator[Tuple[int, float]] = iter(zip(rows.top_token, rows.top_logprob))
    results = []
    for i, row in enumerate(rows.row):
        num_top = rows.num_top[i] if rows.num_top else 0
        results.append(
            RowResult(
                row=row,
                status=rows.status[i],
                token=rows.token[i] if rows.sampled[i] else None,
                logprob=rows.logprob[i] if rows.sampled[i] else None,
                context_length=rows.context_length[i],
                finish_reason=rows.finish_reason[i] if rows.finish_reason else 0,
                rank=rows.rank[i] if rows.rank else 0,
                top=tuple(next(top) for _ in range(num_top)),
            )
        )
    return results
