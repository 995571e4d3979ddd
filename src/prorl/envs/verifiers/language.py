"""Which language a text is in: its script first, then its function words where several languages share a script.

Deterministic and small instead of complete: the thirty languages of IFEval and Chinese. "Cannot tell" is an answer
(None), given where the scripts are mixed, where hardly any function word occurs, or where two languages tie.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from pathlib import Path

from prorl.envs.verifiers.instruction_checks import words

MIN_SCRIPT_SHARE = 0.8  # of the letters; names and terms may stay in another script
MIN_FUNCTION_WORDS = 0.05  # of the words; running text has 15 % or more, a list of names has none
MIN_KANA_SHARE = 0.1  # of Japanese letters; Chinese has none

_RANGES = (  # the name of a script that one language has to itself is that language's code
    ("latin", 0x0041, 0x024F), ("latin", 0x1E00, 0x1EFF), ("el", 0x0370, 0x03FF), ("cyrillic", 0x0400, 0x052F),
    ("he", 0x0590, 0x05FF), ("arabic", 0x0600, 0x077F), ("arabic", 0xFB50, 0xFEFC), ("devanagari", 0x0900, 0x097F),
    ("bn", 0x0980, 0x09FF), ("pa", 0x0A00, 0x0A7F), ("gu", 0x0A80, 0x0AFF), ("ta", 0x0B80, 0x0BFF),
    ("te", 0x0C00, 0x0C7F), ("kn", 0x0C80, 0x0CFF), ("ml", 0x0D00, 0x0D7F), ("th", 0x0E00, 0x0E7F),
    ("kana", 0x3040, 0x30FF), ("han", 0x3400, 0x9FFF), ("ko", 0x1100, 0x11FF), ("ko", 0xAC00, 0xD7AF),
)  # fmt: skip
_ALONE = frozenset(name for name, _, _ in _RANGES if len(name) == 2)
_FUNCTION_WORDS: dict[str, dict[str, frozenset[str]]] = {}  # script → language → words
for _line in Path(__file__).with_name("function_words.txt").read_text(encoding="utf-8").splitlines():
    _name, _code, *_listed = _line.split()
    _FUNCTION_WORDS.setdefault(_name, {})[_code] = frozenset(map(str.casefold, _listed))
LANGUAGES = _ALONE.union(("ja", "zh"), *_FUNCTION_WORDS.values())


def detect(text: str) -> str | None:
    """The ISO 639-1 code of the language of a text, None where it cannot be told.

    >>> detect("What is the name of the river?"), detect("Wie heißt der Fluss?"), detect("Ναι"), detect("42")
    ('en', 'de', 'el', None)
    """
    text = unicodedata.normalize("NFC", text)
    scripts: Counter[str] = Counter()
    for character, count in Counter(text).items():
        if character.isalpha():
            found = (name for name, first, last in _RANGES if first <= ord(character) <= last)
            scripts[next(found, "other")] += count
    total = scripts.total()
    japanese = scripts["kana"] + scripts["han"]
    if total and japanese >= MIN_SCRIPT_SHARE * total:
        return "ja" if scripts["kana"] >= MIN_KANA_SHARE * japanese else "zh"
    if not total or scripts.most_common(1)[0][1] < MIN_SCRIPT_SHARE * total:
        return None
    script = scripts.most_common(1)[0][0]
    return script if script in _ALONE else _by_function_words(text, _FUNCTION_WORDS.get(script, {}))


def _by_function_words(text: str, languages: dict[str, frozenset[str]]) -> str | None:
    found = Counter(words(text))
    hits = sorted((sum(found[word] for word in listed), code) for code, listed in languages.items())
    if not hits or hits[-1][0] < max(1.0, MIN_FUNCTION_WORDS * found.total()):
        return None
    tied = len(hits) > 1 and hits[-1][0] == hits[-2][0]
    return None if tied else hits[-1][1]
