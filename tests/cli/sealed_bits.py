#!/usr/bin/env python3
"""msckpt seal in folders of every format: sha256sum -c accepts the sums, msckpt verify succeeds, and after any one bit is
flipped it exits with 3 and names the file and the tensor that contain the bit. For archives, which have CRC-32s, a conversion
reports it too, with the bytes."""
import json
import os
import shutil
import struct
import subprocess
import sys

import training

HF = os.path.join(os.environ["MS_SOURCE"], "tests/data/hf_llama_tiny")
# A weight that no format splits or packs in this layout, by Hugging Face's name and ours.
NAME, OURS = "model.layers.1.self_attn.o_proj.weight", "decoder.layers.1.self_attention.linear_proj.weight"


def bytes_of_weight():
    with open(os.path.join(HF, "model.safetensors"), "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    begin, end = json.loads(data[8:8 + size])[NAME]["data_offsets"]
    return data[8 + size + begin:8 + size + end]


def files_with(folder, wanted):
    for parent, _, names in os.walk(folder):
        for name in sorted(names):
            path = os.path.join(parent, name)
            with open(path, "rb") as file:
                at = file.read().find(wanted)
            if at >= 0:
                yield path, at


def main():
    with training.workplace(needs_mpirun=False) as place:
        wanted = bytes_of_weight()
        for form in ("hf", "hf-bin", "mg", "dist", "dcp", "ucp", "ms"):
            made = place.tool("msckpt", "convert", "--load-dir", HF, "--save-dir", f"{form}_base", "--to", "ms")
            source = HF if form in ("hf-bin", "ms") else made.stdout.strip()
            made = place.tool("msckpt", "convert", "--load-dir", source, "--save-dir", form, "--to", form)
            place.expect(made.exit == 0, f"{form} is made", made)
            folder = made.stdout.strip() if form == "ms" else form
            sealed = place.tool("msckpt", "seal", folder)
            place.expect(sealed.exit == 0, f"{form} is sealed", sealed)
            sums = subprocess.run(["sha256sum", "--quiet", "--strict", "-c", "SHA256SUMS"], cwd=place.path(folder), capture_output=True,
                                  text=True, check=False)
            place.expect(sums.returncode == 0, f"{form}: sha256sum -c", sums.stdout + sums.stderr)
            place.expect(place.tool("msckpt", "verify", folder).exit == 0, f"{form}: verify holds", sealed)
            found = list(files_with(place.path(folder), wanted))
            place.expect(len(found) > 0, f"{form}: holds the weight as it is", sealed)
            for path, at in found:
                shutil.copy(path, place.path("whole"))
                with open(path, "r+b") as file:
                    file.seek(at + len(wanted) // 2)
                    byte = file.read(1)[0]
                    file.seek(-1, os.SEEK_CUR)
                    file.write(bytes([byte ^ 4]))
                ran = place.tool("msckpt", "verify", "--json", folder)
                place.expect(ran.exit == 3, f"{form}: a flipped bit is found, exit 3", ran)
                findings = json.loads(ran.stdout)["findings"] if ran.stdout else []
                said = json.dumps(findings)
                place.expect(OURS in said or NAME in said, f"{form}: the tensor is named", ran)
                place.expect(os.path.basename(path) in said, f"{form}: the file is named", ran)
                if form in ("hf-bin", "mg", "dist", "dcp", "ucp"):  # archives with checksums
                    ran = place.tool("msckpt", "convert", "--load-dir", folder, "--save-dir", "never", "--to", "gguf" if form == "hf-bin" else "hf")
                    said = "".join(ran.errors)
                    place.expect(ran.exit == 3 and len(ran.errors) == 1, f"{form}: no conversion of what is damaged", ran)
                    place.expect("CRC-32" in said and " bytes " in said and os.path.basename(path) in said and (OURS in said or NAME in said),
                                 f"{form}: the line has tensor, file, bytes and what is wrong", ran)
                shutil.copy(place.path("whole"), path)
                place.expect(place.tool("msckpt", "verify", folder).exit == 0, f"{form}: as it was", ran)


if __name__ == "__main__":
    sys.exit(main())
