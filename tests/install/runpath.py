#!/usr/bin/env python3
"""The RUNPATH of what is built has no folder in vain, and no needed one is dropped; what is installed runs without help.

runpath.py CC    MS_BUILD is the build tree
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

BUILD, SOURCE = os.environ["MS_BUILD"], os.environ["MS_SOURCE"]
TOOLS = ("msckpt", "msdata", "msprof", "mstrain")


def run(*command, **how):
    return subprocess.run(command, capture_output=True, text=True, check=True, **how).stdout


def dynamic(path):
    """(needed libraries, folders of the RUNPATH)"""
    text = run("readelf", "-d", path)
    folders = re.search(r"\(RUNPATH\).*\[(.*)\]", text)
    return re.findall(r"\(NEEDED\).*\[(.*)\]", text), folders.group(1).split(":") if folders else []


def check_kept(folder, cc):
    """A program that needs a library of one of three folders keeps that one, in its place."""
    for name in ("first", "needed", "last"):
        os.mkdir(os.path.join(folder, name))
    with open(os.path.join(folder, "x.c"), "w", encoding="utf-8") as file:
        file.write("int x(void) { return 7; }\n")
    with open(os.path.join(folder, "main.c"), "w", encoding="utf-8") as file:
        file.write("int x(void);\nint main(void) { return x(); }\n")
    run(cc, "-shared", "-fPIC", "x.c", "-o", "needed/libx.so", cwd=folder)
    run(cc, "main.c", "-o", "main", "-Lneeded", "-lx", "-Wl,--enable-new-dtags",
        f"-Wl,-rpath,{folder}/first:{folder}/needed:{folder}/last:$ORIGIN/../lib", cwd=folder)
    script = ["cmake", f"-DMS_PROGRAM={folder}/main", "-DMS_READELF=readelf", "-P", f"{SOURCE}/tools/cmake/runpath.cmake"]
    for _ in range(2):  # the second time it has nothing to do
        run(*script)
        assert dynamic(f"{folder}/main")[1] == [f"{folder}/needed", "$ORIGIN/../lib"], dynamic(f"{folder}/main")
        assert subprocess.run([f"{folder}/main"], check=False).returncode == 7
    os.rename(f"{folder}/needed", f"{folder}/elsewhere")
    run(cc, "main.c", "-o", "main", "-Lelsewhere", "-lx", "-Wl,--enable-new-dtags", f"-Wl,-rpath,{folder}/first", cwd=folder)
    run(*script)
    assert dynamic(f"{folder}/main")[1] == [], dynamic(f"{folder}/main")


def check_built():
    modules = os.path.join(BUILD, "lib", "msuite")
    paths = [os.path.join(BUILD, "bin", tool) for tool in TOOLS] + glob.glob(os.path.join(modules, "*.so"))
    for path in paths:
        needed, folders = dynamic(path)
        for folder in folders:
            assert folder.startswith("$") or any(os.path.exists(os.path.join(folder, name)) for name in needed), f"{path}: {folder} has nothing"
    for library in ("hdf5", "mpi"):  # each would lengthen its start by a tenth
        assert not any(name.startswith("lib" + library) for name in dynamic(paths[2])[0]), f"msprof needs {library}"


def check_installed(folder):
    run("cmake", "--install", BUILD, "--prefix", folder)
    clean = {"PATH": "/usr/bin:/bin", "HOME": folder}
    for tool in TOOLS:
        path = os.path.join(folder, "bin", tool)
        assert "not found" not in run("ldd", path), run("ldd", path)
        assert run(path, "--version", env=clean).startswith(tool)
        assert dynamic(path) == dynamic(os.path.join(BUILD, "bin", tool)), tool
    for path in glob.glob(os.path.join(folder, "lib", "msuite", "*.so")):
        assert "not found" not in run("ldd", path), path


def main():
    with tempfile.TemporaryDirectory() as folder:
        check_kept(os.path.realpath(folder), sys.argv[1])
    check_built()
    with tempfile.TemporaryDirectory() as folder:
        check_installed(folder)
    print("the RUNPATHs have what is needed, and nothing else")


if __name__ == "__main__":
    sys.exit(main())
