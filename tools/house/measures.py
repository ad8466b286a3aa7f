"""Reads C++ sources as text and counts the measures of the house rules: members, comments, files, words.

A text is read the way clang-format lays it out; nothing is compiled. It also reads comments and docstrings of Python.
Used by tools/house-report and test/house.
"""
import ast
import io
import re
import tokenize

# First words of a comment that names neither an actor nor a thing: "What is left…", "Of several…".
HEADLESS = re.compile(r"(What|Who|Whoever|Whose|Those|Nobody|Somebody|Of|One that|How|Where)\b")
# The same in small letters, as a comment behind code often begins. "nobody: the root" explains a value.
HEADLESS_SMALL = re.compile(r"(what|who|whoever|whose|those|nobody|somebody)\b(?!:)")
# A condition or a place first, then the sentence's actor: "Where the kernel lacks it, the ring falls back".
WITH_ACTOR = re.compile(r"(Where|Of)\b[^.;:]*, (a|an|the|each|every|this|these|tutti|UCX|libfabric|NCCL)\b")

# A comment, a literal or the end of a statement. The ' in 60'000 opens no literal.
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|'
                   r'"(?:\\.|[^"\\\n])*"|(?<!\d)\'(?:\\.|[^\'\\\n])+\'|;', re.DOTALL)
# The makers of errors that the caller of a function, or the writer of a setting, can correct.
CALLERS_ERROR = re.compile(r'\bfail(?:_rank|_device)?\([^,;"]*\b(?:Code::(?:invalid|unsupported|auth|mismatch)|'
                           r'TUTTI_ERR_(?:INVALID|UNSUPPORTED|AUTH|MISMATCH))\b|(?<![\w.>])invalid\(')
# Calls with a text that people read, of errors, of the log and of programs.
TEXT_MAKER = re.compile(r"\b(?:fail(?:_rank|_device|_errno)?|invalid|wrap|log::info|log::debug|with_advice|runtime_error|"
                        r"complain)\(|\.advice\(")
# Calls of a statement that makes a program's --help.
HELP_MAKER = re.compile(r"\b(?:add_(?:option|flag|subcommand|option_group)|description|footer|dress|App|usage)\b")
LITERALS = re.compile(r'(?:R"(\w*)\((?s:.*?)\)\1"|"(?:\\.|[^"\\\n])*"|\s)+')
LITERAL = re.compile(r'R"(\w*)\(((?s:.*?))\)\1"|"((?:\\.|[^"\\\n])*)"')


def without_comments_and_strings(text):
    """The text without comments, and with empty literals. Line breaks stay, so that line numbers stay the same."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)

    def blank(found):
        kept = "\n" * found[0].count("\n")
        return kept if found[0].startswith("/") else '""' + kept
    return pattern.sub(blank, text)


def _end_of_braces(text, begin):
    """The index after the brace that closes the one at `begin`."""
    depth = 0
    for found in re.compile(r"[{}]").finditer(text, begin):
        depth += 1 if found[0] == "{" else -1
        if depth == 0:
            return found.end()
    return len(text)


def _declarations(body):
    """The declarations directly inside a class body, each without its own body."""
    begin, at = 0, 0
    while at < len(body):
        if body[at] == "{":
            declaration = body[begin:at]
            after = _end_of_braces(body, at)
            # `int x{0};` goes on to its semicolon; a function's body ends the declaration.
            if re.match(r"\s*[;,]", body[after:]) and ")" not in declaration:
                at = after
                continue
            yield declaration
            begin = at = after
            if (semicolon := re.match(r"\s*;", body[at:])):
                begin = at = at + semicolon.end()
            continue
        if body[at] == ";":
            yield body[begin:at]
            begin = at + 1
        at += 1


def _without_brackets(declaration):
    """The text without <…> and the (…) of attributes, so that the first "(" is the parameter list's."""
    text = re.sub(r"\b(alignas|decltype|noexcept|requires)\s*\([^()]*(\([^()]*\)[^()]*)*\)", "", declaration)
    text = re.sub(r"\[\[.*?\]\]", "", text)
    before = None
    while before != text:
        before = text
        text = re.sub(r"<[^<>()]*(\([^()]*\))?[^<>()]*>", "", text)
    return text


