"""Which block of a response is the program."""

import pytest

from prorl.envs.extract import MAX_CODE_CHARS, extract_answer, extract_code
from support.timing import cpu_seconds


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>12</answer>", "12"),
        (r"<answer>\boxed{12}</answer>", "12"),
        (r"<answer>It is $\boxed{\text{No}}$.</answer>", "No"),
        (r"\boxed{\text{Sunday}}", "Sunday"),
        ("<answer>$12$</answer>", "$12$"),  # as some tasks want it
        (r"<answer>\text{}</answer>", None),
        (r"It is \boxed{5}. I gave it within \boxed{}.", "5"),  # as the prompt has it
        (r"It is \boxed{5}. Wait \boxed{", "5"),
        (r"within <answer></answer>: \boxed{5}", "5"),
        (
            r"\boxed{\left\{\begin{array}{l}x=1\end{array}\right.}",
            r"\left\{\begin{array}{l}x=1\end{array}\right.",
        ),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{} \boxed{", None),
        ("so \\boxed {5} and then \\boxed\n{6}", "6"),
        (r"\boxed 5", None),
    ],
)
def test_one_answer_in_all_its_dresses(text, answer):
    assert extract_answer(text) == answer


CODE = "n = int(input())\nprint(n * 2)"


def block(body, mark=""):
    return f"```{mark}\n{body}\n```\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (block(CODE, "python"), CODE),
        (block(CODE), CODE),
        (block(CODE, "py") + "prints\n" + block("6"), CODE),
        (block(CODE, "python") + "prints\n" + block("x = 6", "text"), CODE),
        (block(CODE, "Python3") + block("6\n12", "output"), CODE),
        (block(CODE, "python") + block("main()"), CODE),  # a mark is worth more than the place
        (block(CODE) + "prints\n" + block("6"), CODE),
        (block(CODE) + "prints\n" + block("6", "text"), CODE),
        (block(CODE) + "prints\n" + block("YES\nNO 3"), CODE),
        (block("3\n1 2 3") + block(CODE), CODE),
        (block("int main() { return 0; }", "cpp") + block(CODE, "python"), CODE),
        (block("first()", "python") + block(CODE, "python"), CODE),
        (block("first()") + block(CODE), CODE),
        (block("def f(x):\n    return x") + block("5"), "def f(x):\n    return x"),
        (
            block("import sys\nfor x in sys.stdin: pass") + block("a b"),
            "import sys\nfor x in sys.stdin: pass",
        ),
        (block("3") + block("5"), "5"),
        (block("3", "text"), "3"),
        ("Print ```YES``` if so.\n" + block(CODE, "python"), CODE),
        ("1. Code:\n   ```python\n   n = int(input())\n   print(n)\n   ```", "n = int(input())\nprint(n)"),
        ("<think>" + block("draft()", "python") + "</think>" + block(CODE), CODE),
        ("<think>" + block(CODE, "python"), None),
        ("no block", None),
        ("```python\nnever closed", None),
        (block("", "python"), None),
        (block("x" * MAX_CODE_CHARS + "x", "python"), None),
    ],
)
def test_the_program_is_the_last_block_marked_as_python_else_the_last_that_looks_like_it(text, code):
    assert extract_code(text) == code


@pytest.mark.parametrize(
    "filler", [" " * 10**5, "a." * 10**5, "a, " * 10**5, "for " * 10**5, "[" * 10**5, "\n" * 10**5]
)
def test_a_long_block_takes_no_longer_than_it_should(filler):
    assert cpu_seconds(lambda: extract_code(block(filler) + block("5")), enough=0.5) < 0.5
