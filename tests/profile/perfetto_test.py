#!/usr/bin/env python3
"""Perfetto traces of msprof convert, parsed with Perfetto's own message definitions (PyPI perfetto, in MS_PEERS_PYTHON; else
skipped): the same slices, names, times, arguments, counters and flows; slices nest on every track; no text is missing.

  perfetto_test.py MAKE_TRACE
"""
import collections
import csv
import glob
import gzip
import io
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../bench/peers"))
import peers  # noqa: E402

peers.need("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto  # noqa: E402

COLUMNS = {"cat": None, "correlation": "correlation", "bytes": "bytes", "flops": "flops", "collective": "Collective name",
           "process_group": "Process Group Name", "dtype": "dtype", "in_elements": "In msg nelems", "seq": "Seq",
           "source": "Src Rank", "destination": "Dst Rank"}
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
Slice = collections.namedtuple("Slice", "name start dur lane args flows")


def value_of(annotation, strings):
    kind = annotation.WhichOneof("value")
    if kind is None:
        return [value_of(element, strings) for element in annotation.array_values]
    value = getattr(annotation, kind)
    return strings[value] if kind == "string_value_iid" else value


class Trace:
    """Combines the packets by Perfetto's rules: interned texts per sequence, slices by a stack per track."""

    def __init__(self, data):
        trace = proto.Trace()
        trace.ParseFromString(data)
        self.slices, self.instants, self.counters, self.descriptors = [], [], [], {}
        self.clocks = None
        texts, stacks, clears = {}, {}, collections.Counter()
        last = {}
        for packet in trace.packet:
            sequence = packet.trusted_packet_sequence_id
            assert sequence > 0
            if packet.sequence_flags & 1:
                clears[sequence] += 1
                texts[sequence] = {"categories": {}, "names": {}, "keys": {}, "strings": {}}
            known = texts[sequence]
            for row in packet.interned_data.event_categories:
                known["categories"][row.iid] = row.name
            for row in packet.interned_data.event_names:
                known["names"][row.iid] = row.name
            for row in packet.interned_data.debug_annotation_names:
                known["keys"][row.iid] = row.name
            for row in packet.interned_data.debug_annotation_string_values:
                known["strings"][row.iid] = row.str.decode()
            if packet.HasField("clock_snapshot"):
                self.clocks = {clock.clock_id: clock.timestamp for clock in packet.clock_snapshot.clocks}
            if packet.HasField("track_descriptor"):
                descriptor = packet.track_descriptor
                assert descriptor.uuid not in self.descriptors and (not descriptor.parent_uuid or descriptor.parent_uuid in self.descriptors)
                self.descriptors[descriptor.uuid] = descriptor
            if not packet.HasField("track_event"):
                continue
            assert packet.timestamp >= last.get(sequence, 0), "packets of a sequence are in the order of time"
            last[sequence] = packet.timestamp
            event, uuid = packet.track_event, packet.track_event.track_uuid
            assert uuid in self.descriptors
            name = known["names"][event.name_iid] if event.HasField("name_iid") else event.name
            args = {known["keys"][a.name_iid]: value_of(a, known["strings"]) for a in event.debug_annotations}
            args["cat"] = ",".join([known["categories"][i] for i in event.category_iids] + list(event.categories))
            if event.type == proto.TrackEvent.TYPE_SLICE_BEGIN:
                stacks.setdefault(uuid, []).append(Slice(name, packet.timestamp, None, self.lane(uuid), args, list(event.flow_ids)))
            elif event.type == proto.TrackEvent.TYPE_SLICE_END:
                begun = stacks[uuid].pop()
                self.slices.append(begun._replace(dur=packet.timestamp - begun.start))
            elif event.type == proto.TrackEvent.TYPE_INSTANT:
                self.instants.append(Slice(name, packet.timestamp, 0, self.lane(uuid), args, []))
            else:
                assert event.type == proto.TrackEvent.TYPE_COUNTER and self.descriptors[uuid].HasField("counter")
                self.counters.append((self.descriptors[uuid].name, packet.timestamp, event.double_counter_value))
        assert not any(stacks.values()), "every slice ends"
        assert set(clears.values()) == {1}, "state is cleared once, at the start of a sequence"

    def lane(self, uuid):
        """(process, thread or stream)"""
        names = []
        while uuid:
            descriptor = self.descriptors[uuid]
            if descriptor.HasField("process"):
                return descriptor.process.pid, names
            if descriptor.HasField("thread"):
                names = [descriptor.thread.tid]
            elif descriptor.name and not (names and names[-1] == descriptor.name):
                names.append(descriptor.name)
            uuid = descriptor.parent_uuid
        return None, names


def convert(*arguments):
    path = peers.run("msprof", "convert", *arguments)
    with open(path, "rb") as file:
        data = file.read()
    return Trace(gzip.decompress(data) if path.endswith(".gz") else data)


def events(path):
    return list(csv.DictReader(io.StringIO(peers.run("msprof", "events", path, "--columns", "name,ts,dur,tid,device,stream," + ",".join(COLUMNS)))))


def check_same(path, folder):
    """Compares one rank with all its rows in msprof, with exact times."""
    trace = convert(path, "-o", os.path.join(folder, "one.perfetto-trace"))
    about = next(i for i in trace.instants if i.name == "msuite").args
    origin = about["origin_ns"]
    ours, theirs = collections.Counter(), collections.Counter()
    for row in events(path):
        ours[(row["name"], int(row["ts"]), int(row["dur"]), *(row[c] for c in COLUMNS))] += 1
    for s in trace.slices:
        arguments = [str(s.args.get(key or "cat", "")) for key in COLUMNS.values()]
        theirs[(s.name, s.start + origin, s.dur, *arguments)] += 1
        if s.args["cat"] in DEVICE:
            assert s.lane[1][-1] == f"device {s.args['device']}", s
    assert ours == theirs, f"{path}: {list((ours - theirs).items())[:3]} and {list((theirs - ours).items())[:3]}"
    ends = collections.defaultdict(list)
    for s in trace.slices:
        for flow in s.flows:
            ends[flow].append(s)
    for flow, joined in ends.items():
        assert {s.args["correlation"] for s in joined} == {flow}
    return trace, about


def check_ours(make_trace, folder):
    paths = subprocess.run([make_trace, os.path.join(folder, "traces")], check=True, capture_output=True, text=True).stdout.split()
    trace, about = check_same(paths[1], folder)
    assert (about["rank"], about["world_size"]) == (1, 2) and json.loads(about["msuite"])["meta"]["level"] == "level1"
    assert trace.clocks == {6: 0, 1: 1_700_000_000_000_000_000 + 40_000}, trace.clocks
    launches = [s for s in trace.slices if s.name == "cudaLaunchKernel"]
    kernels = {s.flows[0]: s for s in trace.slices if s.name == "gemm_bf16"}
    assert len(launches) == 6 and all(kernels[s.flows[0]].start == s.start + 2000 for s in launches)
    assert {s.lane[0] for s in trace.slices} == {4242} and kernels[1].lane[1] == ["stream 7", "device 0"]
    assert [c for c in trace.counters if c[0] == "ckpt_queue"] == [("ckpt_queue", 500_000 + 1_000_000 * i, float(i)) for i in range(3)]
    memory = [i for i in trace.instants if i.name == "[memory]"]
    assert len(memory) == 6 and sum(i.args["Bytes"] for i in memory) == 0 and {i.args["Tag"] for i in memory} == {"act"}

    merged = convert(os.path.join(folder, "traces"), "--merge", "-o", os.path.join(folder, "all.pftrace.gz"))
    starts = {s.lane[0]: s.start for s in reversed(merged.slices) if s.name == "gemm_bf16"}
    assert starts == {0: 100_000, 1: 100_000}, f"pid is the rank, on one clock: {starts}"
    assert len(merged.slices) == 2 * len(trace.slices)
    flows = collections.Counter(flow for s in merged.slices for flow in s.flows)
    assert set(flows.values()) == {2}, "an arrow joins a launch and its kernel, of one rank"


def check_overlaps(folder):
    """A trace with overlapping kernels on a stream and slices on a thread, odd names, and lanes with texts as ids."""
    x = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "args": {"device": 0, "stream": 7}}
    rows = [{**x, "ts": ts, "dur": dur} for ts, dur in ((0, 10), (5, 10), (7, 5), (7, 1), (15, 0), (15, 3))]
    rows += [{"ph": "X", "cat": "cpu_op", "name": name, "pid": 12, "tid": 34, "ts": ts, "dur": dur}
             for name, ts, dur in (("a", 0, 10.001), ("", 10, 5), ("\u00e9\n", 10, 2))]
    rows += [{"ph": "X", "cat": "Trace", "name": "t", "pid": "Spans", "tid": "PyTorch Profiler", "ts": 0, "dur": 20}]
    path = os.path.join(folder, "overlaps.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"traceEvents": rows}, file)
    trace, _ = check_same(path, folder)
    assert collections.Counter(map(str, (s.lane for s in trace.slices))) == {
        "(12, ['stream 7', 'device 0'])": 6, "(12, [34])": 3, "(None, ['PyTorch Profiler', 'Spans'])": 1}


def check_real(folder):
    data = os.environ.get("MS_TRACE_DATA", "")
    paths = sorted(glob.glob(os.path.join(data, "kineto/**/*.json*"), recursive=True) + glob.glob(os.path.join(data, "hta/ns_resolution/**/*.json*"), recursive=True))
    for path in (p for p in paths if "expected" not in p):
        check_same(path, folder)
        print(f"{os.path.basename(path)}: the same")


with tempfile.TemporaryDirectory() as folder:
    check_ours(sys.argv[1], folder)
    check_overlaps(folder)
    check_real(folder)
print("ok")
