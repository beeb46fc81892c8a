#!/usr/bin/env python3
"""PyTorch, with weights_only, and Python's zipfile read what convert/torch/torch_writer.h writes (MS_PEERS_PYTHON; skipped without).

  torch_writer_test.py MAKE_TORCH_FILE
"""
import os
import subprocess
import sys
import tempfile
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../bench/peers"))
import peers  # noqa: E402

peers.need("torch")
import torch  # noqa: E402

MAKE = sys.argv[1]


def check_all_kinds(path):
    subprocess.run([MAKE, path], check=True)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.namelist()[0] == "archive/data.pkl" and archive.namelist()[-1] == "archive/version"
        for entry in archive.infolist():
            archive.fp.seek(entry.header_offset + 26)
            name, extra = (int.from_bytes(archive.fp.read(2), "little") for _ in range(2))
            assert (entry.header_offset + 30 + name + extra) % 64 == 0, entry.filename
    read = torch.load(path, weights_only=True)
    types = [name for name in read if isinstance(getattr(torch, name, None), torch.dtype)]
    assert len(types) == 16, types
    for name in types:
        dtype = getattr(torch, name)
        whole, tail = read[name], read[name + " tail"]
        assert whole.dtype == tail.dtype == dtype and whole.shape == (2, 3, 4) and whole.is_contiguous(), name
        size = 24 * dtype.itemsize
        wanted = torch.tensor([0, 1] * (size // 2), dtype=torch.uint8)
        assert torch.equal(whole.flatten().view(torch.uint8), wanted), name
        assert torch.equal(tail.view(torch.uint8), wanted[20 * dtype.itemsize:]), name
        assert tail.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr(), name
    assert read["scalar"].shape == () and read["scalar"].item() == 1.0
    assert read["empty"].shape == (0, 5)
    assert read["values"] == [3, -3, 70000, 2**40, -2**40, 1e-5, True, None, "Größe", torch.bfloat16, {"key": ("value",)}]


def check_large(path, size):
    """Checks a file with holes: only non-zero data takes space."""
    subprocess.run([MAKE, path, str(size)], check=True)
    large = torch.load(path, weights_only=True, mmap=True)["large"]
    assert large.numel() == size // 8 and large[-1].item() == 42 and large[0].item() == 0


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "file.pt")
        check_all_kinds(path)
        check_large(path, 2**32 - 8)
        check_large(path, 5 * 2**30)
    print("PyTorch", torch.__version__, "reads all of it")


main()
