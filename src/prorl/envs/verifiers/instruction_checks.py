"""Words and sentences of a response, its language, the checks that take more than a line, and the floor under all.

Everything is deterministic and local: regular expressions instead of tokenizer downloads, linear in the text. A word
is a run of letters and digits; an apostrophe inside joins ("don't" is one word), a hyphen does not. Scripts that are
written without spaces count one word per character. An empty title, placeholder, section or `{}` is none.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

DIVIDER, TWO_DIVIDERS = "***", "******"

# Thai, Lao, Burmese, Khmer, kana, Han
_SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# signs that belong to the letter before them, which `\w` leaves out
_MARKS = "\u0300-\u036f\u05b0-\u05bd\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff\u200c\u200d"
_RUN = rf"(?:(?![{_SPACELESS}])[\w{_MARKS}])+"
_WORD = re.compile(rf"[{_SPACELESS}]|{_RUN}(?:['’]{_RUN})*")
_TOKEN = re.compile(r"\w(?:\S*\w)?")
_FIRST_WORD = re.compile(r"\w(?:[\w'’-]*\w)?")
_BLANK_LINE = re.compile(r"\n\s*\n")
_BLOCK = re.compile(r"\n\s*\n|\n(?=[ \t]*(?:[-*•]|\d{1,3}[.)])[ \t])")
_STOP = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’)\]*_]*+(?=\s|$)|[。！？।؟۔]+[”’」』)\]]*")
_ABBREVIATION = re.compile(
    r"mrs?|ms|dr|prof|[sj]r|st|vs|fig|approx|dept|e\.g|i\.e|p\.s|p\.p\.s|[ap]\.m|u\.[sk]"
)
_LOOK_BACK = 16  # characters before a full stop that say whether it ends a sentence
_INITIAL = re.compile(r"(?:^|\s)(?!I$)[A-Z]$")


def words(text: str) -> list[str]:
    """The words in order, case folded.

    >>> words("Don't stop: well-known _fact_!")
    ["don't", 'stop', 'well', 'known', 'fact']
    """
    found = (token.strip("_") for token in _WORD.findall(text.casefold()))
    return [token for token in found if any(map(str.isalnum, token))]


def has_words(text: str) -> bool:
    """Whether there is a letter or digit."""
    return any(map(str.isalnum, text))


def tokens(text: str) -> list[str]:
    """What stands between white space, case kept, without the signs around it: hyphenated words stay whole.

    >>> tokens("(COVID-19) is *BAD*.")
    ['COVID-19', 'is', 'BAD']
    """
    return _TOKEN.findall(text)


def sentences(text: str) -> list[str]:
    """The sentences in order; the end of a paragraph or of a list item ends a sentence, a line break does not.

    >>> sentences("Dr. No paid $3.50. Really?\\n\\nA heading\\n1. One item")
    ['Dr. No paid $3.50.', 'Really?', 'A heading', '1. One item']
    """
    found: list[str] = []
    for block in _BLOCK.split(text):
        start = 0
        for stop in _STOP.finditer(block):
            if not _abbreviates(block, start, stop):
                found.append(block[start : stop.end()])
                start = stop.end()
        found.append(block[start:])
    return [sentence.strip() for sentence in found if has_words(sentence)]


def _abbreviates(block: str, start: int, stop: re.Match[str]) -> bool:
    """Whether a full stop belongs to an abbreviation, an initial or the number of a list item."""
    if stop.group() != ".":
        return False
    before = block[max(start, stop.start() - _LOOK_BACK) : stop.start()]
    if before.strip().isdigit():
        return stop.start() - start < _LOOK_BACK
    last = before.split()[-1] if before.split() else ""
    return bool(_ABBREVIATION.fullmatch(last.lstrip("(\"'“*_").casefold()) or _INITIAL.search(before))


def paragraphs(text: str) -> list[str]:
    """What stands between blank lines, empty pieces left out."""
    return [piece.strip() for piece in _BLANK_LINE.split(text) if piece.strip()]


def divided(text: str, divider: str) -> list[str]:
    """The parts between dividers, one before the first or after the last being optional; [] if one is empty."""
    parts = [part.strip() for part in text.split(divider)]
    parts = parts[1:] if len(parts) > 1 and not parts[0] else parts
    parts = parts[:-1] if len(parts) > 1 and not parts[-1] else parts
    return parts if all(map(has_words, parts)) else []


def folded(text: str) -> str:
    """The text with case and white space folded, for comparing copies."""
    return " ".join(text.casefold().split())


# The floor: most instructions forbid or shape something, and are met for free by saying next to nothing. So no
# instruction is met by a response whose own words are too few or too monotonous. Its own are those that remain when
# the prompt it echoes and the words that the instructions hand out (keywords, end phrases) are taken away.
# Instructions that limit the length lower the floor; those that fix the whole response replace it.

MIN_DISTINCT = 5  # words
# Distinct words over words: text of 1,000 words has about 0.4, a repeated sentence far less.
MIN_VARIETY = 0.08
ENOUGH_DISTINCT = 100  # from here on variety is no question: it falls with the length of any text
ECHO = 0.8  # of the prompt's words in one piece


def floor(room: int | None, given: frozenset[str]) -> int:
    """How many distinct words of its own a response must have.

    `room` is the largest number of words that the instructions allow, None without a limit; `given` are the words
    that they hand out. A limit halves the floor at the most and always leaves one word to write.
    """
    return MIN_DISTINCT if room is None else max(1, min(MIN_DISTINCT, (room + 1) // 2, room - len(given)))


def says_something(response: str, prompt: str, *, given: frozenset[str], least: int) -> bool:
    """Whether the response has `least` distinct words of its own, and does not just repeat a few."""
    said, asked = (f" {' '.join(words(text))} " for text in (response, prompt))
    if asked.strip():
        if said in asked and len(said.split()) >= ECHO * len(asked.split()):
            return False
        while asked in said:
            said = said.replace(asked, " ")
    own = [word for word in said.split() if word not in given]
    return len(set(own)) >= max(least, min(ENOUGH_DISTINCT, MIN_VARIETY * len(own)))


# Languages: by the script first, then by function words where several languages share a script. Small instead of
# complete: the thirty languages of IFEval and Chinese.

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
# letters and endings of one language among those that share small words
_TELLTALES = {"ru": re.compile(r"[ыэё]|тся\b"), "uk": re.compile("[іїєґ]"), "bg": re.compile("ъ")}
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
    if script in _ALONE:
        return script
    said = Counter(words(text))
    languages = _FUNCTION_WORDS.get(script, {})
    telling = {code: len(_TELLTALES[code].findall(text.casefold())) for code in _TELLTALES.keys() & languages}
    hits = sorted(
        (sum(said[word] for word in listed), telling.get(code, 0), code) for code, listed in languages.items()
    )
    if not hits or hits[-1][0] < max(1.0, MIN_FUNCTION_WORDS * said.total()):
        return None
    tied = len(hits) > 1 and hits[-1][:2] == hits[-2][:2]
    return None if tied else hits[-1][2]


# Checks

_LETTERS_WITH_DOTS = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]?")
_BRACKETED_WORD = re.compile(r"\[[^\[\]\s]+\]")
_BRACKETED_PAIR = re.compile(r"<<\s*[^\s<>]+\s+[^\s<>]+\s*>>")
_HIGHLIGHT = re.compile(r"\*\*(?=\S)([^*\n]+)(?<=\S)\*\*|\*(?=\S)([^*\n]+)(?<=\S)\*")
_TITLE = re.compile(r"<<([^<>\n]+)>>")
_FENCE = re.compile(r"```[^\n`]*\n(.*)```", re.DOTALL)
_JOINT = re.compile(r"(?<=[.!?])-(?=\S)")


def occurrences(response: str, keyword: str) -> int:
    """How often a keyword occurs, whatever the case and the white space inside it; "mother" occurs in "mothers"."""
    return len(re.findall(_literal(keyword), response, flags=re.IGNORECASE))


def stands_alone(response: str, word: str) -> bool:
    """Whether a word occurs as a word of its own."""
    return re.search(rf"(?<!\w){_literal(word)}(?!\w)", response, flags=re.IGNORECASE) is not None


def _literal(phrase: str) -> str:
    return r"\s+".join(map(re.escape, phrase.split()))


def begins_with(passage: str, word: str) -> bool:
    """Whether the first word is this one, whatever its case and the signs before it; "it" is not "it's"."""
    first = _FIRST_WORD.search(passage)
    return first is not None and first.group().casefold() == word.casefold()


def ends_with_word(passage: str, word: str) -> bool:
    """Whether the last word is this one, whatever signs follow it."""
    return words(passage)[-1:] == words(word)[-1:]


def every_sentence(response: str, check: Callable[[str, str], bool], word: str) -> bool:
    """Whether there are sentences and all of them pass the check with this word."""
    found = sentences(response)
    return bool(found) and all(check(sentence, word) for sentence in found)


def nth_paragraph(response: str, *, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """There are so many paragraphs, and the n-th begins with the word."""
    found = paragraphs(response)
    return len(found) == num_paragraphs and begins_with(found[nth_paragraph - 1], first_word)


def end_checker(response: str, *, end_phrase: str) -> bool:
    """The response ends with this phrase; only quotation marks may follow."""
    phrase, ending = end_phrase.casefold(), response.rstrip().casefold()
    if not ending.endswith(phrase):
        ending = ending.rstrip('"”').rstrip()
    joined = phrase[0].isalnum() and ending[-len(phrase) - 1 : -len(phrase)].isalnum()
    return ending.endswith(phrase) and not joined


def quotation(response: str) -> bool:
    """The entire response stands between double quotation marks, straight or curly."""
    body = response.strip()
    return len(body) > 2 and body[0] + body[-1] in ('""', "“”") and has_words(body)


def postscript(response: str, *, postscript_marker: str) -> bool:
    """The marker occurs with a text after it; white space between the letters of P.S. and P.P.S. is allowed."""
    marker = re.escape(postscript_marker)
    if _LETTERS_WITH_DOTS.fullmatch(postscript_marker):
        marker = r"\.\s?".join(postscript_marker.replace(".", "")) + r"\.?"
    found = re.search(rf"(?<![\w.]){marker}", response, flags=re.IGNORECASE)
    return found is not None and has_words(response[found.end() :])


def same_first_and_last(response: str) -> bool:
    """Two words or more, the first and the last the same, and nothing after the last, not even punctuation."""
    found = words(response)
    return len(found) >= 2 and found[0] == found[-1] and response.rstrip()[-1].isalnum()


def word_at(response: str, *, keyword: str, n: int, m: int) -> bool:
    """The m-th word of the n-th sentence, both counted from 1, is the keyword."""
    found, wanted = sentences(response), words(keyword)[:1]
    return bool(wanted) and len(found) >= n and words(found[n - 1])[m - 1 : m] == wanted


def bullets(response: str, *, num_bullets: int) -> bool:
    """Exactly this many markdown bullet points, lines that begin with `* ` or `- `."""
    lines = (line.lstrip() for line in response.splitlines())
    return sum(line.startswith(("* ", "- ")) and has_words(line) for line in lines) == num_bullets


def highlights(response: str, *, num_highlights: int) -> bool:
    """At least this many passages between `*` or `**` on one line; a bullet point is not one."""
    return sum(has_words(strong + plain) for strong, plain in _HIGHLIGHT.findall(response)) >= num_highlights


def sections(response: str, *, section_spliter: str, num_sections: int) -> bool:
    """At least this many numbers follow the section word, each with a text of its own before the next."""
    marker = re.compile(rf"(?<!\w){re.escape(section_spliter)}\s?(\d{{1,6}})(?!\d)")
    _, *pieces = marker.split(response)
    filled = {number for number, content in zip(pieces[::2], pieces[1::2], strict=True) if has_words(content)}
    return len(filled) >= num_sections


def json_format(response: str) -> bool:
    """The whole response, perhaps in a code fence, is a JSON object or array that is not empty."""
    body = response.strip()
    fenced = _FENCE.fullmatch(body)
    try:
        value = json.loads(fenced[1] if fenced else body, parse_constant=int)  # refuses NaN and Infinity
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict | list) and bool(value)


def title(response: str) -> bool:
    """A title in double angular brackets, and something that it is the title of."""
    rest = _TITLE.sub(lambda match: "" if has_words(match[1]) else match[0], response)
    return rest != response and has_words(rest)


def square_brackets(response: str) -> bool:
    """Every word stands in square brackets of its own."""
    rest, found = _BRACKETED_WORD.subn(" ", response)
    return found > 0 and not has_words(rest)


def bigram_wrapping(response: str) -> bool:
    """Words stand in pairs in double angular brackets; the last of an odd number may stand alone."""
    rest, found = _BRACKETED_PAIR.subn(" ", response)
    left = rest.split()
    return found > 0 and (not has_words(rest) or (len(left) == 1 and response.rstrip().endswith(left[0])))


def sentence_hyphens(response: str) -> bool:
    """All sentences, two at least, are joined by a hyphen without spaces."""
    pieces = _JOINT.split(response.strip())
    return len(pieces) >= 2 and all(len(sentences(piece)) == 1 for piece in pieces)


def no_adjacent_consecutive(response: str) -> bool:
    """No word begins with the letter of the alphabet that follows the first letter of the word before it."""
    initials = [ord(word[0]) if "a" <= word[0] <= "z" else 0 for word in words(response)]
    return not any(before and after == before + 1 for before, after in pairwise(initials))


def composition(response: str, *, n_sent: int, n_words: int) -> bool:
    """Three parts between dividers (`***` or `* * *`), each of n_sent sentences, each of n_words words."""
    parts = divided(response.replace("* * *", DIVIDER), DIVIDER)
    lengths = [Counter(len(words(sentence)) for sentence in sentences(part)) for part in parts]
    return lengths == [{n_words: n_sent}] * 3


def two_responses(response: str) -> bool:
    """Two responses separated by six asterisks that differ in their words."""
    parts = [words(part) for part in divided(response, TWO_DIVIDERS)]
    return len(parts) == 2 and parts[0] != parts[1]


def repeat_prompt(response: str, *, prompt_to_repeat: str) -> bool:
    """The response begins with the request word for word, and an answer follows."""
    head, body = folded(prompt_to_repeat), folded(response)
    return body.startswith(head) and has_words(body[len(head) :])


def copies(response: str, *, prompt_to_repeat: str, N: int) -> bool:
    """The response is N copies of the request, separated by six asterisks."""
    parts = response.split(TWO_DIVIDERS)
    return len(parts) == N and all(folded(part) == folded(prompt_to_repeat) for part in parts)


def copy_span(response: str, *, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """The response is this span of characters; the end may be included, as its wording says, or not, as its code."""
    spans = (prompt_to_repeat[n_start:n_end], prompt_to_repeat[n_start : n_end + 1])
    return folded(response) in map(folded, spans)


def repeat_phrase(response: str, *, phrase: str, small_n: int) -> bool:
    """The phrase occurs exactly so often with one of its inner words replaced, a word for a word."""
    wanted, found = words(phrase), words(response)
    windows = zip(*(found[at:] for at in range(len(wanted))), strict=False)
    differ = ([bool(word != other) for word, other in zip(window, wanted, strict=True)] for window in windows)
    return sum(sum(each) == 1 and not (each[0] or each[-1]) for each in differ) == small_n
