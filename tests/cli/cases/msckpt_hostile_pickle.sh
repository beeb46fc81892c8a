# Pickles that call os.system: nothing is run, and the call is reported.
model="$MS_SOURCE/tests/data/hf_llama_tiny"
python3 - <<'PY'
import os, pathlib, pickle, zipfile
class Bad:
    __reduce__ = lambda self: (os.system, ("touch run",))
def save(path, value):
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(value, 2))
        archive.writestr("archive/version", "3\n")
save("hf/pytorch_model.bin", {"model.embed_tokens.weight": Bad()})
save("mg/iter_0000001/mp_rank_00/model_optim_rng.pt", {"args": Bad(), "checkpoint_version": 3.0, "model": {}})
save("ds/global_step1/mp_rank_00_model_states.pt", {"module": Bad()})
pathlib.Path("ds/latest").write_text("global_step1")
pathlib.Path("dcp").mkdir()
pathlib.Path("dcp/.metadata").write_bytes(pickle.dumps(Bad(), 4))
PY
cp "$model/config.json" hf && cp "$model/config.json" dcp && cp "$model/config.json" ds
for folder in hf mg ds dcp; do
  msckpt convert --load-dir $folder --save-dir out; echo "$folder: exit $?"
done
test -e run || echo nothing was run
test -e out || echo nothing was written
