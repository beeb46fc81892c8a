"""Reads launch scripts without running them: the command lines of Python programs that a bash script would start.

A small part of bash is evaluated: variables, arrays, quotes, ${X:-default}, $((arithmetic)), if, case, for, functions, eval,
source of files that exist. Nothing is executed: $(command) is a placeholder, a test on files is false, a command's success
is assumed. A positional parameter that is not given reads ARG1, ARG2, ..; another unset variable reads as its own name, so
that `--save $DIR` keeps a value, except names with ARG or OPT in them, which are empty as in bash.
"""
import fnmatch
import os
import re
from dataclasses import dataclass, field

NAME = re.compile(r"[A-Za-z_]\w*")
FILLED_IN = re.compile(r"your [\w ]+", re.I)
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[([^\]]*)\])?(\+?)=")
MAX_COMMANDS = 100_000  # a loop that does not end


@dataclass
class Launch:
    """One started program: its script, its own arguments, and the arguments of the launcher before it."""
    program: str
    args: list
    launcher: list

    def ranks(self):
        """Processes that the launcher starts, or None where it does not say."""
        values = {}
        words = [part for word in self.launcher for part in word.split("=", 1)]
        for flag, value in zip(words, words[1:]):
            if value.isdigit():
                values[flag.lstrip("-").replace("_", "-")] = int(value)
        if "worker-num" in values:
            return values["worker-num"]
        if "nproc-per-node" in values:
            return values["nproc-per-node"] * values.get("nnodes", 1)
        return values.get("np")


class ShellError(Exception):
    """What this reader does not understand; the text names the line."""


@dataclass
class Word:
    """parts: (kind, text, quoted) with kind literal, parameter, arithmetic or command. array: of NAME=(..), its words."""
    parts: list = field(default_factory=list)
    array: list = None
    line: int = 0

    def literal(self):
        """The text if the word is one unquoted literal, as keywords are."""
        return self.parts[0][1] if len(self.parts) == 1 and self.parts[0][0] == "literal" and not self.parts[0][2] else None


