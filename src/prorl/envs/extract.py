"""Where the answer of a response stands. One extraction for training and evaluation, base and trained models.

The contract is `<think>…</think>` and then `<answer>…</answer>`. Extraction is lenient so that a base model is
never called incapable because of its format: thinking may be missing, `\\boxed{…}` is accepted, and
the last answer wins. What stands inside the thinking never counts.
"""

import re
from textwrap import dedent

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
ANSWER_OPEN, ANSWER_CLOSE = "<answer>", "</answer>"
MAX_ANSWER_CHARS = 4000
MAX_CODE_CHARS = 64_000

_ANSWER = re.compile(re.escape(ANSWER_OPEN) + r"((?:(?!</?answer>).)*)" + re.escape(ANSWER_CLOSE), re.DOTALL)
_WORDS = re.compile(r"\\text\s*\{([^{}]*)\}")  # as LaTeX writes them
_BOX, _BRACE = re.compile(r"\\boxed\s*\{"), re.compile(r"\\.|[{}]", re.DOTALL)
MOST_BOXES = 8  # the last ones, that are looked into
# The first kind stands within a line.
_FENCED = re.compile(r"```[^\n`]+```|```([^\n`]*)\n(.*?)```", re.DOTALL)
_SHELL = re.compile(r"\s*(?:bash|sh|shell)\b", re.IGNORECASE)
_PYTHON = re.compile(r"\s*(?:python|py|pypy)[\d.]*\b", re.IGNORECASE)
# a statement, an assignment or a call: what the output of a program seldom has
_STATEMENT = re.compile(
    r"^[ \t]*+(?:(?:import|from|def|class|for|while|if|with|try)\b.*(?::|import)|[\w.\[\], ]++=[^=]|[\w.]++\()",
    re.MULTILINE,
)


def extract_answer(text: str) -> str | None:
    """The last complete answer after the thinking, stripped; None when there is none, or thinking never ended.

    Of a box within the tags, what it holds; `\\text{…}` around all of it goes.

    >>> extract_answer("<think>2+2=4</think><answer>4</answer>")
    '4'
    >>> extract_answer("so it is \\\\boxed{\\\\frac{1}{2}}")
    '\\\\frac{1}{2}'
    >>> extract_answer("<think><answer>4</answer>") is None
    True
    """
    tail = after_thinking(text)
    if tail is None:
        return None
    tagged = [said for said in _ANSWER.findall(tail) if said.strip()]
    answer = (last_box(tagged[-1]) or tagged[-1]) if tagged else last_box(tail)
    words = _WORDS.fullmatch(answer.strip()) if answer else None
    return _usable(words[1] if words else answer, MAX_ANSWER_CHARS)


def extract_code(text: str) -> str | None:
    """The program of a coding problem: a block in triple backticks after the thinking; None without one.

    Of several blocks it is the last that is marked as Python; where none is, the last without a mark that has a
    statement of Python in it; where there is none of these either, the last.

    >>> extract_code("<think>easy</think>```python\\nprint(1)\\n``` prints ```\\n1\\n```")
    'print(1)'
    """
    blocks = _blocks(text)
    marked = [body for mark, body in blocks if _PYTHON.match(mark)]
    programs = [body for mark, body in blocks if not mark.strip() and _STATEMENT.search(body)]
    chosen = marked or programs or [body for _, body in blocks]
    return _usable(chosen[-1] if chosen else None, MAX_CODE_CHARS)


def extract_script(text: str) -> str | None:
    """The last block after the thinking that is marked as a shell's, or else the last without a mark; or None."""
    blocks = _blocks(text)
    marked = [body for mark, body in blocks if _SHELL.match(mark)]
    chosen = marked or [body for mark, body in blocks if not mark.strip()]
    return _usable(chosen[-1] if chosen else None, MAX_CODE_CHARS)


def after_thinking(text: str) -> str | None:
    """What follows the thinking: the whole text where none was begun, None where it never ended."""
    _, closed, tail = text.rpartition(THINK_CLOSE)
    return None if not closed and THINK_OPEN in text else tail


def respond(steps: str, answer: str) -> str:
    """A response in the contract's format: what warm-up shows and what `extract_answer` reads back."""
    return f"{THINK_OPEN}{steps}{THINK_CLOSE}{ANSWER_OPEN}{answer}{ANSWER_CLOSE}"


def last_box(text: str) -> str | None:
    """What the last `\\boxed{…}` holds that is closed and not empty; None without one."""
    for box in [*_BOX.finditer(text)][: -MOST_BOXES - 1 : -1]:
        depth = 1
        for sign in _BRACE.finditer(text, box.end()):
            depth += {"{": 1, "}": -1}.get(sign[0], 0)
            if depth == 0:
                break
        if depth == 0 and (inside := text[box.end() : sign.start()]).strip():
            return inside
    return None


def _blocks(text: str) -> list[tuple[str, str]]:
    """Mark and body of each block in triple backticks after the thinking."""
    found = _FENCED.finditer(after_thinking(text) or "")
    blocks = [(match[1], match[2]) for match in found if match[2] is not None]
    return [(mark, dedent(body) if body[:1].isspace() else body) for mark, body in blocks]


def _usable(answer: str | None, limit: int) -> str | None:
    if answer is None or len(answer) > limit:
        return None
    return answer.strip() or None
