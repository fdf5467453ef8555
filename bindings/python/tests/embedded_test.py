#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The package as it is installed, on the host device.

usage: embedded_test.py --source REPOSITORY
"""

import argparse
import ctypes
import gc
import pathlib
import re
import sys
import threading
import unittest
import weakref

import numpy as np
import reprise_embedded as reprise
from reprise_embedded import _library

SOURCE = pathlib.Path()
PROMPT = [5, 9, 2, 7]


def host():
    return reprise.Device("host", host_threads=2)


def tiny(device, **options):
    model = SOURCE / "tests/fixtures/llama-tiny"
    given = {"max_rows": 4, "kv_cache_bytes": 1 << 20, "mixed_buckets": [32], **options}
    return reprise.Engine(device, model, **given)


class Declarations(unittest.TestCase):
    """That _library.py says what reprise.h says."""

    def setUp(self):
        header = (SOURCE / "capi/reprise.h").read_text()
        self.text = re.sub(r"//[^\n]*", "", header)

    def test_structs_have_the_fields_of_the_header(self):
        types = {
            "size_t": ctypes.c_size_t, "double": ctypes.c_double, "float": ctypes.c_float,
            "uint8_t": ctypes.c_uint8, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64,
            "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "char*": ctypes.c_char_p,
            "void*": ctypes.c_void_p, "reprise_progress_fn": _library.ProgressFn,
            "reprise_sampling": _library.Sampling,
        }  # fmt: skip
        for alias in re.findall(r"typedef int32_t (reprise_\w+);", self.text):
            types[alias] = ctypes.c_int32
        structs = re.findall(r"typedef struct (reprise_\w+) \{(.*?)\}", self.text, re.DOTALL)
        self.assertEqual(len(structs), 15)
        for name, body in structs:
            python = "".join(word.capitalize() for word in name.split("_")[1:])
            expected = []
            for field in re.findall(r"([^;]+);", body):
                ctype, stars, member, size = re.match(
                    r"\s*(?:const )?(\w+)((?:\*| const)*) (\w+)(?:\[(\d+)\])?$", field
                ).groups()
                depth = stars.count("*")
                if ctype in ("char", "void") and depth:
                    ctype, depth = ctype + "*", depth - 1
                kind = ctypes.c_char * int(size) if size else types[ctype]
                for _ in range(depth):
                    kind = ctypes.POINTER(kind)
                expected.append((member, kind))
            self.assertEqual(getattr(_library, python)._fields_, expected, name)

    def test_functions_take_what_the_header_says(self):
        declared = re.findall(r"\b(reprise_\w+)\(([^)]*)\);", self.text)
        declared = [pair for pair in declared if not pair[0].endswith("_fn")]
        self.assertGreater(len(declared), 50)
        for name, arguments in declared:
            function = getattr(_library._library, name)
            count = 0 if arguments == "void" else arguments.count(",") + 1
            self.assertIsNotNone(function.argtypes, name)
            self.assertEqual(len(function.argtypes), count, name)

    def test_version_is_that_of_the_library(self):
        self.assertEqual(reprise.__version__, _library.ask("version").decode())

    def test_library_and_abseil_are_those_beside_the_package(self):
        folder = str(pathlib.Path(reprise.__file__).parent)
        maps = pathlib.Path("/proc/self/maps").read_text()
        loaded = set(re.findall(r"/\S*/lib(?:reprise|absl)\S*", maps))
        self.assertTrue(any("libreprise.so.0" in path for path in loaded), loaded)
        self.assertEqual([path for path in loaded if not path.startswith(folder)], [])


class Errors(unittest.TestCase):
    def test_each_code_has_a_class(self):
        for code in range(1, 17):
            name = _library.ask("code_name", code).decode()
            self.assertEqual(_library.error_of(code, "x").code, name)
        self.assertIsInstance(_library.error_of(99, "x"), reprise.UnknownError)

    def test_refusals_say_what_got_and_allowed(self):
        with self.assertRaisesRegex(ValueError, "device: got 'gpu', allowed: auto, host"):
            reprise.Device("gpu")
        with self.assertRaisesRegex(reprise.Unavailable, "/no/such/library"):
            reprise.Device("hip", hip_library="/no/such/library")
        with host() as device:
            with self.assertRaisesRegex(reprise.NotFound, "/no/such/model"):
                reprise.Engine(device, "/no/such/model")
            with self.assertRaisesRegex(reprise.InvalidArgument, "dtype is \"f8\"; allowed: auto"):
                tiny(device, dtype="f8")
            with self.assertRaisesRegex(TypeError, "got rows, allowed: .*max_rows"):
                tiny(device, rows=3)
            with self.assertRaisesRegex(ValueError, "max_rows: got -1"):
                tiny(device, max_rows=-1)
            with self.assertRaisesRegex(TypeError, "max_rows: got 1.5, allowed: an integer"):
                tiny(device, max_rows=1.5)

    def test_numbers_are_checked_before_they_are_cut_to_32_bits(self):
        with reprise.Step() as step:
            with self.assertRaisesRegex(ValueError, "tokens: got -1, allowed: 0 to 4294967295"):
                step.run_chunk(1, [3, -1])
            with self.assertRaisesRegex(ValueError, "tokens: got 4294967296"):
                step.run_chunk(1, np.array([1 << 32]))
            with self.assertRaisesRegex(TypeError, "tokens: got float64, allowed: integers"):
                step.run_chunk(1, [1.0])
            with self.assertRaisesRegex(ValueError, "tokens: got 2 dimensions, allowed: 1"):
                step.run_chunk(1, [[1, 2]])
            with self.assertRaisesRegex(ValueError, "row: got 4294967296"):
                step.continue_row(1 << 32)

    def test_what_is_closed_says_so(self):
        device = host()
        device.close()
        device.close()
        with self.assertRaisesRegex(ValueError, "Device: it is closed"):
            device.stream()


class Engines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.device = host()
        cls.engine = tiny(cls.device, max_steps_per_request=4)

    @classmethod
    def tearDownClass(cls):
        cls.engine.close()
        cls.device.close()

    def assert_nothing_is_held(self):
        pool = self.engine.pool
        self.assertEqual(pool.free_blocks, pool.num_blocks - 1)

    def test_engine_says_what_it_is(self):
        info = self.engine.info
        self.assertEqual((info.model, info.architecture, info.max_rows), ("llama-tiny", "llama", 4))
        self.assertEqual(info.max_steps_per_request, 4)
        self.assertEqual([b.name for b in self.engine.decode_buckets],
                         ["decode/1", "decode/2", "decode/4"])  # fmt: skip
        self.assertEqual([b.capacity for b in self.engine.mixed_buckets], [32])
        self.assertGreater(self.engine.decode_buckets[0].num_kernel_nodes, 0)
        self.engine.check_health()

    def greedy(self, count, **sampling):
        """By hand, step by step."""
        with self.engine.session() as session, reprise.Step() as step:
            step.add_row(1, session.allocate(8), sampling=reprise.Sampling(**sampling))
            step.run_chunk(1, np.array(PROMPT, np.uint32))
            tokens = []
            while len(tokens) < count:
                tokens.append(int(session.step(step).token[0]))
                step.clear()
                step.continue_all()
            return tokens

    def test_generate_streams_the_tokens_of_steps(self):
        expected = self.greedy(40)
        given = list(self.engine.generate(PROMPT, max_new_tokens=40, sampling=reprise.Sampling()))
        self.assertEqual(given, expected)
        self.assert_nothing_is_held()

    def test_generate_ends_with_a_stop_token(self):
        tokens = self.greedy(8)
        sampling = reprise.Sampling(stop_tokens=[tokens[3]])
        self.assertEqual(
            list(self.engine.generate(PROMPT, sampling=sampling)),
            tokens[: tokens.index(tokens[3]) + 1],
        )

    def test_generate_takes_prompts_of_several_chunks_and_stops_at_the_context_limit(self):
        prompt = [i % 50 for i in range(100)]  # chunks of 32
        limit = self.engine.info.max_context_length
        tokens = list(self.engine.generate(prompt, sampling=reprise.Sampling()))
        self.assertEqual(len(tokens), limit - len(prompt) + 1)
        self.assert_nothing_is_held()

    def test_generators_take_turns_and_give_back_what_they_held(self):
        with self.engine.session() as session:
            sampling = reprise.Sampling()
            first = session.generate(PROMPT, sampling=sampling)
            second = session.generate(PROMPT, sampling=sampling)
            pairs = [(next(first), next(second)) for _ in range(5)]
            self.assertEqual([a for a, _ in pairs], self.greedy(5))
            self.assertEqual([b for _, b in pairs], self.greedy(5))
            self.assertEqual(session.use.num_rows, 2)
            first.close()
            self.assertEqual(session.use.num_rows, 1)
            second.close()
            use = session.use
            self.assertEqual((use.num_rows, use.num_blocks), (0, 0))
        self.assert_nothing_is_held()

    def test_generate_refuses_before_the_first_token(self):
        with self.assertRaisesRegex(ValueError, "prompt: got no tokens"):
            self.engine.generate([])
        with self.assertRaisesRegex(TypeError, "prompt: got <U4, allowed: integers"):
            self.engine.generate("text")
        with self.assertRaisesRegex(reprise.InvalidArgument, "token"):
            list(self.engine.generate([4_000_000]))
        self.assert_nothing_is_held()

    def test_sampling_reaches_the_row(self):
        vocab_size = self.engine.info.vocab_size
        mask = np.zeros(vocab_size, np.bool_)
        mask[11] = True
        with self.engine.session() as session, reprise.Step() as step:
            step.add_row(1, session.allocate(2), sampling=reprise.Sampling(allowed_tokens=mask))
            step.add_row(2, session.allocate(2), sampling=reprise.Sampling(
                logit_bias={3: 100.0}, num_logprobs=2, return_logits=True))  # fmt: skip
            step.run_chunk(1, PROMPT, prompt_logprobs=True, next_token=4)
            step.run_chunk(2, PROMPT)
            result = session.step(step)
        self.assertEqual(result.row.tolist(), [1, 2])
        self.assertEqual(result.token.tolist(), [11, 3])
        self.assertEqual(result.sampled.dtype, np.bool_)
        self.assertEqual(list(result.logits), [2])
        logits = result.logits[2]
        self.assertEqual(logits.shape, (vocab_size,))
        begin = result.top_begin[1]
        self.assertEqual(result.top_token[begin], np.argmax(logits))
        log_softmax = logits[3] - np.log(np.exp(logits.astype(np.float64)).sum())
        self.assertAlmostEqual(float(result.logprob[1]), float(log_softmax), places=4)
        self.assertEqual(result.prompt.position.tolist(), [1, 2, 3, 4])
        self.assertEqual(result.prompt.row.tolist(), [1] * 4)
        with self.assertRaisesRegex(TypeError, "allowed_tokens: got int64"):
            with reprise.Step() as step:
                step.set_allowed_tokens(1, np.zeros(4, np.int64))

    def test_several_steps_per_request_are_columns_one_after_another(self):
        with self.engine.session() as session, reprise.Step() as step:
            for row in (1, 2):
                step.add_row(row, session.allocate(2))
                step.run_chunk(row, PROMPT)
            step.set_num_steps(3)
            result = session.step(step)
        self.assertEqual(len(result.steps), 3)
        self.assertEqual(result.row.tolist(), [1, 2] * 3)
        expected = self.greedy(3)
        for token, single in zip(expected, result.steps):
            self.assertEqual(result.token[single.rows].tolist(), [token, token])
            self.assertTrue(single.replayed)
        self.assertEqual([single.graph for single in result.steps],
                         ["mixed/32", "decode/2", "decode/2"])  # fmt: skip
        self.assertGreater(result.ledger.total_ns, 0)

    def test_a_refused_step_leaves_the_session_as_it_was(self):
        with self.engine.session() as session, reprise.Step() as step:
            step.continue_row(7)
            with self.assertRaisesRegex(reprise.NotFound, "row 7"):
                session.step(step)
            step.clear()
            step.add_row(1, session.allocate(2))
            step.run_chunk(1, PROMPT)
            step.continue_row(7)
            step.set_isolate_bad_rows(True)
            result = session.step(step)
            self.assertEqual(result.sequence, 1)
            self.assertIsInstance(result.refused[7], reprise.NotFound)
            self.assertEqual(result.row.tolist(), [1])

    def test_rows_grow_fork_and_go(self):
        with self.engine.session() as session, reprise.Step() as step:
            blocks = session.allocate(3)
            step.add_row(1, blocks[:1])
            step.run_chunk(1, PROMPT)
            session.step(step)
            step.clear()
            step.append_blocks(1, blocks[1:2])
            step.copy_block(int(blocks[0]), int(blocks[2]))
            step.add_row(2, blocks[2:], context_length=len(PROMPT))
            step.run_chunk(2, [8])
            step.set_eager(True)
            result = session.step(step)
            self.assertEqual(result.context_length.tolist(), [5])
            self.assertFalse(result.steps[0].replayed)
            step.clear()
            step.drop_row(1)
            step.drop_row(2)
            session.step(step)
            session.free(blocks)
        self.assert_nothing_is_held()

    def test_requests_are_pipelined(self):
        with self.engine.session() as session, reprise.Step() as step:
            step.add_row(1, session.allocate(2))
            step.run_chunk(1, PROMPT)
            first = session.submit(step)
            step.clear()
            step.continue_all()
            second = session.submit(step)
            with self.assertRaises(reprise.ResourceExhausted):
                session.submit(step)
            with self.assertRaises(reprise.FailedPrecondition):
                self.engine.wait(second)
            tokens = [int(self.engine.wait(ticket).token[0]) for ticket in (first, second)]
            self.assertEqual(tokens, self.greedy(2))

    def test_sessions_of_several_threads_share_the_engine(self):
        expected = self.greedy(6)
        given = [None] * 3

        def run(i):
            tokens = self.engine.generate(PROMPT, max_new_tokens=6, sampling=reprise.Sampling())
            given[i] = list(tokens)

        threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(given, [expected] * 3)

    def test_progress_is_told_while_the_engine_starts(self):
        stages = []
        with tiny(self.device, progress=lambda *said: stages.append(said)):
            pass
        self.assertEqual({stage for stage, *_ in stages}, {"load", "capture"})
        self.assertEqual(stages[-1][2], stages[-1][3])


class Graphs(unittest.TestCase):
    def setUp(self):
        self.device = host()
        self.stream = self.device.stream()
        self.ran = []

    def enqueue(self, stream, capacity):
        stream.run(lambda: self.ran.append(capacity))

    def test_a_callable_is_captured_and_replayed_by_size(self):
        manager = reprise.GraphManager(self.stream, [8, 1, 4], self.enqueue, name="mine")
        self.assertEqual(self.ran, [8, 4, 1])  # warm-up
        report = manager.replay(3)
        self.assertEqual(report, reprise.ReplayReport("mine/4", 4, 1))
        manager.replay(8)
        manager.run_eager(1)
        self.stream.synchronize()
        self.assertEqual(self.ran, [8, 4, 1, 4, 8, 1])
        self.assertEqual([b.name for b in manager.captured], ["mine/1", "mine/4", "mine/8"])
        self.assertEqual(manager.captured[0].num_other_nodes, 1)
        with self.assertRaisesRegex(reprise.OutOfRange, "size is 9; the largest bucket"):
            manager.replay(9)
        manager.close()

    def test_without_warm_up_nothing_runs_before_a_replay(self):
        with reprise.GraphManager(self.stream, [2], self.enqueue, warm_up=False) as manager:
            self.stream.synchronize()
            self.assertEqual(self.ran, [])
            manager.replay(1)
            self.stream.synchronize()
        self.assertEqual(self.ran, [2])

    def test_what_the_callable_raises_is_raised(self):
        def enqueue(stream, capacity):
            raise KeyError("no such weight")

        with self.assertRaisesRegex(KeyError, "no such weight") as caught:
            reprise.GraphManager(self.stream, [1], enqueue)
        self.assertIn("bucket 'graph/1', warm-up: KeyError", str(caught.exception.__cause__))
        with self.assertRaisesRegex(TypeError, "enqueue: got None, allowed: a callable"):
            reprise.GraphManager(self.stream, [1], None)
        with self.assertRaisesRegex(reprise.FailedPrecondition, "the stream is capturing"):
            reprise.GraphManager(self.stream, [1], lambda *_: self.stream.synchronize())
        reprise.GraphManager(self.stream, [1], self.enqueue).close()

    def test_the_stream_of_a_capture_is_of_no_use_behind_it(self):
        streams = []
        reprise.GraphManager(self.stream, [1], lambda stream, _: streams.append(stream)).close()
        with self.assertRaisesRegex(reprise.InvalidArgument, "stream: got NULL"):
            streams[0].run(print)

    def test_what_enqueued_work_raises_breaks_the_stream(self):
        def fail():
            raise OSError("the disk is gone")

        self.stream.run(fail)
        with self.assertRaisesRegex(reprise.InternalError, "OSError: the disk is gone"):
            self.stream.synchronize()
        with self.assertRaises(reprise.InternalError):
            self.stream.run(fail)
        with self.assertRaisesRegex(TypeError, "function: got 3"):
            self.device.stream().run(3)

    def test_nothing_is_kept_of_what_is_closed(self):
        class Work:
            def __call__(self):
                pass

        work = Work()
        gone = weakref.ref(work)
        manager = reprise.GraphManager(self.stream, [1], lambda s, _, work=work: s.run(work))
        manager.replay(1)
        self.stream.synchronize()
        del work
        self.assertIsNotNone(gone())
        manager.close()
        del manager
        gc.collect()
        self.assertIsNone(gone())

    def test_handles_are_collected_in_any_order(self):
        def make():
            device = host()
            stream = device.stream()
            manager = reprise.GraphManager(stream, [1], self.enqueue)
            manager.replay(1)
            cycle = [device, stream, manager]
            cycle.append(cycle)

        for _ in range(5):
            make()
            self.stream.run(gc.collect)  # in a stream's own thread
            self.stream.synchronize()
        gc.collect()


class Memory(unittest.TestCase):
    def setUp(self):
        self.device = host()

    def test_host_sees_the_memory_of_the_host_device(self):
        mapped = self.device.mapped((2, 3), np.int32)
        array = mapped.numpy()
        self.assertEqual(array.tolist(), [[0, 0, 0], [0, 0, 0]])
        array[1, 2] = 5
        self.assertEqual(mapped.numpy()[1, 2], 5)
        self.assertEqual(mapped.device_address, array.ctypes.data)
        self.assertEqual(mapped.nbytes, 24)

    def test_streams_write_and_read(self):
        buffer = self.device.empty(4)
        stream = self.device.stream()
        stream.write(buffer, np.arange(4))
        self.assertEqual(stream.read(buffer).tolist(), [0, 1, 2, 3])
        with self.assertRaisesRegex(ValueError, r"got shape \(3,\), allowed: \(4,\)"):
            stream.write(buffer, np.arange(3))

    def test_dlpack_shares_memory_and_keeps_it(self):
        buffer = self.device.mapped((2, 2), np.int16)
        self.assertEqual(buffer.__dlpack_device__(), (1, 0))
        buffer.numpy()[0, 1] = 7
        shared = np.from_dlpack(buffer)
        self.assertEqual(shared.dtype, np.int16)
        self.assertEqual(shared.ctypes.data, buffer.device_address)
        gone = weakref.ref(buffer)
        del buffer
        gc.collect()
        self.assertIsNotNone(gone())
        self.assertEqual(shared.tolist(), [[0, 7], [0, 0]])
        del shared
        gc.collect()
        self.assertIsNone(gone())

    def test_a_capsule_that_nobody_takes_keeps_nothing(self):
        buffer = self.device.empty(4)
        gone = weakref.ref(buffer)
        capsule = buffer.__dlpack__()
        del buffer
        self.assertIsNotNone(gone())
        del capsule
        gc.collect()
        self.assertIsNone(gone())

    def test_views_keep_the_memory(self):
        array = self.device.mapped(3).numpy()
        gc.collect()
        array[:] = 2
        self.assertEqual(array.sum(), 6)

    def test_shapes_and_dtypes_are_refused_by_name(self):
        with self.assertRaisesRegex(ValueError, r"shape: got \(0,\)"):
            self.device.empty(0)
        with self.assertRaisesRegex(TypeError, "dtype: got object"):
            self.device.empty(1, object)


def main() -> int:
    global SOURCE  # pylint: disable=global-statement
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    SOURCE = parser.parse_args().source
    program = unittest.main(argv=[sys.argv[0]], exit=False)
    return 0 if program.result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