class Lexer:
    """Tokens of a script: Words, and operators as str (newline as ';')."""

    OPERATORS = (";;", "&&", "||", "|&", "|", ";", "&", "(", ")")

    def __init__(self, text):
        self.text, self.at = text, 0
        self.heredocs = []

    def line(self):
        return self.text.count("\n", 0, self.at) + 1

    def tokens(self):
        out = []
        while (token := self.next()) is not None:
            out.append(token)
        return out

    def next(self):
        text = self.text
        while self.at < len(text):
            if text.startswith("\\\n", self.at) or text.startswith("\\\r\n", self.at):
                self.at = text.index("\n", self.at) + 1
            elif text[self.at] in " \t\r":
                self.at += 1
            elif text[self.at] == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            else:
                break
        if self.at >= len(text):
            return None
        if text[self.at] == "\n":
            self.at += 1
            self.skip_heredocs()
            return ";"
        redirection = re.compile(r"\d*(?:&>>?|>>|>\||>&|<&|<<<|<<-?|>|<)").match(text, self.at)
        if redirection and not text.startswith(("<(", ">("), self.at):
            self.at = redirection.end()
            return self.skip_redirection(redirection.group().lstrip("0123456789"))
        if text.startswith("((", self.at):
            end = text.find("))", self.at)
            if end < 0:
                raise ShellError(f"line {self.line()}: no )) after ((")
            word = Word([("literal", "((", False)], line=self.line())
            word.arithmetic = text[self.at + 2:end]
            self.at = end + 2
            return word
        for operator in self.OPERATORS:
            if text.startswith(operator, self.at):
                self.at += len(operator)
                return operator
        return self.word()

    def skip_redirection(self, operator):
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        target = self.word()
        if operator in ("<<", "<<-"):
            self.heredocs.append("".join(text for _, text, _ in target.parts))
        return self.next()

    def skip_heredocs(self):
        for end in self.heredocs:
            found = re.compile(rf"^\t*{re.escape(end)}[ \t\r]*$", re.M).search(self.text, self.at)
            self.at = found.end() + 1 if found else len(self.text)
        self.heredocs = []

    def word(self):
        word = Word(line=self.line())
        literal = ""

        def flush(quoted=False):
            nonlocal literal
            if literal:
                word.parts.append(("literal", literal, quoted))
            literal = ""

        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\r\n;&|()<>":
                if char == "(" and ASSIGNMENT.fullmatch(literal) and not word.parts:
                    flush()
                    self.at += 1
                    word.array = self.array()
                    return word
                break
            if char == "\\":
                if self.text.startswith(("\\\n", "\\\r\n"), self.at):
                    self.at = self.text.index("\n", self.at) + 1
                    continue
                flush()
                word.parts.append(("literal", self.text[self.at + 1:self.at + 2], True))
                self.at += 2
            elif char == "'":
                end = self.text.find("'", self.at + 1)
                if end < 0:
                    raise ShellError(f"line {self.line()}: no closing '")
                flush()
                word.parts.append(("literal", self.text[self.at + 1:end], True))
                self.at = end + 1
            elif char == '"':
                flush()
                self.double_quoted(word)
            elif char == "$" or char == "`":
                flush()
                part = self.dollar()
                word.parts.append((*part, False))
            else:
                literal += char
                self.at += 1
        flush()
        return word

    def array(self):
        words = []
        while True:
            token = self.next()
            if token is None:
                raise ShellError(f"line {self.line()}: no closing ) of an array")
            if token == ")":
                return words
            if isinstance(token, Word):
                words.append(token)

    def double_quoted(self, word):
        start = self.line()
        self.at += 1
        literal = ""
        empty = True
        while self.at < len(self.text) and self.text[self.at] != '"':
            char = self.text[self.at]
            if char == "\\" and self.text[self.at + 1:self.at + 2] in ("\n", '"', "\\", "$", "`", "\r"):
                step = 3 if self.text.startswith("\\\r\n", self.at) else 2
                if self.text[self.at + 1] not in "\n\r":
                    literal += self.text[self.at + 1]
                self.at += step
            elif char in "$`":
                if literal:
                    word.parts.append(("literal", literal, True))
                    literal = ""
                word.parts.append((*self.dollar(), True))
                empty = False
            else:
                literal += char
                self.at += 1
        if self.at >= len(self.text):
            raise ShellError(f'line {start}: no closing "')
        self.at += 1
        if literal or empty:
            word.parts.append(("literal", literal, True))

    def dollar(self):
        """At $ or `: (kind, text)."""
        text = self.text
        if text[self.at] == "`":
            end = text.find("`", self.at + 1)
            self.at = len(text) if end < 0 else end + 1
            return "command", ""
        if text.startswith("$((", self.at):
            end = self.closing(self.at + 1)
            inner = text[self.at + 3:end - 1]
            self.at = end + 1
            return "arithmetic", inner
        if text.startswith("$(", self.at):
            end = self.closing(self.at + 1)
            inner = text[self.at + 2:end]
            self.at = end + 1
            return "command", inner
        if text.startswith("${", self.at):
            end = self.closing(self.at + 1)
            inner = text[self.at + 2:end]
            self.at = end + 1
            return "parameter", inner
        found = re.compile(r"\$([A-Za-z_]\w*|[0-9@*#?$!-])").match(text, self.at)
        if not found:
            self.at += 1
            return "literal", "$"
        self.at = found.end()
        return "parameter", found.group(1)

    def closing(self, opening):
        """The place of the bracket that closes the one at `opening`."""
        pairs = {"(": ")", "{": "}"}
        close, depth = pairs[self.text[opening]], 0
        for at in range(opening, len(self.text)):
            if self.text[at] == self.text[opening]:
                depth += 1
            elif self.text[at] == close:
                depth -= 1
                if depth == 0:
                    return at
        raise ShellError(f"line {self.line()}: no closing {close}")


