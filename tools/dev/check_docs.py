#!/usr/bin/env python3
"""Fails on a dead name in a page or a comment, checked against the tree and the built binaries (ctest `docs`).

In every page (*.md):

  - `core/error.h`, `ops/norm.h`, `recorder.h`, `tests/data/`: a file or folder of that path, or one whose path ends so
  - `ckpt::plan_copies()`, `TransformerConfig`, `MS_FORCE_ISA`: a word of the sources
  - [text](path): a link that leads somewhere
  - --flag, in backticks or behind a binary's name in a code block: named by that binary's --help (when MS_BIN has it)
  - the page of each binary and the specification of each format exist (REQUIRED)

In every comment and docstring of the sources:

  - ckpt/FORMAT.md, section 3.1: a page of that path, or one whose path ends so, with a heading of that number
  - core/io/file.h: a source file of the tree, where the path begins with one of its top folders

  check_docs.py [ROOT]        exit 1 and one line a finding; MS_BIN=folder of the binaries, to check flags too
  check_docs.py --self-test   proves that each rule catches what it forbids
"""
import os
import re
import subprocess
import sys
import tempfile

from source_tree import read, run_check, walk, write

REQUIRED = ("README.md", "ARCHITECTURE.md", "train/README.md", "train/DEVELOPING.md", "train/data/README.md", "ckpt/README.md",
            "ckpt/FORMAT.md", "profile/README.md", "profile/FORMAT.md")
OWN_PATH = "tools/dev/check_docs.py"  # names dead pages to test itself
BINARIES = ("mstrain", "msckpt", "msprof", "msdata")
# Endings of names that can only be files of a source tree; others (.json, .h5, .bin) are also what the binaries write.
SOURCE_FILE = re.compile(r"^[\w./*{},-]+\.(h|cpp|inl|cmake|py|md|sh)$")
CAMEL_CASE = re.compile(r"^(?:\w+::)*([A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+)(?:::\w+)?$")
FUNCTION = re.compile(r"^(?:\w+::)*(\w+)\(\)$")
MACRO = re.compile(r"^(?:-D)?(MS_[A-Z0-9_]+)(?:=.*)?$")
FLAG = re.compile(r"--[A-Za-z][\w-]*")


class Tree:
    """What a page may name: the paths and the words of the sources, and each binary's flags."""

    def __init__(self, root, bin_folder=None):
        files = [f for f in walk(root)]
        self.pages = [f for f in files if f.endswith(".md")]
        self.paths = set(files)
        for path in files:
            while os.path.dirname(path):
                path = os.path.dirname(path)
                self.paths.add(path)
        self.top = {path.split("/")[0] for path in self.paths}
        self.words = set()
        self.script_flags = set()
        for path in files:
            if path.endswith((".h", ".cpp", ".inl", ".py", ".cmake", "CMakeLists.txt", ".sh", ".json")) or "." not in path:
                text = read(os.path.join(root, path))
                self.words.update(re.findall(r"\w+", text))
                if path.startswith("tools/") and not path.endswith(".cpp"):
                    self.script_flags.update(FLAG.findall(text))
        self.flags = {name: help_flags(os.path.join(bin_folder, name)) for name in BINARIES
                      if bin_folder and os.access(os.path.join(bin_folder, name), os.X_OK)}

    def has_path(self, name, page):
        name = name.rstrip("/")
        if "{" in name:
            options = expand_braces(name)
            return all(self.has_path(option, page) for option in options)
        if "*" in name:
            pattern = re.compile("(^|.*/)" + re.escape(name).replace(r"\*", "[^/]*") + "$")
            return any(pattern.match(path) for path in self.paths)
        near = os.path.normpath(os.path.join(os.path.dirname(page), name))
        return name in self.paths or near in self.paths or any(path.endswith("/" + name) for path in self.paths)


def expand_braces(text):
    match = re.search(r"\{([^{}]*)\}", text)
    if not match:
        return [text.replace("{", "").replace("}", "")]
    return [whole for option in match.group(1).split(",")
            for whole in expand_braces(text[:match.start()] + option.strip() + text[match.end():])]


