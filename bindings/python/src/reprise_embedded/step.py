# SPDX-License-Identifier: Apache-2.0
"""What a step is asked to do."""
from __future__ import annotations

import ctypes
import dataclasses
from typing import Any, List, Mapping, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _library
from ._arrays import integer, integers, pointer
from ._library import Handle, call


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How a row samples, and when it stops by itself; greedy and without end by default."""

    temperature: float = 0.0  # 0: greedy
    seed: int = 0
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    max_new_tokens: int = 0  # 0: no such limit
    min_tokens: int = 0
    num_logprobs: int = 0  # likeliest tokens to report
    stop_at_eos: bool = False
    return_logits: bool = False
    stop_tokens: Sequence[int] = ()
    logit_bias: Mapping[int, float] = dataclasses.field(default_factory=dict)
    allowed_tokens: Optional[NDArray[np.bool_]] = None  # [vocab_size]; None: all


def _mask(allowed_tokens: Optional[NDArray[np.bool_]]) -> NDArray[np.uint8]:
    if allowed_tokens is None:
        return np.empty(0, np.uint8)
    mask = np.asarray(allowed_tokens)
    if mask.dtype != np.bool_ or mask.ndim != 1:
        raise TypeError(
            f"allowed_tokens: got {mask.dtype} of {mask.ndim} dimensions, "
            "allowed: bool, [vocab_size]"
        )
    return np.packbits(mask, bitorder="little")


def _sampling_of(sampling: Sampling) -> Tuple[_library.Sampling, List[Any]]:
    """With what it points to."""
    given = _library.make_struct(_library.Sampling)
    for name in ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty",
                 "frequency_penalty"):  # fmt: skip
        setattr(given, name, getattr(sampling, name))
    for name in ("top_k", "max_new_tokens", "min_tokens", "num_logprobs"):
        setattr(given, name, integer(name, getattr(sampling, name)))
    given.seed = integer("seed", sampling.seed, 2**64 - 1)
    given.stop_at_eos = bool(sampling.stop_at_eos)
    given.return_logits = bool(sampling.return_logits)
    stop = integers("stop_tokens", list(sampling.stop_tokens), np.uint32)
    tokens = integers("logit_bias", list(sampling.logit_bias), np.uint32)
    biases = np.array(list(sampling.logit_bias.values()), np.float32)
    mask = _mask(sampling.allowed_tokens)
    given.stop_tokens, given.num_stop_tokens = pointer(stop, ctypes.c_uint32), len(stop)
    given.bias_tokens, given.num_biases = pointer(tokens, ctypes.c_uint32), len(tokens)
    given.biases = pointer(biases, ctypes.c_float)
    given.allowed_tokens, given.num_allowed_bytes = pointer(mask, ctypes.c_uint8), len(mask)
    return given, [stop, tokens, biases, mask]


class Step(Handle):
    """A request, put together piece by piece; Session.step and Session.submit run it.

    It may run again, and what it was told is forgotten by `clear` alone. Within a step rows are
    dropped, blocks copied, rows added, blocks appended, and then rows run, in whatever order the
    methods were called.
    """

    _kind = "step"

    def __init__(self) -> None:
        super().__init__(lambda out: call("step_create", out))

    def clear(self) -> None:
        call("step_clear", self.handle)

    def add_row(
        self,
        row: int,
        blocks: ArrayLike,
        *,
        sampling: Optional[Sampling] = None,
        context_length: int = 0,
        history: ArrayLike = (),
        prompt_length: int = 0,
        fork_of: Optional[int] = None,
        swapped_state: Optional[int] = None,
    ) -> None:
        """Makes a row resident. context_length: tokens whose KV `blocks` already hold.

        fork_of: in models whose rows carry state beside their KV, the row whose state one with
        context begins with; it has as many tokens, by steps whose results are there.
        swapped_state: instead, what `Session.swap_out_state` gave of such a row.
        """
        given, kept = _sampling_of(sampling or Sampling())
        ids = integers("blocks", blocks, np.uint32)
        past = integers("history", history, np.uint32)
        add = _library.make_struct(_library.RowAdd)
        add.row = integer("row", row)
        add.context_length = integer("context_length", context_length)
        add.sampling = ctypes.pointer(given)
        add.blocks, add.num_blocks = pointer(ids, ctypes.c_uint32), len(ids)
        add.history, add.num_history = pointer(past, ctypes.c_uint32), len(past)
        add.prompt_length = integer("prompt_length", prompt_length)
        if fork_of is not None:
            add.is_fork, add.fork_of = 1, integer("fork_of", fork_of)
        if swapped_state is not None:
            add.has_swapped_state = 1
            add.swapped_state = integer("swapped_state", swapped_state)
        call("step_add_row", self.handle, ctypes.byref(add))
        del kept  # until here

    def run_chunk(
        self,
        row: int,
        tokens: ArrayLike,
        *,
        sample: bool = True,
        prompt_logprobs: bool = False,
        next_token: Optional[int] = None,
    ) -> None:
        """Runs tokens at the row's next positions; with `sample` a token follows the last."""
        ids = integers("tokens", tokens, np.uint32)
        chunk = _library.make_struct(_library.RowChunk)
        chunk.row = integer("row", row)
        chunk.tokens, chunk.num_tokens = pointer(ids, ctypes.c_uint32), len(ids)
        chunk.sample = bool(sample)
        chunk.prompt_logprobs = bool(prompt_logprobs)
        chunk.has_next_token = next_token is not None
        chunk.next_token = 0 if next_token is None else integer("next_token", next_token)
        call("step_run_chunk", self.handle, ctypes.byref(chunk))

    def continue_row(self, row: int) -> None:
        """Runs the row's next token from its last sampled one."""
        call("step_continue_row", self.handle, integer("row", row))

    def continue_all(self) -> None:
        """The same of every row of the session that can."""
        call("step_continue_all", self.handle)

    def draft_tokens(self, row: int, tokens: ArrayLike) -> None:
        """Tokens that a row that continues in this step is expected to sample next, in order.

        Those that it would have sampled anyway are accepted: StepResult.accepted. At least one; of
        all rows at most EngineInfo.max_draft_tokens.
        """
        ids = integers("tokens", tokens, np.uint32)
        number = integer("row", row)
        call("step_draft_tokens", self.handle, number, pointer(ids, ctypes.c_uint32), len(ids))

    def drop_row(self, row: int) -> None:
        call("step_drop_row", self.handle, integer("row", row))

    def append_blocks(self, row: int, blocks: ArrayLike) -> None:
        ids = integers("blocks", blocks, np.uint32)
        number = integer("row", row)
        call("step_append_blocks", self.handle, number, pointer(ids, ctypes.c_uint32), len(ids))

    def copy_block(self, source: int, destination: int) -> None:
        """For rows that fork."""
        source, destination = integer("source", source), integer("destination", destination)
        call("step_copy_block", self.handle, source, destination)

    def set_allowed_tokens(self, row: int, allowed_tokens: Optional[NDArray[np.bool_]]) -> None:
        """[vocab_size]; None: all."""
        mask = _mask(allowed_tokens)
        number = integer("row", row)
        bits = pointer(mask, ctypes.c_uint8)
        call("step_set_allowed_tokens", self.handle, number, bits, len(mask))

    def set_prefix_group(self, group: int, num_blocks: int, rows: ArrayLike) -> None:
        """Rows whose tables begin with the same blocks; group 0: of no group."""
        ids = integers("rows", rows, np.uint32)
        group, num_blocks = integer("group", group), integer("num_blocks", num_blocks)
        call("step_set_prefix_group", self.handle, group, num_blocks,
             pointer(ids, ctypes.c_uint32), len(ids))  # fmt: skip

    def set_num_steps(self, num_steps: int) -> None:
        """Rows that sample in the first step continue in the others."""
        call("step_set_num_steps", self.handle, integer("num_steps", num_steps))

    def set_eager(self, eager: bool) -> None:
        """Launch by launch and not by replay; the same bits."""
        call("step_set_mode", self.handle, int(bool(eager)))

    def set_isolate_bad_rows(self, isolate: bool) -> None:
        """Rows with an entry that is wrong are refused alone: StepResult.refused."""
        call("step_set_isolate_bad_rows", self.handle, int(bool(isolate)))