class Interpreter:
    """Evaluates tokens and collects the programs they start."""

    def __init__(self, folder, parameters=()):
        self.folder = folder
        self.variables = {"PWD": "PWD", "HOME": "HOME"}
        self.positional = list(parameters)
        self.functions = {}
        self.launches = []
        self.commands = 0

    # Values

    def value(self, name):
        """The text or list of a variable; None: unset."""
        if name.isdigit():
            index = int(name)
            return "SCRIPT" if index == 0 else self.positional[index - 1] if index <= len(self.positional) else None
        if name in ("@", "*"):
            return list(self.positional)
        if name == "#":
            return str(len(self.positional))
        if name in "?$!-":
            return "0"
        found = self.variables.get(name)
        # "your data path" is filled in before the script runs, by a path without blanks.
        return found.replace(" ", "-") if isinstance(found, str) and FILLED_IN.fullmatch(found) else found

    def placeholder(self, name):
        if name.isdigit():
            return f"ARG{name}"
        return "" if re.search("ARG|OPT", name.upper()) else name

    def parameter(self, text):
        """${text}: a str, or a list for an array."""
        if text.startswith("#") and text != "#":
            return str(len(self.value(text[1:].split("[")[0]) or ""))
        if text.startswith("!") and (found := re.fullmatch(r"!(\w+)\[[@*]\]", text)):
            return [str(index) for index in range(len(as_list(self.value(found.group(1)))))]
        if text.startswith("!") and NAME.fullmatch(text[1:]):
            name = self.value(text[1:])
            return self.parameter(name) if isinstance(name, str) and NAME.fullmatch(name) else ""
        found = re.match(r"([A-Za-z_]\w*|[0-9]+|[@*#?$!-])(?:\[([^\]]*)\])?(.*)$", text, re.S)
        if not found:
            return text
        name, index, rest = found.groups()
        value = self.value(name)
        if isinstance(value, list):
            if index is None:
                value = value if name in "@*" else value[0] if value else ""
            elif index not in ("@", "*"):
                place = self.arithmetic(index)
                value = value[place] if -len(value) <= place < len(value) else ""
        if rest:
            operator = re.match(r":?[-=+?]|%%?|##?|//?|\^\^?|,,?|:", rest).group() if re.match(r"[:\-=+?%#/^,]", rest) else ""
            word = rest[len(operator):]
            unset = value is None or (operator.startswith(":") and value in ("", []))
            if operator in ("-", ":-", "=", ":="):
                if unset:
                    value = " ".join(self.expand_text(word))
                    if operator.endswith("="):
                        self.variables[name] = value
            elif operator in ("+", ":+"):
                value = "" if unset else " ".join(self.expand_text(word))
            elif operator in ("%", "%%", "#", "##") and isinstance(value, str):
                value = trimmed(value, operator, word)
            elif operator in ("/", "//") and isinstance(value, str):
                old, _, new = word.partition("/")
                value = value.replace(old, new, -1 if operator == "//" else 1)
            elif operator == "^^" and isinstance(value, str):
                value = value.upper()
            elif operator == ",," and isinstance(value, str):
                value = value.lower()
            elif operator in ("?", ":?") and unset:
                value = self.placeholder(name)
        return self.placeholder(name) if value is None else value

    def expand_text(self, text):
        lexer = Lexer('"' + text.strip("\"'") + '"')
        return self.fields(lexer.word())

    def arithmetic(self, text):
        """An integer; 0 for what is not understood, as bash gives an unset name."""
        def number(found):
            value = self.parameter(found.group(1) or found.group(2) or found.group(3))
            value = "".join(value) if isinstance(value, list) else value
            return value if re.fullmatch(r"-?\d+", value or "") else "0"
        text = re.sub(r"\$\{([^}]*)\}|\$(\w+)|([A-Za-z_]\w*)", number, text).replace("&&", " and ").replace("||", " or ")
        text = re.sub(r"!(?!=)", " not ", re.sub(r"(?<!/)/(?!/)", "//", text))
        if not re.fullmatch(r"(?:[\d\s+\-*/%()<>=!]|and|or|not)*", text) or "**" in text:
            return 0
        try:
            return int(eval(text, {"__builtins__": {}}))  # digits and operators only
        except (SyntaxError, ZeroDivisionError, TypeError, ValueError):
            return 0

    def fields(self, word):
        """The fields that a word expands to: unquoted values split at blanks, "${A[@]}" into its elements."""
        out, current, open_field = [], "", False
        for kind, text, quoted in word.parts:
            if kind == "literal":
                current, open_field = current + text, True
                continue
            if kind == "parameter":
                value = self.parameter(text)
            elif kind == "arithmetic":
                value = str(self.arithmetic(text))
            else:
                value = "COMMAND"
            pieces = value if isinstance(value, list) else [value]
            if quoted and not re.search(r"\[@\]|^@", text):
                pieces = [" ".join(pieces)]
            for i, piece in enumerate(pieces):
                if i > 0:
                    if open_field:
                        out.append(current)
                    current, open_field = "", False
                if quoted:
                    current, open_field = current + piece, True
                    continue
                parts = piece.split()
                if piece[:1].isspace() and open_field:
                    out.append(current)
                    current, open_field = "", False
                for j, part in enumerate(parts):
                    if j > 0:
                        out.append(current)
                        current = ""
                    current, open_field = current + part, True
                if parts and piece[-1:].isspace():
                    out.append(current)
                    current, open_field = "", False
        if open_field:
            out.append(current)
        return out

    def text(self, word):
        return " ".join(self.fields(Word([(kind, text, True) for kind, text, _ in word.parts])))

    # Commands

    def run(self, tokens):
        at = 0
        while at < len(tokens):
            at = self.statement(tokens, at)

    def statement(self, tokens, at):
        """Runs the statement at `at` and returns the place after it."""
        token = tokens[at]
        if isinstance(token, str) and token != "(":
            return at + 1
        if token == "(":
            end = self.matching(tokens, at, "(", ")")
            self.run(tokens[at + 1:end])
            return end + 1
        keyword = token.literal()
        if keyword in ("if", "for", "while", "until", "case", "{"):
            return getattr(self, "run_" + {"{": "group", "until": "while"}.get(keyword, keyword))(tokens, at)
        if keyword == "function" or (at + 2 < len(tokens) and tokens[at + 1] == "(" and tokens[at + 2] == ")"):
            return self.define(tokens, at)
        end = at
        while end < len(tokens) and not (isinstance(tokens[end], str) and tokens[end] not in ("(", ")")):
            end += 1
        self.command(tokens[at:end])
        return end + 1

    def matching(self, tokens, at, opening, closing):
        depth = 0
        for i in range(at, len(tokens)):
            word = tokens[i] if isinstance(tokens[i], str) else tokens[i].literal()
            if word in opening.split():
                depth += 1
            elif word == closing:
                depth -= 1
                if depth == 0:
                    return i
        line = tokens[at].line if isinstance(tokens[at], Word) else "?"
        raise ShellError(f"line {line}: {opening} without {closing}")

    def split(self, tokens, at, openings, closing, separators):
        """The parts between the keywords of a compound command: [(keyword, tokens)], and the place after it."""
        end = self.matching(tokens, at, openings, closing)
        parts, depth, start, keyword = [], 0, at + 1, None
        for i in range(at + 1, end + 1):
            word = None if isinstance(tokens[i], str) else tokens[i].literal()
            if word in openings.split():
                depth += 1
            elif word == closing and depth > 0:
                depth -= 1
            elif depth == 0 and (word in separators or i == end):
                parts.append((keyword, tokens[start:i]))
                keyword, start = word, i + 1
        return parts, end + 1

    def run_if(self, tokens, at):
        parts, after = self.split(tokens, at, "if", "fi", ("then", "elif", "else"))
        holds = self.condition(parts[0][1])
        for (keyword, body) in parts[1:]:
            if keyword == "then" and holds:
                self.run(body)
                return after
            if keyword == "elif":
                holds = self.condition(body)
            if keyword == "else":
                self.run(body)
        return after

    def run_for(self, tokens, at):
        parts, after = self.split(tokens, at, "for while until", "done", ("do",))
        header, body = parts[0][1], parts[1][1]
        words = [token for token in header if isinstance(token, Word)]
        if words and words[0].literal() == "((":
            return after
        values = [value for word in words[2:] for value in self.fields(word)] if len(words) > 1 else list(self.positional)
        for value in values:
            self.variables[words[0].literal()] = value
            self.run(body)
        return after

    def run_while(self, tokens, at):
        # A loop over arguments or lines that are not there.
        _, after = self.split(tokens, at, "for while until", "done", ("do",))
        return after

    def run_group(self, tokens, at):
        end = self.matching(tokens, at, "{", "}")
        self.run(tokens[at + 1:end])
        return end + 1

    def run_case(self, tokens, at):
        end = self.matching(tokens, at, "case", "esac")
        subject = self.text(tokens[at + 1])
        i = at + 3
        while i < end:
            patterns = []
            while i < end and tokens[i] != ")":
                if isinstance(tokens[i], Word):
                    patterns.append(self.text(tokens[i]))
                i += 1
            stop = i
            while stop < end and tokens[stop] != ";;":
                stop += 1
            if any(fnmatch.fnmatchcase(subject, pattern) for pattern in patterns):
                self.run(tokens[i + 1:stop])
                break
            i = stop + 1
        return end + 1

    def define(self, tokens, at):
        name_at = at + 1 if tokens[at].literal() == "function" else at
        start = name_at + 1
        while start < len(tokens) and (isinstance(tokens[start], str) or tokens[start].literal() != "{"):
            start += 1
        if start == len(tokens):
            raise ShellError(f"line {tokens[at].line}: a function without a body")
        end = self.matching(tokens, start, "{", "}")
        self.functions[tokens[name_at].literal()] = tokens[start + 1:end]
        return end + 1

    def condition(self, tokens):
        """Whether the tokens between `if` and `then` hold; && and || from left to right."""
        holds, operator, start = True, "&&", 0
        for i in range(len(tokens) + 1):
            if i < len(tokens) and tokens[i] not in ("&&", "||", ";"):
                continue
            part = [token for token in tokens[start:i] if isinstance(token, Word)]
            in_brackets = part and part[0].literal() == "[[" and part[-1].literal() != "]]"
            if part and not in_brackets:
                this = self.test(part)
                holds = holds and this if operator == "&&" else holds or this
            if i < len(tokens) and not in_brackets:
                operator, start = (tokens[i] if tokens[i] != ";" else operator), i + 1
        return holds

    def test(self, words):
        if words[0].literal() == "!":
            return not self.test(words[1:])
        if words[0].literal() == "((":
            return self.arithmetic(words[0].arithmetic) != 0
        if words[0].literal() not in ("[", "[[", "test"):
            self.command(words)
            return True
        operands = [self.text(word) for word in words[1:] if word.literal() not in ("]", "]]")]
        return self.compare(operands)

    def compare(self, operands):
        if "-o" in operands or "||" in operands:
            at = operands.index("-o") if "-o" in operands else operands.index("||")
            return self.compare(operands[:at]) or self.compare(operands[at + 1:])
        if "-a" in operands or "&&" in operands:
            at = operands.index("-a") if "-a" in operands else operands.index("&&")
            return self.compare(operands[:at]) and self.compare(operands[at + 1:])
        if operands[:1] == ["!"]:
            return not self.compare(operands[1:])
        if len(operands) == 1:
            return operands[0] != ""
        if len(operands) == 2:
            operator, value = operands
            return {"-z": value == "", "-n": value != "", "-v": value in self.variables}.get(operator, False)
        if len(operands) != 3:
            return False
        left, operator, right = operands
        if operator in ("=", "=="):
            return fnmatch.fnmatchcase(left, right)
        if operator == "!=":
            return not fnmatch.fnmatchcase(left, right)
        if operator == "=~":
            try:
                return re.search(right, left) is not None
            except re.error:
                return False
        numbers = {"-eq": "==", "-ne": "!=", "-gt": ">", "-ge": ">=", "-lt": "<", "-le": "<="}
        return operator in numbers and self.arithmetic(f"({left}) {numbers[operator]} ({right})") != 0

    def assign(self, word):
        """Takes NAME=value, NAME+=value or NAME=(..); False if the word is none of these."""
        if not word.parts or word.parts[0][0] != "literal" or word.parts[0][2]:
            return False
        found = ASSIGNMENT.match(word.parts[0][1])
        if not found:
            return False
        name, index, plus = found.groups()
        if word.array is not None:
            value = [one for element in word.array for one in self.fields(element)]
            self.variables[name] = as_list(self.variables.get(name)) + value if plus else value
            return True
        rest = Word([("literal", word.parts[0][1][found.end():], False), *word.parts[1:]])
        value = self.text(rest)
        old = self.variables.get(name)
        if index is not None:
            values = as_list(old)
            place = self.arithmetic(index)
            values.extend([""] * (place + 1 - len(values)))
            values[place] = value
            self.variables[name] = values
        elif plus and isinstance(old, list):
            self.variables[name] = [(old[0] if old else "") + value] + old[1:]
        else:
            self.variables[name] = (old or "") + value if plus else value
        return True

    def command(self, words):
        self.commands += 1
        if self.commands > MAX_COMMANDS:
            raise ShellError("more commands than a launch script has")
        words = [word for word in words if isinstance(word, Word)]
        while words and self.assign(words[0]):
            words = words[1:]
        if not words:
            return
        name = words[0].literal()
        if name in ("export", "local", "declare", "readonly", "typeset"):
            for word in words[1:]:
                self.assign(word)
            return
        if name == "((" or name in ("[", "[["):
            return
        args = [one for word in words for one in self.fields(word)]
        if not args:
            return
        if args[0] == "eval":
            self.run(Lexer(" ".join(args[1:])).tokens())
        elif args[0] in ("source", ".") and len(args) > 1:
            self.source(args[1])
        elif args[0] == "set" and "--" in args:
            self.positional = args[args.index("--") + 1:]
        elif args[0] == "shift":
            self.positional = self.positional[1:]
        elif args[0] in self.functions:
            outer, self.positional = self.positional, args[1:]
            self.run(self.functions[args[0]])
            self.positional = outer
        elif args[0] not in ("echo", "printf", "cp", "mv", "rm", "ls", "cat", "mkdir"):
            self.launch(args)

    def source(self, name):
        path = os.path.join(self.folder, name)
        if os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                self.run(Lexer(file.read()).tokens())

    def launch(self, args):
        if "-c" in args[:-1] and os.path.basename(args[0]) in ("bash", "sh", "srun"):
            self.run(Lexer(args[args.index("-c") + 1]).tokens())
            return
        for i, arg in enumerate(args):
            if arg.endswith(".py"):
                self.launches.append(Launch(arg, args[i + 1:], args[:i]))
                return


def as_list(value):
    return list(value) if isinstance(value, list) else [] if value is None else [value]


def trimmed(value, operator, pattern):
    """${value%pattern} and its kin."""
    cuts = range(len(value) + 1)
    if operator in ("%", "##"):
        cuts = reversed(cuts)
    for cut in cuts:
        part, kept = (value[cut:], value[:cut]) if operator[0] == "%" else (value[:cut], value[cut:])
        if fnmatch.fnmatchcase(part, pattern):
            return kept
    return value


def read_launches(path, parameters=()):
    """The programs that the script at `path` starts, in order. Raises ShellError."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    interpreter = Interpreter(os.path.dirname(os.path.abspath(path)), parameters)
    interpreter.run(Lexer(text).tokens())
    return interpreter.launches
