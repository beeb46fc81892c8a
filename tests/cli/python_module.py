#!/usr/bin/env python3
"""The Python module with the built binaries: results are dicts, errors carry the exit code, a negative answer is no error."""
import json
import os
import pathlib
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["MS_SOURCE"])
sys.path.insert(0, str(SOURCE / "tools" / "python"))
import msuite  # noqa: E402

MODEL, OTHER = SOURCE / "tests/data/hf_llama_tiny", SOURCE / "tests/data/hf_qwen2_tiny"


def write_trace(folder):
    """Kineto's JSON of two ranks; the second computes for twice as long in a span of 100 us."""
    for rank in (0, 1):
        busy = 30 * (rank + 1)
        events = [{"ph": "X", "cat": "kernel", "name": "gemm", "pid": rank, "tid": 7, "ts": 1000, "dur": busy, "args": {"stream": 7}},
                  {"ph": "X", "cat": "kernel", "name": "gemm", "pid": rank, "tid": 7, "ts": 1090, "dur": 10, "args": {"stream": 7}}]
        with open(folder / f"rank{rank}.json", "w", encoding="utf-8") as out:
            json.dump({"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}, out)


class PythonModule(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def test_convert_verify_diff_and_inspect(self):
        report = msuite.convert(MODEL, self.folder / "mg", to="mg", target_tensor_parallel_size=2, prove=True)
        self.assertEqual((report["from"], report["to"], report["proof"]["faults"]), ("hf", "mg", []))
        self.assertTrue(os.path.isdir(report["path"]))
        self.assertTrue(msuite.verify(self.folder / "mg", against=MODEL)["ok"])
        self.assertTrue(msuite.diff(MODEL, self.folder / "mg")["equal"])
        self.assertEqual(msuite.inspect(self.folder / "mg")["layout"]["tp"], 2)

    def test_an_answer_that_is_no_raises_nothing(self):
        self.assertFalse(msuite.diff(MODEL, OTHER)["equal"])

    def test_list_and_false_options_become_flags(self):
        report = msuite.convert(MODEL, self.folder / "out", to="hf-bin", rename=[r"^model\.=m."], dry_run=True, compress=False)
        self.assertTrue(report["dry_run"])
        self.assertFalse((self.folder / "out").exists())

    def test_a_failure_carries_exit_code_and_message(self):
        with self.assertRaises(msuite.MsuiteError) as caught:
            msuite.inspect(self.folder / "absent")
        self.assertEqual(caught.exception.exit_code, 2)
        self.assertIn("no such file or folder", str(caught.exception))
        self.assertFalse(str(caught.exception).startswith("E "))

    def test_trace_tables(self):
        write_trace(self.folder)
        ranks = msuite.open_trace(self.folder).breakdown()["ranks"]
        self.assertEqual([row["breakdown"]["computing_us"] for row in ranks], [40, 70])
        self.assertEqual([row["breakdown"]["idle_us"] for row in ranks], [60, 30])
        with self.assertRaises(FileNotFoundError):
            msuite.open_trace(self.folder / "absent.json")
        with self.assertRaises(ValueError):
            msuite.open_trace()

    def test_breakdown_frame_has_a_row_a_rank(self):
        try:
            import pandas  # noqa: F401
        except ImportError:
            self.skipTest("needs pandas")
        write_trace(self.folder)
        frame = msuite.open_trace(self.folder).breakdown_frame()
        self.assertEqual(list(frame["rank"]), [0, 1])
        self.assertEqual(list(frame["computing_us"]), [40, 70])


if __name__ == "__main__":
    unittest.main()
