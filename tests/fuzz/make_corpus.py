#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets whose formats need none of our programs. Run tests/fuzz/make_corpus.py, and commit.

manifest/ and native_shard/ come from tests/ckpt/make_checkpoint, mstrace/*.mstrace from tests/support/make_trace, perfetto/ours from msprof, name_map/ and gguf/ from msckpt:
`tests/fuzz/make_corpus.py BUILD_FOLDER` makes those too. Inputs that once broke a reader are stored beside the seeds,
named after what is wrong with them.
"""
import json
import pathlib
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).parent
DATA = HERE.parent / "data"


def seed(reader, name, content):
    path = HERE / "corpus" / reader / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def torch_files():
    """Files written by torch.save and Python (tests/data/make_torch_files.py)."""
    for name in ("state_dict.pt", "protocol4.pt"):
        seed("torch_file", name, (DATA / "torch" / name).read_bytes())
    for protocol in (2, 4):
        seed("pickle", f"values{protocol}.pkl", (DATA / "torch" / f"values{protocol}.pkl").read_bytes())
    with zipfile.ZipFile(DATA / "torch/nested.pt") as archive:
        seed("pickle", "nested.pkl", archive.read(next(name for name in archive.namelist() if name.endswith("/data.pkl"))))
    seed("dcp_metadata", "dcp.metadata", (DATA / "dcp" / ".metadata").read_bytes())
    seed("dcp_named", "fsdp.metadata", (DATA / "dcp_fsdp" / ".metadata").read_bytes())
    seed("named_file", "nested.pt", (DATA / "torch/nested.pt").read_bytes())
    seed("named_file", "legacy.pt", (DATA / "torch/legacy.pt").read_bytes())
    seed("named_file", "weights.safetensors", (DATA / "fsdp_ranks/expected/shard_2.safetensors").read_bytes())
    for place, name in enumerate(("buckets_moe_ep2", "model_space_moe_ep2")):
        metadata = (DATA / "megatron_dist_kinds" / name / "iter_0000007/.metadata").read_bytes()
        seed("megatron_dist", f"{place}.{name}.metadata", bytes([place]) + metadata)


def pickles_of_folders():
    """Pickles of files in real checkpoint folders, after the number of the place where the target puts each."""
    for reader, files in {
            "megatron_tree": ["megatron/mindspeed_te/iter_0000001/mp_rank_00/model_optim_rng.pt",
                              "megatron/legacy_gpt/iter_0000007/mp_rank_00_000/model_optim_rng.pt",
                              "megatron/tied_pp2_distributed/iter_0000007/mp_rank_00_000/distrib_optim.pt",
                              "megatron/moe_ep2_distributed/iter_0000007/mp_rank_00_000/model_optim_rng.pt",
                              "mindspeed_llm/qwen3_dualpipev_noop/mg/iter_0000001/mp_rank_00_000/model_optim_rng.pt",
                              "megatron/old_buckets/iter_0000007/mp_rank_00_000/distrib_optim.pt",
                              "megatron/mindspeed_latent/iter_0000001/mp_rank_00_000_000/model_optim_rng.pt"],
            "deepspeed": ["deepspeed/zero1/global_step3/mp_rank_00_model_states.pt",
                          "deepspeed/zero1/global_step3/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
                          "deepspeed/zero3/global_step3/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"],
            "rank_files": ["fsdp_ranks/shard_2/model_world_size_2_rank_1.pt",
                           "fsdp_ranks/shard_2/optim_world_size_2_rank_0.pt",
                           "fsdp_ranks/tp_4/model_world_size_4_rank_0.pt"]}.items():
        for place, file in enumerate(files):
            with zipfile.ZipFile(DATA / file) as archive:
                pickle = archive.read(next(name for name in archive.namelist() if name.endswith("/data.pkl")))
            seed(reader, f"{place}.{file.split('/')[1]}.pkl", bytes([place]) + pickle)


def safetensors():
    header = json.dumps({
        "__metadata__": {"format": "pt"},
        "a.weight": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
        "b": {"dtype": "F32", "shape": [], "data_offsets": [12, 16]},
        "empty": {"dtype": "I64", "shape": [0, 5], "data_offsets": [16, 16]},
    })
    header += " " * (-len(header) % 8)
    seed("safetensors", "three_tensors", struct.pack("<Q", len(header)) + header.encode() + bytes(range(16)))
    seed("safetensors", "no_tensors", struct.pack("<Q", 2) + b"{}")


def huggingface():
    for model in ("hf_llama_tiny", "hf_qwen2_tiny", "hf_qwen3_tiny", "hf_phi3_longrope_tiny"):
        seed("hf_config", model, (DATA / model / "config.json").read_bytes())
    index = json.loads((DATA / "hf_llama_tiny_sharded/model.safetensors.index.json").read_text())
    seed("hf_index", "three_files", json.dumps(index))


def small_texts():
    seed("layout", "tp2_zero", '{"tp":2,"pp":1,"vpp":1,"ep":1,"etp":1,"cp":1,"dp":2,"order":"tp-cp-ep-dp-pp","zero":1,"layer_map":"even"}')
    seed("layout", "pp2", '{"tp":1,"pp":2,"vpp":1,"ep":1,"etp":1,"cp":1,"dp":1,"order":"tp-cp-ep-dp-pp","zero":0,"layer_map":"even"}')
    seed("class_rules", "three", json.dumps([{"name": "^mycomm_", "class": "COMMUNICATION"}, {"name": "stage_(copy|move){1,2}[0-9]*$", "class": "MEMORY"},
                                             {"name": "(?=a)(a*)*b|\\bgemm", "class": "COMPUTATION"}]))
    seed("mask_grid", "blocks", "1100\n1100\n0011\n0011\n")
    seed("mask_grid", "numpy", "# 3 x 3\n1 0 0\n1 1 0\n\n0 0 1\n")
    seed("mask_grid", "a_blind_row", "10\n00\n")
    seed("path_list", "two_lines", "a/b_text_document\n\nc d\n")
    routing = (DATA / "routing/megatron/router_trace_rank0.jsonl").read_text().splitlines(keepends=True)
    seed("router_trace", "megatron.jsonl", "".join(routing[:3]))
    seed("router_trace", "metrics.jsonl", '{"iteration":1,"consumed_train_samples":4,"experts":[{"layer":1,"tokens":[9,3,0,0],"dropped":0,'
         '"z_loss":0.5}],"arena":{"blocks":3}}\n')
    seed("router_trace", "fewer_tokens", '{"step": 0, "layer": 1, "rank": 0, "num_tokens": 2, "topk": 1, "top_indices": [[1]]}\n')
    model = {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "swiglu": True, "normalization": "RMSNorm",
             "position_embedding_type": "rope", "add_bias_linear": False, "vocab_size": 257}
    run = {"seq_length": 32, "train_iters": 10, "lr": 1e-3, "data_path": ["0.3", "a", "0.7", "b"], "profile_ranks": [0, 1],
           "bf16": True, "lr_warmup_fraction": 0.1, "recompute_granularity": None}
    seed("config", "grouped", json.dumps({"model": model, "training": {"seq_length": 32, "train_iters": 10}, "optimizer": {"lr": 1e-3}}))
    seed("config", "flat", json.dumps({**model, **run}))
    seed("yaml", "megatron", "language_model: &b {num_layers: 4, hidden_size: 64, num_attention_heads: 4, activation_func: swiglu}\n"
         "model_parallel:\n  <<: *b\n  bf16: True\n  params_dtype: null\nmicro_batch_size: 2\nprofile_ranks: [0, 1]\n"
         "split: '99,1,0'\ndata_path: |\n  0.3 a\n  0.7 b\n")


def plans():
    # axes, global shape, then (side, offset and extent per axis): halves by rows become halves by columns.
    seed("plan", "rows_to_columns", bytes([2, 4, 6, 0, 0, 2, 0, 6, 0, 2, 2, 0, 6, 1, 0, 4, 0, 3, 1, 0, 4, 3, 3]))
    seed("plan", "a_hole", bytes([1, 8, 0, 0, 3, 0, 4, 4, 1, 0, 8]))
    seed("plan", "an_overlap", bytes([1, 8, 0, 0, 5, 0, 4, 4, 1, 0, 8]))
    seed("plan", "a_replica", bytes([1, 8, 0, 0, 8, 2, 0, 8, 1, 0, 4, 1, 4, 4]))
    seed("plan", "a_scalar", bytes([0, 0, 1]))


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7f | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def signed(value):
    return varint((value << 1) ^ (value >> 63))


def split(values):
    """The bytes and the packed low bits of core/trace/split_number.h."""
    sizes, bits, used = bytearray(), 0, 0
    for value in values:
        magnitude, low = abs(value), max(0, abs(value).bit_length() - 2)
        sizes.append((0x80 if value < 0 else 0) | (2 * low + (magnitude >> low)))
        bits |= (magnitude & ((1 << low) - 1)) << used
        used += low
    return bytes(sizes), bits.to_bytes((used + 7) // 8, "little")


def traces():
    def chunk(kind, events, payload):
        return struct.pack("<BBH", kind, events, len(payload)) + payload

    def column(payload):
        return varint(len(payload)) + payload

    meta = {"format": 2, "rank": 0, "world_size": 2, "level": "level1", "pid": 7, "start_clocks_ns": [0, 1700000000000000000]}
    strings = [b"", b"main", b"gemm", b"allreduce", b"tp", b"[0, 1]", b"fp32", b"stream 7"]
    tables = varint(len(strings)) + b"".join(column(s) for s in strings)
    tables += varint(1) + b"\x01" + signed(7) + varint(7) + varint(2) + b"\x00"  # a lane with two events
    tables += varint(2) + varint(0) + varint(0) + varint(0) + varint(2)          # frames
    tables += varint(1) + varint(2) + varint(6)                                  # shapes
    tables += varint(1) + varint(3) + varint(4) + varint(5) + varint(6)          # communication
    columns = [b"\x02\x05", b"\x1f\x00", varint(2) + varint(3), signed(64), signed(32), signed(1), varint(1), varint(0),
               varint(0) + signed(1) + signed(8) + signed(8) + signed(-1), b"", b""]
    (starts, start_bits), (durs, dur_bits) = split([10, 20]), split([5, 9])
    columns += [starts, durs, start_bits, dur_bits]
    events = signed(1000) + tables + b"".join(column(c) for c in columns)
    clock = json.dumps({"at_ns": 5, "offset_ns": -3, "error_ns": 2}).encode()
    footer = json.dumps({**meta, "events": 2, "dropped": 1}).encode()
    seed("mstrace", "unpacked",
         chunk(0, 0, json.dumps(meta).encode()) + chunk(1, 2, events) + chunk(2, 0, clock) + chunk(3, 0, footer))


def ascend():
    """The files of a folder, with a byte 1 between them (ascend_fuzz.cpp), and a database."""
    trace = [{"ph": "M", "name": "process_name", "pid": p, "args": {"name": n}} for p, n in
             ((1, "Python"), (2, "Ascend Hardware"), (3, "HCCL"), (4, "Overlap Analysis"))]
    trace += [{"ph": "M", "name": "thread_name", "pid": p, "tid": t, "args": {"name": n}} for p, t, n in
              ((2, 3, "Stream 3"), (3, 0, "Group 0 Communication"), (4, 0, "Computing"), (4, 1, "Communication"), (4, 2, "Free"))]
    trace += [{"ph": "X", "name": n, "pid": p, "tid": t, "ts": f"{ts}.125", "dur": 10.5, "args": {"Task Type": "AI_CORE", "connection_id": 9}}
              for n, p, t, ts in (("ProfilerStep#7", 1, 5, 100), ("MatMul", 2, 3, 120), ("hcom_allReduce__1_0_1", 3, 0, 125), ("Computing", 4, 0, 120))]
    trace += [{"ph": ph, "cat": "async_npu", "name": "torch_to_npu", "id": "9", "pid": p, "tid": t, "ts": ts}
              for ph, p, t, ts in (("s", 1, 5, "110"), ("f", 2, 3, "120"))]
    link = {"Transport Type": "HCCS", "Transit Size(MB)": 1.5, "Transit Time(ms)": 0.5, "Bandwidth(GB/s)": 3}
    files = [
        '{"rank_id": 0}',
        'Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Stream ID\na,MatMul,AI_CORE,1699529622790614.812\t,10.125,1,3\n'
        '"b\nc",Add,AI_VECTOR_CORE,1699529622790700.001\t,.875,0,3\nshort,row\nhcom_x,hcom,HCCL,1699529622790800,2,N/A,4\n',
        "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,Preparing\n50,1.5,2,0.5,2.5,3,6,1,0.25\n",
        "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB)\nPTA,1,5.5,6\nAPP,3,N/A,\n",
        "Name,Size(KB),Allocation Time(us),Release Time(us),Allocation Total Allocated(MB)\naten::empty,20.5,1.5,,7\nx,1,2,3,4\n",
        json.dumps({"step50": {"collective": {"hcom_allReduce-total@1": {"0-1": link, "1-0": link}}}}), json.dumps(trace)]
    seed("ascend", "everything", "\1".join(files))
    seed("ascend", "tables_only", "\1".join([*files[:6], ""]))
    path = HERE / "corpus/ascend_database/small.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path)
    names = ["AI_CORE", "MatMul", "hcom_allReduce__1_0_1", "aten::mm", "aclnnMatmul", "group"]
    database.executescript("PRAGMA page_size=512;" + "".join(f"CREATE TABLE {table};" for table in (
        "STRING_IDS(id INTEGER PRIMARY KEY, value TEXT)", "TASK(startNs, endNs, connectionId, globalTaskId, taskType, streamId)",
        "COMPUTE_TASK_INFO(name, globalTaskId, taskType)", "COMMUNICATION_OP(opName, startNs, endNs, connectionId, groupName)",
        "PYTORCH_API(startNs, endNs, globalTid, name)", "CANN_API(startNs, endNs, globalTid, name, connectionId)",
        "STEP_TIME(id, startNs, endNs)", "RANK_DEVICE_MAP(rankId, deviceId)")))
    database.executemany("INSERT INTO STRING_IDS VALUES(?, ?)", enumerate(names))
    start = 1699529622790614812
    database.executemany("INSERT INTO TASK VALUES(?, ?, ?, ?, 0, 3)", [(start + i * 100, start + i * 100 + 50, i, i) for i in range(1, 4)])
    database.executemany("INSERT INTO COMPUTE_TASK_INFO VALUES(1, ?, 0)", [(1,), (2,)])
    database.execute("INSERT INTO COMMUNICATION_OP VALUES(2, ?, ?, 3, 5)", (start + 300, start + 380))
    database.execute("INSERT INTO PYTORCH_API VALUES(?, ?, 4294967301, 3)", (start, start + 90))
    database.execute("INSERT INTO CANN_API VALUES(?, ?, 4294967301, 4, 1)", (start + 10, start + 40))
    database.execute("INSERT INTO STEP_TIME VALUES(7, ?, ?)", (start, start + 1000))
    database.execute("INSERT INTO RANK_DEVICE_MAP VALUES(0, 0)")
    database.commit()
    database.close()


def perfetto_traces():
    """Traces written with Perfetto's own message definitions (tests/data/make_perfetto.py)."""
    for name in ("sdk", "kineto"):
        seed("perfetto", f"{name}.perfetto-trace", (DATA / f"perfetto/{name}.perfetto-trace").read_bytes())


def flight_records():
    """Dumps of PyTorch (tests/data/flight/make_dumps.py); ours: from_our_programs."""
    for name in ("gloo_stuck/nccl_trace_rank_0", "gloo_mismatch/rank_0.json", "nccl_pipeline/_dump_1"):
        seed("flight", name.replace("/", "."), (DATA / "flight" / name).read_bytes())


def own_flight_record(build):
    """Of a rank of a pipeline; without the names of the machine that made it."""
    with tempfile.TemporaryDirectory() as folder:
        model = ("--num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --micro-batch-size 1 --global-batch-size 2 --lr 1e-3 "
                 "--mock-data --vocab-size 64 --tokenizer-type NullTokenizer --eval-iters 0 --peak-tflops 1 --train-iters 1").split()
        subprocess.run(["mpirun", "--oversubscribe", "-n", "2", build / "bin/mstrain", *model, "--pipeline-model-parallel-size", "2",
                        "--flight-recorder-dump-path", folder, "--flight-recorder-trace-buffer-size", "6"], check=True, capture_output=True)
        record = bytearray(pathlib.Path(f"{folder}/rank_00000.flight").read_bytes())
    record[40:56] = bytes(16)  # flight::Header::pid, pid_started
    record[112:240] = bytes(128)  # home
    seed("flight", "own.flight", bytes(record))


def any_trace_file():
    """One of each format."""
    for kind, name in (("chrome_json", "kineto.json"), ("chrome_json", "generic.json"), ("chrome_json", "ascend.json"), ("chrome_json", "ours.json"),
                       ("chrome_json", "kineto.json.gz"), ("chrome_json", "kineto.json.zst"), ("mstrace", "rank_00000.mstrace"),
                       ("ascend_database", "small.db"), ("perfetto", "sdk.perfetto-trace")):
        seed("trace_file", name, (HERE / "corpus" / kind / name).read_bytes())


def own_json():
    """A native trace as msprof exports it, with the key from which msprof makes a native trace again."""
    meta = {"format": 2, "rank": 0, "world_size": 2, "level": "level1", "pid": 7, "start_clocks_ns": [0, 1700000000000000000], "dropped": 0}
    clocks = [{"at_ns": 5000, "offset_ns": -3, "error_ns": 2}]
    host, device = {"pid": 7, "tid": 7}, {"pid": 0, "tid": 20}
    events = [{"ph": "M", "name": "thread_name", "ts": 0.0, **host, "args": {"name": "main"}},
              {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", **host, "ts": 0.0, "dur": 9.5, "args": {}},
              {"ph": "X", "cat": "cpu_op", "name": "linear", **host, "ts": 1.25, "dur": 2.0,
               "args": {"Input Dims": [[2, 3]], "Input type": ["bf16"], "Call stack": "step;layer \"0\""}},
              {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_Send(pp)", **device, "ts": 2.5, "dur": 3.001,
               "args": {"device": 0, "stream": 20, "correlation": 4, "Collective name": "send", "dtype": "BFloat16", "In msg nelems": 6,
                        "Process Group Name": "pp", "Process Group Ranks": "[0, 1]", "Seq": 2, "Dst Rank": 1, "Is async": True}},
              {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", **host, "ts": 3.0,
               "args": {"Addr": 64, "Bytes": -8, "Total Allocated": 16, "Tag": "act"}},
              {"ph": "C", "name": "cycles", **host, "ts": 4.0, "args": {"value": 2.5}}]
    seed("chrome_json", "ours.json", json.dumps({"msuite": {"origin_ns": 1000, "clocks": clocks, "meta": meta}, "traceEvents": events}))


def traces_in_pieces():
    """A byte that determines the piece size, then a text."""
    for seed_file in ("kineto.json", "generic.json", "ascend.json", "ours.json"):
        seed("chrome_json_parts", seed_file, b"\x05" + (HERE / "corpus/chrome_json" / seed_file).read_bytes())
    event = {"ph": "X", "name": "n", "cat": "kernel", "pid": 1, "tid": 2, "ts": 3, "dur": 1}
    nested = [{**event, "ts": i, "args": {"x": [event, event], "y": {"traceEvents": [event, event]}}} for i in range(4)]
    seed("chrome_json_parts", "like_events", b"\x01" + json.dumps({"traceEvents": nested, "rest": [event, event]}).encode())


def byte_characters():
    """The characters by which a byte-level vocabulary represents bytes."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    other = iter(range(0x100, 0x200))
    return [chr(byte if byte in plain else next(other)) for byte in range(256)]


def tokenizers():
    merges = [["l", "l"], ["e", "ll"], ["\u0120", "w"]]
    vocab = {character: i for i, character in enumerate(byte_characters())} | {"ll": 256, "ell": 257, "\u0120w": 258}
    added = [{"id": 259, "content": "<|special|>", "special": True, "normalized": False},
             {"id": 260, "content": "<mask>", "lstrip": True, "rstrip": True, "special": True, "normalized": False},
             {"id": 261, "content": "<user>", "special": False, "normalized": True}]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    seed("tokenizer_json", "byte_level", json.dumps({
        "added_tokens": added, "normalizer": {"type": "NFC"}, "pre_tokenizer": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges}}, ensure_ascii=False))
    small = {token: i for i, token in enumerate(["<unk>", "<s>", "</s>", "\u2581", *"Hellowrd", "ll", "\u2581w", "<0x41>", "<0xC3>"])}
    spaces = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
    seed("tokenizer_json", "characters", json.dumps({
        "added_tokens": [{"id": 1, "content": "<s>", "special": True}, {"id": 16, "content": "<user>"}],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, {
            "type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        "pre_tokenizer": None,
        "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
                           "special_tokens": {"<s>": {"ids": [1]}}},
        "decoder": {"type": "Sequence", "decoders": [spaces, {"type": "ByteFallback"}, {"type": "Fuse"}, {
            "type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "vocab": small,
                  "merges": ["l l", "\u2581 w"]}}, ensure_ascii=False))
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}
    seed("tokenizer_json", "metaspace", json.dumps({
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [metaspace, {"type": "Digits", "individual_digits": True}, {
            "type": "Split", "pattern": {"String": "l"}, "behavior": "MergedWithNext", "invert": False}]}, "decoder": metaspace,
        "model": {"type": "BPE", "unk_token": "<unk>", "vocab": small, "merges": [["l", "l"]]}}, ensure_ascii=False))
    seed("gpt2_files", "three_merges", json.dumps(vocab | {"<|endoftext|>": 259}, ensure_ascii=False) + "\0#version: 0.2\n" +
         "".join(f"{a} {b}\n" for a, b in merges))
    for name in ("unigram", "bpe"):
        seed("sentencepiece", name, (DATA / f"train/sentencepiece/{name}.model").read_bytes())
    model = bytearray((DATA / "train/sentencepiece/unigram.model").read_bytes())
    trie = model.index(b"user_defined") + len(b"user_defined") + 3 + 4  # after a tag, a length, and the trie's own size
    model[trie + 3] = 0xFE
    seed("sentencepiece", "root_is_a_leaf", bytes(model))


def data_sets():
    for name in ("uint8", "int64", "multimodal"):
        idx, data = ((DATA / f"train/megatron/{name}{end}").read_bytes() for end in (".idx", ".bin"))
        seed("indexed_dataset", name, struct.pack("<I", len(idx)) + idx + data)
    for file in range(4):  # the description, and the document, sample and shuffle index
        seed("gpt_index_cache", f"cut_{file}", bytes([file, 0, 100, 0]))
        seed("gpt_index_cache", f"overwritten_{file}", bytes([file, 1, 150, 0]) + b"0123456789012345")
        seed("gpt_index_cache", f"replaced_{file}", bytes([file, 2, 0, 0]) + b'{"inputs": {}, "files": {"document_index": {"elements": 9}}}')


def from_our_programs(build):
    own_flight_record(build)
    for family in ("llama", "gpt2", "deepseek_v3"):
        seed("name_map", family, subprocess.run([build / "bin/msckpt", "families", "--explain", family], check=True, capture_output=True).stdout)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([build / "tests/make_checkpoint", f"{folder}/c", "1", "1", "1", "0", "100", "2"], check=True, stdout=subprocess.DEVNULL)
        for model, dtype in (("hf_llama_tiny", "bf16"), ("hf_gpt2_tiny", "q8_0")):
            subprocess.run([build / "bin/msckpt", "convert", "--load-dir", DATA / model, "--save-dir", f"{folder}/{dtype}", "--to", "gguf",
                            "--dtype", dtype], check=True, capture_output=True)
            seed("gguf", f"{dtype}.gguf", pathlib.Path(f"{folder}/{dtype}/model.gguf").read_bytes())
        seed("manifest", "one_rank", pathlib.Path(f"{folder}/c/iter_0000100/manifest.json").read_bytes())
        seed("native_shard", "packed", pathlib.Path(f"{folder}/c/iter_0000100/rank_00000.h5").read_bytes())
        subprocess.run([build / "tests/make_trace", f"{folder}/t"], check=True, stdout=subprocess.DEVNULL)
        shutil.copy(next(pathlib.Path(f"{folder}/t").rglob("*.mstrace")), HERE / "corpus/mstrace/rank_00000.mstrace")
        ours = HERE / "corpus/perfetto/ours.perfetto-trace"
        subprocess.run([build / "bin/msprof", "convert", HERE / "corpus/chrome_json/ours.json", "-o", ours], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    safetensors()
    torch_files()
    pickles_of_folders()
    huggingface()
    small_texts()
    plans()
    traces()
    own_json()
    traces_in_pieces()
    ascend()
    perfetto_traces()
    flight_records()
    any_trace_file()
    tokenizers()
    data_sets()
    if len(sys.argv) > 1:
        from_our_programs(pathlib.Path(sys.argv[1]))
