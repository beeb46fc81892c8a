"""Reads the argument lists of Megatron-LM's functional tests: YAML files whose mappings MODEL_ARGS, MODEL_ARGS_2, ..
have a flag and its value on each line.

The part of YAML that such files use: a mapping of mappings, scalars plain or quoted, [a b] and [a, b] and "- a" lists, block
scalars (passed over), comments, anchors and "<<: *anchor". Megatron's test scripts turn a pair into words: `true` is the
flag alone, "[a b]" is several values, other text one value.
"""
import re

ARGUMENTS = re.compile(r"MODEL_ARGS(_\d+)?$")


class YamlError(Exception):
    """What this reader does not understand; the text names the line."""


def without_comment(line):
    """The line up to a # that no quotes hold."""
    quote = None
    for i, char in enumerate(line):
        if quote:
            quote = None if char == quote else quote
        elif char in "'\"" and (i == 0 or line[i - 1] in " :[,"):
            quote = char
        elif char == "#" and (i == 0 or line[i - 1] in " \t"):
            return line[:i].rstrip()
    return line.rstrip()


def scalar(text):
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def read_mappings(text):
    """{name: {key: value}} of the mappings at the top level; a value is a str, or a list of the block form."""
    mappings, anchors = {}, {}
    current, key, block = None, None, None
    for number, raw in enumerate(text.splitlines(), 1):
        line = without_comment(raw)
        indent = len(line) - len(line.lstrip())
        if not line or (block is not None and indent > block):
            continue
        block = None
        if re.search(r":\s*[|>][+-]?\d*$", line):
            block, current = indent, current if indent else None
            continue
        if indent == 0:
            found = re.match(r"([^\s:][^:]*):\s*(.*)$", line)
            if not found:
                if line.startswith(("- ", "---")):
                    continue
                raise YamlError(f"line {number}: \"{line}\" is no \"NAME: value\"")
            name, rest = found.groups()
            current = mappings.setdefault(scalar(name), {}) if not rest or rest.startswith("&") else None
            if current is not None and rest.startswith("&"):
                anchors[rest[1:].strip()] = current
            continue
        if current is None:
            continue
        text_of_line = line.strip()
        if text_of_line.startswith("- "):
            if key is not None and key in current:
                old = current[key]
                current[key] = (old if isinstance(old, list) else []) + [scalar(text_of_line[2:])]
            continue
        found = re.match(r"(\"[^\"]*\"|'[^']*'|[^\s:]+)\s*:(?:\s+(.*))?$", text_of_line)
        if not found:
            raise YamlError(f"line {number}: \"{text_of_line}\" is no \"--flag: value\"")
        key, value = scalar(found.group(1)), (found.group(2) or "").strip()
        if key == "<<":
            if value.lstrip("*") not in anchors:
                raise YamlError(f"line {number}: no anchor {value}")
            for inherited, old in anchors[value.lstrip("*")].items():
                current.setdefault(inherited, old)
        else:
            current[key] = scalar(value)
    return mappings


def words(mapping):
    """The command line of one mapping."""
    out = []
    for flag, value in mapping.items():
        if not flag.startswith("-"):
            raise YamlError(f"\"{flag}\" among the arguments is no flag")
        out.append(flag)
        if isinstance(value, list):
            out.extend(value)
        elif re.fullmatch(r"\[[^\]]+\]", value):
            out.extend(re.split(r"[,\s]+", value[1:-1].strip()))
        elif value not in ("true", ""):
            out.append(value)
    return out


def read_argument_lists(path):
    """[(name, words)] of the file's MODEL_ARGS mappings. Raises YamlError."""
    with open(path, encoding="utf-8", errors="replace") as file:
        mappings = read_mappings(file.read())
    return [(name, words(mapping)) for name, mapping in mappings.items() if ARGUMENTS.fullmatch(name)]
