#!/usr/bin/env python3
"""Writes tests/data/perfetto/ with Perfetto's own message definitions (PyPI perfetto). Run it with an interpreter that has
them, and commit: tests/profile/ingest/perfetto_test.cpp reads the files and says what is in them.

sdk.perfetto-trace       as the tracing SDK writes: times that count on, defaults, texts by number that begin anew, a loss
kineto.perfetto-trace    as a converter might: nothing interned, Kineto's categories and arguments by name
"""
import pathlib

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

FOLDER = pathlib.Path(__file__).parent / "perfetto"
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4


def sdk():
    trace = proto.Trace()
    clocks = trace.packet.add(trusted_packet_sequence_id=9).clock_snapshot
    for clock, time in ((6, 5_000_000_000), (1, 1_700_000_005_000_000_000), (3, 4_000_000_000)):
        clocks.clocks.add(clock_id=clock, timestamp=time)
    trace.packet.add(trusted_packet_sequence_id=9).ftrace_events.cpu = 3
    trace.packet.add(trusted_packet_sequence_id=9).trace_uuid.msb = 7

    def start(sequence, track, first=False):
        packet = trace.packet.add(trusted_packet_sequence_id=sequence, sequence_flags=1)
        if first:
            packet.previous_packet_dropped = 1  # there is none before it, and nothing is lost
        packet.trace_packet_defaults.timestamp_clock_id = 64
        packet.trace_packet_defaults.track_event_defaults.track_uuid = track
        packet.clock_snapshot.clocks.add(clock_id=6, timestamp=5_000_001_000)
        packet.clock_snapshot.clocks.add(clock_id=64, timestamp=5_000_001, is_incremental=True, unit_multiplier_ns=1000)

    def describe(**fields):
        return trace.packet.add(trusted_packet_sequence_id=1, track_descriptor=proto.TrackDescriptor(**fields))

    def event(sequence, delta, kind, **fields):
        packet = trace.packet.add(trusted_packet_sequence_id=sequence, sequence_flags=2, timestamp=delta)
        packet.track_event.type = kind
        for name, value in fields.items():
            if isinstance(value, list):
                getattr(packet.track_event, name).extend(value)
            else:
                setattr(packet.track_event, name, value)
        return packet

    start(1, 11, first=True)
    describe(uuid=10, process=proto.ProcessDescriptor(pid=4000, process_name="server"))
    describe(uuid=11, parent_uuid=10, thread=proto.ThreadDescriptor(pid=4000, tid=4001, thread_name="worker"))
    first = event(1, 1, BEGIN, name_iid=1, category_iids=[1])
    first.interned_data.event_names.add(iid=1, name="outer")
    first.interned_data.event_categories.add(iid=1, name="toplevel")
    event(1, 2, BEGIN, name="inner", categories=["net", "cpu_op"], flow_ids=[77])
    event(1, 3, END)
    event(1, 4, INSTANT, name="mark", track_uuid=10)
    # Another sequence means other texts by the same numbers, and its clock counts on by itself.
    start(2, 12, first=True)
    describe(uuid=12, parent_uuid=10, thread=proto.ThreadDescriptor(pid=4000, tid=4002, thread_name="pool"))
    other = event(2, 5, BEGIN, name_iid=1, terminating_flow_ids=[77])
    other.interned_data.event_names.add(iid=1, name="task")
    event(2, 5, END)
    event(1, 10, END)  # of "outer", which has lasted 17 us
    # State that begins anew, and the thread's slices that overlap on a track below it.
    start(1, 11)
    again = event(1, 100, BEGIN, name_iid=1)
    again.interned_data.event_names.add(iid=1, name="second")
    describe(uuid=13, parent_uuid=11, name="worker")
    event(1, 5, BEGIN, name="across", track_uuid=13)
    event(1, 5, END)
    event(1, 5, END, track_uuid=13)
    # A counter that counts on in units of 10, described behind its first use of another.
    event(1, 0, COUNTER, track_uuid=15, double_counter_value=0.25)
    describe(uuid=14, parent_uuid=11, name="bytes", counter=proto.CounterDescriptor(is_incremental=True, unit_multiplier=10))
    describe(uuid=15, parent_uuid=10, name="load", counter=proto.CounterDescriptor())
    event(1, 1, COUNTER, track_uuid=14, counter_value=3)
    event(1, 1, COUNTER, track_uuid=14, counter_value=-1)
    # A loss: what refers to numbers is not to be believed until the sequence begins anew.
    lost = event(2, 1, BEGIN, name_iid=1)
    lost.previous_packet_dropped = 1
    event(2, 1, END)
    start(2, 12)
    event(2, 200, BEGIN, name_iid=9)
    event(2, 1, END)
    return trace


def kineto():
    trace = proto.Trace()
    for uuid, tid, name in ((1, 50, "main"), (2, 51, "")):
        thread = proto.ThreadDescriptor(pid=42, tid=tid, thread_name=name)
        trace.packet.add(track_descriptor=proto.TrackDescriptor(uuid=uuid, thread=thread))
    trace.packet.add(track_descriptor=proto.TrackDescriptor(uuid=3, name="GPU 2"))
    for uuid in (4, 5):
        trace.packet.add(track_descriptor=proto.TrackDescriptor(uuid=uuid, parent_uuid=3, name="stream 9"))

    def whole(track, name, category, start, end, **arguments):
        packet = trace.packet.add(timestamp=start)
        packet.track_event.type, packet.track_event.track_uuid, packet.track_event.name = BEGIN, track, name
        packet.track_event.categories.append(category)
        for key, value in arguments.items():
            annotation = packet.track_event.debug_annotations.add(name=key.replace("__", " "))
            field = {bool: "bool_value", int: "int_value", float: "double_value", str: "string_value"}[type(value)]
            setattr(annotation, field, value)
        packet = trace.packet.add(timestamp=end)
        packet.track_event.type, packet.track_event.track_uuid = END, track

    whole(1, "ProfilerStep#3", "user_annotation", 1000, 9000)
    whole(2, "aten::mm", "cpu_op", 1500, 2500, Input__Dims="[[2, 3], [3, 4]]")
    whole(1, "cudaLaunchKernel", "cuda_runtime", 2000, 2100, correlation=5)
    whole(4, "gemm", "kernel", 3000, 5000, device=2, stream=9, correlation=5, flops=48.0, grid="[1]")
    whole(5, "ncclDevKernel_AllReduce", "kernel", 4000, 7001, device=2, stream="9", correlation=6,
          Collective__name="allreduce", In__msg__nelems=64, dtype="Float", Process__Group__Ranks="[0, 1]")
    whole(1, "launch", "new_runtime", 2200, 2300, correlation=7)
    whole(4, "k", "new_kind", 7500, 8000, device=2, stream=9, correlation=7)
    whole(4, "marker", "new_kind", 8000, 8001, device=2, stream=9)
    # What is not sorted by time, or has lost its other half.
    trace.packet.add(timestamp=8500, track_event=proto.TrackEvent(type=END, track_uuid=2))
    trace.packet.add(timestamp=100, track_event=proto.TrackEvent(type=END, track_uuid=2))
    trace.packet.add(timestamp=8400, track_event=proto.TrackEvent(type=BEGIN, track_uuid=2, name="late"))
    trace.packet.add(timestamp=8600, track_event=proto.TrackEvent(type=BEGIN, track_uuid=2, name="open"))
    return trace


FOLDER.mkdir(exist_ok=True)
for name, content in (("sdk", sdk()), ("kineto", kineto())):
    (FOLDER / f"{name}.perfetto-trace").write_bytes(content.SerializeToString(deterministic=True))
