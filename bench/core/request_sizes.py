#!/usr/bin/env python3
"""How large requests past the page cache have to be: a file is read and written again by threads, each a part at a time.

  request_sizes.py [--gib 2] [--threads 6] [--rounds 3] [--folder DIR]

For parts of 1, 2, 4 and 8 MiB: seconds until all is written, and until it is on the disk (fsync), medians. Parts lie in huge pages,
as those of msckpt do (core/io/aligned_buffer.h), so that a request is as large as the device takes. --folder says which disk; it needs
room for twice the size.
"""
import argparse
import mmap
import os
import statistics
import tempfile
import threading
import time

MIB = 1 << 20


def buffer_of(size):
    memory = mmap.mmap(-1, max(size, 2 * MIB))
    memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)[:size]


def copy(source, target, part, threads):
    """(seconds until written, until durable)."""
    size = os.path.getsize(source)
    cached = os.open(source, os.O_RDONLY)
    os.fsync(cached)
    os.posix_fadvise(cached, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(cached)
    reading = os.open(source, os.O_RDONLY | os.O_DIRECT)
    writing = os.open(target, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
    os.posix_fallocate(writing, 0, size)
    offsets, lock = iter(range(0, size, part)), threading.Lock()

    def work():
        memory = buffer_of(part)
        while True:
            with lock:
                at = next(offsets, None)
            if at is None:
                return
            os.preadv(reading, [memory], at)
            os.pwritev(writing, [memory], at)

    begin = time.monotonic()
    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    written = time.monotonic() - begin
    os.fsync(writing)
    durable = time.monotonic() - begin
    os.close(reading)
    os.close(writing)
    os.unlink(target)
    return written, durable


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=2)
    parser.add_argument("--threads", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default="/var/tmp", help="on the disk in question")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        source, target = os.path.join(folder, "source"), os.path.join(folder, "target")
        with open(source, "wb") as file:
            for _ in range(int(asked.gib * 1024) // 64):
                file.write(os.urandom(64 * MIB))
        sizes = [1, 2, 4, 8]
        runs = {size: [] for size in sizes}
        for _ in range(asked.rounds):
            for size in sizes:
                runs[size].append(copy(source, target, size * MIB, asked.threads))
        print("MiB a request   written    on the disk")
        for size in sizes:
            written, durable = (statistics.median(run[i] for run in runs[size]) for i in (0, 1))
            print(f"{size:13}{written:9.2f} s{durable:11.2f} s")


if __name__ == "__main__":
    main()
