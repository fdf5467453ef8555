#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates from several prompts at once, two steps in flight: the smallest scheduler there is.

    generate.py --address unix:/run/reprise.sock --prompt "You may" --prompt "This License"
    generate.py --address localhost:50061 --tls-ca ca.pem --token-file chat.token --tokens 5,80,33

--prompt is for models whose tokens are bytes; all others take token ids and answer with ids.
"""
import argparse
import asyncio
import sys
from typing import Dict, Iterator, List

from reprise_client import Client, RepriseError, Tls, pb, read_token, rows_of


def plan(prompts: List[List[int]], tables: List[List[int]], count: int) -> Iterator[pb.StepRequest]:
    """All prompts in the first step, and then every row goes on until each has `count` tokens."""
    first = pb.StepRequest()
    for row, (prompt, table) in enumerate(zip(prompts, tables)):
        first.add.add(row=row, blocks=table, sampling=pb.Sampling(stop_at_eos=True))
        first.chunks.add(row=row, tokens=prompt, sample=True)
    yield first
    for _ in range(count - 1):
        yield pb.StepRequest(continue_all=True)


async def generate(client: Client, prompts: List[List[int]], count: int) -> Dict[int, List[int]]:
    """New tokens by prompt, up to an end-of-text token."""
    described = await client.describe()
    block_size = described.pool.block_size
    tokens: Dict[int, List[int]] = {row: [] for row in range(len(prompts))}
    async with await client.open_session("generate.py", resume_grace_s=20) as session:
        tables = [await session.allocate(-(-(len(p) + count) // block_size)) for p in prompts]
        async for answer in session.run(plan(prompts, tables, count)):
            for result in rows_of(answer):
                if result.token is not None:
                    tokens[result.row].append(result.token)
    return tokens


async def run(flags: argparse.Namespace) -> None:
    tls = Tls.from_files(ca=flags.tls_ca) if flags.tls_ca else None
    token = read_token(flags.token_file) if flags.token_file else None
    async with Client(flags.address, token=token, tls=tls) as client:
        described = await client.describe()
        is_bytes = described.model.token_encoding == pb.TOKEN_ENCODING_BYTES
        if flags.prompt and not is_bytes:
            sys.exit("--prompt: got a model whose tokens are not bytes, allowed: --tokens")
        prompts = [list(prompt.encode()) for prompt in flags.prompt]
        prompts += [[int(token) for token in tokens.split(",")] for tokens in flags.tokens]
        generated = await generate(client, prompts, flags.max_new_tokens)
        for row, prompt in enumerate(prompts):
            if is_bytes:
                text = bytes(t for t in prompt + generated[row] if t < 256)
                print(text.decode(errors="replace"))
            else:
                print(",".join(map(str, generated[row])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", required=True, help="unix:/path or host:port")
    parser.add_argument("--tls-ca", help="PEM file: the authority of the server's certificate")
    parser.add_argument("--token-file", help="file with this client's bearer token")
    parser.add_argument("--prompt", action="append", default=[], help="text; several are allowed")
    parser.add_argument("--tokens", action="append", default=[], help="token ids: 5,80,33")
    parser.add_argument("--max-new-tokens", type=int, default=32)
    flags = parser.parse_args()
    if not flags.prompt and not flags.tokens:
        parser.error("got no prompt, allowed: --prompt or --tokens, at least once")
    if flags.max_new_tokens < 1:
        parser.error(f"--max-new-tokens: got {flags.max_new_tokens}, allowed: at least 1")
    try:
        asyncio.run(run(flags))
    except (RepriseError, OSError, ValueError) as error:
        sys.exit(f"generate.py: {error}")


if __name__ == "__main__":
    main()
