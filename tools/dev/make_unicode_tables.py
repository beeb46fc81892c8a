#!/usr/bin/env python3
"""Writes train/data/detail/unicode_tables.inc: the Unicode 16 data that the tokenizers need.

Categories L and N and White_Space for splitting, canonical decompositions and combining classes for NFC. The regular
expressions of the `tokenizers` library use Unicode 16; the data comes from the package unicodedata2, version 16.0.0. The
library's NFC is that of Unicode 9, and our ids must equal its ids, so newer characters that normalize are left out.
  make_unicode_tables.py > train/data/detail/unicode_tables.inc
"""
import sys

try:
    import unicodedata2 as ud
except ImportError:
    print("SKIPPED: needs the package unicodedata2==16.0.0")
    sys.exit(77)
assert ud.unidata_version == "16.0.0", ud.unidata_version

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
HANGUL = range(0xAC00, 0xD7A4)  # composed by arithmetic
WHITE_SPACE = {*range(0x9, 0xE), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F,
               0x3000}

# Characters after Unicode 9 that NFC reorders or composes. (Normalization of older ones never changes.)
YOUNGER = [
    (0x7fd, 0x7fd), (0x897, 0x89f), (0x8ca, 0x8d3), (0x9fe, 0x9fe), (0xc3c, 0xc3c), (0xd3b, 0xd3c), (0xeba, 0xeba),
    (0x1715, 0x1715), (0x1abf, 0x1ace), (0x1df6, 0x1dfa), (0xa82c, 0xa82c), (0x105c9, 0x105c9), (0x105e4, 0x105e4),
    (0x10d24, 0x10d27), (0x10d69, 0x10d6d), (0x10eab, 0x10eac), (0x10efd, 0x10eff), (0x10f46, 0x10f50),
    (0x10f82, 0x10f85), (0x11070, 0x11070), (0x1133b, 0x1133b), (0x11383, 0x11383), (0x11385, 0x11385),
    (0x1138e, 0x1138e), (0x11391, 0x11391), (0x113c5, 0x113c5), (0x113c7, 0x113c8), (0x113ce, 0x113d0),
    (0x1145e, 0x1145e), (0x11839, 0x1183a), (0x11938, 0x11938), (0x1193d, 0x1193e), (0x11943, 0x11943),
    (0x119e0, 0x119e0), (0x11a34, 0x11a34), (0x11a47, 0x11a47), (0x11a99, 0x11a99), (0x11d42, 0x11d42),
    (0x11d44, 0x11d45), (0x11d97, 0x11d97), (0x11f41, 0x11f42), (0x16121, 0x16128), (0x1612f, 0x1612f),
    (0x16d68, 0x16d6a), (0x16ff0, 0x16ff1), (0x1e08f, 0x1e08f), (0x1e130, 0x1e136), (0x1e2ae, 0x1e2ae),
    (0x1e2ec, 0x1e2ef), (0x1e4ec, 0x1e4ef), (0x1e5ee, 0x1e5ef)]
NORMALIZING = [c for c in CODE_POINTS if not any(a <= c <= b for a, b in YOUNGER)]


def category(c):
    if c in WHITE_SPACE:
        return 3
    return {"L": 1, "N": 2}.get(ud.category(chr(c))[0], 0)


def ranges(value, code_points):
    """(first, last, value) of every run of code points whose value is not 0."""
    out = []
    for c in code_points:
        v = value(c)
        if v and out and out[-1][1] == c - 1 and out[-1][2] == v:
            out[-1][1] = c
        elif v:
            out.append([c, c, v])
    return out


def decompositions():
    """(composed, first, second or 0, whether NFC composes it again)."""
    out = []
    for c in NORMALIZING:
        text = ud.decomposition(chr(c))
        if text and "<" not in text and c not in HANGUL:
            parts = [int(x, 16) for x in text.split()] + [0]
            out.append([c, parts[0], parts[1], int(ud.normalize("NFC", chr(c)) == chr(c))])
    return out


def table(name, rows, width):
    print(f"constexpr std::array<std::array<uint32_t, {width}>, {len(rows)}> {name} = {{{{")
    line = "   "
    for row in rows:
        cell = " {" + ", ".join(f"{x:#x}" if i < width - 1 else str(x) for i, x in enumerate(row)) + "},"
        if len(line) + len(cell) > 118:
            print(line)
            line = "   "
        line += cell
    print(line + "\n}};\n")


print("// Made by tools/dev/make_unicode_tables.py from Unicode", ud.unidata_version + ". Do not edit.\n")
print("// First, last, category: 1 letter (L), 2 number (N), 3 White_Space.")
table("kCategories", ranges(category, CODE_POINTS), 3)
print("// First, last, canonical combining class.")
table("kCombiningClasses", ranges(lambda c: ud.combining(chr(c)), NORMALIZING), 3)
print("// Composed, first, second or 0, 1 if NFC puts it together again.")
table("kDecompositions", decompositions(), 4)
