"""Shared by the checks of the source tree: reading files, running a check and reporting its findings."""
import os
import sys


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def walk(root):
    """Every file of the tree, relative to root; without build folders, the quickstart's output and hidden folders."""
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = sorted(f for f in subfolders if not f.startswith((".", "build", "__", "quickstart_out")))
        for name in sorted(files):
            yield os.path.relpath(os.path.join(folder, name), root)


def write(root, path, text):
    """Writes a file into a temporary tree, for self-tests."""
    os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
    with open(os.path.join(root, path), "w", encoding="utf-8") as file:
        file.write(text)


def run_check(findings, self_test, all_is_well):
    """The main of a check: [ROOT] or --self-test; prints findings(root), one per line. Returns the exit status."""
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    found = list(findings(os.path.normpath(root)))
    print("\n".join(found) if found else all_is_well)
    return 1 if found else 0
