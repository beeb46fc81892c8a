#!/usr/bin/env python3
"""Reads every tensor of native checkpoints as FORMAT.md describes, with h5py and without our code, and compares with the
original: uncompressed, compressed, on several ranks.

Needs h5py and numpy (MS_PEERS_PYTHON); skipped without.
"""
import glob
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench/peers"))
import peers  # noqa: E402

os.environ["HDF5_PLUGIN_PATH"] = os.path.join(os.environ["MS_BUILD"], "lib", "msuite", "hdf5")  # before h5py
peers.need("h5py", "numpy")
import h5py  # noqa: E402
import numpy  # noqa: E402


def newest(root):
    """The generation that a reader selects (FORMAT.md, section 1): highest iteration, then highest attempt."""
    def number(path):
        iteration, _, attempt = os.path.basename(path)[5:].partition(".r")
        return int(iteration), int(attempt or 0)
    return max((p for p in glob.glob(os.path.join(root, "iter_*")) if ".tmp-" not in p), key=number)


def read_box(files, manifest, tensor, box):
    """A box's values, read through HDF5 only."""
    h5 = files[manifest["files"][box["file"]]["name"]]
    dataset = h5[box["dataset"]]
    kind = {"bf16": "<u2", "fp32": "<f4", "fp16": "<f2", "int32": "<i4"}[tensor["dtype"]]
    if not box["dataset"].startswith("/packed/"):
        assert list(dataset.attrs["global_offset"].reshape(-1) if dataset.attrs["global_offset"].shape else []) == box["offset"]
        return numpy.asarray(dataset[()]).reshape(box["shape"])
    for entry in json.loads(bytes(h5[box["dataset"] + ".index"][()])):
        if entry["name"] == tensor["name"] and entry["global_offset"] == box["offset"]:
            size = int(numpy.prod(entry["box_shape"], dtype=int)) * numpy.dtype(kind).itemsize
            return numpy.frombuffer(dataset[entry["begin"]:entry["begin"] + size].tobytes(), kind).reshape(box["shape"])
    raise AssertionError(f"{tensor['name']} is not in the index of {box['dataset']}")


def restore(root):
    folder = newest(root)
    manifest = json.load(open(os.path.join(folder, "manifest.json")))
    assert manifest["magic"] == "msuite-checkpoint" and manifest["format_version"] == 1
    files = {f["name"]: h5py.File(os.path.join(folder, f["name"]), "r") for f in manifest["files"]}
    tensors = {}
    for tensor in manifest["tensors"]:
        whole, filled = None, 0
        for box in tensor["boxes"]:
            values = read_box(files, manifest, tensor, box)
            if whole is None:
                whole = numpy.zeros(tensor["shape"], values.dtype)
            whole[tuple(slice(o, o + s) for o, s in zip(box["offset"], box["shape"]))] = values
            filled += values.size
        assert filled == whole.size, tensor["name"]
        tensors[tensor["name"], tensor["role"]] = whole
    return tensors


def make_model(folder):
    """Writes a Llama with normally distributed fp32 weights as a Hugging Face folder; returns the tensors' bytes by name."""
    hidden, ffn, vocab = 128, 256, 300
    layer = {"input_layernorm": [hidden], "post_attention_layernorm": [hidden], "self_attn.q_proj": [hidden, hidden],
             "self_attn.k_proj": [hidden // 2, hidden], "self_attn.v_proj": [hidden // 2, hidden],
             "self_attn.o_proj": [hidden, hidden], "mlp.gate_proj": [ffn, hidden], "mlp.up_proj": [ffn, hidden],
             "mlp.down_proj": [hidden, ffn]}
    shapes = {"model.embed_tokens": [vocab, hidden], "model.norm": [hidden], "lm_head": [vocab, hidden]}
    shapes.update({f"model.layers.{i}.{name}": shape for i in range(2) for name, shape in layer.items()})
    random = numpy.random.default_rng(1)
    header, data = {}, b""
    for name, shape in sorted(shapes.items()):
        values = (0.02 * random.standard_normal(shape)).astype("<f4").tobytes()
        header[name + ".weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(folder)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
                   "intermediate_size": ffn, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                   "vocab_size": vocab, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
                   "tie_word_embeddings": False, "hidden_act": "silu", "torch_dtype": "float32"}, file)
    return {name: data[slice(*entry["data_offsets"])] for name, entry in header.items()}


with tempfile.TemporaryDirectory() as scratch:
    at = lambda name: os.path.join(scratch, name)
    original = make_model(at("model"))
    peers.run("msckpt", "convert", "--load-dir", at("model"), "--save-dir", at("plain"))
    peers.run("msckpt", "reshard", "--load-dir", at("plain"), "--save-dir", at("tp2"), "--target-tensor-parallel-size", "2",
              "--target-pipeline-parallel-size", "2")
    peers.run("msckpt", "reshard", "--load-dir", at("tp2"), "--save-dir", at("small"), "--compress")
    plain = restore(at("plain"))
    # Tensors whose canonical form is that of Hugging Face are compared with the file.
    for ours, theirs in (("embedding.word_embeddings.weight", "model.embed_tokens.weight"),
                         ("decoder.layers.0.self_attention.linear_proj.weight", "model.layers.0.self_attn.o_proj.weight"),
                         ("decoder.layers.1.mlp.linear_fc2.weight", "model.layers.1.mlp.down_proj.weight")):
        assert plain[ours, "param"].tobytes() == original[theirs], ours
    for other in ("tp2", "small"):
        tensors = restore(at(other))
        assert tensors.keys() == plain.keys()
        for name, values in tensors.items():
            assert values.tobytes() == plain[name].tobytes(), (other, name)
    chunked = []
    with h5py.File(glob.glob(at("small/iter_*/rank_00000.h5"))[0], "r") as h5:
        h5.visititems(lambda name, item: chunked.append(name) if getattr(item, "chunks", None) else None)
    assert len(chunked) >= 5, chunked
    sizes = [os.path.getsize(glob.glob(at(f"{name}/iter_*/rank_00000.h5"))[0]) for name in ("plain", "small")]
    assert sizes[1] < 0.9 * sizes[0], sizes
    print(f"independent reader: {len(plain)} tensors in 3 checkpoints, {len(chunked)} compressed datasets, {sizes} bytes")
