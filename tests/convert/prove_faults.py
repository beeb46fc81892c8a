"""Checkpoints of each format as the genuine libraries read them (torch, safetensors), so that prove_test.py can plant faults in the
files: each class converts a source with msckpt, loads the result, and saves it again after a change."""
import json
import pathlib
import pickle
import shutil

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

LAYERS, EXPERTS, HIDDEN, FFN, HEAD, HEADS, VOCAB = 4, 4, 32, 16, 8, 4, 67


def names_of(experts, tied):
    """Shapes by the names of a Qwen3 model."""
    shapes = {"model.embed_tokens.weight": (VOCAB, HIDDEN)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for part in "qkv":
            shapes[f"{at}self_attn.{part}_proj.weight"] = (HEADS * HEAD, HIDDEN)
        shapes[f"{at}self_attn.o_proj.weight"] = (HIDDEN, HEADS * HEAD)
        shapes[f"{at}self_attn.q_norm.weight"] = shapes[f"{at}self_attn.k_norm.weight"] = (HEAD,)
        mlps = [f"{at}mlp."]
        if experts:
            mlps = [f"{at}mlp.experts.{expert}." for expert in range(EXPERTS)]
            shapes[f"{at}mlp.gate.weight"] = (EXPERTS, HIDDEN)
        for mlp in mlps:
            shapes[f"{mlp}gate_proj.weight"] = shapes[f"{mlp}up_proj.weight"] = (FFN, HIDDEN)
            shapes[f"{mlp}down_proj.weight"] = (HIDDEN, FFN)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{at}{norm}.weight"] = (HIDDEN,)
    shapes["model.norm.weight"] = (HIDDEN,)
    if not tied:
        shapes["lm_head.weight"] = (VOCAB, HIDDEN)
    return shapes


def config_of(experts, tied):
    config = {"architectures": ["Qwen3MoeForCausalLM" if experts else "Qwen3ForCausalLM"],
              "model_type": "qwen3_moe" if experts else "qwen3", "attention_bias": False, "head_dim": HEAD, "hidden_act": "silu",
              "hidden_size": HIDDEN, "intermediate_size": FFN, "max_position_embeddings": 64, "num_attention_heads": HEADS,
              "num_hidden_layers": LAYERS, "num_key_value_heads": HEADS, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "tie_word_embeddings": tied, "torch_dtype": "float32", "use_sliding_window": False, "vocab_size": VOCAB}
    if experts:
        config.update({"decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": FFN, "norm_topk_prob": True,
                       "num_experts": EXPERTS, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.001})
    return config


def make_source(folder, experts=False, tied=False):
    """Makes what FSDP saves of such a model after some steps of AdamW, with torch's own dcp.save."""
    random = torch.Generator().manual_seed(7)
    model, state = {}, {}
    for name, shape in names_of(experts, tied).items():
        noise = torch.randn(shape, generator=random)
        model[name] = 1 + 0.1 * noise if len(shape) == 1 else 0.02 * noise
        first = 1e-4 * torch.randn(shape, generator=random)
        state[name] = {"step": torch.tensor(5.0), "exp_avg": first, "exp_avg_sq": first.square() * 1.5}
    group = {"lr": 3e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, "amsgrad": False, "params": list(model)}
    dcp.save({"model": model, "optim": {"state": state, "param_groups": [group]}}, checkpoint_id=folder, no_dist=True)
    (folder / "config.json").write_text(json.dumps(config_of(experts, tied)))
    return folder


class HuggingFaceNames:
    """Formats under Hugging Face's names: self.weights and self.moments, {name: tensor} each."""
    has_moments = True

    def expert(self, layer, number, part):
        return self.weights[f"model.layers.{layer}.mlp.experts.{number}.{part}_proj.weight"]

    def plain(self, layer, part):
        return self.weights[f"model.layers.{layer}.{part}.weight"]

    def fill_expert(self, layer, number, value):
        self.expert(layer, number, "down").fill_(value)

    def swap_experts(self, layer, a, b):
        for part in ("gate", "up", "down"):
            swap(self.expert(layer, a, part), self.expert(layer, b, part))

    def swap_gate_up(self, layer):
        swap(self.plain(layer, "mlp.gate_proj"), self.plain(layer, "mlp.up_proj"))

    def swap_q_k(self, layer):
        swap(self.plain(layer, "self_attn.q_proj"), self.plain(layer, "self_attn.k_proj"))

    def projection(self, layer):
        return self.plain(layer, "self_attn.o_proj")

    def set_projection(self, layer, value):
        self.projection(layer).copy_(value)

    def shift_embedding(self):
        rows = self.weights["model.embed_tokens.weight"]
        rows[34:-1] = rows[35:].clone()

    def duplicate_layer(self, of, to):
        for name, tensor in self.weights.items():
            if name.startswith(f"model.layers.{to}."):
                tensor.copy_(self.weights[name.replace(f"layers.{to}.", f"layers.{of}.")])

    def drop(self, layer):
        del self.weights[f"model.layers.{layer}.self_attn.o_proj.weight"]

    def age_moment(self, layer):
        moment = self.moments[f"model.layers.{layer}.self_attn.o_proj.weight"]
        moment.copy_(moment * 0.9 + 1e-5)


def swap(a, b):
    kept = a.clone()
    a.copy_(b)
    b.copy_(kept)


class HuggingFace(HuggingFaceNames):
    """Safetensors files and their index."""
    flags, has_moments = ["--to", "hf", "--max-shard-size", "40KB"], False
    index, load, save = "model.safetensors.index.json", staticmethod(load_file), staticmethod(save_file)

    def __init__(self, folder):
        self.folder = folder
        self.map = json.loads((folder / self.index).read_text())
        self.files = {name: dict(self.load(folder / name)) for name in sorted(set(self.map["weight_map"].values()))}
        self.weights = {name: tensor for held in self.files.values() for name, tensor in held.items()}

    def write(self):
        for name, held in self.files.items():
            self.save({key: self.weights[key].contiguous() for key in held if key in self.weights}, self.folder / name)
        self.map["weight_map"] = {key: file for key, file in self.map["weight_map"].items() if key in self.weights}
        (self.folder / self.index).write_text(json.dumps(self.map))

    def write_twice(self, layer):
        name = f"model.layers.{layer}.self_attn.o_proj.weight"
        other = next(file for file, held in self.files.items() if name not in held)
        self.files[other][name] = self.weights[name]
        self.write()

    def add_head(self, values):
        first = next(iter(self.files))
        self.files[first]["lm_head.weight"] = self.weights["lm_head.weight"] = values
        self.map["weight_map"]["lm_head.weight"] = first


class HuggingFaceBin(HuggingFace):
    """pytorch_model-*.bin and their index."""
    flags, index = ["--to", "hf-bin", "--max-shard-size", "40KB"], "pytorch_model.bin.index.json"
    load, save = staticmethod(torch.load), staticmethod(torch.save)


class Dcp(HuggingFaceNames):
    """Through torch's dcp_to_torch_save and torch_save_to_dcp. All experts of a layer are one tensor, as in memory."""
    flags = ["--to", "dcp", "--dp", "2"]

    def __init__(self, folder):
        self.folder = folder
        dcp_to_torch_save(folder, folder.with_suffix(".pt"))
        self.state = torch.load(folder.with_suffix(".pt"), weights_only=False)
        self.weights = self.state["model"]
        if "optim" in self.state:
            self.moments = {name: held["exp_avg"] for name, held in self.state["optim"]["state"].items()}

    def expert(self, layer, number, part):
        at = f"model.layers.{layer}.mlp.experts."
        if part == "down":
            return self.weights[at + "down_proj"][number]
        both = self.weights[at + "gate_up_proj"][number]
        return both[:FFN] if part == "gate" else both[FFN:]

    def write(self):
        config = (self.folder / "config.json").read_text()
        shutil.rmtree(self.folder)
        torch.save(self.state, self.folder.with_suffix(".pt"))
        torch_save_to_dcp(self.folder.with_suffix(".pt"), self.folder)
        (self.folder / "config.json").write_text(config)

    def write_twice(self, layer):
        name = f"model.layers.{layer}.self_attn.o_proj.weight"
        self.weights[f"model.layers.{layer}._orig_mod.self_attn.o_proj.weight"] = self.weights[name].clone()
        self.write()

    def write_chunk_twice(self, layer):
        list_chunk_twice(self.folder, f"model.model.layers.{layer}.self_attn.o_proj.weight")

    def add_head(self, values):
        self.weights["lm_head.weight"] = values


def list_chunk_twice(folder, key):
    path = pathlib.Path(folder) / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    chunks = metadata.state_dict_metadata[key].chunks
    chunks.append(chunks[-1])
    path.write_bytes(pickle.dumps(metadata))


class Universal(HuggingFaceNames):
    """DeepSpeed's universal checkpoint: a folder for each parameter. No experts."""
    flags = ["--to", "ucp"]

    def __init__(self, folder):
        self.folder = folder
        self.zero = next(folder.glob("global_step*_universal")) / "zero"
        self.paths = {path.parent.name: path for path in sorted(self.zero.glob("*/fp32.pt"))}
        self.files = {name: torch.load(path, weights_only=False) for name, path in self.paths.items()}
        self.weights = {name: held["param"] for name, held in self.files.items()}
        self.moment_files = {path.parent.name: torch.load(path, weights_only=False) for path in self.zero.glob("*/exp_avg.pt")}
        self.moments = {name: held["param"] for name, held in self.moment_files.items()}

    def write(self):
        for name, path in self.paths.items():
            if name not in self.weights:
                shutil.rmtree(path.parent)
                continue
            self.files[name]["param"] = self.weights[name]
            torch.save(self.files[name], path)
            if name in self.moment_files:
                torch.save(self.moment_files[name], path.parent / "exp_avg.pt")

    def write_twice(self, layer):
        name = f"model.layers.{layer}.self_attn.o_proj.weight"
        shutil.copytree(self.zero / name, self.zero / f"module.{name}")

    def add_head(self, values):
        shutil.copytree(self.zero / "model.embed_tokens.weight", self.zero / "lm_head.weight")
        held = dict(self.files["model.embed_tokens.weight"], param=values)
        torch.save(held, self.zero / "lm_head.weight" / "fp32.pt")


class MegatronTree:
    """mp_rank_*/model_optim_rng.pt: each tensor cut for two tensor-parallel ranks; layers on two stages, or with experts these on two
    expert-parallel ranks."""
    has_moments = True
    flags = ["--to", "mg", "--tp", "2"]
    dense_flags, expert_flags = ["--pp", "2"], ["--ep", "2"]

    def __init__(self, folder):
        self.paths = sorted(folder.glob("*/mp_rank_*/model_optim_rng.pt"))
        self.states = [torch.load(path, weights_only=False) for path in self.paths]
        self.models = [state["model"] for state in self.states]
        self.staged = any(path.parent.name.endswith("_001") for path in self.paths) and \
            not any("experts" in name for name in self.models[0])

    def write(self):
        for state, path in zip(self.states, self.paths):
            torch.save(state, path)

    def parts(self, layer, rest):
        """The parts of a layer's tensor on the tensor-parallel ranks."""
        each = LAYERS // 2 if self.staged else LAYERS
        stage = f"{layer // each:03}"
        name = f"decoder.layers.{layer % each}.{rest}"
        return [model[name] for model, path in zip(self.models, self.paths)
                if name in model and (not self.staged or path.parent.name.endswith(stage))][:2]

    def expert_parts(self, layer, number, rest):
        return [model[name] for model, path in zip(self.models, self.paths)
                if path.parent.name.endswith(f"_{number // 2:03}")
                for name in [f"decoder.layers.{layer}.mlp.experts.local_experts.{number % 2}.{rest}.weight"]]

    def fill_expert(self, layer, number, value):
        for part in self.expert_parts(layer, number, "linear_fc2"):
            part.fill_(value)

    def swap_experts(self, layer, a, b):
        for rest in ("linear_fc1", "linear_fc2"):
            for x, y in zip(self.expert_parts(layer, a, rest), self.expert_parts(layer, b, rest)):
                swap(x, y)

    def swap_gate_up(self, layer):
        for part in self.parts(layer, "mlp.linear_fc1.weight"):
            swap(*part.chunk(2))

    def swap_q_k(self, layer):
        for part in self.parts(layer, "self_attention.linear_qkv.weight"):
            groups = part.view(HEADS // 2, 3, HEAD, HIDDEN)
            swap(groups[:, 0], groups[:, 1])

    def projection(self, layer):
        return torch.cat(self.parts(layer, "self_attention.linear_proj.weight"), 1)

    def set_projection(self, layer, value):
        for part, new in zip(self.parts(layer, "self_attention.linear_proj.weight"), value.chunk(2, 1)):
            part.copy_(new)

    def shift_embedding(self):
        model = self.models[[path.parent.name for path in self.paths].index("mp_rank_00_000" if self.staged else "mp_rank_00")]
        rows = model["embedding.word_embeddings.weight"]
        rows[20:-1] = rows[21:].clone()

    def duplicate_layer(self, of, to):
        for rest in ("self_attention.linear_qkv.weight", "self_attention.linear_proj.weight", "mlp.linear_fc1.weight",
                     "mlp.linear_fc2.weight", "self_attention.q_layernorm.weight", "self_attention.k_layernorm.weight",
                     "input_layernorm.weight", "pre_mlp_layernorm.weight"):
            for old, new in zip(self.parts(to, rest), self.parts(of, rest)):
                old.copy_(new)

    def drop(self, layer):
        each = LAYERS // 2 if self.staged else LAYERS
        del self.models[-1][f"decoder.layers.{layer % each}.self_attention.linear_proj.weight"]

    def age_moment(self, layer):
        del layer
        for state in self.states:
            held = state["optimizer"]["state"]
            for index in sorted(held):
                if held[index]["exp_avg"].shape == (HIDDEN, HEADS * HEAD // 2):
                    held[index]["exp_avg"].copy_(held[index]["exp_avg"] * 0.9 + 1e-5)
                    break

    def write_twice(self, layer):
        del layer
        name = "embedding.word_embeddings.weight"
        self.models[-1][name] = self.models[1][name].clone() if name in self.models[1] else self.models[0][name].clone()
        self.write()

    def write_layer_twice(self):
        for model in self.models:
            if "decoder.final_layernorm.weight" in model:
                for name in [name for name in model if name.startswith("decoder.layers.0.")]:
                    held = model[name]
                    model[name.replace("layers.0.", "layers.2.")] = held.clone() if torch.is_tensor(held) else held
        self.write()

    def add_head(self, values):
        del values
        for model in self.models:
            if "output_layer.weight" in model:  # on the last stage
                model["output_layer.weight"] = model["output_layer.weight"].flip(0).contiguous()


class MegatronDist:
    """torch_dist: keys of megatron-core, layers stacked, loaded and saved by torch's DCP."""
    has_moments = True
    flags = ["--to", "dist", "--tp", "2"]

    def __init__(self, folder):
        self.folder = next(path.parent for path in folder.glob("*/.metadata"))
        metadata = FileSystemReader(self.folder).read_metadata()
        self.state = {key: torch.empty(entry.size, dtype=entry.properties.dtype) if isinstance(entry, TensorStorageMetadata) else None
                      for key, entry in metadata.state_dict_metadata.items()}
        dcp.load(self.state, storage_reader=FileSystemReader(self.folder), no_dist=True)

    def write(self):
        kept = {name: (self.folder / name).read_bytes() for name in ("common.pt", "metadata.json")}
        shutil.rmtree(self.folder)
        dcp.save(self.state, storage_writer=FileSystemWriter(self.folder), no_dist=True)
        for name, data in kept.items():
            (self.folder / name).write_bytes(data)

    def stack(self, rest):
        return self.state[f"decoder.layers.{rest}"]

    def fill_expert(self, layer, number, value):
        self.stack("mlp.experts.experts.linear_fc2.weight")[layer, number].fill_(value)

    def swap_experts(self, layer, a, b):
        for rest in ("linear_fc1", "linear_fc2"):
            experts = self.stack(f"mlp.experts.experts.{rest}.weight")[layer]
            swap(experts[a], experts[b])

    def swap_gate_up(self, layer):
        swap(*self.stack("mlp.linear_fc1.weight")[layer].chunk(2))

    def swap_q_k(self, layer):
        groups = self.stack("self_attention.linear_qkv.weight")[layer].view(HEADS, 3, HEAD, HIDDEN)
        swap(groups[:, 0], groups[:, 1])

    def projection(self, layer):
        return self.stack("self_attention.linear_proj.weight")[layer]

    def set_projection(self, layer, value):
        self.projection(layer).copy_(value)

    def shift_embedding(self):
        rows = self.state["embedding.word_embeddings.weight"]
        rows[34:VOCAB - 1] = rows[35:VOCAB].clone()

    def duplicate_layer(self, of, to):
        for name, tensor in self.state.items():
            if name.startswith("decoder.layers.") and torch.is_tensor(tensor) and len(tensor) == LAYERS:
                tensor[to].copy_(tensor[of])

    def drop(self, layer):
        del layer
        del self.state["decoder.layers.self_attention.linear_proj.weight"]

    def age_moment(self, layer):
        name = next(name for name in self.state if "exp_avg." in name and name.endswith("layers.self_attention.linear_proj.weight"))
        moment = self.state[name][layer]
        moment.copy_(moment * 0.9 + 1e-5)

    def write_twice(self, layer):
        self.state[f"decoder.layers.{layer}.self_attention.linear_proj.weight"] = self.projection(layer).clone()
        self.write()

    def write_chunk_twice(self, layer):
        del layer
        list_chunk_twice(self.folder, "decoder.layers.self_attention.linear_proj.weight")

    def add_head(self, values):
        self.state["output_layer.weight"] = values.clone()
