#!/usr/bin/env python3
"""Measures how large direct requests must be: threads read a file and write a copy, each one part at a time.

  request_sizes.py [--gib 2] [--threads 6] [--rounds 3] [--folder DIR]

Prints for parts of 1, 2, 4 and 8 MiB, in small and in huge pages (core/io/aligned_buffer.h), the median seconds until all is
written, and until it is on the disk (fsync). A device takes a few hundred pieces of memory per request, so small pages make small
requests. --folder selects the disk, which needs room for twice the size.
"""
import argparse
import ctypes
import mmap
import os
import statistics
import tempfile
import threading
import time

MIB = 1 << 20


def buffer_of(size, advice):
    huge = 2 * MIB
    memory = mmap.mmap(-1, size + 2 * huge, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(advice)
    first = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % huge
    return memoryview(memory)[first:first + size]


def copy(source, target, part, advice, threads):
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
        memory = buffer_of(part, advice)
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
        pages = {"small": mmap.MADV_NOHUGEPAGE, "huge": mmap.MADV_HUGEPAGE}
        runs = {(kind, size): [] for kind in pages for size in (1, 2, 4, 8)}
        for _ in range(asked.rounds):
            for (kind, size), of_this in runs.items():
                of_this.append(copy(source, target, size * MIB, pages[kind], asked.threads))
        print("pages   MiB a part   written    on the disk")
        for (kind, size), of_this in runs.items():
            written, durable = (statistics.median(run[i] for run in of_this) for i in (0, 1))
            print(f"{kind:6}{size:12}{written:9.2f} s{durable:11.2f} s")


if __name__ == "__main__":
    main()
