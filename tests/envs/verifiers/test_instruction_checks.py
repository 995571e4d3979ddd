"""Each check at its boundary, without the floor under it; then words, sentences, the floor itself and languages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.verifiers.instruction_checks import (
    LANGUAGES,
    MIN_DISTINCT,
    begins_with,
    detect,
    divided,
    floor,
    occurrences,
    paragraphs,
    says_something,
    sentences,
    tokens,
    words,
)
from prorl.envs.verifiers.instructions import RULES

SIX = "This one, don't worry, has six words."
THREE = "Dr. No paid $3.50. Really? He did..."
ASK = "Write  a Note.\nShort!"
FIVE = {f"keyword{i}": word for i, word in enumerate(("ink", "owl", "jar", "gum", "yak"), start=1)}
FIVE_TIMES = "ink owl owl jar jar jar" + " gum" * 5 + " yak" * 7
NO_JSON = [
    "", "{}", "[]", "7", '"text"', "null", "{'a': 1}", '{"a": 1} Done.', '{"a": NaN}', "[" * 100_000,
    '{"a": ' + "9" * 5000 + "}", '```json\n{"a": 1}', "```json```",
]  # fmt: skip


def at(threshold, number, relation="relation", **other):
    """Arguments of a comparison that holds, and of one that does not, each at its boundary."""
    right = [{threshold: number, relation: "at least"}, {threshold: number + 1, relation: "less than"}]
    wrong = [{threshold: number + 1, relation: "at least"}, {threshold: number, relation: "less than"}]
    return [{**arguments, **other} for arguments in right], [{**arguments, **other} for arguments in wrong]


# id, arguments, responses that meet it, responses that do not
CHECKS = [
    # keywords
    ("keywords:existence", {"keywords": ["war", "peace"]}, ["The war ended in PEACE", "warm and peaceful"],
     ["The war went on"]),
    ("keywords:existence", {"keywords": ["war"]}, ["war"], [""]),
    ("keywords:forbidden_words", {"forbidden_words": ["roll", "rock"]}, ["The rocket rocks"], ["ROCK!", "hard-rock"]),
    ("keywords:exclude_word_harder", {"keyword": "field"}, ["fielded"], ["field", "In this Field."]),
    ("keywords:word_once", {"keyword": "owl"}, ["one owl"], ["owl owl", "none"]),
    ("count:count_increment_word", {"keyword1": "pen", "keyword2": "owl"}, ["a pen, two owls, an owl"],
     ["a pen, an owl", "pen pen owl owl"]),
    ("count:keywords_multiple", FIVE, [FIVE_TIMES], [f"{FIVE_TIMES} yak", FIVE_TIMES.replace("ink", "")]),
    ("keywords:palindrome", {}, ["A racecar at noon.", "Wow!", "level-headed"], ["a I 7", "mmm hmm", "nothing here"]),
    ("keywords:no_adjacent_consecutive", {}, ["z a", "bread and water", "and again", "1 2 3", ""],
     ["cats eat fish", "Apples Bananas"]),
    # case, language, punctuation
    ("change_case:english_capital", {}, ["THIS IS THE END OF IT!", "ALL OF THE 12 MEN"],
     ["THIS IS THE end", "", "123", "DAS IST DAS ENDE VON ALLEM"]),
    ("change_case:english_lowercase", {}, ["this is the end of it!", "all of the 12 men"],
     ["this is The end", "", "...", "das ist das ende von allem", "zxcv qwer asdf"]),
    ("punctuation:no_comma", {}, ["one; two. three", ""], [f"one{comma} two" for comma in ",，、،"]),
    ("punctuation:punctuation_dot", {}, ["one! two? three"], ["3.5", "one…"]),
    ("punctuation:punctuation_exclamation", {}, ["one. two?"], ["one!", "one！"]),
    ("language:response_language", {"language": "fr"}, ["Il fait froid et le vent est fort."],
     ["It is cold and the wind is strong.", "42"]),
    # copies
    ("combination:two_responses", {},
     ["Yahweh ****** Allah", "******\nOne way.\n******\nAnother way.\n******", "a\n******\nb"],
     ["a\n******\nA!", "a", "a ****** b ****** c", "a ************ b", "******", "a ******", "a *** b"]),
    ("combination:repeat_prompt", {"prompt_to_repeat": ASK},
     ["Write a note. Short!\n\nDear John.", ASK + " ok", "write a note. short! Hi"],
     [ASK, ASK + " ...", "Sure! " + ASK + " Hi", "Write a note."]),
    ("copy:copy", {"prompt_to_repeat": ASK}, [" write a note. short!\n"], [ASK + " Hi", ""]),
    ("copy:copying_multiple", {"prompt_to_repeat": ASK, "N": 2}, [f"{ASK}\n******\n{ASK}"],
     [ASK, f"{ASK}\n******\nHi", f"{ASK}******{ASK}******{ASK}"]),
    ("new:copy_span_idx", {"prompt_to_repeat": "The old pier", "n_start": 0, "n_end": 6}, ["The ol", "the old"],
     ["The o", "The old pier"]),
    ("copy:repeat_phrase", {"phrase": "a cold day here", "small_n": 2},
     ["a warm day here, then a mild day here", "We saw a warm day here. A mild day here.",
      "a cold day here, a warm day here, a mild day here"],
     ["a warm day here", "a cold day here, a cold day here", "a warm sun here, a mild day here",
      "a warm day there, a mild day there", ""]),
    # counts
    ("count:lowercase_counting", {"N": 2}, ["BIG News for YOU today", "ALL LOUD 12"], ["BIG News for you today"]),
    ("count:count_unique", {}, ["Every word, once."], ["The cat and the dog", "well, well-known"]),
    ("count:unique_word_count", {"N": 3}, ["one two two three"], ["one two two", "One one ONE"]),
    ("count:numbers", {"N": 0}, ["no numbers"], ["a1b2"]),
    ("count:numbers", {"N": 2}, ["1,000 and 3.14", "a1b2"], ["At 7:30 on 4 May 2020."]),
    ("count:numbers", {"N": 3}, ["At 7:30 on 4 May 2020."], ["1,000 and 3.14"]),
    ("count:conjunctions", {"small_n": 2}, ["Big and small, but old"], ["Big and small and old"]),
    ("count:conjunctions", {"small_n": 1}, ["or"], ["sand, buttons, fort"]),
    ("count:counting_composition", {"n_sent": 2, "n_words": 2},
     ["One two. Three four.\n***\nFive six! Seven eight?\n* * *\nNine ten. Eleven twelve."],
     ["One two. Three four.\n***\nFive six! Seven eight?",
      "One two. Three four.\n***\nFive six! Seven?\n***\nNine ten. Eleven twelve.",
      "One two. Three four.\n***\nFive six!\n***\nNine ten. Eleven twelve.",
      "One two. Three four.\n***\n***\nNine ten. Eleven twelve."]),
    # lengths
    ("count:word_count_range", {"min_words": 7, "max_words": 7}, [SIX], [SIX + " No.", "One two."]),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 1}, ["a"], ["a ****** b", "", "***"]),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, ["a\n***\nb", "***\na\n***\nb\n***"],
     ["a\n***\n***\nb", "a ****** b", "***"]),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 3}, ["a *** b *** c"],
     ["a\n***\n--\n***\nb", "a\n***\n***\nb"]),
    ("paragraphs:paragraphs", {}, ["a\n***\nb"], ["a\n\nb", "a\n***\nb\n***\nc"]),
    ("paragraphs:paragraphs2", {}, ["a\nb\n\n \nc"], ["a\nb", "a\n\nb\n\nc"]),
    ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "tide"},
     ["First.\n\nTide turns.", "First.\n\n\n\"Tide\", he said.", "First.\n\n**tide** turns"],
     ["Tide.\n\nSecond.", "First.\n\nTides turn.", "First.\n\nTide.\n\nThird.", "First.\nTide.", "First.\n\n...",
      "First.\n\nTide-free."]),
    # places
    ("startend:end_checker", {"end_phrase": "That is all."},
     ["Done. That is all.", '"Done. THAT IS ALL."\n', "That is all."],
     ["That is all. Bye.", "Done. That is all", "Xthat is all.", ""]),
    ("startend:end_checker", {"end_phrase": '"go".'}, ['He said "go".'], ['He said "go"']),
    ("startend:end_checker", {"end_phrase": '"go"'}, ['He said "go"'], ["He said go"]),
    ("startend:quotation", {}, ['"All of it."', ' "a" ', "“Curly.”"],
     ['"Half of it.', 'Say "it"', '""', '"', "'Single.'"]),
    ("detectable_content:postscript", {"postscript_marker": "P.S."},
     ["Bye.\n\nP.S. Bring a coat.", "Bye. p. s. bring one"],
     ["Bye.\nP.P.S. Bring one.", "Bye.\nP.S.", "Lamps are on.", "Bye.\nPS bring one"]),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"},
     ["Bye.\nP.P.S Bring one.", "Bye.\nP. P. S. Bring one."], ["Bye.\nP.S. Bring one."]),
    ("detectable_content:postscript", {"postscript_marker": "Nota bene:"}, ["Bye.\nNota bene: coat"], ["Bye."]),
    ("first_word:first_word_answer", {"first_word": "tide"}, ["  **Tide** turns."], ["The tide.", "Tides turn."]),
    ("last_word:last_word_answer", {"last_word": "Tide"}, ["We wait for the tide!\n"], ["The tide turns.", ""]),
    ("first_word:first_word_sent", {"first_word": "we"}, ["We go. We stay! We wait"], ["We go. They stay.", ""]),
    ("last_word:last_word_sent", {"last_word": "home"}, ["Go home. Stay home!"], ["Go home. Home is far.", ""]),
    ("keywords:start_end", {}, ["Rain brings rain", "«Rain» brings Rain", "rain rain\n"],
     ["Rain brings rain.", "Rain brings snow", "Rain", ""]),
    ("keywords:keyword_specific_position", {"keyword": "Ships", "n": 2, "m": 3},
     ["Cold rain falls. Old, grey ships wait."], ["Cold rain falls. Grey ships wait.", "Old grey ships.", "No. No."]),
    # forms
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, ["[name] lives in [home town]"],
     ["[] [ ] [..]", "[a[b]", "[link](url)"]),
    ("detectable_content:number_placeholders", {"num_placeholders": 1}, ["[a[b]", "[link](url)"],
     ["[] [ ] [..]", "[a\nb]"]),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, ["* one\n* two"],
     ["* one", "* one\n* two\n* three", "text * no bullet"]),
    ("detectable_format:number_bullet_lists", {"num_bullets": 3}, ["- one\n  - two\n\t* three"], ["* one\n* two"]),
    ("detectable_format:number_bullet_lists", {"num_bullets": 0},
     ["**bold** start\n*emphasis* start", "---\n* * *\n- \n-5 degrees", "text * not a bullet"], ["1. one\n* two"]),
    ("detectable_format:constrained_response", {},
     ["My answer is yes.", "  MY ANSWER IS MAYBE.\nBecause.", "My answer is no. Sorry."],
     ["yes", "My answer is yes", "My answer is yes. My answer is no.", ""]),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 3}, ["*one* and **two** and ***three***"],
     ["* item *high* and *light*"]),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, ["* item *high* and *light*"], ["*a*"]),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, ["*a*"],
     ["* item one\n* item two", "* a * b *", "**** ** **", "*open", "*a\nb*"]),
    ("detectable_format:multiple_sections", {"section_spliter": "Section", "num_sections": 2},
     ["Section 1\nText.\nSection 2\nMore.", "**Section 1**: a\n# Section 2: b"], ["Section 1 a Section 1 b"]),
    ("detectable_format:multiple_sections", {"section_spliter": "Section", "num_sections": 1},
     ["Section 1 a Section 1 b"], ["Section 1 Section 2 Section 3", "SECTION 1 a", "Subsection1 a", "Section X a"]),
    ("detectable_format:json_format", {}, ['{"a": 1}', "[1, 2]", '```json\n{"a": [1]}\n```', '```\n["x"]\n```\n'],
     NO_JSON),
    ("detectable_format:title", {}, ["<<poem of joy>>\nRoses.", "Roses.\n<<end>>", "**<<bold>>** text"],
     ["<<only a title>>", "<<>> text", "<< >> text", "<title> text", "<<a\nb>> text"]),
    ("detectable_format:square_brackets", {}, ["[I] [am] [here].", "[one]", "[Hello], [world]!"],
     ["[I am] [here]", "[I] am [here]", "", "[]"]),
    ("detectable_format:bigram_wrapping", {},
     ["<<I am>> <<at home>>", "<<I am>> <<at home>> today", "<<I am>>\n<<at home.>>"],
     ["<<I am>> at home", "today <<I am>>", "<<I>> <<am>>", ""]),
    ("detectable_format:sentence_hyphens", {},
     ["It rains.-We stay.", "It rains!-Why?-We stay.", "A well-known fact.-We stay."],
     ["It rains.", "It rains. We stay.", "It rains. -We stay.", "It rains.-We stay. Still."]),
]  # fmt: skip

# id, response, arguments at the boundary
COMPARISONS = [
    ("keywords:frequency", "war, War", at("frequency", 2, keyword="war")),
    ("keywords:letter_frequency", "Too tight", at("let_frequency", 3, "let_relation", letter="T")),
    ("keywords:letter_frequency", "#go #vote", at("let_frequency", 2, "let_relation", letter="#")),
    ("letters:letter_counting", "ab, 1 cé", at("N", 4)),
    ("change_case:capital_word_frequency", "The NASA-ESA plan and COVID-19 of 2020",
     at("capital_frequency", 2, "capital_relation")),
    ("change_case:capital_word_frequency", "*KEY* skills", at("capital_frequency", 1, "capital_relation")),
    ("length_constraints:number_words", SIX, at("num_words", 7)),
    ("length_constraints:number_sentences", THREE, at("num_sentences", 3)),
]  # fmt: skip


def meets(name, kwargs, response):
    rule = RULES[name]
    return rule.test(response, **{key: rule.arguments[key](value) for key, value in kwargs.items()})


@pytest.mark.parametrize(("name", "kwargs", "right", "wrong"), CHECKS)
def test_a_check_at_its_boundary(name, kwargs, right, wrong):
    assert [response for response in right if not meets(name, kwargs, response)] == []
    assert [response for response in wrong if meets(name, kwargs, response)] == []


@pytest.mark.parametrize(("name", "response", "arguments"), COMPARISONS)
def test_a_comparison_at_its_boundary(name, response, arguments):
    right, wrong = arguments
    assert all(meets(name, kwargs, response) for kwargs in right)
    assert not any(meets(name, kwargs, response) for kwargs in wrong)


def test_every_rule_is_in_a_table():
    tested = {RULES[name].test for name, *_ in (*CHECKS, *COMPARISONS)}
    assert {name for name, rule in RULES.items() if rule.test not in tested} == set()


@pytest.mark.parametrize(("response", "keyword", "times"), [
    ("Mother and mothers", "mother", 2), ("momma", "mom", 1), ("ice  cream, ice\ncream, icecream", "ice cream", 2),
    ("1+1 and 1+1", "1+1", 2), ("aaaa", "aa", 2), ("(.*)", ".*", 1), ("", "a", 0),
])  # fmt: skip
def test_occurrences(response, keyword, times):
    assert occurrences(response, keyword) == times


@pytest.mark.parametrize(("text", "expected"), [
    ("Don’t stop", ["don’t", "stop"]), ("a_b __c__ _", ["a_b", "c"]), ("3.5 km", ["3", "5", "km"]),
    ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]), ("你好 ok", ["你", "好", "ok"]), ("— … !", []), ("", []),
])  # fmt: skip
def test_words(text, expected):
    assert words(text) == expected


@pytest.mark.parametrize(("text", "count"), [
    ("One. Two! Three?", 3), ("One... two?! Three", 3), ("Mr. Fox met Dr. J. Owl at 5 p.m. today.", 1),
    ("He said \"Go.\" Then he left.", 2), ("1. One item\n2. Another item", 2), ("A heading\n\nA line", 2),
    ("- cold wind\n- grey water", 2), ("1) cold\n2) grey", 2),
    ("one line\nthe same sentence.", 1), ("你好。再见！", 2), ("It costs $3.50 at example.com.", 1),
    ("I am. So am I. Good.", 3), ("", 0), ("...", 0),
])  # fmt: skip
def test_sentences(text, count):
    assert len(sentences(text)) == count


def test_parts_of_a_text():
    assert tokens('"Well-Known" (U.S.) -- x!') == ["Well-Known", "U.S", "x"]
    assert paragraphs("a\nb\n\n \n\nc\n") == ["a\nb", "c"]
    assert divided("***a***b***", "***") == ["a", "b"]
    assert divided("a******b", "***") == divided("", "***") == []
    assert begins_with("tide turns", "TIDE")
    assert begins_with("TIDE turns", "tide")


PROMPT = "Write a short note about the sea in winter, please."
NOTE = "Cold wind moves over grey water."
STORY = " ".join(f"Line {i} tells of day{i} and wind{i % 7}." for i in range(200))


def says(response, prompt=PROMPT, given=frozenset()):
    return says_something(response, prompt, given=given, least=MIN_DISTINCT)


def test_what_says_something():
    assert says(NOTE)
    assert says(NOTE, prompt="")
    assert says(STORY)
    assert says(f"{PROMPT}\n{NOTE}")
    piece = "Put this in lower case: Hi guys. The work was done. " * 2
    assert says("hi guys the work was done", prompt=piece)


@pytest.mark.parametrize("response", [
    "", " \n", "ok", "...", "ok ok ok ok ok ok", "one two three four", f"{NOTE} " * 30,
    PROMPT, PROMPT.upper(), " ".join([PROMPT] * 3), f"{PROMPT} Sure thing.",
    "a short note about the sea in winter, please", "I like the old sea. " * 40,
])  # fmt: skip
def test_what_says_nothing(response):
    assert not says(response)


def test_handed_out_words_do_not_count():
    assert not says(NOTE, given=frozenset({"cold", "grey"}))
    assert says(NOTE, given=frozenset({"cold"}))


@pytest.mark.parametrize(("room", "given", "least"), [
    (None, (), 5), (300, (), 5), (9, (), 5), (8, (), 4), (4, (), 2), (1, (), 1), (0, (), 1),
    (12, ("a",) * 11, 5), (12, tuple("abcdefghijk"), 1),
])  # fmt: skip
def test_floor(room, given, least):
    assert floor(room, frozenset(given)) == least


@given(st.integers(1, 50), st.sets(st.text(min_size=1), max_size=60))
def test_the_floor_can_be_met_within_the_room(room, handed_out):
    least = floor(room, frozenset(handed_out))
    assert 1 <= least <= min(MIN_DISTINCT, room)


SENTENCES = {
    "en": "The children went down to the harbour because they wanted to see the ships.",
    "es": "Los niños bajaron al puerto porque querían ver los barcos antes de la noche.",
    "pt": "As crianças foram até o porto porque queriam ver os navios antes de anoitecer.",
    "fr": "Les enfants sont allés au port parce qu'ils voulaient voir les bateaux avant la nuit.",
    "de": "Die Kinder gingen zum Hafen, weil sie vor der Nacht noch die Schiffe sehen wollten.",
    "it": "I bambini sono andati al porto perché volevano vedere le navi prima della notte.",
    "pl": "Dzieci poszły do portu, bo chciały zobaczyć statki przed nocą i nie było daleko.",
    "fi": "Lapset menivät satamaan, koska he halusivat nähdä laivat ennen yötä ja se oli hauskaa.",
    "vi": "Những đứa trẻ đi xuống bến cảng vì chúng muốn xem các con tàu trước khi trời tối.",
    "sw": "Watoto walienda bandarini kwa sababu walitaka kuona meli kabla ya usiku na giza.",
    "ru": "Дети пошли в порт, потому что они хотели увидеть корабли до наступления ночи.",
    "uk": "Діти пішли до порту, тому що вони хотіли побачити кораблі до настання ночі.",
    "bg": "Децата отидоха на пристанището, защото искаха да видят корабите преди да се стъмни.",
    "ar": "ذهب الأطفال إلى الميناء لأنهم أرادوا رؤية السفن قبل أن يحل الليل في المدينة.",
    "fa": "بچه‌ها به بندر رفتند چون می‌خواستند کشتی‌ها را پیش از شب در دریا ببینند.",
    "ur": "بچے بندرگاہ پر گئے کیونکہ وہ رات سے پہلے جہاز دیکھنا چاہتے تھے اور یہ دور نہیں تھا۔",
    "hi": "बच्चे बंदरगाह पर गए क्योंकि वे रात से पहले जहाज़ देखना चाहते थे और यह दूर नहीं था।",
    "mr": "मुले बंदरावर गेली कारण त्यांना रात्रीपूर्वी जहाजे पाहायची होती आणि ते लांब नाही.",
    "ne": "केटाकेटीहरू बन्दरगाह गए किनभने उनीहरू रात हुनु अघि जहाज हेर्न चाहन्थे र यो टाढा छैन।",
    "he": "הילדים הלכו לנמל כי הם רצו לראות את האוניות לפני הלילה.",
    "el": "Τα παιδιά πήγαν στο λιμάνι γιατί ήθελαν να δουν τα πλοία πριν νυχτώσει.",
    "bn": "শিশুরা বন্দরে গিয়েছিল কারণ তারা রাতের আগে জাহাজ দেখতে চেয়েছিল।",
    "pa": "ਬੱਚੇ ਬੰਦਰਗਾਹ ਤੇ ਗਏ ਕਿਉਂਕਿ ਉਹ ਜਹਾਜ਼ ਦੇਖਣਾ ਚਾਹੁੰਦੇ ਸਨ।",
    "gu": "બાળકો બંદર પર ગયા કારણ કે તેઓ વહાણો જોવા માંગતા હતા.",
    "ta": "குழந்தைகள் கப்பல்களைப் பார்க்க விரும்பியதால் துறைமுகத்திற்குச் சென்றனர்.",
    "te": "పిల్లలు ఓడలను చూడాలనుకున్నందున ఓడరేవుకు వెళ్లారు.",
    "kn": "ಮಕ್ಕಳು ಹಡಗುಗಳನ್ನು ನೋಡಲು ಬಂದರಿಗೆ ಹೋದರು.",
    "ml": "കുട്ടികൾ കപ്പലുകൾ കാണാൻ തുറമുഖത്തേക്ക് പോയി.",
    "th": "เด็กๆ ไปที่ท่าเรือเพราะอยากเห็นเรือก่อนค่ำ",
    "ko": "아이들은 밤이 되기 전에 배를 보고 싶어서 항구로 갔다.",
    "ja": "子供たちは夜になる前に船を見たかったので港へ行きました。",
    "zh": "孩子们去了港口，因为他们想在天黑之前看到船。",
}


def test_there_is_a_sentence_for_every_language():
    assert SENTENCES.keys() == LANGUAGES


@pytest.mark.parametrize("code", SENTENCES)
def test_each_language_in_any_case(code):
    assert detect(SENTENCES[code]) == code
    assert detect(SENTENCES[code].upper()) == code
    assert detect(SENTENCES[code] + " NATO") == code


@pytest.mark.parametrize("text", ["", "42 + 1", "qwer asdf zxcv", "Tokyo Paris Berlin", "ᚠᚢᚦᚨᚱᚲ"])
def test_cannot_tell(text):
    assert detect(text) is None


def test_mixed_scripts_are_no_language():
    assert detect(SENTENCES["ru"] + SENTENCES["th"]) is None
    assert detect("The end. " + SENTENCES["ko"] + " And this is the rest of the story.") is None


def test_a_tie_is_no_language():
    assert detect("the le cat chat") is None
    assert detect("the le cat chat sat of") == "en"


def test_languages_of_one_script_are_told_apart_by_their_letters_too():
    russian = "Погода сегодня прекрасная, и на улице светит солнце, в парке поют птицы и растут цветы."
    assert detect(russian) == "ru"
    assert detect("Москва является столицей России и находится на реке.") == "ru"
    assert detect("Сьогодні чудова погода і сонце світить яскраво.") == "uk"
    assert detect("Времето днес е хубаво и слънцето свети над града.") == "bg"
