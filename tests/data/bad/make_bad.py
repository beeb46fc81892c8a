#!/usr/bin/env python3
"""Writes the hostile files beside this script, each named for what is wrong with it. tests/cli/hostile_files.py gives them
to the binaries."""
import json
import pathlib
import struct

HERE = pathlib.Path(__file__).parent
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16, "intermediate_size": 32,
          "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 17, "rms_norm_eps": 1e-5, "hidden_act": "silu"}


def put(name, content):
    path = HERE / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def safetensors(header, data=b"", size=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def make_safetensors():
    two = {"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 8, 16)}
    cases = {
        "empty": b"",
        "ends_in_its_length": b"\x10\0\0",
        "header_longer_than_file": safetensors(two, bytes(16), size=1 << 40),
        "header_of_2_to_the_64": safetensors(two, bytes(16), size=(1 << 64) - 1),
        "header_is_not_json": safetensors(b"{\"a\": "),
        "header_is_not_utf8": safetensors(b"{\"\xff\": 1}"),
        "header_nested_deeply": safetensors(b"[" * 200),
        "duplicate_key": safetensors(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"\0"),
        "overlapping_tensors": safetensors({"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 4, 12)}, bytes(12)),
        "hole_between_tensors": safetensors({"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 12, 20)}, bytes(20)),
        "bytes_after_the_last_tensor": safetensors(two, bytes(24)),
        "data_cut": safetensors(two, bytes(9)),
        "shape_of_2_to_the_70": safetensors({"a": entry("F32", [1 << 35, 1 << 35], 0, 8)}, bytes(8)),
        "shape_negative": safetensors({"a": entry("F32", [-2], 0, 8)}, bytes(8)),
        "shape_against_range": safetensors({"a": entry("F32", [3], 0, 8)}, bytes(8)),
        "end_before_begin": safetensors({"a": entry("F32", [2], 8, 0)}, bytes(8)),
        "unknown_dtype": safetensors({"a": entry("F7", [2], 0, 8)}, bytes(8)),
    }
    for name, content in cases.items():
        put(f"safetensors/{name}", content)


def make_hf_config():
    def less(key):
        return json.dumps({k: v for k, v in CONFIG.items() if k != key})

    cases = {
        "cut": json.dumps(CONFIG)[:40],
        "nested_deeply": '{"a":' * 200,
        "a_list": "[]",
        "no_hidden_size": less("hidden_size"),
        "layers_as_text": json.dumps({**CONFIG, "num_hidden_layers": "two"}),
        "layers_negative": json.dumps({**CONFIG, "num_hidden_layers": -1}),
        "layers_of_2_to_the_60": json.dumps({**CONFIG, "num_hidden_layers": 1 << 60}),
        "vocabulary_of_2_to_the_64": json.dumps({**CONFIG, "vocab_size": 1 << 64}),
        "heads_do_not_divide": json.dumps({**CONFIG, "num_attention_heads": 3}),
    }
    for name, content in cases.items():
        put(f"hf_config/{name}", content)


def make_hf_index():
    cases = {
        "cut": '{"weight_map": {',
        "no_weight_map": '{"metadata": {}}',
        "weight_map_as_list": '{"weight_map": []}',
        "file_upwards": json.dumps({"weight_map": {"a": "../model.safetensors"}}),
        "file_absolute": json.dumps({"weight_map": {"a": "/etc/passwd"}}),
        "file_absent": json.dumps({"weight_map": {"a": "model-00001-of-00001.safetensors"}}),
        "file_as_number": json.dumps({"weight_map": {"a": 7}}),
    }
    for name, content in cases.items():
        put(f"hf_index/{name}", content)


def make_mstrace():
    chunk = struct.pack("<IIQ", 0x4B43534D, 40, 0) + bytes(40)
    for name, content in {"empty": b"", "of_another_program": b"SQLite format 3\0" + bytes(64), "magic_alone": b"MSTRACE1",
                          "chunk_with_wrong_hash": b"MSTRACE1" + chunk,
                          "chunk_longer_than_file": b"MSTRACE1" + struct.pack("<IIQ", 0x4B43534D, 1 << 31, 0) + bytes(40)}.items():
        put(f"mstrace/{name}", content)


def make_idx():
    head = b"MMIDIDX\0\0" + struct.pack("<QB", 1, 8)
    body = struct.pack("<i", 4) + struct.pack("<q", 0) + struct.pack("<qq", 0, 1)
    cases = {
        "empty": b"",
        "of_another_program": b"\x7fELF" + bytes(60),
        "of_version_9": b"MMIDIDX\0\0" + struct.pack("<QB", 9, 8) + struct.pack("<QQ", 1, 2) + body,
        "of_unknown_type": b"MMIDIDX\0\0" + struct.pack("<QB", 1, 99) + struct.pack("<QQ", 1, 2) + body,
        "counts_of_2_to_the_60": head + struct.pack("<QQ", 1 << 60, 1 << 60) + body,
        "cut": head + struct.pack("<QQ", 1, 2) + body[:9],
        "sequence_beyond_the_bin": head + struct.pack("<QQ", 1, 2) + struct.pack("<i", 4000) + body[4:],
        "sequence_negative": head + struct.pack("<QQ", 1, 2) + struct.pack("<i", -4) + body[4:],
        "pointer_beyond_the_bin": head + struct.pack("<QQ", 1, 2) + struct.pack("<iqqq", 4, 1 << 50, 0, 1),
        "document_beyond_the_sequences": head + struct.pack("<QQ", 1, 2) + struct.pack("<iqqq", 4, 0, 0, 77),
    }
    for name, content in cases.items():
        put(f"idx/{name}", content)


def make_tokenizer():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]  # GPT-2's letters for the 256 bytes
    letters = [chr(b) for b in printable] + [chr(256 + n) for n in range(256 - len(printable))]
    vocabulary = {letter: i for i, letter in enumerate(letters)}
    good = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
            "post_processor": None, "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {**vocabulary, "ab": 256}, "merges": ["a b"]}}
    cases = {
        "cut": json.dumps(good)[:60],
        "no_model": json.dumps({k: v for k, v in good.items() if k != "model"}),
        "model_of_unknown_type": json.dumps({**good, "model": {"type": "Telepathy"}}),
        "merge_of_unknown_parts": json.dumps({**good, "model": {**good["model"], "merges": ["x y"]}}),
        "id_negative": json.dumps({**good, "model": {**good["model"], "vocab": {**vocabulary, "ab": -1}}}),
        "id_of_2_to_the_40": json.dumps({**good, "model": {**good["model"], "vocab": {**vocabulary, "ab": 1 << 40}}}),
    }
    for name, content in cases.items():
        put(f"tokenizer/{name}", content)


def make_config():
    cases = {"cut": '{"train_iters": 3', "nested_deeply": '{"a":' * 200, "a_list": "[1]", "unknown_key": '{"train_itres": 3}',
             "number_as_text": '{"save_interval": "many"}', "number_too_large": '{"save_interval": 9223372036854775808}',
             "not_a_number": '{"lr": NaN}', "list_for_one": '{"save_interval": [1, 2]}'}
    for name, content in cases.items():
        put(f"config/{name}", content)


if __name__ == "__main__":
    make_safetensors()
    make_hf_config()
    make_hf_index()
    make_mstrace()
    make_idx()
    make_tokenizer()
    make_config()
