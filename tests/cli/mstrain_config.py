#!/usr/bin/env python3
"""mstrain --help names every flag; --print-config read back through --config is the same; --yaml-cfg says what flags say; a closed
pipe ends the program silently."""
import json
import subprocess
import sys

import training

SOME = ["--train-iters", "7", "--no-async-save", "--profile-ranks", "0", "1", "--clip-grad", "0.25", "--tokenizer_type",
        "ByteLevelTokenizer", "--save", "a folder/with \"quotes\""]


def main():
    with training.workplace(needs_mpirun=False) as place:
        text = place.tool("mstrain", "--help").stdout
        defaults = json.loads(place.tool("mstrain", "--print-config").stdout)
        for group in defaults.values():
            for name in group:
                flag = "--" + name.replace("_", "-")
                place.expect(f"  {flag}" in text, f"--help names {flag}")
        for flag in ("--config", "--print-config", "--benchmark", "--version", "--eval-only", "--npu-deterministic"):
            place.expect(flag in text, f"--help names {flag}")

        first = place.run(*SOME, "--print-config")
        config = json.loads(first.stdout)
        place.expect(first.exit == 0 and first.stderr == "", "--print-config prints and says nothing else", first)
        place.expect(config["training"]["train_iters"] == 7 and config["checkpoint"]["async_save"] is False and
                     config["profiling"]["profile_ranks"] == [0, 1] and config["optimizer"]["clip_grad"] == 0.25, "it holds the flags", first)
        with open(place.path("config.json"), "w", encoding="utf-8") as file:
            file.write(first.stdout)
        again = place.tool("mstrain", "--config", "config.json", "--print-config")
        place.expect(again.exit == 0 and again.stdout == first.stdout, "through --config it is the same", again)
        flat = {name: value for group in config.values() for name, value in group.items()}
        with open(place.path("flat.json"), "w", encoding="utf-8") as file:
            json.dump(flat, file)
        again = place.tool("mstrain", "--config=flat.json", "--print-config")
        place.expect(again.stdout == first.stdout, "without groups too", again)
        flag = json.loads(place.tool("mstrain", "--train-iters", "9", "--config", "config.json", "--print-config").stdout)
        place.expect(flag["training"]["train_iters"] == 9 and flag["optimizer"]["clip_grad"] == 0.25, "a flag goes before the file")

        shape = "--num-layers 2 --hidden-size 512 --num-attention-heads 8 --swiglu --seq-length 128 --train-iters 10".split()
        results = json.loads(place.tool("mstrain", *shape, "--print-config").stdout)
        for group, name, value in (("model", "ffn_hidden_size", 1344), ("model", "kv_channels", 64), ("model", "vocab_size", 257),
                                   ("model", "max_position_embeddings", 128), ("scheduler", "lr_decay_iters", 10),
                                   ("training", "global_batch_size", 1), ("data", "split", "969,30,1")):
            place.expect(results[group][name] == value, f"{name} is what results, {value}, not {results[group][name]}")

        with open(place.path("run.yaml"), "w", encoding="utf-8") as file:
            file.write("language_model: {num_layers: 2, hidden_size: 512, num_attention_heads: 8, activation_func: swiglu}\n"
                       "model_parallel:\n  params_dtype: null\nseq_length: 64\ntrain_iters: 10\n")
        by_yaml = place.tool("mstrain", "--yaml-cfg", "run.yaml", "--seq-length", "128", "--print-config")
        place.expect(by_yaml.exit == 0 and json.loads(by_yaml.stdout) == results, "--yaml-cfg says what flags say, which go before it", by_yaml)
        for text, words in (("train_itres: 3", "Did you mean train_iters?"), ("a: [", "line 2, column 1: not valid YAML"),
                            ("train_iters: many", "--train-iters: \"many\" is not a whole number")):
            with open(place.path("bad.yaml"), "w", encoding="utf-8") as file:
                file.write(text + "\n")
            bad = place.tool("mstrain", "--yaml-cfg", "bad.yaml", "--print-config")
            place.expect(bad.exit == 2 and len(bad.stderr.splitlines()) == 1 and "--yaml-cfg bad.yaml: " in bad.stderr and words in bad.stderr,
                         f"{text} is refused in one line", bad)
        bad = place.tool("mstrain", "--yaml-cfg", "run.yaml", "--config", "config.json")
        place.expect(bad.exit == 2 and "--yaml-cfg and --config exclude each other" in bad.stderr, "one of them", bad)

        for text, words in (('{"training": {"train_itres": 3}}', "train_iters"), ('{"train_iters": "many"}', "train_iters"),
                            ('{"train_iters": 3', "not JSON"), ("[]", "object")):
            with open(place.path("bad.json"), "w", encoding="utf-8") as file:
                file.write(text)
            bad = place.tool("mstrain", "--config", "bad.json", "--print-config")
            place.expect(bad.exit == 2 and len(bad.stderr.splitlines()) == 1 and "bad.json" in bad.stderr and words in bad.stderr,
                         f"{text} is refused in one line", bad)
        for flags in (["--config", "nowhere.json"], ["--config"]):
            bad = place.tool("mstrain", *flags)
            place.expect(bad.exit == 2 and len(bad.stderr.splitlines()) == 1 and "--config" in bad.stderr, f"{flags} is refused", bad)

        run = [*shape, "--lr", "1e-3", "--bf16", "--tensor-model-parallel-size", "2", "--plan-world-size", "4"]
        active = place.tool("mstrain", *run, "--print-active-features")
        place.expect(active.exit == 0 and [line.split()[0] for line in active.stdout.splitlines()] ==
                     ["tensor-parallel", "shared-memory", "mixed-precision", "gradient-accumulation-fusion", "fused-operators", "not"],
                     "--print-active-features lists what the flags switch on", active)
        names = [feature["name"] for feature in json.loads(place.tool("mstrain", *run, "--print-active-features", "--json").stdout)
                 if feature["active"]]
        planned = json.loads(place.tool("mstrain", *run, "--print-plan", "--json").stdout)["features"]
        place.expect(names == [feature["name"] for feature in planned] and
                     names == ["tensor-parallel", "shared-memory", "mixed-precision", "gradient-accumulation-fusion", "fused-operators"],
                     f"the plan has the same features, {planned}")
        for flag in ("--json", "--plan-world-size=2"):
            alone = place.tool("mstrain", *shape, flag)
            place.expect(alone.exit == 2 and "needs" in alone.stderr and "--print-active-features" in alone.stderr, f"{flag} alone", alone)

        place.make_data()
        lines = [line for line in place.run("--train-iters", "1", "--log-level", "debug").stderr.splitlines() if "mstrain.config]" in line]
        place.expect(len(lines) > 150 and all(line.startswith("D ") for line in lines) and
                     any("] " in line and line.split("] ", 1)[1].split() == ["train_iters", "1"] for line in lines),
                     f"--log-level debug has a line for every setting, not {len(lines)}")

        gone = subprocess.run(["bash", "-c", '{ sleep 0.2; "$0" --help; echo $? >&2; } | true', f"{place.bin}/mstrain"], check=False,
                              capture_output=True, text=True)
        place.expect(gone.stderr == "141\n", f"a reader that has gone: no word, exit 141, but {gone.stderr!r}")


if __name__ == "__main__":
    sys.exit(main())