def member_function(declaration, class_name):
    """The name of the member function that is declared, or None: for data, types, friends, constructors,
    destructors, operators and overrides."""
    text = re.sub(r"\b(public|protected|private)\s*:(?!:)", "", declaration).strip()
    if not re.match(r"template\b", text):
        text = text.partition("{")[0]  # before a member's initial value
    if re.match(r"(using|typedef|friend|enum|class|struct|union|static_assert)\b", text):
        return None
    text = re.sub(r"^template\s*<.*?>\s*(?=[\w\[])", "", text, flags=re.DOTALL)
    if re.match(r"(using|friend|class|struct)\b", text):
        return None
    text = _without_brackets(text)
    if re.search(r"\boverride\b|\boperator\b|~", text) or "(" not in text:
        return None
    head = text.partition("(")[0]
    if "=" in head:
        return None
    name = re.search(r"(\w+)\s*$", head)
    if not name or name[1] == class_name:
        return None
    # `std::function<void(int)> f_` has lost its brackets; `void (*f)(int)` is a pointer.
    return None if re.match(r"\s*\*", text.partition("(")[2]) else name[1]


def classes(text):
    """(name, the names of its member functions) for each class of a text, classes inside classes too."""
    code = without_comments_and_strings(text)
    code = re.sub(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", "", code, flags=re.MULTILINE)
    for found in re.finditer(r"\b(?<!enum )(?:class|struct)\s+(?:alignas\([^)]*\)\s*)?(\w+)(?:\s+final)?\s*"
                             r"(?::(?!:)[^;{()]*)?\{", code):
        begin = found.end() - 1
        body = code[begin + 1:_end_of_braces(code, begin) - 1]
        members = [name for declaration in _declarations(body) if (name := member_function(declaration, found[1]))]
        yield found[1], members


def virtual_functions(text, class_name):
    """Counts the virtual functions that a class declares, without its destructor."""
    code = without_comments_and_strings(text)
    found = re.search(rf"\b(?:class|struct)\s+{class_name}\b[^;{{]*\{{", code)
    if not found:
        return 0
    body = code[found.end():_end_of_braces(code, found.end() - 1)]
    return len(re.findall(r"\bvirtual\b(?!\s*~)", body))


def comment_blocks(text):
    """(line, text) of each comment: successive lines of // are one."""
    lines, number = text.splitlines(), 0
    while number < len(lines):
        line = lines[number].strip()
        first = number + 1
        if line.startswith("//"):
            words = []
            while number < len(lines) and lines[number].strip().startswith("//"):
                words.append(lines[number].strip().lstrip("/<! "))
                number += 1
            yield first, " ".join(words).strip()
            continue
        if line.startswith("/*"):
            words = []
            while number < len(lines):
                words.append(lines[number].strip().strip("/*! "))
                number += 1
                if "*/" in lines[number - 1]:
                    break
            yield first, " ".join(words).strip()
            continue
        number += 1


def trailing_comments(text):
    """(line, text) of each comment behind code: the lines of // below it in the same column belong to it."""
    found, last = [], None
    for token in TOKEN.finditer(text):
        if not token[0].startswith("/"):
            continue
        begin = text.rfind("\n", 0, token.start()) + 1
        line, column = text.count("\n", 0, token.start()) + 1, token.start() - begin
        words = " ".join(part.strip().strip("/*!< ") for part in token[0].splitlines()).strip()
        if text[begin:token.start()].strip():
            found.append((line, words))
        elif last == (line - 1, column):
            found[-1] = found[-1][0], f"{found[-1][1]} {words}"
        else:
            last = None
            continue
        last = line, column
    return found


def hash_blocks(text):
    """(line, text) of each comment of a script, a Meson file or a TOML file: lines of # in one column are one."""
    found, last = [], None
    for line, code in enumerate(text.splitlines(), 1):
        if code.startswith("#!") or not (mark := re.search(r"(?:^|(?<=\s))#+(?=\s|$)", code)):
            continue
        words = code[mark.end():].strip()
        if last == (line - 1, mark.start()):
            found[-1] = found[-1][0], f"{found[-1][1]} {words}".strip()
        else:
            found.append((line, words))
        last = line, mark.start()
    return found


def has_hash_comments(path):
    """Whether a file is one of Meson's, TOML or a shell script: by its name, or a program's by its first line."""
    if path.name in ("meson.build", "meson_options.txt") or path.suffix in (".toml", ".sh"):
        return path.is_file()
    if path.suffix or not path.is_file():
        return False
    with path.open("rb") as file:
        return re.match(rb"#!.*\b(ba)?sh\b", file.readline()) is not None


def is_python(path):
    """Whether a file is a Python source: by its name's end, or a program's by its first line."""
    if path.suffix or not path.is_file():
        return path.suffix == ".py" and path.is_file()
    with path.open("rb") as file:
        return file.readline().rstrip() == b"#!/usr/bin/env python3"


def python_blocks(text):
    """(line, text) of each comment and docstring of a Python text: successive lines of # in one column are one."""
    found, last = [], (-1, 0)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT or token.string.startswith("#!"):
            continue
        line, column = token.start
        words = token.string.lstrip("#: ").rstrip()
        if last == (line - 1, column):
            found[-1] = found[-1][0], f"{found[-1][1]} {words}".strip()
        else:
            found.append((line, words))
        last = token.start
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if docstring := ast.get_docstring(node):
                found.append((node.body[0].lineno, " ".join(docstring.split())))
    return sorted(found)


def is_headless(comment):
    """Does the comment open with a clause that names no actor? A question, or a clause that names one later, passes."""
    if not (HEADLESS.match(comment) or HEADLESS_SMALL.match(comment)) or WITH_ACTOR.match(comment):
        return False
    first = re.split(r"(?<=[.?!:])\s", comment)[0]
    return not first.endswith("?")


def is_headless_text(text):
    """The same of an error's text or of advice, which begin with a small letter."""
    return is_headless(text[:1].upper() + text[1:])


def headless_sentence(comment):
    """The first sentence of a comment that opens with such a clause, or None. "What to do:" is a label of errors."""
    sentences = re.split(r"(?<=[.?!])\s+(?=[A-Z])", comment)
    return next((text for text in sentences if is_headless(text) and not text.startswith("What to do: ")), None)


def _statements(text):
    """(line, code) of each statement, without comments: up to a semicolon that is in no literal."""
    line, kept, begin = 1, "", 0
    for found in TOKEN.finditer(text):
        kept += text[begin:found.start()]
        begin = found.end()
        if found[0].startswith("/"):
            kept += "\n" * found[0].count("\n")
        elif found[0] != ";":
            kept += found[0]
        else:
            yield line + kept.count("\n") - kept.lstrip().count("\n"), kept.strip()
            line, kept = line + kept.count("\n"), ""


def errors_without_advice(text):
    """(line, statement) of each statement that makes an error which its caller can correct, and gives no .advice(…) for
    it. A function that passes its arguments on to fail() gets the advice from its caller."""
    for line, code in _statements(text):
        made = len(CALLERS_ERROR.findall(code))
        if made > code.count(".advice(") and "std::forward<" not in code:
            yield line, " ".join(code[CALLERS_ERROR.search(code).start():].split())


def has_typed_advice(text, is_python_text):
    """Whether a text has advice inside a literal of its own, which the formatter of errors should join to the message."""
    literals = r'(?:\w?"(?:\\.|[^"\\\n])*"\s*)+'
    code = text if is_python_text else "\n".join(code for _, code in _statements(text + ";"))
    return any("What to do: " in "".join(re.findall(r'"((?:\\.|[^"\\\n])*)"', found[0])) for found in re.finditer(literals, code))


def warnings_without_advice(text):
    """(line, statement) of each warning or error for the log that is a text, or an error made there without advice: the
    log takes an error with its parts, so that its lines have the form of errors."""
    for line, code in _statements(text):
        if found := re.search(r'\blog::(?:warn|error)\(\s*(?:"|fmt::format\(|fail(?:_rank)?\()', code):
            if "fail" not in found[0] or ".advice(" not in code:
                yield line, " ".join(code[found.start():].split())


def error_texts(text):
    """(line, text) of the errors, their advice and the lines of the log of a C++ text: a call's first literal."""
    for line, code in _statements(text):
        for maker in TEXT_MAKER.finditer(code):
            depth, at = 1, maker.end()
            while at < len(code) and depth > 0 and code[at] != '"':
                depth += {"(": 1, ")": -1}.get(code[at], 0)
                at += 1
            if depth > 0 and (literals := re.match(r'(?:"(?:\\.|[^"\\\n])*"\s*)+', code[at:])):
                words = "".join(re.findall(r'"((?:\\.|[^"\\\n])*)"', literals[0]))
                yield line + code.count("\n", 0, at), words


def help_texts(text):
    """(line, text) of what a C++ program prints for --help: all literals of each statement that makes an option, a usage
    line or a footer. A paragraph is a text of its own."""
    for line, code in _statements(text):
        if HELP_MAKER.search(code):
            for found in LITERALS.finditer(code):
                words = "".join(raw or plain for _, raw, plain in LITERAL.findall(found[0]))
                for part in words.replace("\\n", "\n").split("\n\n"):
                    if len(part.split()) > 1:  # one word is a name
                        yield line + code.count("\n", 0, found.start()), " ".join(part.split())


# Functions of Python that print the first argument for people, and arguments of argparse that --help prints.
SAYS = {"exit", "error", "with_advice"}
HELP_ARGUMENTS = {"help", "description", "epilog", "usage"}


def _first_literal(node):
    """The text with which an expression begins, or None: of a sum its left side, of a call its first argument."""
    while isinstance(node, ast.BinOp) or (isinstance(node, ast.Call) and node.args):
        node = node.left if isinstance(node, ast.BinOp) else node.args[0]
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[0]
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def python_error_texts(text):
    """(line, text) of the exceptions that a Python text raises, of its other errors and of --help: the beginning of each."""
    for node in ast.walk(ast.parse(text)):
        said = []
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            said = node.exc.args[:1]
        elif isinstance(node, ast.Call):
            if getattr(node.func, "id", getattr(node.func, "attr", "")) in SAYS:
                said = node.args[:1]
            said += [each.value for each in node.keywords if each.arg in HELP_ARGUMENTS]
        for each in said:
            if (found := _first_literal(each)) is not None:
                yield node.lineno, found


def lines_of_body(text, line):
    """The lines from the brace that opens the body of the function declared at that line to the one that closes it."""
    code = without_comments_and_strings(text)
    begin = sum(map(len, code.splitlines(keepends=True)[:max(line - 1, 0)]))
    opens = code.find("{", begin)
    # A function that the compiler generates has no body there: a semicolon comes before a brace.
    ends = code.find(";", begin)
    if opens < 0 or 0 <= ends < opens:
        return 0
    return code.count("\n", opens, _end_of_braces(code, opens)) + 1


def is_stop(name, text, line):
    """Whether a reader who follows a call has to read this function (a stop). These do not count: constructors,
    destructors and operators, as in the count of member functions; lambdas, which are read in their place; and bodies
    of at most three lines (one statement), which the function's name explains."""
    bare = re.sub(r"<[^<>]*>", "", re.sub(r"<[^<>]*>", "", name.replace("(anonymous namespace)::", ""))).split("(")[0]
    if "operator" in bare or "lambda" in name or re.search(r"\b(\w+)::~?\1$", bare):
        return False
    return lines_of_body(text, line) > 3