def help_flags(binary):
    """Every flag in the --help of a binary and of each of its verbs."""
    def ask(*verb):
        answer = subprocess.run([binary, *verb, "--help"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                timeout=60, check=False, text=True)
        return answer.stdout
    text = ask()
    verbs = re.findall(r"^ {2}([a-z][\w-]*)", text.split("Subcommands:")[1], re.M) if "Subcommands:" in text else []
    return set(FLAG.findall(text + "".join(ask(verb) for verb in verbs))) | {"--help"}


def same_flag(flag, known):
    """'_' passes for '-', and --no-x for the boolean --x."""
    flag = flag.replace("_", "-")
    known = {k.replace("_", "-") for k in known}
    return flag in known or (flag.startswith("--no-") and "--" + flag[5:] in known)


def check_command(line, tree):
    """Flags behind a binary's name on a command line."""
    binary = None
    for word in re.split(r"[\s=]+", line.split(" #")[0]):
        name = os.path.basename(word.strip("'\"`"))
        if word in ("|", "&&", ";"):
            binary = None
        elif name in BINARIES:
            binary = name
        elif binary in tree.flags and FLAG.fullmatch(word) and not same_flag(word, tree.flags[binary]):
            yield f"{word} is no flag of {binary}"


def check_name(name, page, tree):
    first = name.split("/")[0]
    if FLAG.fullmatch(name.split()[0].split("=")[0]):
        flag = name.split()[0].split("=")[0]
        known = set().union(*tree.flags.values()) | tree.script_flags
        if len(tree.flags) == len(BINARIES) and not same_flag(flag, known):
            yield f"{flag} is a flag of no binary"
    elif SOURCE_FILE.match(name) or ("/" in name and first in tree.top and re.fullmatch(r"[\w./*{},-]+", name)):
        if not tree.has_path(name, page):
            yield f"`{name}` names no file or folder"
    else:
        for pattern in (CAMEL_CASE, FUNCTION, MACRO):
            match = pattern.match(name)
            if match and match.group(1) not in tree.words:
                yield f"`{name}` is no word of the sources"
                break


def page_findings(root, page, tree):
    text = read(os.path.join(root, page))
    prose = []
    fenced = False
    command = ""
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced:
            command += line.rstrip("\\") if line.endswith("\\") else line
            if not line.endswith("\\"):
                yield from check_command(command, tree)
                command = ""
        else:
            prose.append(line)
    prose = "\n".join(prose)
    for name in re.findall(r"`([^`]+)`", prose):
        name = " ".join(name.split())
        yield from check_command(name, tree) if " " in name and not name.startswith("--") else check_name(name, page, tree)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if not re.match(r"[a-z]+:|#", target):
            path = os.path.normpath(os.path.join(os.path.dirname(page), target.split("#")[0]))
            if path not in tree.paths:
                yield f"link to {target} leads nowhere"


def comments_of(path, text):
    """The comments of a source file, lines that follow each other joined; with docstrings."""
    if path.endswith((".h", ".cpp", ".inl")):
        found = re.findall(r"(?:^[^\n\"]*?//[^\n]*\n)+", text, re.M)
        return [" ".join(re.findall(r"//+ ?([^\n]*)", block)) for block in found]
    strings = re.findall(r'"""(.*?)"""', text, re.S) if path.endswith(".py") else []
    return [" ".join(block.split()) for block in strings] + [
        " ".join(re.findall(r"# ?([^\n]*)", block)) for block in re.findall(r"(?:^\s*#[^\n]*\n)+", text, re.M)]


def comment_findings(root, path, tree):
    for comment in comments_of(path, read(os.path.join(root, path))):
        for name, section in re.findall(r"([\w./-]+\.md)\b(?:,? section (\d+(?:\.\d+)*))?", comment):
            pages = [page for page in tree.pages if page == name or page.endswith("/" + name)]
            if not pages:
                yield f"{name} names no page"
            elif section and not any(re.search(rf"^#+ {re.escape(section)}[. ]", read(os.path.join(root, page)), re.M)
                                     for page in pages):
                yield f"{name} has no section {section}"
        for name in re.findall(r"(?<![\w./-])([\w-]+/[\w./-]+\.(?:h|cpp|inl))\b", comment):
            if name.split("/")[0] in tree.top and not tree.has_path(name, path):
                yield f"{name} names no file"


def findings(root, bin_folder, required=REQUIRED):
    tree = Tree(root, bin_folder)
    for path in sorted(tree.paths):
        if path.endswith((".h", ".cpp", ".inl", ".py", ".cmake", "CMakeLists.txt")) and path != OWN_PATH:
            for finding in comment_findings(root, path, tree):
                yield f"{path}: {finding}"
    for page in required:
        if page not in tree.paths:
            yield f"{page}: is missing"
    for page in tree.pages:
        for finding in page_findings(root, page, tree):
            yield f"{page}: {finding}"


def self_test():
    with tempfile.TemporaryDirectory() as root:
        for name in BINARIES:
            write(root, f"bin/{name}", "#!/bin/sh\n[ $1 = --help ] && echo 'Subcommands:\n  plan  plans' || echo '  --dry-run'\n")
            os.chmod(os.path.join(root, "bin", name), 0o755)
        write(root, "core/error.h", "struct ErrorCode; void fail_check();\n")
        write(root, "page.md", "`core/error.h` `error.h` `core/` `core/{error}.h` `ErrorCode` `fail_check()` `iter_0000100/x.h5`\n"
                         "[a](core/error.h) `--dry-run` `--dry_run`\n```\nmsckpt plan \\\n --dry-run | sort --key 1\n```\n")
        bin_folder = os.path.join(root, "bin")
        clean = list(findings(root, bin_folder, ("page.md",)))
        assert not clean, clean
        bad = ("`core/gone.h`", "`gone.h`", "`core/{error,gone}.h`", "`core/none/`", "`GoneType`", "`core::gone_check()`",
               "`MS_GONE`", "[a](gone.md)", "`--gone`", "`msckpt plan --gone`", "```\nbuild/bin/msckpt plan --gone\n```",
               "```\nmpirun -n 2 mstrain --dry-run \\\n  --gone\n```")
        for text in bad:
            write(root, "page.md", text + "\n")
            seen = list(findings(root, bin_folder, ("page.md",)))
            assert len(seen) == 1 and seen[0].startswith("page.md: "), (text, seen)
        write(root, "page.md", "## 2. Files\n### 2.1 Names\n")
        live = "// Reads it (page.md, section 2.1), as\n// core/error.h and page.md section 2 say; megatron/core/x.h\nint a;\n"
        write(root, "core/cited.h", live)
        clean = list(findings(root, bin_folder, ("page.md",)))
        assert not clean, clean
        dead = (("core/cited.h", "// See gone.md.\n"), ("core/cited.h", "int a;  // page.md section 3\n"), ("core/cited.h", "// (page.md,\n// section 2.2)\n"),
                ("core/cited.h", "// as core/gone.h does\n"), ("core/cited.py", '"""Reads what\ngone.md describes."""\n'),
                ("core/CMakeLists.txt", "# as gone.md says\n"))
        for path, text in dead:
            write(root, path, text)
            seen = list(findings(root, bin_folder, ("page.md",)))
            assert len(seen) == 1 and seen[0].startswith(path + ": "), (text, seen)
            write(root, path, "\n")
        seen = list(findings(root, bin_folder, ("train/README.md",)))
        assert "train/README.md: is missing" in seen, seen
    print(f"each of {len(bad) + len(dead) + 1} dead names is caught, and nothing else")


if __name__ == "__main__":
    sys.exit(run_check(lambda root: findings(root, os.environ.get("MS_BIN")), self_test, "every name in pages and comments lives"))
